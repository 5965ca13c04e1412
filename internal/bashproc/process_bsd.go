//go:build unix && !linux

package bashproc

import "syscall"

// fdDir lists the descriptors of the process that reads it.
const fdDir = "/dev/fd"

// pipe makes a pipe whose ends are closed on exec; without pipe2 the fork lock keeps another fork from coming between.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		return 0, 0, err
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	return fds[0], fds[1], nil
}

// awaitExit does nothing: reap's own wait releases the number, a moment before the lock is held.
func awaitExit(int) {}
