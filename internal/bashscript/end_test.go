package bashscript

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// ender starts a bash that ends trees and sends it requests; the answer is its output.
func ender(t *testing.T, requests string) string {
	t.Helper()
	s := NewScripts(nil)
	cmd := exec.Command("bash", s.EndArgs()...)
	cmd.Stdin = strings.NewReader(string(s.End()) + requests)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// started is a process that was started, and when it is gone.
type started struct {
	pid  int
	gone <-chan struct{}
}

// sleeper starts a process that says when it is up and then does what script says.
func sleeper(t *testing.T, mark Mark, env, script string) started {
	t.Helper()
	cmd := exec.Command("bash", "-c", fmt.Sprintf("ulimit -S -x %d; %s", mark, script))
	cmd.Env = append(os.Environ(), env)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, readErr := out.Read(make([]byte, 16))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = cmd.Process.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done; _ = out.Close() })
	if readErr != nil {
		t.Fatal(readErr)
	}
	return started{cmd.Process.Pid, done}
}

func ended(p started) bool {
	select {
	case <-p.gone:
		return true
	case <-time.After(300 * time.Millisecond):
		return false
	}
}

func TestOnlyProcessesOfTheWatchedCallAreEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes carry no mark that can be read here")
	}
	session := NewSessionMark()
	mark, other := NewMark(session), NewMark(session)
	id := NewID()
	byLimit := sleeper(t, mark, "X=1", "echo up; exec sleep 1000")
	byEnv := sleeper(t, NewMark(NewSessionMark()), CallVariable+"="+id, "echo up; exec sleep 1000")
	stubborn := sleeper(t, mark, "X=1", "trap '' TERM; echo up; while :; do read -t 1000 <> <(:); done")
	bystander := sleeper(t, other, "X=1", "echo up; exec sleep 1000")
	token := NewID()
	answer := ender(t, Watch(mark, id, 0)+Watch(other, NewID(), 0)+Unwatch(other)+EndNow(token, 200*time.Millisecond))
	if left, done := ParseEnd(token, answer); !done || len(left) > 0 {
		t.Errorf("answer %q", answer)
	}
	if !ended(byLimit) || !ended(byEnv) || !ended(stubborn) {
		t.Error("a process of the call lives")
	}
	if ended(bystander) {
		t.Error("a process of another call of the session was ended")
	}
}

func TestAWatchedSessionEndsWithItsWatcher(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes carry no mark that can be read here")
	}
	session, kept := NewSessionMark(), NewSessionMark()
	one := sleeper(t, NewMark(session), "X=1", "echo up; exec sleep 1000")
	two := sleeper(t, NewMark(kept), "X=1", "echo up; exec sleep 1000")
	ender(t, WatchSession(session, NewID())+WatchSession(kept, NewID())+UnwatchSession(kept))
	if !ended(one) {
		t.Error("a process of the watched session lives")
	}
	if ended(two) {
		t.Error("a process of a session that is no longer watched was ended")
	}
}

func TestAnAnswerIsReadWholeOrNotAtAll(t *testing.T) {
	for text, want := range map[string]struct {
		left int
		done bool
	}{
		"":                           {0, false},
		"banner\nT 12 sleep\n":       {1, false},
		"T 12 my (odd) name\nT .\n":  {1, true},
		"T .\n":                      {0, true},
		"T .":                        {0, false},
		"x T .\nT 7 a\nT 8 b\nT .\n": {2, true},
	} {
		left, done := ParseEnd("T", text)
		if len(left) != want.left || done != want.done {
			t.Errorf("%q: %v %v", text, left, done)
		}
	}
}

// What it costs to find that nothing is left: each throw-away session does that when it is closed.
func BenchmarkEndNothing(b *testing.B) {
	s := NewScripts(nil)
	requests := string(s.End()) + WatchSession(NewSessionMark(), NewID()) + EndNow(NewID(), time.Second)
	for b.Loop() {
		cmd := exec.Command("bash", s.EndArgs()...)
		cmd.Stdin = strings.NewReader(requests)
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())/1e6, "cpu-ms")
	}
}

func TestSilenceIsTheEndOfALease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes carry no mark that can be read here")
	}
	mark := NewMark(NewSessionMark())
	p := sleeper(t, mark, "A=1", "echo up; exec sleep 1000")
	s := NewScripts(nil)
	cmd := exec.Command("bash", s.EndArgs()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	if _, err := in.Write([]byte(string(s.End()) + Lease(2*time.Second) + Watch(mark, "none", 0))); err != nil {
		t.Fatal(err)
	}
	for range 8 { // twice as long as the lease
		if ended(p) {
			t.Fatal("it was ended while the lease was renewed")
		}
		time.Sleep(200 * time.Millisecond) // the beat's own time
		if _, err := in.Write([]byte(Beat)); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-p.gone:
	case <-time.After(20 * time.Second):
		t.Error("it lives though nobody renewed the lease")
	}
}

func TestADirectoryIsRemovedAtTheEndOfInputAndNotBefore(t *testing.T) {
	for _, path := range []string{os.Getenv("PATH"), "/nowhere"} {
		t.Run("PATH="+path[:min(len(path), 8)], func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a %20b  c")
			file := filepath.Join(dir, "state")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, []byte("secret"), 0o600), os.WriteFile(file+".2", []byte("secret"), 0o600)); err != nil {
				t.Fatal(err)
			}
			s := NewScripts(nil)
			bash, err := exec.LookPath("bash")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bash, s.EndArgs()...)
			cmd.Env = []string{"PATH=" + path}
			cmd.Stdin = strings.NewReader(string(s.End()) + RemoveFile(file+".2") + RemoveAtEnd(dir))
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			if raw, _ := os.ReadFile(file); len(raw) > 0 {
				t.Errorf("%s holds %q", file, raw)
			}
			if raw, _ := os.ReadFile(file + ".2"); len(raw) > 0 {
				t.Errorf("%s holds %q", file+".2", raw)
			}
			if _, err := os.Stat(dir); path != "/nowhere" && !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		})
	}
}

func TestASignalIsTakenForTheEndOfInput(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes carry no mark that can be read here")
	}
	s := NewScripts(nil)
	m := NewMark(NewSessionMark())
	victim := sleeper(t, m, "X=1", "echo up; exec sleep 1000")
	seen := filepath.Join(t.TempDir(), "seen")
	if err := os.WriteFile(seen, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", s.EndArgs()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := in.Write([]byte(string(s.End()) + Lease(time.Hour) + Watch(m, "id", 0) + RemoveFile(seen))); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(seen); errors.Is(err, os.ErrNotExist) {
			break // it has read all that it was sent
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not read")
		}
	}
	if ended(victim) {
		t.Fatal("it ended before the signal")
	}
	if err := exec.Command("kill", "-"+EndSignal, fmt.Sprint(cmd.Process.Pid)).Run(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-victim.gone:
	case <-time.After(time.Minute):
		t.Error("it lives on")
	}
}
