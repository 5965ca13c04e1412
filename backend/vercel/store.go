package vercel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
)

// store is Hermes' record of stored files, vercel_sandbox_snapshots.json: a task and a snapshot's id. What we keep needs none, since
// the service finds a sandbox's files by its name; from it a task's first sandbox starts, and into it goes what we stored last, for
// Hermes. Beside it are notes of what we wrote there: what is another's is never replaced. With no home it is empty.
type store struct{ home string }

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

// table is the record.
type table map[string]json.RawMessage

// of is what a task has in the record, "" for nothing.
func (t table) of(task string) (id string) {
	_ = json.Unmarshal(t[task], &id) // what is no id is none of ours
	return id
}

const (
	// storeWait bounds the wait for another process that changes the store.
	storeWait = 10 * time.Second
	// mostOwn is how many ids are remembered that we wrote: the last one is in the record unless a process was killed before it wrote it.
	mostOwn = 4
)

func (s store) file() string  { return filepath.Join(s.home, "vercel_sandbox_snapshots.json") }
func (s store) notes() string { return filepath.Join(s.home, "elsewhere", "vercel.json") }

func (s store) read() (table, error) {
	t := table{}
	text, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of stored files cannot be read: %s: %w; repair or move it away", s.file(), err)
	}
	return t, nil
}

func (s store) readNotes() notes {
	var n notes
	if text, err := os.ReadFile(s.notes()); err == nil {
		_ = json.Unmarshal(text, &n) // what was there is then not known any more, and the record is not written to
	}
	if n.Boxes == nil {
		n.Boxes = map[string]note{}
	}
	return n
}

// find gives the id of a task's stored files, "" where there are none.
func (s store) find(task string) (id string, err error) {
	if s.home == "" {
		return "", nil
	}
	t, err := s.read()
	return t.of(task), err
}

// task is the task of the sandbox of this name, "" where that is not known.
func (s store) task(name string) string {
	if s.home == "" {
		return ""
	}
	return s.readNotes().Boxes[name].Task
}

// begin notes what a new sandbox started from, "" for nothing.
func (s store) begin(ctx context.Context, name, task, from string) error {
	return s.change(ctx, func(_ table, n *notes) bool {
		n.Boxes[name] = note{Task: task, From: from}
		return true
	})
}

// put remembers what is stored last of a sandbox, whose id was previous when it was opened. What the record has is replaced only
// where it is this sandbox's, or what it started from; else it is kept, and given. With no id nothing is replaced.
func (s store) put(ctx context.Context, name, task, id, previous string) (other string, err error) {
	err = s.change(ctx, func(t table, n *notes) bool {
		box, there := n.Boxes[name], t.of(task)
		if raw := string(t[task]); there == "" && raw != "" && raw != `""` && raw != "null" {
			other = raw // in a form that we do not know
			return false
		}
		if there != "" && !slices.Contains(append([]string{id, previous, box.From}, box.Own...), there) {
			other = there
			return false
		}
		if id == "" || there == id && slices.Contains(box.Own, id) {
			return false
		}
		t[task], _ = json.Marshal(id) // a string always marshals
		box.Task, box.Own = task, append(slices.DeleteFunc(box.Own, func(x string) bool { return x == id }), id)
		box.Own = box.Own[max(0, len(box.Own)-mostOwn):]
		n.Boxes[name] = box
		return true
	})
	return other, err
}

// drop forgets what is stored for a task where it is still what is remembered.
func (s store) drop(ctx context.Context, task, id string) error {
	return s.change(ctx, func(t table, _ *notes) bool {
		if id == "" || t.of(task) != id {
			return false
		}
		delete(t, task)
		return true
	})
}

// forget forgets a sandbox that was deleted with what was stored of it: current, and what we wrote. What another has stored for the
// task stays.
func (s store) forget(ctx context.Context, name, task, current string) error {
	return s.change(ctx, func(t table, n *notes) bool {
		box, known := n.Boxes[name]
		there := t.of(task)
		own := there != "" && (there == current || slices.Contains(box.Own, there))
		if own {
			delete(t, task)
		}
		delete(n.Boxes, name)
		return own || known
	})
}

// change calls f with both tables and writes what it left, under the lock; f says whether it changed anything.
func (s store) change(ctx context.Context, f func(t table, n *notes) bool) error {
	if s.home == "" {
		return nil
	}
	dir := filepath.Join(s.home, "elsewhere")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "vercel.lock"), flock.SetPermissions(0o600))
	lctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if _, err := lock.TryLockContext(lctx, 10*time.Millisecond); err != nil {
		return fmt.Errorf("%s: %w", lock.Path(), err)
	}
	defer lock.Close()
	t, err := s.read()
	if err != nil {
		return err
	}
	n, had := s.readNotes(), len(t)
	if !f(t, &n) {
		return nil
	}
	more, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	// The notes first: they still know what the record has where that is not written any more.
	if err := atomicfile.Write(s.notes(), more, 0o600); err != nil {
		return err
	}
	if len(t) == 0 && had == 0 {
		return nil // Hermes has no record, and needs none
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.file(), text, 0o600)
}
