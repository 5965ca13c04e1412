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
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
)

// store is Hermes' record of stored files, vercel_sandbox_snapshots.json: a task and a snapshot's id. What we keep needs none, since
// the service finds a sandbox's files by its name; from it a task's first sandbox starts, and into it goes what we stored last, for
// Hermes. With no home it is empty.
type store struct{ home string }

// storeWait bounds the wait for another process that changes the store.
const storeWait = 10 * time.Second

func (s store) file() string { return filepath.Join(s.home, "vercel_sandbox_snapshots.json") }

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
		return nil, fmt.Errorf("the record of stored files cannot be read: %s: %w; repair or move it away", s.file(), err)
	}
	return table, nil
}

// find gives the id of a task's stored files, "" where there are none.
func (s store) find(task string) (id string, err error) {
	if s.home == "" {
		return "", nil
	}
	table, err := s.read()
	if err != nil {
		return "", err
	}
	_ = json.Unmarshal(table[task], &id) // what is no id is none of ours
	return id, nil
}

// put remembers what is stored for a task, and drop forgets it where it is still what is remembered.
func (s store) put(ctx context.Context, task, id string) error {
	return s.change(ctx, func(table map[string]json.RawMessage) bool {
		table[task], _ = json.Marshal(id) // a string always marshals
		return true
	})
}

func (s store) drop(ctx context.Context, task, id string) error {
	return s.change(ctx, func(table map[string]json.RawMessage) bool {
		var there string
		if json.Unmarshal(table[task], &there) != nil || id != "" && there != id {
			return false
		}
		delete(table, task)
		return true
	})
}

// change calls f with the table and writes what it left, under the lock; f says whether it changed anything.
func (s store) change(ctx context.Context, f func(table map[string]json.RawMessage) bool) error {
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
	table, err := s.read()
	if err != nil {
		return err
	}
	if !f(table) {
		return nil
	}
	text, err := json.MarshalIndent(table, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.file(), text, 0o600)
}
