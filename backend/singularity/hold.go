//go:build linux

package singularity

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// hold is how the process that made a throw-away instance says that it lives: by a lock on a file beside the instance's other
// files, which the kernel frees when the process is gone. Its lease says the same, but lies in the temp directory, where it may
// be swept away with other old files.
type hold struct{ lock *flock.Flock }

// holdName is the file's name in the instance's own directory.
const holdName = "owner.lock"

// takeHold makes the file in dir and locks it. The hold must be given up before the directory is removed: a file server keeps
// what is open.
func takeHold(dir string) (*hold, error) {
	file := filepath.Join(dir, holdName)
	lock := flock.New(file, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = errors.New(file + " is locked by another process")
	}
	if err != nil {
		_ = lock.Close()
		_ = os.Remove(file) // nothing could be told by it
		return nil, err
	}
	return &hold{lock}, nil
}

// giveUp frees the lock. A nil hold, and a second time, do nothing.
func (h *hold) giveUp() {
	if h != nil {
		_ = h.lock.Close()
	}
}

// held tells whether the process lives that made the throw-away instance with its files in dir. It is not known where the file is
// gone, or cannot be locked.
func held(dir string) (lives, known bool) {
	file := filepath.Join(dir, holdName)
	if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() {
		return false, false
	}
	// A shared lock: two that ask at once do not take each other for the owner. Without O_CREATE: the file may be gone.
	lock := flock.New(file, flock.SetFlag(os.O_RDONLY))
	defer lock.Close()
	free, err := lock.TryRLock()
	return err == nil && !free, err == nil
}
