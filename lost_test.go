//go:build unix

package elsewhere_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

// engine makes local a backend whose sandboxes can vanish, as a container's engine can.
type engine struct {
	mu    sync.Mutex
	boxes []*vanishing
}

var errVanished = errors.New("the sandbox has vanished")

type vanishing struct {
	driver.Sandbox
	mu    sync.Mutex
	gone  bool
	procs []driver.Process
}

func (e *engine) backend() driver.Backend {
	b := local.Backend()
	open, classify := b.Open, b.Classify
	b.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		sb, err := open(ctx, req)
		if err != nil {
			return nil, err
		}
		v := &vanishing{Sandbox: sb}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.boxes = append(e.boxes, v)
		return v, nil
	}
	b.Classify = func(err error) driver.Kind {
		if errors.Is(err, errVanished) {
			return driver.KindLost
		}
		return classify(err)
	}
	return b
}

func (e *engine) lose(ctx context.Context) error {
	e.mu.Lock()
	boxes := slices.Clone(e.boxes)
	e.mu.Unlock()
	var errs []error
	for _, v := range boxes {
		v.mu.Lock()
		v.gone = true
		for _, p := range v.procs {
			errs = append(errs, p.Kill(ctx))
		}
		v.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (v *vanishing) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return nil, errVanished
	}
	p, err := v.Sandbox.Bash(ctx, spec)
	if err == nil {
		v.procs = append(v.procs, p)
	}
	return p, err
}

func (v *vanishing) Alive(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.gone {
		return errVanished
	}
	return v.Sandbox.Alive(ctx)
}

func TestASandboxThatVanishesIsMadeAgain(t *testing.T) {
	h := &drivertest.Harness{
		Only: []string{
			"lost/a sandbox that vanished between calls is made again, and the next result says that earlier state is gone",
			"lost/a call whose sandbox vanishes under it fails as lost and is not run again",
			"lost/a sandbox that vanishes under a burst loses each call at most once and runs none twice",
			"lost/many sessions that find their sandbox gone get one new sandbox",
			"lost/a named session goes on in the new sandbox, and says what is gone",
		},
	}
	e := &engine{}
	h.Backend = e.backend()
	h.Place = func(t testing.TB, _ drivertest.PlaceSpec) *drivertest.Place {
		own := &engine{}
		backend := own.backend()
		base := t.TempDir()
		p := &drivertest.Place{HermesHome: filepath.Join(base, "hermes"), Home: filepath.Join(base, "home"), Backend: &backend}
		if err := os.MkdirAll(p.Home, 0o700); err != nil {
			t.Fatal(err)
		}
		p.Environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Home, "HERMES_HOME=" + p.HermesHome, "TMPDIR=" + base}
		p.Observe = func(ctx context.Context, _ driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
			return drivertest.ObserveHere(ctx, p.Environ, stdin, argv...)
		}
		p.Lose = func(ctx context.Context, _ driver.Info) error { return own.lose(ctx) }
		return p
	}
	drivertest.Run(t, h)
}
