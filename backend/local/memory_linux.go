package local

import "golang.org/x/sys/unix"

// memoryRoom is the least free space that makes a file system in memory a place for state files: many times what they take.
const memoryRoom = 64 << 20

// memoryDir is a directory in memory that every user may write to, or "" where there is none with room.
func memoryDir() string {
	const dir = "/dev/shm"
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Type != unix.TMPFS_MAGIC || int64(st.Bavail)*st.Bsize < memoryRoom || unix.Access(dir, unix.W_OK) != nil {
		return ""
	}
	return dir
}
