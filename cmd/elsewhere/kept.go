package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// reachWait bounds how long an engine may take to list its sandboxes.
const reachWait = 10 * time.Second

// unreached is a backend whose sandboxes cannot be listed, and why.
type unreached struct {
	Backend string            `json:"backend"`
	Error   *resultjson.Error `json:"error"`

	configured bool
	there      bool // it is set up, and gave no list all the same
	err        error
}

// keptBox is a kept sandbox that was found.
type keptBox struct {
	driver.SandboxInfo
	all *elsewhere.Sandboxes
	// also are other names of this backend in the settings, by which the same sandbox can be reached.
	also []string
}

// address is how a user names the sandbox: by its task or, where that is no plain name, by its own.
func (b keptBox) address() string {
	if safename.Plain(b.Task) {
		return b.all.Backend() + "/" + b.Task
	}
	return b.all.Backend() + "/" + b.Name
}

// keptBoxes are the kept sandboxes of the backends that were asked. It must be closed.
type keptBoxes struct {
	cfg       *config.Config
	boxes     []keptBox
	asked     []*elsewhere.Sandboxes
	answered  []string // the names of those that gave a list
	unreached []unreached
}

func (k *keptBoxes) close(a *app) {
	for _, all := range k.asked {
		a.closing("backend", func(context.Context) error { return all.Close() })
	}
}

// reach lists the kept sandboxes of the backend that t names, which then has to answer, or of every backend that keeps any.
// Backends are asked at once, each for at most wait.
func (a *app) reach(ctx context.Context, t *target, wait time.Duration) (*keptBoxes, error) {
	cfg, err := a.load(t)
	if err != nil {
		return nil, err
	}
	if cfg.Home() == "" {
		return nil, ownError("sandbox", "set HOME or HERMES_HOME", "there is no HERMES_HOME, without which no sandbox can be told to be yours")
	}
	names := []string{cfg.Name()}
	if t.backend == "" {
		names = keepers(cfg)
	}
	answers := make([]listing, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { answers[i] = a.list(ctx, cfg, name, wait) })
	}
	wg.Wait()
	k := &keptBoxes{cfg: cfg}
	for i, answer := range answers {
		if answer.all != nil {
			k.asked = append(k.asked, answer.all)
		}
		if answer.err != nil {
			if t.backend != "" || ctx.Err() != nil {
				k.close(a)
				return nil, answer.err
			}
			k.unreached = append(k.unreached, unreached{
				Backend: names[i], Error: resultjson.NewError(answer.err), configured: names[i] == cfg.Name(),
				there: answer.all != nil || errors.Is(answer.err, errNoAnswer), err: answer.err,
			})
			continue
		}
		k.answered = append(k.answered, names[i])
		k.add(answer)
	}
	return k, nil
}

