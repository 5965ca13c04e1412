//go:build linux

package singularity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
	"github.com/elsewhere-sh/elsewhere/internal/statefile"
)

// sandbox is an instance as seen by one process.
type sandbox struct {
	prog    *program
	rec     record // as it was when the sandbox was opened
	record  string // its file
	home    string // HERMES_HOME, or "" where there is none
	info    driver.Info
	refresh func(context.Context) ([]string, error)
	lock    *kept.Lock // nil for a throw-away instance
	hold    *hold      // nil for any other, and where locks cannot be had
	log     *slog.Logger

	base    *os.Root // what is mounted on stateRoot
	private string   // the private directory's name in base

	mu     sync.Mutex
	closed bool
	tidy   sync.WaitGroup
}

// stateName is the directory of kept sessions' state in base; privatePrefix begins a private one, and the owner's lease and
// a random part follow.
const (
	stateName     = "state"
	privatePrefix = "private-"
)

// use makes a sandbox of an instance that runs.
func (o *opener) use(ctx context.Context, rec *record, lock *kept.Lock) (_ driver.Sandbox, err error) {
	p := o.plan
	s := &sandbox{prog: o.prog, rec: *rec, record: p.record, home: o.req.Identity.Home, refresh: p.shared.refresh, log: o.log}
	defer func() {
		if err != nil && p.throwAway {
			o.hold.giveUp()
			err = errors.Join(err, destroy(context.WithoutCancel(ctx), o.prog, rec, p.record, true))
		}
	}()
	dir := p.home
	if p.cwd != "" {
		seen, err := o.look(ctx, rec.Name, p.cwd)
		if err != nil {
			return nil, err
		}
		if dir = p.cwd; !seen.cwd {
			dir = p.home
			p.notices = append(p.notices, "terminal.cwd ("+p.cwd+") is no directory in the instance, where the host's are not visible: sessions start in "+p.home)
		}
	}
	if s.base, err = privatedir.Create(rec.State); err != nil {
		return nil, failure(driver.KindUnavailable, "the directory for state files cannot be opened: %w", err)
	}
	ownerID := o.req.Identity.Owner
	if ownerID == "" {
		ownerID = owner.NewID()
	}
	s.private = privatePrefix + ownerID + "-" + owner.NewID()[:16]
	s.keepDirs()
	if _, err := s.base.Stat(s.private); err != nil {
		return nil, failure(driver.KindUnavailable, "no directory for state files can be made: %w", err)
	}
	host, _ := os.Hostname()
	s.info = driver.Info{
		Host: host, SandboxID: rec.Name, User: p.user, Home: p.home, Dir: dir,
		StateDir: path.Join(stateRoot, s.private), PrivateDir: path.Join(stateRoot, s.private),
		// The pipes lead straight to a bash: they stay open as long as a process holds them, and its stdin ends with us.
		Linger: false, Watchdog: true, KeepsChildren: true,
		Exposure: exposure(rec, p.ownMounts(), p.gpu),
		CallEnv:  maps.Clone(p.callEnv), Features: slices.Clone(rec.Features), Notices: p.notices, Recreated: p.recreated,
	}
	if !p.throwAway {
		s.info.StateDir = path.Join(stateRoot, stateName)
	}
	if !rec.Setsid {
		s.info.Features = append(s.info.Features, driver.Feature{Name: "process group", State: driver.Degraded,
			Detail: "the image has no setsid: the processes of a call are found by their marks and their parents alone"})
	}
	s.lock, s.hold = lock, o.hold
	s.tidy.Go(func() { s.removeLeftovers(p.scratch) })
	return s, nil
}

func (s *sandbox) Info() driver.Info { return s.info }

// Alive asks the kernel whether the instance's first process lives, and the engine whether that is still the instance.
func (s *sandbox) Alive(ctx context.Context) error {
	if !s.rec.lives() {
		return s.lost()
	}
	running, err := s.prog.list(ctx, s.rec.Name)
	if err != nil {
		return failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
	}
	if running[s.rec.Name].PID != s.rec.PID {
		return s.lost()
	}
	return nil
}

func (s *sandbox) lost() error {
	return failure(driver.KindLost, "the instance %s has ended; the next call starts one", s.rec.Name)
}

// Prepare brings what is mounted from HERMES_HOME up to date.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.refresh == nil {
		return nil, nil
	}
	return s.refresh(ctx)
}

// keepDirs makes the directories for state files where a command has removed them. Commands may write there, so a name that
// exists, be it a link, is not taken, and nothing leads out of base.
func (s *sandbox) keepDirs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	_ = s.base.Mkdir(s.private, 0o700)
	if !s.rec.ThrowAway {
		_ = s.base.Mkdir(stateName, 0o700)
	}
}

// within gives a path below stateRoot relative to base.
func (s *sandbox) within(file string) (string, error) {
	rel, ok := strings.CutPrefix(path.Clean(file), stateRoot+"/")
	if !ok || !filepath.IsLocal(rel) {
		return "", failure(driver.KindDenied, "%s is not in a state directory of this sandbox", file)
	}
	return rel, nil
}

