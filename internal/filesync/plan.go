package filesync

import (
	"context"
	"path"
	"slices"
	"time"
)

// comparison is two places and the book about them. owned says that the book may be believed: what it says is ours is.
type comparison struct {
	near  map[string]nearItem
	far   map[string]item
	book  *book
	owned bool

	force   bool // the source wins every conflict
	replace bool // a directory may give way too
	follow  bool // a link that stands for a directory at the destination is one
	modes   bool // a difference in permissions alone is a difference

	nearTokens map[string]string
	nearStats  map[string]nearStat
	farTokens  map[string]string

	same      int
	conflicts []Skip
	skipped   []Skip
	blocked   []string // directories that cannot be entered: something else is in their place
}

// nearToken reads the content of a file here unless the book knows it.
func (c *comparison) nearToken(name string) (string, error) {
	if token, ok := c.nearTokens[name]; ok {
		return token, nil
	}
	it := c.near[name]
	e, known := c.book.Files[name]
	if known && it.Type == 'f' && e.Token != "" && e.Token[0] == 'f' && e.Near.unchanged(it.stat) {
		c.nearTokens[name], c.nearStats[name] = e.Token, e.Near
		return e.Token, nil
	}
	token, st, err := it.token()
	if err != nil {
		return "", err
	}
	c.nearTokens[name], c.nearStats[name] = token, st
	return token, nil
}

// readFar finds the tokens of those far files whose content the book does not know.
func (c *comparison) readFar(ctx context.Context, f *far, names []string) error {
	c.nearTokens, c.nearStats, c.farTokens = map[string]string{}, map[string]nearStat{}, map[string]string{}
	var ask []string
	for _, name := range names {
		it, there := c.far[name]
		if !there {
			continue
		}
		e, known := c.book.Files[name]
		switch {
		case it.Type == 'd':
			c.farTokens[name] = directory
		case it.Type == 'o':
			c.farTokens[name] = odd
		case known && c.owned && it.Stamp != "" && it.Stamp == e.Far:
			c.farTokens[name] = e.Token
		default:
			ask = append(ask, name)
		}
	}
	tokens, err := f.tokens(ctx, c.far, ask)
	for _, name := range ask {
		if c.farTokens[name] = tokens[name]; tokens[name] == "" {
			c.farTokens[name] = unread
		}
	}
	return err
}

func (c *comparison) farToken(name string) string {
	if token, ok := c.farTokens[name]; ok {
		return token
	}
	return absent
}

// modeFits tells whether permissions give no reason to transfer a file with the right content. Those of the source are
// compared with what they were at the last transfer; the destination's matter where there was none.
func (c *comparison) modeFits(name string, source, destination item) bool {
	if !c.modes || source.Type == 'l' {
		return true
	}
	if e, ok := c.book.Files[name]; ok && c.owned && e.Token != "" {
		return sameMode(source.Mode, e.Mode)
	}
	return sameMode(source.Mode, destination.Mode)
}

func (c *comparison) conflict(name, why string) { c.conflicts = append(c.conflicts, Skip{name, why}) }

// below tells whether a name is below a directory that something else stands in place of.
func (c *comparison) below(name string) bool {
	return slices.ContainsFunc(c.blocked, func(dir string) bool { return len(name) > len(dir) && name[:len(dir)+1] == dir+"/" })
}

// adopt notes that both sides have the same.
func (c *comparison) adopt(name, token string, mode item) {
	c.same++
	e, known := c.book.Files[name]
	c.book.Files[name] = entry{
		Token: token, Mode: mode.Mode, Near: c.nearStats[name], Far: c.far[name].Stamp,
		Found: !known || !c.owned || e.Found || !e.ours(token),
	}
}

// The reasons of conflicts.
const (
	otherThere = "there is another one that is not from an earlier transfer"
	changed    = "it was changed there since the last transfer"
	notEmpty   = "the directory is not empty" // far.sh says it
	inPlace    = "something else is in its place"
)

func (c *comparison) reason(name string) string {
	if e, ok := c.book.Files[name]; ok && c.owned && e.Token != "" {
		return changed
	}
	return otherThere
}

