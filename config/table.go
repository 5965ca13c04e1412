package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Table composes the settings table: the common rows, then those of each backend in the given order, with the backend's
// name in Backends. An error means that two rows have the same key, variable or alias, or that a default is not allowed:
// a mistake of a backend's author.
func Table(backends []driver.Backend) ([]driver.Setting, error) {
	t, err := newTable(backends)
	if err != nil {
		return nil, err
	}
	return t.rows, nil
}

// Secret tells whether the value of the setting called key, with or without "terminal.", also of an entry of terminal.backends, is a
// secret, and the variable from which it is read. An older name will do; what no setting has is none. The error is Table's.
func Secret(backends []driver.Backend, key string) (variable string, secret bool, err error) {
	t, err := newTable(backends)
	if err != nil {
		return "", false, err
	}
	row := t.lookup(key)
	if m := entryKey.FindStringSubmatch(key); m != nil {
		row = t.byKey[m[2]]
	}
	if row == nil || !row.Secret {
		return "", false, nil
	}
	return row.Env, true, nil
}

// table is the composed table with its indexes.
type table struct {
	rows     []driver.Setting
	byKey    map[string]*driver.Setting // keys and their aliases
	byEnv    map[string]*driver.Setting // variables and their aliases
	defaults map[string]value           // by key
}

func newTable(backends []driver.Backend) (*table, error) {
	t := &table{
		rows:     commonRows(),
		byKey:    map[string]*driver.Setting{},
		byEnv:    map[string]*driver.Setting{},
		defaults: map[string]value{},
	}
	for _, b := range backends {
		for _, row := range b.Settings {
			if len(row.Backends) == 0 {
				row.Backends = []string{b.Name}
			}
			t.rows = append(t.rows, row)
		}
	}
	for i := range t.rows {
		if err := t.add(&t.rows[i]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *table) add(row *driver.Setting) error {
	for _, key := range append([]string{row.Key}, row.KeyAliases...) {
		if t.byKey[key] != nil {
			return tableError(row, fmt.Sprintf("the key %s is in the table twice", key))
		}
		t.byKey[key] = row
	}
	for _, env := range envNames(row) {
		if t.byEnv[env] != nil {
			return tableError(row, fmt.Sprintf("the variable %s is in the table twice", env))
		}
		t.byEnv[env] = row
	}
	// A default is no path that depends on the environment, so that it is always allowed.
	def, err := parseDefault(row)
	if err != nil {
		return tableError(row, "its default is not allowed, but "+err.Error())
	}
	t.defaults[row.Key] = def
	return nil
}

func tableError(row *driver.Setting, problem string) *Error {
	return &Error{
		Kind: driver.KindConfig, Key: path(row.Key), Problem: problem,
		Hint: "correct the backend's rows", Origin: strings.Join(row.Backends, ", "),
	}
}

func envNames(row *driver.Setting) []string {
	if row.Env == "" {
		return row.EnvAliases
	}
	return append([]string{row.Env}, row.EnvAliases...)
}

// parseDefault parses a row's default; an empty one is the zero value of a number, switch or list too.
func parseDefault(row *driver.Setting) (value, error) {
	text := row.Default
	if text == "" {
		switch row.Type {
		case driver.Bool:
			text = "false"
		case driver.Int, driver.Float, driver.Seconds, driver.Bytes, driver.Megabytes:
			text = "0"
		}
	}
	return parse(row, text, expander{lookup: func(string) (string, bool) { return "", false }})
}

// lookup finds a row by a key as people write it: with or without "terminal.", an alias too.
func (t *table) lookup(key string) *driver.Setting {
	return t.byKey[strings.TrimPrefix(key, "terminal.")]
}

func (t *table) keys() []string { return sortedKeys(t.byKey) }

// unknownKey is the error of a key that no row has.
func (t *table) unknownKey(key, origin string) *Error {
	if at := strings.LastIndexByte(key, '.'); at >= 0 {
		if row := t.lookup(key[:at]); row != nil && row.Type == driver.Map {
			return &Error{
				Kind: driver.KindConfig, Key: key, Origin: origin, Problem: "no setting of its own: " + key[:at] + " is one, with all its entries",
				Hint: "give it whole, as JSON: " + key[:at] + ` '{"` + key[at+1:] + `":"VALUE"}'`,
			}
		}
	}
	return &Error{
		Kind: driver.KindConfig, Key: key, Origin: origin,
		Problem: "no such setting" + didYouMean(strings.TrimPrefix(key, "terminal."), t.keys()),
		Hint:    "`elsewhere config show` lists all",
	}
}

// concerns tells whether the backend called name reads row.
func concerns(row *driver.Setting, name string) bool {
	return len(row.Backends) == 0 || slices.Contains(row.Backends, name)
}
