package testreport

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The streams in testdata were recorded from `go test -json -trimpath -short -timeout 2s` with Go 1.26 over packages
// made for it: mixed.json has one of everything that can go wrong.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func read(t *testing.T, stream []byte, opts *Options) (*Summary, string, error) {
	t.Helper()
	var out bytes.Buffer
	sum, err := Read(bytes.NewReader(stream), &out, opts)
	if sum == nil {
		t.Fatal("Read returned a nil summary")
	}
	return sum, out.String(), err
}

func TestRead(t *testing.T) {
	line := func(format string, args ...any) string { return fmt.Sprintf(format, args...) + "\n" }
	const start = `{"Action":"start","Package":"m/p"}` + "\n"
	const passed = `{"Action":"run","Package":"m/p","Test":"TestA"}` + "\n" +
		`{"Action":"pass","Package":"m/p","Test":"TestA"}` + "\n"
	const end = `{"Action":"pass","Package":"m/p","Elapsed":1.5}` + "\n"
	skip := func(reason string) string {
		return line(`{"Action":"run","Package":"m/p","Test":"TestB"}`) +
			line(`{"Action":"output","Package":"m/p","Test":"TestB","Output":"    b_test.go:7: %s\n"}`, reason) +
			line(`{"Action":"skip","Package":"m/p","Test":"TestB"}`)
	}

	tests := []struct {
		name     string
		stream   string
		opts     Options
		ok       bool
		broken   bool // Read returns an error
		lastLine string
		has      []string
		hasNot   []string
	}{
		{
			name: "a stream in which all passed", stream: start + passed + end, opts: Options{Module: "m"}, ok: true,
			lastLine: "1 passed, 0 failed, 0 skipped",
			has:      []string{"ok    p     ", "1.5s"},
		},
		{
			name: "one of everything", stream: string(recorded(t, "mixed.json")),
			opts:     Options{Module: "example.com/m", Backends: []string{"local", "docker", "ssh", "modal"}},
			lastLine: "10 passed, 8 failed, 4 skipped",
			has: []string{
				"FAIL: core TestConformance/backend=local/a_call_fails (0.00s)\n    core_test.go:10: first\n        second\n",
				"FAIL: build of dep\n# example.com/m/dep\ndep/dep.go:3:23: cannot use",
				"FAIL: build of vetted [example.com/m/vetted.test]",
				"FAIL: package exits, outside its tests\ncannot start the engine\n",
				"FAIL: panics TestPanics (0.00s)\npanic: assignment to entry in nil map",
				"FAIL: panics TestParallelWaits (did not end)",
				"FAIL: slow TestSlow/sub (did not end)\n    s_test.go:5: started\npanic: test timed out after 2s",
				"core     14   7       1        no reason given\n",
				"local    2    1       1        short: moves 10 MB\n",
				"docker   1    0       2        no engine: the socket is absent (2)\n",
				"modal    0    0       0        no tests\n",
				"\nWhat failed, and how it began:\n",
				"\n  core TestConformance/backend=local/a_call_fails\n        core_test.go:10: first\n            second\n",
			},
			hasNot: []string{"=== RUN", "--- FAIL", "FAIL: core TestConformance/backend=local (", "FAIL: slow TestSlow (", "noise"},
		},
		{
			name: "a skip where skips are allowed", stream: string(recorded(t, "skips.json")), ok: true,
			lastLine: "2 passed, 0 failed, 1 skipped",
			hasNot:   []string{"none"},
		},
		{
			name: "a skip where everything is required", stream: string(recorded(t, "skips.json")),
			opts:     Options{Module: "example.com/m", RequireAll: true},
			lastLine: "2 passed, 1 failed, 0 skipped",
			has:      []string{"  backend/docker TestOpens: no engine: the socket is absent\n", "docker   1    0       1 "},
		},
		{
			name: "the -short run may leave out what says so", stream: string(recorded(t, "short.json")),
			opts: Options{RequireAll: true, Short: true}, ok: true,
			lastLine: "2 passed, 0 failed, 1 skipped",
		},
		{
			name: "the full run may not", stream: string(recorded(t, "short.json")), opts: Options{RequireAll: true},
			lastLine: "2 passed, 1 failed, 0 skipped",
		},
		{
			name: "the race detector is a reason in the -short run", stream: start + passed + skip("race: too slow") + end,
			opts: Options{RequireAll: true, Short: true}, ok: true,
			lastLine: "1 passed, 0 failed, 1 skipped",
		},
		{
			name: "any other reason is none in the -short run", stream: start + passed + skip("in short mode") + end,
			opts:     Options{RequireAll: true, Short: true},
			lastLine: "1 passed, 1 failed, 0 skipped",
		},
		{
			name: "an empty stream", stream: "",
			lastLine: "0 passed, 0 failed, 0 skipped",
			has:      []string{"No test ran."},
		},
		{
			name: "only packages without tests", stream: start + line(`{"Action":"skip","Package":"m/p"}`),
			lastLine: "0 passed, 0 failed, 0 skipped",
			has:      []string{"No test ran."},
		},
		{
			name: "only skips", stream: start + skip("no engine") + end,
			lastLine: "0 passed, 0 failed, 1 skipped",
			has:      []string{"No test ran."},
		},
		{
			name: "a stream cut within a line", stream: start + passed + `{"Action":"pa`, broken: true,
			lastLine: "1 passed, 2 failed, 0 skipped",
			has:      []string{"not a whole stream of test events: line 4: unexpected end of JSON input"},
		},
		{
			name: "a stream cut between two lines", stream: start + passed, broken: true,
			lastLine: "1 passed, 2 failed, 0 skipped",
			has:      []string{"it ends before m/p"},
		},
		{
			name: "a line that is no event", stream: start + "go: no such tool\n" + passed + end, broken: true,
			lastLine: "1 passed, 1 failed, 0 skipped",
			has:      []string{`line 2: invalid character 'g'`},
		},
		{
			name: "another program's JSON", stream: `{"level":"info"}` + "\n" + start + passed + end, broken: true,
			lastLine: "1 passed, 1 failed, 0 skipped",
			has:      []string{"line 1: no action"},
		},
		{
			name: "a package that passed although a test did not end",
			stream: start + line(`{"Action":"run","Package":"m/p","Test":"TestA"}`) +
				line(`{"Action":"run","Package":"m/p","Test":"TestA/x"}`) + end,
			lastLine: "0 passed, 1 failed, 0 skipped",
			has:      []string{"FAIL: m/p TestA/x (did not end)"},
		},
		{
			name: "a parent that fails by itself",
			stream: start + line(`{"Action":"run","Package":"m/p","Test":"TestA"}`) +
				line(`{"Action":"run","Package":"m/p","Test":"TestA/x"}`) +
				line(`{"Action":"pass","Package":"m/p","Test":"TestA/x"}`) +
				line(`{"Action":"output","Package":"m/p","Test":"TestA","Output":"    a_test.go:9: a goroutine is left\n"}`) +
				line(`{"Action":"fail","Package":"m/p","Test":"TestA"}`) +
				line(`{"Action":"fail","Package":"m/p"}`),
			lastLine: "1 passed, 1 failed, 0 skipped",
			has:      []string{"FAIL: m/p TestA (0.00s)\n    a_test.go:9: a goroutine is left\n"},
		},
		{
			name: "a last line without its end of line", stream: strings.TrimSuffix(start+passed+end, "\n"), ok: true,
			lastLine: "1 passed, 0 failed, 0 skipped",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sum, out, err := read(t, []byte(tt.stream), &tt.opts)
			if (err != nil) != tt.broken {
				t.Errorf("error %v, want one: %v", err, tt.broken)
			}
			if sum.OK() != tt.ok {
				t.Errorf("OK is %v, want %v", sum.OK(), tt.ok)
			}
			lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
			if got := lines[len(lines)-1]; got != tt.lastLine {
				t.Errorf("last line %q, want %q", got, tt.lastLine)
			}
			for _, s := range tt.has {
				if !strings.Contains(out, s) {
					t.Errorf("the output lacks %q", s)
				}
			}
			for _, s := range tt.hasNot {
				if strings.Contains(out, s) {
					t.Errorf("the output has %q", s)
				}
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

func TestBackendOf(t *testing.T) {
	tests := []struct{ path, test, want string }{
		{"m", "TestA", Core},
		{"m/backend/docker", "TestA", "docker"},
		{"m/backend/docker/engine", "TestA", "docker"},
		{"m/backend/all", "TestA", Core},
		{"backend/ssh", "", "ssh"},
		{"m/notbackend/docker", "TestA", Core},
		{"m", "TestConformance/backend=local/a_call", "local"},
		{"m", "TestConformance/backend=local,ahead=3/a_call", "local"},
		{"m", "TestConformance/backend=ssh#01", "ssh"},
		{"m/backend/local", "TestBoth/backend=docker", "docker"},
	}
	for _, tt := range tests {
		if got := backendOf(tt.path, tt.test); got != tt.want {
			t.Errorf("backendOf(%q, %q) = %q, want %q", tt.path, tt.test, got, tt.want)
		}
	}
}

func TestOutputKeepsItsStartAndItsEnd(t *testing.T) {
	var o output
	o.add("panic: the start\n")
	for range 4 * keepBytes / 16 {
		o.add("fifteen letters\n")
	}
	o.add("the end")
	text := o.String()
	if !strings.HasPrefix(text, "panic: the start\n") || !strings.HasSuffix(text, "\nthe end\n") {
		t.Errorf("start or end is missing: %.40q ... %q", text, text[len(text)-40:])
	}
	if len(text) > 2*keepBytes+200 {
		t.Errorf("%d bytes kept, want about %d", len(text), 2*keepBytes)
	}
	if !strings.Contains(text, "bytes left out") {
		t.Error("the cut is not said")
	}
}

func TestReasonIsTheLastThingLogged(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"one line", "    x_test.go:3: no engine\n", "no engine"},
		{"after other logs", "    x_test.go:3: looked at a:b\n    x_test.go:4: no bash 5\n", "no bash 5"},
		{"of several lines", "        x_test.go:3: no engine\n            start it with make testbed\n", "no engine"},
		{"none", "printed\n", "no reason given"},
		{"nothing at all", "", "no reason given"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o output
			o.add(tt.text)
			if got := o.reason(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	event := func(action, test, output string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"m/p","Test":%q,"Output":%q}`+"\n", action, test, output)
	}
	failed := event("run", "TestA", "") + event("run", "TestA/b (c)/d", "") + event("output", "TestA/b (c)/d", "    a_test.go:3: wrong\n") +
		event("fail", "TestA/b (c)/d", "") + event("fail", "TestA", "")
	for _, tt := range []struct {
		name, stream string
		checked      []bool
	}{
		{"a check", failed + event("fail", "", ""), []bool{true}},
		{"a data race elsewhere", event("run", "TestB", "") + event("output", "TestB", "WARNING: DATA RACE\n") + event("pass", "TestB", "") + failed + event("fail", "", ""), []bool{false}},
		{"a panic later", failed + event("run", "TestB", "") + event("output", "TestB", "panic: no\n") + event("fail", "", ""), []bool{false, false}},
		{"one that never ended", failed + event("run", "TestB", "") + event("fail", "", ""), []bool{true, false}},
		{"outside of tests", event("output", "", "no engine\n") + event("fail", "", ""), []bool{false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sum, _, err := read(t, []byte(tt.stream), nil)
			var checked []bool
			for _, f := range sum.Failures {
				checked = append(checked, f.Checked)
			}
			if err != nil || !slices.Equal(checked, tt.checked) {
				t.Errorf("%+v (%v)", sum.Failures, err)
			}
		})
	}
	f := Failure{Test: "TestA/b_(c)/d"}
	if got, want := f.Pattern(), `^TestA$/^b_\(c\)$/^d$`; got != want {
		t.Errorf("pattern %s, want %s", got, want)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestAWriterThatFailsIsAnError(t *testing.T) {
	full := errors.New("disk full")
	_, err := Read(bytes.NewReader(recorded(t, "skips.json")), failingWriter{full}, nil)
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"Action":"fail","Package":"p","Test":"T/x"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n"))
	f.Add([]byte(`{"Action":"build-fail","ImportPath":"p"}` + "\n" + `{"Action":"sk`))
	f.Fuzz(func(t *testing.T, stream []byte) {
		sum, out, _ := read(t, stream, &Options{RequireAll: true})
		passed, failed, skipped := sum.Totals()
		if !strings.HasSuffix(out, "\n"+counts(passed, failed, skipped)+"\n") {
			t.Errorf("the closing line is missing in %q", out)
		}
		if passed < 0 || failed < 0 || skipped < 0 {
			t.Errorf("counts below zero: %d %d %d", passed, failed, skipped)
		}
	})
}
