package elsewhere

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/filesync"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// transfer is what is to be done with a path of the sandbox.
type transfer struct {
	op, name string
	write    bool   // it is written; else it is read
	whole    bool   // and all that is below it
	near     string // what of this machine is written there; "" is one file that has no other name
	exact    bool   // near takes the path's place; else it may go into it, under its own name
	force    bool   // what is in the way of near goes, whatever it is
	delete   bool   // and so does what near has not

	exclude   []string // patterns of what takes no part, in the syntax of .gitignore
	gitIgnore bool     // the .gitignore files of near count too
}

// permitPath says whether a file or a tree of the sandbox may be read, or written. s is whose doing it is; nil is nobody's.
func (sb *Sandbox) permitPath(ctx context.Context, s *Session, t transfer) error {
	p := sb.at()
	if !p.guard.on {
		return nil
	}
	who, session := sb.answers, ""
	if s != nil {
		who, session = s.answers, s.name
	}
	t.name = path.Clean(sb.farPath(t.name))
	q := PolicyQuestion{Op: t.op, Session: session, Command: t.name}
	verdict, _, err := sb.permit(ctx, p, who, q, func(known policy.Answers) (policy.Decision, error) {
		found, err := p.touched(ctx, t)
		if err != nil {
			return policy.Decision{}, sb.transferError(err, t.op, t.name)
		}
		at := p.guard.base
		at.Answers = known
		return policy.CheckPaths(found.paths, found.more, t.write, at), nil
	})
	if err != nil {
		sb.auditDenied(session, t.op+" "+t.name, verdict, err)
	}
	return err
}

// maxTargets is how many files of a tree are looked at by name. There may be more where nothing can be protected.
const maxTargets = 500_000

// targets are the paths of the sandbox that a transfer touches, of those that a rule may be about.
type targets struct {
	paths  []string
	more   bool    // there are others
	whole  []whole // whose content is not in paths
	guard  *guard
	write  bool
	force  bool
	places []target
	left   int // how many files may still be looked at
}

// whole is a directory of the sandbox of which all is touched but what is excluded.
type whole struct {
	dir     string
	exclude []string
}

// target is where a transfer puts a part of a tree.
type target struct {
	from  string // a path of the tree, with slashes; "" is its root
	to    string // of the sandbox
	quiet string // a directory of the tree in whose place no rule is about anything; "" is none, "." the root
}

