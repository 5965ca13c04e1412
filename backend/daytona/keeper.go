package daytona

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
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

// mine tells whether a sandbox with these labels is of the own identity and profile.
func (k *keeper) mine(labels map[string]string) bool {
	return labels[labelAgent] == agent && labels[labelIdentity] == k.req.Identity.ID && labels[labelProfile] == k.req.Identity.Profile
}

// all gives the own sandboxes, oldest first. The service is asked by labels, and what it answers is looked at again.
func (k *keeper) all(ctx context.Context) ([]box, error) {
	own, err := k.api.list(ctx, map[string]string{labelAgent: agent, labelIdentity: k.req.Identity.ID, labelProfile: k.req.Identity.Profile}, 0)
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(b box) bool { return !k.mine(b.Labels) || b.State == "destroyed" })
	slices.SortStableFunc(own, func(a, b box) int { return stamp(a.Created).Compare(stamp(b.Created)) })
	return own, nil
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
	image := b.Snapshot
	if b.Build != nil {
		image = strings.TrimSpace(strings.TrimPrefix(b.Build.Dockerfile, "FROM "))
	}
	return driver.SandboxInfo{
		Task: taskOf(b.Labels), ID: b.ID, Name: b.Name, State: stateOf(b.State), Image: image, Created: stamp(b.Created), Data: []string{},
		Persistent: b.Labels[labelPersist] == "true", FilesInside: b.Labels[labelPersist] == "true", InUse: b.State == "started" && kept.Used(ctx, k.req.Identity.Home, b.Name, false), Exposure: &driver.Exposure{},
	}
}

// stateOf gives a state of the service's in the words of package driver.
func stateOf(state string) string {
	switch state {
	case "started", "starting", "creating", "restoring", "resuming", "resizing", "snapshotting", "pulling_snapshot", "building_snapshot", "pending_build", "forking":
		return driver.StateRunning
	case "paused", "pausing":
		return driver.StatePaused
	case "stopped", "stopping", "archived", "archiving":
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
	b, err := k.api.get(ctx, id)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, k.api.explain("looking for the sandbox "+id, err)
	case !k.mine(b.Labels):
		return nil, failure(driver.KindConfig, "the sandbox %s is not elsewhere's, or of another identity or profile", id)
	case b.State == "destroyed":
		return nil, nil
	}
	return b, nil
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
	d := driver.SandboxDetail{SandboxInfo: k.info(ctx, b), Host: k.api.base, User: b.User, Mounts: []string{}, Processes: -1}
	if d.State == driver.StateStopped {
		d.Processes = 0
	}
	active := func(name, format string, args ...any) {
		d.Features = append(d.Features, driver.Feature{Name: name, State: driver.Active, Detail: fmt.Sprintf(format, args...)})
	}
	active("limit: cpu", "%s", amount.Of(b.CPU, "CPU"))
	active("limit: memory", "%g GiB", b.Memory)
	active("limit: disk", "%g GiB", b.Disk)
	switch {
	case b.BlockAll:
		active("network", "none")
	case b.Allow != "":
		active("network", "%s", b.Allow)
	default:
		active("network", "open")
	}
	if b.AutoStop > 0 {
		active("auto-stop", "after %g idle minutes", b.AutoStop)
	} else {
		d.Features = append(d.Features, driver.Feature{Name: "auto-stop", State: driver.Unsupported, Detail: "never"})
	}
	return d, nil
}

// Stop stops a sandbox and waits until it has.
func (k *keeper) Stop(ctx context.Context, id string) error {
	b, err := k.find(ctx, id)
	if err != nil || b == nil {
		return err
	}
	return kept.With(ctx, k.req.Identity.Home, b.Name, false, kept.ChangeWait, func(*kept.Lock) error { return k.api.stopAndWait(ctx, b.Name, b.ID) })
}

// Remove deletes a sandbox with its files, whatever data says: the service keeps nothing else.
func (k *keeper) Remove(ctx context.Context, id string, _ bool) (removed []string, err error) {
	b, err := k.find(ctx, id)
	if err != nil || b == nil {
		return nil, err
	}
	err = kept.With(ctx, k.req.Identity.Home, b.Name, false, kept.ChangeWait, func(lock *kept.Lock) error {
		if err := k.removeBox(ctx, b); err != nil {
			return err
		}
		return lock.Forget()
	})
	if err != nil {
		return nil, err
	}
	return []string{"the sandbox " + b.Name + " with its files"}, nil
}

// removeBox deletes a sandbox and waits until its name is free.
func (k *keeper) removeBox(ctx context.Context, b *box) error {
	if err := k.api.remove(ctx, b.ID); err != nil {
		return k.api.explain("deleting the sandbox "+b.Name, err)
	}
	s := &sandbox{api: k.api}
	gctx, cancel := context.WithTimeout(ctx, kept.ChangeWait)
	defer cancel()
	return k.api.explain("deleting the sandbox "+b.Name, s.awaitGone(gctx, b.ID))
}

// Reap deletes sandboxes that were made not to persist, that nobody uses, and whose owner is dead or which have been stopped for
// longer than twice the lifetime.
func (k *keeper) Reap(ctx context.Context) ([]string, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	home := k.req.Identity.Home
	dead, err := owner.Dead(home)
	errs := []error{err}
	var removed []string
	for i := range own {
		b := &own[i]
		id := b.Labels[labelOwner]
		ownerDead := b.Labels[labelMachine] == k.req.Identity.Machine && id != k.req.Identity.Owner && (slices.Contains(dead, id) || !owner.Known(home, id))
		stopped := stateOf(b.State) == driver.StateStopped && time.Since(stamp(b.Updated)) > 2*k.req.Config.Duration("lifetime_seconds")
		if b.Labels[labelPersist] != "false" || !ownerDead && !stopped {
			continue
		}
		errs = append(errs, kept.IfUnused(ctx, home, b.Name, false, kept.LookWait, func() error {
			err := k.removeBox(ctx, b)
			if err == nil {
				removed = append(removed, taskOf(b.Labels))
			}
			return err
		}))
	}
	return removed, errors.Join(errs...)
}

// reapBehind reaps behind the calls, unless a process of this home did so within the hour.
func (s *sandbox) reapBehind() {
	if s.alone() {
		return
	}
	s.bashes.Behind(func(ctx context.Context) {
		cloudbox.Reap(ctx, s.req.Identity.Home, "daytona", &keeper{api: s.api, req: s.req, log: s.log}, s.log)
	})
}

var _ driver.Keeper = (*keeper)(nil)
