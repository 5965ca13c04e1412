package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Error is a setting or a settings file that cannot be used. Its text is one line that ends with the next step.
type Error struct {
	// Kind is driver.KindConfig, or driver.KindUnsupported for a setting that is fine but not built.
	Kind driver.Kind
	// Key is the setting as the user writes it ("terminal.timeout"), or "" where a whole file is wrong.
	Key string
	// Origin is where it was set: "TERMINAL_TIMEOUT", "--set timeout", "~/.hermes/config.yaml:12"; may be empty.
	Origin string
	// Value is what was written, shortened; never that of a secret. Empty where there is none to show.
	Value string
	// Problem says what is wrong, or is empty where Allowed says it all.
	Problem string
	// Allowed says what would be right; may be empty.
	Allowed string
	// Hint is the next step; never empty.
	Hint string
	// Err is the underlying error; may be nil.
	Err error
}

// Error gives one line: the key, its value, where it was set, what is wrong, what is allowed and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Key)
	if e.Value != "" {
		b.WriteString(" is " + quote(e.Value))
	}
	if e.Origin != "" {
		if b.Len() == 0 {
			b.WriteString(e.Origin)
		} else {
			b.WriteString(" (" + e.Origin + ")")
		}
	}
	if e.Problem != "" {
		b.WriteString(": " + e.Problem)
	}
	if e.Err != nil {
		b.WriteString(": " + oneLine(e.Err.Error()))
	}
	if e.Allowed != "" {
		b.WriteString(": allowed is " + e.Allowed)
	}
	return b.String() + "; " + e.Hint
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// oneLine keeps a foreign error's text on one line.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

// quote shows a value of the user's, without control characters and not longer than a line.
func quote(value string) string {
	const most = 80
	if runes := []rune(value); len(runes) > most {
		return strconv.Quote(string(runes[:most])) + "..."
	}
	return strconv.Quote(value)
}

// shown is a value as people see it: a secret's never, but a secret map's names.
func shown(row *driver.Setting, text string) string {
	if !row.Secret || text == "" {
		return text
	}
	if row.Type == driver.Map {
		if m, err := parseMap(text); err == nil {
			names := make([]string, 0, len(m))
			for _, name := range sortedKeys(m) {
				names = append(names, name+"=(secret)")
			}
			return strings.Join(names, " ")
		}
	}
	return "(secret)"
}

// path is a row's key as it is written in full.
func path(key string) string {
	if strings.Contains(key, ".") {
		return key
	}
	return "terminal." + key
}

// badValue says that src's value of row is not allowed.
func badValue(row *driver.Setting, src source, allowed, problem string) *Error {
	e := &Error{
		Kind: driver.KindConfig, Key: path(row.Key), Origin: src.origin(), Problem: problem, Allowed: allowed, Hint: src.hint(),
	}
	if !row.Secret {
		e.Value = src.text
	}
	return e
}

// unsupported says that row is set but not built.
func unsupported(row *driver.Setting, src source) *Error {
	e := badValue(row, src, "", "elsewhere does not do this yet, and ignoring it would be unsafe")
	if row.Status == driver.NotPlanned {
		e.Problem = "elsewhere does not do this, and ignoring it would be unsafe"
	}
	e.Kind = driver.KindUnsupported
	e.Hint = "remove it to go on without it"
	return e
}

func fileError(file, problem, hint string, err error) *Error {
	return &Error{Kind: driver.KindConfig, Origin: file, Problem: problem, Hint: hint, Err: err}
}

func lineError(file string, line int, problem string) *Error {
	return fileError(fmt.Sprintf("%s:%d", file, line), problem, "correct that line", nil)
}
