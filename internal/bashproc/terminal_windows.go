package bashproc

import (
	"context"
	"errors"
)

// Terminal is a program on a pseudo-terminal; there are none on this system yet.
type Terminal struct{ *Process }

// StartTerminal always fails.
func StartTerminal(string, []string, []string, uint16, uint16, bool) (*Terminal, error) {
	return nil, errors.ErrUnsupported
}

// Resize always fails.
func (t *Terminal) Resize(context.Context, uint16, uint16) error { return errors.ErrUnsupported }
