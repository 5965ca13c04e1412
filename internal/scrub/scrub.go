// Package scrub keeps the agent's own secrets out of the environment of the commands it runs.
//
// Which names those are is a table of patterns (table.go), because the names come in families: a model provider has a
// key, a second key, an organisation and an address, and next year there is another provider. A family is rather too
// wide than too narrow: a name that a command needs all the same can be allowed by terminal.env_passthrough, a leaked
// key cannot be taken back. What is deliberately not blocked is a table too (kept): the general AWS chain, the keys of
// skills, and an OAuth token whose loss would log its user out.
//
// Names are compared without regard to case. Only names are looked at, never values. The process's own environment is
// read by nobody here and never changed.
package scrub

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// forcePrefix marks a variable that its user wants a command to have, whatever the table says. The prefixed name itself
// never reaches a command.
const forcePrefix = "_HERMES_FORCE_"

// containerPrefixes are looked through: Apptainer and Singularity hand such a variable on without its prefix.
var containerPrefixes = []string{"APPTAINERENV_", "SINGULARITYENV_"}

// Blocked tells whether a variable of this name is kept from commands unless terminal.env_passthrough allows it.
func Blocked(name string) bool { return find(name) != nil }

// Always tells whether it is kept from commands even if terminal.env_passthrough names it.
func Always(name string) bool {
	f := find(name)
	return f != nil && f.level >= always
}

// Internal tells whether nothing at all lets it through: it is the agent's own machinery.
func Internal(name string) bool {
	f := find(name)
	return f != nil && f.level >= internal
}

// Reason says for people why a name is blocked ("a model provider's key or address"); "" where it is not.
func Reason(name string) string {
	if f := find(name); f != nil {
		return f.what
	}
	return ""
}

// find returns the strictest family that the name belongs to.
func find(name string) *family {
	name = strings.ToUpper(name)
	for {
		before := name
		for _, prefix := range containerPrefixes {
			name = strings.TrimPrefix(name, prefix)
		}
		if name == before {
			break
		}
	}
	var found *family
	for i := range families {
		f := &families[i]
		if found != nil && f.level <= found.level {
			continue
		}
		if f.has(name) {
			found = f
		}
	}
	if found != nil && matchAny(kept, name) {
		return nil
	}
	return found
}

func (f *family) has(name string) bool {
	if matchAny(f.patterns, name) {
		return true
	}
	for _, vendor := range f.vendors {
		if len(name) > len(vendor) && name[len(vendor)] == '_' && name[:len(vendor)] == vendor && matchAny(f.ends, name[len(vendor)+1:]) {
			return true
		}
	}
	return false
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// match compares a name with a pattern in which "*" stands for any text, also none.
func match(pattern, name string) bool {
	prefix, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	if !strings.HasPrefix(name, prefix) {
		return false
	}
	name = name[len(prefix):]
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(name, part)
		}
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(part):], more
	}
}

// Environ returns env ("K=V") without what commands must not have: blocked names, unless passthrough lists them, and
// the marks of the Python environment that the agent itself runs in, which would send uv, pip and poetry there
// (NousResearch/hermes-agent#75018). A name that is _HERMES_FORCE_NAME is handed on as NAME. Warnings tell which names
// of passthrough were refused. Env is not changed.
func Environ(env, passthrough []string) (clean []string, warnings []string) {
	allowed, warnings := allow(passthrough)
	clean = make([]string, 0, len(env))
	forced := make(map[string]bool)
	for _, entry := range env {
		if name, ok := forcedName(entry); ok {
			if f := find(name); f == nil || f.level < internal {
				forced[fold(name)] = true
				clean = append(clean, entry[len(forcePrefix):])
			}
		}
	}
	for _, entry := range env {
		name := entryName(entry)
		if strings.HasPrefix(strings.ToUpper(name), forcePrefix) || forced[fold(name)] {
			continue
		}
		if (Blocked(name) || slices.Contains(marks, strings.ToUpper(name))) && !allowed[fold(name)] {
			continue
		}
		clean = append(clean, entry)
	}
	return clean, warnings
}

// Forward picks out of env ("K=V") the variables that passthrough names, for a place that has no environment of the caller's:
// what Environ would not hand on stays here all the same. Vars is nil where there is none; notices tell which names were refused.
func Forward(env, passthrough []string) (vars map[string]string, notices []string) {
	wanted := map[string]bool{}
	for _, name := range passthrough {
		wanted[name] = true
	}
	var named []string
	for _, entry := range env {
		if name, _, ok := strings.Cut(entry, "="); ok && wanted[name] {
			named = append(named, entry)
		}
	}
	clean, notices := Environ(named, passthrough)
	for _, entry := range clean {
		name, value, _ := strings.Cut(entry, "=")
		if vars == nil {
			vars = map[string]string{}
		}
		vars[name] = value
	}
	return vars, notices
}

