package docker

import (
	"context"
	"errors"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

// classify trusts what was said where the error was made; of an engine's bare answer it knows what the API's status says.
func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	switch {
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return driver.KindTimeout
	case cerrdefs.IsInvalidArgument(err):
		return driver.KindConfig
	case cerrdefs.IsNotImplemented(err):
		return driver.KindUnsupported
	default:
		return driver.KindUnavailable
	}
}
