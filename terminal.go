package elsewhere

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"strconv"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// TerminalOptions says how a program is run on a terminal. Nil is: the session's directory, no timeout, 24 rows of 80 columns.
type TerminalOptions struct {
	// Dir is the directory for this call alone; as RunOptions.Dir.
	Dir string
	// Env holds variables for this call alone; as RunOptions.Env.
	Env map[string]string
	// Timeout ends all that runs on the terminal after this time; 0 is none.
	Timeout time.Duration
	// Rows and Cols are the size at the start, in characters; 0 is 24 and 80.
	Rows, Cols uint16
	// Term is the terminal's type, TERM there; "" is xterm-256color. Env beats it.
	Term string
}

// Terminal is a program that runs on a pseudo-terminal in the sandbox. What it shows is read, what is typed is written, both byte
// for byte. It has to be read until io.EOF, since a program whose output nobody takes stands still, and then asked for its end
// with Wait; Close gives it up. One goroutine reads and others may write, resize and wait meanwhile.
type Terminal struct {
	c      *call
	shown  *io.PipeReader
	cancel context.CancelFunc
	done   chan struct{} // closed when res and err are set
	res    *Result
	err    error
}

// The size of a terminal for which none is given.
const (
	defaultRows = 24
	defaultCols = 80
	defaultTerm = "xterm-256color"
)

// hangWait is how long what runs on a terminal may take to leave after HUP, before TERM.
const hangWait = time.Second

// Shell runs a command (bash text) on a pseudo-terminal; an empty one is an interactive bash. It begins with the session's state,
// and what it leaves is the session's state after it, as with Run. It returns when the command has begun. ctx is the life of the
// terminal: when it is canceled the terminal is hung up (HUP, then after a second TERM, the grace, KILL) and the result's cause is
// Interrupted. A backend that has no terminals is an ErrUnsupported. A policy may refuse the command, as with Run (ErrDenied); what is
// typed is not looked at.
func (s *Session) Shell(ctx context.Context, command string, opts *TerminalOptions) (*Terminal, error) {
	if opts == nil {
		opts = &TerminalOptions{}
	}
	env := map[string]string{"TERM": cmp.Or(opts.Term, defaultTerm)}
	maps.Copy(env, opts.Env)
	shown, out := io.Pipe()
	run := &RunOptions{Dir: opts.Dir, Env: env, Timeout: opts.Timeout, Stdout: out}
	if err := checkCall(cmp.Or(command, interactive), run); err != nil {
		return nil, wrap(err, driver.KindConfig, "shell", s.sb.backend, s.sb.task, "")
	}
	if _, ok := s.sb.at().drv.(driver.PTY); !ok {
		return nil, wrap(errText("this backend has no pseudo-terminals"), driver.KindUnsupported, "shell", s.sb.backend, s.sb.task,
			"run the command without one")
	}
	verdict := notChecked
	if command != "" {
		var err error
		if verdict, err = s.permitCommand(ctx, "shell", command, opts.Dir, opts.Env); err != nil {
			s.sb.auditDenied(s.name, command, verdict, err)
			return nil, s.sb.telemetry.failed(ctx, "shell", err)
		}
	}
	if !s.begin() {
		return nil, wrap(errText("the session is closed"), driver.KindConfig, "shell", s.sb.backend, s.name, "open it again")
	}
	c := newCall(s, cmp.Or(command, interactive), run)
	c.policy = verdict
	ctx, cancel := context.WithCancel(c.requested(ctx, "shell"))
	t := &Terminal{c: c, shown: shown, cancel: cancel, done: make(chan struct{})}
	word := bashscript.NewID()
	err := c.prepare(ctx, func(ctx context.Context, state stateRef) (*shell, error) {
		return s.startBy(ctx, func(ctx context.Context, p *place) (*shell, error) {
			return c.startTerminal(ctx, p, state, word, command == "", cmp.Or(opts.Rows, defaultRows), cmp.Or(opts.Cols, defaultCols))
		})
	})
	if err != nil {
		cancel()
		c.told(ctx, nil, err)
		c.close()
		s.calls.Done()
		return nil, err
	}
	// From here on no other bash is started: one that does not hear it ends without having run the command, which is known by its report.
	_ = c.sh.write([]byte(word + "\n"))
	s.sb.goroutines.Go(func() {
		defer s.calls.Done()
		t.run(ctx, out)
	})
	select {
	case <-c.sh.begun:
	case <-t.done:
	}
	return t, nil
}

// interactive is what stands in records for an interactive bash.
const interactive = "bash -i"

