//go:build unix

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// BashOnly makes a place whose root holds bash, its libraries, /dev/null and nothing else that could be run. It is a
// backend of its own, as thin as one can be: the two duties and no ability. It needs root; a harness on whose machine that
// cannot be had declares NeedBashOnly as lacking.
func BashOnly(t testing.TB, spec PlaceSpec) *Place {
	t.Helper()
	base := t.TempDir()
	root := filepath.Join(base, "root")
	if err := makeRoot(root); err != nil {
		t.Fatalf("a root that holds bash alone: %v", err)
	}
	for name, text := range spec.Profile {
		if err := os.WriteFile(filepath.Join(root, "home", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	backend := driver.Backend{
		Name:    "bashonly",
		Summary: "a root on this machine that holds bash and nothing else",
		Open: func(context.Context, driver.OpenRequest) (driver.Sandbox, error) {
			return &chrootSandbox{root: root}, nil
		},
	}
	return &Place{
		HermesHome: filepath.Join(base, "hermes"),
		Environ:    append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base}, spec.Environ...),
		Backend:    &backend,
		Home:       "/home",
		Observe: func(ctx context.Context, _ driver.Info, stdin []byte, argv ...string) (Observed, error) {
			return ObserveHere(ctx, []string{"PATH=" + os.Getenv("PATH"), "R=" + root}, stdin, argv...)
		},
	}
}

// makeRoot copies bash with its libraries and makes the directories and the one device that it needs.
func makeRoot(root string) error {
	for _, d := range []string{"dev", "tmp", "home", "state", "private", "bin"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o700); err != nil {
			return err
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return err
	}
	if bash, err = filepath.EvalSymlinks(bash); err != nil {
		return err
	}
	if err := copyFile(bash, filepath.Join(root, "bin", "bash")); err != nil {
		return err
	}
	libraries, err := exec.Command("ldd", bash).Output() // a static bash has none
	if err == nil {
		for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
			if err := copyFile(lib, filepath.Join(root, lib)); err != nil {
				return err
			}
		}
	}
	null := filepath.Join(root, "dev", "null")
	if err := unix.Mknod(null, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	return os.Chmod(null, 0o666)
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

type chrootSandbox struct{ root string }

func (s *chrootSandbox) Info() driver.Info {
	return driver.Info{
		Host: "localhost", SandboxID: s.root, User: "root", Home: "/home", Dir: "/home",
		StateDir: "/state", PrivateDir: "/private", Watchdog: true,
	}
}

func (s *chrootSandbox) Alive(context.Context) error { return nil }
func (s *chrootSandbox) Close(context.Context) error { return nil }

func (s *chrootSandbox) Bash(_ context.Context, spec driver.BashSpec) (driver.Process, error) {
	cmd := &exec.Cmd{
		Path: "/bin/bash", Args: append([]string{"bash"}, spec.Args...), Dir: "/",
		Env:         append([]string{"PATH=/bin", "HOME=/home"}, spec.Env...),
		SysProcAttr: &syscall.SysProcAttr{Chroot: s.root, Setsid: true},
	}
	p := &chrootProcess{cmd: cmd, done: make(chan struct{})}
	var theirs []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		switch i {
		case 0:
			cmd.Stdin, p.in, theirs = r, w, append(theirs, r)
		case 1:
			cmd.Stdout, p.out, theirs = w, r, append(theirs, w)
		case 2:
			cmd.Stderr, p.err, theirs = w, r, append(theirs, w)
		}
	}
	err := cmd.Start()
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = cmd.Wait()
	}()
	return p, nil
}

type chrootProcess struct {
	cmd          *exec.Cmd
	in, out, err *os.File
	done         chan struct{}
	kill         sync.Mutex
}

func (p *chrootProcess) Stdin() io.WriteCloser { return p.in }
func (p *chrootProcess) Stdout() io.ReadCloser { return p.out }
func (p *chrootProcess) Stderr() io.ReadCloser { return p.err }

func (p *chrootProcess) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok {
		return driver.ExitStatus{}, fmt.Errorf("no wait status: %v", p.cmd.ProcessState)
	}
	if ws.Signaled() {
		name := unix.SignalName(ws.Signal())
		return driver.ExitStatus{Code: 128 + int(ws.Signal()), Signal: name[len("SIG"):]}, nil
	}
	return driver.ExitStatus{Code: ws.ExitStatus()}, nil
}

func (p *chrootProcess) Kill(context.Context) error {
	p.kill.Lock()
	defer p.kill.Unlock()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// signalCode gives 128+n for a process that signal n ended.
func signalCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}
