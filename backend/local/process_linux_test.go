package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashproc"
)

// onTerminal is run with a controlling terminal: it sees that it has one and that its bash has none.
func onTerminal() int {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		fmt.Println("no terminal here:", err)
		return 1
	}
	_ = tty.Close()
	box, err := Backend().Open(context.Background(), driver.OpenRequest{
		Config: config{}, Environ: os.Environ(), Dir: "/",
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer box.Close(context.Background())
	p, err := box.Bash(context.Background(), driver.BashSpec{Args: []string{"-c",
		`echo $$; read -r stat </proc/$$/stat; echo "${stat##*) }"; pwd; (: </dev/tty) 2>/dev/null || echo none`}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = io.Copy(os.Stdout, p.Stdout())
	return 0
}

func TestABashLeadsItsOwnSessionWithoutATerminal(t *testing.T) {
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ptmx.Close()
	if err := unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	pts, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pts.Close()
	cmd := again("terminal")
	cmd.Stdin = pts
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	fields := strings.Fields(string(out))
	// After the name in /proc/PID/stat: state, ppid, pgrp, session, tty.
	if len(fields) < 8 || fields[3] != fields[0] || fields[4] != fields[0] || fields[5] != "0" {
		t.Fatalf("want pgrp and session to be the bash and no tty in %q", fields)
	}
	if end := fields[len(fields)-2:]; end[0] != "/" || end[1] != "none" {
		t.Errorf("want the directory / and no /dev/tty, got %q", end)
	}
}

func TestNoDescriptorOfTheHostReachesABash(t *testing.T) {
	fd, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	const high = 57
	if err := unix.Dup3(fd, high, 0); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(high)
	for _, fd := range []int{fd, high} {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Fatalf("descriptor %d would be closed anyway: %v", fd, err)
		}
	}
	got := output(t, openBox(t, request(t)), `for ((i = 0; i < 300; i++)); do [[ -e /proc/$$/fd/$i ]] && echo -n "$i "; done`)
	if got != "0 1 2 " {
		t.Errorf("the bash has descriptors %s", got)
	}
}

func TestTheStreamsOfABashBlockAsPipesDo(t *testing.T) {
	got := output(t, openBox(t, request(t)), `for i in 0 1 2; do while read -r key value; do [[ $key != flags: ]] || echo "$i $((value & 04000))"; done </proc/$$/fdinfo/$i; done`)
	if got != "0 0\n1 0\n2 0\n" {
		t.Errorf("O_NONBLOCK by descriptor: %q", got)
	}
}

func TestAWriteToABashThatEndedIsAnError(t *testing.T) {
	p := start(t, openBox(t, request(t)), "exit 0")
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
}

// closedStdio has no 0, 1 and 2, so that the next pipes would get these numbers. It ends with 0 where a write to an
// ended bash is an error, and by SIGPIPE where it is not.
func closedStdio() int {
	for fd := range 3 {
		_ = syscall.Close(fd)
	}
	p, err := bashproc.Start("/bin/bash", []string{"bash", "-c", "echo out; echo err >&2"}, nil)
	if err != nil {
		return 2
	}
	out, _ := io.ReadAll(p.Stdout())
	stderr, _ := io.ReadAll(p.Stderr())
	if string(out) != "out\n" || string(stderr) != "err\n" {
		return 3
	}
	_, _ = p.Wait(context.Background())
	if _, err := p.Stdin().Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		return 4
	}
	return 0
}

func TestAHostWithoutItsOwnStreamsDoesNotDieOfABrokenPipe(t *testing.T) {
	if out, err := again("closed stdio").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestAReadCanHaveADeadline(t *testing.T) {
	p := start(t, openBox(t, request(t)), "read -r; echo late; echo late >&2")
	for _, stream := range []io.Reader{p.Stdout(), p.Stderr()} {
		file := stream.(*os.File)
		if err := file.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := file.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("got %d, %v", n, err)
		}
		_ = file.SetReadDeadline(time.Time{})
	}
	_, _ = io.WriteString(p.Stdin(), "\n")
	out, _ := io.ReadAll(p.Stdout())
	stderr, _ := io.ReadAll(p.Stderr())
	if string(out) != "late\n" || string(stderr) != "late\n" {
		t.Errorf("after the deadline: %q, %q", out, stderr)
	}
}

func TestManyMayWaitAndOneMayStopWaiting(t *testing.T) {
	p := start(t, openBox(t, request(t)), "read -r; kill -USR1 $$")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Wait(gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			status, err := p.Wait(t.Context())
			if err != nil || status != (driver.ExitStatus{Code: 128 + int(syscall.SIGUSR1), Signal: "USR1"}) {
				t.Errorf("got %+v, %v", status, err)
			}
		})
	}
	_, _ = io.WriteString(p.Stdin(), "\n")
	wg.Wait()
	if _, err := p.Wait(gone); err != nil {
		t.Errorf("an ended process has an end for a canceled caller too: %v", err)
	}
}

