package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// readDocument takes the parts of a config.yaml that are ours: terminal, and the top-level groups of the dotted rows.
func (l *loaded) readDocument(d *document) error {
	for _, group := range l.groups() {
		node, err := d.group(group)
		if err != nil {
			return err
		}
		if node == nil {
			continue
		}
		fields, err := d.fields(node, true)
		if err != nil {
			return err
		}
		if err := l.readGroup(d, group, fields); err != nil {
			return err
		}
	}
	return l.noteTopLevel(d)
}

// groups are the top-level keys that hold settings, "terminal" first.
func (l *loaded) groups() []string {
	groups := []string{"terminal"}
	for _, key := range l.keys() {
		if group, _, dotted := strings.Cut(key, "."); dotted && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

func (l *loaded) readGroup(d *document, group string, fields []field) error {
	var aliased []source
	for _, f := range fields {
		key := f.key
		if group != "terminal" {
			key = group + "." + f.key
		}
		row := l.byKey[key]
		switch {
		case row == nil || strings.Contains(f.key, "."):
			l.noteUnknown(d, group, f)
			continue
		case row.Type == driver.Table:
			if err := l.readEntries(d, f); err != nil {
				return err
			}
			continue
		}
		src, ok := d.source(row, f, fromFile)
		if !ok {
			continue
		}
		if key != row.Key {
			// The key itself is stronger than its older names, whichever comes first.
			src.name = key
			aliased = append(aliased, src)
			l.noteAlias(src, row)
			continue
		}
		l.sources[row.Key] = append(l.sources[row.Key], src)
	}
	for _, src := range aliased {
		row := l.byKey[src.name]
		l.sources[row.Key] = append(l.sources[row.Key], src)
	}
	return nil
}

// noteTopLevel warns of top-level keys that were meant to be settings.
func (l *loaded) noteTopLevel(d *document) error {
	if d.root == nil {
		return nil
	}
	fields, err := d.fields(d.root, false)
	if err != nil {
		return err
	}
	for _, f := range fields {
		where := fmt.Sprintf("%s:%d", d.file, f.line)
		if f.key == "command_allowlist" && len(f.val.Content) > 0 {
			l.allowlist = where
		}
		_, below, flat := strings.Cut(f.key, "terminal.")
		switch {
		case flat:
			l.warn("%s: %s is not read; write %s below terminal:", where, f.key, below)
		case f.key != "terminal" && distance(f.key, "terminal") <= 2:
			l.warn("%s: %s is not read (did you mean terminal?)", where, f.key)
		case l.byKey[f.key] != nil && strings.Contains(f.key, "_"):
			l.warn("%s: %s is not read at the top level; write it below terminal:", where, f.key)
		}
	}
	return nil
}