// run waits for the end and notes it.
func (t *Terminal) run(ctx context.Context, out *io.PipeWriter) {
	c := t.c
	defer t.cancel()
	defer c.close()
	c.wait(ctx)
	if c.neverStarted() && c.cause == Exited {
		c.cause, c.code, c.lost = Lost, -1, errText("the bash ended before the command began")
	}
	t.res, t.err = c.result()
	c.told(ctx, t.res, t.err)
	_ = out.Close()
	close(t.done)
}

// startTerminal starts a bash on a terminal that loads state and, when it is told word there, runs the command. All else that it is told
// waits for it in a file.
func (c *call) startTerminal(ctx context.Context, p *place, state stateRef, word string, shell bool, rows, cols uint16) (*shell, error) {
	terminals, ok := p.drv.(driver.PTY)
	if !ok {
		return nil, errText("this backend has no pseudo-terminals")
	}
	s := c.s
	sh := p.newShell(s)
	c.sh = sh
	file := p.slotPath(true, "terminal-"+sh.id)
	args, ok := p.scripts.TerminalArgs(file)
	if !ok {
		return nil, fmt.Errorf("the path of the private directory, %s, cannot stand in a command line", p.info.PrivateDir)
	}
	sh.choose(&state, p.dropped())
	command := c.command
	if shell {
		command = bashscript.Interactive(file)
	}
	c.cwd = s.Cwd()
	text := append(append([]byte{}, p.scripts.Boot()...), p.scripts.Load(sh.loading)...)
	text = append(text, p.scripts.Run(bashscript.Run{
		Cwd: c.cwd, Dir: c.opts.Dir, Terminal: true, Go: word, ExitTrap: !shell && setsExitTrap(c.command), Env: c.variables(),
		Setup: bashscript.Empty(file), Command: command,
	})...)
	token := bashscript.NewToken()
	if _, err := p.ask(ctx, bashscript.Receive(file, token), token, bytes.NewReader(text)); err != nil {
		p.removeState(file)
		return nil, err
	}
	sh.setOutput(c.sink(&c.out, c.opts.Stdout), nil)
	c.started = time.Now()
	err := sh.launch(ctx, func(env []string) (driver.Process, error) {
		proc, err := terminals.BashPTY(ctx, driver.BashSpec{ID: sh.id, Args: args, Env: env}, rows, cols)
		c.pty = proc
		return proc, err
	})
	if err != nil {
		p.removeState(file)
		return nil, err
	}
	s.mu.Lock()
	s.keepLoaded(sh, state)
	s.mu.Unlock()
	s.sb.goroutines.Go(func() {
		<-sh.exited
		p.removeState(file)
	})
	return sh, nil
}

// hangUp tells what runs on the terminal that it is gone, and lets it leave.
func (c *call) hangUp() {
	sh := c.sh
	if sh.pid() == 0 || sh.exitedNow() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangWait)
	defer cancel()
	proc, err := sh.at.drv.Bash(ctx, driver.BashSpec{ID: bashscript.NewID(), Args: bashscript.HangUpArgs(strconv.Itoa(sh.pid()))})
	if err != nil {
		return // what ends it by force says more
	}
	defer closeStreams(proc)
	_, _ = proc.Wait(ctx)
	select {
	case <-sh.saved:
	case <-sh.exited:
	case <-ctx.Done():
	}
}

// Read gives what is shown; io.EOF when the program has ended.
func (t *Terminal) Read(p []byte) (int, error) { return t.shown.Read(p) }

// Write types p. It returns when the terminal has taken it.
func (t *Terminal) Write(p []byte) (int, error) { return t.c.sh.proc.Stdin().Write(p) }

// Resize changes the terminal's size, in characters; programs there are told.
func (t *Terminal) Resize(ctx context.Context, rows, cols uint16) error {
	if err := t.c.pty.Resize(ctx, rows, cols); err != nil {
		select {
		case <-t.done:
			return nil
		default:
			return t.c.s.sb.wrap(err, "resize the terminal")
		}
	}
	return nil
}

// Wait waits for the end. It gives what Run gives, without output; ctx bounds the wait alone.
func (t *Terminal) Wait(ctx context.Context) (*Result, error) {
	select {
	case <-t.done:
		return t.res, t.err
	case <-ctx.Done():
		return nil, wrap(ctx.Err(), driver.KindCanceled, "wait", t.c.s.sb.backend, t.c.s.sb.task, "")
	}
}

// Close hangs the terminal up, ends what does not leave, and waits for that. A second Close does nothing.
func (t *Terminal) Close() error {
	t.cancel()
	_ = t.shown.Close()
	<-t.done
	return nil
}
