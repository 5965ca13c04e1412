package filesync

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// quiet is how long nothing may change before a change is acted on, and longest how long one waits at most where something
// changes all the time.
const (
	quiet   = 200 * time.Millisecond
	longest = 5 * time.Second
)

// Watch calls changed after each change below dir, as soon as it is quiet again, until ctx is done or changed returns an
// error. Before the first call every directory that is there is watched: what changes after Watch calls ready is never
// missed. A tree with more directories than the system lets a user watch is an error.
func Watch(ctx context.Context, dir string, exclude []string, ready func() error, changed func() error) error {
	filter, err := newFilter(exclude, "")
	if err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer w.Close()
	if err := watchTree(w, dir, dir, filter); err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	var settle, latest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.Events:
			if !ok {
				return errors.New("watching the files ended")
			}
			rel, err := filepath.Rel(dir, e.Name)
			if err != nil || rel != "." && (isTemporary(filepath.ToSlash(rel)) || !filter.covers(filepath.ToSlash(rel), false)) {
				continue
			}
			if e.Has(fsnotify.Create) {
				if err := watchTree(w, dir, e.Name, filter); err != nil {
					return err
				}
			}
			settle = time.After(quiet)
			if latest == nil {
				latest = time.After(longest)
			}
			continue
		case err := <-w.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // then something changed, which is all we want to know
				return err
			}
			if err := watchTree(w, dir, dir, filter); err != nil {
				return err
			}
			settle = time.After(quiet)
			continue
		case <-settle:
		case <-latest:
		}
		settle, latest = nil, nil
		if err := changed(); err != nil {
			return err
		}
	}
}

// watchTree watches a directory and all below it. What is no directory, or vanishes meanwhile, does not matter.
func watchTree(w *fsnotify.Watcher, root, from string, filter *filter) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil || !d.IsDir():
			return nil
		}
		if rel, err := filepath.Rel(root, path); err == nil && rel != "." && !filter.covers(filepath.ToSlash(rel), true) {
			return fs.SkipDir
		}
		if err := w.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
