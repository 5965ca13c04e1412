// Package local runs commands on this machine, with the user's own rights.
package local

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the local backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "local",
		Summary:  "On this machine, with your own rights and no isolation: for machines without sensitive data.",
		Settings: Settings,
	}
}
