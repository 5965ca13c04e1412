package filesync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind says what a mapping holds, and so what may come back.
type Kind string

// The kinds of mappings.
const (
	Skill      Kind = "skill"      // comes back with SyncBack "all" alone: the host may run it
	Cache      Kind = "cache"      // comes back, unless SyncBack is "off"
	Credential Kind = "credential" // never comes back
)

// Mapping is one file or directory of this machine and where it goes.
type Mapping struct {
	Source string // a path here
	Target string // relative to the far home, with slashes
	Kind   Kind
}

// checkEvery is how often the sources are looked at, at most.
const checkEvery = 5 * time.Second

// ProfileOptions says between which places a Profile works.
type ProfileOptions struct {
	Remote Remote
	// Home is the far home, FarState a directory of our own there, for the book; both absolute.
	Home, FarState string
	// HermesHome is HERMES_HOME here, FarHermes what corresponds to it below the far home; "" is ".hermes".
	HermesHome, FarHermes string
	// Place says which far side it is (backend, host, user), ID who we are.
	Place, ID string
	// SyncBack is "cache", "all" or "off"; MaxBytes how much may come back at once, 0 for no limit.
	SyncBack string
	MaxBytes int64
	// Force makes every Push look, however short ago the last one was.
	Force    bool
	Logger   *slog.Logger // nil discards
	Progress func(Progress)
}

// Profile keeps skills, caches and credential files of HERMES_HOME on a far home. Its methods may be called from several
// goroutines; they work one after the other, also those of other processes of this machine with the same home.
type Profile struct {
	o   ProfileOptions
	far *far

	mu       sync.Mutex
	mappings []Mapping
	verified string // the generation of the book with which this process has seen the far side to agree
	here     bool   // the far home is this machine's own
	checked  time.Time
	warned   map[string]bool     // what was said already
	refused  map[string]nearStat // what could not be sent; it is tried again when it changes
	now      func() time.Time
}

// NewProfile makes a Profile; nothing is transferred yet.
func NewProfile(o ProfileOptions) *Profile {
	if o.FarHermes == "" {
		o.FarHermes = ".hermes"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Profile{o: o, far: &far{o.Remote, o.Home}, warned: map[string]bool{}, refused: map[string]nearStat{}, now: time.Now}
}

func (p *Profile) books() string { return filepath.Join(p.o.HermesHome, "elsewhere", "sync") }
func (p *Profile) name() string  { return "profile-" + key(p.o.ID, p.o.Place, p.o.Home) }
func (p *Profile) farBook() string {
	return path.Join(p.o.FarState, "filesync-"+key(p.o.ID, p.o.Place, p.o.Home))
}

// Due tells whether a Push would look at the sources now; else the work of making its mappings can be spared.
func (p *Profile) Due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.due()
}

func (p *Profile) due() bool {
	return !p.here && (p.o.Force || p.checked.IsZero() || p.now().Sub(p.checked) >= checkEvery)
}

// Push brings the far side up to date with the mappings. Notices are what a user has to know, each said once. After an
// error nothing counts as transferred and the next Push tries again at once.
func (p *Profile) Push(ctx context.Context, mappings []Mapping) (notices []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mappings = mappings
	if !p.due() {
		return nil, nil
	}
	began := p.now()
	if p.checked.IsZero() {
		p.sweep()
	}
	book, err := openBook(ctx, p.books(), p.name())
	if err != nil {
		return nil, err
	}
	defer book.close()
	near, kinds, skipped := p.sources()
	if len(near)+len(skipped)+len(book.Files) == 0 { // then nobody is asked
		p.checked = began
		return nil, nil
	}
	c := &comparison{near: near, book: book, follow: true, modes: true}
	if err := p.meet(ctx, c); err != nil || p.here {
		return nil, err
	}
	puts := c.push()
	for _, conflict := range c.conflicts {
		p.refused[conflict.Path] = near[conflict.Path].stat
	}
	for name, it := range near {
		if c.below(name) {
			p.refused[name] = it.stat
		}
	}
	removes := c.gone(
		func(name string) bool { _, ok := near[name]; return ok || skipped[name] != "" },
		func(name string) (string, error) { return c.farToken(name), nil },
		func(name string) bool { return !underSkipped(skipped, name) })
	err = p.ship(ctx, c, puts, removes, false)
	for name, why := range skipped {
		c.skipped = append(c.skipped, Skip{name, why})
	}
	notices = p.tell(c, kinds)
	if err != nil {
		return notices, err
	}
	p.checked = began
	return notices, nil
}

