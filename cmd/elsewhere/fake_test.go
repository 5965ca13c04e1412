package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// These tests have two backends that keep sandboxes, "shed" and "barn". Their engine is the directory of $ENGINE: a file for
// each sandbox, so that one process sees what another made, and commands run by the backend local. Files there make an engine
// misbehave: BACKEND.down (it cannot be reached), BACKEND.hang (it never answers, whatever its context says), BACKEND.mute (it can be reached and lists nothing), BACKEND.holds (it keeps
// the files of its sandboxes with them), BACKEND.stuck
// (nothing can be removed), BACKEND.full (nothing can be made), BACKEND.pull (opening says the lines of that file as its progress, also those that are added, and waits until it is gone;
// BACKEND.told is there once it has said some), BACKEND.slow (closing a sandbox waits until that file is gone, whatever its context says;
// BACKEND.closing is there once it waits, BACKEND.closed when it is over).

// testBackends are those that the program has in tests.
func testBackends() []driver.Backend {
	dir := os.Getenv("ENGINE")
	if dir == "" {
		return all.Backends()
	}
	return []driver.Backend{local.Backend(), engine{dir, "shed"}.backend(), engine{dir, "barn"}.backend()}
}

type engine struct{ dir, name string }

// record is a sandbox of an engine.
type record struct {
	RawTask []byte // the task may be no UTF-8
	Home    string // of the identity
	Detail  driver.SandboxDetail
}

func (e engine) backend() driver.Backend {
	inner := local.Backend()
	return driver.Backend{
		Name: e.name, Summary: "in the " + e.name, Type: inner.Type,
		Available: func(context.Context, driver.OpenRequest) error { return e.ask() },
		Keeper: func(_ context.Context, req driver.OpenRequest) (driver.Keeper, error) {
			return keeper{e, req.Identity.Home}, e.ask()
		},
		Open: func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
			if err := e.ask(); err != nil {
				return nil, err
			}
			if e.has("full") {
				return nil, errors.New("the " + e.name + " is full")
			}
			if err := e.pull(ctx, req.Progress); err != nil {
				return nil, err
			}
			sb, err := inner.Open(ctx, req)
			if err != nil || req.ThrowAway {
				return sb, err
			}
			r := e.newRecord(req.Task)
			if had, err := e.read(e.file(req.Task)); err == nil {
				r = had
			}
			r.Home, r.Detail.State = req.Identity.Home, driver.StateRunning
			return box{sb, e, r.Detail.ID}, e.write(r)
		},
	}
}

// box is a sandbox of local's under another id.
type box struct {
	driver.Sandbox
	engine
	id string
}

