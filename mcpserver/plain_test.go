package mcpserver

import (
	"bytes"
	"testing"
)

func TestWhatATerminalShowsBecomesText(t *testing.T) {
	for _, c := range []struct{ shown, text string }{
		{"a\r\nb\r\n", "a\nb\n"},
		{"10 %\r20 %\r\r\ndone\r\n", "10 %\n20 %\ndone\n"},
		{"\x1b[1;31mred\x1b[0m \x1b[?1049hon\x1b[?1049l\x1b[2J\x1b[10;5H", "red on"},
		{"\x1b]0;a title\x07x\x1b]8;;http://a\x1b\\y\x1bP1$r0m\x1b\\z", "xyz"},
		{"\x1b(B\x1b=a\x1b>\x1b7b\x1b8\x1bMc\a\x00\b\td", "abc\td"},
		{"größe ✓ \xff", "größe ✓ \xff"},
	} {
		for _, step := range []int{1, 2, len(c.shown)} {
			var got bytes.Buffer
			w := &plain{to: &got}
			for rest := []byte(c.shown); len(rest) > 0; {
				n := min(step, len(rest))
				if k, err := w.Write(rest[:n]); k != n || err != nil {
					t.Fatal(k, err)
				}
				rest = rest[n:]
			}
			if got.String() != c.text {
				t.Errorf("%q in steps of %d is %q, want %q", c.shown, step, got.String(), c.text)
			}
		}
	}
}
