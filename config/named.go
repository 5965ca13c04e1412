package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// entry is one entry of terminal.backends.
type entry struct {
	file    string
	line    int
	sources map[string]source // by key
}

// entryName is the form of an entry's name, which the command line takes as it takes the names of tasks.
var entryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// readEntries takes terminal.backends. What an entry holds is looked at when it is chosen; only its name matters before.
func (l *loaded) readEntries(d *document, f field) error {
	if isNull(f.val) {
		return nil
	}
	if f.val.Kind != yaml.MappingNode {
		return lineError(d.file, f.line, "terminal.backends must be a map of backends by name, not "+kindName(f.val))
	}
	fields, err := d.fields(f.val, true)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(fields))
	for _, named := range fields {
		if err := l.readEntry(d, named); err != nil {
			return err
		}
		names = append(names, named.key)
	}
	l.sources[backendsKey] = []source{{layer: fromFile, name: backendsKey, file: d.file, line: f.line, text: strings.Join(names, ", ")}}
	return nil
}

func (l *loaded) readEntry(d *document, f field) error {
	name := quote(f.key)
	if !entryName.MatchString(f.key) {
		return lineError(d.file, f.line, "the name "+name+" of a backend is not allowed: up to 63 of A-Z a-z 0-9 . _ -, the first a letter or digit")
	}
	if _, taken := l.builtin(f.key); taken {
		return lineError(d.file, f.line, "the name "+name+" is that of a backend of elsewhere, so that an entry needs another")
	}
	e := &entry{file: d.file, line: f.line, sources: map[string]source{}}
	l.entries[f.key] = e
	if f.val.Kind != yaml.MappingNode {
		return lineError(d.file, f.line, "terminal.backends."+f.key+" must be a map of settings, not "+kindName(f.val))
	}
	fields, err := d.fields(f.val, true)
	if err != nil {
		return err
	}
	for _, own := range fields {
		l.readEntryField(d, f.key, e, own)
	}
	return nil
}

// readEntryField takes one key of an entry. An older name is weaker than the key itself.
func (l *loaded) readEntryField(d *document, name string, e *entry, f field) {
	row := l.byKey[f.key]
	if row == nil || strings.Contains(f.key, ".") || row.Type == driver.Table {
		l.warn("%s:%d: terminal.backends.%s.%s is no setting and is ignored%s", d.file, f.line, name, f.key, didYouMean(f.key, l.keys()))
		return
	}
	src, ok := d.source(row, f, fromEntry)
	if !ok {
		return
	}
	src.name = f.key
	if f.key != row.Key {
		l.noteAlias(src, row)
		if _, has := e.sources[row.Key]; has {
			return
		}
	}
	e.sources[row.Key] = src
}

// Named gives the settings as the backend or entry called name reads them, and that backend; "" is c's own, which after
// Load is terminal.backend.
//
// In an entry its own keys win; variables and top-level keys fill only keys that it does not set, and never rows with
// NamedOnly; --set beats both. An unknown name is an error that lists the known ones, never another backend. A setting
// about isolation, limits or place that concerns the backend and is not built is an error of KindUnsupported.
func (c *Config) Named(name string) (*Config, driver.Backend, error) {
	view := c
	if name != "" && name != c.name {
		var err error
		if view, err = c.view(name); err != nil {
			return nil, driver.Backend{}, err
		}
	}
	for i := range view.rows {
		row := &view.rows[i]
		r := view.values[row.Key]
		if row.Place && view.concerned(row) && view.inForce(row, r) {
			return nil, driver.Backend{}, unsupported(row, r.sources[0])
		}
	}
	return view, view.backend, nil
}

// Backend finds a backend by its name, an alias or the name of an entry; "" is this view's own.
func (c *Config) Backend(name string) (driver.Backend, error) {
	if name == "" {
		return c.backend, nil
	}
	_, b, _, err := c.choose(name)
	return b, err
}

// choose finds what name means; "" is terminal.backend. chosen is name without an alias.
func (l *loaded) choose(name string) (chosen string, b driver.Backend, e *entry, err error) {
	row := l.byKey[backendKey]
	src := source{layer: fromName, text: name}
	if name == "" {
		src = source{layer: fromDefault, text: row.Default}
		if set := l.sources[backendKey]; len(set) > 0 {
			src = set[0]
		}
		if src.problem != "" {
			return "", b, nil, badValue(row, src, "the name of a backend", src.problem)
		}
	}
	if b, ok := l.builtin(strings.ToLower(strings.TrimSpace(src.text))); ok {
		return b.Name, b, nil, nil
	}
	e = l.entries[src.text]
	if e == nil {
		return "", b, nil, l.unknownBackend(row, src)
	}
	b, err = l.entryBackend(src.text, e)
	return src.text, b, e, err
}

