package bashproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// pipeBytes is how much output a bash can write ahead of its reader.
const pipeBytes = 64 << 10

// Process is a running bash and its job object, which holds all that it starts.
type Process struct {
	streams
	bash *os.Process

	mu  sync.Mutex
	job windows.Handle // 0 where there is none, or once the bash has ended
}

// Start starts the program in path with argv (argv[0] included) and this environment alone. The caller waits for the
// process with Wait and closes its streams.
func Start(path string, argv, env []string) (*Process, error) {
	var ours, theirs [3]*os.File
	closeAll := func(files []*os.File) {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
	for i := range ours {
		var err error
		if ours[i], theirs[i], err = pipe(i == 0); err != nil {
			closeAll(ours[:])
			closeAll(theirs[:])
			return nil, err
		}
	}
	defer closeAll(theirs[:])
	proc, err := os.StartProcess(path, argv, &os.ProcAttr{
		Dir:   filepath.VolumeName(path) + `\`,
		Env:   env,
		Files: theirs[:],
		Sys: &syscall.SysProcAttr{
			HideWindow:    true,
			CreationFlags: windows.CREATE_NO_WINDOW | windows.CREATE_NEW_PROCESS_GROUP,
		},
	})
	if err != nil {
		closeAll(ours[:])
		return nil, err
	}
	p := &Process{
		bash:    proc,
		streams: streams{stdin: ours[0], stdout: ours[1], stderr: ours[2], done: make(chan struct{})},
	}
	p.job = newJob(proc)
	go p.reap()
	return p, nil
}

// pipe makes a pipe whose end for us can be waited on with a deadline, which an anonymous pipe of Windows cannot.
func pipe(weWrite bool) (ours, theirs *os.File, err error) {
	name, err := windows.UTF16PtrFromString(`\\.\pipe\elsewhere-` + owner.NewID())
	if err != nil {
		return nil, nil, err
	}
	mode, access := uint32(windows.PIPE_ACCESS_INBOUND), uint32(windows.GENERIC_WRITE)
	if weWrite {
		mode, access = windows.PIPE_ACCESS_OUTBOUND, windows.GENERIC_READ
	}
	server, err := windows.CreateNamedPipe(name, mode|windows.FILE_FLAG_OVERLAPPED|windows.FILE_FLAG_FIRST_PIPE_INSTANCE,
		windows.PIPE_TYPE_BYTE|windows.PIPE_READMODE_BYTE|windows.PIPE_WAIT|windows.PIPE_REJECT_REMOTE_CLIENTS,
		1, pipeBytes, pipeBytes, 0, nil)
	if err != nil {
		return nil, nil, os.NewSyscallError("CreateNamedPipe", err)
	}
	client, err := windows.CreateFile(name, access, 0, nil, windows.OPEN_EXISTING, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		_ = windows.CloseHandle(server)
		return nil, nil, os.NewSyscallError("CreateFile", err)
	}
	return os.NewFile(uintptr(server), "a stream of bash"), os.NewFile(uintptr(client), "a stream of bash"), nil
}

// newJob puts a process into a job object of its own; 0 where that fails.
func newJob(proc *os.Process) windows.Handle {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0
	}
	err = proc.WithHandle(func(handle uintptr) {
		if windows.AssignProcessToJobObject(job, windows.Handle(handle)) != nil {
			_ = windows.CloseHandle(job)
			job = 0
		}
	})
	if err != nil {
		_ = windows.CloseHandle(job)
		return 0
	}
	return job
}

// PID is the number of the process.
func (p *Process) PID() int { return p.bash.Pid }

func (p *Process) reap() {
	state, err := p.bash.Wait()
	p.mu.Lock()
	if p.job != 0 {
		_ = windows.CloseHandle(p.job)
		p.job = 0
	}
	p.mu.Unlock()
	p.err = err
	if err == nil {
		p.status = driver.ExitStatus{Code: state.ExitCode()}
	}
	close(p.done)
}

// Kill ends the bash and all that it started.
func (p *Process) Kill(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.job != 0 && windows.TerminateJobObject(p.job, 137) == nil {
		return nil
	}
	if err := p.bash.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
