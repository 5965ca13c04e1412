package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// direct starts an ssh for each bash, which makes a connection of its own: for clients without masters. That costs a connection
// for each call, and a bash that a signal ended is told from one that exited with 255 by nothing.
type direct struct {
	d     *destination
	dir   controlDir    // of the files in which each ssh writes its own words
	turns chan struct{} // held while one connects

	mu     sync.Mutex
	number int
	work   sync.WaitGroup
}

// connectsAtOnce is how many may connect at the same time: a server refuses beginners beyond 10 (MaxStartups).
const connectsAtOnce = 4

// connectTurn is how long a turn is held at most: when a connection is made cannot be seen from outside.
const connectTurn = time.Second

func newDirect(d *destination, dir controlDir) *direct {
	return &direct{d: d, dir: dir, turns: make(chan struct{}, connectsAtOnce)}
}

func (c *direct) start(ctx context.Context, req request, _ bool) (driver.Process, error) {
	if req.pty != nil {
		return nil, failure(driver.KindUnsupported, "a terminal needs a shared connection, and this ssh client makes none; run the command without one")
	}
	select {
	case c.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, failure(driver.KindUnavailable, "no bash could be started on %s in time: %w", c.d.name(), ctx.Err())
	}
	c.mu.Lock()
	c.number++
	log := filepath.Join(c.dir.path, fmt.Sprintf("%s-%d-%d.log", c.d.id, os.Getpid(), c.number))
	c.mu.Unlock()
	p := &sshProcess{d: c.d, log: log, done: make(chan struct{})}
	if err := p.run(c.d.directArgs(log, req.command)); err != nil {
		<-c.turns
		return nil, failure(driver.KindUnavailable, "cannot start %s: %w", c.d.program, err)
	}
	c.work.Go(func() {
		select {
		case <-p.done:
		case <-time.After(connectTurn):
		}
		<-c.turns
	})
	return p, nil
}

func (c *direct) close() error {
	c.work.Wait()
	c.dir.forget(c.d.id)
	return nil
}

// sshProcess is one ssh and the bash at its other end.
type sshProcess struct {
	d                     *destination
	log                   string
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File
	done                  chan struct{}
	status                driver.ExitStatus
	failed                error
}

func (p *sshProcess) run(args []string) error {
	var ends [6]*os.File
	closeAll := func() {
		for _, f := range ends {
			if f != nil {
				_ = f.Close()
			}
		}
	}
	for i := 0; i < len(ends); i += 2 {
		var err error
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll()
			return err
		}
	}
	p.cmd = exec.Command(p.d.program, args...)
	p.cmd.Env, p.cmd.Dir = p.d.environ, filepath.Dir(p.d.program)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = ends[0], ends[3], ends[5]
	apart(p.cmd)
	if err := p.cmd.Start(); err != nil {
		closeAll()
		return err
	}
	for _, f := range []*os.File{ends[0], ends[3], ends[5]} {
		_ = f.Close()
	}
	p.stdin, p.stdout, p.stderr = ends[1], ends[2], ends[4]
	go p.wait()
	return nil
}

// wait learns how it ended. ssh's own failures and a bash's exit with 255 are the same code: what ssh says is in the log, and
// nothing else is.
func (p *sshProcess) wait() {
	defer close(p.done)
	err := p.cmd.Wait()
	said, _ := os.ReadFile(p.log)
	_ = os.Remove(p.log)
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
	case exited && exit.ExitCode() >= 0 && (exit.ExitCode() != 255 || lastWords(string(said)) == ""):
		p.status = driver.ExitStatus{Code: exit.ExitCode()}
	case exited && exit.ExitCode() == 255:
		p.failed = failure(driver.KindLost, "the connection to the bash was lost: %w", p.d.explain(string(said)))
	default:
		p.failed = failure(driver.KindLost, "ssh ended (%v)", err)
	}
}

func (p *sshProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *sshProcess) Stdout() io.ReadCloser { return p.stdout }
func (p *sshProcess) Stderr() io.ReadCloser { return p.stderr }

func (p *sshProcess) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-p.done:
		return p.status, p.failed
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}

// Kill ends the ssh; the server closes the bash's input and output.
func (p *sshProcess) Kill(context.Context) error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) && !strings.Contains(err.Error(), "finished") {
		return err
	}
	return nil
}
