//go:build unix

package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// openTerminal opens a terminal for a status line, both ends of it, or skips the test.
func openTerminal(t *testing.T) (terminal, file *os.File) {
	t.Helper()
	terminal, file, err := pty.Open()
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	t.Cleanup(func() { _, _ = terminal.Close(), file.Close() })
	t.Setenv("TERM", "xterm")
	return terminal, file
}

// TestStepsOfACall: a step that is told of after another one has ended is shown too, and each is wiped by its end.
func TestStepsOfACall(t *testing.T) {
	terminal, file := openTerminal(t)
	s := newStatusLine(file)
	tell, end := s.steps()
	tell("opening 1 of 2")
	tell("opening 2 of 2")
	end()
	tell("") // nothing goes on
	tell("sending 1 of 2")
	tell("")
	if _, err := file.WriteString("output\n"); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(terminal).ReadString('\n')
		got <- line
	}()
	select {
	case line := <-got:
		blank := strings.Repeat(" ", 14)
		if want := "\ropening 1 of 2\ropening 2 of 2\r" + blank + "\r\rsending 1 of 2\r" + blank + "\routput\r\n"; line != want {
			t.Errorf("%q\nwant\n%q", line, want)
		}
	case <-time.After(promised):
		t.Fatal("nothing came")
	}
}

// TestALongStepIsSaidOnceWhereNothingIsRedrawn: in a pipe and on a terminal that cannot go back on a line, and not at all where JSON is wanted.
func TestALongStepIsSaidOnceWhereNothingIsRedrawn(t *testing.T) {
	const line = "elsewhere: notice: this takes a while: pulling base: 40 %\n"
	for _, c := range []struct {
		name  string
		quiet bool
		want  string
	}{{"as text", false, line}, {"as JSON", true, ""}} {
		t.Run(c.name, func(t *testing.T) {
			from, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			s := newStatusLine(to)
			s.quiet, s.tick, s.long = c.quiet, time.Millisecond, 0
			show, done := s.begin()
			show("pulling base: 40 %")
			if !c.quiet {
				saying(t, s)
			}
			show("pulling base: 50 %")
			done()
			again, over := s.begin()
			again("starting it")
			over()
			if err := to.Close(); err != nil {
				t.Fatal(err)
			}
			text := make([]byte, 1000)
			n, _ := from.Read(text)
			if got := string(text[:n]); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}

	t.Setenv("TERM", "dumb")
	terminal, file, err := pty.Open()
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer terminal.Close()
	defer file.Close()
	s := newStatusLine(file)
	s.tick, s.long = time.Millisecond, 0
	if !s.terminal {
		t.Error("nobody can be asked there")
	}
	show, done := s.begin()
	show("pulling base: 40 %")
	saying(t, s)
	done()
	if got, err := bufio.NewReader(terminal).ReadString('\n'); err != nil || got != strings.Replace(line, "\n", "\r\n", 1) {
		t.Errorf("a dumb terminal got %q, %v", got, err)
	}
}

// saying waits until a long step was said.
func saying(t *testing.T, s *statusLine) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		said := s.saidOne
		s.mu.Unlock()
		if said {
			return
		}
		if time.Since(begun) > promised {
			t.Fatal("it was not said")
		}
	}
}

// TestATextThatStandsSaysForHowLong: a terminal shows that something goes on, also where a backend cannot say how far it is.
func TestATextThatStandsSaysForHowLong(t *testing.T) {
	terminal, file := openTerminal(t)
	s := newStatusLine(file)
	s.tick = time.Hour
	p := &step{line: s, over: make(chan struct{})}
	p.show("making it")
	p.again(p.since.Add(timedFrom - time.Second))
	p.again(p.since.Add(7 * time.Second))
	p.show("making it")
	p.show("starting it")
	p.again(p.since.Add(time.Second))
	if _, err := file.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	want := "\rmaking it\rmaking it (7 s)\rstarting it    \r\n"
	if got, err := bufio.NewReader(terminal).ReadString('\n'); err != nil || got != want {
		t.Errorf("%q, %v\nwant\n%q", got, err, want)
	}
}
