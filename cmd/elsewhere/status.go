package main

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// statusLine is the last line of a terminal, on which a slow step says how far it is: one text in place of another, wiped
// when the step is done. Where its file is no terminal it shows nothing. It uses carriage returns and spaces alone, which
// every terminal knows. What else is meant for the file while a text may be there is written through Write.
type statusLine struct {
	file     *os.File
	terminal bool

	mu    sync.Mutex
	used  int // columns that hold a text now
	shows int // steps that are going on
}

func newStatusLine(file *os.File) *statusLine {
	return &statusLine{file: file, terminal: term.IsTerminal(int(file.Fd()))}
}

// begin gives what a slow step tells its progress to, and what ends it: after done nothing is shown any more, whoever still
// tells. show may be called from any goroutine.
func (s *statusLine) begin() (show func(string), done func()) {
	if !s.terminal {
		return func(string) {}, func() {}
	}
	ended := false
	s.mu.Lock()
	s.shows++
	s.mu.Unlock()
	show = func(text string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !ended {
			s.draw(text)
		}
	}
	done = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ended {
			return
		}
		ended = true
		if s.shows--; s.shows == 0 {
			s.wipe()
		}
	}
	return show, done
}

// steps gives what the slow steps of a sandbox tell their progress to, as long as it lives: an empty text ends a step, and so does
// end, after which another one may begin.
func (s *statusLine) steps() (tell func(string), end func()) {
	var mu sync.Mutex
	var show func(string)
	var done func()
	end = func() {
		mu.Lock()
		defer mu.Unlock()
		if done != nil {
			done()
		}
		show, done = nil, nil
	}
	tell = func(text string) {
		if text == "" {
			end()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if show == nil {
			show, done = s.begin()
		}
		show(text)
	}
	return tell, end
}

// draw puts text in place of what is there.
func (s *statusLine) draw(text string) {
	width, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil || width < 2 {
		width = 80
	}
	cells := []rune(oneLine(text))
	if most := width - 1; len(cells) > most { // the last column would make some terminals begin a new line
		cells = append(cells[:max(most-3, 0)], []rune("...")...)
	}
	_, _ = s.file.WriteString("\r" + string(cells) + strings.Repeat(" ", max(min(s.used, width-1)-len(cells), 0)))
	s.used = len(cells)
}

func (s *statusLine) wipe() {
	if s.used > 0 {
		_, _ = s.file.WriteString("\r" + strings.Repeat(" ", s.used) + "\r")
		s.used = 0
	}
}

// Write writes to the file, on a line that no status text is on.
func (s *statusLine) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	return s.file.Write(p)
}
