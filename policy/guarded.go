package policy

import (
	"fmt"
	"path"
	"strings"
)

// Sandbox is what a place is really made of, as its engine reports it: not what the settings asked for.
type Sandbox struct {
	Backend      string // its kind: "local", "ssh", "docker", ...
	Machine      bool   // commands run on a machine itself, with no boundary but their user's rights: local, ssh
	Mounts       []Mount
	Devices      []string // of the machine that are in the container, by path; not those that every container has
	HostNetwork  bool
	HostPID      bool
	Privileged   bool
	EngineSocket bool // the engine's own socket can be reached; one among Mounts counts as well
}

// Mount is a path of the machine in a container.
type Mount struct {
	Target   string // in the container
	Source   string // on the machine
	Writable bool
	Ours     bool // made by elsewhere for this sandbox alone: its sandbox_dir, its state
}

// engineSockets are names of sockets through which an engine can be told to do anything.
var engineSockets = []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock", "docker-containerd.sock"}

// Guarded reports whether commands in s are checked, and why, in a few words. They are where they can do harm outside a
// container; else the container is the boundary.
func Guarded(s Sandbox) (guarded bool, why string) {
	switch why := opened(s); {
	case why != "":
		return true, why
	case s.HostNetwork:
		return true, "it is in the machine's network (only the rules about that hold)"
	}
	return false, "the container is the boundary"
}

// NetworkAlone reports whether the network is all of the machine that commands in s share; see Context.NetworkAlone.
func NetworkAlone(s Sandbox) bool { return s.HostNetwork && opened(s) == "" }

// opened says by what else than the network commands can reach the machine, or "".
func opened(s Sandbox) string {
	if s.Machine {
		return s.Backend + " has no boundary between a command and the machine"
	}
	if s.EngineSocket {
		return "the engine's socket is in the container"
	}
	for _, m := range s.Mounts {
		// Read-only does not help: what is written to a socket is no file.
		for _, name := range engineSockets {
			if path.Base(m.Source) == name {
				return fmt.Sprintf("the engine's socket is mounted at %s", m.Target)
			}
		}
		if dir := path.Clean(m.Source); !m.Ours && (dir == "/" || dir == "/run" || dir == "/var/run" || dir == "/var") {
			return fmt.Sprintf("%s, which may hold the engine's socket, is mounted at %s", dir, m.Target)
		}
	}
	for _, m := range s.Mounts {
		if m.Writable && !m.Ours {
			return fmt.Sprintf("%s is mounted writable at %s", m.Source, m.Target)
		}
	}
	switch {
	case s.Privileged:
		return "the container is privileged"
	case len(s.Devices) > 0:
		return "it has devices of the machine: " + strings.Join(s.Devices, ", ")
	case s.HostPID:
		return "it sees the machine's processes"
	}
	return ""
}
