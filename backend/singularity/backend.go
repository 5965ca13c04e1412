// Package singularity runs commands in an Apptainer or Singularity instance.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package singularity

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the singularity backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "singularity",
		Aliases:  []string{"apptainer"},
		Summary:  "In an Apptainer or Singularity instance, as an ordinary user: nothing of the host is visible.",
		Settings: Settings,
	}
}