// touched finds what a transfer touches.
func (p *place) touched(ctx context.Context, t transfer) (*targets, error) {
	w := &targets{guard: &p.guard, write: t.write, force: t.force, left: maxTargets}
	w.add("", t.name)
	if t.whole || t.delete && t.force {
		for _, root := range w.places {
			w.whole = append(w.whole, whole{root.to, t.exclude})
		}
	}
	if t.near != "" {
		if err := w.tree(t); err != nil {
			return nil, err
		}
	}
	for _, all := range w.whole {
		if err := w.content(ctx, p.drv, all); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add takes in a place, and on this machine where links lead from there.
func (w *targets) add(from, to string) {
	all := []string{to}
	if w.guard.here {
		all = append(all, toBash(followed(fromBash(to))))
	}
	for _, to := range all {
		if slices.ContainsFunc(w.places, func(t target) bool { return t.from == from && t.to == to }) {
			continue
		}
		t := target{from: from, to: to}
		if w.free(to) {
			t.quiet = cmp.Or(from, ".")
		}
		w.paths, w.places = append(w.paths, to), append(w.places, t)
	}
}

// tree walks what is written as the transfer will.
func (w *targets) tree(t transfer) error {
	source := filepath.ToSlash(t.near)
	contents := t.exact || source == "." || strings.HasSuffix(source, "/.")
	info, err := os.Lstat(t.near)
	if contents || strings.HasSuffix(source, "/") {
		info, err = os.Stat(t.near)
	}
	if err != nil {
		return nil // the transfer says what is wrong
	}
	abs, err := filepath.Abs(t.near)
	if err != nil {
		return err
	}
	if !contents || !info.IsDir() {
		w.into(t.name, filepath.Base(abs))
	}
	if !info.IsDir() {
		return nil
	}
	return filesync.Look(t.near, t.exclude, t.gitIgnore, w.see)
}

// into takes in that what is written to dst goes below it, under its own name, where a directory is there. On this machine that is known.
func (w *targets) into(dst, name string) {
	if w.guard.here {
		info, err := os.Stat(fromBash(dst))
		if err != nil || !info.IsDir() {
			return
		}
		w.places = nil
	}
	w.add("", path.Join(dst, name))
}

// see takes in what a walk comes to. It tells whether there can be anything below it.
func (w *targets) see(rel string, isDir bool) (enter bool) {
	if w.left--; w.left < 0 {
		w.more = true
		return false
	}
	for i := range len(w.places) { // not those that are added meanwhile
		rest, ok := below(rel, w.places[i].from)
		if !ok {
			continue
		}
		to := path.Join(w.places[i].to, rest)
		if !w.places[i].quietAt(rel) {
			enter = w.loud(&w.places[i], rel, to, isDir) || enter
		}
		if isDir && w.guard.here {
			enter = w.follow(rel, to) || enter
		}
	}
	return enter
}

// loud takes in a path about which there may be a rule.
func (w *targets) loud(at *target, rel, to string, isDir bool) (enter bool) {
	w.paths = append(w.paths, to)
	switch {
	case isDir && w.free(to):
		at.quiet = rel
	case isDir:
		return true
	case w.force && !w.free(to):
		w.whole = append(w.whole, whole{dir: to})
	}
	return false
}

// follow takes in where a directory leads that is there already, which on this machine may be a link. It tells whether there is one.
func (w *targets) follow(rel, to string) bool {
	info, err := os.Lstat(fromBash(to))
	if err != nil {
		return false
	}
	if info.Mode()&os.ModeSymlink != 0 {
		w.add(rel, toBash(followed(fromBash(to))))
	}
	return true
}

func (t *target) quietAt(rel string) bool {
	_, ok := below(rel, t.quiet)
	return t.quiet == "." || t.quiet != "" && ok
}

// below gives the rest of a path of a tree below a directory of it, whose root is "".
func below(rel, dir string) (rest string, ok bool) {
	if dir == "" || rel == dir {
		return rel[len(dir):], true
	}
	return strings.CutPrefix(rel, dir+"/")
}

// free tells that no rule is about a path, or about anything below it.
func (w *targets) free(to string) bool {
	return policy.CheckPath(to, w.write, w.guard.base).Action == policy.Allow && len(policy.PathsBelow(to, w.write, w.guard.base)) == 0
}

// content takes in what is protected below a directory of the sandbox, as far as it is there. Where the table has a pattern, the
// directory of it has to be there.
func (w *targets) content(ctx context.Context, remote filesync.Remote, all whole) error {
	places := policy.PathsBelow(all.dir, w.write, w.guard.base)
	if len(places) == 0 {
		return nil
	}
	names := make([]string, len(places))
	for i, p := range places {
		names[i] = strings.TrimPrefix(strings.TrimPrefix(withoutPattern(p, all.dir), all.dir), "/")
	}
	there, err := filesync.There(ctx, remote, all.dir, all.exclude, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if there[name] {
			w.paths = append(w.paths, places[i])
		}
	}
	return nil
}

// withoutPattern is the directory below dir in which a pattern's first component with a pattern is; a path without one is itself.
func withoutPattern(p, dir string) string {
	for at := p; at != dir && at != "/" && at != "."; at = path.Dir(at) {
		if strings.ContainsAny(path.Base(at), "*?[") {
			p = path.Dir(at)
		}
	}
	return p
}

// followed is where a path leads whose end need not be there.
func followed(file string) string {
	for dir, rest := file, ""; ; {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(dir)
		if up == dir {
			return file
		}
		dir, rest = up, filepath.Join(filepath.Base(dir), rest)
	}
}
