package modal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
)

// store remembers where the files of tasks are: modal_snapshots.json in Hermes' form (a task's key and an image's id), which
// Hermes reads and writes too, and beside it what Hermes' form has no room for. Each change is made whole, under a lock. With no
// home it remembers nothing.
type store struct{ home string }

// notes is what Hermes' form has no room for.
type notes struct {
	// Snapshots are by the image's id: those that we made.
	Snapshots map[string]snapshot `json:"snapshots"`
	// Boxes are by the sandbox's name.
	Boxes map[string]boxNote `json:"sandboxes"`
}

// snapshot is one stored state of a task's files.
type snapshot struct {
	Key      string    `json:"key"`
	Name     string    `json:"name"` // of the sandbox
	Task     string    `json:"task"`
	Identity string    `json:"identity"`
	Profile  string    `json:"profile"`
	Image    string    `json:"image"` // from which the first sandbox was made
	At       time.Time `json:"at"`
}

// boxNote is what a sandbox was made with.
type boxNote struct {
	Task     string    `json:"task"`
	Settings string    `json:"settings"`
	Image    string    `json:"image"`
	Made     time.Time `json:"made"`
}

// storeWait bounds the wait for another process that changes the store.
const storeWait = 10 * time.Second

func (s store) file() string  { return filepath.Join(s.home, "modal_snapshots.json") }
func (s store) notes() string { return filepath.Join(s.home, "elsewhere", "modal.json") }

// legacy is the key that old versions of Hermes used, or "".
func legacy(key string) string { return strings.TrimPrefix(key, "direct:") }

// read gives the whole table; a file that is not there is an empty one.
func (s store) read() (map[string]json.RawMessage, error) {
	table := map[string]json.RawMessage{}
	text, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return table, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		return nil, fmt.Errorf("the record of stored files cannot be read: %s: %w", s.file(), err)
	}
	return table, nil
}

func (s store) readNotes() notes {
	var n notes
	if text, err := os.ReadFile(s.notes()); err == nil {
		_ = json.Unmarshal(text, &n) // what was there is then not known any more
	}
	if n.Snapshots == nil {
		n.Snapshots = map[string]snapshot{}
	}
	if n.Boxes == nil {
		n.Boxes = map[string]boxNote{}
	}
	return n
}

// change calls f with both tables and writes what it left, under the lock; f says whether it changed anything.
func (s store) change(ctx context.Context, f func(table map[string]json.RawMessage, n *notes) bool) error {
	if s.home == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.notes()), 0o700); err != nil {
		return err
	}
	lock := flock.New(s.notes()+".lock", flock.SetPermissions(0o600))
	lctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	if _, err := lock.TryLockContext(lctx, 10*time.Millisecond); err != nil {
		return fmt.Errorf("%s: %w", lock.Path(), err)
	}
	defer lock.Close()
	table, err := s.read()
	if err != nil {
		// It is kept for people; what it said cannot be saved by anybody else.
		if merr := os.Rename(s.file(), fmt.Sprintf("%s.bad-%d", s.file(), time.Now().Unix())); merr != nil {
			return errors.Join(err, merr)
		}
		table = map[string]json.RawMessage{}
	}
	n := s.readNotes()
	if !f(table, &n) {
		return nil
	}
	text, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	more, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	// The notes first: a snapshot that no note knows is taken for Hermes', and is never removed.
	if err := atomicfile.Write(s.notes(), more, 0o600); err != nil {
		return err
	}
	return atomicfile.Write(s.file(), text, 0o600)
}

// find gives the image that holds a task's files, "" where there is none, and what is noted of it.
func (s store) find(key string) (id string, of snapshot, noted bool, err error) {
	if s.home == "" {
		return "", snapshot{}, false, nil
	}
	table, err := s.read()
	if err != nil {
		return "", snapshot{}, false, err
	}
	for _, k := range []string{key, legacy(key)} {
		if raw, ok := table[k]; ok && json.Unmarshal(raw, &id) == nil && id != "" {
			break
		}
	}
	of, noted = s.readNotes().Snapshots[id]
	return id, of, noted, nil
}

// put remembers a new image in place of the old ones, and gives those that we made and nobody needs any more.
func (s store) put(ctx context.Context, id string, of snapshot) (old []string, err error) {
	err = s.change(ctx, func(table map[string]json.RawMessage, n *notes) bool {
		for image, other := range n.Snapshots {
			if other.Key == of.Key && image != id {
				old = append(old, image)
			}
		}
		table[of.Key], _ = json.Marshal(id) // a string always marshals
		delete(table, legacy(of.Key))
		n.Snapshots[id] = of
		return true
	})
	return old, err
}

// drop forgets an image that is gone, wherever it is still the one that is remembered.
func (s store) drop(ctx context.Context, id string) error {
	return s.change(ctx, func(table map[string]json.RawMessage, n *notes) bool {
		for key, raw := range table {
			var there string
			if json.Unmarshal(raw, &there) == nil && there == id {
				delete(table, key)
			}
		}
		delete(n.Snapshots, id)
		return true
	})
}

// forget drops the notes of images that were removed.
func (s store) forget(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return s.change(ctx, func(_ map[string]json.RawMessage, n *notes) bool {
		for _, id := range ids {
			delete(n.Snapshots, id)
		}
		return true
	})
}

// note remembers what a sandbox was made with.
func (s store) note(ctx context.Context, name string, of boxNote) error {
	return s.change(ctx, func(_ map[string]json.RawMessage, n *notes) bool {
		n.Boxes[name] = of
		return true
	})
}