func (b box) Close(ctx context.Context) error {
	if !b.has("slow") {
		return b.Sandbox.Close(ctx)
	}
	if err := b.note("closing"); err != nil {
		return err
	}
	for b.has("slow") {
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Join(b.Sandbox.Close(ctx), b.note("closed"))
}

func (b box) Info() driver.Info {
	info := b.Sandbox.Info()
	info.SandboxID = b.id
	return info
}

func (e engine) has(what string) bool {
	_, err := os.Stat(filepath.Join(e.dir, e.name+"."+what))
	return err == nil
}

func (e engine) note(what string) error {
	return os.WriteFile(filepath.Join(e.dir, e.name+"."+what), nil, 0o600)
}

func (e engine) ask() error {
	if e.has("hang") {
		select {}
	}
	if e.has("down") {
		return errors.New("cannot connect to the engine of the " + e.name + "\nis it running?")
	}
	return nil
}

func (e engine) pull(ctx context.Context, progress func(string)) error {
	for told := 0; ; {
		text, err := os.ReadFile(filepath.Join(e.dir, e.name+".pull"))
		if err != nil {
			return nil
		}
		for line := range strings.Lines(string(text[told:])) {
			progress(line)
		}
		told = len(text)
		if err := e.note("told"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (e engine) newRecord(task string) record {
	name := "elsewhere-" + safename.Of(task)
	return record{RawTask: []byte(task), Detail: driver.SandboxDetail{
		SandboxInfo: driver.SandboxInfo{
			ID: e.name + "-" + safename.Of(task), Name: name, State: driver.StateRunning, Image: e.name + "/base:1",
			Created: time.Now().Add(-time.Hour), Persistent: true, Data: []string{filepath.Join(e.dir, "data", name)},
		},
		Host: "in-the-" + e.name, User: "ada", Started: time.Now().Add(-30 * time.Minute), ImageID: "sha256:0123", Processes: 3,
		Features: []driver.Feature{
			{Name: "isolation", State: driver.Active, Detail: "walls"},
			{Name: "memory limit", State: driver.Degraded, Detail: "only\nsoft"},
			{Name: "disk limit", State: driver.Unsupported, Detail: "no quota"},
		},
		Mounts: []string{"/here on /there (ro, bind)"},
	}}
}

func (e engine) file(task string) string {
	return filepath.Join(e.dir, e.name, safename.Of(task)+".json")
}

func (e engine) read(file string) (r record, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	r.Detail.Task = string(r.RawTask)
	if r.Detail.State != driver.StateRunning {
		r.Detail.Started = time.Time{}
	}
	return r, err
}

func (e engine) write(r record) error {
	for _, dir := range append([]string{filepath.Join(e.dir, e.name)}, r.Detail.Data...) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(e.file(string(r.RawTask)), text, 0o600)
}

type keeper struct {
	engine
	home string
}

func (k keeper) records() ([]record, error) {
	entries, err := os.ReadDir(filepath.Join(k.dir, k.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []record
	for _, entry := range entries {
		r, err := k.read(filepath.Join(k.dir, k.name, entry.Name()))
		if err != nil {
			return nil, err
		}
		if r.Home == "" || r.Home == k.home {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b record) int { return cmp.Compare(a.Detail.Created.Unix(), b.Detail.Created.Unix()) })
	return all, err
}

func (k keeper) List(context.Context) ([]driver.SandboxInfo, error) {
	if k.has("mute") {
		return nil, errors.New("the engine of the " + k.name + " has lost its list")
	}
	all, err := k.records()
	var infos []driver.SandboxInfo
	for _, r := range all {
		r.Detail.FilesInside = r.Detail.FilesInside || k.has("holds")
		infos = append(infos, r.Detail.SandboxInfo)
	}
	return infos, err
}

func (k keeper) find(id string) (record, error) {
	all, err := k.records()
	for _, r := range all {
		if r.Detail.ID == id {
			return r, nil
		}
	}
	return record{}, cmp.Or(err, errors.New("no such sandbox"))
}

func (k keeper) Inspect(_ context.Context, id string) (driver.SandboxDetail, error) {
	r, err := k.find(id)
	if r.Detail.State == driver.StateRunning {
		r.Detail.Exposure = &driver.Exposure{HostNetwork: k.name == "barn"} // which has no doors
	}
	return r.Detail, err
}

func (k keeper) Stop(_ context.Context, id string) error {
	r, err := k.find(id)
	if err != nil {
		return err
	}
	r.Detail.State = driver.StateStopped
	return k.write(r)
}

func (k keeper) Remove(_ context.Context, id string, data bool) ([]string, error) {
	r, err := k.find(id)
	if err != nil {
		return nil, err
	}
	if k.has("stuck") {
		return nil, errors.New("the engine does not let go of it")
	}
	removed := []string{"sandbox " + r.Detail.Name}
	if data {
		for _, dir := range r.Detail.Data {
			if err := os.RemoveAll(dir); err != nil {
				return removed, err
			}
			removed = append(removed, dir)
		}
	}
	return removed, os.Remove(k.file(string(r.RawTask)))
}

func (k keeper) Reap(ctx context.Context) ([]string, error) {
	all, err := k.records()
	var tasks []string
	for _, r := range all {
		if !r.Detail.Persistent && !r.Detail.InUse && !k.has("stuck") {
			if _, rerr := k.Remove(ctx, r.Detail.ID, false); rerr != nil {
				err = errors.Join(err, rerr)
			} else {
				tasks = append(tasks, string(r.RawTask))
			}
		}
	}
	return tasks, err
}

func (k keeper) Close() error { return nil }
