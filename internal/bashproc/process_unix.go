//go:build unix

package bashproc

import (
	"context"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Process is a running bash. One goroutine waits for it.
type Process struct {
	streams
	pid int

	mu     sync.Mutex // held while the pid is released, and while something is sent to it
	reaped bool
}

// Start starts the program in path with argv (argv[0] included) and this environment alone. It is the hot path of every
// call: three pipes, one fork and exec, one goroutine. The caller waits for the process with Wait and closes its streams.
func Start(path string, argv, env []string) (*Process, error) {
	var ours, theirs [3]int
	open := 0
	closeAll := func() {
		for i := range open {
			_ = syscall.Close(ours[i])
			_ = syscall.Close(theirs[i])
		}
	}
	for i := range ours {
		r, w, err := pipe()
		if err != nil {
			closeAll()
			return nil, os.NewSyscallError("pipe", err)
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
		open++
		// Only our end: the two ends of a pipe are two descriptions, and a bash must not see O_NONBLOCK.
		if ours[i], err = aboveStdio(ours[i]); err == nil {
			err = syscall.SetNonblock(ours[i], true)
		}
		if err != nil {
			closeAll()
			return nil, os.NewSyscallError("fcntl", err)
		}
	}
	files := []uintptr{uintptr(theirs[0]), uintptr(theirs[1]), uintptr(theirs[2])}
	for last := lastInherited(); len(files) <= last; {
		files = append(files, ^uintptr(0)) // closed in the child
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		closeAll()
		return nil, err
	}
	for _, fd := range theirs {
		_ = syscall.Close(fd)
	}
	p := &Process{
		pid: pid,
		streams: streams{
			stdin:  os.NewFile(uintptr(ours[0]), "stdin of bash"),
			stdout: os.NewFile(uintptr(ours[1]), "stdout of bash"),
			stderr: os.NewFile(uintptr(ours[2]), "stderr of bash"),
			done:   make(chan struct{}),
		},
	}
	go p.reap()
	return p, nil
}

// aboveStdio moves a descriptor away from 0, 1 and 2, which a host that closed its own may hand out: Go lets a program
// die of a broken pipe on 1 and 2.
func aboveStdio(fd int) (int, error) {
	if fd > 2 {
		return fd, nil
	}
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fd, err
	}
	_ = syscall.Close(fd)
	return moved, nil
}

// reap waits for the bash. The pid stays taken until the lock is held, so that Kill never hits a stranger.
func (p *Process) reap() {
	awaitExit(p.pid)
	p.mu.Lock()
	var ws syscall.WaitStatus
	var err error
	for {
		_, err = syscall.Wait4(p.pid, &ws, 0, nil)
		if err != syscall.EINTR {
			break
		}
	}
	p.reaped = true
	p.mu.Unlock()
	switch {
	case err != nil:
		p.err = os.NewSyscallError("wait", err)
	case ws.Signaled():
		p.status = driver.ExitStatus{Code: 128 + int(ws.Signal()), Signal: signalName(ws.Signal())}
	default:
		p.status = driver.ExitStatus{Code: ws.ExitStatus()}
	}
	close(p.done)
}

// PID is the number of the process, which is its group's and session's too. It may be another's once Wait has returned.
func (p *Process) PID() int { return p.pid }

// Kill sends KILL to the bash's group and to the bash. Once the bash was waited for its number may be another's, so
// nothing is sent.
func (p *Process) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return nil
	}
	group := syscall.Kill(-p.pid, syscall.SIGKILL)
	err := syscall.Kill(p.pid, syscall.SIGKILL)
	if err == syscall.ESRCH || group == nil {
		return nil
	}
	return os.NewSyscallError("kill", err)
}

// signalName gives a signal's name without SIG.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); len(name) > 3 {
		return name[3:]
	}
	return s.String()
}

// lastInherited is the highest descriptor that an exec would keep, or 2. What this program opens is closed on exec, but
// what it was started with (a make's job server, `3<file` in a shell) or what C code opened is not.
func lastInherited() int {
	dir, err := os.Open(fdDir)
	if err != nil {
		return 2
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 2
	}
	last := 2
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			last = fd
		}
	}
	return last
}
