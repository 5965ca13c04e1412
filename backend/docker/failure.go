package docker

import (
	"fmt"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// kindError is a failure whose kind is known where it is found. Its text names the user's next step.
type kindError struct {
	kind driver.Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

func failure(kind driver.Kind, format string, args ...any) error {
	return &kindError{kind, fmt.Errorf(format, args...)}
}