// push decides what goes to the far side.
func (c *comparison) push() (puts []put) {
	names := sortedNames(c.near)
	for _, name := range names {
		it := c.near[name]
		have := c.farToken(name)
		expect := ""
		switch {
		case c.below(name):
			continue
		case it.Type == 'o':
			c.skipped = append(c.skipped, Skip{name, "it is neither a file nor a directory nor a link"})
			continue
		case have == absent:
			expect = absent
			if it.Type == 'd' {
				expect = "follow"
			}
		case it.Type == 'd' && c.follow && c.far[name].Type == 'l':
			continue
		case it.Type == 'd' && have == directory:
			c.adopt(name, directory, it.item)
			continue
		default:
			if expect = c.over(name, it.item, c.far[name], have, true); expect == "" {
				continue
			}
		}
		puts = append(puts, put{name, it, expect})
	}
	return c.withParents(puts)
}

// over decides about a name that is on both sides: it goes over other, which with push is the far one. expect is what has to be there for
// that; "" says that nothing goes.
func (c *comparison) over(name string, it, other item, far string, push bool) (expect string) {
	if it.Type == 'd' || other.Type == 'd' {
		return c.overOther(name, it.Type == 'd', other.Type == 'd')
	}
	near, err := c.nearToken(name)
	token, have := far, near
	if push {
		token, have = near, far
	}
	switch e := c.book.Files[name]; {
	case err != nil:
		c.skipped = append(c.skipped, Skip{name, unwrapPath(err).Error()})
	case token == have:
		if !c.modeFits(name, it, other) {
			return have
		}
		c.adopt(name, token, it)
	case c.owned && e.ours(have):
		return have
	case c.force:
		return "*"
	default:
		c.conflict(name, c.reason(name))
	}
	return ""
}

// overOther is over where only one of the two is a directory.
func (c *comparison) overOther(name string, isDir, onDir bool) (expect string) {
	if !c.force || onDir && !c.replace {
		if isDir {
			c.blocked = append(c.blocked, name)
		}
		c.conflict(name, inPlace)
		return ""
	}
	if onDir {
		return "**"
	}
	return "*"
}

// withParents adds the directories on the way to what is put, as far as they are not there.
func (c *comparison) withParents(puts []put) []put {
	there := map[string]bool{".": true}
	for _, p := range puts {
		there[p.name] = true
	}
	for _, p := range puts {
		for dir := path.Dir(p.name); !there[dir]; dir = path.Dir(dir) {
			there[dir] = true
			if c.farToken(dir) == directory {
				break
			}
			it := c.near[dir]
			if it.Type != 'd' {
				it = nearItem{item: item{Type: 'd', Mode: 0o700, MTime: time.Now()}}
			}
			puts = append(puts, put{dir, it, "follow"})
		}
	}
	return puts
}

// gone decides about what the book has and the source does not have any more. It gives what is to be removed on the other
// side, deepest first.
func (c *comparison) gone(source func(name string) bool, token func(name string) (string, error), keep func(name string) bool) (removes []removal) {
	for name, e := range c.book.Files {
		if source(name) || !keep(name) || c.below(name) {
			continue
		}
		have, err := token(name)
		switch {
		case err != nil:
			c.skipped = append(c.skipped, Skip{name, unwrapPath(err).Error()})
		case have == absent:
			delete(c.book.Files, name)
		case e.Found && have != directory && !c.force:
			c.conflict(name, "it is gone at the source, but was there before the first transfer")
		case c.owned && e.ours(have) || have == directory && e.Token == directory:
			removes = append(removes, removal{name, have})
		case c.force:
			removes = append(removes, removal{name, "**"})
		default:
			c.conflict(name, "it is gone at the source, but "+c.reason(name))
		}
	}
	return deepestFirst(removes)
}

func deepestFirst(removes []removal) []removal {
	slices.SortFunc(removes, func(a, b removal) int { return sortedAsTree(b.name, a.name) })
	return removes
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, sortedAsTree)
	return names
}

// record takes what a shipment did into the book.
func (c *comparison) record(s *shipment, done *shipped) {
	for _, p := range s.puts {
		token, ok := done.tokens[p.name]
		if _, asked := c.near[p.name]; !ok || !asked { // a directory on the way is nobody's
			continue
		}
		c.book.Files[p.name] = entry{Token: token, Mode: p.from.Mode, Near: done.stats[p.name], Far: done.items[p.name].Stamp}
	}
	for _, name := range done.removed {
		delete(c.book.Files, name)
	}
	for _, skip := range done.skipped {
		if skip.Why == notEmpty { // what others put into a directory makes it theirs
			delete(c.book.Files, skip.Path)
		}
	}
}

// remember notes what was on its way when a shipment broke: if it arrived it is ours.
func (c *comparison) remember(broken *shipped) {
	if broken == nil {
		return
	}
	for name, token := range broken.tokens {
		e := c.book.Files[name]
		e.Pending = token
		c.book.Files[name] = e
	}
}
