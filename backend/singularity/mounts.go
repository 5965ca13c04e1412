//go:build linux

package singularity

import (
	"context"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// mount is something of this machine that is visible inside.
type mount struct {
	source, target string
	readOnly       bool
	kind           string // "home", "state", "skills", "cache", "credentials"
}

// bind is the mount as the engine takes it. It splits at commas and colons and knows no way to quote them.
func (m mount) bind() ([]string, error) {
	for _, path := range []string{m.source, m.target} {
		if strings.ContainsAny(path, ":,") {
			return nil, failure(driver.KindConfig, "%s cannot be mounted: the engine takes no path with a colon or a comma; set terminal.scratch_dir, or HERMES_HOME, to another one", path)
		}
	}
	text := m.source + ":" + m.target
	if m.readOnly {
		text += ":ro"
	}
	return []string{"--bind", text}, nil
}

// String is the mount for people, as in driver.SandboxDetail.Mounts.
func (m mount) String() string {
	mode := "rw"
	if m.readOnly {
		mode = "ro"
	}
	return m.source + " on " + m.target + " (" + mode + ", " + m.kind + ")"
}

// shared is what an instance gets of HERMES_HOME: skills and caches, read-only, and credential files by way of a directory
// that refresh brings up to date.
type shared struct {
	mounts  []mount
	refresh func(ctx context.Context) (notices []string, err error) // nil where there is nothing to refresh
	notices []string
}

// hermesFiles gives what the instance with this home directory inside gets of HERMES_HOME.
func hermesFiles(driver.OpenRequest, string) (shared, error) {
	return shared{}, nil
}
