//go:build unix

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// collector takes what OTLP sends over HTTP.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	raw      bytes.Buffer
	services []string
	spans    []*trace.Span
	metrics  map[string]*metrics.Metric // the last of each name
}

func newCollector(t *testing.T) *collector {
	c := &collector{metrics: map[string]*metrics.Metric{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(r.Body); err != nil {
				t.Error(err)
				return
			}
		}
		data, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		if err := c.take(r.URL.Path, data); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(path string, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(data)
	switch path {
	case "/v1/traces":
		var got collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &got); err != nil {
			return err
		}
		for _, of := range got.ResourceSpans {
			c.services = append(c.services, attributes(of.Resource.Attributes)["service.name"])
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/v1/metrics":
		var got collectormetrics.ExportMetricsServiceRequest
		if err := proto.Unmarshal(data, &got); err != nil {
			return err
		}
		for _, of := range got.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = m
				}
			}
		}
	default:
		return fmt.Errorf("a request for %s", path)
	}
	return nil
}

func (c *collector) names() string {
	var names []string
	for _, s := range c.spans {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func (c *collector) span(t *testing.T, name string) (*trace.Span, map[string]string) {
	t.Helper()
	for _, s := range c.spans {
		if s.Name == name {
			return s, attributes(s.Attributes)
		}
	}
	t.Fatalf("no span %q among %s", name, c.names())
	return nil, nil
}

// sum is that of a counter's points.
func (c *collector) sum(name string) (n int64, with string) {
	if m := c.metrics[name]; m != nil && m.GetSum() != nil {
		for _, p := range m.GetSum().DataPoints {
			n += p.GetAsInt()
			with += fmt.Sprint(attributes(p.Attributes))
		}
		return n, with
	}
	return -1, ""
}

func attributes(of []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, kv := range of {
		switch v := kv.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			all[kv.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			all[kv.Key] = fmt.Sprint(v.DoubleValue)
		}
	}
	return all
}

func TestACallIsASpanAndNumbersAtTheCollector(t *testing.T) {
	c := newCollector(t)
	p := newProgram(t, "run", "-s", "dev", "printf 12345 # s3cret-text\nexit 3")
	p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "OTEL_RESOURCE_ATTRIBUTES=team=a",
		"TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	out, _ := p.Output()
	if string(out) != "12345" || p.ProcessState.ExitCode() != 3 {
		t.Fatalf("%q %v %s", out, p.ProcessState, p.stderr.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if fmt.Sprintf("%x %x", s.TraceId, s.ParentSpanId) != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
			t.Errorf("%s is no child of the span that TRACEPARENT names: %x %x", s.Name, s.TraceId, s.ParentSpanId)
		}
	}
	if names := c.names(); names != "elsewhere open, elsewhere run" {
		t.Errorf("spans: %s", names)
	}
	s, with := c.span(t, "elsewhere run")
	for key, want := range map[string]string{
		"elsewhere.backend": "local", "elsewhere.cause": "exited", "process.exit.code": "3", "elsewhere.output.bytes": "5",
		"elsewhere.session": "dev", "elsewhere.task": "default", "elsewhere.operation": "run",
	} {
		if with[key] != want {
			t.Errorf("%s is %q, want %q", key, with[key], want)
		}
	}
	for _, key := range []string{"elsewhere.call.id", "elsewhere.wait.seconds", "elsewhere.run.seconds", "elsewhere.where.host"} {
		if with[key] == "" || with[key] == "0" {
			t.Errorf("%s is missing: %v", key, with)
		}
	}
	if s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR {
		t.Error("a command that fails is no failure of elsewhere")
	}
	if c.services[0] != "elsewhere" {
		t.Errorf("service %v", c.services)
	}
	if bytes.Contains(c.raw.Bytes(), []byte("s3cret-text")) || bytes.Contains(c.raw.Bytes(), []byte("printf")) {
		t.Error("the command's text was sent")
	}
	if n, with := c.sum("elsewhere.calls"); n != 1 || !strings.Contains(with, "elsewhere.cause:exited") {
		t.Errorf("%d calls %s", n, with)
	}
	if n, _ := c.sum("elsewhere.output"); n != 5 {
		t.Errorf("%d bytes", n)
	}
	for _, name := range []string{"elsewhere.sandboxes", "elsewhere.sessions"} {
		if n, _ := c.sum(name); n != 0 {
			t.Errorf("%s is %d at the end", name, n)
		}
	}
	if h := c.metrics["elsewhere.call.duration"].GetHistogram(); h == nil || h.DataPoints[0].Count != 1 {
		t.Errorf("durations: %v", h)
	}
}

func TestAFailureIsToldByItsKind(t *testing.T) {
	c := newCollector(t)
	p := newProgram(t, "run", "-b", "docker", "true")
	p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL, "DOCKER_HOST=unix://"+p.Dir+"/none.sock")
	_, _ = p.Output()
	c.mu.Lock()
	defer c.mu.Unlock()
	s, with := c.span(t, "elsewhere open")
	if s.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || with["error.type"] != "unavailable" {
		t.Errorf("%v %v", s.Status, with)
	}
	if n, with := c.sum("elsewhere.errors"); n != 1 || !strings.Contains(with, "error.type:unavailable") {
		t.Errorf("%d errors %s", n, with)
	}
}

func TestNothingIsSentUnlessACollectorIsNamed(t *testing.T) {
	for name, env := range map[string][]string{
		"disabled": {"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT="},
		"none":     {"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT="},
		"grpc":     {"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_ENDPOINT="},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			p := newProgram(t, "run", "echo here")
			env[len(env)-1] += c.URL
			p.Env = append(p.Env, env...)
			out, err := p.Output()
			c.mu.Lock()
			defer c.mu.Unlock()
			if string(out) != "here\n" || err != nil || c.raw.Len() > 0 {
				t.Errorf("%q %v %d bytes", out, err, c.raw.Len())
			}
			if said := p.stderr.String(); strings.Contains(said, "is not spoken") != (name == "grpc") {
				t.Errorf("it said %q", said)
			}
		})
	}
}

