package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
)

const (
	cloudFiles = 1000
	cloudSize  = 2 << 10  // of each, in bytes
	cloudShown = 1000_000 // bytes of output
	cloudBlock = 10       // calls back to back
	// slack is by how much of a round trip a figure may be above a whole number of them: they are found by subtraction.
	slack = 0.2
)

// cloudDelays are how long a round trip takes. The first is none: what is left of a figure at the last one, when that of the first is
// taken off, is what its round trips take.
var cloudDelays = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}

// cloud is an emulated service, in this process.
type cloud interface {
	// settings are what points the backend at it.
	settings() map[string]string
	setLatency(d time.Duration)
	// enter looks up what the next two need of a sandbox, whose driver.Info.SandboxID is id.
	enter(ctx context.Context, id string) error
	// ask asks one question about it, which is answered at once; exec runs a command by what the service has for that, and passes its
	// output on.
	ask(ctx context.Context) error
	exec(ctx context.Context, out io.Writer, command string) error
	close() error
}

// cloudRig measures a backend against an emulator of its service, as a whole: nothing else here is a floor for it.
func cloudRig(start func() (cloud, error)) rig {
	return rig{
		ready: func(context.Context) error {
			c, err := start()
			if err != nil {
				return err
			}
			return c.close()
		},
		whole: func(ctx context.Context, b *bench) (err error) {
			c, err := start()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, c.close()) }()
			return measureCloud(ctx, b, c)
		},
	}
}

// cloudFigures are what is measured at one latency, in milliseconds each.
type cloudFigures struct{ open, ask, exec, spaced, block, shown, execShown, upload samples }

func measureCloud(ctx context.Context, b *bench, c cloud) error {
	src := filepath.Join(b.dir, "thousand")
	if err := makeFiles(src, cloudFiles, cloudSize); err != nil {
		return err
	}
	all := make([]cloudFigures, len(cloudDelays))
	for i, delay := range cloudDelays {
		c.setLatency(delay)
		if err := measureCloudAt(ctx, b, c, delay, src, &all[i]); err != nil {
			return fmt.Errorf("with %v for a round trip: %w", delay, err)
		}
	}
	c.setLatency(0)
	reportCloud(b, all)
	return nil
}

