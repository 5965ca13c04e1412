package docker

import (
	"testing"

	"github.com/moby/moby/api/types/container"

	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

// What differs is told by the names of settings, as far as there are some.
func TestWhatDiffersIsToldAsSettings(t *testing.T) {
	was := kept.Settings{"container_persistent": "true", "data": "/somewhere", "network": "bridge", "container_memory": "67108864"}
	for _, c := range []struct {
		name string
		now  kept.Settings
		want string
	}{
		{"a setting and what follows from it", kept.Settings{"container_persistent": "false", "network": "bridge", "container_memory": "67108864"},
			`container_persistent (made with "true", now "false")`},
		{"a size", kept.Settings{"container_persistent": "true", "data": "/somewhere", "network": "bridge", "container_memory": "134217728"},
			`container_memory (made with 64MiB, now 128MiB)`},
		{"nothing that has a setting's name", kept.Settings{"container_persistent": "true", "data": "/elsewhere", "network": "bridge", "container_memory": "67108864"},
			`data (made with "/somewhere", now "/elsewhere")`},
	} {
		s := &sandbox{plan: &plan{settings: c.now}}
		made := container.InspectResponse{Config: &container.Config{Labels: map[string]string{labelSettings: was.String()}}}
		if got := s.describe(made, c.now.Diff(was)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
