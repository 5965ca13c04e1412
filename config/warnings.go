package config

import (
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func (l *loaded) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// notePermissions warns where others can read or write the file of secrets.
func (l *loaded) notePermissions(shown string, info fs.FileInfo) {
	if perm := info.Mode().Perm(); runtime.GOOS != "windows" && info.Mode().IsRegular() && perm&0o077 != 0 {
		l.warn("%s can be used by others (mode %04o); run: chmod 600 %s", shown, perm, shown)
	}
}

// noteTypo warns of a variable that is nearly one of ours. Others may have TERMINAL_ variables too, so that one that is
// merely unknown is none of our business.
func (l *loaded) noteTypo(name, where string) {
	if !strings.HasPrefix(name, "TERMINAL_") || l.byEnv[name] != nil {
		return
	}
	if near := nearest(name, sortedKeys(l.byEnv)); near != "" && distance(name, near) <= 2 {
		l.warn("%s is no setting (did you mean %s?)", where, near)
	}
}

// noteUnknown warns of a key that no row has, in the groups that are elsewhere's alone to know.
func (l *loaded) noteUnknown(d *document, group string, f field) {
	key := f.key
	switch group {
	case "terminal":
	case "egress", "tool_output", "policy":
		key = group + "." + f.key
	default:
		return
	}
	l.warn("%s:%d: %s is no setting and is ignored%s", d.file, f.line, path(key), didYouMean(key, l.keys()))
}

// noteAlias warns of an older name. Hermes itself reads proxy.*, so that its users cannot rename those.
func (l *loaded) noteAlias(src source, row *driver.Setting) {
	if !strings.HasPrefix(src.name, "proxy.") {
		l.warn("%s: %s is the older name of %s", src.origin(), path(src.name), path(row.Key))
	}
}

// viewWarnings are those that depend on the backend: clashes between origins, and rows that are set but not built.
func (c *Config) viewWarnings() []string {
	var warnings []string
	for i := range c.rows {
		row := &c.rows[i]
		r := c.values[row.Key]
		if !c.concerned(row) || len(r.sources) == 0 {
			continue
		}
		if w := c.clash(row, r); w != "" {
			warnings = append(warnings, w)
		}
		if !c.inForce(row, r) {
			continue
		}
		say := "is not built yet and has no effect"
		if row.Status == driver.NotPlanned {
			say = "has no effect in elsewhere"
		}
		if row.Place {
			say = "is not built, so that no sandbox is opened with it"
		}
		warnings = append(warnings, fmt.Sprintf("%s (%s) %s", path(row.Key), r.sources[0].origin(), say))
	}
	return warnings
}

// inForce tells whether row is set to something else than its default although it is not built.
func (c *Config) inForce(row *driver.Setting, r resolved) bool {
	if row.Status == driver.Implemented || len(r.sources) == 0 || r.equal(c.defaults[row.Key]) {
		return false
	}
	// A backend that is not built refuses to be opened as a whole.
	return len(row.Backends) == 0 || c.backend.Open != nil
}

// clash says that two origins disagree. What was given for this run alone (--set, a name) clashes with nothing, and an
// entry is there to differ.
func (c *Config) clash(row *driver.Setting, r resolved) string {
	strong := slices.IndexFunc(r.sources, func(s source) bool { return s.layer >= fromEnv })
	if strong < 0 || r.sources[0].layer == fromEntry {
		return ""
	}
	first := r.sources[strong]
	for _, other := range r.sources[strong+1:] {
		if c.differ(row, first, other) {
			return fmt.Sprintf("%s is %s in %s but %s in %s; %s wins", path(row.Key),
				quote(shown(row, first.text)), first.origin(), quote(shown(row, other.text)), other.origin(), r.sources[0].origin())
		}
	}
	return ""
}

func (c *Config) differ(row *driver.Setting, a, b source) bool {
	va, errA := parse(row, a.text, c.expander(a))
	vb, errB := parse(row, b.text, c.expander(b))
	if errA != nil || errB != nil {
		return a.text != b.text
	}
	return !va.equal(vb)
}
