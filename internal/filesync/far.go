package filesync

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// far is a directory on the far side.
type far struct {
	remote Remote
	root   string // absolute, or "" for the directory in which a bash starts
}

// listing is what scan found.
type listing struct {
	generation string // of the far book
	proof      string // the content of the probe file
	exists     bool   // the directory is there
	other      bool   // something else is in its place
	items      map[string]item
}

// scanRequest says what to look at: all below the directory (Tree), the names in Names, those and all below them (roots), or
// those that the far book lists.
type scanRequest struct {
	tree        bool
	roots       bool // all below the names, too
	names       []string
	more        func() []string // names that are known later; nil for none
	book, probe string
}

func (f *far) scan(ctx context.Context, req scanRequest) (*listing, error) {
	how := "list"
	need := []string{"stat", "xargs"}
	switch {
	case req.tree:
		how, need = "tree", append(need, "find")
	case req.roots:
		how, need = "trees", append(need, "find")
	case req.names == nil && req.book != "":
		how = "book"
	case len(req.names) == 0 && req.more == nil:
		how = "none"
	}
	c, err := converse(ctx, f.remote, need, "scan", f.root, how, req.book, req.probe)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	wait := c.feed(func(yield func(string) bool) {
		lists := []func() []string{func() []string { return req.names }, req.more}
		for _, list := range lists {
			if list == nil {
				continue
			}
			for _, name := range list() {
				if !yield("./" + name) {
					return
				}
			}
		}
	})
	l, err := readListing(c, f.root)
	if err != nil {
		c.kill()
	}
	wait()
	return l, c.why(ctx, err)
}

func readListing(c *conversation, root string) (*listing, error) {
	l := &listing{items: map[string]item{}}
	var err error
	if l.generation, err = c.answer("generation"); err != nil {
		return nil, err
	}
	if l.proof, err = c.answer("proof"); err != nil {
		return nil, err
	}
	state, err := c.answer("")
	switch {
	case err != nil:
		return nil, err
	case state == "none", state == "other":
		l.other = state == "other"
		return l, nil
	case state == "denied":
		return nil, fmt.Errorf("%s: cannot be entered", root)
	}
	l.exists = true
	return l, readStats(c.out, l.items)
}

// readStats reads records up to the one that says that they end.
func readStats(r *bufio.Reader, into map[string]item) error {
	var record strings.Builder
	for {
		part, err := r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if record.Len() == 0 && part == "//end//\n" {
			return nil
		}
		record.WriteString(part)
		text, ends := strings.CutSuffix(record.String(), "//\n")
		if !ends {
			if record.Len() > 1<<20 {
				return errors.New("the far side's listing cannot be read")
			}
			continue
		}
		record.Reset()
		if name, it, ok := parseStat(text); ok && local(name) {
			into[name] = it
		}
	}
}

// tokens reads files and links. A name that could not be read is not in the answer.
func (f *far) tokens(ctx context.Context, items map[string]item, names []string) (map[string]string, error) {
	tokens := map[string]string{}
	var plain, strange []string
	for _, name := range names {
		switch it := items[name]; {
		case it.Type == 'd':
			tokens[name] = directory
		case it.Type == 'o':
			tokens[name] = odd
		case it.Type == 'l' || strings.ContainsAny(name, "\\\n\r"):
			strange = append(strange, name)
		default:
			plain = append(plain, name)
		}
	}
	if len(plain)+len(strange) == 0 {
		return tokens, nil
	}
	args := []string{f.root, strconv.Itoa(len(strange))}
	for _, name := range strange {
		args = append(args, "./"+name)
	}
	c, err := converse(ctx, f.remote, []string{"hash", "xargs"}, "hash", args...)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	feed := make([]string, len(plain))
	for i, name := range plain {
		feed[i] = "./" + name
	}
	wait := c.feed(slices.Values(feed))
	err = readTokens(c, strange, tokens)
	if err != nil {
		c.kill()
	}
	wait()
	return tokens, c.why(ctx, err)
}

func readTokens(c *conversation, strange []string, tokens map[string]string) error {
	for _, name := range strange {
		token, err := c.answer("")
		if err != nil {
			return err
		}
		tokens[name] = unescape(token)
	}
	if _, err := c.answer("hashes"); err != nil {
		return err
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if line == "end" {
			return nil
		}
		if name, sum, ok := parseHash(line); ok {
			tokens[strings.TrimPrefix(name, "./")] = "f" + sum
		}
	}
}

// parseHash reads a line of sha256sum and its kin: 64 digits, one or two characters, the name.
func parseHash(line string) (name, sum string, ok bool) {
	line = strings.TrimPrefix(line, `\`) // an escaped name; those are not asked for in this way
	if len(line) < 66 || line[64] != ' ' || strings.Trim(line[:64], "0123456789abcdef") != "" {
		return "", "", false
	}
	name = line[65:]
	if name[0] == ' ' || name[0] == '*' {
		name = name[1:]
	}
	return name, line[:64], true
}
