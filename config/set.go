package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gofrs/flock"
	"go.yaml.in/yaml/v3"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Set writes key to HERMES_HOME/config.yaml; all else in the file stays as it is, comments too. key is written with or
// without "terminal.", or as backends.NAME.KEY for an entry of terminal.backends. value is in the form of a variable and
// must be allowed. The directory (0700) and file (0600) are made where they are missing; a config.yaml that is a link
// stays one. A reader sees the old or the new file, and of two writers none loses its edit. o.Flags is not used. warnings
// are what the user should know although it was written, each one line.
func Set(o Options, key, value string) (warnings []string, err error) {
	o.Flags = nil
	l, err := loadForSet(o)
	if err != nil {
		return nil, err
	}
	e, err := l.newEdit(key, value)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.home, "config.yaml")
	if err := os.MkdirAll(l.home, 0o700); err != nil {
		return nil, fileError(l.shownPath(l.home), "the directory cannot be made", "choose another HERMES_HOME", err)
	}
	target, err := linkTarget(file)
	if err != nil {
		return nil, fileError(l.shownPath(file), "the link cannot be followed", "correct the link", err)
	}
	if err := l.editFile(target, e); err != nil {
		return nil, err
	}
	return l.setWarnings(e), nil
}

// loadForSet makes the table and finds the home without reading any file: a bad one must not keep Set from mending it.
func loadForSet(o Options) (*loaded, error) {
	t, err := newTable(o.Backends)
	if err != nil {
		return nil, err
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	l := &loaded{table: t, backends: o.Backends, env: newEnvironment(o.Environ), dir: o.Dir}
	if l.dir == "" {
		l.dir, _ = os.Getwd()
	}
	if l.home, err = hermesHome(o.Home, l.env, l.dir); err != nil {
		return nil, err
	}
	if l.home == "" {
		return nil, fileError("config.yaml", "there is no HERMES_HOME to write it to", "set HERMES_HOME or HOME", nil)
	}
	return l, nil
}

// edit is one change to a config.yaml.
type edit struct {
	row   *driver.Setting
	keys  []string // from the top level down
	value *yaml.Node
	text  string
}

// entryKey is a key of an entry of terminal.backends. An entry's name may hold dots, a row's key there holds none.
var entryKey = regexp.MustCompile(`^(?:terminal\.)?backends\.(.+)\.([^.]+)$`)

func (l *loaded) newEdit(key, value string) (*edit, error) {
	e := &edit{text: value}
	if m := entryKey.FindStringSubmatch(key); m != nil {
		if _, taken := l.builtin(m[1]); taken || !entryName.MatchString(m[1]) {
			return nil, &Error{
				Kind: driver.KindConfig, Key: key, Problem: quote(m[1]) + " cannot be the name of an entry of terminal.backends",
				Hint: "choose another name",
			}
		}
		e.row = l.byKey[m[2]]
		if e.row != nil {
			e.keys = []string{"terminal", backendsKey, m[1], e.row.Key}
		}
	} else if e.row = l.lookup(key); e.row != nil {
		e.keys = strings.SplitN(path(e.row.Key), ".", 2)
	}
	if e.row == nil {
		return nil, l.unknownKey(key, "")
	}
	src := source{layer: fromFlag, name: key, text: value}
	if e.row.Type == driver.Table {
		return nil, badValue(e.row, src, "", "set the keys of an entry: backends.NAME.KEY")
	}
	// The value is for a file, so that a relative path starts at the home.
	x := expander{lookup: l.env.lookup, home: l.env.userHome(), base: l.home}
	if _, err := parse(e.row, value, x); err != nil {
		bad := badValue(e.row, src, err.Error(), "")
		bad.Origin, bad.Hint = "", "nothing was written"
		return nil, bad
	}
	e.value = newNode(e.row, value)
	return e, nil
}

// newNode is a value as it is written in YAML: on one line, a text quoted only where it must be.
func newNode(row *driver.Setting, text string) *yaml.Node {
	var v any = text
	switch row.Type {
	case driver.Bool:
		v, _ = parseBool(text)
	case driver.List, driver.SandboxPaths:
		list, _ := parseList(text)
		v = append([]string{}, list...)
	case driver.Map:
		m, _ := parseMap(text)
		if m == nil {
			m = map[string]string{}
		}
		v = m
	case driver.Int, driver.Float, driver.Seconds, driver.Bytes, driver.Megabytes:
		// Plain, so that 180 stays a number.
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strings.TrimSpace(text)}
	}
	node := &yaml.Node{}
	// Texts, switches, and lists and maps of texts always encode.
	_ = node.Encode(v)
	switch {
	case node.Kind != yaml.ScalarNode:
		node.Style = yaml.FlowStyle
	case strings.ContainsAny(text, "\r\n"):
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}

// editFile changes the file under a lock, so that two writers do not lose an edit.
func (l *loaded) editFile(target string, e *edit) error {
	shown := l.shownPath(target)
	lock := flock.New(filepath.Join(filepath.Dir(target), ".config.yaml.lock"), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return fileError(shown, "it cannot be locked", "make its directory writable for you", err)
	}
	defer lock.Unlock() //nolint:errcheck // nothing is lost: the process's end frees it too
	old, info, err := readFile(target, shown)
	if err != nil {
		return err
	}
	d, err := parseDocument(shown, old)
	if err != nil {
		return err
	}
	if err := l.checkBackend(d, e); err != nil {
		return err
	}
	text, err := apply(shown, old, e)
	if err != nil {
		return err
	}
	if err := replaceFile(target, text, info); err != nil {
		return fileError(shown, "it cannot be written", "make it and its directory writable for you", err)
	}
	return nil
}

// checkBackend refuses a terminal.backend that is no backend nor an entry of the file that is edited.
func (l *loaded) checkBackend(d *document, e *edit) error {
	if e.row.Key != backendKey {
		return nil
	}
	scratch := &loaded{table: l.table, backends: l.backends, sources: map[string][]source{}, entries: map[string]*entry{}}
	// What else is wrong with the file is not this edit's business.
	_ = scratch.readDocument(d)
	if len(e.keys) > 2 {
		scratch.entries = nil // an entry names a builtin backend
	}
	if _, _, _, err := scratch.choose(e.text); err != nil {
		return err
	}
	return nil
}

// setWarnings tells what keeps the new value from being what the user expects.
func (l *loaded) setWarnings(e *edit) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if e.row.Secret {
		warn("%s is a secret: its usual place is the line %s=... in HERMES_HOME/.env", path(e.row.Key), e.row.Env)
	}
	if e.row.Status != driver.Implemented {
		warn("%s is not built yet (%s)", path(e.row.Key), e.row.Status)
	}
	if len(e.keys) > 2 {
		return warnings
	}
	for _, name := range envNames(e.row) {
		if l.env[name] != "" {
			warn("the variable %s is set and wins over the file", name)
		}
	}
	return warnings
}
