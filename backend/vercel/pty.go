package vercel

import (
	"context"
	"encoding/json"

	"github.com/coder/websocket"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
)

// terminalProcess is a bash on a terminal of its own. It counts as work for as long as it is open.
type terminalProcess struct{ *ptychannel.Terminal }

func (terminalProcess) busy() bool { return true }

// BashPTY starts a bash on a terminal of the session's, as the service's client does.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if s.bashes.Closed() {
		return nil, errClosed
	}
	mark := bashscript.CallVariable + "=" + spec.ID
	env := append([]string{"HOME=" + s.around.Home, mark}, spec.Env...)
	t, err := s.dialTerminal(ctx, append([]string{"bash"}, spec.Args...), env, rows, cols)
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	p := terminalProcess{ptychannel.NewTerminal(t, ptychannel.TerminalSpec{
		Name: "the sandbox " + s.plan.name, Kill: func(ctx context.Context) error { return s.inside.Kill(ctx, mark) },
	})}
	if !s.bashes.Own(p) {
		return nil, errClosed
	}
	return p, nil
}

// Status is how the command ended, where the service said so.
func (t *term) Status() (driver.ExitStatus, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status == nil {
		return driver.ExitStatus{}, false
	}
	return *t.status, true
}

// Resize tells the service the new size.
func (t *term) Resize(ctx context.Context, rows, cols uint16) error {
	word, _ := json.Marshal(map[string]any{"type": "resize", "rows": rows, "cols": cols}) // of a string and numbers alone
	return t.conn.Write(ctx, websocket.MessageText, word)
}

var _ driver.PTY = (*sandbox)(nil)
