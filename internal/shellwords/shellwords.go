// Package shellwords is what readers of a bash syntax tree share: arguments as text, the commands that run another one,
// and the check that a text can be parsed in bounded time.
package shellwords

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxDepth = 200  // open brackets; the parser's time grows with their square,
	maxOpen  = 4096 // and brackets in quotes hide from a count how deep it is; | and & make the tree deep too
)

// TooDeep reports whether command has so many open brackets that parsing it could take long. Brackets inside quotes
// count too.
func TooDeep(command string) bool {
	depth, opened := 0, 0
	for i := range len(command) {
		switch command[i] {
		case '(', '{', '[', '`':
			depth++
			opened++
		case '|', '&':
			opened++
		case ')', '}', ']':
			depth = max(depth-1, 0)
		}
		if depth > maxDepth || opened > maxOpen {
			return true
		}
	}
	return false
}

// Word is one argument: its text where it is literal.
type Word struct {
	Text    string
	Literal bool
}

// Is reports whether w is literally text.
func (w Word) Is(text string) bool { return w.Literal && w.Text == text }

// Words returns the arguments of a command.
func Words(args []*syntax.Word) []Word {
	list := make([]Word, len(args))
	for i, a := range args {
		list[i].Text, list[i].Literal = Literal(a)
	}
	return list
}

// Literal returns the text of a word that no expansion changes, its quotes removed.
func Literal(w *syntax.Word) (string, bool) {
	var text strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if strings.HasPrefix(part.Value, "~") {
				return "", false
			}
			Unquote(&text, part.Value, "")
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", false
			}
			text.WriteString(part.Value)
		case *syntax.DblQuoted:
			if part.Dollar {
				return "", false
			}
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", false
				}
				Unquote(&text, lit.Value, "$`\"\\")
			}
		default:
			return "", false
		}
	}
	return text.String(), true
}

// Unquote removes the backslashes that quote one of special, or any character where that is "".
func Unquote(to *strings.Builder, s, special string) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (special == "" || strings.IndexByte(special, s[i+1]) >= 0) {
			i++
		}
		to.WriteByte(s[i])
	}
}
