//go:build unix

package local

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Paths have one form here.
func toBash(path string) string   { return path }
func toNative(path string) string { return path }

// adaptEnvironment has nothing to do here.
func adaptEnvironment(*environment, string) {}

// findBash looks on the caller's PATH, then in the usual places.
func findBash(_ context.Context, vars *environment, _ string) (string, error) {
	return bashIn(append(pathEntries(vars.get("PATH")),
		"/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/run/current-system/sw/bin"))
}

func bashIn(dirs []string) (string, error) {
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, "bash")
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", failure(driver.KindUnavailable, "no bash on PATH, in /usr/bin, /bin or /usr/local/bin: install bash (apt install bash, apk add bash, brew install bash) or put its directory on PATH")
}

func enterable(dir string) bool { return isDir(dir) && unix.Access(dir, unix.X_OK) == nil }

// private makes sure that dir is a directory that only its user may use, and that he may write to it.
func private(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st.Mode().Perm() != 0o700 {
		if err := os.Chmod(dir, 0o700); err != nil {
			return err
		}
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	if full(dir) {
		return &os.PathError{Op: "write to", Path: dir, Err: syscall.ENOSPC}
	}
	return nil
}

// full tells whether nothing more can be written to the file system of dir: a directory can often still be made there.
// Some file systems do not count their blocks.
func full(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Blocks > 0 && st.Bavail == 0
}

// ownFile tells whether a file belongs to the user of this process.
func ownFile(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}
