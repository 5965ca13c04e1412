// Package daytona runs commands in a Daytona sandbox.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package daytona

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the daytona backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "daytona",
		Summary:  "In a sandbox of Daytona, hosted or your own.",
		Settings: Settings,
	}
}
