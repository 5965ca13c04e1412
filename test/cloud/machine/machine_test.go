//go:build linux

package machine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tree is the testbed's.
const tree = "/var/cache/elsewhere-testbed/rootfs"

func host(t *testing.T) *Host {
	t.Helper()
	h, err := NewHost(t.TempDir(), tree)
	if err != nil {
		if os.Getenv("REQUIRE_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func started(t *testing.T, h *Host, img Image, name string) *Machine {
	t.Helper()
	m, err := h.New(img, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	return m
}

// run runs a command to its end and gives what it printed.
func run(t *testing.T, m *Machine, script string) (string, int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.StartCommand(Command{Args: []string{"bash", "-c", script}, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	code, _ := p.Wait()
	return string(out), code
}

func TestTwoMachinesShareNothing(t *testing.T) {
	h := host(t)
	a, b := started(t, h, h.Base(), "a"), started(t, h, h.Base(), "b")
	if out, code := run(t, a, "echo of-a > /root/file; echo of-a > /tmp/file; mkdir -p /workspace; hostname; exit 3"); out != "a\n" || code != 3 {
		t.Errorf("a: %q, %d", out, code)
	}
	if out, code := run(t, b, "cat /root/file /tmp/file /workspace 2>/dev/null; hostname; ls /proc | grep -c '^[0-9]*$'"); code != 0 || !strings.HasPrefix(out, "b\n") || len(out) > 5 {
		t.Errorf("b: %q, %d", out, code)
	}
	if _, err := os.Stat("/root/file"); err == nil {
		t.Error("a machine wrote to the host")
	}
	if _, err := os.Stat(filepath.Join(tree, "workspace")); err == nil {
		t.Error("a machine wrote to its image")
	}
	run(t, a, "kill -9 -1")
	if out, code := run(t, b, "echo lives"); out != "lives\n" || code != 0 {
		t.Errorf("the other one: %q, %d", out, code)
	}
}

func TestAStoppedMachineHasNoProcessesAndItsFiles(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	p, err := m.StartCommand(Command{Args: []string{"bash", "-c", "echo kept > /root/file; setsid sleep 1000 & sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(m.Root(), "root/file")
	for {
		if text, err := os.ReadFile(kept); err == nil && string(text) == "kept\n" {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	if code, signal := p.Wait(); signal != syscall.SIGKILL {
		t.Errorf("the command ended with %d, %v", code, signal)
	}
	if _, err := m.StartCommand(Command{Args: []string{"true"}}); err != ErrNotRunning {
		t.Errorf("a command of a stopped machine: %v", err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if out, _ := run(t, m, "cat /root/file; ps ax | grep -c '[s]leep 1000'"); out != "kept\n0\n" {
		t.Errorf("after the start: %q", out)
	}
}

func TestAnImageIsACopy(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	run(t, m, "echo first > /root/file; rm -r /usr/share/doc; mkdir /usr/share/doc; ln -s file /root/link")
	img, err := m.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	run(t, m, "echo second > /root/file")
	other := started(t, h, img, "other")
	if out, _ := run(t, other, "cat /root/link; ls -A /usr/share/doc | wc -l"); out != "first\n0\n" {
		t.Errorf("the restored files: %q", out)
	}
	run(t, other, "rm /root/file")
	again, err := other.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	third := started(t, h, again, "third")
	if out, _ := run(t, third, "cat /root/file 2>&1; readlink /root/link"); !strings.Contains(out, "No such file") || !strings.HasSuffix(out, "file\n") {
		t.Errorf("an image of an image: %q", out)
	}
	if out, _ := run(t, m, "cat /root/file"); out != "second\n" {
		t.Errorf("the first machine: %q", out)
	}
	if img.Size() == 0 || img.Equal(h.Base()) {
		t.Error("the image is empty")
	}
}

func TestACommandHasItsEnvironmentDirectoryAndUser(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.StartCommand(Command{
		Args: []string{"sh", "-c", `pwd; id -u; id -g; echo "$A"; env | wc -l`}, Env: []string{"A=1 2"}, Dir: "/usr/lib", UID: 1234, GID: 4321, Stdout: w,
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	p.Wait()
	// A, PATH, and what bash and sh set: PWD, SHLVL, OLDPWD, _.
	if !strings.HasPrefix(string(out), "/usr/lib\n1234\n4321\n1 2\n") {
		t.Errorf("%q", out)
	}
	if _, code := run(t, m, "exec no-such-program-here"); code != 127 {
		t.Errorf("a program that is not there: %d", code)
	}
}

func TestASignalReachesTheCommandOrItsGroup(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	for _, c := range []struct {
		script string
		signal syscall.Signal
		group  bool
		code   int
		by     syscall.Signal
	}{
		{"echo; exec sleep 1000", syscall.SIGTERM, false, 143, syscall.SIGTERM},
		{"echo; exec sleep 1000", syscall.SIGINT, true, 130, syscall.SIGINT},
		{"trap 'exit 9' TERM; echo; while :; do sleep 0.01; done", syscall.SIGTERM, true, 9, 0},
		{"echo; sleep 1000; exit 4", syscall.SIGKILL, true, 137, syscall.SIGKILL},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.StartCommand(Command{Args: []string{"bash", "-c", c.script}, Stdout: w})
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if p.PID() < 2 {
			t.Errorf("its pid is %d", p.PID())
		}
		if err := p.Signal(c.signal, c.group); err != nil {
			t.Error(err)
		}
		if code, by := p.Wait(); code != c.code || by != c.by {
			t.Errorf("%q after %v: %d, %v", c.script, c.signal, code, by)
		}
		if err := p.Signal(syscall.SIGTERM, true); err != nil {
			t.Errorf("one that has ended: %v", err)
		}
	}
}

func TestATerminalIsTheCommandsOwn(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	p, err := m.StartCommand(Command{Args: []string{"bash", "--norc", "-c", `tty; stty size; read -r line </dev/tty; echo "got $line"; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.01; done`}, Terminal: &Size{100, 30}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Terminal.Close()
	if _, err := io.WriteString(p.Terminal, "word\n"); err != nil {
		t.Fatal(err)
	}
	var seen bytes.Buffer
	buffer := make([]byte, 1024)
	resized := false
	for {
		n, err := p.Terminal.Read(buffer)
		seen.Write(buffer[:n])
		if !resized && strings.Contains(seen.String(), "ready") {
			resized = true
			if err := p.Resize(Size{120, 40}); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	code, _ := p.Wait()
	if text := seen.String(); code != 5 || !strings.Contains(text, "/dev/pts/") || !strings.Contains(text, "30 100") || !strings.Contains(text, "got word") || !strings.Contains(text, "40 120") {
		t.Errorf("%d, %q", code, text)
	}
}

func TestAMachineWithAStoppedCommandEnds(t *testing.T) {
	h := host(t)
	m := started(t, h, h.Base(), "m")
	p, err := m.StartCommand(Command{Args: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGSTOP, true); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); stateOf(p.process.Pid) != 'T'; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it was not stopped")
		}
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	if _, signal := p.Wait(); signal != syscall.SIGKILL {
		t.Errorf("ended by %v", signal)
	}
}

// stateOf is a process's state as the kernel names it, 0 where there is none.
func stateOf(pid int) byte {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	if rest == "" {
		return 0
	}
	return rest[0]
}
