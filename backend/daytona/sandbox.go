package daytona

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/hostpath"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// sandbox is one sandbox of the service as one process uses it.
type sandbox struct {
	api     *api
	req     driver.OpenRequest
	plan    *plan
	log     *slog.Logger
	owner   string     // this process's
	lock    *kept.Lock // nil for a sandbox that nobody else can find
	box     *box
	toolbox string
	pool    *ptychannel.Pool // of terminals
	info    driver.Info
	around  *cloudbox.Surroundings
	files   *cloudbox.Files // nil where none are synchronised

	made       bool   // by this opening
	woke       string // the id of what this opening has started, "" for nothing
	unanswered int    // requests to make it
	old        atomic.Bool

	bashes *cloudbox.Bashes[cloudbox.Bash]
	inside *cloudbox.Inside
}

const (
	// endWait bounds what it takes to stop or delete the sandbox.
	endWait = 40 * time.Second
	askWait = 10 * time.Second
)

func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	s := &sandbox{api: a, req: req, log: req.Logger, owner: req.Identity.Owner, bashes: cloudbox.NewBashes[cloudbox.Bash]()}
	if s.owner == "" {
		s.owner = owner.NewID()
	}
	if s.plan, err = makePlan(req, a.hosted); err != nil {
		return nil, err
	}
	s.inside = &cloudbox.Inside{Run: s.execute, Explain: a.explain, Name: s.plan.name, Log: s.log}
	if err := s.open(ctx); err != nil {
		s.bashes.End(false)
		_ = s.lock.Close()
		return nil, err
	}
	return s, nil
}

func (s *sandbox) open(ctx context.Context) error {
	if !s.alone() {
		lock, err := kept.Open(s.req.Identity.Home, s.plan.name, false)
		if err != nil {
			return failure(driver.KindUnavailable, "%w", err)
		}
		s.lock = lock
		done, err := lock.Make(ctx)
		if err != nil {
			return failure(driver.KindUnavailable, "%w", err)
		}
		defer done()
	}
	err := s.ensure(ctx)
	entering := err == nil
	if entering {
		err = s.enter(ctx)
	}
	if err == nil && s.lock != nil {
		err = s.lock.Use()
	}
	if err == nil {
		s.remember()
		return nil
	}
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	switch {
	case s.made && entering:
		_ = s.api.remove(ectx, s.box.ID)
	case !s.made && s.woke != "":
		s.lieDown(ectx)
	}
	return err
}

// remember notes which sandbox the task has now, and says so where that is another one than the home remembers.
func (s *sandbox) remember() {
	if !s.plan.persist {
		return
	}
	other, err := s.lock.Remember(s.box.ID)
	if err != nil {
		s.log.Debug("it is not remembered which sandbox the task has", "sandbox", s.plan.name, "error", err)
	}
	if other != "" {
		s.info.Recreated = "the sandbox " + s.plan.name + " that this task had was deleted, and not by elsewhere: its files, what ran in it and its sessions' variables are gone"
	}
}

// enter looks around in a sandbox that runs.
func (s *sandbox) enter(ctx context.Context) (err error) {
	if s.toolbox, err = s.api.toolbox(ctx, s.box); err != nil {
		return s.api.explain("asking for the toolbox of the sandbox "+s.plan.name, err)
	}
	if s.around, err = s.lookAround(ctx); err != nil {
		return err
	}
	s.pool = ptychannel.NewPool(s.dialBash)
	s.info = s.makeInfo()
	notice := ""
	s.files, notice = cloudbox.FilesOf(s.req, s.around, s.plan.name, s.bash)
	s.info.Notices = append(s.info.Notices, s.plan.notices...)
	if notice != "" {
		s.info.Notices = append(s.info.Notices, notice)
	}
	if !s.made {
		s.removeDeadTerminals(ctx)
		s.removeLeftovers()
	}
	s.reapBehind()
	return nil
}

func (s *sandbox) makeInfo() driver.Info {
	a := s.around
	info := driver.Info{
		Host: strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(s.api.base, "/api"), "https://"), "http://"), SandboxID: s.box.ID, User: a.User, Home: a.Home, Dir: a.Dir,
		StateDir: a.State, PrivateDir: a.Private, KeepsChildren: true, Watchdog: true, Lease: true,
	}
	info.CallEnv, info.Notices = scrub.Forward(s.req.Environ, s.req.Config.Strings("env_passthrough"))
	info.Notices = append(info.Notices, a.Notices...)
	info.Features = append([]driver.Feature{
		{Name: "isolation", State: driver.Active, Detail: "the sandbox " + s.plan.name + " of Daytona"},
	}, s.plan.features...)
	return info
}

// alone says that no other process can find this sandbox.
func (s *sandbox) alone() bool { return s.req.ThrowAway || s.req.Identity.Home == "" }

func (s *sandbox) say(notice string) {
	if !slices.Contains(s.plan.notices, notice) {
		s.plan.notices = append(s.plan.notices, notice)
	}
}

func (s *sandbox) progress(text string) {
	if s.req.Progress != nil {
		s.req.Progress(text)
	}
}

func (s *sandbox) Info() driver.Info { return s.info }

var errClosed = failure(driver.KindLost, "the sandbox is closed")

// Bash starts a bash over two terminals.
func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.bashes.Closed() {
		return nil, errClosed
	}
	return s.bash(ctx, spec)
}

