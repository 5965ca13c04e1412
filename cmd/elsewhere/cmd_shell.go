package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/elsewhere-sh/elsewhere"
)

func (a *app) cmdShell() *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "shell [flags]",
		Short: "Open an interactive bash",
		Long: `Open an interactive bash on a backend, on this terminal. It begins with the session's state, and what it leaves
(exported variables, functions, aliases, directory, umask) is the session's state after it.

All keys go to the far side, Ctrl-C, Ctrl-Z and Ctrl-\ too. Leave it with exit or Ctrl-D; elsewhere ends with its exit code.
For one program on a terminal, use run -t.`,
		Example: `  elsewhere shell
  elsewhere shell -b docker -s dev
  elsewhere shell -b ssh --task build`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.given("session") {
				if err := checkName("--session", o.session); err != nil {
					return err
				}
			}
			if !isTerminal(a.in) {
				return ownError("shell", "start it from a terminal, or use elsewhere run", "standard input is no terminal")
			}
			return a.onTerminal(cmd, &o, "", &elsewhere.RunOptions{Dir: o.dir})
		},
	}
	o.addTo(a, cmd)
	f := cmd.Flags()
	f.StringVarP(&o.session, "session", "s", "", "keep shell state under this `NAME` (default: a throw-away session)")
	f.StringVarP(&o.dir, "cwd", "C", "", "start in this `DIR`; the session's own directory stays as it is")
	_ = cmd.MarkFlagDirname("cwd")
	complete(cmd, "session", a.completeSessions)
	return cmd
}

// onTerminal runs a command (an interactive bash where it is empty) on a pseudo-terminal and joins that to our own.
func (a *app) onTerminal(cmd *cobra.Command, o *runFlags, text string, opts *elsewhere.RunOptions) error {
	cfg, err := a.load(&o.target)
	if err != nil {
		return err
	}
	near := &nearTerminal{in: a.in, out: a.out}
	defer near.restore()
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	in.beforeExit(near.restore)
	options := &elsewhere.TerminalOptions{Dir: opts.Dir, Env: opts.Env, Timeout: opts.Timeout, Term: os.Getenv("TERM")}
	options.Rows, options.Cols = near.size()
	sandbox, err := a.open(ctx, cfg, o.target, false)
	if err != nil {
		return err
	}
	defer a.closing("sandbox", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return sandbox.Close(ctx)
	})
	session, err := sandbox.Session(ctx, o.session)
	if err != nil {
		return err
	}
	terminal, err := session.Shell(ctx, text, options)
	if err != nil {
		return err
	}
	res, err, write := near.join(ctx, terminal, o.stdin || near.isTerminal())
	near.restore()
	flushed := session.Flush(context.WithoutCancel(ctx))
	if res != nil && o.session != "" && (!res.StateSaved || flushed != nil) && res.Cause != elsewhere.Directory {
		why := ""
		if flushed != nil {
			why = ": " + flushed.Error()
		}
		res.Notices = append(res.Notices, "session "+o.session+" is as it was before"+why)
	}
	if write == nil {
		a.comment(o, opts.Timeout, res, err, in.signal())
	}
	return a.exitCode(res, err, in.signal(), write)
}

// nearTerminal is the terminal that elsewhere was started on, if any.
type nearTerminal struct {
	in  io.Reader
	out *os.File
	raw rawMode
}

func (n *nearTerminal) isTerminal() bool { return isTerminal(n.in) }

func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// size is 0 where it is not known.
func (n *nearTerminal) size() (rows, cols uint16) {
	in, _ := n.in.(*os.File)
	for _, f := range []*os.File{in, n.out} {
		if f == nil {
			continue
		}
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return uint16(min(h, 1<<16-1)), uint16(min(w, 1<<16-1))
		}
	}
	return 0, 0
}

// restore gives the terminal back as it was. A second one does nothing.
func (n *nearTerminal) restore() { n.raw.leave() }

// join passes bytes and sizes on until the program has ended. write is why its output could not be passed on.
func (n *nearTerminal) join(ctx context.Context, far *elsewhere.Terminal, input bool) (res *elsewhere.Result, err, write error) {
	if n.isTerminal() {
		if err := n.raw.enter(n.in.(*os.File)); err != nil {
			_ = far.Close()
			return nil, ownError("terminal", "start it from another terminal", "the terminal cannot be made ready: %w", err), nil
		}
	}
	sizing, over := context.WithCancel(ctx)
	stop := onResize(func() {
		if rows, cols := n.size(); rows > 0 {
			_ = far.Resize(sizing, rows, cols) // the next change tries again
		}
	})
	defer stop()
	defer n.restore() // whoever waits there has their terminal again
	defer over()
	if input {
		// Nobody waits for it: a read of a terminal cannot be broken off.
		go func() {
			_, _ = io.Copy(far, struct{ io.Reader }{n.in})
		}()
	}
	_, write = io.Copy(struct{ io.Writer }{n.out}, struct{ io.Reader }{far})
	if write != nil {
		if errors.Is(write, syscall.EIO) {
			write = nil // our terminal is gone, which the signal tells
		}
		_ = far.Close()
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	res, err = far.Wait(wctx)
	return res, err, write
}
