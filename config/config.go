package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Config is the settings as one backend reads them. It is made by Load and Named, never changes, and is safe for
// concurrent use. It implements driver.Config.
type Config struct {
	*loaded
	name    string // what was chosen: a backend or an entry
	backend driver.Backend
	values  map[string]resolved
}

var _ driver.Config = (*Config)(nil)

// resolved is the value of one row and all that sets it, the strongest first.
type resolved struct {
	value
	sources []source
	problem error // why the strongest source was not taken; only for rows that the backend does not read
}

// Name is what was chosen: the name of a backend or of an entry of terminal.backends.
func (c *Config) Name() string { return c.name }

// Home is HERMES_HOME as an absolute path, which need not exist; "" where there is none.
func (c *Config) Home() string { return c.home }

// HermesAllowlist is where config.yaml has a command_allowlist that is not empty, as "FILE:LINE"; "" where it has none. That list is
// Hermes' own and is not read: its entries are names of Hermes' patterns, which would allow more than they say as rules of ours.
func (c *Config) HermesAllowlist() string { return c.allowlist }

// Dir is the caller's directory.
func (c *Config) Dir() string { return c.dir }

// Backends lists the registered backends in their order.
func (c *Config) Backends() []driver.Backend { return slices.Clone(c.backends) }

// Names lists what Named accepts besides aliases: the backends, then the entries of terminal.backends by name.
func (c *Config) Names() []string { return append(c.backendNames(), sortedKeys(c.entries)...) }

// Warnings are what is odd but no error, each one line: unknown keys, older names, a .env that others can read, origins
// that disagree, settings without effect.
func (c *Config) Warnings() []string { return append(slices.Clone(c.warnings), c.viewWarnings()...) }

// EgressEnabled tells whether egress control is asked for. Opening a sandbox must refuse it until it is built.
func (c *Config) EgressEnabled() bool { return c.Bool(egressKey) }

// get finds a row's value, and panics where no row has the key or the row is of another type than wanted.
func (c *Config) get(key string, types ...driver.Type) resolved {
	row := c.byKey[key]
	if row == nil || row.Key != key {
		panic(fmt.Sprintf("config: no row has the key %q", key))
	}
	if len(types) > 0 && !slices.Contains(types, row.Type) {
		panic(fmt.Sprintf("config: %s is a %s, not a %s", key, row.Type, types[0]))
	}
	return c.values[key]
}

// String reads a value of any type in its text form; lists and maps are JSON.
func (c *Config) String(key string) string { return c.get(key).text }

// Bool reads a switch.
func (c *Config) Bool(key string) bool { return c.get(key, driver.Bool).v.(bool) }

// Int reads a whole number.
func (c *Config) Int(key string) int64 { return c.get(key, driver.Int).v.(int64) }

// Float reads a number.
func (c *Config) Float(key string) float64 { return c.get(key, driver.Float).v.(float64) }

// Duration reads a duration.
func (c *Config) Duration(key string) time.Duration {
	return c.get(key, driver.Seconds).v.(time.Duration)
}

// Bytes reads a size in bytes, also where it is written in MiB.
func (c *Config) Bytes(key string) int64 {
	return c.get(key, driver.Bytes, driver.Megabytes).v.(int64)
}

// Strings reads a list. The caller owns the result.
func (c *Config) Strings(key string) []string {
	return slices.Clone(c.get(key, driver.List, driver.SandboxPaths).v.([]string))
}

// StringMap reads a map. The caller owns the result; it is nil where the map is empty.
func (c *Config) StringMap(key string) map[string]string {
	return maps.Clone(c.get(key, driver.Map).v.(map[string]string))
}

// IsSet tells whether the value came from anywhere but the default.
func (c *Config) IsSet(key string) bool {
	r := c.get(key)
	return len(r.sources) > 0 && r.problem == nil
}

// Origin says where the value came from: "default", "TERMINAL_CWD", "~/.hermes/config.yaml:12".
func (c *Config) Origin(key string) string {
	if !c.IsSet(key) {
		return source{layer: fromDefault}.origin()
	}
	return c.get(key).sources[0].origin()
}

// concerned tells whether this view's backend reads row.
func (c *Config) concerned(row *driver.Setting) bool { return concerns(row, c.backend.Name) }

// expander is how paths are expanded that src holds: a relative path in a file starts at that file.
func (c *Config) expander(src source) expander {
	x := expander{lookup: c.env.lookup, home: c.env.userHome(), base: c.dir, local: c.backend.Name == localName}
	if src.file != "" {
		x.base = c.home
	}
	return x
}
