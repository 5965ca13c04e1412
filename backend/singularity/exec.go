//go:build linux

package singularity

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashproc"
)

// process is a bash in the instance, by the client that started it: the client's three pipes are the bash's own, and it ends
// as the bash ends, also by the same signal. When the client is killed, so is the bash.
type process struct {
	*bashproc.Process
	id    string
	space string // of the instance's processes
}

func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	argv, env, err := s.client(ctx, spec, "setsid")
	if err != nil {
		return nil, err
	}
	p, err := bashproc.Start(s.prog.path, argv, env)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot start %s: %w", s.prog.path, err)
	}
	return &process{Process: p, id: spec.ID, space: pidSpace(s.rec.PID)}, nil
}

// terminalProcess is a bash in the instance on a terminal of this machine, which its client hands on.
type terminalProcess struct {
	*bashproc.Terminal
	id, space string
}

// BashPTY starts a bash on a terminal. Where the instance has setsid the bash takes the terminal for its own session, and the
// client leaves it alone.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	argv, env, err := s.client(ctx, spec, "setsid", "-c")
	if err != nil {
		return nil, err
	}
	p, err := bashproc.StartTerminal(s.prog.path, argv, env, rows, cols, !s.rec.Setsid)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot start %s on a terminal: %w", s.prog.path, err)
	}
	return &terminalProcess{Terminal: p, id: spec.ID, space: pidSpace(s.rec.PID)}, nil
}

// Kill is process.Kill.
func (p *terminalProcess) Kill(ctx context.Context) error {
	err := p.Terminal.Kill(ctx)
	killCarriers(ctx, p.space, p.id)
	return err
}

// client is the command line and environment of a client that starts a bash, by setsid where the instance has that.
func (s *sandbox) client(ctx context.Context, spec driver.BashSpec, setsid ...string) (argv, env []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, nil, failure(driver.KindLost, "the sandbox is closed")
	}
	if !s.rec.lives() {
		return nil, nil, s.lost()
	}
	s.keepDirs()
	argv = append([]string{s.prog.path}, execArgs(s.rec.Name)...)
	if s.rec.Setsid {
		// A session of its own in the instance's own count: that of the client has no number there.
		argv = append(argv, setsid...)
	}
	argv = append(append(argv, "bash"), spec.Args...)
	env = make([]string, 0, len(s.prog.env)+len(spec.Env))
	env = append(env, s.prog.env...)
	for _, entry := range spec.Env {
		env = append(env, s.prog.prefix+entry)
	}
	return argv, env, nil
}

// Kill ends the client and with it the bash, and then what else of the instance carries the call's id.
func (p *process) Kill(ctx context.Context) error {
	err := p.Process.Kill(ctx)
	killCarriers(ctx, p.space, p.id)
	return err
}

// pidSpace names the process namespace of a process; "" where that cannot be told.
func pidSpace(pid int) string {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return ""
	}
	return link
}

// killCarriers ends the processes of a namespace that have the id as a variable's value.
func killCarriers(ctx context.Context, space, id string) {
	if space == "" || id == "" {
		return
	}
	for _, pid := range pidsIn(space) {
		if ctx.Err() != nil {
			return
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// Read after the descriptor is held, so that it is the same process.
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && pidSpace(pid) == space && bytes.Contains(append(environ, 0), []byte("="+id+"\x00")) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}

// pidsIn lists the processes of a namespace, by their numbers on the host.
func pidsIn(space string) []int {
	if space == "" {
		return nil
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil && pidSpace(pid) == space {
			pids = append(pids, pid)
		}
	}
	return pids
}