// ship sends what differs and writes the books; with rebook it does so though nothing differs.
func (p *Profile) ship(ctx context.Context, c *comparison, puts []put, removes []removal, rebook bool) error {
	puts = slices.DeleteFunc(puts, func(it put) bool {
		st, refused := p.refused[it.name]
		return refused && st == it.from.stat
	})
	if len(puts)+len(removes) == 0 && p.verified != "" && !rebook {
		return c.book.save()
	}
	generation := NewID()
	c.book.Next = generation
	if err := c.book.save(); err != nil {
		return err
	}
	s := &shipment{
		puts: puts, removes: removes, progress: p.o.Progress,
		stage: temporary + key(p.name())[:12], bookFile: p.farBook(),
		book: func(tokens map[string]string) []byte { return c.book.farText(generation, tokens, removes) },
	}
	done, err := p.far.send(ctx, s)
	if err != nil {
		p.verified = "" // what the far side has is not known any more
		c.remember(done)
		return errors.Join(err, c.book.save())
	}
	c.record(s, done)
	for _, skip := range done.skipped {
		if it, ok := c.near[skip.Path]; ok {
			p.refused[skip.Path] = it.stat
		}
	}
	c.skipped = append(c.skipped, slices.DeleteFunc(done.skipped, func(s Skip) bool { return s.Why == notEmpty })...)
	if done.booked {
		c.book.Generation = generation
	}
	c.book.Next = ""
	p.verified = generation
	if err := c.book.save(); err != nil {
		p.verified = ""
		return err
	}
	return nil
}

// sources lists what the mappings hold, by far name. What cannot be read is in skipped: it is not taken for removed.
func (p *Profile) sources() (near map[string]nearItem, kinds map[string]Kind, skipped map[string]string) {
	near, kinds, skipped = map[string]nearItem{}, map[string]Kind{}, map[string]string{}
	for _, m := range p.mappings {
		if !local(m.Target) {
			skipped[m.Target] = "its target leads out of the far home"
			continue
		}
		found := map[string]nearItem{}
		info, err := os.Stat(m.Source)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			skipped[m.Target] = unwrapPath(err).Error()
			continue
		case info.IsDir():
			found[m.Target] = newNearItem(m.Source, info)
			err = walkNear(m.Source, m.Target+"/", func(string, bool) bool { return true }, found,
				func(name, why string) { skipped[name] = why })
			if err != nil {
				skipped[m.Target] = unwrapPath(err).Error()
			}
		default:
			found[m.Target] = newNearItem(m.Source, info)
		}
		for name, it := range found {
			if it.Type == 'l' || it.Type == 'o' { // a link may lead out of what was meant to be sent
				delete(found, name)
				continue
			}
			near[name], kinds[name] = it, m.Kind
		}
	}
	return near, kinds, skipped
}

func underSkipped(skipped map[string]string, name string) bool {
	for dir := range skipped {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	return false
}

// meet finds out what the far side has. The first time it reads the far book and lets the far side look at the files that it
// lists; later ones believe the book.
func (p *Profile) meet(ctx context.Context, c *comparison) error {
	if p.verified != "" && p.verified == c.book.Generation {
		c.owned = true
		believe(c)
		return nil
	}
	p.refused = map[string]nearStat{}
	probe, secret, done := p.probe()
	defer done()
	l, err := p.far.scan(ctx, scanRequest{book: p.farBook(), probe: probe})
	if err != nil {
		return err
	}
	if secret != "" && l.proof == secret {
		p.here = true
		return nil
	}
	if c.owned = c.book.trusted(l.generation); c.owned {
		c.book.Generation = l.generation
		p.verified = l.generation
		c.far = l.items
	} else {
		c.book.disown()
		if l, err = p.far.scan(ctx, scanRequest{names: sortedNames(c.near)}); err != nil {
			return err
		}
		c.far = l.items
		p.verified = ""
	}
	return c.readFar(ctx, p.far, c.common())
}

// believe takes the far side to be as the book has it.
func believe(c *comparison) {
	c.far, c.farTokens = map[string]item{}, map[string]string{}
	c.nearTokens, c.nearStats = map[string]string{}, map[string]nearStat{}
	for name, e := range c.book.Files {
		kind := byte('f')
		if e.Token == directory {
			kind = 'd'
		}
		c.far[name], c.farTokens[name] = item{Type: kind, Mode: e.Mode, Stamp: e.Far}, e.Token
	}
}

// probe writes a random file into HERMES_HOME: who reads it on the far side has the same home.
func (p *Profile) probe() (farPath, secret string, done func()) {
	secret = NewID() + NewID()
	f, err := os.CreateTemp(p.books(), "probe-")
	if err != nil {
		return "", "", func() {}
	}
	_, err = f.WriteString(secret + "\n")
	done = func() { _ = os.Remove(f.Name()) }
	if cerr := f.Close(); err != nil || cerr != nil {
		return "", "", done
	}
	return path.Join(p.o.Home, p.o.FarHermes, "elsewhere", "sync", filepath.Base(f.Name())), secret, done
}

// tell makes notices of what was left out, each once.
func (p *Profile) tell(c *comparison, kinds map[string]Kind) (notices []string) {
	for _, s := range slices.Concat(c.skipped, c.conflicts) {
		text := fmt.Sprintf("%s was not synchronised: %s", shownName(s.Path), s.Why)
		if !p.warned[text] {
			p.warned[text] = true
			notices = append(notices, text)
			p.o.Logger.Warn("file not synchronised", "path", s.Path, "kind", kinds[s.Path], "why", s.Why)
		}
	}
	if len(notices) > 10 {
		notices = append(notices[:10], fmt.Sprintf("and %d more files were not synchronised (the log has them)", len(notices)-10))
	}
	return notices
}

// shownName makes a name safe to print.
func shownName(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}
