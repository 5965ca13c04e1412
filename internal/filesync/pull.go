package filesync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// get is a file, link or directory that is to come from the far side.
type get struct {
	name   string
	it     item
	expect string // the token that may be replaced here; "*" anything but a directory, "**" anything
}

// arrivals says how what comes is put below a root here.
type arrivals struct {
	root     *os.Root
	place    func(name string) (rel string, why string)
	links    bool
	keepMode bool
	max      int64
	progress func(Progress)
	// now reads the token of what is at a place below the root.
	now func(rel string) (string, error)
}

// fetched is what came.
type fetched struct {
	tokens  map[string]string // by name, of what is in its place now
	skipped []Skip
}

// fetch brings gets here. What is wrong with one of them is in skipped; an error is the stream's, and what came before it
// is in its place.
func (f *far) fetch(ctx context.Context, gets []get, into arrivals) (*fetched, error) {
	done := &fetched{tokens: map[string]string{}}
	if len(gets) == 0 {
		return done, nil
	}
	slices.SortFunc(gets, func(a, b get) int { return sortedAsTree(a.name, b.name) })
	stage, err := openStage(into.root)
	if err != nil {
		return nil, err
	}
	defer stage.close()
	pack, err := f.fetchCompression(ctx, gets)
	if err != nil {
		return nil, err
	}
	c, err := converse(ctx, f.remote, []string{"tar", "xargs"}, "fetch", f.root, pack)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	names := make([]string, len(gets))
	expect := map[string]get{}
	var at Progress
	for i, g := range gets {
		names[i] = "./" + g.name
		expect[g.name] = g
		at.AllFiles++
		at.AllBytes += g.it.Size
	}
	wait := c.feed(slices.Values(names))
	places := map[string]string{} // place, name
	u := &unpacker{root: into.root, stage: stage.name, keepMode: into.keepMode, links: into.links, max: into.max}
	u.skip = func(name, why string) { done.skipped = append(done.skipped, Skip{name, why}) }
	u.moved = func(n int64) {
		at.Bytes += n
		if into.progress != nil {
			into.progress(at)
		}
	}
	u.place = func(name string) (string, string) {
		if _, ok := expect[name]; !ok {
			return "", "nobody asked for it"
		}
		at.Files++
		rel, why := into.place(name)
		places[rel] = name
		return rel, why
	}
	u.admit = func(a arrival) string { return admit(into, expect[places[a.name]], a) }
	err = func() error {
		if _, err := c.answer("archive"); err != nil {
			return err
		}
		r, err := decompress(c.out, pack)
		if err != nil {
			return err
		}
		defer r.Close()
		return u.unpack(ctx, r)
	}()
	if err != nil {
		c.kill()
	}
	wait()
	for rel, token := range u.tokens {
		done.tokens[places[rel]] = token
	}
	if err != nil {
		return done, c.why(ctx, err)
	}
	done.missing(c, gets)
	return done, nil
}

// admit decides at the last moment whether what is in the place may be replaced.
func admit(into arrivals, g get, a arrival) string {
	have, err := into.now(a.name)
	switch {
	case err != nil:
		return unwrapPath(err).Error()
	case a.token == directory && have != directory && have != absent && g.expect != "*" && g.expect != "**":
		return inPlace
	case have == a.token || have == absent || g.expect == have || g.expect == "*" && have != directory:
		return ""
	case g.expect == "**":
		if err := into.root.RemoveAll(filepath.FromSlash(a.name)); err != nil {
			return unwrapPath(err).Error()
		}
		return ""
	}
	return "it was changed here meanwhile"
}

// missing adds what did not come, with what the far side said about it.
func (done *fetched) missing(c *conversation, gets []get) {
	told := map[string]bool{}
	for _, s := range done.skipped {
		told[s.Path] = true
	}
	c.settle()
	said := c.errs.lines()
	for _, g := range gets {
		if _, ok := done.tokens[g.name]; ok || told[g.name] {
			continue
		}
		why := "it vanished or cannot be read"
		for _, line := range said {
			if strings.Contains(line, g.name) {
				why = line
			}
		}
		done.skipped = append(done.skipped, Skip{g.name, why})
	}
}

// fetchCompression chooses how the archive comes: what is near comes as it is.
func (f *far) fetchCompression(ctx context.Context, gets []get) (string, error) {
	var size int64
	for _, g := range gets {
		size += g.it.Size
	}
	if size < compressFrom {
		return "none", nil
	}
	c, err := converse(ctx, f.remote, nil, "talk")
	if err != nil {
		return "", err
	}
	defer c.end(ctx)
	if near, err := c.isNear(); err != nil || near {
		return "none", c.why(ctx, err)
	}
	return compression(c.tools), nil
}

func decompress(r io.Reader, pack string) (io.ReadCloser, error) {
	switch pack {
	case "zstd":
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	case "gzip":
		return gzip.NewReader(r)
	}
	return io.NopCloser(r), nil
}

// pull decides what comes from the far side.
func (c *comparison) pull() (gets []get) {
	for _, name := range sortedNames(c.far) {
		it := c.far[name]
		token := c.farToken(name)
		near, there := c.near[name]
		expect := ""
		switch {
		case c.below(name):
			continue
		case it.Type == 'o':
			c.skipped = append(c.skipped, Skip{name, "it is neither a file nor a directory nor a link"})
			continue
		case token == unread:
			c.skipped = append(c.skipped, Skip{name, "it cannot be read there"})
			continue
		case !there:
			expect = absent
		case it.Type == 'd' && near.Type == 'd':
			c.adopt(name, directory, it)
			continue
		default:
			if expect = c.over(name, it, near.item, token, false); expect == "" {
				continue
			}
		}
		gets = append(gets, get{name, it, expect})
	}
	return gets
}

// recordFetched takes what came into the book. near finds a file here by its name in the book.
func (c *comparison) recordFetched(gets []get, done *fetched, near func(name string) (nearItem, bool)) {
	for _, g := range gets {
		token, ok := done.tokens[g.name]
		if !ok {
			continue
		}
		e := entry{Token: token, Mode: g.it.Mode, Far: g.it.Stamp}
		if it, ok := near(g.name); ok {
			e.Near, e.Mode = it.stat, it.Mode
			e.Near.Checked = time.Now().UnixNano()
		}
		c.book.Files[g.name] = e
	}
}

// tokenAt reads the token of what is at a place below a root, without following a link.
func tokenAt(root *os.Root, rel string) (string, error) {
	native := filepath.FromSlash(rel)
	info, err := root.Lstat(native)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return "", err
	}
	it := newNearItem(filepath.Join(root.Name(), native), info)
	token, _, err := it.token()
	if err != nil {
		return "", fmt.Errorf("%s: %w", rel, unwrapPath(err))
	}
	return token, nil
}
