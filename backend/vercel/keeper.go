package vercel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// keeper looks after the sandboxes of one identity and profile.
type keeper struct {
	api *api
	req driver.OpenRequest
	log *slog.Logger
}

func openKeeper(_ context.Context, req driver.OpenRequest) (driver.Keeper, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	return &keeper{api: a, req: req, log: req.Logger}, nil
}

func (k *keeper) Close() error { return nil }

// all gives the own sandboxes, oldest first.
func (k *keeper) all(ctx context.Context) ([]box, error) {
	own, err := k.api.list(ctx, k.req.Identity, 0)
	slices.SortStableFunc(own, func(a, b box) int { return int(a.Created - b.Created) })
	return own, err
}

// List lists the own sandboxes.
func (k *keeper) List(ctx context.Context) ([]driver.SandboxInfo, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]driver.SandboxInfo, 0, len(own))
	for i := range own {
		infos = append(infos, k.info(ctx, &own[i]))
	}
	return infos, nil
}

func (k *keeper) info(ctx context.Context, b *box) driver.SandboxInfo {
	return driver.SandboxInfo{
		Task: k.task(b), ID: b.Name, Name: b.Name, State: stateOf(b.Status), Image: b.Image + b.Runtime, Created: stamp(b.Created), Data: []string{},
		Persistent: b.Persistent, FilesInside: b.Persistent, InUse: stateOf(b.Status) == driver.StateRunning && kept.Used(ctx, k.req.Identity.Home, lockName(b.Name), false), Exposure: &driver.Exposure{},
	}
}

// stateOf gives a state of the service's in the words of package driver.
func stateOf(status string) string {
	switch status {
	case "running", "pending":
		return driver.StateRunning
	case "stopped", "stopping", "snapshotting":
		return driver.StateStopped
	default:
		return driver.StateDead
	}
}

// find finds an own sandbox; nil where there is none of this id.
func (k *keeper) find(ctx context.Context, id string) (*box, error) {
	if id == "" {
		return nil, failure(driver.KindConfig, "no sandbox is named")
	}
	st, err := k.api.get(ctx, id, false)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, k.api.explain("looking for the sandbox "+id, err)
	case st.Box.Tags[tagIdentity] != cloudbox.IdentityHash(k.req.Identity):
		return nil, failure(driver.KindConfig, "the sandbox %s is not elsewhere's, or of another identity or profile", id)
	}
	st.Box.Session, st.Box.Status = st.Run.ID, st.Run.Status
	return &st.Box, nil
}

// Inspect tells of a sandbox what the service has in force.
func (k *keeper) Inspect(ctx context.Context, id string) (driver.SandboxDetail, error) {
	b, err := k.find(ctx, id)
	if err == nil && b == nil {
		err = failure(driver.KindLost, "there is no sandbox %s", id)
	}
	if err != nil {
		return driver.SandboxDetail{}, err
	}
	d := driver.SandboxDetail{SandboxInfo: k.info(ctx, b), Host: k.api.Base, Mounts: []string{}, Processes: -1}
	if d.State != driver.StateRunning {
		d.Processes = 0
	}
	active := func(name, format string, args ...any) {
		d.Features = append(d.Features, driver.Feature{Name: name, State: driver.Active, Detail: fmt.Sprintf(format, args...)})
	}
	active("limit: cpu", "%s", amount.Of(b.VCPUs, "vCPU"))
	active("limit: memory", "%g MB", b.Memory)
	active("network", "open")
	active("auto-stop", "after %v, unless it is extended", time.Duration(b.Timeout)*time.Millisecond)
	if b.Snapshot != "" {
		active("persistence", "files are stored as %s", b.Snapshot)
	}
	return d, nil
}

// Stop stops a sandbox, whose files the service stores where it persists.
func (k *keeper) Stop(ctx context.Context, id string) error {
	b, err := k.find(ctx, id)
	if err != nil || b == nil {
		return err
	}
	return kept.With(ctx, k.req.Identity.Home, lockName(b.Name), false, kept.ChangeWait, func(*kept.Lock) error {
		b, err := k.find(ctx, b.Name) // it may have changed until now
		if err != nil || b == nil {
			return err
		}
		if !b.Persistent {
			_, err := k.api.stop(ctx, b.Session)
			return k.api.explain("stopping the sandbox "+b.Name, err)
		}
		snapshot, err := k.api.store(ctx, b.Name, b.Session)
		if err != nil {
			return k.api.explain("stopping the sandbox "+b.Name, err)
		}
		return k.record(ctx, b, snapshot)
	})
}

