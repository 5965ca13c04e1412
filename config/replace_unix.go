//go:build unix

package config

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of was, if the process may.
func keepOwner(f *os.File, was fs.FileInfo) {
	if st, ok := was.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}
