package modal

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// keeper looks after the sandboxes that run and the files that are stored of one identity and profile. A task whose files are stored
// and whose sandbox does not run is a stopped one; its id is the image's.
type keeper struct {
	account *account
	store   store
	req     driver.OpenRequest
	log     *slog.Logger
}

func openKeeper(_ context.Context, req driver.OpenRequest) (driver.Keeper, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	return &keeper{account: a, store: newStore(req.Identity.Home), req: req, log: req.Logger}, nil
}

func (k *keeper) Close() error {
	k.account.close()
	return nil
}

// running is one of ours as the service has it.
type running struct {
	sb   *sdk.Sandbox
	tags map[string]string
	name string // as it is noted here
	note boxNote
}

// all asks for the own sandboxes that run, oldest first.
func (k *keeper) all(ctx context.Context) ([]running, error) {
	app, err := k.account.inApp(ctx)
	if err != nil {
		return nil, err
	}
	own := (&plan{}).tags(driver.OpenRequest{Identity: k.req.Identity})
	const what = "listing sandboxes"
	list, err := k.account.client.Sandboxes.List(ctx, &sdk.SandboxListParams{AppID: app.AppID, Tags: map[string]string{
		tagAgent: agent, tagIdentity: own[tagIdentity], tagProfile: own[tagProfile],
	}})
	if err != nil {
		return nil, k.account.explain(ctx, what, err)
	}
	notes, err := k.store.ReadNotes()
	if err != nil {
		return nil, failure(driver.KindConfig, "%w", err)
	}
	var found []running
	for sb, err := range list {
		if err != nil {
			return nil, k.account.explain(ctx, what, err)
		}
		tags, err := sb.GetTags(ctx, nil)
		if notFound(err) {
			continue
		}
		if err != nil {
			return nil, k.account.explain(ctx, what, err)
		}
		r := running{sb: sb, tags: tags}
		for name, note := range notes.Boxes {
			if kept.Name(k.req.Identity, "", note.Task) == name && tags[tagTask] == safename.Of(note.Task) && tags[tagFingerprint] == kept.Parse(note.Settings).Fingerprint() {
				r.name, r.note = name, note
			}
		}
		if r.name == "" {
			r.name, r.note = kept.Name(k.req.Identity, "", tags[tagTask]), boxNote{Task: tags[tagTask]}
		}
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b running) int { return tagTime(a.tags[tagMade]).Compare(tagTime(b.tags[tagMade])) })
	return found, nil
}

// List lists what runs and what is stored.
func (k *keeper) List(ctx context.Context) ([]driver.SandboxInfo, error) {
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	var infos []driver.SandboxInfo
	live := map[string]bool{}
	for _, r := range all {
		live[r.note.Task] = true
		infos = append(infos, k.info(ctx, r))
	}
	stored, err := k.stored()
	if err != nil {
		return nil, err
	}
	for id, of := range stored {
		if live[of.Task] {
			continue
		}
		now, _, _, err := k.store.find(of.Key)
		if err != nil {
			return nil, failure(driver.KindConfig, "%w", err)
		}
		if now == id {
			infos = append(infos, storedInfo(id, of))
		}
	}
	slices.SortStableFunc(infos, func(a, b driver.SandboxInfo) int { return a.Created.Compare(b.Created) })
	return infos, nil
}

// stored are the files of this identity and profile that are remembered, by the image's id.
func (k *keeper) stored() (map[string]snapshot, error) {
	n, err := k.store.ReadNotes()
	if err != nil {
		return nil, failure(driver.KindConfig, "%w", err)
	}
	own := map[string]snapshot{}
	for id, of := range n.Snapshots {
		if of.Identity == k.req.Identity.ID && of.Profile == k.req.Identity.Profile {
			own[id] = of
		}
	}
	return own, nil
}

func (k *keeper) info(ctx context.Context, r running) driver.SandboxInfo {
	return driver.SandboxInfo{
		Task: r.note.Task, ID: r.sb.SandboxID, Name: r.name, State: driver.StateRunning, Image: r.note.Image, Created: tagTime(r.tags[tagMade]),
		Persistent: r.tags[tagPersist] == "true", FilesInside: r.tags[tagPersist] == "true", InUse: kept.Used(ctx, k.req.Identity.Home, lockName(r.name), false), Exposure: &driver.Exposure{},
	}
}

// storedInfo is a listing's row of files that are stored and are nowhere in a sandbox.
func storedInfo(id string, of snapshot) driver.SandboxInfo {
	return driver.SandboxInfo{
		Task: of.Task, ID: id, Name: of.Name, State: driver.StateStopped, Image: of.Image, Created: of.At, Persistent: true, FilesInside: true, Exposure: &driver.Exposure{},
	}
}

// find gives the own sandbox of this id that runs, or the stored files; ok is false where there is neither.
func (k *keeper) find(ctx context.Context, id string) (r *running, of snapshot, ok bool, err error) {
	stored, err := k.stored()
	if err != nil {
		return nil, snapshot{}, false, err
	}
	if of, ok = stored[id]; ok {
		return nil, of, true, nil
	}
	all, err := k.all(ctx)
	if err != nil {
		return nil, snapshot{}, false, err
	}
	for i := range all {
		if all[i].sb.SandboxID == id {
			return &all[i], snapshot{}, true, nil
		}
	}
	return nil, snapshot{}, false, nil
}

