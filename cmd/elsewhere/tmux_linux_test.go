//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// window is a pane of a tmux of its own, with a bash of this machine in it: a real terminal emulator, and what a person does there.
type window struct {
	p      *place
	socket string
	marks  int
}

// openWindow opens a window of 100 columns and 30 rows.
func (p *place) openWindow() *window {
	p.t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		p.t.Skip("no tmux here")
	}
	dir, err := os.MkdirTemp("/tmp", "ewtmux-")
	if err != nil {
		p.t.Fatal(err)
	}
	w := &window{p: p, socket: filepath.Join(dir, "s")}
	w.tmux("new-session", "-d", "-x", "100", "-y", "30", "bash --norc --noprofile")
	p.t.Cleanup(func() {
		cmd := exec.Command("tmux", "-S", w.socket, "kill-server")
		_ = cmd.Run() // it ends with its last pane
		_ = os.RemoveAll(dir)
	})
	w.types("PS1='near''> '\n")
	w.await("near>")
	return w
}

func (w *window) tmux(args ...string) string {
	w.p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-S", w.socket, "-f", "/dev/null"}, args...)...)
	cmd.Env, cmd.Dir = append(w.p.env, "SHELL=/bin/bash", "LANG=C.UTF-8"), w.p.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.p.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

// types types text as it is, and keys presses keys by tmux's names.
func (w *window) types(text string) { w.p.t.Helper(); w.tmux("send-keys", "-l", "--", text) }
func (w *window) keys(keys ...string) {
	w.p.t.Helper()
	w.tmux(append([]string{"send-keys"}, keys...)...)
}

// screen is what is to be seen, and formats asks tmux about the pane.
func (w *window) screen() string { w.p.t.Helper(); return w.tmux("capture-pane", "-p", "-S", "-200") }
func (w *window) format(format string) string {
	w.p.t.Helper()
	return w.tmux("display-message", "-p", format)
}

// eventually waits until ok.
func (w *window) eventually(what string, ok func() bool) {
	w.p.t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > promised {
			w.p.t.Fatalf("not seen: %s; the screen:\n%s", what, w.screen())
		}
	}
}

func (w *window) await(text string) {
	w.p.t.Helper()
	w.eventually(strconv.Quote(text), func() bool { return strings.Contains(w.screen(), text) })
}

// alternate waits until the pane shows its alternate screen, or no more.
func (w *window) alternate(on bool) {
	w.p.t.Helper()
	want := map[bool]string{true: "1", false: "0"}[on]
	w.eventually("alternate screen: "+want, func() bool { return w.format("#{alternate_on}") == want })
}

// runs gives a command to the shell in front and waits until it is over.
func (w *window) runs(command string) {
	w.p.t.Helper()
	w.types(command + "\n")
	w.marks++
	w.types(fmt.Sprintf("echo mark''-%d-\n", w.marks))
	w.await(fmt.Sprintf("mark-%d-", w.marks))
	w.prompt()
}

// prompt waits until the shell in front takes commands again. What is typed before it says so a program that leaves may throw away.
func (w *window) prompt() {
	w.p.t.Helper()
	w.eventually("a prompt", func() bool {
		s := w.screen()
		return strings.HasSuffix(s, "\nfar>") || strings.HasSuffix(s, "\nnear>") || s == "far>" || s == "near>"
	})
}

// shell opens a shell in the sandbox.
func (w *window) shell() {
	w.p.t.Helper()
	backend, task, _ := strings.Cut(w.p.address, "/")
	w.types(fmt.Sprintf("elsewhere shell -b %s --task %s; echo left''-$?-\n", backend, task))
	w.types("PS1='far''> '\n")
	w.await("far>")
	w.runs("cd; clear")
}

// has tells whether a program is there.
func (p *place) has(program string) bool {
	p.t.Helper()
	return strings.TrimSpace(p.there("command -v "+program+" >/dev/null && echo yes; true")) == "yes"
}

