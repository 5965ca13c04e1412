package filesync

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const nonblock = syscall.O_NONBLOCK

// changeOf gives the time of the last change in nanoseconds and the inode.
func changeOf(info fs.FileInfo) (ctime int64, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano(), st.Ino
	}
	return 0, 0
}

func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) }

// isSparse tells whether a file has holes that are worth leaving out.
func isSparse(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Size() > 1<<20 && st.Blocks*512 < info.Size()/4*3
}

// nextData finds the next stretch of a file that is no hole, from offset on; the end of the file where there is none.
func nextData(f *os.File, offset, size int64) (from, to int64) {
	from, err := f.Seek(offset, unix.SEEK_DATA)
	if errors.Is(err, syscall.ENXIO) {
		return size, size
	}
	if err != nil {
		return offset, size
	}
	if to, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
		return from, size
	}
	return from, min(to, size)
}
