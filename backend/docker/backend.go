// Package docker runs commands in a Docker or Podman container.
//
// It is not built yet: the package brings its name and its settings, and opening it is an "unsupported" error.
package docker

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend is the docker backend. Its Open is nil, since it is not built.
func Backend() driver.Backend {
	return driver.Backend{
		Name:     "docker",
		Summary:  "In a container of Docker or Podman: capabilities dropped, no new privileges, limits.",
		Settings: Settings,
	}
}
