package modal

import (
	"context"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

const (
	// snapshotWait bounds the storing of files; the SDK's own bound is 55 s.
	snapshotWait = 50 * time.Second
	// ahead is how long before the end of a sandbox its files are stored, at most.
	ahead = 2 * time.Minute
	// restAfter is after how long without a bash in use a sandbox may rest: its files are stored and its watchdog leaves, so that the
	// service sees it idle.
	restAfter = 30 * time.Second
	// mindEvery is how often that is looked at, at least.
	mindEvery = 5 * time.Second
)

// Snapshot stores the sandbox's files and gives the id of the image that holds them.
func (s *sandbox) Snapshot(ctx context.Context) (string, error) {
	return s.snapshot(ctx)
}

// snapshotNow stores the files as those from which the task's next sandbox starts. What was stored before is removed when that is
// done, and stays where it is not.
func (s *sandbox) snapshotNow(ctx context.Context) error {
	select {
	case s.snapping <- struct{}{}:
		defer func() { <-s.snapping }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotWait+cloudbox.RecordWait)
	defer cancel()
	s.mu.Lock()
	s.dirty = s.busy > 0 // what changes from now on is not in it
	s.mu.Unlock()
	at := time.Now()
	known, err := s.store.known(s.plan.key)
	if err != nil {
		s.log.Debug("it is not known which files are stored", "sandbox", s.sb.SandboxID, "error", err) // nor can be noted: that is told with the new ones' id
	}
	id, err := s.snapshot(ctx)
	if err == nil {
		var old []string
		var other string
		old, other, err = s.store.put(ctx, id, snapshot{
			Key: s.plan.key, Name: s.plan.name, Task: s.req.Task, Identity: s.req.Identity.ID, Profile: s.req.Identity.Profile, Image: s.plan.image, At: at,
		}, known)
		if err != nil {
			err = failure(driver.KindUnavailable, "the sandbox's files are stored as %s, and that cannot be noted: %w; set modal_image to this id to have them", id, err)
		} else {
			if other != "" {
				s.log.Warn("Hermes has stored other files for the task: its record is left as it is", "task", s.req.Task, "sandbox", s.plan.name, "stored", other, "own", id)
			}
			removed := s.account.deleteImages(ctx, old, s.log.Debug)
			if err := s.store.forget(ctx, removed); err != nil {
				s.log.Debug("the notes of old stored files stay", "error", err)
			}
			if err := s.lock.Forget(); err != nil {
				s.log.Debug("the note of a sandbox whose files were not stored stays", "error", err)
			}
		}
	}
	if err != nil {
		s.mu.Lock()
		s.dirty = true
		s.mu.Unlock()
	}
	return err
}

// keepFiles stores the files of a sandbox that is to be ended. One that has ended meanwhile, which the service has to say when it is asked for
// it, has none to store any more: that is no error.
func (s *sandbox) keepFiles(ctx context.Context) error {
	err := s.snapshotNow(ctx)
	if err == nil || classify(err) != driver.KindLost {
		return err
	}
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if code, asked := s.sb.Poll(actx, nil); !notFound(asked) && (asked != nil || code == nil) {
		return err
	}
	s.log.Warn("a sandbox has ended before its files were stored: they are as they were stored before", "sandbox", s.sb.SandboxID, "task", s.req.Task)
	return nil
}

// snapshot makes one image. A failure is tried once more.
func (s *sandbox) snapshot(ctx context.Context) (string, error) {
	what := "storing the files of the sandbox " + s.sb.SandboxID
	ttl := s.plan.ttl
	if ttl == 0 {
		ttl = sdk.NoExpiryTTL
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotWait)
	defer cancel()
	for try := 0; ; try++ {
		image, err := s.sb.SnapshotFilesystem(ctx, &sdk.SandboxSnapshotFilesystemParams{Timeout: snapshotWait, TTL: ttl})
		if err == nil {
			return image.ImageID, nil
		}
		if try > 0 || ctx.Err() != nil || notFound(err) {
			return "", s.account.explain(ctx, what, err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// deleteImages removes stored files that nobody needs any more, and gives those that are gone; the next snapshot tries the others again.
func (a *account) deleteImages(ctx context.Context, ids []string, say func(string, ...any)) (removed []string) {
	for _, id := range ids {
		dctx, cancel := context.WithTimeout(ctx, askWait)
		if err := a.client.Images.Delete(dctx, id, nil); err != nil && !notFound(err) {
			say("old stored files were not removed", "image", id, "error", err)
		} else {
			removed = append(removed, id)
		}
		cancel()
	}
	return removed
}

// mind stores the files before the sandbox's lifetime ends and when no bash was in use for a while, and then lets the sandbox rest.
func (s *sandbox) mind() {
	margin := min(ahead, s.plan.lifetime/4)
	rest := restAfter
	if s.plan.idle > 0 {
		rest = min(rest, s.plan.idle/3)
	}
	stored := false // before the end
	ticker := time.NewTicker(min(mindEvery, max(margin/4, 100*time.Millisecond), max(rest/4, 100*time.Millisecond)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		idle := s.busy == 0 && time.Since(s.quiet) >= rest
		dirty := s.dirty && s.plan.persistent
		s.mu.Unlock()
		ending := !s.ends.IsZero() && time.Until(s.ends) < margin
		if dirty && (idle || ending && !stored) {
			stored = stored || ending
			if err := s.snapshotNow(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log.Warn("the files of a sandbox are not stored yet", "sandbox", s.info.SandboxID, "error", err)
				stored = false
			}
		}
		if idle && !s.isStillDirty() {
			s.rest()
		}
	}
}

func (s *sandbox) isStillDirty() bool { return s.plan.persistent && s.isDirty() }

// rest lets the watchdog leave where it has nothing to watch: while a bash runs the service does not take the sandbox for idle. The
// next call starts another one. While a job runs that ends with this process the watchdog stays, and with it the sandbox.
func (s *sandbox) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 {
		return
	}
	for p := range s.live {
		if p.watchdog && (p.watches == nil || !p.watches()) {
			_ = p.stdin.Close()
		}
	}
}
