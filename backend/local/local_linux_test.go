package local

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestMain(m *testing.M) {
	if job := os.Getenv("LOCAL_TEST_JOB"); job != "" {
		os.Exit(jobs[job]())
	}
	goleak.VerifyTestMain(m)
}

// jobs are what the test binary does when a test starts it again.
var jobs = map[string]func() int{"left": left, "closed stdio": closedStdio, "terminal": onTerminal}

// again gives this test binary, doing a job.
func again(job string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), append(env, "LOCAL_TEST_JOB="+job)...)
	return cmd
}

// asOrdinaryUser runs the test that calls it again as nobody where it runs as root, who passes every permission test,
// and then returns true.
func asOrdinaryUser(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return false
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR=/tmp", "HOME=/")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
	return true
}

// config is a driver.Config over a map.
type config map[string]any

func (c config) String(key string) string               { s, _ := c[key].(string); return s }
func (c config) Bool(key string) bool                   { b, _ := c[key].(bool); return b }
func (c config) Int(string) int64                       { return 0 }
func (c config) Float(string) float64                   { return 0 }
func (c config) Duration(string) time.Duration          { return 0 }
func (c config) Bytes(string) int64                     { return 0 }
func (c config) Strings(key string) []string            { s, _ := c[key].([]string); return s }
func (c config) StringMap(key string) map[string]string { return nil }
func (c config) IsSet(key string) bool                  { _, ok := c[key]; return ok }
func (c config) Origin(string) string                   { return "default" }

// request is a request with a home and a temp directory of its own.
func request(t *testing.T, environ ...string) driver.OpenRequest {
	t.Helper()
	temp := t.TempDir()
	return driver.OpenRequest{
		Config:   config{},
		Task:     "default",
		Identity: driver.Identity{ID: strings.Repeat("a", 32), Home: filepath.Join(t.TempDir(), "home"), Owner: strings.Repeat("b", 32)},
		Environ:  append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "TMPDIR=" + temp}, environ...),
		Dir:      temp,
	}
}

func openBox(t *testing.T, req driver.OpenRequest) driver.Sandbox {
	t.Helper()
	box, err := Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

func start(t *testing.T, box driver.Sandbox, text string, env ...string) driver.Process {
	t.Helper()
	p, err := box.Bash(t.Context(), driver.BashSpec{Args: []string{"--noprofile", "--norc", "-p", "-c", text}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill(context.Background())
		_, _ = p.Wait(context.Background())
		_ = p.Stdin().Close()
		_ = p.Stdout().Close()
		_ = p.Stderr().Close()
	})
	return p
}

// output runs text to its end and returns what it printed on stdout.
func output(t *testing.T, box driver.Sandbox, text string, env ...string) string {
	t.Helper()
	p := start(t, box, text, env...)
	_ = p.Stdin().Close()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	stderr, _ := io.ReadAll(p.Stderr())
	if len(stderr) > 0 {
		t.Logf("stderr: %s", stderr)
	}
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestABashHasThreePlainStreamsAndReportsItsEnd(t *testing.T) {
	box := openBox(t, request(t))
	p := start(t, box, `read -r line; printf 'out %s' "$line"; printf err >&2; exit 7`)
	if _, err := io.WriteString(p.Stdin(), "hello\n"); err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(p.Stdout())
	stderr, _ := io.ReadAll(p.Stderr())
	status, err := p.Wait(t.Context())
	if err != nil || string(out) != "out hello" || string(stderr) != "err" || status != (driver.ExitStatus{Code: 7}) {
		t.Errorf("got %q, %q, %+v, %v", out, stderr, status, err)
	}
	if again, err := p.Wait(t.Context()); again != status || err != nil {
		t.Errorf("a second Wait gives %+v, %v", again, err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("killing an ended process: %v", err)
	}
}

func TestADriverThatIsClosedStartsNothingAndLeavesNothing(t *testing.T) {
	req := request(t)
	box, err := Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	private := box.Info().PrivateDir
	if st, err := os.Stat(private); err != nil || st.Mode().Perm() != 0o700 {
		t.Fatalf("private directory: %v %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(private, "state"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := box.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(private); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the private directory is still there: %v", err)
	}
	_, err = box.Bash(t.Context(), driver.BashSpec{})
	if kind := Backend().Classify(err); kind != driver.KindLost {
		t.Errorf("a closed sandbox answers %v (%s)", err, kind)
	}
}
