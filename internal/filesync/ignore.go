package filesync

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// filter leaves paths out. A directory that is left out takes all below it with it. Its zero value leaves nothing out.
type filter struct {
	patterns []gitignore.Pattern // of --exclude: they hold on both sides
	git      []gitignore.Pattern // of .gitignore files, in the order in which they were found
	root     string              // where .gitignore files are read from, "" for nowhere
	matcher  gitignore.Matcher
}

// newFilter takes patterns in the syntax of .gitignore. With root the .gitignore files of that tree count too, as git reads
// them, and .git itself is left out.
func newFilter(exclude []string, root string) (*filter, error) {
	f := &filter{root: root}
	for _, text := range exclude {
		if strings.TrimSpace(text) == "" || strings.ContainsRune(text, 0) {
			return nil, argument("the pattern %q is empty", text)
		}
		f.patterns = append(f.patterns, gitignore.ParsePattern(text, nil))
	}
	if root != "" {
		f.git = append(f.git, gitignore.ParsePattern(".git", nil))
		f.load("")
	}
	return f, nil
}

// load reads the .gitignore of a directory.
func (f *filter) load(dir string) {
	defer func() { f.matcher = nil }()
	data, err := os.ReadFile(filepath.Join(f.root, filepath.FromSlash(dir), ".gitignore"))
	if err != nil {
		return
	}
	var domain []string
	if dir != "" {
		domain = strings.Split(dir, "/")
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			f.git = append(f.git, gitignore.ParsePattern(line, domain))
		}
	}
}

// keep tells whether a path that a walk comes to stays, and reads a directory's .gitignore before its content.
func (f *filter) keep(rel string, isDir bool) bool {
	if !f.one(strings.Split(rel, "/"), isDir) {
		return false
	}
	if isDir && f.root != "" {
		f.load(rel)
	}
	return true
}

// covers tells whether a path stays, also when nobody walked to it.
func (f *filter) covers(rel string, isDir bool) bool {
	parts := strings.Split(rel, "/")
	for i := 1; i <= len(parts); i++ {
		if !f.one(parts[:i], isDir || i < len(parts)) {
			return false
		}
	}
	return true
}

func (f *filter) one(parts []string, isDir bool) bool {
	if len(f.patterns)+len(f.git) == 0 {
		return true
	}
	if f.matcher == nil {
		// The user's own patterns come last: they decide.
		f.matcher = gitignore.NewMatcher(append(append([]gitignore.Pattern{}, f.git...), f.patterns...))
	}
	return !f.matcher.Match(parts, isDir)
}

// mostIgnored is how much the .gitignore files of a far source may hold together, in bytes.
const mostIgnored = 4 << 20

// ignoreAsThere reads the .gitignore files of a far source, and drops what they leave out from both sides. One that cannot be
// read is an error: what it leaves out would be transferred.
func (r *pairRun) ignoreAsThere(ctx context.Context, l *listing, near map[string]nearItem) error {
	dir, err := os.MkdirTemp("", "elsewhere-ignore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system clears it some day
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var gets []get
	for name, it := range l.items {
		if path.Base(name) != ".gitignore" || it.Type != 'f' || !r.filter.covers(name, false) {
			continue
		}
		if err := root.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o700); err != nil {
			return err
		}
		gets = append(gets, get{name, it, "*"})
	}
	done, err := r.far.fetch(ctx, gets, arrivals{
		root: root, max: mostIgnored,
		place: func(name string) (string, string) { return name, "" },
		now:   func(rel string) (string, error) { return typeAt(root, rel) },
	})
	if err != nil {
		return fmt.Errorf("the .gitignore files there, which say what is left out, cannot be read: %w", err)
	}
	for _, skip := range done.skipped {
		return fmt.Errorf("%s there, which says what is left out, cannot be read: %s", shownName(skip.Path), skip.Why)
	}
	if r.filter, err = newFilter(r.Exclude, dir); err != nil {
		return err
	}
	// As a walk does: a directory's own file counts only where the directory does.
	left := "/"
	for _, name := range sortedNames(l.items) {
		isDir := l.items[name].Type == 'd'
		if strings.HasPrefix(name, left) {
			continue
		}
		if !r.filter.keep(name, isDir) && isDir {
			left = name + "/"
		}
	}
	for name, it := range near {
		if !r.filter.covers(name, it.Type == 'd') {
			delete(near, name)
		}
	}
	return nil
}
