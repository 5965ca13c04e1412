package driver

import "time"

// Setting is one row of the settings table. Everything about a setting comes from its row: loading, validation,
// `config explain`, completion and docs/settings.md.
type Setting struct {
	// Key is the name below "terminal:" in config.yaml, for example "docker_image". A key with a dot, such as
	// "egress.enabled", stands at the top level.
	Key string
	// Env is the variable that sets it ("TERMINAL_DOCKER_IMAGE"), or "" where it can be set in the file only.
	Env string
	// EnvAliases and KeyAliases are older names that are read too.
	EnvAliases []string
	KeyAliases []string
	// Type says how a value is written.
	Type Type
	// Default is the value in the same text form as a variable's; "" is the zero value.
	Default string
	// Doc is one line for people: what it does, with its unit.
	Doc string
	// Values are the allowed words of a String; empty means any. Case does not matter where a value is written; the
	// spelling given here is what is read.
	Values []string
	// ValueAliases are other words for a value ("isolated" for "profile"). They are replaced before the value is
	// parsed. Keys are in lower case.
	ValueAliases map[string]string
	// Check refuses a value beyond what Type and Values say; the text of its error names what is allowed ("a port from
	// 1 to 65535"). It is given what Config.String answers, and never "" of a text or path. May be nil.
	Check func(value string) error
	// Status says whether the row is built.
	Status Status
	// Place says that the row concerns isolation, limits or place: setting it while Status is not Implemented is an
	// error for the backend that it concerns, not a warning.
	Place bool
	// Secret values are never printed.
	Secret bool
	// Backends are the names of the backends that read it; empty means all. Rows that a backend brings get its name.
	Backends []string
	// NamedOnly says that a named backend (terminal.backends.NAME) takes this key only from its own entry, never from
	// a variable or a top-level key: host, user, key, image.
	NamedOnly bool
}

// Type is the form of a setting's value. Lists and maps are YAML in the file and JSON in a variable; a variable for a
// list may also be comma-separated.
type Type string

// The types of settings. No number, duration or size is negative.
const (
	String  Type = "text"
	Bool    Type = "bool"     // true, 1, yes, on and their opposites, any case
	Int     Type = "integer"  // a whole number
	Float   Type = "number"   // a number
	Seconds Type = "duration" // a number of seconds, or with a unit: 90s, 1h30m, 7d
	Bytes   Type = "bytes"    // a number of bytes, or with a unit: 512k, 64m, 2GiB (1k is 1024)
	// Megabytes is a number of MiB, or with a unit as Bytes; Config.Bytes reads it in bytes.
	Megabytes Type = "megabytes"
	List      Type = "list" // of strings
	Map       Type = "map"  // of strings to strings
	// Path is a path on this machine. ~ and $VAR are expanded. A relative one is made absolute: from a file it starts
	// at HERMES_HOME, from a variable or the command line at the caller's directory.
	Path Type = "path"
	// SandboxPath and SandboxPaths (a list) are paths where the commands run. ~ and $VAR are expanded on the local
	// backend alone, since they mean the sandbox's home elsewhere; a relative path stays relative.
	SandboxPath  Type = "sandbox path"
	SandboxPaths Type = "sandbox paths"
	// Table is a map of settings by name (terminal.backends). No method of Config but String reads it.
	Table Type = "table"
)

// Status says how far a setting is built.
type Status string

// The states of a setting.
const (
	Implemented Status = "implemented"
	Later       Status = "later"
	NotPlanned  Status = "not planned"
)

// Config reads settings by key. A key that no row knows, and one of another type, is a programming error and panics. A
// value that does not have the row's form was refused when the settings were loaded, so reading never fails; that of
// another backend's row reads as its default. Safe for concurrent use.
type Config interface {
	// String reads a value of any type, in the text form of a variable.
	String(key string) string
	Bool(key string) bool
	Int(key string) int64
	Float(key string) float64
	Duration(key string) time.Duration
	// Bytes reads Bytes and Megabytes, both in bytes.
	Bytes(key string) int64
	Strings(key string) []string
	StringMap(key string) map[string]string
	// IsSet tells whether the value came from anywhere but the default.
	IsSet(key string) bool
	// Origin says where the value came from, for people: "default", "TERMINAL_CWD", "~/.hermes/config.yaml:12".
	Origin(key string) string
}
