// Package modal runs commands in a Modal sandbox.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package modal

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the modal backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "modal",
		Summary:  "In a sandbox of the cloud service Modal.",
		Settings: Settings,
	}
}
