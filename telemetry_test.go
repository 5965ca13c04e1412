//go:build unix

package elsewhere_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// openLocal opens a sandbox of local in a home of its own.
func openLocal(t testing.TB, opts elsewhere.SandboxOptions) *elsewhere.Sandbox {
	t.Helper()
	base := t.TempDir()
	for _, d := range []string{"home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	opts.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base + "/home", "HERMES_HOME=" + base + "/hermes", "TMPDIR=" + base + "/tmp"}
	cfg, err := config.Load(config.Options{
		Backends: []driver.Backend{local.Backend()}, Environ: opts.Environ, Flags: map[string]string{"temp_dir": base + "/tmp"},
	})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := elsewhere.OpenSandbox(t.Context(), cfg, &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sb
}

// sums are the counters, each point by its metric and its attributes' values.
func sums(t *testing.T, reader sdkmetric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, p := range sum.DataPoints {
					name := []string{m.Name}
					for _, kv := range p.Attributes.ToSlice() {
						name = append(name, kv.Value.AsString())
					}
					found[strings.Join(name, " ")] += p.Value
				}
			}
		}
	}
	return found
}

func TestEachCallIsOneSpan(t *testing.T) {
	spans, reader := tracetest.NewSpanRecorder(), sdkmetric.NewManualReader()
	sb := openLocal(t, elsewhere.SandboxOptions{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := sb.Session(t.Context(), "named")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "sleep 1000 # s3cret", &elsewhere.RunOptions{Timeout: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := other.Run(ctx, "echo up; sleep 1000", &elsewhere.RunOptions{Stdout: canceler(cancel)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "", nil); err == nil {
		t.Fatal("an empty command ran")
	}
	job, err := s.Start(t.Context(), "read -r line", nil)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := s.Shell(t.Context(), "exit 4", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, terminal)
	if _, err := terminal.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, span := range spans.Ended() {
		set := attribute.NewSet(span.Attributes()...)
		cause, _ := set.Value("elsewhere.cause")
		code, _ := set.Value("process.exit.code")
		got = append(got, fmt.Sprintf("%s %s %d", span.Name(), cause.AsString(), code.AsInt64()))
		if text := fmt.Sprint(span.Attributes(), span.Events(), span.Status()); strings.Contains(text, "s3cret") || strings.Contains(text, "sleep") {
			t.Errorf("command text in %s", text)
		}
		if wait, _ := set.Value("elsewhere.wait.seconds"); wait.AsFloat64() <= 0 && span.Name() != "elsewhere open" {
			t.Errorf("%s waited for %v", span.Name(), wait.AsFloat64())
		}
	}
	want := "elsewhere open  0, elsewhere run timeout 124, elsewhere run interrupted 130, elsewhere job start exited 0, elsewhere shell exited 4"
	if strings.Join(got, ", ") != want {
		t.Errorf("spans: %s\nwant:  %s", strings.Join(got, ", "), want)
	}

	has := func(want map[string]int64) {
		t.Helper()
		got := sums(t, reader)
		for name, n := range want {
			if v, there := got[name]; !there || v != n {
				t.Errorf("%s is %d, want %d: %v", name, v, n, got)
			}
		}
	}
	has(map[string]int64{
		"elsewhere.sandboxes local": 1, "elsewhere.sessions local": 2, "elsewhere.jobs local": 1,
		"elsewhere.calls local timeout run": 1, "elsewhere.calls local interrupted run": 1, "elsewhere.calls local exited shell": 1,
		"elsewhere.output local interrupted run": 3, "elsewhere.errors local run config": 1,
	})
	if _, err := job.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := job.Status(t.Context()); err != nil || !st.Over() {
		t.Fatal(st, err)
	}
	if err := other.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(map[string]int64{"elsewhere.jobs local": 0, "elsewhere.sessions local": 1})
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(map[string]int64{"elsewhere.sandboxes local": 0, "elsewhere.sessions local": 0, "elsewhere.jobs local": 0})
}

// canceler is a writer that cancels when something comes.
type canceler func()

func (c canceler) Write(p []byte) (int, error) { c(); return len(p), nil }

// BenchmarkCall compares a call without providers, which is what most have, with one that is recorded.
func BenchmarkCall(b *testing.B) {
	for name, opts := range map[string]elsewhere.SandboxOptions{
		"off": {},
		"on": {
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder())),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
		},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := openLocal(b, opts).Session(b.Context(), "")
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := s.Run(b.Context(), ":", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
