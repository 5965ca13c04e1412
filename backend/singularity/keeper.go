//go:build linux

package singularity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

// keeper looks after the instances of an identity and profile, by their records.
type keeper struct {
	prog     *program
	id       driver.Identity
	lifetime time.Duration
}

func newKeeper(_ context.Context, req driver.OpenRequest) (driver.Keeper, error) {
	prog, err := findProgram(req.Environ)
	if err != nil {
		return nil, err
	}
	return &keeper{prog: prog, id: req.Identity, lifetime: req.Config.Duration("lifetime_seconds")}, nil
}

// Close has nothing to give up: the engine is a program.
func (k *keeper) Close() error { return nil }

// records gives what is kept, oldest first. A record that cannot be read is left out.
func (k *keeper) records() []*record {
	if k.id.Home == "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(recordDir(k.id.Home), "*.json"))
	var found []*record
	for _, file := range files {
		rec, err := readRecord(file)
		if err == nil && rec != nil && rec.Name+".json" == filepath.Base(file) && rec.Identity == k.id.ID && rec.Profile == k.id.Profile {
			found = append(found, rec)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return a.Created.Compare(b.Created) })
	return found
}

func (k *keeper) List(ctx context.Context) ([]driver.SandboxInfo, error) {
	records := k.records()
	if len(records) == 0 {
		return nil, nil
	}
	running, err := k.prog.list(ctx, "")
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
	}
	infos := make([]driver.SandboxInfo, 0, len(records))
	for _, rec := range records {
		if _, err := os.Stat(rec.Dir); rec.Removed && errors.Is(err, os.ErrNotExist) {
			continue // nothing is left of it
		}
		infos = append(infos, k.info(ctx, rec, running))
	}
	return infos, nil
}

func (k *keeper) info(ctx context.Context, rec *record, running map[string]listed) driver.SandboxInfo {
	info := driver.SandboxInfo{
		Task: rec.Task, ID: rec.Name, Name: rec.Name, State: driver.StateStopped, Image: rec.Image, Created: rec.Created,
		Persistent: rec.Persistent, Data: []string{rec.Dir},
	}
	if rec.Removed {
		info.State = driver.StateData
		return info
	}
	if found, ok := running[rec.Name]; ok && beginOf(found.PID) != "" {
		info.State, info.Exposure = driver.StateRunning, exposureNow(rec, found.PID)
	}
	info.InUse = true // one that is being made or removed now is
	_ = k.guarded(ctx, rec, kept.LookWait, func(_ *kept.Lock, _ *record, inUse bool) error {
		info.InUse = inUse
		return nil
	})
	return info
}

// find gives the record of an id. One that is not there is an error of KindLost.
func (k *keeper) find(id string) (*record, error) {
	for _, rec := range k.records() {
		if rec.Name == id {
			return rec, nil
		}
	}
	return nil, failure(driver.KindLost, "there is no instance %s of this identity and profile", id)
}

func (k *keeper) Inspect(ctx context.Context, id string) (driver.SandboxDetail, error) {
	rec, err := k.find(id)
	if err != nil {
		return driver.SandboxDetail{}, err
	}
	if rec.Removed {
		return driver.SandboxDetail{SandboxInfo: k.info(ctx, rec, nil), Host: rec.Machine, Features: []driver.Feature{}}, nil
	}
	running, err := k.prog.list(ctx, rec.Name)
	if err != nil {
		return driver.SandboxDetail{}, failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
	}
	d := driver.SandboxDetail{
		SandboxInfo: k.info(ctx, rec, running), Host: rec.Machine, User: rec.User, ImageID: rec.Source, Features: rec.Features,
		Mounts: []string{mount{source: filepath.Join(rec.Dir, "overlay"), target: "/", kind: "overlay"}.String()},
	}
	if d.State != driver.StateRunning {
		return d, nil
	}
	d.Started, d.Processes = rec.Started, -1
	pid := running[rec.Name].PID
	if space := pidSpace(pid); space != "" {
		d.Processes = len(pidsIn(space)) - 1 // without the engine's own
	}
	d.Mounts = append(d.Mounts, mountsOf(pid)...)
	return d, nil
}

// mountsOf tells what of this machine's directories a process has mounted, as the kernel has it.
func mountsOf(pid int) []string {
	var mounts []string
	for _, m := range boundIn(pid) {
		mounts = append(mounts, m.String())
	}
	return mounts
}

