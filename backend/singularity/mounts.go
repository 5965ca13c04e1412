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

// args is the mount as the engine takes it: fields of a line of comma-separated values, in which any path can be quoted.
func (m mount) args() []string {
	fields := []string{"type=bind", field("source=" + m.source), field("destination=" + m.target)}
	if m.readOnly {
		fields = append(fields, "ro")
	}
	return []string{"--mount", strings.Join(fields, ",")}
}

// field quotes a text where it would not stand for itself among comma-separated values.
func field(text string) string {
	if strings.ContainsAny(text, ",\"\r\n") {
		return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
	}
	return text
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
