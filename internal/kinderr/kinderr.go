// Package kinderr holds the error of a backend that knows its kind where it is made. Its text names the user's next step.
package kinderr

import (
	"errors"
	"fmt"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Error is a failure whose kind is known.
type Error struct {
	Kind driver.Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the failure without its kind.
func (e *Error) Unwrap() error { return e.Err }

// New makes an *Error with a text as of fmt.Errorf.
func New(kind driver.Kind, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// Of gives the kind of an error that has one, "" of any other.
func Of(err error) driver.Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}
