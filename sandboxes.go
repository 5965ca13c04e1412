package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// Sandboxes looks after the sandboxes of one backend that outlive a process: those of this HERMES_HOME's identity and profile,
// and no others. It must be closed. It is safe for concurrent use.
type Sandboxes struct {
	backend string
	home    string
	checks  bool // policy.enabled
	back    driver.Backend
	keeper  driver.Keeper
}

// OpenSandboxes connects to the engine of a backend, or of the named entry of terminal.backends; "" is terminal.backend. It makes
// nothing. Of opts only Environ, Logger and Progress are used; nil is fine. A backend that keeps no sandboxes (local, ssh) is
// ErrUnsupported. Errors are *Error.
func OpenSandboxes(ctx context.Context, cfg *config.Config, backend string, opts *SandboxOptions) (*Sandboxes, error) {
	if opts == nil {
		opts = &SandboxOptions{}
	}
	view, back, err := cfg.Named(backend)
	if err != nil {
		return nil, configError(err, "open", backend)
	}
	if back.Keeper == nil {
		return nil, wrap(fmt.Errorf("the backend %s keeps no sandboxes", back.Name), driver.KindUnsupported, "open", view.Name(), "",
			"name one that does with -b, for example docker")
	}
	sb := newSandbox(view, back, opts)
	identity, err := owner.Identity(sb.home)
	if err != nil {
		return nil, wrap(err, driver.KindConfig, "open", view.Name(), "", "without its identity no sandbox can be told to be yours")
	}
	keeper, err := back.Keeper(ctx, sb.openRequest(identity, opts))
	if err != nil {
		return nil, wrap(err, kindOf(back, err), "open", view.Name(), "", "") // no task is meant
	}
	return &Sandboxes{backend: view.Name(), home: sb.home, checks: view.Bool("policy.enabled"), back: back, keeper: keeper}, nil
}

// openRequest is what the driver is told.
func (sb *Sandbox) openRequest(identity string, opts *SandboxOptions) driver.OpenRequest {
	machine, _ := os.Hostname()
	profile := "default"
	if sb.backend != sb.back.Name {
		profile += "/" + sb.backend
	}
	environ := opts.Environ
	if environ == nil {
		environ = os.Environ()
	}
	return driver.OpenRequest{
		Config: sb.cfg, Task: sb.task, Environ: environ, Dir: sb.dir, ThrowAway: opts.ThrowAway,
		Logger: sb.log, Progress: sb.telling(opts.Progress),
		Identity: driver.Identity{
			ID: identity, Profile: profile, Machine: machine, UID: strconv.Itoa(os.Getuid()), Home: sb.home, Owner: sb.owner,
		},
	}
}

// telling passes the texts about slow steps on.
func (sb *Sandbox) telling(to func(string)) func(string) {
	if to == nil {
		return nil
	}
	return func(text string) {
		sb.told.Store(text != "")
		to(text)
	}
}

// stepsOver says that nothing slow goes on any more, if anything was said.
func (sb *Sandbox) stepsOver() {
	if sb.told.Load() {
		sb.request.Progress("")
	}
}

// Backend is the backend's name as it was chosen.
func (all *Sandboxes) Backend() string { return all.backend }

// List lists the sandboxes in whatever state, oldest first. Errors are *Error.
func (all *Sandboxes) List(ctx context.Context) ([]driver.SandboxInfo, error) {
	infos, err := all.keeper.List(ctx)
	return infos, all.wrap(err, "list sandboxes", "")
}

// Find gives the sandbox of a task. One that is not there is ErrConfig.
func (all *Sandboxes) Find(ctx context.Context, task string) (driver.SandboxInfo, error) {
	infos, err := all.List(ctx)
	if err != nil {
		return driver.SandboxInfo{}, err
	}
	for _, info := range infos {
		if info.Task == task {
			return info, nil
		}
	}
	return driver.SandboxInfo{}, wrap(fmt.Errorf("there is no sandbox of the task %q", task), driver.KindConfig, "sandbox", all.backend, task,
		"`elsewhere sandbox ls` lists them")
}

