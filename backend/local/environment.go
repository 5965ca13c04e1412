package local

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// foldNames says that this system does not tell names of variables apart by case.
const foldNames = runtime.GOOS == "windows"

// environment is a set of variables ("K=V"); of a name that comes twice the last one counts, as in a shell. That of a
// bash does not change after Open.
type environment struct {
	entries []string
	at      map[string]int
	fold    bool
}

func newEnvironment(environ []string, fold bool) *environment {
	e := &environment{at: make(map[string]int, len(environ)), fold: fold}
	for _, entry := range environ {
		if name, value, ok := cutEntry(entry); ok {
			e.set(name, value)
		}
	}
	return e
}

// cutEntry splits "K=V". Windows has names that begin with "=" ("=C:=C:\\dir").
func cutEntry(entry string) (name, value string, ok bool) {
	if entry == "" {
		return "", "", false
	}
	name, value, ok = strings.Cut(entry[1:], "=")
	return entry[:1] + name, value, ok
}

func (e *environment) key(name string) string {
	if e.fold {
		return strings.ToUpper(name)
	}
	return name
}

func (e *environment) has(name string) bool {
	_, ok := e.at[e.key(name)]
	return ok
}

// get returns the value of a variable, or "" where there is none.
func (e *environment) get(name string) string {
	i, ok := e.at[e.key(name)]
	if !ok {
		return ""
	}
	_, value, _ := cutEntry(e.entries[i])
	return value
}

func (e *environment) set(name, value string) {
	key := e.key(name)
	if i, ok := e.at[key]; ok {
		e.entries[i] = name + "=" + value
		return
	}
	e.at[key] = len(e.entries)
	e.entries = append(e.entries, name+"="+value)
}

// with returns the entries with those of extra in place of or after them.
func (e *environment) with(extra []string) []string {
	all := make([]string, len(e.entries), len(e.entries)+len(extra))
	copy(all, e.entries)
	for _, entry := range extra {
		name, _, ok := cutEntry(entry)
		if !ok {
			continue
		}
		if i, ok := e.at[e.key(name)]; ok {
			all[i] = entry
		} else {
			all = append(all, entry)
		}
	}
	return all
}

// sanePath are directories that a bash needs and that a caller started by a desktop, cron or a service often lacks.
var sanePath = []string{
	"/opt/homebrew/bin", "/opt/homebrew/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
}

// completePath gives the PATH of a bash: the caller's entries without empty and repeated ones, then what is missing of
// sanePath, then the tools that Hermes manages and ~/.local/bin where they exist.
func completePath(path, hermesHome, home string, isDir func(string) bool) string {
	if runtime.GOOS == "windows" {
		return path
	}
	entries := pathEntries(path)
	last := append([]string(nil), sanePath...)
	existing := func(dir string) {
		if isDir(dir) {
			last = append(last, dir)
		}
	}
	if hermesHome != "" {
		existing(filepath.Join(hermesHome, "node", "bin"))
		existing(filepath.Join(hermesHome, "node"))
		existing(filepath.Join(hermesHome, "bin"))
	}
	if home != "" {
		existing(filepath.Join(home, ".local", "bin"))
	}
	for _, dir := range last {
		if !slices.Contains(entries, dir) {
			entries = append(entries, dir)
		}
	}
	return strings.Join(entries, ":")
}

// callerPath gives the caller's own PATH entries as bash writes them, empty and repeated ones left out: an empty entry
// is the current directory, which no agent should run programs from unasked.
func callerPath(path string) string {
	entries := pathEntries(path)
	for i := range entries {
		entries[i] = toBash(entries[i])
	}
	return strings.Join(entries, ":")
}

func pathEntries(path string) []string {
	var entries []string
	for _, dir := range strings.Split(path, string(os.PathListSeparator)) {
		if dir != "" && !slices.Contains(entries, dir) {
			entries = append(entries, dir)
		}
	}
	return entries
}

// exportedFunctions takes the functions that the caller's shell exported out of its environment and gives bash text
// that defines them again. They travel as text because the contract's bash is started with -p, which ignores them.
// Known are BASH_FUNC_name%%= (bash 4.3 and later), BASH_FUNC_name()= (early fixes) and __BASH_FUNC<name>()= (macOS).
// A plain name=() {...} is left alone, as bash has done since Shellshock: any variable's value could be code otherwise.
func exportedFunctions(environ []string) (text string, rest []string) {
	var names []string
	bodies := make(map[string]string)
	rest = make([]string, 0, len(environ))
	for _, entry := range environ {
		name, body, ok := functionEntry(entry)
		if !ok {
			rest = append(rest, entry)
			continue
		}
		if name == "" {
			continue
		}
		if _, seen := bodies[name]; !seen {
			names = append(names, name)
		}
		bodies[name] = body
	}
	// A function may have the name of a word that the definitions after it need.
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	var b strings.Builder
	for _, name := range names {
		// Each in an eval of its own: one that this bash cannot read is left out alone.
		definition := quote("function " + name + " " + bodies[name])
		b.WriteString("builtin eval " + definition + " 2>/dev/null && builtin export -f -- " + quote(name) + "\n")
	}
	return b.String(), rest
}

func rank(name string) int {
	return slices.Index([]string{"export", "eval", "builtin"}, name) + 1
}

// functionEntry recognises an exported function. Name is empty where the entry cannot be one that bash exported: it is
// dropped all the same, as bash drops it.
func functionEntry(entry string) (name, body string, ok bool) {
	key, body, found := cutEntry(entry)
	if !found {
		return "", "", false
	}
	switch {
	case strings.HasPrefix(key, "BASH_FUNC_") && strings.HasSuffix(key, "%%"):
		name = key[len("BASH_FUNC_") : len(key)-2]
	case strings.HasPrefix(key, "BASH_FUNC_") && strings.HasSuffix(key, "()"):
		name = key[len("BASH_FUNC_") : len(key)-2]
	case strings.HasPrefix(key, "__BASH_FUNC<") && strings.HasSuffix(key, ">()"):
		name = key[len("__BASH_FUNC<") : len(key)-3]
	default:
		return "", "", false
	}
	if !functionName(name) || !strings.HasPrefix(body, "() {") {
		return "", "", true
	}
	return name, body, true
}

// functionName tells whether a name can stand after the word "function" unquoted.
func functionName(name string) bool {
	if name == "" || strings.Trim(name, "0123456789") == "" {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80:
		case strings.IndexByte("_-.:@+,%^", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// quote makes one word of bash text of s.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