// TestACollectorThatIsDownOrSilentHoldsNothingUp proves by events: the call's output is there while the collector holds its request, and the program
// ends although the collector never answers.
func TestACollectorThatIsDownOrSilentHoldsNothingUp(t *testing.T) {
	var lc net.ListenConfig
	silent, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() }) // connections wait in its queue for ever
	down, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	down.Close()
	for name, address := range map[string]string{"silent": silent.Addr().String(), "down": down.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			p := newProgram(t, "run", "echo here; exit 7")
			p.Env = append(p.Env, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address)
			var out bytes.Buffer
			p.Stdout = &out
			p.start()
			select {
			case <-p.ended:
			case <-ctx.Done():
				t.Fatal("it waits for the collector")
			}
			if out.String() != "here\n" || p.ProcessState.ExitCode() != 7 || strings.Contains(p.stderr.String(), "telemetry") {
				t.Errorf("%q %v %q", out.String(), p.ProcessState, p.stderr.String())
			}
		})
	}
}

func TestTheMCPServersMetrics(t *testing.T) {
	const token = "a-token-for-tests-that-is-long-enough"
	p := newProgram(t, "mcp", "-b", "local", "--http", "127.0.0.1:0")
	p.Env = append(p.Env, tokenVariable+"="+token)
	p.Stderr = nil
	r, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	var said bytes.Buffer
	url := regexp.MustCompile(`serving (http://127\.0\.0\.1:\d+)/mcp`)
	for buffer := make([]byte, 1024); url.FindStringSubmatch(said.String()) == nil; {
		n, err := r.Read(buffer)
		if err != nil {
			t.Fatal(err, said.String())
		}
		said.Write(buffer[:n])
	}
	address := url.FindStringSubmatch(said.String())[1]
	client := &http.Client{Transport: withToken(token)}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: address + "/mcp", HTTPClient: client,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{session, p, t.Context(), nil}
	a.run("true")
	job, _ := a.call("terminal", map[string]any{"command": "read -r line", "background": true})["job"].(map[string]any)
	get := func(client *http.Client, path string) (int, string) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, address+path, nil)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, body := get(http.DefaultClient, "/metrics"); status != http.StatusUnauthorized || strings.Contains(body, "elsewhere_") {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, body := get(http.DefaultClient, "/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("%d %s", status, body)
	}
	has := func(lines ...string) {
		t.Helper()
		status, body := get(client, "/metrics")
		for _, line := range lines {
			if status != 200 || !regexp.MustCompile(`(?m)^`+line+`$`).MatchString(body) {
				t.Errorf("%d, no %s in\n%s", status, line, body)
			}
		}
	}
	has(`elsewhere_calls_total\{.*elsewhere_cause="exited".*elsewhere_operation="run".*\} 1`, `elsewhere_sandboxes\{.*elsewhere_backend="local".*\} 1`,
		`elsewhere_sessions\{.*\} 1`, `elsewhere_jobs\{.*\} 1`, `elsewhere_call_duration_seconds_count\{.*elsewhere_operation="run".*\} 1`)
	a.call("process", map[string]any{"action": "kill", "job_id": job["job_id"]})
	has(`elsewhere_jobs\{.*\} 0`)
}
