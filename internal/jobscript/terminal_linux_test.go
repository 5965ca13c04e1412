package jobscript

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/testbed"
)

// TestATerminalIsHeldByWhatIsThere launches a job on a terminal where script is there, where python3 alone is, and where neither is.
func TestATerminalIsHeldByWhatIsThere(t *testing.T) {
	// Of the same lengths, since a text is read by its own.
	for holder, without := range map[string]*strings.Replacer{
		"script":  strings.NewReplacer("ew_find python3", "ew_find pythonX"),
		"python3": strings.NewReplacer("ew_find script", "ew_find scripX"),
		"neither": strings.NewReplacer("ew_find script", "ew_find scripX", "ew_find python3", "ew_find pythonX"),
	} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel()
			for _, needed := range []string{"bash", "stty", "mkfifo", holder} {
				if _, err := exec.LookPath(needed); err != nil && needed != "neither" {
					t.Skip(err)
				}
			}
			launch := onTerminal(t, `[[ -t 0 && -t 1 && -t 2 ]] && : </dev/tty && stty size; read -r x; echo "got $x"; cat; trap go=1 INT; echo ready; until [[ $go ]]; do sleep 0.1; done; seq 1 20000; kill -KILL $$`)
			dir, name := launch.Dir, launch.Name
			launched := ParseLaunch(token, string(askBash(t, without.Replace(launch.Text()), "")))
			if holder == "neither" {
				if launched.Started || !launched.NoHolder || launched.NoTerminal {
					t.Errorf("%+v", launched)
				}
				return
			}
			if !launched.Started {
				t.Fatalf("%+v", launched)
			}
			act := func(verb, data string) {
				if answer, err := ParseAct(token, askBash(t, Act(dir, token, name, verb, "KILL", time.Now()), data)); err != nil || answer != "ok" {
					t.Errorf("%s %q: %q, %v", verb, data, answer, err)
				}
			}
			t.Cleanup(func() { askBash(t, Act(dir, token, name, Signal, "KILL", time.Now()), "") })
			shown := ""
			await := func(want string) *Found {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
					k, err := ParseRead(token, askBash(t, Read(dir, token, name, int64(len(shown)), 1<<20, time.Second), ""))
					if err != nil || k.Job == nil {
						t.Fatalf("%+v, %v", k, err)
					}
					if shown += string(k.Data); strings.HasSuffix(shown, want) && (k.Job.Ended || want != "") {
						return k.Job
					}
				}
				t.Fatalf("no %q in %.500q", want, shown)
				return nil
			}
			await("31 97\r\n")
			act(Send, "line\r")
			await("line\r\ngot line\r\n")
			act(Close, "")
			await("ready\r\n")
			act(Send, "\x03")
			if job := await(""); job.Code != 137 || job.PID <= 0 {
				t.Errorf("%+v", job)
			}
			if _, flood, _ := strings.Cut(shown, "^C1\r\n"); strings.Count(flood, "\r\n") != 19999 || !strings.HasSuffix(flood, "\r\n20000\r\n") {
				t.Errorf("of the last lines %d came: %.100q ... %q", strings.Count(flood, "\r\n"), shown, shown[max(0, len(shown)-20):])
			}
		})
	}
}

// TestATerminalEndsWhileWhatIsLeftWrites leaves a process behind that nothing hangs up and that writes without a pause:
// without dd the output is kept so slowly that the terminal is always full.
func TestATerminalEndsWhileWhatIsLeftWrites(t *testing.T) {
	for holder, without := range map[string]*strings.Replacer{
		"script":  strings.NewReplacer("ew_find python3", "ew_find pythonX", "ew_find dd", "ew_find dX"),
		"python3": strings.NewReplacer("ew_find script", "ew_find scripX", "ew_find dd", "ew_find dX"),
	} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel()
			for _, needed := range []string{"bash", "stty", "mkfifo", "yes", "head", holder} {
				if _, err := exec.LookPath(needed); err != nil {
					t.Skip(err)
				}
			}
			launch := onTerminal(t, `yes | head -c 50000; set -m; (trap '' HUP; exec yes) & exit 7`)
			if launched := ParseLaunch(token, string(askBash(t, without.Replace(launch.Text()), ""))); !launched.Started {
				t.Fatalf("%+v", launched)
			}
			for deadline := time.Now().Add(time.Minute); ; {
				k, err := ParseRead(token, askBash(t, Read(launch.Dir, token, launch.Name, 0, 0, time.Second), ""))
				if err != nil || k.Job == nil {
					t.Fatalf("%+v, %v", k, err)
				}
				if k.Job.Ended {
					if k.Job.Code != 7 || k.Job.Why != "exited" {
						t.Errorf("%+v", k.Job)
					}
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("its end is not told: %+v", k.Job)
				}
			}
		})
	}
}

// TestATerminalThatComesTooLateRunsNothing has the terminal come after its supervisor has given up.
func TestATerminalThatComesTooLateRunsNothing(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip(err)
	}
	for _, needed := range []string{"bash", "sh", "stty", "mkfifo", "script"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip(err)
		}
	}
	for name, before := range map[string]string{"hung up": "", "not hung up": "trap '' HUP\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			launch := onTerminal(t, "")
			ran, release := launch.Dir+"/ran", launch.Dir+"/release"
			launch.Command = ": >" + ran
			if err := syscall.Mkfifo(release, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(launch.Dir+"/sttX", []byte("#!/bin/sh\nread -r x <"+release+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			// Of the same lengths, since a text is read by its own.
			text := strings.NewReplacer("ew_find stty", "ew_find sttX", "ew_i < 1000", "ew_i < 0010").Replace(launch.Text())
			launched := ParseLaunch(token, string(askBash(t, before+"PATH="+launch.Dir+":$PATH\n"+text, "")))
			if launched.Started || !launched.NoTerminal {
				t.Fatalf("%+v", launched)
			}
			late, err := os.OpenFile(release, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer late.Close()
			if _, err := late.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(time.Minute); len(sharing("ELSEWHERE_SESSION="+launch.Sup)) > 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("it has not ended: %v", sharing("ELSEWHERE_SESSION="+launch.Sup))
				}
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("it ran, though it was said that it was not started")
			}
		})
	}
}

// sharing are the processes in whose environment an entry stands.
func sharing(entry string) (pids []int) {
	for pid, entries := range testbed.Environments() {
		if slices.Contains(entries, entry) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// onTerminal is the launch of a job on a terminal in a directory of its own. What is left of it ends with the test.
func onTerminal(t *testing.T, command string) Launch {
	t.Helper()
	meta := Meta{ID: bashscript.NewID(), Supervisor: bashscript.NewID(), Mark: bashscript.NewMark(bashscript.NewSessionMark()), Name: "jaa", Terminal: true}
	line, err := meta.Line()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		for _, pid := range sharing("ELSEWHERE_SESSION=" + meta.Supervisor) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return Launch{
		Dir: dir, Name: meta.Name, Meta: line, ID: meta.ID, Sup: meta.Supervisor, Mark: meta.Mark, SupMark: bashscript.NewMark(meta.Mark.Session()), Token: token,
		LogBytes: 1 << 20, Terminal: &Size{Rows: 31, Cols: 97}, Command: command,
	}
}

// askBash runs a text by a bash as a sandbox does, with data behind it.
func askBash(t *testing.T, text, data string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", bashscript.TextArgs(len(text))...)
	cmd.Stdin = strings.NewReader(text + "\x00" + data)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return out
}
