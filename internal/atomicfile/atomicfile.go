// Package atomicfile replaces a file as a whole: a reader sees the old content or the new, never a part, and a writer that
// is killed leaves the old one. It does not wait for the disk: after a power failure either may be there.
package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Write puts data into path with mode perm. The directory must exist. On an error the old file is as it was.
func Write(path string, data []byte, perm fs.FileMode) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	if err = tmp.Chmod(perm); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
