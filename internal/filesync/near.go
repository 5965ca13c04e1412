package filesync

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// freshness is how close to a check a change may have been that stat does not show: file systems keep times in steps of
// up to two seconds.
const freshness = 2 * time.Second

// nearStat is what stat said of a file here when its content was read.
type nearStat struct {
	Size    int64  `json:"size"`
	MTime   int64  `json:"mtime"` // nanoseconds
	CTime   int64  `json:"ctime"` // nanoseconds; 0 where the file system has none
	Inode   uint64 `json:"inode"`
	Checked int64  `json:"checked,omitempty"` // when it was read, nanoseconds
}

func statOf(info fs.FileInfo) nearStat {
	st := nearStat{Size: info.Size(), MTime: info.ModTime().UnixNano()}
	st.CTime, st.Inode = changeOf(info)
	return st
}

// unchanged tells whether a file whose content was read at st and which now looks like now can be taken to have that
// content still. Anything that is not certain is no.
func (st nearStat) unchanged(now nearStat) bool {
	checked := st.Checked
	st.Checked, now.Checked = 0, 0
	return checked != 0 && st == now && st.CTime != 0 && st.MTime < checked-int64(freshness) && st.CTime < checked-int64(freshness)
}

// nearItem is a file of this machine.
type nearItem struct {
	item
	path string // as this system writes it
	stat nearStat
}

func newNearItem(path string, info fs.FileInfo) nearItem {
	it := nearItem{path: path, stat: statOf(info)}
	it.Mode, it.MTime = info.Mode().Perm(), info.ModTime()
	switch {
	case info.Mode().IsRegular():
		it.Type, it.Size = 'f', info.Size()
	case info.IsDir():
		it.Type = 'd'
	case info.Mode()&fs.ModeSymlink != 0:
		it.Type = 'l'
	default:
		it.Type = 'o'
	}
	return it
}

// walkNear lists what is below dir, keyed by slash path with prefix before it. What cannot be read is told to warn and left
// out; keep decides about each path and, for a directory, about all below it. dir itself may be a link.
func walkNear(dir, prefix string, keep func(rel string, isDir bool) bool, into map[string]nearItem, warn func(path, why string)) error {
	root, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if path == root {
			return err
		}
		rel, rerr := filepath.Rel(root, path)
		if rerr != nil {
			return rerr
		}
		rel = filepath.ToSlash(rel)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				warn(prefix+rel, unwrapPath(err).Error())
			}
			return nil
		}
		if isTemporary(rel) || !keep(rel, d.IsDir()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil // it vanished
		}
		into[prefix+rel] = newNearItem(path, info)
		return nil
	})
}

// token reads a file or link here. The stat that it returns is one that fits the content: a file that changes while it is
// read is an error.
func (it nearItem) token() (string, nearStat, error) {
	switch it.Type {
	case 'd':
		return directory, it.stat, nil
	case 'l':
		target, err := os.Readlink(it.path)
		return linkToken(filepath.ToSlash(target)), it.stat, err
	case 'f':
	default:
		return odd, it.stat, nil
	}
	f, before, err := openNear(it.path)
	if err != nil {
		return "", nearStat{}, err
	}
	defer f.Close()
	checked := time.Now().UnixNano()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", nearStat{}, err
	}
	after, err := f.Stat()
	if err != nil {
		return "", nearStat{}, err
	}
	st := statOf(after)
	if st != statOf(before) {
		return "", nearStat{}, errChanging
	}
	st.Checked = checked
	return fileToken(h.Sum(nil)), st, nil
}

var errChanging = errors.New("it changes while it is read")

// openNear opens a regular file, and nothing else: a pipe that has taken its place would wait for a writer.
func openNear(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file any more", path)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// unwrapPath drops operation and name from an error of package os.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
