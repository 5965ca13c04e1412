package modal

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

// store remembers where the files of tasks are: modal_snapshots.json in Hermes' form (a task's key and an image's id), which
// Hermes reads and writes too, and notes beside it. What Hermes has stored since a sandbox was made is never replaced there: what the
// sandbox stores is then noted alone, and goes before Hermes' until it is given up.
type store struct{ cloudbox.Record[notes] }

func newStore(home string) store {
	return store{cloudbox.Record[notes]{Home: home, File: "modal_snapshots.json", Name: "modal"}}
}

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
	// Beside says that the record has what Hermes stored meanwhile.
	Beside bool `json:"beside,omitempty"`
}

// boxNote is what a sandbox was made with.
type boxNote struct {
	Task     string    `json:"task"`
	Settings string    `json:"settings"`
	Image    string    `json:"image"`
	From     string    `json:"from,omitempty"` // the image with the stored files that it started on
	Made     time.Time `json:"made"`
	// Entered says that others than its maker have opened it.
	Entered bool `json:"entered,omitempty"`
}

// legacy is the key that old versions of Hermes used.
func legacy(key string) string { return strings.TrimPrefix(key, "direct:") }

// recorded is what the record has for a key.
func recorded(t cloudbox.Table, key string) string {
	if id := t.Of(key); id != "" {
		return id
	}
	return t.Of(legacy(key))
}

// odd is what the record has for a key in a form that is not known here, "" for nothing.
func odd(t cloudbox.Table, key string) string {
	if recorded(t, key) != "" {
		return ""
	}
	return cmp.Or(t.Odd(key), t.Odd(legacy(key)))
}

// newest is the last image of ours that is noted for a key and not in the record, "" for none.
func (n *notes) newest(key string) (id string) {
	for image, of := range n.Snapshots {
		if of.Key == key && of.Beside && (id == "" || of.At.After(n.Snapshots[id].At)) {
			id = image
		}
	}
	return id
}

// foreign tells whether an image in the record is Hermes', and not the one that the sandbox of this name started on.
func (n *notes) foreign(id, name string) bool {
	_, own := n.Snapshots[id]
	return id != "" && !own && id != n.Boxes[name].From
}

// find gives the image that holds a task's files, "" where there is none, and what is noted of it.
func (s store) find(key string) (id string, of snapshot, noted bool, err error) {
	table, err := s.Read()
	if err != nil {
		return "", snapshot{}, false, err
	}
	n, err := s.ReadNotes()
	if err != nil {
		return "", snapshot{}, false, err
	}
	if id = n.newest(key); id == "" {
		id = recorded(table, key)
	}
	of, noted = n.Snapshots[id]
	return id, of, noted, nil
}

// others gives the image that Hermes has stored for a key and that is not in the sandbox of this name, "" for none.
func (s store) others(key, name string) (string, error) {
	table, err := s.Read()
	if err != nil {
		return "", err
	}
	n, err := s.ReadNotes()
	if err != nil {
		return "", err
	}
	if id := recorded(table, key); n.foreign(id, name) {
		return id, nil
	}
	return odd(table, key), nil
}

// known are the images that are remembered for a key now: that of the record, and the last one of ours that is not in it.
func (s store) known(key string) ([]string, error) {
	table, err := s.Read()
	if err != nil {
		return nil, err
	}
	n, err := s.ReadNotes()
	if err != nil {
		return nil, err
	}
	return []string{recorded(table, key), n.newest(key)}, nil
}

// put remembers a new image in place of the old ones, and gives those of ours that nobody needs any more: the new one itself, where
// another process has stored a later state since; known is what was remembered before this one was made, which is older whatever the
// clocks say. What Hermes has stored since is left in the record, and given.
func (s store) put(ctx context.Context, id string, of snapshot, known []string) (old []string, other string, err error) {
	err = s.Change(ctx, func(table cloudbox.Table, n *notes) bool {
		old, other = nil, ""
		there := recorded(table, of.Key)
		for _, image := range []string{there, n.newest(of.Key)} {
			if n.Snapshots[image].At.After(of.At) && !slices.Contains(known, image) {
				old = []string{id}
				return false
			}
		}
		if n.foreign(there, of.Name) {
			other = there
		} else {
			other = odd(table, of.Key)
		}
		if of.Beside = other != ""; !of.Beside {
			table.Set(of.Key, id)
			delete(table, legacy(of.Key))
		}
		for image, earlier := range n.Snapshots {
			if earlier.Key == of.Key && image != id {
				old = append(old, image)
				earlier.Beside = false // its note may stay for a while: it goes before nothing any more
				n.Snapshots[image] = earlier
			}
		}
		if n.Snapshots == nil {
			n.Snapshots = map[string]snapshot{}
		}
		n.Snapshots[id] = of
		return true
	})
	return old, other, err
}

// drop forgets an image that is gone, wherever it is still the one that is remembered.
func (s store) drop(ctx context.Context, id string) error {
	return s.Change(ctx, func(table cloudbox.Table, n *notes) bool {
		for key := range table {
			if table.Of(key) == id {
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
	return s.Change(ctx, func(_ cloudbox.Table, n *notes) bool {
		for _, id := range ids {
			delete(n.Snapshots, id)
		}
		return true
	})
}

// note remembers what a sandbox was made with.
func (s store) note(ctx context.Context, name string, of boxNote) error {
	return s.Change(ctx, func(_ cloudbox.Table, n *notes) bool {
		if n.Boxes == nil {
			n.Boxes = map[string]boxNote{}
		}
		n.Boxes[name] = of
		return true
	})
}

// enter notes that another than its maker opens a sandbox.
func (s store) enter(ctx context.Context, name string) error {
	if s.entered(name) {
		return nil
	}
	return s.Change(ctx, func(_ cloudbox.Table, n *notes) bool {
		of, noted := n.Boxes[name]
		if noted {
			of.Entered = true
			n.Boxes[name] = of
		}
		return noted
	})
}

// entered tells whether others than its maker have opened a sandbox, or that is not known.
func (s store) entered(name string) bool {
	n, err := s.ReadNotes()
	of, noted := n.Boxes[name]
	return err != nil || !noted || of.Entered
}
