package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// measureCold starts whole processes in turns: the command line's way to run one command, and a login bash.
func measureCold(ctx context.Context, b *bench) error {
	if b.rig.fresh != nil || b.rig.open != nil {
		return nil // see measureOpen
	}
	program, name, err := b.program(ctx)
	if err != nil {
		return err
	}
	empty := filepath.Join(b.dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		return err
	}
	for _, home := range []struct{ name, dir string }{{"your own HOME", os.Getenv("HOME")}, {"an empty HOME", empty}} {
		if home.dir == "" {
			continue
		}
		environ := environment(home.dir, b.home)
		commands := [][]string{{"bash", "-c", "true"}, {"bash", "-lc", "true"}, program}
		took := make([]samples, len(commands))
		for i := range b.n.cold + 1 {
			for j, argv := range commands {
				if err := pause(ctx, spacing/2); err != nil {
					return err
				}
				cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
				cmd.Env = environ
				start := time.Now()
				if err := cmd.Run(); err != nil {
					return fmt.Errorf("%v: %w", argv, err)
				}
				if i > 0 { // the first one warms
					took[j] = append(took[j], milliseconds(time.Since(start)))
				}
			}
		}
		login := took[1]
		for j, label := range []string{"bash -c true", "bash -lc true", name} {
			r := row{
				Backend: b.backend, Group: "cold start of a process, " + home.name, Name: label, Floor: j == 1, Unit: "ms",
				P50: took[j].p(50), P95: took[j].p(95), N: len(took[j]),
				Ratio: took[j].p(50) / login.p(50), Ratio95: took[j].p(95) / login.p(95),
			}
			b.report.add(r)
			if j == 2 {
				r.Name, r.P50, r.P95 = "  above bash -lc true", r.P50-login.p(50), r.P95-login.p(95)
				r.Ratio, r.Ratio95, r.Of, r.Aim = 0, 0, "p50", 30
				b.report.add(r)
			}
		}
	}
	return nil
}

// program builds the command line and returns how it runs `true`. Where it cannot do that yet, this command stands in for it.
func (b *bench) program(ctx context.Context) (argv []string, name string, err error) {
	binary := filepath.Join(b.dir, "elsewhere")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", binary, "github.com/elsewhere-sh/elsewhere/cmd/elsewhere")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("go build ./cmd/elsewhere: %w\n%s", err, out)
	}
	argv = []string{binary, "run", "-b", b.backend, "true"}
	try := exec.CommandContext(ctx, argv[0], argv[1:]...)
	try.Env = b.environ
	out, err := try.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 125 {
		fmt.Fprintf(os.Stderr, "bench: elsewhere run does not work here, a program of the library stands in for it: %s\n", out)
		self, err := os.Executable()
		return []string{self, "-child", "once", b.backend}, "a program that runs true", err
	}
	return argv, "elsewhere run true", err
}

// once is the child's part: what the command line does.
func once(ctx context.Context, backend string) error {
	sb, err := sandbox(ctx, backend, os.Environ(), 0)
	if err != nil {
		return err
	}
	s, err := sb.Session(ctx, "")
	if err == nil {
		err = ended(s.Run(ctx, "true", nil))
	}
	return errors.Join(err, sb.Close(ctx))
}