// boundIn gives what of this machine's directories a process has mounted; their sources start where their file system does.
func boundIn(pid int) []mount {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return nil
	}
	var mounts []mount
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		i := slices.Index(f, "-")
		// A bind mount shows a part of a file system; the engine's own files are no directories of the user's.
		if i < 6 || len(f) < i+3 || f[3] == "/" || strings.HasPrefix(f[4], "/dev") || strings.HasPrefix(f[4], "/etc/") || strings.HasPrefix(f[4], "/sys") {
			continue
		}
		mounts = append(mounts, mount{source: f[3], target: f[4], readOnly: slices.Contains(strings.Split(f[5], ","), "ro"), kind: "bind, " + f[i+1]})
	}
	return mounts
}

// guarded does something to an instance with the right to make, which it waits for no longer than so. Another process may have made the
// instance anew until then: do gets the record as it is now. One that is gone needs nothing done.
func (k *keeper) guarded(ctx context.Context, listed *record, wait time.Duration, do func(lock *kept.Lock, rec *record, inUse bool) error) error {
	return kept.With(ctx, k.id.Home, lockName(listed.Name), false, wait, func(lock *kept.Lock) error {
		rec, err := readRecord(k.file(listed))
		if err != nil || rec == nil {
			return err
		}
		inUse, err := lock.InUse()
		if err != nil {
			return err
		}
		return do(lock, rec, inUse)
	})
}

func (k *keeper) file(rec *record) string { return recordFile(k.id.Home, rec.Name, rec.Dir) }

// Stop ends the instance and its processes. Its files stay, temporary ones until it is started again.
func (k *keeper) Stop(ctx context.Context, id string) error {
	rec, err := k.find(id)
	if err != nil {
		return err
	}
	return k.stop(ctx, rec)
}

// stop stops an instance that was listed.
func (k *keeper) stop(ctx context.Context, listed *record) error {
	return k.guarded(ctx, listed, kept.ChangeWait, func(_ *kept.Lock, rec *record, _ bool) error {
		if err := k.here(rec); err != nil {
			return err
		}
		if err := stop(ctx, k.prog, rec); err != nil {
			return err
		}
		rec.PID, rec.Begin, rec.Started, rec.Stopped = 0, "", time.Now(), true
		return rec.write(k.file(rec))
	})
}

// here refuses an instance that another machine started and may run.
func (k *keeper) here(rec *record) error {
	host, _ := os.Hostname()
	if rec.PID > 0 && rec.Machine != host && rec.Boot != bootID() {
		return failure(driver.KindUnavailable, "the instance %s was started on the machine %s: stop it there", rec.Name, rec.Machine)
	}
	return nil
}

func (k *keeper) Remove(ctx context.Context, id string, data bool) ([]string, error) {
	rec, err := k.find(id)
	if err != nil {
		if classify(err) == driver.KindLost {
			return nil, nil
		}
		return nil, err
	}
	data = data || !rec.Persistent
	dir := rec.Dir
	if st, err := os.Lstat(dir); err == nil && st.Mode()&os.ModeSymlink != 0 {
		to, _ := filepath.EvalSymlinks(dir) // one that leads nowhere goes too
		dir = "the link " + dir + "; what it led to stays: " + to
	}
	err = k.guarded(ctx, rec, kept.ChangeWait, func(lock *kept.Lock, rec *record, _ bool) error {
		if err := destroy(ctx, k.prog, rec, k.file(rec), data); err != nil {
			return err
		}
		defer lock.Discard()
		if data {
			return nil
		}
		// By it the files are found again.
		rec.PID, rec.Begin, rec.Removed = 0, "", true
		return rec.write(k.file(rec))
	})
	if err != nil {
		return nil, err
	}
	var removed []string
	if !rec.Removed || !data {
		removed = append(removed, "instance "+rec.Name)
	}
	if data {
		removed = append(removed, dir)
	}
	return removed, nil
}

func (k *keeper) Reap(ctx context.Context) ([]string, error) {
	var removed []string
	var errs []error
	for _, rec := range k.records() {
		if rec.Persistent || k.here(rec) != nil {
			continue
		}
		err := k.guarded(ctx, rec, kept.LookWait, func(lock *kept.Lock, rec *record, inUse bool) error {
			if rec.Persistent || k.here(rec) != nil || inUse || !deadOwners(k.id.Home)(rec.Owner) && time.Since(rec.Started) < 2*k.lifetime {
				return nil
			}
			if err := destroy(ctx, k.prog, rec, k.file(rec), true); err != nil {
				return err
			}
			removed = append(removed, rec.Task)
			lock.Discard()
			return nil
		})
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}
