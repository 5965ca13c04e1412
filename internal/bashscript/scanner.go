package bashscript

import (
	"bytes"
	"strconv"
	"strings"
)

// Report is one report of a bash.
type Report struct {
	Kind   byte     // R B E P S U F; on stderr b and e
	Fields []string // decoded
}

// fields tells how many fields follow each kind of report; a letter that is not here is no report.
var fields = map[byte]int{'R': 4, 'B': 2, 'E': 3, 'P': 3, 'S': 0, 'U': 0, 'F': 0, 'b': 0, 'e': 0}

// Code is the exit code in an E or P report. It is not certain where the shell dies of a signal, or where its streams are not
// what they were: then the process's own end says whether it was a signal.
func (r Report) Code() (code int, certain bool) {
	text, uncertain := strings.CutPrefix(r.Fields[0], "?")
	code, err := strconv.Atoi(text)
	if err != nil {
		return -1, false
	}
	return code, !uncertain
}

// Moved tells whether a shell's streams were not what they had been when it ended (E or P), and MarksStderr whether stderr's end is
// marked there where the streams were kept apart: not where the copy is gone by which that is done.
func (r Report) Moved() bool       { return r.Fields[2] != "" }
func (r Report) MarksStderr() bool { return r.Fields[2] != "1" }

// maxReport bounds a report's length: a path of 4,096 bytes, all of them encoded, and the rest.
const maxReport = 16 << 10

// Scanner takes the reports of one token out of a stream of bytes and passes everything else on, byte for byte. A token
// that is not followed by a report (a command may print one, or a part of one) is passed on too.
type Scanner struct {
	token []byte
	held  []byte // what may be the start of a report, from its first byte on
}

// NewScanner returns a Scanner for token, which must not be empty.
func NewScanner(token string) *Scanner { return &Scanner{token: []byte(token)} }

// Feed reads the next bytes of the stream. data gets what is output and report each report, in the order of the stream; p
// may be passed to data and is not kept.
func (s *Scanner) Feed(p []byte, data func([]byte), report func(Report)) {
	if len(s.held) > 0 {
		p = append(s.held, p...)
		s.held = nil
	}
	for len(p) > 0 {
		i := bytes.Index(p, s.token)
		if i < 0 {
			n := s.tail(p)
			emit(data, p[:len(p)-n])
			s.hold(p[len(p)-n:])
			return
		}
		emit(data, p[:i])
		p = p[i:]
		r, n, more := parse(p[len(s.token):])
		switch {
		case more:
			s.hold(p)
			return
		case n == 0:
			emit(data, p[:len(s.token)])
			p = p[len(s.token):]
		default:
			report(r)
			p = p[len(s.token)+n:]
		}
	}
}

// Rest returns what was held back as a possible start of a report when the stream ended.
func (s *Scanner) Rest() []byte {
	rest := s.held
	s.held = nil
	return rest
}

func (s *Scanner) hold(p []byte) {
	if len(p) > 0 {
		s.held = append([]byte(nil), p...)
	}
}

// tail tells how many bytes at the end of p may be the start of the token.
func (s *Scanner) tail(p []byte) int {
	for n := min(len(s.token)-1, len(p)); n > 0; n-- {
		if p[len(p)-n] == s.token[0] && bytes.HasPrefix(s.token, p[len(p)-n:]) {
			return n
		}
	}
	return 0
}

// parse reads a report behind its token: its length, 0 where there is none; more says that its end is not there yet.
func parse(p []byte) (r Report, n int, more bool) {
	if len(p) == 0 {
		return r, 0, true
	}
	count, ok := fields[p[0]]
	if !ok {
		return r, 0, false
	}
	r.Kind = p[0]
	if count > 0 {
		r.Fields = make([]string, 0, count)
	}
	n = 1
	for range count {
		i := bytes.IndexByte(p[n:], ';')
		if i < 0 {
			return r, 0, len(p) < maxReport
		}
		r.Fields = append(r.Fields, decode(string(p[n:n+i])))
		n += i + 1
	}
	return r, n, false
}

var decoder = strings.NewReplacer("%3B", ";", "%0A", "\n", "%25", "%")

func decode(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	return decoder.Replace(s)
}

func emit(data func([]byte), p []byte) {
	if len(p) > 0 {
		data(p)
	}
}
