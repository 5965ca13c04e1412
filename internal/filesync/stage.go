package filesync

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/lockfile"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// stage is a directory in a root of this machine for files that are on their way. A lock in it says that its process lives.
type stage struct {
	root *os.Root
	name string
	lock *flock.Flock
}

// openStage removes what dead processes left in the root and makes a stage of our own. It must be closed.
func openStage(root *os.Root) (*stage, error) {
	removeStages(root)
	var errs []error
	for range 3 { // another process that sweeps may take it for a dead one's until it is locked
		s := &stage{root: root, name: temporary + owner.NewID()}
		if err := root.Mkdir(s.name, 0o700); err != nil {
			return nil, err
		}
		s.lock = flock.New(filepath.Join(root.Name(), s.name, "lock"), flock.SetPermissions(0o600))
		err := s.take()
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
		s.close()
	}
	return nil, errors.Join(append(errs, errors.New("the directory for files on their way cannot be locked"))...)
}

// take locks the stage, unless another process has locked it, or has removed it with its lock, in between.
func (s *stage) take() error {
	ok, err := s.lock.TryLock()
	if err == nil && (!ok || !lockfile.Current(s.lock)) {
		err = fmt.Errorf("another process has taken %s for a dead one's", s.lock.Path())
	}
	return err
}

func (s *stage) close() {
	_ = s.lock.Close()
	_ = s.root.RemoveAll(s.name)
}

// removeStages removes the stages whose processes are gone. One without a lock is just being made, or was never used.
func removeStages(root *os.Root) {
	dir, err := root.Open(".")
	if err != nil {
		return
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		if !strings.HasPrefix(name, temporary) {
			continue
		}
		lockFile := filepath.Join(name, "lock")
		if info, err := root.Lstat(lockFile); err != nil || !info.Mode().IsRegular() {
			if errors.Is(err, fs.ErrNotExist) {
				_ = root.Remove(name) // only an empty one goes
			}
			continue
		}
		lock := flock.New(filepath.Join(root.Name(), lockFile), flock.SetPermissions(0o600))
		if ok, err := lock.TryLock(); err == nil && ok {
			_ = root.RemoveAll(name)
		}
		_ = lock.Close()
	}
}
