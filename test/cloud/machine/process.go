//go:build linux

package machine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command is one to run in a machine.
type Command struct {
	Args []string // the program, looked up in the machine's own PATH, and its arguments
	Env  []string // the whole environment; PATH is the usual one where it names none
	Dir  string   // "" is /
	UID  int      // who runs it
	GID  int

	// Standard input, output and error: files, as for a fork. Nil is /dev/null. Not looked at with a terminal.
	Stdin, Stdout, Stderr *os.File
	// Terminal gives the command a terminal of so many columns and rows as all three, and for its own; Process.Terminal is
	// the other end.
	Terminal *Size
}

// Size is a terminal's.
type Size struct{ Cols, Rows int }

// Process is a command that was started: the first of a session and a group of its own.
type Process struct {
	// Terminal is the emulator's end of the command's terminal, nil without one. The caller closes it.
	Terminal *os.File

	process *os.Process
	done    chan struct{}
	state   *os.ProcessState // once done is closed
}

// ErrNotRunning says that a command was to be started in a machine that stands still.
var ErrNotRunning = errors.New("the machine does not run")

// StartCommand starts a command. Its files may be closed afterwards. A program that is not there is an exit with 127, as in a shell.
func (m *Machine) StartCommand(c Command) (*Process, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boxed == nil {
		return nil, ErrNotRunning
	}
	if len(c.Args) == 0 {
		return nil, errors.New("no command is named")
	}
	p := &Process{done: make(chan struct{})}
	files := []*os.File{c.Stdin, c.Stdout, c.Stderr}
	if c.Terminal != nil {
		ours, theirs, err := openTerminal(m.first, *c.Terminal)
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		p.Terminal, files = ours, []*os.File{theirs, theirs, theirs}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		defer null.Close()
		for i := range files {
			if files[i] == nil {
				files[i] = null
			}
		}
		p.process, err = m.thread.start(c, files)
	}
	if err != nil {
		if p.Terminal != nil {
			_ = p.Terminal.Close()
		}
		if errors.Is(err, syscall.ENOMEM) { // what a process namespace says whose first process has ended
			err = ErrNotRunning
		}
		return nil, err
	}
	go func() {
		p.state, _ = p.process.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the command has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the command's end: its exit code, or the signal that ended it (and then code is 128 and its number).
func (p *Process) Wait() (code int, signal syscall.Signal) {
	<-p.done
	if status, ok := p.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), status.Signal()
	}
	return p.state.ExitCode(), 0
}

// PID is the command's number in its machine; 0 when it has ended.
func (p *Process) PID() int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(rest)
			n, _ := strconv.Atoi(f[len(f)-1])
			return n
		}
	}
	return 0
}

// Signal sends a signal to the command's group, or to the command alone. One that has ended is no error.
func (p *Process) Signal(signal syscall.Signal, group bool) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	target := p.process.Pid
	if group {
		target = -target
	}
	err := syscall.Kill(target, signal)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// Resize changes the size of the command's terminal.
func (p *Process) Resize(to Size) error {
	if p.Terminal == nil {
		return errors.New("the command has no terminal")
	}
	return setSize(p.Terminal, to)
}

// openTerminal makes a terminal of the machine's own, so that it has a name there. first is the machine's first process.
func openTerminal(first int, size Size) (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile(fmt.Sprintf("/proc/%d/root/dev/pts/ptmx", first), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var unlock int32
	var fd int
	if err = control(ours, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)), nil); err == nil {
		err = setSize(ours, size)
	}
	if err == nil {
		err = control(ours, unix.TIOCGPTPEER, uintptr(os.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC), &fd)
	}
	if err != nil {
		_ = ours.Close()
		return nil, nil, err
	}
	return ours, os.NewFile(uintptr(fd), "terminal"), nil
}

func setSize(f *os.File, s Size) error {
	w := [4]uint16{uint16(s.Rows), uint16(s.Cols)}
	return control(f, syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&w)), nil)
}

func control(f *os.File, request, arg uintptr, result *int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var got uintptr
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) { got, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, arg) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	if result != nil {
		*result = int(got)
	}
	return nil
}
