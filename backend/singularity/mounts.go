//go:build linux

package singularity

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/hermesfiles"
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
	staging string                                                  // what holds that directory, or ""
	refresh func(ctx context.Context) (notices []string, err error) // nil where there is nothing to refresh
	notices []string
}

// hermesFiles gives what an instance gets of HERMES_HOME, below .hermes in its home directory. A directory whose files are
// replaced is current inside, a file that is mounted is not: so with credential files .hermes is the staging directory, and
// the rest is mounted on it.
func hermesFiles(req driver.OpenRequest, instance, home string) shared {
	if req.Identity.Home == "" {
		return shared{}
	}
	inside := path.Join(home, ".hermes")
	found, notices := hermesfiles.Mounts(req.Identity.Home)
	s := shared{notices: notices}
	var on []string
	for _, m := range found {
		s.mounts = append(s.mounts, mount{source: m.Source, target: path.Join(inside, m.Target), readOnly: true, kind: string(m.Kind)})
		on = append(on, m.Target)
	}
	names := req.Config.Strings("credential_files")
	if len(names) == 0 {
		return s
	}
	staging, notices := hermesfiles.NewStaging(req.Identity.Home, instance, names, on)
	s.notices = append(s.notices, notices...)
	s.staging, s.refresh = filepath.Dir(staging.Dir()), staging.Refresh
	s.mounts = append([]mount{{source: staging.Dir(), target: inside, readOnly: true, kind: "credentials"}}, s.mounts...)
	return s
}

// strings are the mounts for people, and for the record.
func (s shared) strings() []string {
	var all []string
	for _, m := range s.mounts {
		all = append(all, m.String())
	}
	return all
}