func measureCloudAt(ctx context.Context, b *bench, c cloud, delay time.Duration, src string, f *cloudFigures) (err error) {
	flags := map[string]string{"backend": b.backend, "spawn_ahead_idle": "3600"}
	for key, value := range c.settings() {
		flags[key] = value
	}
	cfg, err := config.Load(config.Options{Backends: all.Backends(), Environ: b.environ, Dir: "/", Flags: flags})
	if err != nil {
		return err
	}
	ahead := 1
	start := time.Now()
	sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{
		Backend: b.backend, Environ: b.environ, Task: fmt.Sprintf("bench-%d", delay.Milliseconds()), SpawnAhead: &ahead, // what is synchronised is remembered for a task
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	s, err := sb.Session(ctx, "")
	if err != nil {
		return err
	}
	call := runner(s, "true")
	if err := call(ctx); err != nil {
		return err
	}
	f.open.since(start)
	if err := c.enter(ctx, sb.Info().SandboxID); err != nil {
		return err
	}
	// One is there before the next call that wants it, however slowly it comes.
	rest := 300*time.Millisecond + 6*delay
	for i := range b.n.spaced/4 + 2 {
		for _, one := range []struct {
			call func(context.Context) error
			to   *samples
		}{
			{c.ask, &f.ask}, {call, &f.spaced}, {func(ctx context.Context) error { return c.exec(ctx, io.Discard, "true") }, &f.exec},
		} {
			if err := pause(ctx, rest/3); err != nil {
				return err
			}
			start := time.Now()
			if err := one.call(ctx); err != nil {
				return err
			}
			if i > 1 { // the first ones warm
				one.to.since(start)
			}
		}
	}
	for range b.n.blocks/3 + 1 {
		if err := pause(ctx, rest); err != nil {
			return err
		}
		start := time.Now()
		for range cloudBlock {
			if err := call(ctx); err != nil {
				return err
			}
		}
		f.block = append(f.block, milliseconds(time.Since(start))/cloudBlock)
	}
	return moveOverCloud(ctx, b, c, sb, s, src, rest, f)
}

// moveOverCloud measures what moves data.
func moveOverCloud(ctx context.Context, b *bench, c cloud, sb *elsewhere.Sandbox, s *elsewhere.Session, src string, rest time.Duration, f *cloudFigures) error {
	print := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", cloudShown)
	for range b.n.output + 1 {
		for _, one := range []struct {
			call func(out io.Writer) error
			to   *samples
		}{
			{func(out io.Writer) error { return c.exec(ctx, out, print) }, &f.execShown},
			{func(out io.Writer) error { return ended(s.Run(ctx, print, &elsewhere.RunOptions{Stdout: out})) }, &f.shown},
		} {
			if err := pause(ctx, rest); err != nil {
				return err
			}
			var out counter
			start := time.Now()
			if err := one.call(&out); err != nil {
				return err
			}
			one.to.since(start)
			if out.n != cloudShown {
				return fmt.Errorf("%d bytes of output came, not %d", out.n, cloudShown)
			}
		}
	}
	for i := range b.n.sync {
		start := time.Now()
		done, err := sb.Sync(ctx, elsewhere.SyncOptions{Local: src, Remote: fmt.Sprintf("bench-%d", i)})
		if err != nil {
			return err
		}
		f.upload.since(start)
		if got := len(done.Sent); got != cloudFiles+cloudFiles/syncPerDir || len(done.Conflicts)+len(done.Skipped) > 0 {
			return fmt.Errorf("%d files and directories were sent, not %d", got, cloudFiles+cloudFiles/syncPerDir)
		}
	}
	return nil
}

// reportCloud adds a group for each thing and latency; the last one tells round trips too.
func reportCloud(b *bench, all []cloudFigures) {
	for _, thing := range []struct {
		group, bare, name string
		floor, took       func(*cloudFigures) samples
		trips             float64 // the aim of its round trips; 0 is none, and below they are not told
	}{
		{"a call, a bash waiting", "a request", "run true, spaced", func(f *cloudFigures) samples { return f.ask }, func(f *cloudFigures) samples { return f.spaced }, 1},
		{"the service's own exec of true", "a request", "its exec", func(f *cloudFigures) samples { return f.ask }, func(f *cloudFigures) samples { return f.exec }, 0},
		{fmt.Sprintf("calls back to back, mean of %d", cloudBlock), "a request", "run true", func(f *cloudFigures) samples { return f.ask }, func(f *cloudFigures) samples { return f.block }, 0},
		{"a new sandbox and a first call", "a request", "open and run true", func(f *cloudFigures) samples { return f.ask }, func(f *cloudFigures) samples { return f.open }, 0},
		{"1 MB of output", "the service's exec", "run", func(f *cloudFigures) samples { return f.execShown }, func(f *cloudFigures) samples { return f.shown }, -1},
		{fmt.Sprintf("%d files of %d bytes", cloudFiles, cloudSize), "a request", "sync", func(f *cloudFigures) samples { return f.ask }, func(f *cloudFigures) samples { return f.upload }, -1},
	} {
		for i, delay := range cloudDelays {
			group := fmt.Sprintf("against the emulator, %v for a round trip: %s", delay, thing.group)
			floor, took := thing.floor(&all[i]), thing.took(&all[i])
			for j, one := range []struct {
				name string
				took samples
			}{{thing.bare, floor}, {thing.name, took}} {
				b.report.add(row{
					Backend: b.backend, Group: group, Name: one.name, Floor: j == 0, Unit: "ms", P50: one.took.p(50), P95: one.took.p(95), N: len(one.took),
					Ratio: one.took.p(50) / floor.p(50), Ratio95: one.took.p(95) / floor.p(95),
				})
			}
			if i < len(cloudDelays)-1 || thing.trips < 0 { // of what takes long the difference is noise
				continue
			}
			r := row{Backend: b.backend, Group: group, Name: "  in round trips", Unit: "trips", P50: trips(took, thing.took(&all[0]), delay, 50), P95: trips(took, thing.took(&all[0]), delay, 95), N: len(took)}
			if thing.trips > 0 {
				r.Of, r.Aim = "p50", thing.trips+slack
			}
			b.report.add(r)
		}
	}
}

// trips is how many round trips of delay lie between two percentiles, the second of which was taken without delay.
func trips(with, without samples, delay time.Duration, percent float64) float64 {
	return (with.p(percent) - without.p(percent)) / milliseconds(delay)
}

func (s *samples) since(start time.Time) { *s = append(*s, milliseconds(time.Since(start))) }

// makeFiles makes small files, as many in a directory as makeTree does.
func makeFiles(dir string, n, size int) error {
	data := make([]byte, size)
	for i := range n {
		sub := filepath.Join(dir, fmt.Sprintf("directory-%02d", i/syncPerDir))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		copy(data, fmt.Sprintf("this is file %d", i))
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file-%04d", i)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