// Inspect tells all about the sandbox of a task, as the engine has it.
func (all *Sandboxes) Inspect(ctx context.Context, task string) (driver.SandboxDetail, error) {
	info, err := all.Find(ctx, task)
	if err != nil {
		return driver.SandboxDetail{}, err
	}
	detail, err := all.keeper.Inspect(ctx, info.ID)
	return detail, all.wrap(err, "inspect", task)
}

// Guarded tells whether commands and paths are looked at before they are used in a sandbox that List or Inspect told of, and why, in a few
// words; known is false where what is in the sandbox is not known. It is what Sandbox.Guarded would say under the same settings.
func (all *Sandboxes) Guarded(info driver.SandboxInfo) (guarded bool, why string, known bool) {
	switch {
	case !all.checks:
		return false, switchedOff, true
	case info.Exposure == nil:
		return false, "", false
	}
	guarded, why = policy.Guarded(exposed(all.back.Name, *info.Exposure))
	return guarded, why, true
}

// Stop ends all that runs in the sandbox of a task; its files stay. The next call on the task starts it again.
func (all *Sandboxes) Stop(ctx context.Context, task string) error {
	info, err := all.Find(ctx, task)
	if err != nil {
		return err
	}
	return all.wrap(all.keeper.Stop(ctx, info.ID), "stop", task)
}

// Remove removes the sandbox of a task and the named sessions in it; with data also its directories on this machine, which it
// finds too when the sandbox itself is gone (driver.StateData). It returns
// what was thrown away, for people, also beside an error. The next call on the task makes a new one.
func (all *Sandboxes) Remove(ctx context.Context, task string, data bool) ([]string, error) {
	info, err := all.Find(ctx, task)
	if err != nil {
		return nil, err
	}
	removed, err := all.keeper.Remove(ctx, info.ID, data)
	if err != nil {
		return removed, all.wrap(err, "remove", task)
	}
	sessions, err := all.forgetSessions(task)
	return append(removed, sessions...), err
}

// forgetSessions removes the named sessions of a task whose sandbox is gone.
func (all *Sandboxes) forgetSessions(task string) (removed []string, err error) {
	sessions, err := Sessions(all.home)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range sessions {
		if s.Backend != all.backend || s.Task != task {
			continue
		}
		if err := ForgetSession(all.home, s.Backend, s.Task, s.Name); err != nil {
			errs = append(errs, err)
		} else {
			removed = append(removed, "session "+s.Name)
		}
	}
	return removed, errors.Join(errs...)
}

// Prune removes, data aside, every sandbox that no living process uses and that is stopped, and those that the reaper
// removes. One that persists and is kept with its files by its engine stays, since they would go with it. It returns the tasks of those that
// went. One that cannot be removed does not stop the rest.
func (all *Sandboxes) Prune(ctx context.Context) (removed []string, err error) {
	removed, err = all.keeper.Reap(ctx)
	errs := []error{all.wrap(err, "reap", "")}
	infos, err := all.List(ctx)
	errs = append(errs, err)
	for _, info := range infos {
		if info.InUse || info.FilesInside || info.State == driver.StateRunning || info.State == driver.StatePaused || info.State == driver.StateData {
			continue
		}
		if _, err := all.Remove(ctx, info.Task, false); err != nil {
			errs = append(errs, err)
		} else {
			removed = append(removed, info.Task)
		}
	}
	return removed, errors.Join(errs...)
}

// Close gives up the connection to the engine. The sandboxes stay.
func (all *Sandboxes) Close() error { return all.wrap(all.keeper.Close(), "close", "") }

func (all *Sandboxes) wrap(err error, op, task string) error {
	if err == nil {
		return nil
	}
	return wrap(err, kindOf(all.back, err), op, all.backend, task, "")
}
