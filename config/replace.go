package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// linkTarget follows file if it is a link, also one whose target is missing.
func linkTarget(file string) (string, error) {
	for range 40 {
		to, err := os.Readlink(file)
		if err != nil {
			// No link, or nothing there: this is the file.
			return file, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(file), to)
		}
		file = to
	}
	return "", errors.New("too many links")
}

// replaceFile puts data in the place of file, whole or not at all. The mode is that of was, or 0600 where it is nil; the
// owner stays where the process may set it.
func replaceFile(file string, data []byte, was fs.FileInfo) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".config.yaml.*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	if was != nil {
		// A root that edits a user's file must not lock the user out.
		keepOwner(tmp, was)
		if err = tmp.Chmod(was.Mode().Perm()); err != nil {
			return err
		}
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
