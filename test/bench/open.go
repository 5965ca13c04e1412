package main

import (
	"context"
	"fmt"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
)

// measureOpen opens a sandbox that is not there yet, and one that is, up to the end of a first command, next to the bare way to
// make one and run a command in it.
func measureOpen(ctx context.Context, b *bench) error {
	if b.rig.open != nil {
		return b.rig.open(ctx, b)
	}
	if b.rig.fresh == nil {
		return nil // see measureCold
	}
	cfg, err := config.Load(config.Options{Backends: all.Backends(), Environ: b.environ, Dir: "/"})
	if err != nil {
		return err
	}
	var bare, cold, reuse samples
	for i := range b.n.cold/4 + 1 {
		start := time.Now()
		remove, err := b.rig.fresh(ctx)
		took := time.Since(start)
		remove()
		if err != nil {
			return err
		}
		task := fmt.Sprintf("bench-%d", i)
		first, again, err := b.openTwice(ctx, cfg, task)
		if err != nil {
			return err
		}
		if i > 0 { // the first one warms
			bare, cold, reuse = append(bare, milliseconds(took)), append(cold, milliseconds(first)), append(reuse, milliseconds(again))
		}
	}
	for _, one := range []struct {
		name string
		took samples
		aim  float64
	}{{"the engine's own way", bare, 0}, {"open, new, and run true", cold, 0}, {"open, already there, and run true", reuse, 0.3}} {
		b.report.add(row{
			Backend: b.backend, Group: "a sandbox and one command in it", Name: one.name, Floor: one.name == "the engine's own way", Unit: "ms",
			P50: one.took.p(50), P95: one.took.p(95), N: len(one.took),
			Ratio: one.took.p(50) / bare.p(50), Ratio95: one.took.p(95) / bare.p(95), Of: "ratio", Aim: one.aim,
		})
	}
	return nil
}

// openTwice opens the sandbox of a task, twice, and removes it.
func (b *bench) openTwice(ctx context.Context, cfg *config.Config, task string) (first, again time.Duration, err error) {
	defer func() {
		all, openErr := elsewhere.OpenSandboxes(context.WithoutCancel(ctx), cfg, b.backend, &elsewhere.SandboxOptions{Environ: b.environ})
		if openErr != nil {
			return
		}
		defer all.Close()                                         //nolint:errcheck // there is nothing to lose
		_, _ = all.Remove(context.WithoutCancel(ctx), task, true) // its directory goes with this run's
	}()
	for _, into := range []*time.Duration{&first, &again} {
		start := time.Now()
		ahead := 0
		sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Backend: b.backend, Task: task, Environ: b.environ, SpawnAhead: &ahead})
		if err != nil {
			return 0, 0, err
		}
		s, err := sb.Session(ctx, "")
		if err == nil {
			err = ended(s.Run(ctx, "true", nil))
		}
		*into = time.Since(start)
		if closeErr := sb.Close(ctx); err == nil {
			err = closeErr
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return first, again, nil
}
