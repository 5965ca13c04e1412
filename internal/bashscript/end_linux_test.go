package bashscript

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// init, in a copy of this program that is asked for it, ends the first thread and leaves the others.
func init() {
	if os.Getenv("FIRST_THREAD_ENDS") == "" {
		return
	}
	runtime.LockOSThread()
	ready := make(chan struct{})
	go func() {
		close(ready)
		time.Sleep(time.Minute)
		os.Exit(0)
	}()
	<-ready
	fmt.Println("up")
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

func TestAProcessWithANewlineInItsNameIsEnded(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip(err)
	}
	odd := filepath.Join(t.TempDir(), "sl) S\neep")
	if err := os.Link(sleep, odd); err != nil {
		raw, err := os.ReadFile(sleep)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(odd, raw, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m := NewMark(NewSessionMark())
	cmd := sleeper(t, m, "X=1", "echo up; exec "+Quote(odd)+" 60")
	out := ender(t, Watch(m, "id", 0)+EndNow("token", time.Second))
	if left, done := ParseEnd("token", out); !done || len(left) > 0 {
		t.Errorf("the answer is %q", out)
	}
	if !ended(cmd) {
		t.Error("it lives on")
	}
}

func TestAProcessWhoseFirstThreadHasEndedIsEnded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := NewMark(NewSessionMark())
	cmd := sleeper(t, m, "FIRST_THREAD_ENDS=1", "exec "+Quote(self))
	for range 100 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(stat), ") Z ") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	out := ender(t, Watch(m, "id", 0)+EndNow("token", time.Second))
	if left, done := ParseEnd("token", out); !done || len(left) > 0 {
		t.Errorf("the answer is %q", out)
	}
	if !ended(cmd) {
		t.Error("it lives on")
	}
}
