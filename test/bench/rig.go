package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/user"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// rig is how one backend is measured: what it is set to, and the bare way to run a command there, which is the floor.
type rig struct {
	settings []string // added to the environment
	bare     string   // the floor's name
	// run runs a command by the bare way in the place where sb is, and passes its stdout on to out.
	run func(ctx context.Context, sb *elsewhere.Sandbox, out io.Writer, command string) error
	// fresh makes a new sandbox by the bare way, runs `true` in it and gives the end of it back, which is not measured.
	// Nil where there is no such thing.
	fresh func(ctx context.Context) (remove func(), err error)

	// ready says why there is nothing to measure with what the settings name; end ends what the bare way left. Either may be nil.
	ready func(ctx context.Context) error
	end   func(ctx context.Context)
	// open and sync measure those parts where they are not what they are elsewhere. Nil is the usual open, and no sync.
	open, sync func(ctx context.Context, b *bench) error
	// whole measures everything, in place of all parts. Nil where the parts are.
	whole func(ctx context.Context, b *bench) error

	spaced, bursts, block float64 // the aims of a call, as ratios to the floor
	sessions              []int   // how many are opened at once

	spacing time.Duration // between spaced calls; 0 is the usual one
}

// rest is the time between two calls that are spaced: enough for the engine to have started what waits for the next one.
func (r rig) rest() time.Duration {
	if r.spacing > 0 {
		return r.spacing
	}
	return spacing
}

// burstRest is the time between two bursts: enough for the engine to have started burstLen bashes one after another.
func (r rig) burstRest() time.Duration { return max(burstRest, r.spacing*burstLen/2) }

// waiting are the numbers of bashes started ahead that are measured: where a start takes long, also one for each call of a burst.
func (r rig) waiting() []int {
	if r.spacing > 0 {
		return []int{0, 1, 3, burstLen}
	}
	return []int{0, 1, 3}
}

// rigs are the backends that can be measured.
func rigs() map[string]rig {
	all := cloudRigs()
	if all == nil {
		all = map[string]rig{}
	}
	maps.Copy(all, map[string]rig{
		"local": {
			bare: "bash -c true", run: runHere,
			spaced: 0.35, bursts: 0.6, block: 1.5, sessions: []int{1, 10, 100},
		},
		"docker":      dockerRig(),
		"singularity": apptainerRig(),
		"ssh":         sshRig(),
	})
	return all
}

func runHere(ctx context.Context, _ *elsewhere.Sandbox, out io.Writer, command string) error {
	return runProgram(ctx, out, "bash", "-c", command)
}

// runProgram runs a program of this machine with its output read in 64 KiB.
func runProgram(ctx context.Context, out io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	_, copyErr := io.CopyBuffer(out, struct{ io.Reader }{pipe}, make([]byte, 64<<10))
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	return copyErr
}

// setting is a variable of the caller's, or what stands for it.
func setting(name, usual string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return usual
}

// apptainerRig measures an instance next to `apptainer exec instance://...`.
func apptainerRig() rig {
	image := setting("BENCH_SINGULARITY_IMAGE", "/var/cache/elsewhere-testbed/base.sif")
	return rig{
		settings: []string{"TERMINAL_SINGULARITY_IMAGE=" + image},
		bare:     "apptainer exec bash -c true",
		run: func(ctx context.Context, sb *elsewhere.Sandbox, out io.Writer, command string) error {
			account, err := user.Current()
			if err != nil {
				return err
			}
			// Apptainer notes its instances below the HOME of who starts them, and this process has another one.
			return runProgram(ctx, out, "env", "HOME="+account.HomeDir, "apptainer", "exec", "--cleanenv", "instance://"+sb.Info().SandboxID, "bash", "-c", command)
		},
		fresh: func(ctx context.Context) (func(), error) {
			const name = "elsewhere-bench-bare"
			remove := func() { _ = exec.Command("apptainer", "instance", "stop", name).Run() }
			start := []string{"apptainer", "instance", "start", "--containall", "--no-home", "--writable-tmpfs"}
			if os.Geteuid() == 0 {
				start = append(start, "--userns")
			}
			if err := runProgram(ctx, io.Discard, append(start, image, name)...); err != nil {
				return remove, err
			}
			return remove, runProgram(ctx, io.Discard, "apptainer", "exec", "--cleanenv", "instance://"+name, "bash", "-c", "true")
		},
		spaced: 0.015, bursts: 0.3, spacing: 400 * time.Millisecond, sessions: []int{1, 50},
	}
}
