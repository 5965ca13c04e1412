package output

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns b as valid UTF-8 for display: each maximal subpart of an ill-formed sequence becomes one U+FFFD, as
// Unicode recommends and as browsers and Python do it (Go's own conversions use one for each byte).
func Text(b []byte) string {
	var d Decoder
	text := d.Decode(b)
	return text + d.Flush()
}

// Decoder is Text for a stream: a character that is split across two writes comes out whole with the second. The zero
// Decoder is ready. It is not safe for concurrent use.
type Decoder struct {
	held [utf8.UTFMax]byte // the beginning of a character
	n    int
}

// Decode returns the text of what was held and b, but for a character at the end that is not complete yet.
func (d *Decoder) Decode(b []byte) string {
	// Complete what is held, byte by byte, until it is decided. At most three bytes are held, so this ends soon.
	var first string
	for d.n > 0 && len(b) > 0 {
		d.held[d.n] = b[0]
		_, size, more := next(d.held[:d.n+1])
		switch {
		case more:
			d.n++
			b = b[1:]
		case size == d.n+1: // a character
			first = string(d.held[:size])
			d.n = 0
			b = b[1:]
		default: // b[0] does not continue it
			first = string(utf8.RuneError)
			d.n = 0
		}
	}
	if d.n > 0 {
		return first
	}
	end := splitEnd(b)
	d.n = copy(d.held[:], b[len(b)-end:])
	b = b[:len(b)-end]
	if utf8.Valid(b) {
		return first + string(b)
	}
	var s strings.Builder
	s.Grow(len(first) + len(b) + len(b)/8)
	s.WriteString(first)
	for len(b) > 0 {
		ok, size, _ := next(b)
		if ok {
			s.Write(b[:size])
		} else {
			s.WriteRune(utf8.RuneError)
		}
		b = b[size:]
	}
	return s.String()
}

// Flush returns what an incomplete character at the end of the stream is shown as: one U+FFFD, or "" where there is
// none. The Decoder is ready for another stream.
func (d *Decoder) Flush() string {
	if d.n == 0 {
		return ""
	}
	d.n = 0
	return string(utf8.RuneError)
}

// next looks at the beginning of b, which is not empty: a character of size bytes (ok), the beginning of one that b
// ends in (more), or a maximal subpart of size bytes that is none.
func next(b []byte) (ok bool, size int, more bool) {
	c := b[0]
	if c < utf8.RuneSelf {
		return true, 1, false
	}
	// The second byte's range and the length: table 3-7 of the Unicode standard.
	low, high, want := byte(0x80), byte(0xBF), 0
	switch {
	case 0xC2 <= c && c <= 0xDF:
		want = 2
	case 0xE0 <= c && c <= 0xEF:
		want = 3
		if c == 0xE0 {
			low = 0xA0
		} else if c == 0xED {
			high = 0x9F
		}
	case 0xF0 <= c && c <= 0xF4:
		want = 4
		if c == 0xF0 {
			low = 0x90
		} else if c == 0xF4 {
			high = 0x8F
		}
	default:
		return false, 1, false
	}
	for size = 1; size < want; size++ {
		if size == len(b) {
			return false, size, true
		}
		if b[size] < low || b[size] > high {
			return false, size, false
		}
		low, high = 0x80, 0xBF
	}
	return true, want, false
}

// splitEnd returns how many bytes at the end of b are the beginning of a character that is not complete.
func splitEnd(b []byte) int {
	for n := 1; n <= min(len(b), utf8.UTFMax-1); n++ {
		c := b[len(b)-n]
		if !utf8.RuneStart(c) {
			continue
		}
		if c >= utf8.RuneSelf {
			if _, _, more := next(b[len(b)-n:]); more {
				return n
			}
		}
		return 0
	}
	return 0
}

// Clip returns text in at most limit characters (runes, not bytes; an invalid byte is one). Text that fits is returned
// as it is. Otherwise the first 40 % and the last 60 % are kept, and between them is said how many characters were
// omitted and how many there were; that notice is part of the budget. Where the budget is too small for a sentence it
// becomes "[7/12 omitted]", then "…". No character is split.
func Clip(text string, limit int) (clipped string, cut bool, omitted int) {
	limit = max(limit, 0)
	if len(text) <= limit { // a character has at least one byte
		return text, false, 0
	}
	total := utf8.RuneCountInString(text)
	if total <= limit {
		return text, false, 0
	}
	if limit == 0 {
		return "", true, total
	}
	notice, omitted := fit(longNotice, limit, total)
	if utf8.RuneCountInString(notice) > limit/2 {
		notice, omitted = fit(shortNotice, limit, total)
	}
	if utf8.RuneCountInString(notice) > limit/2 {
		notice, omitted = "…", total-limit+1
	}
	kept := total - omitted
	head := kept * headPercent / 100
	return firstRunes(text, head) + notice + lastRunes(text, kept-head), true, omitted
}

// fit returns the notice for a text of total characters of which limit, the notice included, can stay. What is omitted
// depends on the length of the notice, which names it; omitting more never makes it shorter, so the number only rises,
// and the length of a number has few steps.
func fit(notice func(omitted, total int) string, limit, total int) (said string, omitted int) {
	omitted = total - limit
	for {
		said = notice(omitted, total)
		next := min(total-limit+utf8.RuneCountInString(said), total)
		if next == omitted {
			return said, omitted
		}
		omitted = next
	}
}

func longNotice(omitted, total int) string {
	return "\n\n... [OUTPUT TRUNCATED: " + thousands(omitted) + " of " + thousands(total) + " characters omitted] ...\n\n"
}

func shortNotice(omitted, total int) string {
	return "[" + thousands(omitted) + "/" + thousands(total) + " omitted]"
}

// firstRunes returns the first n characters of s.
func firstRunes(s string, n int) string {
	end := 0
	for ; n > 0 && end < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return s[:end]
}

// lastRunes returns the last n characters of s.
func lastRunes(s string, n int) string {
	start := len(s)
	for ; n > 0 && start > 0; n-- {
		_, size := utf8.DecodeLastRuneInString(s[:start])
		start -= size
	}
	return s[start:]
}

// thousands writes n, which is not negative, as "1,234,567".
func thousands(n int) string {
	digits := strconv.Itoa(n)
	var s strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			s.WriteByte(',')
		}
		s.WriteRune(d)
	}
	return s.String()
}
