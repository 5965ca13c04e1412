//go:build unix

package elsewhere

import (
	"io"
	"syscall"
)

func canReadNow(r io.Reader) bool {
	_, ok := r.(syscall.Conn)
	return ok
}

// readNow passes on what is in a pipe now, without waiting for more. A nil error says that it is empty.
func readNow(r io.Reader, buffer []byte, feed func([]byte)) error {
	conn, err := r.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	for {
		var n int
		var readErr error
		err := conn.Read(func(fd uintptr) bool {
			n, readErr = syscall.Read(int(fd), buffer)
			return true
		})
		switch {
		case err != nil:
			return err
		case readErr == syscall.EINTR:
		case readErr == syscall.EAGAIN:
			return nil
		case readErr != nil:
			return readErr
		case n == 0:
			return io.EOF
		default:
			feed(buffer[:n])
		}
	}
}
