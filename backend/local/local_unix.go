//go:build unix

package local

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Paths have one form here.
func toBash(path string) string   { return path }
func toNative(path string) string { return path }

func platformEnvironment(*environment, string) {}

// findBash looks on the caller's PATH, then in the usual places.
func findBash(vars variables, _ string) (string, error) {
	candidates := pathEntries(vars.get("PATH"))
	candidates = append(candidates, "/usr/bin", "/bin", "/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/run/current-system/sw/bin")
	for _, dir := range candidates {
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
	return nil
}