// Inspect tells of a sandbox what the service has noted with it.
func (k *keeper) Inspect(ctx context.Context, id string) (driver.SandboxDetail, error) {
	r, of, ok, err := k.find(ctx, id)
	if err == nil && !ok {
		err = failure(driver.KindLost, "there is no sandbox %s, and no stored files of this name", id)
	}
	if err != nil {
		return driver.SandboxDetail{}, err
	}
	d := driver.SandboxDetail{Host: k.account.host(), User: "root", Processes: -1}
	if r == nil {
		d.SandboxInfo = storedInfo(id, of)
		d.ImageID, d.Processes = id, 0
		return d, nil
	}
	d.SandboxInfo = k.info(ctx, *r)
	d.Started = d.Created
	had := kept.Parse(r.note.Settings)
	for _, key := range []string{"container_cpu", "container_memory", "modal_gpu", "network"} {
		if value := had[key]; value != "" {
			d.Features = append(d.Features, driver.Feature{Name: key, State: driver.Active, Detail: value})
		}
	}
	if ends := tagTime(r.tags[tagEnds]); !ends.IsZero() {
		d.Features = append(d.Features, driver.Feature{Name: "lifetime", State: driver.Active, Detail: "until " + ends.Local().Format("2006-01-02 15:04:05")})
	}
	return d, nil
}

// Stop stores the files of a persistent sandbox and ends it.
func (k *keeper) Stop(ctx context.Context, id string) error {
	r, _, ok, err := k.find(ctx, id)
	if err != nil || !ok || r == nil {
		return err
	}
	return kept.With(ctx, k.req.Identity.Home, lockName(r.name), false, changeWait, func(*kept.Lock) error {
		if r.tags[tagPersist] == "true" {
			if err := k.as(*r).keepFiles(ctx); err != nil {
				return err
			}
		}
		return k.account.end(ctx, r.sb)
	})
}

// as is a sandbox value for what this keeper does to one that runs.
func (k *keeper) as(r running) *sandbox {
	req := k.req
	req.Task = r.note.Task
	return &sandbox{
		account: k.account, store: k.store, req: req, log: k.log, sb: r.sb, snapping: make(chan struct{}, 1),
		plan: &plan{name: r.name, key: storeKey(req), image: first(r.note.Image, k.req.Config.String("modal_image")), ttl: ceil(k.req.Config.Duration("modal_snapshot_ttl"))},
	}
}

// Remove ends a sandbox, whose files are stored if they are to persist; with data they go, and what was stored before.
func (k *keeper) Remove(ctx context.Context, id string, data bool) (removed []string, err error) {
	r, of, ok, err := k.find(ctx, id)
	if err != nil || !ok {
		return nil, err
	}
	task, name := of.Task, of.Name
	if r != nil {
		task, name = r.note.Task, r.name
	}
	err = kept.With(ctx, k.req.Identity.Home, lockName(name), false, changeWait, func(lock *kept.Lock) error {
		if r != nil {
			if !data && r.tags[tagPersist] == "true" {
				if err := k.as(*r).keepFiles(ctx); err != nil {
					return err
				}
			}
			if err := k.account.end(ctx, r.sb); err != nil {
				return err
			}
			removed = append(removed, "the sandbox "+r.sb.SandboxID)
		}
		if err := lock.Forget(); err != nil {
			return err
		}
		if !data {
			return nil
		}
		stored, err := k.stored()
		if err != nil {
			return err
		}
		for image, of := range stored {
			if of.Task != task {
				continue
			}
			dctx, cancel := context.WithTimeout(ctx, askWait)
			err := k.account.client.Images.Delete(dctx, image, nil)
			if err != nil && !notFound(err) {
				err = k.account.explain(dctx, "removing the stored files "+image, err)
				cancel()
				return err
			}
			cancel()
			if err := k.store.drop(ctx, image); err != nil {
				return failure(driver.KindUnavailable, "%w", err)
			}
			removed = append(removed, "the stored files "+image)
		}
		return nil
	})
	return removed, err
}

// Reap ends sandboxes that were made not to persist, whose owner is dead and which nobody uses.
func (k *keeper) Reap(ctx context.Context) (removed []string, err error) {
	all, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	home := k.req.Identity.Home
	dead, err := owner.Dead(home)
	errs := []error{err}
	for _, r := range all {
		id := r.tags[tagOwner]
		if r.tags[tagPersist] != "false" || r.tags[tagMachine] != owner.Tag(home) || id == k.req.Identity.Owner || !slices.Contains(dead, id) && owner.Known(home, id) {
			continue
		}
		err := kept.IfUnused(ctx, home, lockName(r.name), false, kept.LookWait, func() error {
			removed = append(removed, r.note.Task)
			return k.account.end(ctx, r.sb)
		})
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// reapBehind reaps behind the calls, unless a process of this home did so within the hour.
func (s *sandbox) reapBehind() {
	if alone(s.req) {
		return
	}
	s.behind(func() {
		cloudbox.Reap(s.ctx, s.req.Identity.Home, "modal", &keeper{account: s.account, store: s.store, req: s.req, log: s.log}, s.log)
	})
}

var _ driver.Keeper = (*keeper)(nil)
