package kept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/lockfile"
)

// LookWait bounds the wait for a process that makes or removes a sandbox where a listing goes on without, and ChangeWait where something is to
// be changed.
const (
	LookWait   = 2 * time.Second
	ChangeWait = 30 * time.Second
)

// With does what needs the right to make and remove the sandbox of this name, which it waits for no longer than so. Home and shared are as of
// Open. A right that cannot be had is an error of KindUnavailable, unless ctx is done: then it is ctx's own.
func With(ctx context.Context, home, name string, shared bool, wait time.Duration, do func(*Lock) error) error {
	lock, err := Open(home, name, shared)
	if err != nil {
		return kinderr.New(driver.KindUnavailable, "%w", err)
	}
	defer lock.Close()
	mctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	done, err := lock.Make(mctx)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return err
	case mctx.Err() != nil:
		// Without the deadline, which is of the wait here and would make it look as if the caller's time were up.
		return kinderr.New(driver.KindUnavailable, "another process has been making or removing this sandbox for longer than %v (%s): try again when it is done", wait, lock.make.Path())
	default:
		return kinderr.New(driver.KindUnavailable, "%w", err)
	}
	defer done()
	return do(lock)
}

// Used tells whether a process of this machine uses the sandbox of this name. One that is being made or removed now is.
func Used(ctx context.Context, home, name string, shared bool) bool {
	used := true
	_ = With(ctx, home, name, shared, LookWait, func(lock *Lock) (err error) {
		used, err = lock.InUse()
		return err
	})
	return used
}

// IfUnused does what needs the right to make and remove the sandbox of this name and is not done while another process uses it, or this
// one still does.
func IfUnused(ctx context.Context, home, name string, shared bool, wait time.Duration, do func() error) error {
	return With(ctx, home, name, shared, wait, func(lock *Lock) error {
		if used, err := lock.InUse(); err != nil || used {
			return err
		}
		return do()
	})
}

// lockPoll is how often a lock is tried that another process holds.
const lockPoll = 10 * time.Millisecond

// Lock guards one sandbox among the processes of this machine. It must be closed; Close gives up whatever is held.
type Lock struct {
	make, use *flock.Flock
}

// Open opens the lock of the sandbox with this name. Home is HERMES_HOME; where it is "" or cannot be written to, the files are
// in the user's temp directory. With shared they are there in any case, since the users of a shared sandbox have homes of
// their own.
func Open(home, name string, shared bool) (*Lock, error) {
	var errs []error
	for _, dir := range places(home, shared) {
		err := os.MkdirAll(dir, 0o700)
		if err == nil {
			var probe *flock.Flock
			if probe, err = open(filepath.Join(dir, name+".use")); err == nil {
				l := &Lock{use: probe}
				if l.make, err = open(filepath.Join(dir, name+".make")); err == nil {
					return l, nil
				}
				_ = probe.Close()
			}
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("no place for the lock of the sandbox: %w", errors.Join(errs...))
}

// open makes the file, so that a lock that cannot be had is told from one that another holds.
func open(file string) (*flock.Flock, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return flock.New(file, flock.SetPermissions(0o600)), f.Close()
}

func places(home string, shared bool) []string {
	temp := filepath.Join(os.TempDir(), "elsewhere-sandboxes-"+strconv.Itoa(os.Getuid()))
	if home == "" || shared {
		return []string{temp}
	}
	return []string{filepath.Join(home, "elsewhere", "sandboxes"), temp}
}

// Make takes the right to make, replace or remove the sandbox; it waits for another process that does until ctx is done. The
// function that it returns gives it back.
func (l *Lock) Make(ctx context.Context) (done func(), err error) {
	for {
		if _, err := l.make.TryLockContext(ctx, lockPoll); err != nil {
			if ctx.Err() == nil {
				return nil, fmt.Errorf("the right to make or remove this sandbox cannot be had (%s): %w", l.make.Path(), err)
			}
			return nil, fmt.Errorf("another process has been making or removing this sandbox for too long (%s): %w", l.make.Path(), err)
		}
		if lockfile.Current(l.make) {
			return func() { _ = l.make.Unlock() }, nil
		}
		// Whoever had it has removed the file with the sandbox (Discard): the one that counts is another one now.
		if err := l.make.Unlock(); err != nil {
			return nil, err
		}
	}
}

// Discard removes the files of the lock of a sandbox that is gone, unless somebody uses it. Call it with the right to make and
// not after Use. With the file goes the right: the next process makes a file of its own, so Discard is the last that is done
// with it. One that waits, or has opened the lock before, finds that the file is another one.
func (l *Lock) Discard() {
	if used, err := l.InUse(); err != nil || used {
		return
	}
	_ = os.Remove(l.use.Path())
	_ = l.Forget()
	_ = os.Remove(l.make.Path())
}

// Remember notes which sandbox has this name now, for backends whose engine knows nothing of one that is gone, and gives another one that
// was noted before, "" for none. Call it with the right to make; a nil Lock remembers nothing.
func (l *Lock) Remember(id string) (other string, err error) {
	if l == nil {
		return "", nil
	}
	text, err := os.ReadFile(l.note())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if other = strings.TrimSpace(string(text)); other == id {
		return "", nil
	}
	return other, atomicfile.Write(l.note(), []byte(id+"\n"), 0o600)
}

// Forget takes back what Remember and Rests noted: elsewhere itself has removed the sandbox, or nothing is lost with it. Call it with the right to make; a
// nil Lock, and one of which nothing is noted, do nothing.
func (l *Lock) Forget() error {
	if l == nil {
		return nil
	}
	_ = os.Remove(l.rest())
	if err := os.Remove(l.note()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (l *Lock) note() string { return strings.TrimSuffix(l.use.Path(), ".use") + ".is" }

// Rests notes that this sandbox was stopped while nothing ran in it, so that nothing is said of that when it starts again. Call it with the
// right to make, also on a Lock that was closed since; a nil Lock notes nothing.
func (l *Lock) Rests(id string) error {
	if l == nil {
		return nil
	}
	return atomicfile.Write(l.rest(), []byte(id+"\n"), 0o600)
}

// Wakes takes back what Rests noted, and tells whether it was of this sandbox. Call it with the right to make; of a nil Lock nothing was
// noted.
func (l *Lock) Wakes(id string) bool {
	if l == nil {
		return false
	}
	text, err := os.ReadFile(l.rest())
	return err == nil && os.Remove(l.rest()) == nil && strings.TrimSpace(string(text)) == id
}

func (l *Lock) rest() string { return strings.TrimSuffix(l.use.Path(), ".use") + ".rests" }

// Use says, until the lock is closed, that this process uses the sandbox. Call it with the right to make.
func (l *Lock) Use() error {
	ok, err := l.use.TryRLock()
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked: %w", l.use.Path(), fs.ErrPermission)
	}
	return err
}

// InUse tells whether another process uses the sandbox, or this one by another Lock. Call it with the right to make and before
// Use.
func (l *Lock) InUse() (bool, error) {
	other := flock.New(l.use.Path(), flock.SetPermissions(0o600))
	defer other.Close()
	free, err := other.TryLock()
	return !free, err
}

// Close gives up whatever is held. A nil Lock, and a second Close, do nothing.
func (l *Lock) Close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.use.Close(), l.make.Close())
}
