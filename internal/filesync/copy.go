package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// Copy copies a file, a link or a tree (`elsewhere cp`), as docker cp does: into a directory that is there, under its own
// name; else to the name that is given, whose parents are made. A source that ends in /. stands for what is in it. What is
// at the destination is overwritten, but a directory never gives way to a file, nor a file to a directory.
type Copy struct {
	Remote Remote
	// Near is a path here. Far is an absolute path there.
	Near, Far string
	// ID says who we are; a copy that was cut goes on only for the same.
	ID       string
	Exclude  []string // patterns as in .gitignore
	Exact    bool     // the destination is a name, also where a directory of that name is there
	Progress func(Progress)
}

// Copied is what a copy did.
type Copied struct {
	Files   int // files, links and directories
	Bytes   int64
	Skipped []Skip // what could not be transferred
	Resumed bool
}

// ErrArgument says that a path or an option makes no sense.
var ErrArgument = errors.New("cannot be done")

func argument(format string, args ...any) error {
	return &argumentError{fmt.Sprintf(format, args...)}
}

type argumentError struct{ text string }

func (e *argumentError) Error() string        { return e.text }
func (e *argumentError) Is(target error) bool { return target == ErrArgument }

// LockCopy keeps copies of the same files to the same place apart: one that goes on where an earlier one was cut has to be
// alone. Where another process holds the lock ok is false, and the copy needs an ID of its own.
func LockCopy(dir, place, near, far string) (unlock func(), ok bool) {
	abs, err := filepath.Abs(near)
	if err != nil || os.MkdirAll(dir, 0o700) != nil {
		return nil, false
	}
	// Few files for all copies there may ever be; two that share one by chance only cannot both go on.
	lock := flock.New(filepath.Join(dir, "copy-"+key(place, abs, far)[:2]+".lock"), flock.SetPermissions(0o600))
	if ok, err := lock.TryLock(); err != nil || !ok {
		_ = lock.Close()
		return nil, false
	}
	return func() { _ = lock.Close() }, true
}

// destination says below which root and with which name before each path a source goes.
func destination(dst string, isDir bool, source string, contents, exact bool) (root, prefix string) {
	switch {
	case isDir && contents:
		return dst, ""
	case isDir && !exact:
		return dst, source
	}
	return path.Dir(dst), path.Base(dst)
}

func under(prefix, rel string) string {
	switch {
	case prefix == "":
		return rel
	case rel == "":
		return prefix
	}
	return prefix + "/" + rel
}

// To copies from here to the far side.
func (c *Copy) To(ctx context.Context) (*Copied, error) {
	source := filepath.ToSlash(c.Near)
	contents := source == "." || strings.HasSuffix(source, "/.")
	abs, err := filepath.Abs(c.Near)
	if err != nil {
		return nil, err
	}
	stat := os.Lstat
	if contents || strings.HasSuffix(source, "/") {
		stat = os.Stat
	}
	info, err := stat(c.Near)
	if err != nil {
		return nil, err
	}
	contents = contents && info.IsDir()
	l, err := (&far{c.Remote, c.Far}).scan(ctx, scanRequest{})
	if err != nil {
		return nil, err
	}
	if !l.exists && strings.HasSuffix(c.Far, "/") && !info.IsDir() {
		return nil, argument("%s: there is no such directory there", c.Far)
	}
	root, prefix := destination(path.Clean(c.Far), l.exists, filepath.Base(abs), contents, c.Exact)
	done := &Copied{}
	items := map[string]nearItem{}
	if prefix != "" {
		items[prefix] = newNearItem(abs, info)
	}
	if info.IsDir() {
		filter, err := newFilter(c.Exclude, "")
		if err != nil {
			return nil, err
		}
		before := under(prefix, "")
		if before != "" {
			before += "/"
		}
		if err := walkNear(c.Near, before, filter.keep, items, func(p, why string) { done.Skipped = append(done.Skipped, Skip{p, why}) }); err != nil {
			return nil, err
		}
	}
	s := &shipment{stage: temporary + key(c.ID, root, prefix, abs)[:12], progress: c.Progress}
	for name, it := range items {
		expect := "*"
		if it.Type == 'd' {
			expect = "follow"
		}
		s.puts = append(s.puts, put{name, it, expect})
	}
	shipped, err := (&far{c.Remote, root}).send(ctx, s)
	if err != nil {
		return nil, err
	}
	done.Skipped = append(done.Skipped, shipped.skipped...)
	done.Resumed = shipped.resumed
	for name := range shipped.tokens {
		done.Files++
		done.Bytes += items[name].Size
	}
	return done, nil
}

