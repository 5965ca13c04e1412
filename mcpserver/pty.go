package mcpserver

import (
	"bytes"
	"context"
	"io"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/output"
)

// checkPTY says why a call cannot run on a terminal.
func checkPTY(in terminalInput) error {
	if !in.PTY && (in.Rows != 0 || in.Cols != 0) {
		return failure(driver.KindConfig, "give pty:true too, or leave rows and cols out", "rows and cols are a terminal's size, and this command has no terminal")
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

// shownText is a part of a job's output as a model is shown it.
func shownText(job *elsewhere.Job, data []byte) string {
	if !job.Terminal() {
		return output.Text(data)
	}
	var text bytes.Buffer
	_, _ = (&plain{to: &text}).Write(data)
	return output.Text(text.Bytes())
}
