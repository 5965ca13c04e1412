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
// for longer than twice the lifetime; and throw-away ones of this user's dead processes.
func (k *keeper) Reap(ctx context.Context) ([]string, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	ownerDead, err := k.deadOwners(k.req.Identity.Home)
	errs := []error{err}
	var removed []string
	for _, c := range own {
		if c.Labels[labelPersist] != "false" {
			continue
		}
		gone, err := k.reapOne(ctx, c.ID, ownerDead(c.Labels))
		if gone {
			removed = append(removed, taskOf(c.Labels))
		}
		errs = append(errs, err)
	}
	k.dropOld(ctx, own)
	alone, err := k.reapThrowAways(ctx)
	return append(removed, alone...), errors.Join(append(errs, err, k.reapLooks(ctx, lookAge))...)
}

// lookAge is far more than it takes to look into an image (passwdTimeout), for the clocks of two machines.
const lookAge = time.Hour

// reapLooks removes what processes left that were killed while they looked into an image.
func (k *keeper) reapLooks(ctx context.Context, age time.Duration) error {
	answer, err := k.eng.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelAgent+"="+lookAgent, labelLeases+"="+owner.Tag(k.req.Identity.Home))})
	if err != nil {
		return k.eng.explain("listing containers", err)
	}
	var errs []error
	for _, c := range answer.Items {
		if time.Since(time.Unix(c.Created, 0)) > age {
			errs = append(errs, removeContainer(ctx, k.eng, c.ID))
		}
	}
	return errors.Join(errs...)
}

// deadOwners gives a test, by a container's labels, for owners that are dead. Only those can be judged whose leases are where a
// process with this home has its own.
func (k *keeper) deadOwners(home string) (func(labels map[string]string) bool, error) {
	dead, err := owner.Dead(home)
	return func(labels map[string]string) bool {
		id := labels[labelOwner]
		return labels[labelMachine] == k.req.Identity.Machine && labels[labelLeases] == owner.Tag(home) && id != k.req.Identity.Owner &&
			(slices.Contains(dead, id) || !owner.Known(home, id))
	}, err
}

// reapThrowAways removes what processes left that are dead and whose containers nobody else could find: each had an identity of its
// own, so they are known by the place of their leases.
func (k *keeper) reapThrowAways(ctx context.Context) (removed []string, err error) {
	answer, err := k.eng.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelAgent+"="+agent, labelLeases+"="+owner.Tag(""))})
	if err != nil {
		return nil, k.eng.explain("listing containers", err)
	}
	ownerDead, err := k.deadOwners("")
	errs := []error{err}
	for _, c := range answer.Items {
		if c.Labels[labelPersist] != "false" || c.Labels[labelShared] != "" || !ownerDead(c.Labels) {
			continue
		}
		// A lease may be swept away with other old files of the temp directory. A watchdog ends with its owner.
		if c.State == container.StateRunning && watched(ctx, k.eng, c.ID, nil) {
			continue
		}
		if err := removeContainer(ctx, k.eng, c.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, taskOf(c.Labels))
	}
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

// reapBehind reaps behind the calls, unless a process of this home did so within the hour. Without a home nobody takes turns.
func (s *sandbox) reapBehind() {
	home := s.req.Identity.Home
	if !s.req.Config.Bool("docker_orphan_reaper") || home != "" && !takeTurn(home, time.Now()) {
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
