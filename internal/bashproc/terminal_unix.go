//go:build unix

package bashproc

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// Terminal is a program on a pseudo-terminal of its own. Stdout carries all that it shows; Stderr is at its end from the start.
type Terminal struct {
	*Process
	master *os.File
}

// StartTerminal is Start on a pseudo-terminal of this size. With control the terminal is the controlling one of the program's
// session; else a program further down may take it for its own.
func StartTerminal(path string, argv, env []string, rows, cols uint16, control bool) (*Terminal, error) {
	master, slave, err := openTerminal(rows, cols)
	if err != nil {
		return nil, err
	}
	defer slave.Close()
	files := []uintptr{slave.Fd(), slave.Fd(), slave.Fd()}
	for last := lastInherited(); len(files) <= last; {
		files = append(files, ^uintptr(0)) // closed in the child
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: "/", Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: control},
	})
	if err != nil {
		_ = master.Close()
		return nil, err
	}
	p := &Process{pid: pid, streams: streams{done: make(chan struct{})}}
	go p.reap()
	return &Terminal{Process: p, master: master}, nil
}

// openTerminal opens both ends. The near one can be closed while it is read, which that of creack/pty cannot.
func openTerminal(rows, cols uint16) (master, slave *os.File, err error) {
	blocking, slave, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	defer blocking.Close()
	err = pty.Setsize(blocking, &pty.Winsize{Rows: rows, Cols: cols})
	fd := -1
	if err == nil {
		fd, err = unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	}
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		if fd >= 0 {
			_ = syscall.Close(fd)
		}
		_ = slave.Close()
		return nil, nil, err
	}
	return os.NewFile(uintptr(fd), "a terminal"), slave, nil
}

// Stdin is what is typed. Its Close does nothing: a terminal has no end of input but a key.
func (t *Terminal) Stdin() io.WriteCloser { return typed{t.master} }

// Stdout is what is shown. Its Close hangs the terminal up.
func (t *Terminal) Stdout() io.ReadCloser { return shown{t.master} }

// Stderr is empty.
func (t *Terminal) Stderr() io.ReadCloser { return io.NopCloser(eof{}) }

// Resize changes the size; programs on the terminal are told.
func (t *Terminal) Resize(_ context.Context, rows, cols uint16) error {
	conn, err := t.master.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	})
	return errors.Join(err, failed)
}

type typed struct{ *os.File }

func (typed) Close() error { return nil }

type shown struct{ master *os.File }

// Read gives io.EOF when nobody has the terminal open any more, which Linux tells by EIO.
func (s shown) Read(p []byte) (int, error) {
	n, err := s.master.Read(p)
	if errors.Is(err, syscall.EIO) {
		err = io.EOF
	}
	return n, err
}

func (s shown) Close() error { return s.master.Close() }

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }
