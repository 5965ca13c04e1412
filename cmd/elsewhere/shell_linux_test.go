//go:build linux

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

func TestShellGivesTheTerminalBackAsItWas(t *testing.T) {
	for _, sig := range []syscall.Signal{0, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(fmt.Sprint(sig), func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, "shell")
			near, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer near.Close()
			defer tty.Close()
			before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			if err := pty.Setsize(near, &pty.Winsize{Rows: 33, Cols: 101}); err != nil {
				t.Fatal(err)
			}
			p.Stdin, p.Stdout = tty, tty
			p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			p.start()
			p.await(near, "@")
			fmt.Fprint(near, "echo size; stty size\n")
			p.await(near, "33 101")
			during, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil || during.Lflag == before.Lflag {
				t.Errorf("the terminal was not raw (%v)", err)
			}
			if sig == 0 {
				fmt.Fprint(near, "exit 7\n")
				p.wantExit(7)
			} else {
				p.signal(sig)
				p.wantExit(128 + int(sig))
			}
			after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal is %+v after it, was %+v (%v)", after, before, err)
			}
		})
	}
}

func TestShellNeedsATerminal(t *testing.T) {
	p := newProgram(t, "shell")
	p.start()
	p.wantExit(exitOwn)
	if text := p.stderr.String(); !strings.Contains(text, "standard input is no terminal") {
		t.Errorf("standard error: %s", text)
	}
}