func (s *sandbox) bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	mark := bashscript.CallVariable + "=" + spec.ID
	env := slices.Clone(spec.Env)
	if !slices.Contains(env, mark) {
		env = append(env, mark) // by it Kill finds the bash
	}
	p, err := s.pool.Start(ctx, ptychannel.Spec{
		Args: spec.Args, Env: env, Home: s.around.Home, Temp: s.around.Temp, Lease: s.req.Config.Duration("orphan_grace"),
		Name: "the sandbox " + s.plan.name, Kill: func(ctx context.Context) error { return s.inside.Kill(ctx, mark) },
	})
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	if !s.bashes.Own(p) {
		return nil, errClosed
	}
	return p, nil
}

// startFailed asks the service why no bash could be started.
func (s *sandbox) startFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if alive := s.Alive(actx); alive != nil {
		return alive
	}
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return failure(driver.KindUnavailable, "cannot start a bash in the sandbox %s: %w", s.plan.name, err)
	}
	return s.api.explain("cannot start a bash in the sandbox "+s.plan.name, err)
}

// execute runs a script of ours beside the calls.
func (s *sandbox) execute(ctx context.Context, wait time.Duration, script string, args ...string) (string, int, error) {
	return s.api.execute(ctx, s.toolbox, cloudbox.Line(script, args...), wait)
}

// Alive asks the service whether the sandbox runs.
func (s *sandbox) Alive(ctx context.Context) error {
	if s.bashes.Closed() {
		return errClosed
	}
	b, err := s.api.get(ctx, s.box.ID)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		_ = s.lock.Close()
		return failure(driver.KindLost, "the sandbox %s is gone", s.plan.name)
	case err != nil:
		return s.api.explain("asking for the sandbox "+s.plan.name, err)
	case b.State == "started":
		return nil
	case b.State == "starting" || b.State == "resizing" || b.State == "snapshotting":
		return failure(driver.KindUnavailable, "the sandbox %s is %s; try again", s.plan.name, b.State)
	}
	_ = s.lock.Close()
	return failure(driver.KindLost, "the sandbox %s has been stopped (%s)", s.plan.name, b.State)
}

// Prepare brings the files of HERMES_HOME up to date. Whether the sandbox runs is asked when no channel to it is open that
// proves it.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.bashes.Closed() || s.files == nil {
		return nil, nil
	}
	return s.files.Push(ctx), nil
}

// Close brings back what may come back, removes what was this process's alone, and stops a sandbox that persists, unless
// another process uses it or something that was left in it still runs; another one is deleted.
func (s *sandbox) Close(ctx context.Context) error {
	if !s.bashes.Close() {
		return nil
	}
	alive := s.stillRuns(ctx)
	if s.files != nil && alive {
		s.files.Pull(context.WithoutCancel(ctx))
	}
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	s.pool.Close()
	stays, err := s.end(ectx, alive)
	s.bashes.End(stays) // in a sandbox that stays terminals are ended one by one
	_ = s.lock.Close()
	return err
}

// stillRuns asks whether there is anything to be tidied up.
func (s *sandbox) stillRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	b, err := s.api.get(ctx, s.box.ID)
	return err == nil && b.State == "started"
}

// end stops or deletes the sandbox, unless it stays as it is.
func (s *sandbox) end(ctx context.Context, alive bool) (stays bool, err error) {
	if s.alone() {
		return false, s.remove(ctx)
	}
	busy := alive && s.inside.Tidy(ctx, s.info.PrivateDir)
	_ = s.lock.Close()
	stays = true
	err = kept.IfUnused(ctx, s.req.Identity.Home, s.plan.name, false, endWait, func() error {
		switch {
		case !s.plan.persist:
			stays = false
			return s.remove(ctx)
		case busy:
			s.log.Info("the sandbox is left running for what was started in it", "sandbox", s.plan.name)
			return nil
		}
		stays = false
		if !alive {
			return nil
		}
		if err := s.api.stop(ctx, s.plan.name, s.box.ID); err != nil {
			return err
		}
		if err := s.lock.Rests(s.box.ID); err != nil {
			s.log.Debug("it is not noted that the sandbox was idle when it was stopped", "sandbox", s.plan.name, "error", err)
		}
		return nil
	})
	return stays, err
}

func (s *sandbox) remove(ctx context.Context) error {
	return s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.box.ID))
}

// Stop stops the sandbox, whatever runs in it; its files stay there.
func (s *sandbox) Stop(ctx context.Context) error {
	return s.api.stopAndWait(ctx, s.plan.name, s.box.ID)
}

func (s *sandbox) lookAround(ctx context.Context) (*cloudbox.Surroundings, error) {
	look := cloudbox.Look{Identity: s.req.Identity, Owner: s.owner, Keep: !s.alone(), Name: s.plan.name, Setting: "daytona_image"}
	look.Dir, look.Notice = cloudbox.StartDir(s.req, hermesHome)
	look.OfHost = func(dir string) bool { return hostpath.Likely(dir, s.req) }
	return s.inside.LookAround(ctx, look)
}

// ListState lists the plain files in dir, which is the state or the private directory.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	return s.inside.ListState(ctx, s.info, dir)
}

var _ driver.Stopper = (*sandbox)(nil)