// TestRealProgramsOnATerminal uses, in tmux, programs that ask much of a terminal, on every engine that is here.
func TestRealProgramsOnATerminal(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		w := p.openWindow()
		w.shell()
		w.runs("stty size")
		w.await("30 100")
		w.tmux("resize-window", "-x", "110", "-y", "35")
		w.eventually("the new size", func() bool {
			w.runs("stty size")
			return strings.Contains(w.screen(), "35 110")
		})

		t.Log("bracketed paste")
		w.runs("clear")
		if p.has("bash") && strings.TrimSpace(p.there(`(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501 )) && echo yes; true`)) == "yes" {
			w.tmux("set-buffer", "echo o''ne\necho t''wo")
			w.tmux("paste-buffer", "-p", "-r")
			w.await("t''wo")
			w.keys("Enter")
			w.eventually("both lines at once", func() bool { return strings.Contains(w.screen(), "\none\ntwo\n") })
		}

		t.Log("a password")
		w.types("read -rs -p 'pass''word: ' x; echo; echo \"length=${#x}\"\n")
		w.await("password:")
		w.types("hush-hush\n")
		w.await("length=9")
		if strings.Contains(w.screen(), "hush") {
			t.Errorf("the password is to be seen:\n%s", w.screen())
		}

		t.Log("keys")
		w.types("bash -c 'echo a\"\"sleep; exec sleep 1000'\n")
		w.await("asleep")
		w.keys("C-c")
		w.runs("echo int=$?")
		w.await("int=130")
		w.types("bash -c 'echo b\"\"sleep; exec sleep 1000'\n")
		w.await("bsleep")
		w.keys("C-z")
		w.await("Stopped")
		w.types("fg\n")
		if ignored, _ := strconv.ParseUint(strings.TrimSpace(p.there(`while read -r k v; do [[ $k != SigIgn: ]] || echo $((16#$v & 4)); done </proc/$$/status`)), 10, 64); ignored == 0 {
			w.keys(`C-\`)
			w.runs("echo quit=$?")
			w.await("quit=131")
		} else {
			w.keys("C-c")
			w.prompt()
		}

		w.vim()
		w.less()
		w.python()
		w.monitors()

		w.types("exit 3\n")
		w.await("left-3-")
		if out := p.there(`cat ~/note 2>/dev/null; rm -f ~/note`); p.has("vim") && out != "hello\nworld\n" {
			t.Errorf("vim wrote %q", out)
		}
		w.runs("clear; stty -a")
		if s := w.screen(); !strings.Contains(s, " icanon") || !strings.Contains(s, " echo ") {
			t.Errorf("the terminal is not as it was:\n%s", s)
		}
	})
}

func (w *window) vim() {
	w.p.t.Helper()
	if !w.p.has("vim") {
		return
	}
	w.p.t.Log("vim")
	w.types("clear; vim -u NONE -N note\n")
	w.alternate(true)
	w.types("ihello")
	w.keys("Escape")
	w.await("hello")
	w.types(":echo 'size' &lines &columns\n")
	w.await("size 35 110")
	w.tmux("resize-window", "-x", "100", "-y", "30")
	w.eventually("vim's new size", func() bool {
		w.types(":echo 'size' &lines &columns\n")
		return strings.Contains(w.screen(), "size 30 100")
	})
	w.keys("C-z")
	w.alternate(false)
	w.await("Stopped")
	w.types("fg\n")
	w.alternate(true)
	w.types("oworld")
	w.keys("Escape")
	w.types(":wq\n")
	w.alternate(false)
	w.prompt()
}

func (w *window) less() {
	w.p.t.Helper()
	if !w.p.has("less") {
		return
	}
	w.p.t.Log("less")
	w.types("clear; seq 100000 109999 | less\n")
	w.alternate(true)
	w.await("100000\n100001\n")
	w.types("G")
	w.await("109999")
	w.types("?105000\n")
	w.await("105000\n105001\n")
	w.types("q")
	w.alternate(false)
	w.prompt()
}

func (w *window) python() {
	w.p.t.Helper()
	if !w.p.has("python3") {
		return
	}
	w.p.t.Log("python3")
	w.types("clear; python3 -q\n")
	w.await(">>>")
	w.types("import os, getpass; print('wide', os.get_terminal_size().columns)\n")
	w.await("wide " + w.format("#{pane_width}"))
	w.types("print('on' + 'ce'); import time; time.sleep(1000)\n")
	w.await("\nonce")
	w.keys("C-c")
	w.await("KeyboardInterrupt")
	w.types("print('length', len(getpass.getpass('se' + 'cret: ')))\n")
	w.await("secret:")
	w.types("mumble\n")
	w.await("length 6")
	if strings.Contains(w.screen(), "mumble") {
		w.p.t.Errorf("the password is to be seen:\n%s", w.screen())
	}
	w.keys("C-d")
	w.prompt()
}

func (w *window) monitors() {
	w.p.t.Helper()
	for _, program := range []string{"htop", "top"} {
		if !w.p.has(program) {
			continue
		}
		w.p.t.Log(program)
		w.types("clear; " + program + "\n")
		if program == "htop" {
			w.alternate(true)
		}
		w.await("PID")
		w.types("q")
		w.alternate(false)
		w.prompt()
	}
}

// TestATerminalThatIsLostLeavesNothing ends terminals in every way but by leaving the shell, and looks for what ran there.
func TestATerminalThatIsLostLeavesNothing(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		// Seconds that nobody else sleeps, and that a look for them does not hold.
		seconds := owner.NewID()[:6]
		n := 0
		begin := func() (w *window, gone func()) {
			n++
			mark := fmt.Sprintf("%d", 700000+n)
			w = p.openWindow()
			w.shell()
			w.types(fmt.Sprintf("export MARK=%s; setsid sleep %s.1 & (trap '' HUP; sleep %s.2) & sleep %s.3\n", seconds, mark, mark, mark))
			look := fmt.Sprintf(`for d in /proc/[0-9]*; do
				{ IFS= read -r -d '' a && IFS= read -r -d '' b; } <"$d/cmdline" && [[ $a == sleep && $b == %s.? ]] && while IFS= read -r -d '' e; do [[ $e != MARK=%s ]] || echo "$b"; done <"$d/environ"
			done 2>/dev/null; true`, mark, seconds)
			w.eventually("three sleep", func() bool { return strings.Count(p.there(look), "\n") == 3 })
			return w, func() {
				p.t.Helper()
				for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) {
					out := p.there(look)
					if out == "" {
						return
					}
					if time.Since(begun) > promised+15*time.Second {
						t.Fatalf("still there: %q", out)
					}
				}
			}
		}

		t.Log("the window is closed")
		w, gone := begin()
		w.tmux("kill-pane")
		gone()

		t.Log("elsewhere is killed")
		w, gone = begin()
		if err := syscall.Kill(w.elsewhere(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.await("left-137-")
		gone()

		backend, _, _ := strings.Cut(p.address, "/")
		switch backend {
		case "ssh":
			t.Log("the connection is lost")
			w, gone = begin()
			p.killMasters()
			w.await("left-125-")
			w.runs("clear; stty -a")
			if s := w.screen(); !strings.Contains(s, " icanon") {
				t.Errorf("the terminal is not as it was:\n%s", s)
			}
			gone()
		case "docker":
			t.Log("the container is removed")
			w, gone = begin()
			id := strings.TrimSpace(p.there("cat /etc/hostname"))
			if out, err := exec.Command("docker", "rm", "-f", id).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			w.await("left-125-")
			gone()
		}
	})
}

// elsewhere is the process in front of the pane's own shell.
func (w *window) elsewhere() int {
	w.p.t.Helper()
	pid := w.format("#{pane_pid}")
	children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	child, aerr := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil || aerr != nil {
		w.p.t.Fatalf("the pane's shell has no single child: %q, %v", children, err)
	}
	return child
}

// killMasters kills the shared connections of this place, which are found by the known hosts that are its own.
func (p *place) killMasters() {
	p.t.Helper()
	killed := 0
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		text, err := os.ReadFile(file)
		pid, aerr := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && aerr == nil && strings.Contains(string(text), "UserKnownHostsFile="+filepath.Dir(p.dir)+"/") && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		p.t.Fatal("no shared connection was found")
	}
}
