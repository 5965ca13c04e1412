//go:build unix

package owner

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	switch os.Getenv("OWNER_TEST_JOB") {
	case "hold":
		os.Exit(hold())
	case "identity":
		id, err := Identity(os.Getenv("OWNER_TEST_HOME"))
		fmt.Println(id, err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// hold takes a lease, starts a child that outlives it, says so and waits to be killed.
func hold() int {
	l, err := Acquire(os.Getenv("OWNER_TEST_HOME"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(l.ID, child.Process.Pid)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func again(t *testing.T, job, home string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "OWNER_TEST_JOB="+job, "OWNER_TEST_HOME="+home)
	return cmd
}

func dead(t *testing.T, home string) []string {
	t.Helper()
	ids, err := Dead(home)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// ownTemp keeps leases without a home apart from those of other tests.
func ownTemp(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
}

func TestAnOwnerIsDeadOnceItWasKilledThoughItsChildLives(t *testing.T) {
	ownTemp(t)
	for name, home := range map[string]string{"with a home": t.TempDir(), "without a home": ""} {
		t.Run(name, func(t *testing.T) {
			cmd := again(t, "hold", home)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			defer in.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var id string
			var child int
			if _, err := fmt.Fscan(bufio.NewReader(out), &id, &child); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
			if slices.Contains(dead(t, home), id) {
				t.Fatal("a living owner counts as dead")
			}
			if err := Forget(home, id); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(dead(t, home), id) {
				t.Fatal("a living owner counts as dead after a Forget")
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if err := syscall.Kill(child, 0); err != nil {
				t.Fatalf("the child of the killed owner is gone, so this proves nothing: %v", err)
			}
			if !slices.Contains(dead(t, home), id) {
				t.Fatal("a killed owner counts as alive")
			}
			if err := Forget(home, id); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(dead(t, home), id) {
				t.Error("a forgotten owner is still known")
			}
		})
	}
}

func TestALeaseIsAliveUntilItIsReleased(t *testing.T) {
	ownTemp(t)
	home := t.TempDir()
	first, err := Acquire(home)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Acquire(home)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Release() }()
	if first.ID == second.ID || !validID(first.ID) {
		t.Fatalf("ids %q and %q", first.ID, second.ID)
	}
	st, err := os.Stat(first.file)
	if err != nil || st.Mode().Perm() != 0o600 || !strings.HasPrefix(first.file, home) {
		t.Fatalf("lease %s: %v %v", first.file, st, err)
	}
	if ids := dead(t, home); len(ids) > 0 {
		t.Fatalf("own leases count as dead: %v", ids)
	}
	for range 2 {
		if err := first.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(first.file); !os.IsNotExist(err) {
		t.Errorf("a released lease leaves its file: %v", err)
	}
	if ids := dead(t, home); len(ids) > 0 {
		t.Errorf("a released lease counts as a dead owner: %v", ids)
	}
}

func TestAnOwnerWhoseDirectoriesRemainIsNotForgotten(t *testing.T) {
	ownTemp(t)
	home, left := t.TempDir(), t.TempDir()
	l, err := Acquire(home)
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(left, "with\nnewline")
	for _, path := range []string{left, odd} {
		if err := Record(home, l.ID, path); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(recordFile(filepath.Dir(l.file), l.ID), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("/torn")
	_ = f.Close()
	if got := Recorded(home, l.ID); !slices.Equal(got, []string{left, odd}) {
		t.Fatalf("recorded %q", got)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if err := Forget(home, l.ID); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(dead(t, home), l.ID) {
		t.Fatal("an owner that left a directory was forgotten")
	}
	if err := Removed(home, l.ID); err != nil {
		t.Fatal(err)
	}
	if err := Forget(home, l.ID); err != nil {
		t.Fatal(err)
	}
	if ids := dead(t, home); len(ids) > 0 {
		t.Errorf("still known: %v", ids)
	}
	if err := Record(home, l.ID, left); err == nil {
		t.Error("something was recorded for an owner without a lease")
	}
}

func TestTheLeaseOfAnotherMachineIsNotJudged(t *testing.T) {
	ownTemp(t)
	home := t.TempDir()
	dir := places(home)[0]
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	theirs, ours := NewID(), NewID()
	for id, from := range map[string]string{theirs: "another machine", ours: machine()} {
		if err := os.WriteFile(leaseFile(dir, id), []byte(from+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if ids := dead(t, home); !slices.Equal(ids, []string{ours}) {
		t.Errorf("dead are %v, want only %s", ids, ours)
	}
	if err := Forget(home, theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leaseFile(dir, theirs)); err != nil {
		t.Errorf("another machine's lease was removed: %v", err)
	}
}

func TestADirectoryThatAnotherUserLaidInTempIsNotUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives a directory away, which takes root")
	}
	ownTemp(t)
	trap := places("")[0]
	if err := os.Mkdir(trap, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(trap, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if l, err := Acquire(""); err == nil {
		t.Errorf("the lease %s is in another user's directory", l.file)
	}
	if err := os.WriteFile(leaseFile(trap, NewID()), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids := dead(t, ""); len(ids) > 0 {
		t.Errorf("another user's leases are judged: %v", ids)
	}
}

func TestAHomeThatCannotBeWrittenToDoesNotKeepALeaseFromBeingMade(t *testing.T) {
	ownTemp(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Acquire(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(l.file, file) {
		t.Errorf("the lease is %s", l.file)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
}

func TestTwentyProcessesThatMakeAnIdentityAtOnceGetTheSame(t *testing.T) {
	for name, before := range map[string]string{"none before": "", "a torn one before": "0123", "an empty one before": "\n"} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			if before != "" {
				if err := os.MkdirAll(filepath.Join(home, "elsewhere"), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(home, "elsewhere", "identity"), []byte(before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			type result struct {
				out []byte
				err error
			}
			results := make(chan result)
			for range 20 {
				go func() {
					out, err := again(t, "identity", home).Output()
					results <- result{out, err}
				}()
			}
			seen := make(map[string]int)
			for range 20 {
				r := <-results
				if r.err != nil {
					t.Error(r.err)
				}
				seen[string(r.out)]++
			}
			id, err := Identity(home)
			if len(seen) != 1 || err != nil || seen[id+" <nil>\n"] != 20 || !validID(id) {
				t.Errorf("processes got %v, this one %q, %v", seen, id, err)
			}
			st, err := os.Stat(filepath.Join(home, "elsewhere", "identity"))
			if err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("identity: %v %v", st, err)
			}
			if files, _ := filepath.Glob(filepath.Join(home, "elsewhere", "*.tmp")); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

func TestWithoutAHomeTheIdentityIsThisProcessesAlone(t *testing.T) {
	a, errA := Identity("")
	b, errB := Identity("")
	if errA != nil || errB != nil || a == b || !validID(a) || !validID(b) {
		t.Errorf("%q %v, %q %v", a, errA, b, errB)
	}
}
