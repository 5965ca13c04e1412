package elsewhere

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// late is a sandbox as one behind two connections: what is written to stderr arrives long after what was written to stdout, and a
// stream cannot be asked whether it is empty.
type late struct{ driver.Sandbox }

func (s late) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	p, err := s.Sandbox.Bash(ctx, spec)
	if err != nil {
		return nil, err
	}
	return lateStderr{p}, nil
}

type lateStderr struct{ driver.Process }

func (p lateStderr) Stdout() io.ReadCloser { return struct{ io.ReadCloser }{p.Process.Stdout()} }
func (p lateStderr) Stderr() io.ReadCloser { return &slowReader{ReadCloser: p.Process.Stderr()} }

// slowReader reads nothing in its first moments, and nothing soon.
type slowReader struct{ io.ReadCloser }

const lateness = 400 * time.Millisecond

func (r *slowReader) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	time.Sleep(lateness)
	return n, err
}

// testEnviron is an environment whose files are all below base.
func testEnviron(base string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + filepath.Join(base, "hermes"), "TMPDIR=" + base}
}

// Stderr has a connection of its own on some engines, which may be slower than the one on which the end is told.
func TestStderrThatArrivesLateIsNotLost(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	b := local.Backend()
	open := b.Open
	b.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		inner, err := open(ctx, req)
		return late{inner}, err
	}
	b.Classify = kinderr.Of
	environ := testEnviron(base)
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{b}, Flags: map[string]string{"backend": "local", "policy.enabled": "false"}, Environ: environ, Home: base + "/hermes"})
	if err != nil {
		t.Fatal(err)
	}
	sb, err := OpenSandbox(t.Context(), cfg, &SandboxOptions{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{":", "exit 3", "exec 2>/dev/null", "exec >/dev/null 2>&1", "kill -TERM $$", "kill -KILL $$", "exec true", "trap : EXIT"} {
		r, err := s.Run(t.Context(), "echo out; echo err >&2; "+end, &RunOptions{Split: true})
		if err != nil {
			t.Fatalf("%s: %v", end, err)
		}
		if !strings.HasPrefix(string(r.Stderr), "err\n") || !strings.HasPrefix(string(r.Stdout), "out\n") {
			t.Errorf("%s: stderr is %q, stdout %q", end, r.Stderr, r.Stdout)
		}
	}
}
