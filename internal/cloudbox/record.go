package cloudbox

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

// Record is Hermes' record of where the files of tasks are stored, and beside it notes of ours (N) that its form has no room for. Each
// change of ours is made whole and under a lock. Hermes writes it too, without either: what it wrote meanwhile is looked at again before
// anything is written. With no home it is empty and stays so.
type Record[N any] struct {
	Home string // HERMES_HOME
	File string // the record's name there
	Name string // the backend's: the notes are in elsewhere/NAME.json
}

// Table is what a record holds: the id of stored files by a task's key.
type Table map[string]json.RawMessage

// Of is the id that a key has, "" for none.
func (t Table) Of(key string) (id string) {
	_ = json.Unmarshal(t[key], &id) // what is no id is none of ours
	return id
}

// Odd is what a key has where that is there and no id: it is in a form that is not known here, and not ours to replace. "" where there is
// none.
func (t Table) Odd(key string) string {
	switch raw := string(t[key]); {
	case t.Of(key) != "" || raw == `""` || raw == "null":
		return ""
	default:
		return raw
	}
}

// Set gives a key an id.
func (t Table) Set(key, id string) { t[key], _ = json.Marshal(id) } // a string always marshals

const (
	// RecordWait bounds the wait for another process that changes the record.
	RecordWait = 10 * time.Second
	// halfWait is for how long a record that cannot be read is taken for one that Hermes is writing, and halfPoll how often it is looked at.
	halfWait = time.Second
	halfPoll = 20 * time.Millisecond
	// rounds is how often a change begins again because Hermes has written meanwhile.
	rounds = 20
)

func (r Record[N]) file() string  { return filepath.Join(r.Home, r.File) }
func (r Record[N]) notes() string { return filepath.Join(r.Home, "elsewhere", r.Name+".json") }

// Read gives the record; one that is not there is empty.
func (r Record[N]) Read() (Table, error) {
	if r.Home == "" {
		return Table{}, nil
	}
	t, _, err := r.read()
	return t, err
}

// read gives the text too, nil where there is none.
func (r Record[N]) read() (Table, []byte, error) {
	for deadline := time.Now().Add(halfWait); ; time.Sleep(halfPoll) {
		t := Table{}
		text, err := os.ReadFile(r.file())
		if errors.Is(err, fs.ErrNotExist) {
			return t, nil, nil
		}
		blank := false // read, and it holds nothing
		if err == nil {
			blank = len(bytes.TrimSpace(text)) == 0
			err = json.Unmarshal(text, &t)
		}
		late := time.Now().After(deadline)
		switch {
		case err == nil && t != nil:
			return t, text, nil
		case late && (blank || err == nil):
			return Table{}, text, nil
		case late:
			return nil, text, fmt.Errorf("the record of stored files cannot be read: %s: %w; repair or move it away", r.file(), err)
		}
	}
}

// ReadNotes gives the notes; those that are not there, or blank, are empty. An error says that they are there and are not known: what is ours
// and what Hermes' cannot be told then.
func (r Record[N]) ReadNotes() (n N, err error) {
	if r.Home == "" {
		return n, nil
	}
	text, err := os.ReadFile(r.notes())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return n, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil {
		var none N
		return none, fmt.Errorf("the notes about stored files cannot be read: %s: %w; repair or move them away", r.notes(), err)
	}
	return n, nil
}

// Change calls f with both tables and writes what it left; f says whether it changed anything. It is called again where Hermes has
// written meanwhile, and may find its own notes then. Where one of the two is there and cannot be read, neither is written.
func (r Record[N]) Change(ctx context.Context, f func(t Table, n *N) bool) error {
	if r.Home == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(r.notes()), 0o700); err != nil {
		return err
	}
	lock := flock.New(r.notes()+".lock", flock.SetPermissions(0o600))
	lctx, cancel := context.WithTimeout(ctx, RecordWait)
	defer cancel()
	if _, err := lock.TryLockContext(lctx, 10*time.Millisecond); err != nil {
		return fmt.Errorf("%s: %w", lock.Path(), err)
	}
	defer lock.Close()
	for range rounds {
		done, err := r.tryChange(f)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("the record of stored files changes all the time: %s", r.file())
}

func (r Record[N]) tryChange(f func(t Table, n *N) bool) (done bool, err error) {
	t, was, err := r.read()
	if err != nil {
		return false, err
	}
	n, err := r.ReadNotes()
	if err != nil {
		return false, err
	}
	had := len(t)
	if !f(t, &n) {
		return true, nil
	}
	more, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return false, err
	}
	// The notes first: what no note knows is taken for Hermes', and is never removed or replaced.
	if err := atomicfile.Write(r.notes(), more, 0o600); err != nil {
		return false, err
	}
	if len(t) == 0 && had == 0 {
		return true, nil // Hermes has no record, and needs none
	}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return false, err
	}
	if now, err := os.ReadFile(r.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	} else if !bytes.Equal(now, was) {
		return false, nil
	}
	file := r.file()
	if to, err := filepath.EvalSymlinks(file); err == nil {
		file = to // a link stays one, and whoever reads what it leads to sees the change
	}
	return true, atomicfile.Write(file, text, 0o600)
}
