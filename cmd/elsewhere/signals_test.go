//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// These tests run the program as a user's shell does, and end it in the ways that a user can. What the command left
// running is seen by a heartbeat: a child in a session of its own that makes a file longer every 50 ms. It has to be
// seen beating before the end and to have stopped after it.

// promised is how long an end may take (a grace of 2 s and 1 s), with room for a slow machine.
const promised = 13 * time.Second

// beating is a command that prints "ready" and never ends, with a child that beats, both deaf to the signals that a
// terminal sends.
const beating = `trap '' INT HUP
setsid bash -c 'trap "" INT HUP; while :; do printf . >>"$HEART"; sleep 0.05; done' &
while [ ! -s "$HEART" ]; do sleep 0.05; done
echo ready; `

type program struct {
	*exec.Cmd
	t      *testing.T
	heart  string
	stderr bytes.Buffer
	ended  chan error
}

// newProgram makes a program that is not started yet.
func newProgram(t *testing.T, args ...string) *program {
	t.Helper()
	home := t.TempDir()
	p := &program{Cmd: exec.Command("elsewhere", args...), t: t, heart: filepath.Join(home, "heart"), ended: make(chan error, 1)}
	p.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "HEART=" + p.heart}
	p.Dir = home
	p.Stderr = &p.stderr
	return p
}

func (p *program) start() {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	p.t.Cleanup(func() { _ = p.Process.Kill() })
}

// startReading starts the program and returns its standard output, of which the line "ready" has been read.
func (p *program) startReading() io.ReadCloser {
	p.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.Stdout = w
	p.start()
	w.Close()
	p.t.Cleanup(func() { r.Close() })
	p.await(r, "ready")
	return r
}

// await reads until a line holds text.
func (p *program) await(r io.Reader, text string) {
	p.t.Helper()
	_ = r.(interface{ SetReadDeadline(time.Time) error }).SetReadDeadline(time.Now().Add(promised))
	var seen []byte
	for b := make([]byte, 1); !bytes.Contains(seen, []byte(text)); seen = append(seen, b[0]) {
		if _, err := r.Read(b); err != nil {
			p.t.Fatalf("waiting for %q: %v; read %q; standard error: %s", text, err, seen, p.stderr.String())
		}
	}
	_ = r.(interface{ SetReadDeadline(time.Time) error }).SetReadDeadline(time.Time{})
}

func (p *program) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// wantExit waits for the end and compares the exit code.
func (p *program) wantExit(code int) {
	p.t.Helper()
	select {
	case err := <-p.ended:
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		}
		if got != code {
			p.t.Errorf("exit code %d (%v), want %d; standard error: %s", got, err, code, p.stderr.String())
		}
	case <-time.After(promised):
		p.t.Fatalf("not ended after %s", promised)
	}
	if text := p.stderr.String(); strings.Contains(text, "goroutine") {
		p.t.Errorf("a stack trace: %s", text)
	}
}

func (p *program) beats() int64 {
	info, err := os.Stat(p.heart)
	if err != nil {
		return 0
	}
	return info.Size()
}

// wantBeating sees that the heart beats, and beats again.
func (p *program) wantBeating() {
	p.t.Helper()
	for range 2 {
		before := p.beats()
		for end := time.Now().Add(promised); p.beats() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				p.t.Fatalf("no heartbeat after %d", before)
			}
		}
	}
}

// wantStopped sees that the heart stops: no beat in the time of twenty.
func (p *program) wantStopped() {
	p.t.Helper()
	last, since := p.beats(), time.Now()
	if last == 0 {
		p.t.Fatal("it never beat")
	}
	for end := time.Now().Add(promised); time.Since(since) < time.Second; time.Sleep(10 * time.Millisecond) {
		if now := p.beats(); now != last {
			last, since = now, time.Now()
		}
		if time.Now().After(end) {
			p.t.Fatalf("still beating %s after the end", promised)
		}
	}
}

func TestASignalEndsTheCommandAndAllItStarted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, "run", beating+"sleep 1000")
			out := p.startReading()
			p.wantBeating()
			p.signal(sig)
			p.wantExit(128 + int(sig))
			p.wantStopped()
			if rest, _ := io.ReadAll(out); strings.TrimSpace(string(rest)) != "" {
				t.Errorf("standard output goes on with %q", rest)
			}
		})
	}
}

