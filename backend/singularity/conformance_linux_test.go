package singularity

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

func TestConformance(t *testing.T) {
	needEngine(t)
	drivertest.Run(t, harness())
}

// TestRootConformance holds an instance that root starts against a part of the contract: the engine starts it in another
// way there.
func TestRootConformance(t *testing.T) {
	needEngine(t)
	if os.Geteuid() != 0 {
		t.Skip("this is not root")
	}
	h := harness()
	h.Only = []string{"B01", "C01", "L08", "X03", "state files/a named session is there again when its sandbox is opened again"}
	drivertest.Run(t, h)
}

func harness() *drivertest.Harness {
	none := 0 // a start takes an engine 100 ms of processor time
	return &drivertest.Harness{
		SharedAhead: &none,
		Backend:     Backend(),
		Place:       place,
		Lacks: map[drivertest.Need]string{
			drivertest.NeedCallerEnv: "the caller's environment stays outside an instance",
		},
		KeepsChildren: true,
		Parallel:      2,
	}
}

// place is a home of its own, whose instance of the task "default" the observer finds or starts.
func place(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
	w := newWhere(t)
	if spec.BashOnly {
		w.settings["singularity_image"] = testbed + "bash-only.sif"
	}
	w.environ = append(w.environ, spec.Environ...)
	prog, err := findProgram(w.environ)
	if err != nil {
		t.Fatal(err)
	}
	home := insideHome(prog)
	if os.Geteuid() == 0 {
		home = "/root"
	}
	for file, text := range spec.Profile {
		file = filepath.Join(w.dir("default"), "home", file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := &observer{w: w, prog: prog}
	lose := func(ctx context.Context, where driver.Info) error {
		running, err := prog.list(ctx, where.SandboxID)
		if err != nil {
			return err
		}
		pid := running[where.SandboxID].PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		// It ends after all others of its namespace have.
		await(t, "the instance is gone", func() bool { return beginOf(pid) == "" })
		return nil
	}
	return &drivertest.Place{
		HermesHome: w.home, Environ: w.environ, Settings: maps.Clone(w.settings), Home: home, Observe: o.observe,
		Lose: lose, Crash: lose,
		Restart: func(ctx context.Context, where driver.Info) error {
			_, err := prog.run(ctx, call{args: []string{"-s", "instance", "stop", where.SandboxID}, timeout: stopTimeout})
			return errors.Join(err, letGo(ctx, prog, where.SandboxID))
		},
	}
}

// observer looks into an instance by an exec of its own.
type observer struct {
	w    *where
	prog *program
	mu   sync.Mutex
}

func (o *observer) observe(ctx context.Context, where driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
	instance := where.SandboxID
	if instance == "" {
		instance = o.w.instance("default")
	}
	command := append([]string{o.prog.path}, execArgs(instance)...)
	command = append(command, argv...)
	seen, err := drivertest.ObserveHere(ctx, o.prog.env, stdin, command...)
	if err == nil && seen.Code == 255 && strings.Contains(string(seen.Stderr), "no instance found") {
		// Nobody has opened it yet, or it was lost.
		if err := o.start(ctx); err != nil {
			return seen, err
		}
		return drivertest.ObserveHere(ctx, o.prog.env, stdin, command...)
	}
	return seen, err
}

func (o *observer) start(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	sb, err := Backend().Open(ctx, o.w.request())
	if err != nil {
		return err
	}
	return sb.Close(ctx)
}
