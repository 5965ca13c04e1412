package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

const (
	spacing   = 50 * time.Millisecond  // between two calls
	burstRest = 250 * time.Millisecond // between two bursts, at least
	burstLen  = 5
	blockLen  = 20 // calls back to back before the next variant has its turn
)

// variant is one way to run a trivial command.
type variant struct {
	name   string
	call   func(context.Context) error
	aims   [3]float64 // spaced, burst, back to back; 0 for none
	sample [3]samples
	used   samples // processor time of a call, of this process and its children
}

// measureCalls takes turns between all variants after each call, burst and block, so that what the machine does besides
// hits all of them.
func measureCalls(ctx context.Context, b *bench) error {
	variants := []*variant{{name: b.rig.bare}}
	if b.backend == "local" {
		variants = append(variants, &variant{name: "bash -lc true", call: b.spawn("-lc", "true")})
	}
	var closers []func(context.Context) error
	defer func() {
		for _, c := range closers {
			_ = c(context.WithoutCancel(ctx))
		}
	}()
	for _, ahead := range b.rig.waiting() {
		for _, command := range []string{":", "true"} {
			sb, err := sandbox(ctx, b.backend, b.environ, ahead)
			if err != nil {
				return err
			}
			closers = append(closers, sb.Close)
			if variants[0].call == nil {
				variants[0].call = func(ctx context.Context) error { return b.rig.run(ctx, sb, io.Discard, "true") }
			}
			s, err := sb.Session(ctx, "")
			if err != nil {
				return err
			}
			v := &variant{name: fmt.Sprintf("run %-4s ahead %d", command, ahead), call: runner(s, command)}
			if ahead > 0 {
				v.aims = [3]float64{b.rig.spaced, b.rig.bursts, b.rig.block}
			}
			variants = append(variants, v)
		}
	}
	for range 3 {
		if err := turns(ctx, variants, 0, b.rig.rest(), 1, true); err != nil { // the first state, caches, the processor's clock
			return err
		}
	}
	for range b.n.spaced {
		if err := turns(ctx, variants, 0, b.rig.rest(), 1, false); err != nil {
			return err
		}
	}
	for range b.n.bursts {
		if err := turns(ctx, variants, 1, b.rig.burstRest(), burstLen, false); err != nil {
			return err
		}
	}
	for range b.n.blocks {
		if err := turns(ctx, variants, 2, b.rig.burstRest(), blockLen, false); err != nil {
			return err
		}
	}
	for kind, group := range []string{
		fmt.Sprintf("a trivial command, %v between calls", b.rig.rest()),
		fmt.Sprintf("the same, in bursts of %d, %v apart: mean of a burst", burstLen, b.rig.burstRest()),
		fmt.Sprintf("the same, back to back: mean of %d", blockLen),
	} {
		floor := variants[0].sample[kind]
		for i, v := range variants {
			b.report.add(row{
				Backend: b.backend, Group: group, Name: v.name, Floor: i == 0, Unit: "ms",
				P50: v.sample[kind].p(50), P95: v.sample[kind].p(95), N: len(v.sample[kind]),
				Ratio: v.sample[kind].p(50) / floor.p(50), Ratio95: v.sample[kind].p(95) / floor.p(95),
				Of: "ratio", Aim: v.aims[kind],
			})
		}
	}
	for i, v := range variants {
		b.report.add(row{
			Backend: b.backend, Group: "processor time of a call, of all processes, back to back", Name: v.name, Floor: i == 0, Unit: "ms",
			P50: v.used.p(50), P95: v.used.p(95), N: len(v.used),
			Ratio: v.used.p(50) / variants[0].used.p(50), Ratio95: v.used.p(95) / variants[0].used.p(95),
		})
	}
	return nil
}

// turns lets each variant rest and then make its calls, and notes the mean of one in milliseconds.
func turns(ctx context.Context, variants []*variant, kind int, rest time.Duration, calls int, warm bool) error {
	for _, v := range variants {
		if err := pause(ctx, rest); err != nil {
			return err
		}
		before := processorUsed()
		start := time.Now()
		for range calls {
			if err := v.call(ctx); err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
		}
		took := time.Since(start)
		if warm {
			continue
		}
		v.sample[kind] = append(v.sample[kind], milliseconds(took)/float64(calls))
		if kind == 2 {
			// What is done behind the calls counts too.
			if err := pause(ctx, rest); err != nil {
				return err
			}
			v.used = append(v.used, milliseconds(processorUsed()-before)/float64(calls))
		}
	}
	return nil
}

// spawn is what a program does that starts a bash for each command.
func (b *bench) spawn(args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, "bash", args...)
		cmd.Env, cmd.Dir = b.environ, "/"
		return cmd.Run()
	}
}

func runner(s *elsewhere.Session, command string) func(context.Context) error {
	return func(ctx context.Context) error {
		r, err := s.Run(ctx, command, nil)
		return ended(r, err)
	}
}

// ended makes anything but a plain success an error: it would be a different thing that was measured.
func ended(r *elsewhere.Result, err error) error {
	switch {
	case err != nil:
		return err
	case r.Cause != elsewhere.Exited || r.ExitCode != 0:
		return fmt.Errorf("ended with %s, exit code %d: %q", r.Cause, r.ExitCode, r.Output)
	case !r.StateSaved:
		return fmt.Errorf("its state was not saved; notices: %q", r.Notices)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
