//go:build linux

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// thread is one of this process's that has entered a machine's namespaces: what it starts is in the machine, with no program in
// between. It must be left.
type thread struct{ work chan func() }

// enterMachine makes a thread and has it enter the machine whose first process is first.
func enterMachine(first int) (*thread, error) {
	t := &thread{work: make(chan func())}
	entered := make(chan error)
	go t.run(first, entered)
	if err := <-entered; err != nil {
		t.leave()
		return nil, err
	}
	return t, nil
}

func (t *thread) run(first int, entered chan<- error) {
	// It is never unlocked: a thread that cannot come back ends with its goroutine.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The process's first thread stands for all in /proc/self. While this goroutine holds it, another one gets another.
		other := make(chan error)
		go t.run(first, other)
		err := <-other
		runtime.UnlockOSThread()
		entered <- err
		return
	}
	entered <- enterNamespaces(first)
	for do := range t.work {
		do()
	}
}

// leave ends the thread, by which the kernel lets go of what only it has held.
func (t *thread) leave() { close(t.work) }

func enterNamespaces(pid int) error {
	root, err := unix.Open(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("entering a machine: %w", err)
	}
	defer unix.Close(root) //nolint:errcheck // nothing was written
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("entering a machine: %w", err)
	}
	defer unix.Close(process) //nolint:errcheck // nothing was written
	// Its root and directory have to be its own before its mounts are others.
	if err = unix.Unshare(unix.CLONE_FS); err == nil {
		err = unix.Setns(process, unix.CLONE_NEWNS|unix.CLONE_NEWUTS|unix.CLONE_NEWIPC|unix.CLONE_NEWNET|unix.CLONE_NEWPID)
	}
	if err == nil {
		err = unix.Fchdir(root)
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	if err != nil {
		return fmt.Errorf("entering a machine: %w", err)
	}
	return nil
}

// start starts a command with these files as its first three, which is its own terminal where it has one.
func (t *thread) start(c Command, files []*os.File) (p *os.Process, err error) {
	if !hasPath(c.Env) {
		c.Env = append(c.Env[:len(c.Env):len(c.Env)], "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	if c.Dir == "" {
		c.Dir = "/"
	}
	attr := &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: files, Sys: &syscall.SysProcAttr{
		Setsid: true, Setctty: c.Terminal != nil, Credential: &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID)},
	}}
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		p, err = os.StartProcess(lookUp(c.Args[0], c.Env), c.Args, attr)
		if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EAGAIN) || err == nil {
			return
		}
		// The machine's own shell says what is wrong.
		attr.Dir = "/"
		shell := []string{"bash", "-c", `cd -- "$1" || exit 126; shift; exec -- "$@"`, "start", c.Dir}
		p, err = os.StartProcess("/bin/bash", append(shell, c.Args...), attr)
	}
	<-done
	return p, err
}

// lookUp finds a program in the PATH of an environment, in the files of the thread that asks.
func lookUp(name string, env []string) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, entry := range env {
		path, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file
			}
		}
	}
	return name
}

func hasPath(env []string) bool {
	for _, e := range env {
		if strings.HasPrefix(e, "PATH=") {
			return true
		}
	}
	return false
}
