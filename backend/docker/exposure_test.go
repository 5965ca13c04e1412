package docker

import (
	"reflect"
	"slices"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// guardedBy is what package elsewhere makes of what a sandbox says.
func guardedBy(e driver.Exposure) (bool, string) {
	s := policy.Sandbox{Backend: "docker", Devices: e.Devices, HostNetwork: e.HostNetwork, HostPID: e.HostPID, Privileged: e.Privileged, EngineSocket: e.EngineSocket}
	for _, m := range e.Mounts {
		s.Mounts = append(s.Mounts, policy.Mount(m))
	}
	return policy.Guarded(s)
}

func TestWhatOfTheMachineIsInAContainerIsSaid(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for _, c := range []struct {
		name     string
		settings []string
		guarded  bool
		has      func(driver.Exposure) bool
	}{
		{"its own files, kept", nil, false, func(e driver.Exposure) bool {
			return slices.ContainsFunc(e.Mounts, func(m driver.Mount) bool { return m.Target == "/workspace" && m.Writable && m.Ours })
		}},
		{"its own files, not kept", []string{"container_persistent", "false"}, false, func(e driver.Exposure) bool { return !e.Machine && !e.Here }},
		{"a directory", []string{"docker_volumes", dir + ":/data"}, true, func(e driver.Exposure) bool {
			return slices.Contains(e.Mounts, driver.Mount{Target: "/data", Source: dir, Writable: true})
		}},
		{"a directory that cannot be written", []string{"docker_volumes", dir + ":/data:ro"}, false, func(e driver.Exposure) bool {
			return slices.Contains(e.Mounts, driver.Mount{Target: "/data", Source: dir})
		}},
		{"the machine's network", []string{"docker_extra_args", "--network=host"}, true, func(e driver.Exposure) bool { return e.HostNetwork }},
		{"the machine's processes", []string{"docker_extra_args", "--pid=host", "docker_allow_unsafe_args", "true"}, true, func(e driver.Exposure) bool { return e.HostPID }},
		{"a device", []string{"docker_extra_args", "--device=/dev/fuse"}, true, func(e driver.Exposure) bool { return slices.Contains(e.Devices, "/dev/fuse") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.in(t)
			s := w.open(w.request(c.name, c.settings...))
			e := s.Info().Exposure
			guarded, why := guardedBy(e)
			if guarded != c.guarded || !c.has(e) {
				t.Errorf("guarded %v (%s): %+v", guarded, why, e)
			}
			w.close(s)
			// One that is found running says the same.
			again := w.open(w.request(c.name, c.settings...)).Info().Exposure
			if g, why := guardedBy(again); g != c.guarded || !reflect.DeepEqual(again, e) {
				t.Errorf("found again: guarded %v (%s): %+v", g, why, again)
			}
		})
	}
}
