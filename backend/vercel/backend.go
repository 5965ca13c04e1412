// Package vercel runs commands in a Vercel sandbox.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package vercel

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the vercel backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "vercel",
		Aliases:  []string{"vercel_sandbox"},
		Summary:  "In a sandbox of the cloud service Vercel.",
		Settings: Settings,
	}
}