// From copies from the far side to here.
func (c *Copy) From(ctx context.Context) (*Copied, error) {
	contents := c.Far == "." || strings.HasSuffix(c.Far, "/.")
	source := path.Clean(c.Far)
	f := &far{c.Remote, source}
	l, err := f.scan(ctx, scanRequest{tree: true})
	if err != nil {
		return nil, err
	}
	isDir := l.exists
	if !isDir {
		if f = (&far{c.Remote, path.Dir(source)}); source == "/" {
			return nil, fmt.Errorf("%s: cannot be read", source)
		}
		if l, err = f.scan(ctx, scanRequest{names: []string{path.Base(source)}}); err != nil {
			return nil, err
		}
		if _, ok := l.items[path.Base(source)]; !ok {
			return nil, fmt.Errorf("%s: %w", source, fs.ErrNotExist)
		}
	}
	abs, err := filepath.Abs(c.Near)
	if err != nil {
		return nil, err
	}
	info, serr := os.Stat(abs)
	there := serr == nil && info.IsDir()
	if !there && !isDir && strings.HasSuffix(filepath.ToSlash(c.Near), "/") {
		return nil, argument("%s: there is no such directory here", c.Near)
	}
	if serr == nil && !there && isDir {
		return nil, argument("%s is a file, and %s a directory", c.Near, source)
	}
	root, prefix := destination(filepath.ToSlash(abs), there, path.Base(source), contents, c.Exact)
	return c.receive(ctx, f, l, isDir, filepath.FromSlash(root), prefix)
}

// receive brings what was listed to root here, with prefix before each name.
func (c *Copy) receive(ctx context.Context, f *far, l *listing, isDir bool, dir, prefix string) (*Copied, error) {
	filter, err := newFilter(c.Exclude, "")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if isDir && prefix != "" {
		if err := root.Mkdir(filepath.FromSlash(prefix), 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	done := &Copied{}
	var gets []get
	for name, it := range l.items {
		switch {
		case isDir && (isTemporary(name) || !filter.covers(name, it.Type == 'd')):
		case it.Type == 'o':
			done.Skipped = append(done.Skipped, Skip{name, "it is neither a file nor a directory nor a link"})
		default:
			gets = append(gets, get{name, it, "*"})
		}
	}
	fetched, err := f.fetch(ctx, gets, arrivals{
		root: root, links: true, keepMode: true, progress: c.Progress,
		place: func(name string) (string, string) {
			if isDir {
				return under(prefix, name), ""
			}
			return prefix, ""
		},
		now: func(rel string) (string, error) { return typeAt(root, rel) },
	})
	if err != nil {
		return nil, err
	}
	for _, g := range gets {
		if _, ok := fetched.tokens[g.name]; ok {
			done.Files++
			done.Bytes += g.it.Size
		}
	}
	done.Skipped = append(done.Skipped, fetched.skipped...)
	return done, nil
}

// typeAt is tokenAt without reading content: enough where anything but a directory is overwritten.
func typeAt(root *os.Root, rel string) (string, error) {
	info, err := root.Lstat(filepath.FromSlash(rel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return directory, nil
	}
	return odd, nil
}