func TestASecondInterruptEndsElsewhereAtOnceAndTheWatchdogTheRest(t *testing.T) {
	t.Parallel()
	// With this grace the command outlives elsewhere by far: it is deaf to TERM.
	p := newProgram(t, "run", "--set", "daemon_term_grace_seconds=6", strings.ReplaceAll(beating, "INT HUP", "INT HUP TERM")+"sleep 1000")
	p.startReading()
	p.wantBeating()
	p.signal(syscall.SIGINT)
	p.wantBeating()
	p.signal(syscall.SIGINT)
	p.wantExit(130)
	p.wantBeating()
	p.wantStopped()
}

func TestAKilledElsewhereLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", beating+"sleep 1000")
	p.startReading()
	p.wantBeating()
	p.signal(syscall.SIGKILL)
	p.wantExit(-1)
	p.wantStopped()
}

func TestAClosedStandardOutputEndsTheCommand(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", beating+"while :; do echo more; sleep 0.05; done")
	out := p.startReading()
	p.wantBeating()
	out.Close()
	p.wantExit(128 + int(syscall.SIGPIPE))
	p.wantStopped()
	if text := p.stderr.String(); strings.Contains(text, "pipe") {
		t.Errorf("standard error: %s", text)
	}
}

func TestAReaderThatStoppedReadingDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", beating+"yes")
	p.startReading()
	p.wantBeating()
	p.signal(syscall.SIGTERM)
	p.wantExit(128 + int(syscall.SIGTERM))
	p.wantStopped()
}

func TestAFullDiskIsOneClearError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	for _, args := range [][]string{{"run", "yes"}, {"run", "--json", "true"}, {"version"}, {"version", "--json"}} {
		p := newProgram(t, args...)
		p.Stdout = full
		p.start()
		p.wantExit(exitOwn)
		if text := p.stderr.String(); !strings.Contains(text, "elsewhere: write standard output: no space left on device; ") {
			t.Errorf("%v: standard error: %s", args, text)
		}
	}
}

func TestASignalThatWasIgnoredFromTheStartStaysIgnored(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	bin, err := exec.LookPath("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	p.Path, p.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP; exec "$@"`, "sh", bin, "run", beating + `
		before=$(wc -c <"$HEART"); while [ "$(wc -c <"$HEART")" -lt $((before+20)) ]; do sleep 0.05; done`}
	p.startReading()
	p.signal(syscall.SIGHUP)
	p.wantExit(0)
	p.wantStopped() // what the throw-away session left ends behind the program
}

// onTerminal starts the program as a shell's foreground job on a terminal of its own.
func (p *program) onTerminal() *os.File {
	p.t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		p.t.Fatal(err)
	}
	defer tty.Close()
	p.Stdin, p.Stdout, p.Stderr = tty, tty, tty
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.start()
	p.t.Cleanup(func() { terminal.Close() })
	return terminal
}

func TestCtrlCOnATerminalInterruptsTheCommand(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", beating+"sleep 1000")
	terminal := p.onTerminal()
	p.await(terminal, "ready")
	p.wantBeating()
	if _, err := terminal.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	p.wantExit(130)
	p.wantStopped()
}

func TestAClosedTerminalEndsTheCommand(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", beating+"while :; do echo more; sleep 0.05; done")
	terminal := p.onTerminal()
	p.await(terminal, "ready")
	p.wantBeating()
	terminal.Close()
	p.wantExit(128 + int(syscall.SIGHUP))
	p.wantStopped()
}

func TestACommandHasNeitherTheTerminalNorItsInput(t *testing.T) {
	t.Parallel()
	// A helper that takes the terminal would stop elsewhere when it reads there (SIGTTIN), or swallow what is typed.
	p := newProgram(t, "run", `cat; [ -t 0 ] || echo no-input; { true </dev/tty; } 2>/dev/null || echo no-terminal; echo done`)
	terminal := p.onTerminal()
	if _, err := fmt.Fprint(terminal, "typed ahead\n"); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for scan := bufio.NewScanner(terminal); scan.Scan(); {
		lines = append(lines, strings.TrimSpace(scan.Text()))
		if lines[len(lines)-1] == "done" {
			break
		}
	}
	p.wantExit(0)
	all := strings.Join(lines, "\n")
	for _, want := range []string{"no-input", "no-terminal", "done"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	if strings.Count(all, "typed ahead") > 1 {
		t.Errorf("the command read the terminal: %q", all)
	}
}

func TestInteractivePassesTheTerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", "-i", `read -r line; echo "got <$line>"`)
	terminal := p.onTerminal()
	if _, err := fmt.Fprint(terminal, "typed\n"); err != nil {
		t.Fatal(err)
	}
	p.await(terminal, "got <typed>")
	p.wantExit(0)
}
