package filesync

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const nonblock = syscall.O_NONBLOCK

// changeOf gives the time of the last change in nanoseconds and the inode.
func changeOf(info fs.FileInfo) (ctime int64, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctimespec.Nano(), st.Ino
	}
	return 0, 0
}

func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) }

// isSparse is no: holes are sent as the zeros that they read as, which compress well.
func isSparse(fs.FileInfo) bool { return false }

func nextData(_ *os.File, offset, size int64) (from, to int64) { return offset, size }