// keepers are the names of the backends and entries that keep sandboxes: the configured one first, so that a sandbox which
// can be reached by several names has that of the settings.
func keepers(cfg *config.Config) []string {
	var names []string
	for _, name := range cfg.Names() {
		if b, err := cfg.Backend(name); err == nil && b.Keeper != nil {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(x, y string) int {
		return cmp.Compare(order(x == cfg.Name()), order(y == cfg.Name()))
	})
	return names
}

func order(first bool) int {
	if first {
		return 0
	}
	return 1
}

// listing is the answer of one backend.
type listing struct {
	all   *elsewhere.Sandboxes
	infos []driver.SandboxInfo
	err   error
}

func (a *app) list(ctx context.Context, cfg *config.Config, name string, wait time.Duration) listing {
	answer, err := within(ctx, wait, func(ctx context.Context) (listing, error) {
		all, err := elsewhere.OpenSandboxes(ctx, cfg, name, &elsewhere.SandboxOptions{Logger: a.log})
		if err != nil {
			return listing{}, err
		}
		infos, err := all.List(ctx)
		return listing{all, infos, err}, err
	})
	if errors.Is(err, errNoAnswer) {
		err = silent("list sandboxes", name, err)
	}
	answer.err = err
	return answer
}

// silent is the failure of an engine that did not answer in time.
func silent(op, backend string, err error) error {
	return &elsewhere.Error{Kind: driver.KindUnavailable, Op: op, Backend: backend, Hint: "see whether its engine is running and not busy", Err: err}
}

// add takes the sandboxes of one backend. Those of a backend that is there by another name too are the same ones.
func (k *keptBoxes) add(answer listing) {
	for _, info := range answer.infos {
		same := func(b keptBox) bool { return b.ID == info.ID && b.Name == info.Name && b.Task == info.Task }
		if at := slices.IndexFunc(k.boxes, same); at >= 0 && k.kind(k.boxes[at].all) == k.kind(answer.all) {
			k.boxes[at].also = append(k.boxes[at].also, answer.all.Backend())
			continue
		}
		k.boxes = append(k.boxes, keptBox{SandboxInfo: info, all: answer.all})
	}
}

// expose asks what of a machine is in the sandboxes whose listing does not say it, all at once; where the engine does not answer it stays
// unknown.
func (k *keptBoxes) expose(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range k.boxes {
		box := &k.boxes[i]
		if box.Exposure != nil || box.State == driver.StateData {
			continue
		}
		wg.Go(func() {
			d, err := within(ctx, reachWait, func(ctx context.Context) (driver.SandboxDetail, error) { return box.all.Inspect(ctx, box.Task) })
			if err == nil {
				box.Exposure = d.Exposure
			}
		})
	}
	wg.Wait()
}

// kind is the name of the backend that an entry of terminal.backends stands for.
func (k *keptBoxes) kind(all *elsewhere.Sandboxes) string {
	b, err := k.cfg.Backend(all.Backend())
	if err != nil {
		return all.Backend()
	}
	return b.Name
}

// find gives the one sandbox that name means: its task, or else its own name.
func (k *keptBoxes) find(op, name string) (keptBox, error) {
	var found []keptBox
	for _, is := range []func(keptBox) bool{
		func(b keptBox) bool { return b.Task == name },
		func(b keptBox) bool { return b.Name == name },
	} {
		for _, b := range k.boxes {
			if is(b) {
				found = append(found, b)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		hint := "`elsewhere sandbox ls` lists them"
		var others []string
		for _, u := range k.unreached {
			if u.configured || u.there {
				hint += fmt.Sprintf("; %s could not be asked (%s)", u.Backend, oneLine(u.Error.Message))
			} else {
				others = append(others, u.Backend)
			}
		}
		if len(others) > 0 {
			hint += "; these could not be asked: " + strings.Join(others, ", ") + " (`elsewhere doctor` says why)"
		}
		return keptBox{}, ownError(op, hint, "there is no sandbox of the task %s%s", shownTask(name), k.where())
	}
	var candidates []string
	for _, b := range found {
		candidates = append(candidates, b.address())
	}
	return keptBox{}, ownError(op, "name one of "+strings.Join(candidates, ", "), "%s is ambiguous: there are %d sandboxes of that name", shownTask(name), len(found))
}

// where says on which backends was looked.
func (k *keptBoxes) where() string {
	if len(k.answered) == 0 {
		return ": no backend that keeps sandboxes can be reached"
	}
	return " on " + strings.Join(k.answered, ", ")
}

// sessions are those of the sandbox, by whatever name of its backend they were made.
func (b keptBox) sessions(of []elsewhere.SessionInfo) []elsewhere.SessionInfo {
	var own []elsewhere.SessionInfo
	for _, s := range of {
		if s.Task == b.Task && (s.Backend == b.all.Backend() || slices.Contains(b.also, s.Backend)) {
			own = append(own, s)
		}
	}
	return own
}

// shownTask is a task for people: as it is where it is a plain name, else quoted and not longer than such a name can be. JSON has
// the whole of it.
func shownTask(task string) string {
	if safename.Plain(task) {
		return task
	}
	return strconv.Quote(cut(task, 60))
}

// cut is the beginning of a text that is too long to be shown.
func cut(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return text
}

// parseSandbox reads [BACKEND/]TASK.
func parseSandbox(op, text string) (backend, task string, err error) {
	backend, task, cut := strings.Cut(text, "/")
	if !cut {
		backend, task = "", text
	} else if err := checkName(op, backend); err != nil {
		return "", "", ownError(op, "write TASK or BACKEND/TASK", "%.80q is no address of a sandbox", text)
	}
	if checkName(op, task) != nil {
		return "", "", ownError(op, "write TASK or BACKEND/TASK; `elsewhere sandbox ls` says how to address a task with another name",
			"%.80q is no address of a sandbox", text)
	}
	return backend, task, nil
}

// lookup finds sandboxes by their addresses and asks each backend once. It must be closed.
type lookup struct {
	a    *app
	op   string
	flag *target // -b
	seen map[string]*keptBoxes
}

func (a *app) lookup(op string, t *target) *lookup {
	return &lookup{a: a, op: op, flag: t, seen: map[string]*keptBoxes{}}
}

func (l *lookup) close() {
	for _, k := range l.seen {
		k.close(l.a)
	}
}

// home is HERMES_HOME, once something was found.
func (l *lookup) home() string {
	for _, k := range l.seen {
		return k.cfg.Home()
	}
	return ""
}

// find gives the sandbox of an address.
func (l *lookup) find(ctx context.Context, text string) (keptBox, error) {
	backend, task, err := parseSandbox(l.op, text)
	if err != nil {
		return keptBox{}, err
	}
	switch {
	case backend == "":
		backend = l.flag.backend
	case l.flag.backend != "" && l.flag.backend != backend:
		return keptBox{}, ownError(l.op, "leave out one of them", "%s is not on %s, which -b names", text, l.flag.backend)
	}
	k := l.seen[backend]
	if k == nil {
		if k, err = l.a.reach(ctx, &target{flags: l.flag.flags, backend: backend}, reachWait); err != nil {
			return keptBox{}, err
		}
		l.seen[backend] = k
	}
	return k.find(l.op, task)
}

// errNoAnswer is of what did not come in time.
var errNoAnswer = errors.New("there was no answer")

// within gives f a time and does not wait longer, even where f does not heed its context. What f had done with itself then is
// cut off by the end of the process.
func within[T any](ctx context.Context, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	end := make(chan outcome, 1)
	go func() {
		v, err := f(ctx)
		end <- outcome{v, err}
	}()
	select {
	case o := <-end:
		if o.err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return o.v, fmt.Errorf("%w within %s: %w", errNoAnswer, limit, o.err)
		}
		return o.v, o.err
	case <-ctx.Done():
	}
	var none T
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return none, fmt.Errorf("%w within %s", errNoAnswer, limit)
	}
	return none, ctx.Err()
}