// allow sorts out what terminal.env_passthrough may name.
func allow(passthrough []string) (allowed map[string]bool, warnings []string) {
	allowed = make(map[string]bool)
	for _, name := range passthrough {
		switch {
		case name == "" || strings.ContainsAny(name, "=*?[ \t\n\x00"):
			warnings = append(warnings, fmt.Sprintf("env_passthrough: %q is not the name of a variable", name))
		case Always(name):
			warnings = append(warnings, fmt.Sprintf("env_passthrough: %s is never handed to commands (%s)", name, Reason(name)))
		default:
			allowed[fold(name)] = true
		}
	}
	return allowed, warnings
}

func forcedName(entry string) (string, bool) {
	name := entryName(entry)
	if len(name) <= len(forcePrefix) || !strings.EqualFold(name[:len(forcePrefix)], forcePrefix) {
		return "", false
	}
	return name[len(forcePrefix):], true
}

// entryName gives the K of "K=V". Windows has names that begin with "=".
func entryName(entry string) string {
	if i := strings.IndexByte(entry, '='); i > 0 {
		return entry[:i]
	} else if i == 0 {
		if j := strings.IndexByte(entry[1:], '='); j >= 0 {
			return entry[:j+1]
		}
	}
	return entry
}

// fold is what makes two names the same variable to this system.
func fold(name string) string {
	if runtime.GOOS == "windows" {
		return strings.ToUpper(name)
	}
	return name
}

// BashUnset returns bash text that unsets every blocked variable of the shell that runs it, whoever set it, but for
// those that passthrough allows. It uses builtins alone, forks nothing, prints nothing and works from bash 3.2 on. A
// blocked variable that is readonly cannot be unset: it is no longer exported.
func BashUnset(passthrough ...string) string {
	allowed, _ := allow(passthrough)
	keep := slices.Clone(kept)
	for name := range allowed {
		if safeName(name) {
			keep = append(keep, name)
		}
	}
	slices.Sort(keep)
	var blocked, branches []string
	for _, f := range families {
		blocked = append(blocked, f.patterns...)
		if len(f.vendors) > 0 {
			branches = append(branches, fmt.Sprintf("%s_*)\ncase ${__elsewhere_m#*_} in\n%s) __elsewhere_hit=1 ;;\nesac ;;\n",
				strings.Join(f.vendors, "_*|"), strings.Join(f.ends, "|")))
		}
	}
	var all strings.Builder
	for c := 'A'; c <= 'Z'; c++ {
		fmt.Fprintf(&all, "${!%c@} ${!%c@} ", c, c+'a'-'A')
	}
	all.WriteString("${!_@}")
	// A function for its local variables; what it is called is nobody else's name. The patterns of `case` hold letters,
	// digits, _ and * alone. A vendor's name may hold "_": an end begins with "*", so the first "_" is far enough.
	return strings.NewReplacer(
		"ALL", all.String(),
		"KEPT", strings.Join(keep, "|"),
		"BLOCKED", strings.Join(blocked, "|"),
		"BRANCHES", strings.Join(branches, ""),
	).Replace(`__elsewhere_scrub () {
builtin local IFS=' ' __elsewhere_n __elsewhere_m __elsewhere_hit __elsewhere_case=-u
builtin shopt -q nocasematch && __elsewhere_case=-s
builtin shopt -s nocasematch
for __elsewhere_n in ALL; do
__elsewhere_m=$__elsewhere_n __elsewhere_hit=
while builtin :; do
case $__elsewhere_m in
APPTAINERENV_*|SINGULARITYENV_*) __elsewhere_m=${__elsewhere_m#*_} ;;
*) builtin break ;;
esac
done
case $__elsewhere_m in
KEPT) builtin continue ;;
BLOCKED|_HERMES_FORCE_*) __elsewhere_hit=1 ;;
BRANCHESesac
case $__elsewhere_hit in
1) builtin unset -v "$__elsewhere_n" 2>/dev/null || builtin export -n "$__elsewhere_n" 2>/dev/null || builtin : ;;
esac
done
builtin shopt $__elsewhere_case nocasematch
}
__elsewhere_scrub
builtin unset -f __elsewhere_scrub
`)
}

func safeName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != ""
}
