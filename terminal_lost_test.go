//go:build unix

package elsewhere_test

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// unheard is a local sandbox whose first terminals are lost on the way: their bash lives, and this side never hears of it.
type unheard struct {
	driver.Sandbox
	lost []driver.PTYProcess
	most int
}

func (u *unheard) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	p, err := u.Sandbox.(driver.PTY).BashPTY(ctx, spec, rows, cols)
	if err != nil || len(u.lost) == u.most {
		return p, err
	}
	u.lost = append(u.lost, p)
	return cutOff{p}, nil
}

type cutOff struct{ driver.PTYProcess }

func (c cutOff) Stdout() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (c cutOff) Wait(context.Context) (driver.ExitStatus, error) {
	return driver.ExitStatus{}, errors.New("the connection is cut")
}

func (c cutOff) Kill(context.Context) error { return errors.New("the connection is cut") }

func TestATerminalThatWasLostBeforeItWasReadyRunsNothing(t *testing.T) {
	base := t.TempDir()
	box := &unheard{most: 2}
	back := local.Backend()
	open := back.Open
	back.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		sb, err := open(ctx, req)
		box.Sandbox = sb
		return box, err
	}
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "TMPDIR=" + base}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{back}, Environ: environ, Home: base + "/hermes"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := elsewhere.Open(t.Context(), cfg, &elsewhere.SandboxOptions{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background()) //nolint:errcheck // nothing is kept
	terminal, err := s.Shell(t.Context(), "echo ran >>"+base+"/ran", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close() //nolint:errcheck // it has ended
	if _, err := io.Copy(io.Discard, terminal); err != nil {
		t.Error(err)
	}
	r, err := terminal.Wait(t.Context())
	if err != nil || r.ExitCode != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if len(box.lost) != box.most {
		t.Fatalf("%d terminals were lost: this proves nothing", len(box.lost))
	}
	for _, p := range box.lost {
		// This one would have run by now: nobody will tell it to, and its terminal goes.
		time.Sleep(100 * time.Millisecond)
		_ = p.Kill(t.Context())
		_, _ = p.Wait(t.Context())
	}
	if raw, err := os.ReadFile(base + "/ran"); string(raw) != "ran\n" {
		t.Errorf("the command ran %d times (%v)", strings.Count(string(raw), "ran"), err)
	}
}
