package mcpserver

import "io"

// plain passes on what a terminal shows as text: without the sequences that move, colour and set, with a newline in place of each way
// to begin a line, and without other control characters. It sees bytes as they come; UTF-8 goes through as it is.
type plain struct {
	to io.Writer
	escape
	buffer []byte
}

// escape is what plain remembers of what came.
type escape struct {
	state byte // of a sequence; 0 outside
	cr    bool // a carriage return came last
}

// What plain is in the middle of.
const (
	inEscape = 'e' // ESC
	inCSI    = '['
	inString = ']' // OSC, DCS and their kin, to BEL or ST
	inTail   = '\\'
)

func (w *plain) Write(p []byte) (int, error) {
	w.buffer = w.buffer[:0]
	for _, c := range p {
		w.take(c)
	}
	if _, err := w.to.Write(w.buffer); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *plain) take(c byte) {
	switch w.state {
	case inEscape, inTail:
		switch {
		case c == '[' && w.state == inEscape:
			w.state = inCSI
		case (c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X') && w.state == inEscape:
			w.state = inString
		case c >= 0x20 && c < 0x30 && w.state == inEscape: // more follows
		default:
			w.state = 0
		}
	case inCSI:
		if c >= 0x40 && c < 0x7f {
			w.state = 0
		}
	case inString:
		switch c {
		case 0x07:
			w.state = 0
		case 0x1b:
			w.state = inTail
		}
	default:
		w.text(c)
	}
}

func (w *plain) text(c byte) {
	if c == '\r' {
		w.cr = true
		return
	}
	if c == 0x1b {
		w.state = inEscape
		return
	}
	if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
		return
	}
	if w.cr && c != '\n' {
		w.buffer = append(w.buffer, '\n')
	}
	w.cr = false
	w.buffer = append(w.buffer, c)
}
