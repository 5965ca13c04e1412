package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/dotenv"
)

// Options says where settings come from. The zero value but for Backends is what a program on a user's machine wants.
type Options struct {
	// Backends are those that exist; backend/all lists elsewhere's own. At least one.
	Backends []driver.Backend
	// Flags are the settings of the command line (--set key=value), by key, with or without "terminal.". A -b flag is
	// the key "backend".
	Flags map[string]string
	// Environ is the process environment ("K=V"); nil is os.Environ().
	Environ []string
	// Home is HERMES_HOME; "" is that of Environ, else ~/.hermes. Without HOME too there is none, and no file is read.
	Home string
	// Dir is the caller's directory, where relative paths start; "" is the process's own.
	Dir string
}

// loaded is what Load read. It never changes afterwards, and every view of it shares it.
type loaded struct {
	*table
	backends []driver.Backend
	env      environment
	home     string
	dir      string
	sources  map[string][]source // by key, the strongest first
	entries  map[string]*entry
	warnings []string

	allowlist string // where Hermes' own list of what it always allows is; "" where there is none, or an empty one
}

// Load reads all layers and resolves the configured backend. Files that are missing are fine. Every error is an *Error:
// a file that cannot be read, an unknown backend, an unknown key of Flags, or a value that is not allowed in a common
// row or one of the configured backend. The result is the view of terminal.backend, as Named("") without its refusal of
// settings that are not built.
func Load(o Options) (*Config, error) {
	l, err := load(o)
	if err != nil {
		return nil, err
	}
	return l.view("")
}

func load(o Options) (*loaded, error) {
	t, err := newTable(o.Backends)
	if err != nil {
		return nil, err
	}
	if len(o.Backends) == 0 {
		return nil, &Error{Kind: driver.KindConfig, Key: path(backendKey), Problem: "the program registers no backend", Hint: "pass all.Backends()"}
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	l := &loaded{
		table: t, backends: o.Backends, env: newEnvironment(o.Environ), dir: o.Dir,
		sources: map[string][]source{}, entries: map[string]*entry{},
	}
	if l.dir == "" {
		// Without a working directory relative paths stay relative.
		l.dir, _ = os.Getwd()
	}
	if l.home, err = hermesHome(o.Home, l.env, l.dir); err != nil {
		return nil, err
	}
	// The strongest layer comes first, so that each source list is in order.
	for _, read := range []func() error{
		func() error { return l.readFlags(o.Flags) }, l.readEnv, l.readConfig, l.readDotenv,
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// readFlags takes the command line. A key that no row has is an error, since the user has just typed it.
func (l *loaded) readFlags(flags map[string]string) error {
	for _, key := range sortedKeys(flags) {
		row := l.lookup(key)
		if row == nil {
			return l.unknownKey(key, "--set")
		}
		if row.Type == driver.Table {
			return badValue(row, source{layer: fromFlag, name: key}, "", "it can be set in config.yaml only")
		}
		l.sources[row.Key] = append(l.sources[row.Key], source{layer: fromFlag, name: key, text: flags[key]})
	}
	return nil
}

// readEnv takes the process environment. An empty variable sets nothing.
func (l *loaded) readEnv() error {
	for i := range l.rows {
		row := &l.rows[i]
		for _, name := range envNames(row) {
			if text := l.env[name]; text != "" {
				l.sources[row.Key] = append(l.sources[row.Key], source{layer: fromEnv, name: name, text: text})
			}
		}
	}
	for _, name := range sortedKeys(l.env) {
		l.noteTypo(name, name)
	}
	return nil
}

// readConfig takes HERMES_HOME/config.yaml.
func (l *loaded) readConfig() error {
	if l.home == "" {
		return nil
	}
	file := filepath.Join(l.home, "config.yaml")
	shown := l.shownPath(file)
	data, _, err := readFile(file, shown)
	if err != nil || data == nil {
		return err
	}
	d, err := parseDocument(shown, data)
	if err != nil {
		return err
	}
	return l.readDocument(d)
}

// readDotenv takes HERMES_HOME/.env, as data.
func (l *loaded) readDotenv() error {
	if l.home == "" {
		return nil
	}
	file := filepath.Join(l.home, ".env")
	shown := l.shownPath(file)
	data, info, err := readFile(file, shown)
	if err != nil || data == nil {
		return err
	}
	l.notePermissions(shown, info)
	vars, bad := dotenv.Parse(string(data))
	for _, line := range bad {
		l.warn("%s:%d: the line is no assignment and is ignored", shown, line)
	}
	l.takeDotenv(shown, vars)
	return nil
}

// takeDotenv takes the last assignment of each variable; an empty one sets nothing.
func (l *loaded) takeDotenv(shown string, vars []dotenv.Var) {
	last := map[string]dotenv.Var{}
	for _, v := range vars {
		last[v.Name] = v
	}
	for i := range l.rows {
		row := &l.rows[i]
		for _, name := range envNames(row) {
			if v := last[name]; v.Value != "" {
				l.sources[row.Key] = append(l.sources[row.Key], source{
					layer: fromDotenv, name: name, file: shown, line: v.Line, text: v.Value,
				})
			}
		}
	}
	for _, name := range sortedKeys(last) {
		l.noteTypo(name, fmt.Sprintf("%s in %s:%d", name, shown, last[name].Line))
	}
}

func (l *loaded) shownPath(file string) string { return abbreviate(file, l.env.userHome()) }

// backendNames are the names of the backends, in their order, aliases left out.
func (l *loaded) backendNames() []string {
	names := make([]string, len(l.backends))
	for i, b := range l.backends {
		names[i] = b.Name
	}
	return names
}

// builtin finds a backend by its name or an alias.
func (l *loaded) builtin(name string) (driver.Backend, bool) {
	for _, b := range l.backends {
		if b.Name == name || slices.Contains(b.Aliases, name) {
			return b, true
		}
	}
	return driver.Backend{}, false
}
