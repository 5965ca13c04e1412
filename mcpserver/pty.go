package mcpserver

import (
	"context"
	"io"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// checkPTY says why a call cannot run on a terminal.
func (s *Server) checkPTY(in terminalInput, timeout time.Duration) error {
	switch {
	case !in.PTY && (in.Rows != 0 || in.Cols != 0):
		return failure(driver.KindConfig, "give pty:true too, or leave rows and cols out", "rows and cols are a terminal's size, and this command has no terminal")
	case in.PTY && in.Background:
		return failure(driver.KindUnsupported, "leave pty out and answer with process action:submit; for a program that insists, run script -qfec 'PROGRAM' /dev/null as the job",
			"a background job has no terminal")
	case in.PTY && timeout > s.limits.foreground:
		return failure(driver.KindUnsupported, "give a shorter timeout, or leave pty out", "a command that may run for more than %s becomes a background job, which has no terminal", s.limits.foreground)
	}
	return nil
}

// runOnTerminal is session.Run on a pseudo-terminal on which nobody types. to gets what is shown, as text.
func runOnTerminal(ctx context.Context, session *elsewhere.Session, in terminalInput, opts *elsewhere.RunOptions) (*elsewhere.Result, error) {
	terminal, err := session.Shell(ctx, in.Command, &elsewhere.TerminalOptions{Dir: opts.Dir, Timeout: opts.Timeout, Rows: in.Rows, Cols: in.Cols})
	if err != nil {
		return nil, err
	}
	_, failed := io.Copy(&plain{to: opts.Stdout}, terminal)
	if failed != nil {
		_ = terminal.Close()
	}
	res, err := terminal.Wait(context.WithoutCancel(ctx)) // its life is ctx
	if err == nil {
		err = failed
	}
	return res, err
}