func TestKillEndsTheBashAndItsGroup(t *testing.T) {
	p := start(t, openBox(t, request(t)), `trap "" TERM; sleep 1000 & echo $!; wait`)
	out := bufio.NewReader(p.Stdout())
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child was never seen alive: %v", err)
	}
	for range 2 {
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	status, err := p.Wait(t.Context())
	if err != nil || status != (driver.ExitStatus{Code: 137, Signal: "KILL"}) {
		t.Errorf("got %+v, %v", status, err)
	}
	// The child held the stream: its end is the child's end.
	if err := p.Stdout().(*os.File).SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Errorf("the child lives: %v", err)
	}
}

func TestABashThatIsNotThereIsUnavailable(t *testing.T) {
	none, odd := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(none, "bash"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(odd, "bash"), []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := bashIn([]string{none, odd, "relative", ""})
	if err == nil || Backend().Classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "install bash") {
		t.Errorf("got %v", err)
	}
	box := openBox(t, request(t))
	box.(*sandbox).bash = filepath.Join(none, "gone")
	const tries = 20 // the runtime and other sandboxes may open one or two for themselves meanwhile
	before, _ := os.ReadDir("/proc/self/fd")
	for range tries {
		_, err = box.Bash(t.Context(), driver.BashSpec{})
		if err == nil || Backend().Classify(err) != driver.KindUnavailable {
			t.Fatalf("got %v", err)
		}
	}
	if after, _ := os.ReadDir("/proc/self/fd"); len(after) >= len(before)+tries {
		t.Errorf("%d descriptors before %d failed starts, %d after", len(before), tries, len(after))
	}
}

func TestABashHasTheVariablesOfItsSpecInPlaceOfTheCallers(t *testing.T) {
	box := openBox(t, request(t, "A=caller", "B=caller", "B=second"))
	got := output(t, box, `env | grep -E '^(A|B|C)='`, "A=spec", "C=spec")
	lines := strings.Fields(got)
	slices.Sort(lines)
	if want := []string{"A=spec", "B=second", "C=spec"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}

func BenchmarkBash(b *testing.B) {
	box, err := Backend().Open(b.Context(), driver.OpenRequest{Config: config{}, Environ: os.Environ(), Dir: "/"})
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close(context.Background())
	for b.Loop() {
		p, err := box.Bash(b.Context(), driver.BashSpec{Args: []string{"--norc", "--noprofile", "-c", ":"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		_ = p.Stdin().Close()
		_ = p.Stdout().Close()
		_ = p.Stderr().Close()
	}
}

func BenchmarkOpen(b *testing.B) {
	backend := Backend()
	req := driver.OpenRequest{Config: config{}, Environ: os.Environ(), Dir: "/", Identity: driver.Identity{Home: b.TempDir()}}
	for b.Loop() {
		box, err := backend.Open(b.Context(), req)
		if err != nil {
			b.Fatal(err)
		}
		_ = box.Close(context.Background())
	}
}
