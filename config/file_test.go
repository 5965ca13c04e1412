package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
)

func TestABadFileIsOneErrorThatNamesItsLine(t *testing.T) {
	cases := []struct {
		name, yaml string
		want       []string
	}{
		{"a tab as indentation", "terminal:\n\tbackend: local\n", []string{"config.yaml:2", "tab"}},
		{"no YAML", "terminal: 'local", []string{"config.yaml:1", "not YAML"}},
		{"a control character", "a: b\nc: \x1b[0m\n", []string{"config.yaml:2", "control characters"}},
		{"a bracket that is not closed", "a: 1\nterminal: [\n", []string{"config.yaml", "not YAML"}},
		{"a key twice", "terminal:\n  backend: local\n  backend: docker\n", []string{"config.yaml:3", "backend is set twice", "line 2"}},
		{"terminal twice", "terminal: {}\na: 1\nterminal: {}\n", []string{"config.yaml:3", "twice", "line 1"}},
		{"a list where a map belongs", "terminal:\n  - backend: local\n", []string{"config.yaml:1", "terminal must be a map", "a list"}},
		{"a text at the top", "local\n", []string{"config.yaml:1", "must be a map", `"local"`}},
		{"a list at the top", "- a\n", []string{"a list"}},
		{"a second document", "terminal: {}\n---\na: 1\n", []string{"second YAML document"}},
		{"a binary file", "terminal:\x00\x01", []string{"binary"}},
		{"a line that is not UTF-8", "a: b\nc: \xff\n", []string{"config.yaml:2", "UTF-8"}},
		{"UTF-16", "\xff\xfet\x00", []string{"UTF-16"}},
		{"an alias of nothing", "terminal: *x\n", []string{"not YAML"}},
		{"a file without end", strings.Repeat("# x\n", 2<<20), []string{"4 MiB"}},
		{"merges that multiply", bomb("<<: [%[1]s]"), []string{"too often"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := world{yaml: c.yaml}.load(t)
			wantError(t, err, c.want...)
		})
	}
}

// bomb is a file in which each map refers to the one above ten times.
func bomb(format string) string {
	text := "z0: &z0 {a: b}\n"
	for i := 1; i < 12; i++ {
		refs := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*z%d, ", i-1), 10), ", ")
		text += fmt.Sprintf("z%d: &z%d {%s}\n", i, i, fmt.Sprintf(format, refs))
	}
	return text + "terminal: *z11\n"
}

func TestAnOddFileIsFine(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"comments only":               {"# nothing\n", "warn"},
		"terminal is null":            {"terminal:\n", "warn"},
		"a byte order mark":           {"\ufeffterminal:\n  log_level: info\n", "info"},
		"CRLF":                        {"terminal:\r\n  log_level: info\r\n", "info"},
		"anchors and merges":          {"x: &x {log_level: info}\nterminal:\n  <<: *x\n", "info"},
		"an own key beats a merged":   {"x: &x {log_level: info}\nterminal:\n  <<: *x\n  log_level: error\n", "error"},
		"an alias as a value":         {"x: &x info\nterminal: {log_level: *x}\n", "info"},
		"aliases that multiply":       {bomb("a: [%s]") + "tool_output: null\n", "warn"},
		"a key twice that is Hermes'": {"model: {}\nmodel: {}\nterminal: {log_level: info}\n", "info"},
		"tabs elsewhere":              {"a: |\n  x\n  \ty\nterminal: {log_level: info}\n", "info"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (world{yaml: c.yaml}).mustLoad(t).String("log_level"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("no bytes at all", func(t *testing.T) {
		o := world{}.options(t)
		write(t, filepath.Join(o.Dir, ".hermes", "config.yaml"), "")
		write(t, filepath.Join(o.Dir, ".hermes", ".env"), "")
		if _, err := config.Load(o); err != nil {
			t.Error(err)
		}
	})
}

func TestADirectoryInsteadOfAFileIsAnError(t *testing.T) {
	for _, name := range []string{"config.yaml", ".env"} {
		t.Run(name, func(t *testing.T) {
			o := world{}.options(t)
			if err := os.MkdirAll(filepath.Join(o.Dir, ".hermes", name), 0o700); err != nil {
				t.Fatal(err)
			}
			_, err := config.Load(o)
			wantError(t, err, "~/.hermes/"+name, "a directory, not a file")
		})
	}
}
