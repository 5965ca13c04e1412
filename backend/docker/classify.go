package docker

import (
	"context"
	"errors"
	"fmt"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// kindError is a failure whose kind this package knows. Its text names the user's next step.
type kindError struct {
	kind driver.Kind
	err  error
}

func (e *kindError) Error() string { return e.err.Error() }
func (e *kindError) Unwrap() error { return e.err }

func failure(kind driver.Kind, format string, args ...any) error {
	return &kindError{kind, fmt.Errorf(format, args...)}
}

// classify trusts what was said where the error was made; of an engine's bare answer it knows what the API's status says.
func classify(err error) driver.Kind {
	if k, ok := errors.AsType[*kindError](err); ok {
		return k.kind
	}
	switch {
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return driver.KindTimeout
	case cerrdefs.IsInvalidArgument(err):
		return driver.KindConfig
	case cerrdefs.IsPermissionDenied(err), cerrdefs.IsUnauthorized(err):
		return driver.KindDenied
	case cerrdefs.IsNotImplemented(err):
		return driver.KindUnsupported
	default:
		return driver.KindUnavailable
	}
}
