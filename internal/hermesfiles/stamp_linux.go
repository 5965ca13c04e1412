package hermesfiles

import (
	"io/fs"
	"syscall"
	"time"
)

// stamp is when a file's inode was last changed, which no program can set back.
type stamp struct {
	known     bool
	sec, nsec int64
}

func (s stamp) changed() time.Time { return time.Unix(s.sec, s.nsec) }

func stampOf(info fs.FileInfo) stamp {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return stamp{true, int64(st.Ctim.Sec), int64(st.Ctim.Nsec)} //nolint:unconvert // 32 bits on some systems
	}
	return stamp{}
}
