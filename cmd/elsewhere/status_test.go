//go:build unix

package main

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestStepsOfACall: a step that is told of after another one has ended is shown too, and each is wiped by its end.
func TestStepsOfACall(t *testing.T) {
	terminal, file, err := pty.Open()
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	defer terminal.Close()
	defer file.Close()
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
