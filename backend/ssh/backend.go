// Package ssh runs commands in an account of another machine.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package ssh

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the ssh backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "ssh",
		Summary:  "In your account on another machine, over the system's OpenSSH: that machine is the boundary.",
		Settings: Settings,
	}
}
