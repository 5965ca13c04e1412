// Package statefile lists and removes state files where the driver reaches their directory as files of this machine.
//
// Commands may write in that directory too, so nothing in it is trusted: everything goes through an open root, no link is
// followed, and only plain files are touched.
package statefile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// ErrNotStateFile is what Remove and List return for a path that is, or goes through, something else than what is expected
// there: a directory in place of a file, a link in place of a directory.
var ErrNotStateFile = errors.New("is not a state file")

// Remove removes the file rel of root, or the link of that name. One that is not there is no error.
func Remove(root *os.Root, rel string) error {
	err := plainParents(root, rel)
	if err == nil {
		var st os.FileInfo
		if st, err = root.Lstat(rel); err == nil {
			if st.IsDir() {
				return &fs.PathError{Op: "remove", Path: rel, Err: ErrNotStateFile}
			}
			err = root.Remove(rel)
		}
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrClosed) {
		return nil // removed, or with the whole directory
	}
	return err
}

// plainParents refuses a path that goes through a link.
func plainParents(root *os.Root, rel string) error {
	for i, c := range rel {
		if !os.IsPathSeparator(uint8(c)) || c > 127 {
			continue
		}
		st, err := root.Lstat(rel[:i])
		if err != nil {
			return err
		}
		if !st.IsDir() {
			return &fs.PathError{Op: "open", Path: rel[:i], Err: ErrNotStateFile}
		}
	}
	return nil
}

// List lists the plain files at or below rel. Links are neither listed nor followed. name gives a file's path, as the
// sandbox has it, of its name relative to root.
func List(ctx context.Context, root *os.Root, rel string, name func(file string) string) ([]driver.StateFile, error) {
	if err := plainParents(root, rel+string(filepath.Separator)); err != nil {
		return nil, err
	}
	var files []driver.StateFile
	err := walk(root, rel, func(file string) error {
		f := driver.StateFile{Path: name(file)}
		f.Head, f.ModTime, _ = head(root, file)
		files = append(files, f)
		return ctx.Err()
	})
	return files, err
}

// walk calls f with the name of every plain file at or below rel, without following a link.
func walk(root *os.Root, rel string, f func(string) error) error {
	dir, err := root.Open(rel)
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(-1)
	_ = dir.Close()
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(filepath.ToSlash(rel), entry.Name())
		switch {
		case entry.IsDir():
			err = walk(root, filepath.FromSlash(name), f)
		case entry.Type().IsRegular():
			err = f(filepath.FromSlash(name))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// head reads the first line of a file, at most 256 bytes.
func head(root *os.Root, file string) (line string, modTime time.Time, err error) {
	f, err := root.Open(file)
	if err != nil {
		return "", time.Time{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return "", time.Time{}, err
	}
	buffer := make([]byte, 256)
	n, err := f.Read(buffer)
	line, _, _ = strings.Cut(string(buffer[:n]), "\n")
	return line, st.ModTime(), err
}
