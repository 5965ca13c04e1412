package main

import (
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

const settingsIntro = `# Settings

<!-- Made by "go run ./internal/gendocs" from the settings table; do not edit. -->

A key without a dot stands below ` + "`terminal:`" + ` in ` + "`HERMES_HOME/config.yaml`" + ` (HERMES_HOME is ` + "`~/.hermes`" + ` unless it is set), one with a dot at
the top level: ` + "`egress.enabled`" + ` is ` + "`enabled`" + ` below ` + "`egress:`" + `. The first of these that sets a key wins:

1. the command line: ` + "`--set key=value`" + `
2. the process environment; an empty variable sets nothing
3. ` + "`HERMES_HOME/config.yaml`" + `
4. ` + "`HERMES_HOME/.env`" + `, the variables again; it is read as data and never run
5. the default

` + "`elsewhere config explain KEY`" + ` shows the value in force, where it came from and what it hid. (Hermes lets the file beat the environment.)

The chosen backend alone decides which settings matter: those left behind for another backend are ignored, even bad ones.

| type | how it is written |
|---|---|
| text | as it is, or one of the words listed |
| bool | true, 1, yes, on; false, 0, no, off |
| integer, number | 0 or more |
| duration | seconds, or with a unit: 90s, 1h30m, 7d |
| bytes | bytes, or with a unit: 512k, 64m, 2GiB (1k is 1024) |
| megabytes | MiB, or with a unit as bytes |
| list | a YAML list; in a variable a JSON list or a,b |
| map | a YAML map; in a variable a JSON map |
| path | a path on this machine; ~ and $VAR are expanded; a relative one starts at HERMES_HOME in a file, else at the caller's directory |
| sandbox path(s) | a path (a list of paths) where the commands run; ~ and $VAR are expanded on the local backend only |
| table | YAML maps by name |

Status **later** means known but not built, **not planned** that Hermes has it and elsewhere will not. A setting that is not built and concerns
isolation, limits or place (marked *) keeps the backends that it concerns from opening a sandbox; any other is a warning.

More backends of your own are entries of ` + "`terminal.backends`" + `, chosen by name (` + "`-b gpu1`" + `). An entry takes the keys of this page. Variables and
top-level keys fill only keys that it does not set, and never those marked †.
`

// settingsPage renders the whole page.
func settingsPage() (string, error) {
	rows, err := config.Table(all.Backends())
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(settingsIntro)
	section(&b, "Common", "", rows, func(r driver.Setting) bool { return len(r.Backends) == 0 })
	section(&b, "Several backends", "", rows, func(r driver.Setting) bool { return len(r.Backends) > 1 })
	for _, backend := range all.Backends() {
		section(&b, backend.Name, backend.Summary, rows, only(backend.Name))
	}
	section(&b, "bubblewrap", "A backend of some versions of Hermes that elsewhere does not have.", rows, only("bubblewrap"))
	return b.String(), nil
}

func only(name string) func(driver.Setting) bool {
	return func(r driver.Setting) bool { return len(r.Backends) == 1 && r.Backends[0] == name }
}

func section(b *strings.Builder, title, summary string, rows []driver.Setting, in func(driver.Setting) bool) {
	fmt.Fprintf(b, "\n## %s\n\n", title)
	if summary != "" {
		fmt.Fprintf(b, "%s\n\n", summary)
	}
	b.WriteString("| key | variable | type | default | status | what it does |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		if in(r) {
			fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", keyCell(r), code(r.Env), r.Type, code(r.Default), r.Status, docCell(r))
		}
	}
}

func keyCell(r driver.Setting) string {
	marks := ""
	if r.Place {
		marks += "\\*"
	}
	if r.NamedOnly {
		marks += "†"
	}
	return code(r.Key) + marks
}

func docCell(r driver.Setting) string {
	doc := r.Doc
	if len(r.Values) > 0 {
		words := make([]string, len(r.Values))
		for i, v := range r.Values {
			words[i] = code(v)
			if v == "" {
				words[i] = "empty"
			}
		}
		doc += " One of " + strings.Join(words, ", ") + "."
	}
	if len(r.KeyAliases) > 0 {
		doc += " Also read as " + code(strings.Join(r.KeyAliases, "`, `")) + "."
	}
	if len(r.Backends) > 1 {
		doc += " For " + strings.Join(r.Backends, ", ") + "."
	}
	if r.Secret {
		doc += " Never printed."
	}
	return strings.ReplaceAll(doc, "|", "\\|")
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
