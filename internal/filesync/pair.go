package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// Pair is a directory here and one on the far side, of which one follows the other (`elsewhere sync`).
type Pair struct {
	Remote Remote
	// Near is a directory here, Far an absolute path there. ToFar says which one is the source.
	Near, Far string
	ToFar     bool
	// Books is the directory here in which the book is kept, Place says which far side it is, ID who we are.
	Books, Place, ID string

	Exclude   []string // patterns as in .gitignore
	GitIgnore bool     // .gitignore files of the source count too
	Delete    bool     // what is gone at the source is removed, as far as an earlier sync wrote it
	Force     bool     // the source wins every conflict
	DryRun    bool     // nothing is changed, here or there
	Progress  func(Progress)
}

// Synced is what a sync did, or would do.
type Synced struct {
	Sent      []string // files, links and directories that were written
	Removed   []string
	Same      int    // what was the same on both sides
	Conflicts []Skip // what was left as it is, since somebody else changed it
	Skipped   []Skip // what could not be transferred
	Bytes     int64  // of the files that were written
	Resumed   bool   // an earlier transfer that was cut went on
}

// Sync makes the destination like the source. Paths are relative, with slashes.
func (p *Pair) Sync(ctx context.Context) (*Synced, error) {
	if info, err := os.Stat(p.Near); err == nil && !info.IsDir() {
		return nil, argument("%s is a file, and sync makes one directory like another: copy a file with `elsewhere cp`", p.Near)
	}
	root := ""
	if p.GitIgnore && p.ToFar {
		root = p.Near
	}
	filter, err := newFilter(p.Exclude, root)
	if err != nil {
		return nil, err
	}
	direction := "to"
	if !p.ToFar {
		direction = "from"
	}
	name := key(p.ID, p.Place, p.Far, p.Near, direction)
	book, err := openBook(ctx, p.Books, "pair-"+name)
	if err != nil {
		return nil, err
	}
	defer book.close()
	r := &pairRun{Pair: p, filter: filter, book: book, far: &far{p.Remote, p.Far}, done: &Synced{}, stage: temporary + name[:12]}
	if err := r.compare(ctx); err != nil {
		return nil, err
	}
	if p.ToFar {
		err = r.push(ctx)
	} else {
		err = r.pull(ctx)
	}
	r.done.Same, r.done.Conflicts = r.c.same, r.c.conflicts
	r.done.Skipped = append(r.done.Skipped, r.c.skipped...)
	if !p.DryRun {
		err = errors.Join(err, book.save())
	}
	return r.done, err
}

// pairRun is one sync.
type pairRun struct {
	*Pair
	filter *filter
	book   *book
	far    *far
	stage  string
	c      *comparison
	done   *Synced
}

func (r *pairRun) warn(path, why string) { r.done.Skipped = append(r.done.Skipped, Skip{path, why}) }

// walked is what is here.
type walked struct {
	near    map[string]nearItem
	skipped []Skip
	err     error
}

func (r *pairRun) walk() (w walked) {
	w.near = make(map[string]nearItem, len(r.book.Files))
	w.err = walkNear(r.Near, "", r.filter.keep, w.near, func(path, why string) { w.skipped = append(w.skipped, Skip{path, why}) })
	if errors.Is(w.err, fs.ErrNotExist) && !r.ToFar {
		w.err = nil
	}
	return w
}

// compare looks at both sides at once: the far side begins with the names that the book has.
func (r *pairRun) compare(ctx context.Context) error {
	here := make(chan struct{})
	var w walked
	go func() {
		defer close(here)
		w = r.walk()
	}()
	req := scanRequest{tree: !r.ToFar || r.Delete}
	if !req.tree {
		req.names = slices.Collect(maps.Keys(r.book.Files))
		req.more = func() (names []string) {
			<-here
			for name := range w.near {
				if _, booked := r.book.Files[name]; !booked {
					names = append(names, name)
				}
			}
			return names
		}
	}
	l, err := r.far.scan(ctx, req)
	<-here
	r.done.Skipped = append(r.done.Skipped, w.skipped...)
	if w.err != nil {
		return fmt.Errorf("%s: %w", r.Near, unwrapPath(w.err))
	}
	if err != nil {
		return err
	}
	switch {
	case l.other:
		return argument("%s is no directory there, and sync makes one directory like another: copy a file with `elsewhere cp`", r.Far)
	case !l.exists && !r.ToFar:
		return argument("%s: there is no such directory there", r.Far)
	}
	if r.GitIgnore && !r.ToFar {
		if err := r.ignoreAsThere(ctx, l, w.near); err != nil {
			return err
		}
	}
	for name, it := range l.items {
		if isTemporary(name) || !r.filter.covers(name, it.Type == 'd') {
			delete(l.items, name)
		}
	}
	// A book of a pair is believed as it is: every token that it tells of is compared with what stat says, or read.
	r.c = &comparison{near: w.near, far: l.items, book: r.book, owned: true, force: r.Force, replace: r.Force, modes: true}
	ask := r.c.common()
	return r.c.readFar(ctx, r.far, ask)
}

// common gives the names whose far content matters: what both sides have, and what the book has.
func (c *comparison) common() (names []string) {
	for name := range c.far {
		_, both := c.near[name]
		_, booked := c.book.Files[name]
		if both || booked {
			names = append(names, name)
		}
	}
	return names
}

