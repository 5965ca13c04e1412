package mcpserver

import (
	"fmt"
	"unicode/utf8"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/output"
)

// headPercent is how much of what a model is shown of a long output is its beginning; the rest is its end.
const headPercent = 40

// seen is what a model is shown of an output: all of it, or its beginning and its end, with the whole in a file.
type seen struct {
	*output.Window
	limit int // characters
	dir   string
	cut   bool
}

// newSeen keeps at most limit characters; dir is for the file, "" for none.
func newSeen(limit int, dir string) *seen {
	// A character has at most four bytes, so what is kept has as many characters as may be shown.
	return &seen{Window: output.NewWindow(output.Options{Limit: 4 * int64(limit), SpillDir: dir, Name: bashscript.NewID()}), limit: limit, dir: dir}
}

// discard gives up an output that nobody is shown.
func (s *seen) discard() { _ = s.Close() }

// text is what is shown, and the file with the whole: "" where that is shown, or where it could not be kept.
func (s *seen) text() (text, file string) {
	_ = s.Close()
	head, tail := output.Text(s.Bytes()), ""
	if s.Truncated() {
		head, tail = output.Text(s.Head()), output.Text(s.Tail())
	} else if utf8.RuneCountInString(head) <= s.limit {
		return head, ""
	} else {
		tail = head
	}
	s.cut = true
	first := firstRunes(head, s.limit*headPercent/100)
	last := lastRunes(tail, s.limit-s.limit*headPercent/100)
	file = s.File()
	if file == "" && s.dir != "" {
		// Too long to show and still short enough for the window.
		whole := output.NewWindow(output.Options{Limit: 1, SpillDir: s.dir, Name: bashscript.NewID()})
		_, _ = whole.Write(s.Bytes())
		_ = whole.Close()
		file = whole.File()
	}
	return fmt.Sprintf("%s\n\n... [OUTPUT TRUNCATED: the first and the last part of %d bytes] ...\n\n%s", first, s.Total(), last), file
}

// firstRunes is the first n characters of s.
func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// lastRunes is the last n characters of s.
func lastRunes(s string, n int) string {
	start := len(s)
	for ; n > 0 && start > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	return s[start:]
}
