//go:build linux

package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/testbed"
)

// port gives the port of one of the testbed's servers, or skips the test.
func port(t testing.TB, instance string) string {
	t.Helper()
	return testbed.SSHPort(t, instance)
}

// account is an account of the testbed with a home directory of its own for one test.
type account struct {
	*testbed.Account
	login, key, home string
	uid, gid         string
}

func newAccount(t testing.TB, login string) *account {
	t.Helper()
	return accountOf(t, "elsewhere-ssh-"+login)
}

func accountOf(t testing.TB, name string) *account {
	t.Helper()
	a := testbed.NewAccount(t, name)
	return &account{Account: a, login: a.Login, key: a.Key, home: a.Home, uid: strconv.Itoa(a.UID), gid: strconv.Itoa(a.GID)}
}

// masters are the clients that were started with the account's key.
func (a *account) masters() []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		words := strings.Split(string(line), "\x00")
		if len(words) > 5 && filepath.Base(words[0]) == "ssh" && strings.Contains(string(line), a.key) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// servers are the server's processes of the account's connections, beside its listener: those that have started a process with the
// account's home, and their parents.
func (a *account) servers() []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), "HOME="+a.home) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		for _, above := parentOf(pid); ; {
			pid = above
			name, next := parentOf(pid)
			if !strings.HasPrefix(name, "sshd") || next <= 1 {
				break
			}
			above = next
			if !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// parentOf gives a process's name and its parent, 0 where it is gone.
func parentOf(pid int) (name string, parent int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch key {
		case "Name":
			name = value
		case "PPid":
			parent, _ = strconv.Atoi(value)
		}
	}
	return name, parent
}

// killConnections ends both ends of the account's connections by KILL.
func (a *account) killConnections() error {
	masters, servers := a.masters(), a.servers()
	if len(masters) == 0 || len(servers) < 2 {
		return fmt.Errorf("a connection has the clients %v and the server's processes %v", masters, servers)
	}
	var errs []error
	for _, pid := range slices.Concat(masters, servers) {
		if err := syscall.Kill(pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write puts a file into the account's home.
func (a *account) write(t testing.TB, name, text string) {
	t.Helper()
	file := filepath.Join(a.home, name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte(text), 0o600))
	a.Own(t, filepath.Join(a.home, strings.SplitN(name, "/", 2)[0]))
}

// observe runs a program as the account's user on this machine, without ssh. Its streams are the user's own, as those that sshd
// gives are: who opens /dev/stdout needs that.
func (a *account) observe(ctx context.Context, _ driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.home, "USER=" + a.login}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}, Setsid: true}
	cmd.WaitDelay = time.Second // a child may hold the streams
	cmd.Stdin = bytes.NewReader(stdin)
	var o drivertest.Observed
	var readers sync.WaitGroup
	var theirs, rs []*os.File
	for _, stream := range []struct {
		to   *io.Writer
		kept *[]byte
	}{{&cmd.Stdout, &o.Stdout}, {&cmd.Stderr, &o.Stderr}} {
		r, w, err := os.Pipe()
		if err != nil {
			return o, err
		}
		if err := w.Chown(a.UID, a.GID); err != nil {
			return o, err
		}
		*stream.to = w
		theirs = append(theirs, w)
		readers.Go(func() {
			*stream.kept, _ = io.ReadAll(r)
			_ = r.Close()
		})
		rs = append(rs, r)
	}
	err := cmd.Run()
	for _, w := range theirs {
		_ = w.Close()
	}
	for _, r := range rs {
		_ = r.SetReadDeadline(time.Now().Add(time.Second)) // a child in the background may hold it
	}
	readers.Wait()
	if cmd.ProcessState == nil {
		return o, err
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if o.Code = ws.ExitStatus(); ws.Signaled() {
		o.Code = 128 + int(ws.Signal())
	}
	return o, ctx.Err()
}

// place gives a conformance case a home of its own on the given server, behind the given login shell.
func place(instance, login string) func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
	return func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
		a := newAccount(t, login)
		for name, text := range spec.Profile {
			a.write(t, name, text)
		}
		here := t.TempDir()
		p := &drivertest.Place{
			HermesHome: filepath.Join(here, "hermes"), Home: a.home, Settings: a.Settings(port(t, instance)), Observe: a.observe,
			Crash: func(context.Context, driver.Info) error { return a.killConnections() },
		}
		p.Environ = caller(t, here, p.HermesHome, spec.Environ...)
		return p
	}
}

// caller is the environment of whoever opens the sandbox. Its ssh knows no hosts yet, and those that it learns of it keeps to
// itself.
func caller(t testing.TB, here, hermesHome string, more ...string) []string {
	t.Helper()
	bin := testbed.SSHClient(t, here)
	return slices.Concat([]string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + filepath.Join(here, "callers-home"), "HERMES_HOME=" + hermesHome, "TMPDIR=/tmp", "LANG=" + os.Getenv("LANG"),
	}, more)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