func (r *pairRun) push(ctx context.Context) error {
	puts := r.c.push()
	var removes []removal
	if r.Delete {
		removes = r.c.gone(
			func(name string) bool { _, ok := r.c.near[name]; return ok },
			func(name string) (string, error) { return r.c.farToken(name), nil },
			func(name string) bool { return r.filter.covers(name, r.book.Files[name].Token == directory) })
		removes = deepestFirst(append(removes, r.extras(r.c.far, func(name string) bool { _, ok := r.c.near[name]; return ok })...))
	}
	if r.DryRun || len(puts)+len(removes) == 0 {
		for _, p := range puts {
			r.done.Sent = append(r.done.Sent, p.name)
		}
		for _, rm := range removes {
			r.done.Removed = append(r.done.Removed, rm.name)
		}
		return nil
	}
	s := &shipment{puts: puts, removes: removes, stage: r.stage, progress: r.Progress}
	shipped, err := r.far.send(ctx, s)
	if err != nil {
		r.c.remember(shipped)
		return err
	}
	r.c.record(s, shipped)
	for _, p := range s.puts {
		if _, ok := shipped.tokens[p.name]; ok {
			r.done.Sent = append(r.done.Sent, p.name)
			r.done.Bytes += p.from.Size
		}
	}
	r.done.Removed, r.done.Resumed = shipped.removed, shipped.resumed
	r.done.Skipped = append(r.done.Skipped, shipped.skipped...)
	return nil
}

// extras lists what the destination alone has. It is removed with force only.
func (r *pairRun) extras(there map[string]item, source func(string) bool) (removes []removal) {
	var covered []string
	for _, name := range sortedNames(there) {
		if _, booked := r.book.Files[name]; booked || source(name) || r.c.below(name) {
			continue
		}
		if slices.ContainsFunc(covered, func(dir string) bool { return len(name) > len(dir) && name[:len(dir)+1] == dir+"/" }) {
			continue
		}
		covered = append(covered, name)
		if r.Force {
			removes = append(removes, removal{name, "**"})
		} else {
			r.c.conflict(name, "it is not at the source, and no earlier sync wrote it")
		}
	}
	return removes
}

func (r *pairRun) pull(ctx context.Context) error {
	gets := r.c.pull()
	var removes []removal
	if r.Delete {
		there := func(name string) bool { _, ok := r.c.far[name]; return ok }
		removes = r.c.gone(there,
			func(name string) (string, error) {
				if _, ok := r.c.near[name]; !ok {
					return absent, nil
				}
				return r.c.nearToken(name)
			},
			func(name string) bool { return r.filter.covers(name, r.book.Files[name].Token == directory) })
		here := map[string]item{}
		for name, it := range r.c.near {
			here[name] = it.item
		}
		removes = deepestFirst(append(removes, r.extras(here, there)...))
	}
	if r.DryRun {
		for _, g := range gets {
			r.done.Sent = append(r.done.Sent, g.name)
		}
		for _, rm := range removes {
			r.done.Removed = append(r.done.Removed, rm.name)
		}
		return nil
	}
	if err := os.MkdirAll(r.Near, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(r.Near)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, rm := range removes {
		if why := removeNear(root, rm); why != "" {
			r.warn(rm.name, why)
			continue
		}
		delete(r.book.Files, rm.name)
		r.done.Removed = append(r.done.Removed, rm.name)
	}
	fetched, err := r.far.fetch(ctx, gets, arrivals{
		root: root, links: true, keepMode: true, progress: r.Progress,
		place: func(name string) (string, string) { return name, "" },
		now:   func(rel string) (string, error) { return tokenAt(root, rel) },
	})
	if fetched != nil {
		r.took(root, gets, fetched)
	}
	return err
}

// took records what came.
func (r *pairRun) took(root *os.Root, gets []get, fetched *fetched) {
	r.c.recordFetched(gets, fetched, func(name string) (nearItem, bool) {
		native := filepath.FromSlash(name)
		info, err := root.Lstat(native)
		if err != nil {
			return nearItem{}, false
		}
		return newNearItem(filepath.Join(root.Name(), native), info), true
	})
	for _, g := range gets {
		if _, ok := fetched.tokens[g.name]; ok {
			r.done.Sent = append(r.done.Sent, g.name)
			r.done.Bytes += g.it.Size
		}
	}
	r.done.Skipped = append(r.done.Skipped, fetched.skipped...)
}

// removeNear removes what still has the token.
func removeNear(root *os.Root, rm removal) (why string) {
	native := filepath.FromSlash(rm.name)
	if rm.expect == "**" {
		if err := root.RemoveAll(native); err != nil {
			return unwrapPath(err).Error()
		}
		return ""
	}
	switch now, err := tokenAt(root, rm.name); {
	case err != nil:
		return unwrapPath(err).Error()
	case now == absent:
		return ""
	case now != rm.expect:
		return "it was changed here meanwhile"
	}
	if err := root.Remove(native); err != nil {
		return unwrapPath(err).Error()
	}
	return ""
}

// NewID is a new random id, for callers that have no identity.
func NewID() string { return owner.NewID() }
