// Package owner says whose sandboxes these are and which of their owners still live.
//
// An identity is a random id, made once in HERMES_HOME/elsewhere: sandboxes are labelled with it, and only those of the
// own identity are reused, listed or removed.
//
// A process proves that it lives by a lock on a lease, a file in HERMES_HOME/elsewhere/owners named by a random id. The
// kernel frees the lock when the process is gone, however it went. Nothing is concluded from a pid: it may be another's
// by now. The lock is on a descriptor that is closed on exec, so a child never keeps its parent's lease alive. A lease
// that another machine wrote (a home on a file server) is not judged here.
//
// Where there is no home, or none that can be written to, leases are in a directory of the user's own below the
// system's temp directory.
package owner

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// lockWait bounds the wait for another process that makes the identity, which takes a moment.
const lockWait = 10 * time.Second

// NewID returns 128 random bits as 32 hexadecimal digits.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func validID(id string) bool {
	if len(id) != 32 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Identity returns the id in home/elsewhere/identity and makes it where there is none, or where a crash of the machine
// left a file without one. Of processes that do so at the same time all get the same. Home is HERMES_HOME; with "" there
// is no identity that lasts, and the id is a new one.
func Identity(home string) (string, error) {
	if home == "" {
		return NewID(), nil
	}
	dir := filepath.Join(home, "elsewhere")
	file := filepath.Join(dir, "identity")
	id, err := readID(file)
	if err != nil || id != "" {
		return id, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock := flock.New(file+".lock", flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err == nil {
		defer lock.Close()
	} else if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("%s is locked by another process: %w", lock.Path(), err)
	}
	// Else the file system knows no locks; a link still lets only one win.
	if id, err := readID(file); err != nil || id != "" {
		return id, err
	}
	if err := writeID(file); err != nil {
		return "", err
	}
	id, err = readID(file)
	if err == nil && id == "" {
		err = fmt.Errorf("%s does not keep what is written to it", file)
	}
	return id, err
}

// readID returns the id in file, or "" where there is no file or no id in it.
func readID(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if id := string(bytes.TrimSpace(text)); validID(id) {
		return id, nil
	}
	return "", nil
}

// writeID puts a new id into file; a reader sees a whole one or none.
func writeID(file string) error {
	temp, err := os.CreateTemp(filepath.Dir(file), "identity-*.tmp") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(NewID() + "\n")
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err != nil {
		return err
	}
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
		if err := os.Link(temp.Name(), file); err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	return os.Rename(temp.Name(), file)
}

// Lease proves that this process lives until it is released.
type Lease struct {
	// ID names the lease: 32 hexadecimal digits.
	ID string

	file string
	lock *flock.Flock
	once sync.Once
	err  error
}

// Acquire makes a lease. Where home is "" or cannot be written to, it is in the user's temp directory.
func Acquire(home string) (*Lease, error) {
	var errs []error
	for _, dir := range places(home) {
		l, err := acquire(dir)
		if err == nil {
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no place for this process's lease: %w", errors.Join(errs...))
}

func acquire(dir string) (*Lease, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := ownDir(dir); err != nil {
		return nil, err
	}
	id := NewID()
	l := &Lease{ID: id, file: leaseFile(dir, id)}
	made := l.file
	if renames {
		// Locked before it has its name: who sees the lease sees it locked.
		made += ".tmp"
	}
	if err := os.WriteFile(made, []byte(machine()+"\n"), 0o600); err != nil {
		_ = os.Remove(made)
		return nil, err
	}
	l.lock = flock.New(made, flock.SetFlag(os.O_RDWR))
	locked, err := l.lock.TryLock()
	if err == nil && !locked {
		err = fmt.Errorf("%s is locked by another process", made)
	}
	if err == nil && renames {
		err = os.Rename(made, l.file)
	}
	if err != nil {
		_ = l.lock.Close()
		_ = os.Remove(made)
		return nil, err
	}
	return l, nil
}

// renames tells whether a file can be renamed while it is open. Where it cannot, a lease is free for a moment before it
// is locked, and one younger than settle is not judged.
const (
	renames = runtime.GOOS != "windows"
	settle  = 10 * time.Second
)

// Release gives the lease up; a second Release does nothing. While directories that the owner recorded are still there,
// the file stays, and the owner counts as dead.
func (l *Lease) Release() error {
	l.once.Do(func() {
		gone := true
		for _, dir := range recorded(filepath.Dir(l.file), l.ID) {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				gone = false
			}
		}
		var errs []error
		remove := func() {
			if gone {
				errs = append(errs, removeFiles(recordFile(filepath.Dir(l.file), l.ID), l.file))
			}
		}
		if renames {
			remove()
		}
		errs = append(errs, l.lock.Close())
		if !renames {
			remove()
		}
		l.err = errors.Join(errs...)
	})
	return l.err
}

func removeFiles(files ...string) error {
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Dead returns the ids of owners of this machine and user that have a lease and live no more. It costs one reading of
// each of the two directories, and no lock is waited for.
func Dead(home string) ([]string, error) {
	var ids []string
	var errs []error
	for _, dir := range places(home) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		if ownDir(dir) != nil {
			continue
		}
		for _, entry := range entries {
			id, isLease := strings.CutSuffix(entry.Name(), ".lock")
			if isLease && validID(id) && entry.Type().IsRegular() && isDead(dir, id) {
				ids = append(ids, id)
			} else if strings.HasSuffix(entry.Name(), ".lock.tmp") {
				removeOld(filepath.Join(dir, entry.Name()), time.Hour)
			}
		}
	}
	return ids, errors.Join(errs...)
}

func isDead(dir, id string) bool {
	file := leaseFile(dir, id)
	if !renames {
		if st, err := os.Stat(file); err != nil || time.Since(st.ModTime()) < settle {
			return false
		}
	}
	// A shared lock: two that ask at once do not take each other for the owner. Without O_CREATE: the lease may be gone.
	lock := flock.New(file, flock.SetFlag(os.O_RDONLY))
	defer lock.Close()
	free, err := lock.TryRLock()
	if err != nil || !free {
		return false
	}
	from, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	from = bytes.TrimSpace(from)
	return len(from) == 0 || string(from) == machine()
}

func removeOld(file string, age time.Duration) {
	if st, err := os.Lstat(file); err == nil && time.Since(st.ModTime()) > age {
		_ = os.Remove(file)
	}
}

// Forget removes the lease of a dead owner, once what it left is gone; a lease that is held, or whose owner recorded
// directories that nobody removed yet (see Removed), stays. An unknown id is no error.
func Forget(home, id string) error {
	if !validID(id) {
		return fmt.Errorf("%q is not the id of an owner", id)
	}
	var errs []error
	for _, dir := range places(home) {
		if _, err := os.Lstat(recordFile(dir, id)); err == nil {
			continue
		}
		if _, err := os.Lstat(leaseFile(dir, id)); err == nil && isDead(dir, id) {
			errs = append(errs, removeFiles(leaseFile(dir, id)))
		}
	}
	return errors.Join(errs...)
}

// ForgetOld is Forget for an owner that made its lease longer than age ago. It is for whoever cannot know that others
// are done with it.
func ForgetOld(home, id string, age time.Duration) error {
	for _, dir := range places(home) {
		if st, err := os.Lstat(leaseFile(dir, id)); err == nil && time.Since(st.ModTime()) > age {
			return Forget(home, id)
		}
	}
	return nil
}

// Record remembers, beside the lease id, a directory that has to go when its owner is dead.
func Record(home, id, path string) error {
	for _, dir := range places(home) {
		if _, err := os.Lstat(leaseFile(dir, id)); !validID(id) || err != nil {
			continue
		}
		f, err := os.OpenFile(recordFile(dir, id), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(path + "\x00")
		return errors.Join(err, f.Close())
	}
	return fmt.Errorf("no lease %q: %w", id, fs.ErrNotExist)
}

// Recorded returns the directories that owner id recorded.
func Recorded(home, id string) []string {
	var paths []string
	for _, dir := range places(home) {
		if validID(id) {
			paths = append(paths, recorded(dir, id)...)
		}
	}
	return paths
}

// recorded leaves out a last path that a killed owner did not finish writing.
func recorded(dir, id string) []string {
	text, err := os.ReadFile(recordFile(dir, id))
	if err != nil || len(text) == 0 {
		return nil
	}
	paths := strings.Split(string(text), "\x00")
	return paths[:len(paths)-1]
}

// Removed says that the directories which a dead owner recorded are gone.
func Removed(home, id string) error {
	if !validID(id) {
		return nil
	}
	var errs []error
	for _, dir := range places(home) {
		errs = append(errs, removeFiles(recordFile(dir, id)))
	}
	return errors.Join(errs...)
}

func leaseFile(dir, id string) string  { return filepath.Join(dir, id+".lock") }
func recordFile(dir, id string) string { return filepath.Join(dir, id+".dirs") }

// places gives the directories in which leases may be, the best first.
func places(home string) []string {
	var dirs []string
	if home != "" {
		dirs = append(dirs, filepath.Join(home, "elsewhere", "owners"))
	}
	return append(dirs, filepath.Join(os.TempDir(), "elsewhere-owners-"+userID()))
}

// Tag names, in 12 hexadecimal digits, this machine and the place of home's leases on it: whoever has another tag can tell
// nothing of whether an owner of this one lives.
func Tag(home string) string {
	sum := sha256.Sum256([]byte(machine() + "\x00" + places(home)[0]))
	return hex.EncodeToString(sum[:6])
}

// machine names this machine, so that a home on a file server does not make two machines judge each other.
var machine = sync.OnceValue(func() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(bytes.TrimSpace(id)) > 0 {
		return string(bytes.TrimSpace(id))
	}
	name, _ := os.Hostname()
	return name
})
