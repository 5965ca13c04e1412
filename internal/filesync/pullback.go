package filesync

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Pulled is what came back.
type Pulled struct {
	Changed []string // paths here
	Notices []string
}

// tooMuch says what was over the cap.
const tooMuch = "it is over what may come back at once (terminal.sync_back_max_bytes)"

// Pull brings back what was changed or made on the far side below directories of the kinds that come back. What was changed
// here too stays as it is, and so does what only the far side has deleted. Files get no execute permission that they did not
// have here. It works on the mappings of the last Push; before one it does nothing.
func (p *Profile) Pull(ctx context.Context) (*Pulled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := &Pulled{}
	back := p.comesBack()
	if p.here || p.checked.IsZero() || len(back) == 0 {
		return done, nil
	}
	book, err := openBook(ctx, p.books(), p.name())
	if err != nil {
		return nil, err
	}
	defer book.close()
	near, kinds, _ := p.sources()
	targets := make([]string, len(back))
	for i, m := range back {
		targets[i] = m.Target
	}
	l, err := p.far.scan(ctx, scanRequest{roots: true, names: targets, book: p.farBook()})
	if err != nil {
		return nil, err
	}
	c := &comparison{near: near, far: p.candidates(l.items, near, book), book: book, owned: book.trusted(l.generation)}
	if err := c.readFar(ctx, p.far, sortedNames(c.far)); err != nil {
		return nil, err
	}
	gets := p.capped(c, c.pull())
	for _, m := range back {
		if err := p.bring(ctx, c, m, gets, done); err != nil {
			return done, err
		}
	}
	done.Notices = p.tell(c, kinds)
	if len(done.Changed) == 0 {
		return done, book.save()
	}
	return done, p.ship(ctx, c, nil, nil, true) // so that the next cold start knows of them
}

// comesBack gives the mappings that SyncBack allows to change here.
func (p *Profile) comesBack() (back []Mapping) {
	for _, m := range p.mappings {
		if local(m.Target) && (m.Kind == Cache && p.o.SyncBack != "off" || m.Kind == Skill && p.o.SyncBack == "all") {
			back = append(back, m)
		}
	}
	return back
}

// candidates leaves of a listing what may come back: files that no credential mapping is about, and that were not deleted
// here meanwhile.
func (p *Profile) candidates(items map[string]item, near map[string]nearItem, b *book) map[string]item {
	left := map[string]item{}
	for name, it := range items {
		_, there := near[name]
		_, booked := b.Files[name]
		if it.Type == 'd' || it.Type == 'l' || it.Type == 'o' || isTemporary(name) || booked && !there {
			continue
		}
		if !slices.ContainsFunc(p.mappings, func(m Mapping) bool {
			return m.Kind == Credential && (m.Target == name || strings.HasPrefix(name, m.Target+"/"))
		}) {
			left[name] = it
		}
	}
	return left
}

// capped leaves out what is over the cap.
func (p *Profile) capped(c *comparison, gets []get) (left []get) {
	var total int64
	for _, g := range gets {
		if p.o.MaxBytes > 0 && g.it.Size > p.o.MaxBytes-total {
			c.skipped = append(c.skipped, Skip{g.name, tooMuch})
			continue
		}
		total += g.it.Size
		left = append(left, g)
	}
	return left
}

// bring fetches what belongs to one mapping. Everything goes through a root at the mapping's own place.
func (p *Profile) bring(ctx context.Context, c *comparison, m Mapping, gets []get, done *Pulled) error {
	dir, only := m.Source, ""
	if info, err := os.Stat(m.Source); err != nil || !info.IsDir() {
		dir, only = filepath.Dir(m.Source), filepath.Base(m.Source)
	}
	place := func(name string) (string, string) {
		if only != "" && name == m.Target {
			return only, ""
		}
		rel, ok := strings.CutPrefix(name, m.Target+"/")
		if !ok || only != "" {
			return "", "it belongs to nothing that comes back"
		}
		return rel, ""
	}
	var mine []get
	for _, g := range gets {
		if _, why := place(g.name); why == "" && p.owner(g.name) == m.Target {
			mine = append(mine, g)
		}
	}
	if len(mine) == 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	fetched, err := p.far.fetch(ctx, mine, arrivals{
		root: root, place: place, max: p.o.MaxBytes, progress: p.o.Progress,
		now: func(rel string) (string, error) { return tokenAt(root, rel) },
	})
	if fetched == nil {
		return err
	}
	c.recordFetched(mine, fetched, func(name string) (nearItem, bool) {
		rel, _ := place(name)
		info, err := root.Lstat(filepath.FromSlash(rel))
		if err != nil {
			return nearItem{}, false
		}
		return newNearItem(filepath.Join(dir, filepath.FromSlash(rel)), info), true
	})
	for _, g := range mine {
		if _, ok := fetched.tokens[g.name]; ok {
			rel, _ := place(g.name)
			done.Changed = append(done.Changed, filepath.Join(dir, filepath.FromSlash(rel)))
		}
	}
	c.skipped = append(c.skipped, fetched.skipped...)
	return err
}

// owner gives the target of the innermost mapping that a far name belongs to.
func (p *Profile) owner(name string) (target string) {
	for _, m := range p.mappings {
		if (name == m.Target || strings.HasPrefix(name, m.Target+"/")) && len(m.Target) > len(target) {
			target = m.Target
		}
	}
	return target
}

// sweep removes what dead processes left on their way.
func (p *Profile) sweep() {
	for _, m := range p.mappings {
		if root, err := os.OpenRoot(m.Source); err == nil {
			removeStages(root)
			_ = root.Close()
		}
	}
}
