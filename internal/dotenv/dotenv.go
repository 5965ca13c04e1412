// Package dotenv reads .env files as data: nothing in them is expanded or run.
package dotenv

import "strings"

// Var is one assignment of a .env file, and the line that it begins on.
type Var struct {
	Name, Value string
	Line        int
}

// Parse reads the text of a .env file as data: NAME=value, an optional "export" before it, # comments, single
// quotes (nothing special but \' and \\), double quotes (\n, \t, \r, \", \\, \$), both over several lines. Nothing is expanded or
// run. bad are the lines that are none of this; they are skipped.
func Parse(text string) (vars []Var, bad []int) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for line := 1; text != ""; {
		first, rest, _ := strings.Cut(text, "\n")
		name, val, ok := assignment(first)
		if !ok {
			if trimmed := strings.TrimSpace(first); trimmed != "" && trimmed[0] != '#' {
				bad = append(bad, line)
			}
			text, line = rest, line+1
			continue
		}
		// The value is read from the whole text, since a quoted one may span lines.
		from := len(first) - len(val)
		val, used, ok := readValue(text[from:])
		if !ok || strings.ContainsRune(val, 0) {
			bad = append(bad, line)
			text, line = rest, line+1
			continue
		}
		vars = append(vars, Var{Name: name, Value: val, Line: line})
		used += from
		line += strings.Count(text[:used], "\n")
		text = text[used:]
	}
	return vars, bad
}

// assignment splits the first line of an assignment into the name and the text from the value on.
func assignment(line string) (name, rest string, ok bool) {
	name, rest, ok = strings.Cut(line, "=")
	if !ok {
		return "", "", false
	}
	name = strings.TrimSpace(name)
	if after, cut := strings.CutPrefix(name, "export"); cut && after != strings.TrimLeft(after, " \t") {
		name = strings.TrimLeft(after, " \t")
	}
	return name, strings.TrimLeft(rest, " \t"), IsName(name)
}

// IsName tells whether a shell could have a variable of that name.
func IsName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// readValue reads a value from the start of text. used is what it took, the end of its line included.
func readValue(text string) (val string, used int, ok bool) {
	if text == "" || text[0] != '\'' && text[0] != '"' {
		line, _, _ := strings.Cut(text, "\n")
		return unquoted(line), min(len(line)+1, len(text)), true
	}
	val, end, ok := quoted(text)
	if !ok {
		return "", 0, false
	}
	tail, _, _ := strings.Cut(text[end:], "\n")
	if trimmed := strings.TrimSpace(tail); trimmed != "" && trimmed[0] != '#' {
		return "", 0, false
	}
	return val, min(end+len(tail)+1, len(text)), true
}

// unquoted drops a comment, which needs a blank before it, and the blanks around.
func unquoted(line string) string {
	if strings.HasPrefix(line, "#") {
		return ""
	}
	for i := 1; i < len(line); i++ {
		if line[i] == '#' && (line[i-1] == ' ' || line[i-1] == '\t') {
			line = line[:i]
			break
		}
	}
	return strings.TrimSpace(line)
}

// quoted reads a quoted value; end is the place behind its closing quote.
func quoted(text string) (val string, end int, ok bool) {
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote:
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteString(unescape(quote, text[i]))
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}

// unescape is what a backslash and c mean; a pair that means nothing stays as it is.
func unescape(quote, c byte) string {
	if c == quote || c == '\\' {
		return string([]byte{c})
	}
	if quote == '"' {
		switch c {
		case 'n':
			return "\n"
		case 't':
			return "\t"
		case 'r':
			return "\r"
		case '$':
			return "$"
		}
	}
	return string([]byte{'\\', c})
}
