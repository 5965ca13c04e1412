//go:build unix

package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// style is how a character looks: a colour of 16, and two more ways.
type style struct {
	colour    int // 0 to 15; -1 is the terminal's own
	bold, dim bool
}

var plain = style{colour: -1}

type cell struct {
	char rune
	style
}

// screen is a terminal as far as a session needs it: characters, line breaks, carriage returns and colours. It has no bottom.
type screen struct {
	columns int
	rows    [][]cell
	col     int
	style   style
}

func newScreen(columns int) *screen {
	return &screen{columns: columns, rows: [][]cell{nil}, style: plain}
}

// write shows text. Commands other than colours are left out.
func (s *screen) write(text string) {
	for len(text) > 0 {
		if strings.HasPrefix(text, "\x1b[") {
			end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return
			}
			if text[2+end] == 'm' {
				s.colour(text[2 : 2+end])
			}
			text = text[2+end+1:]
			continue
		}
		char, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case char == '\n':
			s.rows, s.col = append(s.rows, nil), 0
		case char == '\r':
			s.col = 0
		case char >= ' ' && char != 0x7f:
			s.put(char)
		}
	}
}

// blank tells whether the last line shows nothing.
func (s *screen) blank() bool {
	for _, c := range s.rows[len(s.rows)-1] {
		if c.char != ' ' {
			return false
		}
	}
	return true
}

func (s *screen) put(char rune) {
	if s.col == s.columns {
		s.rows, s.col = append(s.rows, nil), 0
	}
	row := &s.rows[len(s.rows)-1]
	for len(*row) <= s.col {
		*row = append(*row, cell{' ', plain})
	}
	(*row)[s.col] = cell{char, s.style}
	s.col++
}

// colour takes the parameters of a command for colours.
func (s *screen) colour(params string) {
	for param := range strings.SplitSeq(params, ";") {
		switch n, _ := strconv.Atoi(param); {
		case n == 0:
			s.style = plain
		case n == 1:
			s.style.bold = true
		case n == 2:
			s.style.dim = true
		case n == 22:
			s.style.bold, s.style.dim = false, false
		case n >= 30 && n <= 37:
			s.style.colour = n - 30
		case n == 39:
			s.style.colour = -1
		case n >= 90 && n <= 97:
			s.style.colour = n - 90 + 8
		}
	}
}
