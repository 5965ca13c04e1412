// Package privatedir opens directories that hold what nobody else on the machine may read: spilled output, the audit
// file.
//
// A path is checked and then used, and between the two another process can put a symbolic link in its place. So the
// directory is opened once, compared with what was checked, and everything after goes through the open handle
// (os.Root): names in it can neither leave it nor be redirected by a later change of the path. Only the directory
// itself must not be a link; the way to it may hold links, since users keep their home folders behind them.
package privatedir

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// ErrNotRegular is what OpenFile returns for a name that is something else than a regular file, a symbolic link above
// all.
var ErrNotRegular = errors.New("not a regular file")

// Create opens dir, which it makes with mode 0700, parents included, where it does not exist. A directory that others
// can enter or read is made private; one with the sticky bit belongs to everybody and is refused, as is a symbolic
// link. The caller closes the root.
func Create(dir string) (*os.Root, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, info, err := open(dir)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 == 0 || runtime.GOOS == "windows" {
		return root, nil
	}
	if info.Mode()&fs.ModeSticky != 0 {
		_ = root.Close()
		return nil, &fs.PathError{Op: "open", Path: dir, Err: errors.New("is shared with other users (sticky bit)")}
	}
	if err := root.Chmod(".", 0o700); err != nil {
		_ = root.Close()
		return nil, err
	}
	return root, nil
}

// Open opens a directory that exists, and changes nothing. A missing one is fs.ErrNotExist; a symbolic link is refused.
// The caller closes the root.
func Open(dir string) (*os.Root, error) {
	root, _, err := open(dir)
	return root, err
}

func open(dir string) (*os.Root, fs.FileInfo, error) {
	checked, err := os.Lstat(dir)
	if err != nil {
		return nil, nil, err
	}
	if !checked.IsDir() {
		return nil, nil, &fs.PathError{Op: "open", Path: dir, Err: errors.New("not a directory, or a symbolic link")}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(checked, opened) {
		err = &fs.PathError{Op: "open", Path: dir, Err: errors.New("was replaced while it was opened")}
	}
	if err != nil {
		_ = root.Close()
		return nil, nil, err
	}
	return root, opened, nil
}

// OpenFile opens the regular file name in root with mode 0600, which it gives to a file that had another one. A
// symbolic link, a pipe or a device is refused with ErrNotRegular, also one that appears while the file is opened.
func OpenFile(root *os.Root, name string, flag int) (*os.File, error) {
	refuse := &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	// Looked at before: opening a pipe for writing would wait for its reader.
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, refuse
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := root.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	// And after: what the name is now must be what was opened. A name that is gone again was renamed by another process,
	// which is no link.
	opened, err := file.Stat()
	if err == nil && !opened.Mode().IsRegular() {
		err = refuse
	}
	if err == nil {
		named, lerr := root.Lstat(name)
		switch {
		case lerr == nil && !named.Mode().IsRegular():
			err = refuse
		case lerr != nil && !errors.Is(lerr, fs.ErrNotExist):
			err = lerr
		}
	}
	if err == nil && opened.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		err = file.Chmod(0o600)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