// entryBackend is the backend that an entry names: a builtin one, never another entry.
func (l *loaded) entryBackend(name string, e *entry) (driver.Backend, error) {
	row := l.byKey[backendKey]
	src, has := e.sources[backendKey]
	if !has {
		return driver.Backend{}, &Error{
			Kind: driver.KindConfig, Key: path(backendsKey) + "." + name, Origin: fmt.Sprintf("%s:%d", e.file, e.line),
			Problem: "the entry names no backend", Hint: "add `backend:` with " + orList(l.backendNames()) + " to it",
		}
	}
	b, ok := l.builtin(strings.ToLower(strings.TrimSpace(src.text)))
	if !ok {
		err := badValue(row, src, orList(l.backendNames()), src.problem)
		err.Key = path(backendsKey) + "." + name + "." + backendKey
		return b, err
	}
	return b, nil
}

func (l *loaded) unknownBackend(row *driver.Setting, src source) error {
	names := append(l.backendNames(), sortedKeys(l.entries)...)
	err := badValue(row, src, orList(names), "no such backend"+didYouMean(src.text, names))
	if src.layer == fromName {
		err.Key, err.Origin, err.Hint = "the backend", "", "choose one of these, or add it to terminal.backends"
	}
	return err
}

// view resolves every row for what name means. A value that is not allowed is an error in the rows that the backend
// reads and the default in the others.
func (l *loaded) view(name string) (*Config, error) {
	chosen, b, e, err := l.choose(name)
	if err != nil {
		return nil, err
	}
	c := &Config{loaded: l, name: chosen, backend: b, values: make(map[string]resolved, len(l.rows))}
	for i := range l.rows {
		row := &l.rows[i]
		r, err := c.resolve(row, l.sourcesFor(row, e, name, chosen))
		if err != nil {
			return nil, err
		}
		c.values[row.Key] = r
	}
	return c, nil
}

// resolve takes the strongest source.
func (c *Config) resolve(row *driver.Setting, sources []source) (resolved, error) {
	r := resolved{value: c.defaults[row.Key], sources: sources}
	if len(sources) == 0 {
		// A default may be a path too, which is expanded for this backend.
		if val, err := parse(row, row.Default, c.expander(source{})); err == nil {
			r.value = val
		}
		return r, nil
	}
	src := sources[0]
	val, err := parse(row, src.text, c.expander(src))
	switch {
	case src.problem != "":
		r.problem = badValue(row, src, c.allowed(row), src.problem)
	case err != nil:
		r.problem = badValue(row, src, err.Error(), "")
	default:
		r.value = val
	}
	if r.problem != nil && c.concerned(row) {
		return r, r.problem
	}
	return r, nil
}

// allowed says what form a row has whose value has the wrong shape.
func (c *Config) allowed(row *driver.Setting) string {
	// No type but text takes a null byte, so that this asks for its sentence.
	if _, err := parseType(row, "\x00", expander{}); err != nil {
		return err.Error()
	}
	switch row.Type {
	case driver.List, driver.SandboxPaths:
		return "a list of texts"
	case driver.Map:
		return "a map of texts"
	}
	return "one " + string(row.Type)
}

// sourcesFor are the sources of a row, the strongest first, in the view of an entry (nil: of a builtin backend).
func (l *loaded) sourcesFor(row *driver.Setting, e *entry, asked, chosen string) []source {
	sources := slices.Clone(l.sources[row.Key])
	if e == nil {
		if row.Key == backendKey && asked != "" {
			return append([]source{{layer: fromName, text: chosen}}, sources...)
		}
		return sources
	}
	if row.NamedOnly {
		sources = slices.DeleteFunc(sources, func(s source) bool { return s.layer > fromEntry })
	}
	own, has := e.sources[row.Key]
	if !has {
		return sources
	}
	at := 0
	if row.Key != backendKey {
		// --set is explicit and beats the entry; for the backend itself it is what chose the entry.
		at = countFunc(sources, func(s source) bool { return s.layer < fromEntry })
	}
	return slices.Insert(sources, at, own)
}

func countFunc[T any](list []T, is func(T) bool) (n int) {
	for _, item := range list {
		if is(item) {
			n++
		}
	}
	return n
}
