//go:build !linux

package singularity

import (
	"context"
	"runtime"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// complete makes every opening an error: instances are namespaces of a Linux kernel.
func complete(b driver.Backend) driver.Backend {
	b.Open = func(context.Context, driver.OpenRequest) (driver.Sandbox, error) {
		return nil, failure(driver.KindUnsupported, "apptainer runs on Linux alone, and this is %s: reach a Linux machine by the ssh backend, or use docker", runtime.GOOS)
	}
	return b
}
