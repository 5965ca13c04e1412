package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
)

// Scope is how long an answer counts.
type Scope string

// The scopes of an answer.
const (
	Once    Scope = "once"    // for the next check that finds it
	Session Scope = "session" // for as long as the Store's object lives
	Always  Scope = "always"  // kept in the file
)

const (
	lockWait   = 5 * time.Second
	maxAnswers = 1000    // in the file; the oldest go
	maxFile    = 4 << 20 // bytes of the file that are read
)

// ErrNotFixed is what Remember returns for a finding that nobody can agree to beforehand.
var ErrNotFixed = errors.New("part of the command is known only when it runs, so an answer counts once")

// Store remembers what somebody agreed to: with the rule, the command as bash would run it, and the directory. The
// same command elsewhere, or with another argument, is asked about again. Its methods may be called at the same time, and
// several processes may share a file.
//
// One Store is one session. A nil Store remembers nothing and allows nothing.
type Store struct {
	home string

	mu      sync.Mutex
	once    map[answer]int
	session map[answer]bool
	always  map[answer]bool // as last read
	stamp   fs.FileInfo     // of the file that always was read from
}

// answer is one row of the file.
type answer struct {
	Rule    string `json:"rule"`
	Command string `json:"command"`
	Dir     string `json:"dir,omitempty"`
}

// row is an answer in the file.
type row struct {
	answer
	When time.Time `json:"when"`
}

type storeFile struct {
	Version int   `json:"version"`
	Allowed []row `json:"allowed"`
}

// NewStore returns a store whose lasting answers are in home/elsewhere/policy.json; home is HERMES_HOME, and with "" nothing
// lasts. Nothing is read or made yet.
func NewStore(home string) *Store {
	return &Store{home: home, once: map[answer]int{}, session: map[answer]bool{}, always: map[answer]bool{}}
}

func (f Finding) answer() answer { return answer{f.Rule, f.Command, f.Dir} }

// Allowed reports whether f was agreed to, and uses up an answer that counts once. A file that cannot be read, or that
// others may write to, allows nothing.
func (s *Store) Allowed(f Finding) bool {
	if s == nil || f.Action != Ask {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := f.answer()
	if s.once[a] > 0 {
		s.once[a]--
		return true
	}
	if !f.Fixed {
		return false
	}
	if s.session[a] {
		return true
	}
	s.refresh()
	return s.always[a]
}

// Remember notes that somebody agreed to all findings of a decision. With Session and Always a finding that is not Fixed is
// remembered once, and the error is ErrNotFixed; findings that block are not remembered at all.
func (s *Store) Remember(d Decision, scope Scope) error {
	if s == nil {
		return errors.New("there is no store for answers")
	}
	var last []answer
	var err error
	s.mu.Lock()
	for _, f := range d.Findings {
		a := f.answer()
		switch {
		case f.Action != Ask:
		case scope == Once, !f.Fixed:
			if s.once[a]++; scope != Once {
				err = ErrNotFixed
			}
		case scope == Session:
			s.session[a] = true
		case scope == Always && s.home != "":
			last = append(last, a)
		case scope == Always:
			s.session[a] = true
			err = errors.New("there is no HERMES_HOME to keep an answer in: it counts for this session")
		default:
			err = fmt.Errorf("answer %q: use once, session or always", scope)
		}
	}
	s.mu.Unlock()
	if len(last) > 0 {
		err = errors.Join(err, s.edit(func(rows []row) []row {
			for _, a := range last {
				rows = slices.DeleteFunc(rows, func(r row) bool { return r.answer == a })
				rows = append(rows, row{a, time.Now().UTC().Truncate(time.Second)})
			}
			return rows[max(0, len(rows)-maxAnswers):]
		}))
	}
	return err
}

// Given is an answer that lasts: what somebody always agrees to.
type Given struct {
	Rule    string    // by which it was asked about
	Command string    // as bash would run it
	Dir     string    // in which it runs; "" where that does not matter
	When    time.Time // it was given
}

// Forget removes the lasting answers that match, and everything that this Store alone remembers. It returns what it removed, the
// oldest first; other processes notice at their next check. Nothing is made where there is nothing to forget.
func (s *Store) Forget(match func(Given) bool) ([]Given, error) {
	if s == nil || s.home == "" {
		return nil, nil
	}
	s.mu.Lock()
	s.session, s.once = map[answer]bool{}, map[answer]int{}
	s.mu.Unlock()
	if rows, _, err := s.read(); err != nil || len(rows) == 0 {
		return nil, err
	}
	var gone []Given
	err := s.edit(func(rows []row) []row {
		return slices.DeleteFunc(rows, func(r row) bool {
			if !match(r.given()) {
				return false
			}
			gone = append(gone, r.given())
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return gone, nil
}

// List returns the lasting answers, the oldest first.
func (s *Store) List() ([]Given, error) {
	if s == nil || s.home == "" {
		return nil, nil
	}
	rows, _, err := s.read()
	list := make([]Given, 0, len(rows))
	for _, r := range rows {
		list = append(list, r.given())
	}
	return list, err
}

func (r row) given() Given { return Given{r.Rule, r.Command, r.Dir, r.When} }

func (s *Store) path() string { return filepath.Join(s.home, "elsewhere", "policy.json") }

// refresh reads the file again if it is another one.
func (s *Store) refresh() {
	if s.home == "" {
		return
	}
	info, err := os.Lstat(s.path())
	if err == nil && s.stamp != nil && os.SameFile(info, s.stamp) && info.ModTime().Equal(s.stamp.ModTime()) && info.Size() == s.stamp.Size() {
		return
	}
	s.always, s.stamp = map[answer]bool{}, nil
	if err != nil {
		return
	}
	rows, info, err := s.read()
	if err != nil {
		return
	}
	s.stamp = info
	for _, r := range rows {
		s.always[r.answer] = true
	}
}

// read returns the file's rows; no file has none.
func (s *Store) read() ([]row, fs.FileInfo, error) {
	root, err := privatedir.Open(filepath.Dir(s.path()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	info, err := root.Lstat("policy.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%s is no regular file: remove it", s.path())
	case info.Mode().Perm()&0o022 != 0 && filepath.Separator == '/':
		return nil, nil, fmt.Errorf("%s can be written by others: chmod 600 it if its answers are yours", s.path())
	case info.Size() > maxFile:
		return nil, nil, fmt.Errorf("%s is larger than %d bytes: remove it", s.path(), maxFile)
	}
	data, err := root.ReadFile("policy.json")
	if err != nil {
		return nil, nil, err
	}
	var file storeFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, nil, fmt.Errorf("%s: %w: remove it, or mend it", s.path(), err)
	}
	if file.Version != 1 {
		return nil, nil, fmt.Errorf("%s has version %d, of a newer elsewhere: use that one", s.path(), file.Version)
	}
	return file.Allowed, info, nil
}

// edit changes the rows under the file's lock.
func (s *Store) edit(change func([]row) []row) error {
	root, err := privatedir.Create(filepath.Dir(s.path()))
	if err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	defer root.Close()
	lock := flock.New(s.path()+".lock", flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err == nil {
		defer lock.Close()
	} else if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s is locked by another process: %w", lock.Path(), err)
	}
	rows, _, err := s.read()
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(storeFile{1, change(rows)}, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(s.path(), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("keep an answer: %w", err)
	}
	return nil
}
