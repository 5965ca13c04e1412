package bashproc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// fdDir lists the descriptors of the process that reads it.
const fdDir = "/proc/self/fd"

// pipe makes a pipe whose ends are closed on exec.
func pipe() (r, w int, err error) {
	var fds [2]int
	err = syscall.Pipe2(fds[:], syscall.O_CLOEXEC)
	return fds[0], fds[1], err
}

// awaitExit returns when the process has ended and leaves its number taken.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}
