package daytona

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
)

// maxSide is the most rows and columns that the toolbox takes.
const maxSide = 999

// BashPTY starts a bash on a terminal of the toolbox: its login shell is given a line to read by which it becomes the bash's leader.
// What it shows before is passed over, as all that stands before the command's begin.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if s.bashes.Closed() {
		return nil, errClosed
	}
	mark := bashscript.CallVariable + "=" + spec.ID
	argv, token := ptychannel.Lead(append(append([]string{"env", mark}, spec.Env...), append([]string{"bash"}, spec.Args...)...))
	line, err := terminalLine(s.around.Home, argv)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "%w", err)
	}
	t, err := s.dial(ctx, terminalEnv, min(int(rows), maxSide), min(int(cols), maxSide))
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	if err := t.Write(ctx, []byte(line+"\n")); err != nil {
		_ = t.Close()
		return nil, s.startFailed(ctx, fmt.Errorf("typing into a terminal: %w", err))
	}
	p := ptychannel.NewTerminal(t, ptychannel.TerminalSpec{
		Name: "the sandbox " + s.plan.name, Kill: func(ctx context.Context) error { return s.inside.Kill(ctx, mark) }, Token: token,
	})
	if !s.bashes.Own(p) {
		return nil, errClosed
	}
	return p, nil
}

// terminalLine is a line for a login shell (bash, zsh, sh), which argv replaces. What dial set for the shell is taken back.
func terminalLine(home string, argv []string) (string, error) {
	words := append([]string{"env", "-u", "TERM", "HOME=" + home}, argv...)
	var b strings.Builder
	b.WriteString(" exec")
	for _, word := range words {
		if strings.ContainsFunc(word, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", fmt.Errorf("%.60q cannot be typed into a shell", word)
		}
		b.WriteString(" '" + strings.ReplaceAll(word, "'", `'\''`) + "'")
	}
	if b.Len() > ptychannel.MaxLine {
		return "", fmt.Errorf("a line of %d bytes cannot be typed into a shell", b.Len())
	}
	return b.String(), nil
}

// Resize tells the toolbox the new size.
func (t *term) Resize(ctx context.Context, rows, cols uint16) error {
	return t.box.api.Do(ctx, cloudhttp.Request{
		Method: http.MethodPost, Path: t.box.toolbox + "/process/pty/" + t.id + "/resize", Repeat: true,
		Body: map[string]int{"rows": min(int(rows), maxSide), "cols": min(int(cols), maxSide)},
	})
}

var _ driver.PTY = (*sandbox)(nil)
