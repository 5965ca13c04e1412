package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// statusLine is the last line of a terminal, on which a slow step says how far it is: one text in place of another, wiped
// when the step is done. It uses carriage returns and spaces alone, which every terminal knows. What else is meant for the file
// while a text may be there is written through Write.
//
// Where its file is no terminal, or one that cannot go back on a line (TERM=dumb), a step that takes long is said once, on a line of
// its own; quiet says nothing there.
type statusLine struct {
	file     *os.File
	terminal bool // somebody looks, and can be asked
	redraws  bool // what is on the last line can be changed
	quiet    bool

	tick, long time.Duration // how often it is drawn again, and after what time a step is long

	mu      sync.Mutex
	used    int // columns that hold a text now
	shows   int // steps that are going on
	saidOne bool
}

const (
	statusTick = time.Second
	longStep   = 10 * time.Second
	// timedFrom is how long the same text stands before it says for how long.
	timedFrom = 3 * time.Second
)

func newStatusLine(file *os.File) *statusLine {
	terminal := term.IsTerminal(int(file.Fd()))
	return &statusLine{file: file, terminal: terminal, redraws: terminal && os.Getenv("TERM") != "dumb", tick: statusTick, long: longStep}
}

// step is one slow step.
type step struct {
	line  *statusLine
	begun time.Time
	text  string
	since time.Time // the text stands
	ended bool
	over  chan struct{}
	gone  sync.WaitGroup
}

// begin gives what a slow step tells its progress to, and what ends it: after done nothing is shown any more, whoever still
// tells. show may be called from any goroutine.
func (s *statusLine) begin() (show func(string), done func()) {
	if !s.redraws && s.quiet {
		return func(string) {}, func() {}
	}
	p := &step{line: s, begun: time.Now(), over: make(chan struct{})}
	s.mu.Lock()
	s.shows++
	s.mu.Unlock()
	p.gone.Go(p.keep)
	return p.show, p.done
}

// keep draws the text again as time goes on, until the step is over.
func (p *step) keep() {
	ticker := time.NewTicker(p.line.tick)
	defer ticker.Stop()
	for {
		select {
		case <-p.over:
			return
		case now := <-ticker.C:
			p.again(now)
		}
	}
}

func (p *step) again(now time.Time) {
	s := p.line
	s.mu.Lock()
	defer s.mu.Unlock()
	switch stood := now.Sub(p.since); {
	case p.ended || p.text == "":
	case s.redraws && stood >= timedFrom:
		s.draw(fmt.Sprintf("%s (%d s)", p.text, int(stood.Seconds())))
	case !s.redraws && !s.saidOne && now.Sub(p.begun) >= s.long:
		s.saidOne = true
		notice(s.file, "this takes a while: "+p.text)
	}
}

func (p *step) show(text string) {
	s := p.line
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.ended || text == p.text {
		return
	}
	p.text, p.since = text, time.Now()
	if s.redraws {
		s.draw(text)
	}
}

func (p *step) done() {
	s := p.line
	s.mu.Lock()
	if p.ended {
		s.mu.Unlock()
		return
	}
	p.ended = true
	close(p.over)
	if s.shows--; s.shows == 0 {
		s.wipe()
	}
	s.mu.Unlock()
	p.gone.Wait()
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
