package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

const (
	// reapEvery is how often an opening reaps at most, among all processes of one home.
	reapEvery = time.Hour
	// reapWait bounds one reaping.
	reapWait = 2 * time.Minute
)

// Reap removes containers that were made not to persist, that nobody uses, and whose owner is dead or which have been stopped
// for longer than twice the lifetime.
func (k *keeper) Reap(ctx context.Context) ([]string, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	home := k.req.Identity.Home
	dead, err := owner.Dead(home)
	errs := []error{err}
	var removed []string
	for _, c := range own {
		if c.Labels[labelPersist] != "false" {
			continue
		}
		id := c.Labels[labelOwner]
		ownerDead := c.Labels[labelMachine] == k.req.Identity.Machine && id != k.req.Identity.Owner &&
			(slices.Contains(dead, id) || !owner.Known(home, id))
		gone, err := k.reapOne(ctx, c.ID, ownerDead)
		if gone {
			removed = append(removed, taskOf(c.Labels))
		}
		errs = append(errs, err)
	}
	k.dropOld(ctx, own)
	return removed, errors.Join(errs...)
}

// noteAge is for how long it is remembered that a task had a container which vanished with all its files.
const noteAge = 30 * 24 * time.Hour

// dropOld drops the records of containers that are gone and have left nothing.
func (k *keeper) dropOld(ctx context.Context, own []container.Summary) {
	notes := k.notes()
	for _, rec := range notes.all(k.req.Identity) {
		there := slices.ContainsFunc(own, func(c container.Summary) bool { return slices.Contains(c.Names, "/"+rec.Name) })
		if !there && time.Since(rec.Created) > noteAge && len(notes.left(ctx, rec)) == 0 {
			_ = notes.drop(rec.Name) // the next reaping tries again
		}
	}
}

// reapOne removes one container if it is still to be reaped once nobody else can begin to use it.
func (k *keeper) reapOne(ctx context.Context, id string, ownerDead bool) (removed bool, err error) {
	c, ok, err := k.find(ctx, id)
	if err != nil || !ok || !ownerDead && !k.stoppedLong(c) {
		return false, err
	}
	err = k.withLock(ctx, nameOf(c), c.Config.Labels, kept.LookWait, func(lock *kept.Lock) error {
		now, err := k.eng.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return k.eng.explain("looking for the container "+nameOf(c), err)
		}
		if !ownerDead && !k.stoppedLong(now.Container) {
			return nil
		}
		if used, err := inUse(ctx, k.eng, lock, now.Container, k.req.Identity.Machine); err != nil || used {
			return err
		}
		removed = true
		defer lock.Discard()
		return k.removeAll(ctx, c)
	})
	return removed && err == nil, err
}

// stoppedLong tells whether a container has been stopped for longer than twice the lifetime.
func (k *keeper) stoppedLong(c container.InspectResponse) bool {
	if c.State == nil || c.State.Status != container.StateExited && c.State.Status != container.StateCreated && c.State.Status != container.StateDead {
		return false
	}
	since, err := time.Parse(time.RFC3339Nano, c.State.FinishedAt)
	if err != nil || since.Year() < 2000 { // it never ran
		if since, err = time.Parse(time.RFC3339Nano, c.Created); err != nil {
			return false
		}
	}
	return time.Since(since) > 2*k.req.Config.Duration("lifetime_seconds")
}

// reapBehind reaps behind the calls, unless a process of this home did so within the hour.
func (s *sandbox) reapBehind() {
	if s.alone() || !s.req.Config.Bool("docker_orphan_reaper") || !takeTurn(s.req.Identity.Home, time.Now()) {
		return
	}
	s.behind(func() {
		ctx, cancel := context.WithTimeout(s.ctx, reapWait)
		defer cancel()
		k := &keeper{eng: s.eng, req: s.req, log: s.log}
		removed, err := k.Reap(ctx)
		if err != nil && ctx.Err() == nil {
			s.log.Debug("not every orphaned container was removed", "error", err)
		}
		for _, task := range removed {
			s.log.Info("an orphaned container was removed", "task", task)
		}
	})
}

// takeTurn tells whether the last reaping of this home is long enough ago, and notes this one.
func takeTurn(home string, now time.Time) bool {
	if home == "" {
		return false
	}
	stamp := filepath.Join(home, "elsewhere", "docker-reaped")
	if st, err := os.Stat(stamp); err == nil && now.Sub(st.ModTime()) < reapEvery && !st.ModTime().After(now.Add(reapEvery)) {
		return false
	}
	if err := os.MkdirAll(filepath.Dir(stamp), 0o700); err != nil {
		return false
	}
	return os.WriteFile(stamp, nil, 0o600) == nil && os.Chtimes(stamp, now, now) == nil
}

var _ driver.Keeper = (*keeper)(nil)
