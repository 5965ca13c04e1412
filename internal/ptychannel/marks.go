package ptychannel

import (
	"bytes"
	"strings"
)

// marks takes the relay's words out of a terminal's output: RS, the token, a blank, words, newline. What stands before the first
// of them is the login shell's.
type marks struct {
	begin []byte
	seen  bool   // a mark came
	held  []byte // what may be the beginning of a mark, or is one that is not whole
	noise []byte // the end of what came before the first
}

const (
	noiseKept = 2 << 10
	maxMark   = 256
)

func newMarks(token string) *marks { return &marks{begin: []byte("\x1e" + token + " ")} }

// feed passes on the data in p and the words of each mark, in order. Data is valid during the call alone.
func (m *marks) feed(p []byte, data func([]byte), word func(fields []string)) {
	if len(m.held) > 0 {
		p = append(m.held, p...)
		m.held = nil
	}
	for len(p) > 0 {
		at := bytes.Index(p, m.begin)
		if at < 0 {
			keep := m.partial(p)
			m.pass(p[:len(p)-keep], data)
			m.held = append([]byte(nil), p[len(p)-keep:]...)
			return
		}
		m.pass(p[:at], data)
		rest := p[at+len(m.begin):]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 && len(rest) < maxMark {
			m.held = append([]byte(nil), p[at:]...)
			return
		}
		end = max(end, 0)
		m.seen = true
		word(strings.Fields(string(rest[:end])))
		p = rest[min(end+1, len(rest)):]
	}
}

// rest passes on what was held back, at the end of the stream.
func (m *marks) rest(data func([]byte)) {
	m.pass(m.held, data)
	m.held = nil
}

func (m *marks) pass(p []byte, data func([]byte)) {
	switch {
	case len(p) == 0:
	case m.seen:
		data(p)
	default:
		m.noise = append(m.noise, p...)
		m.noise = m.noise[max(0, len(m.noise)-noiseKept):]
	}
}

// partial is how many bytes at the end of p may begin a mark.
func (m *marks) partial(p []byte) int {
	for n := min(len(m.begin)-1, len(p)); n > 0; n-- {
		if bytes.HasSuffix(p, m.begin[:n]) {
			return n
		}
	}
	return 0
}
