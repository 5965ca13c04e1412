// Package docker runs commands in a Docker or Podman container, over the engine's own API; no docker program is needed.
//
// A container lives long: it is found again by a name that is a hash of identity, profile and task, so that the engine's own
// name conflict elects one of two processes that start at once, and each bash is an exec in it, as the container's user and
// never with more rights. Labels say whose it is and what it was made with; a container without ours is never touched.
// State files are in a tmpfs of the container's: they are never on a disk and go when it is stopped.
//
// engine.go, contexts.go and ssh.go find and reach the engine; image.go and plan.go decide what is asked of it; lifecycle.go
// finds, makes, starts, replaces and removes the container, setup.go looks around in it; exec.go is a running bash;
// state.go removes and lists state files; keeper.go and reaper.go look after containers that outlive a process.
//
// An engine closes an exec's streams two seconds after its first process, so a bash lingers while it has children of its
// own. It closes the exec's standard input as soon as the client is gone, by which a watchdog in the container learns that
// this process died; what a child in the background prints is then thrown away, and the child lives on.
package docker

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend returns the backend "docker".
func Backend() driver.Backend {
	return driver.Backend{
		Name:      "docker",
		Summary:   "In a container of Docker or Podman: capabilities dropped, no new privileges, limits.",
		Settings:  Settings,
		Open:      open,
		Available: available,
		Keeper:    openKeeper,
		Type:      (*sandbox)(nil),
		Classify:  classify,
	}
}