// record writes into Hermes' record what is stored last of a sandbox, unless another has stored something for the task since.
func (k *keeper) record(ctx context.Context, b *box, snapshot string) error {
	task := k.task(b)
	if !k.names(task, b) {
		k.log.Warn("Hermes' record of stored files was not brought up to date: the sandbox's task is not known here", "sandbox", b.Name)
		return nil
	}
	other, err := k.store().put(ctx, b.Name, task, snapshot, b.Snapshot)
	if err == nil && other != "" {
		k.log.Warn("Hermes has stored other files for the task: its record is left as it is", "task", task, "sandbox", b.Name, "stored", other)
	}
	return err
}

func (k *keeper) store() store { return newStore(k.req.Identity.Home) }

// task is a sandbox's task. The tag has no room for a long one: its name tells whether it is whole, and else it is noted.
func (k *keeper) task(b *box) string {
	tagged := taskOf(b.Tags)
	if !k.names(tagged, b) {
		noted, err := k.store().task(b.Name)
		if err != nil {
			k.log.Warn("the whole name of a sandbox's task is not known", "sandbox", b.Name, "error", err)
		}
		if k.names(noted, b) {
			return noted
		}
	}
	return tagged
}

// names tells whether a sandbox's name is the one of this task's.
func (k *keeper) names(task string, b *box) bool {
	return kept.Name(k.req.Identity, "", task) == b.Name
}

// Remove deletes a sandbox with its stored files, whatever data says: the service keeps nothing else.
func (k *keeper) Remove(ctx context.Context, id string, _ bool) (removed []string, err error) {
	b, err := k.find(ctx, id)
	if err != nil || b == nil {
		return nil, err
	}
	err = kept.With(ctx, k.req.Identity.Home, lockName(b.Name), false, kept.ChangeWait, func(lock *kept.Lock) error {
		b, err := k.find(ctx, b.Name) // it may have changed until now
		if err != nil || b == nil {
			return err
		}
		if err := k.api.remove(ctx, b.Name, true); err != nil {
			return k.api.explain("deleting the sandbox "+b.Name, err)
		}
		if err := lock.Forget(); err != nil {
			return err
		}
		if task := k.task(b); b.Persistent && k.names(task, b) {
			return k.store().forget(ctx, b.Name, task, b.Snapshot)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []string{"the sandbox " + b.Name + " with its files"}, nil
}

// Reap deletes sandboxes that were made not to persist, that nobody uses, and whose owner is dead or which have been stopped for
// longer than twice the lifetime.
func (k *keeper) Reap(ctx context.Context) ([]string, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	dead, err := owner.Dead(k.req.Identity.Home)
	errs := []error{err}
	var removed []string
	for i := range own {
		b := &own[i]
		if !k.orphaned(b, dead) {
			continue
		}
		errs = append(errs, kept.IfUnused(ctx, k.req.Identity.Home, lockName(b.Name), false, kept.LookWait, func() error {
			// It was listed without the lock: another one may have its name now.
			now, err := k.find(ctx, b.Name)
			if err != nil || now == nil || now.Created != b.Created || now.Tags[tagOwner] != b.Tags[tagOwner] || !k.orphaned(now, dead) {
				return err
			}
			err = k.api.remove(ctx, b.Name, false)
			if err == nil {
				removed = append(removed, k.task(b))
			}
			return k.api.explain("deleting the sandbox "+b.Name, err)
		}))
	}
	return removed, errors.Join(errs...)
}

// orphaned tells whether a sandbox was made not to persist, and its owner is one of the dead or it was stopped long ago.
func (k *keeper) orphaned(b *box, dead []string) bool {
	home, id := k.req.Identity.Home, b.Tags[tagOwner]
	ownerDead := b.Tags[tagMachine] == machineHash(k.req.Identity.Machine) && id != k.req.Identity.Owner && (slices.Contains(dead, id) || !owner.Known(home, id))
	stopped := stateOf(b.Status) != driver.StateRunning && time.Since(stamp(b.Updated)) > 2*k.req.Config.Duration("lifetime_seconds")
	return !b.Persistent && (ownerDead || stopped)
}

// reapBehind reaps behind the calls, unless a process of this home did so within the hour.
func (s *sandbox) reapBehind() {
	if alone(s.req) {
		return
	}
	s.bashes.Behind(func(ctx context.Context) {
		cloudbox.Reap(ctx, s.req.Identity.Home, "vercel", &keeper{api: s.api, req: s.req, log: s.log}, s.log)
	})
}

var _ driver.Keeper = (*keeper)(nil)