// RemoveState removes state files on the host's side. It goes on after a failure and returns all of them.
func (s *sandbox) RemoveState(ctx context.Context, paths []string) error {
	var errs []error
	for _, file := range paths {
		rel, err := s.within(file)
		if err == nil {
			err = statefile.Remove(s.base, rel)
		}
		if err != nil {
			errs = append(errs, denied(file, err))
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// ListState lists the plain files below dir. Links are neither listed nor followed.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	rel, err := s.within(dir)
	if err != nil {
		return nil, err
	}
	files, err := statefile.List(ctx, s.base, rel, func(file string) string { return path.Join(stateRoot, filepath.ToSlash(file)) })
	if err != nil {
		return nil, denied(dir, err)
	}
	return files, nil
}

func denied(file string, err error) error {
	if errors.Is(err, statefile.ErrNotStateFile) {
		return failure(driver.KindDenied, "%s: %w", file, err)
	}
	return err
}

// removeLeftovers removes the private directories of owners that are dead, and throw-away instances of such.
func (s *sandbox) removeLeftovers(scratch string) {
	dead := deadOwners(s.home)
	if dir, err := s.base.Open("."); err == nil {
		names, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		for _, n := range names {
			id, _, ok := strings.Cut(strings.TrimPrefix(n, privatePrefix), "-")
			if ok && n != s.private && strings.HasPrefix(n, privatePrefix) && dead(id) {
				if err := s.base.RemoveAll(n); err != nil {
					s.log.Debug("a dead owner's state was not removed", "dir", n, "err", err)
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := removeThrowAways(ctx, s.prog, scratch, s.rec.Name); err != nil {
		s.log.Warn("what a killed process left was not removed", "err", err)
	}
}

// deadOwners gives a test for owners' leases: held by nobody, or forgotten.
func deadOwners(home string) func(id string) bool {
	released := releasedLeases(home)
	return func(id string) bool { return released(id) || !owner.Known(home, id) }
}

// releasedLeases gives a test for leases that are there and held by nobody.
func releasedLeases(home string) func(id string) bool {
	gone := map[string]bool{}
	ids, _ := owner.Dead(home)
	for _, id := range ids {
		gone[id] = true
	}
	return func(id string) bool { return gone[id] }
}

// removeThrowAways removes throw-away instances whose owners are dead, but for the caller's own. Only those can be judged whose leases
// are where a process like this one has its own: a scratch disk is shared by jobs that have each a temp directory of their own.
func removeThrowAways(ctx context.Context, prog *program, scratch, own string) error {
	files, _ := filepath.Glob(filepath.Join(scratch, "elsewhere", "elsewhere-run-*", throwAwayRecord))
	if len(files) == 0 {
		return nil
	}
	released := releasedLeases("")
	host, _ := os.Hostname()
	var errs []error
	for _, file := range files {
		rec, err := readRecord(file)
		if err != nil || rec == nil || !rec.ThrowAway || rec.Name == own || rec.Machine != host || rec.Leases != owner.Tag("") || !rec.abandoned(released) {
			continue
		}
		errs = append(errs, destroy(ctx, prog, rec, file, true))
	}
	return errors.Join(errs...)
}

// abandoned tells whether nobody is left who uses a throw-away instance. A lease in the temp directory may be swept away while its
// owner lives, and says nothing then: the owner's hold does, and where there is none an instance that runs is left alone.
func (r *record) abandoned(released func(id string) bool) bool {
	lives, known := held(r.Dir)
	switch {
	case known && lives:
		return false
	case released(r.Owner):
		return true
	case owner.Known("", r.Owner):
		return false
	}
	return known || !r.lives()
}

// Close gives the instance up: one that persists goes on running; another is ended and removed with its files by the last
// who uses it. A second Close does nothing.
func (s *sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.tidy.Wait()
	errs := []error{s.base.RemoveAll(s.private), s.base.Close()}
	switch {
	case s.lock == nil:
		s.hold.giveUp()
		errs = append(errs, destroy(ctx, s.prog, &s.rec, s.record, true))
	case s.rec.Persistent:
		errs = append(errs, s.lock.Close())
	default:
		errs = append(errs, s.closeLast(ctx))
	}
	return errors.Join(errs...)
}

// closeLast gives up the use of an instance that does not persist, and removes it where nobody else uses it.
func (s *sandbox) closeLast(ctx context.Context) error {
	lock, err := kept.Open(s.home, lockName(s.rec.Name), false)
	if err != nil {
		return errors.Join(err, s.lock.Close())
	}
	defer lock.Close()
	done, err := lock.Make(ctx)
	if err != nil {
		return errors.Join(err, s.lock.Close())
	}
	defer done()
	if err := s.lock.Close(); err != nil {
		return err
	}
	if inUse, err := lock.InUse(); err != nil || inUse {
		return err
	}
	// Another process may have started it again since this one opened it.
	rec, err := readRecord(s.record)
	if err != nil || rec == nil {
		return err
	}
	if err := destroy(ctx, s.prog, rec, s.record, true); err != nil {
		return fmt.Errorf("the instance was given up and not all of it is removed: %w", err)
	}
	lock.Discard()
	return nil
}
