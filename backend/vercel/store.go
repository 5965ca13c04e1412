package vercel

import (
	"context"
	"slices"

	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

// store is Hermes' record of stored files, vercel_sandbox_snapshots.json: a task and a snapshot's id. What we keep needs none, since
// the service finds a sandbox's files by its name; from it a task's first sandbox starts, and into it goes what we stored last, for
// Hermes. Beside it are notes of what we wrote there: what is another's is never replaced.
type store struct{ cloudbox.Record[notes] }

func newStore(home string) store {
	return store{cloudbox.Record[notes]{Home: home, File: "vercel_sandbox_snapshots.json", Name: "vercel"}}
}

// note is what the record has no room for.
type note struct {
	Task string `json:"task"`
	// From is what the sandbox started from, "" for nothing.
	From string `json:"from,omitempty"`
	// Own are what we wrote into the record, the last ones.
	Own []string `json:"own,omitempty"`
}

type notes struct {
	Boxes map[string]note `json:"sandboxes"` // by the sandbox's name
}

// mostOwn is how many ids are remembered that we wrote: the last one is in the record unless a process was killed before it wrote it.
const mostOwn = 4

func (n *notes) set(name string, box note) {
	if n.Boxes == nil {
		n.Boxes = map[string]note{}
	}
	n.Boxes[name] = box
}

// find gives the id of a task's stored files, "" where there are none.
func (s store) find(task string) (id string, err error) {
	t, err := s.Read()
	return t.Of(task), err
}

// task is the task of the sandbox of this name, "" where that is not known.
func (s store) task(name string) (string, error) {
	n, err := s.ReadNotes()
	return n.Boxes[name].Task, err
}

// begin notes what a new sandbox started from, "" for nothing.
func (s store) begin(ctx context.Context, name, task, from string) error {
	return s.Change(ctx, func(_ cloudbox.Table, n *notes) bool {
		n.set(name, note{Task: task, From: from})
		return true
	})
}

// put remembers what is stored last of a sandbox, whose id was previous when it was opened. What the record has is replaced only
// where it is this sandbox's, or what it started from; else it is kept, and given. With no id nothing is replaced.
func (s store) put(ctx context.Context, name, task, id, previous string) (other string, err error) {
	err = s.Change(ctx, func(t cloudbox.Table, n *notes) bool {
		other = ""
		box, there := n.Boxes[name], t.Of(task)
		if odd := t.Odd(task); odd != "" {
			other = odd
			return false
		}
		if there != "" && !slices.Contains(append([]string{id, previous, box.From}, box.Own...), there) {
			other = there
			return false
		}
		if id == "" || there == id && slices.Contains(box.Own, id) {
			return false
		}
		t.Set(task, id)
		box.Task, box.Own = task, append(slices.DeleteFunc(box.Own, func(x string) bool { return x == id }), id)
		box.Own = box.Own[max(0, len(box.Own)-mostOwn):]
		n.set(name, box)
		return true
	})
	return other, err
}

// drop forgets what is stored for a task where it is still what is remembered.
func (s store) drop(ctx context.Context, task, id string) error {
	return s.Change(ctx, func(t cloudbox.Table, _ *notes) bool {
		if id == "" || t.Of(task) != id {
			return false
		}
		delete(t, task)
		return true
	})
}

// forget forgets a sandbox that was deleted with what was stored of it: current, and what we wrote. What another has stored for the
// task stays.
func (s store) forget(ctx context.Context, name, task, current string) error {
	return s.Change(ctx, func(t cloudbox.Table, n *notes) bool {
		box, known := n.Boxes[name]
		there := t.Of(task)
		own := there != "" && (there == current || slices.Contains(box.Own, there))
		if own {
			delete(t, task)
		}
		delete(n.Boxes, name)
		return own || known
	})
}
