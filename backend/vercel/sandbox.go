package vercel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	api    *api
	req    driver.OpenRequest
	plan   *plan
	log    *slog.Logger
	owner  string     // this process's
	lock   *kept.Lock // nil for a sandbox that nobody else can find
	box    *box
	store  store
	pool   *ptychannel.Pool // of terminals
	info   driver.Info
	around *cloudbox.Surroundings
	files  *cloudbox.Files // nil where none are synchronised

	made       bool   // by this opening
	woke       bool   // this opening has begun a session of one that is stored
	unanswered int    // requests to make it
	lost       bool   // files that were stored are gone at the service
	before     string // what was stored before those, "" for nothing
	from       string // what the one that was made starts with, "" for nothing

	bashes *cloudbox.Bashes[carried]
	inside *cloudbox.Inside

	mu   sync.Mutex
	run  *run // the session that runs
	used bool // a call was prepared for since that was looked at
}

// process is a bash with what is asked of it while it runs.
type process struct {
	*ptychannel.Process
	call bool // not elsewhere's own
	used atomic.Bool
}

func (p *process) busy() bool { return p.call && p.used.Load() }

// carried is a bash on the service's terminals.
type carried interface {
	cloudbox.Bash
	busy() bool // it runs what was asked for
}

// input notes that a bash got something to do.
type input struct {
	io.WriteCloser
	used *atomic.Bool
}

func (i input) Write(b []byte) (int, error) {
	i.used.Store(true)
	return i.WriteCloser.Write(b)
}

// SetWriteDeadline bounds writes that wait for the far side.
func (i input) SetWriteDeadline(t time.Time) error {
	if w, ok := i.WriteCloser.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return w.SetWriteDeadline(t)
	}
	return errors.ErrUnsupported
}

// Stdin is the bash's standard input.
func (p *process) Stdin() io.WriteCloser { return input{p.Process.Stdin(), &p.used} }

// hermesDir is what Hermes takes for the default of this backend, where the service's own directory is meant.
const hermesDir = "/vercel/sandbox"

const (
	// endWait bounds what it takes to stop or delete the sandbox.
	endWait = 90 * time.Second
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
	s := &sandbox{api: a, req: req, log: req.Logger, owner: req.Identity.Owner, bashes: cloudbox.NewBashes[carried]()}
	if !alone(req) {
		s.store = newStore(req.Identity.Home)
	}
	if s.owner == "" {
		s.owner = owner.NewID()
	}
	if s.plan, err = makePlan(req); err != nil {
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
	if !alone(s.req) {
		lock, err := kept.Open(s.req.Identity.Home, lockName(s.plan.name), false)
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
		_ = s.api.remove(ectx, s.plan.name, false)
	case !s.made && s.woke:
		s.lieDown(ectx)
	}
	return err
}

// remember notes which sandbox the task has now, and says so where that is another one than the home remembers.
func (s *sandbox) remember() {
	if !s.plan.persist {
		return
	}
	other, err := s.lock.Remember(strconv.FormatInt(s.box.Created, 10)) // its name is the next one's too
	if err != nil {
		s.log.Debug("it is not remembered which sandbox the task has", "sandbox", s.plan.name, "error", err)
	}
	if other != "" {
		s.info.Recreated = "the sandbox " + s.plan.name + " that this task had was deleted, and not by elsewhere: what ran in it is gone"
		if s.made && s.from == "" {
			s.info.Recreated += ", and so are its files"
		}
	}
}

// enter looks around in a sandbox that runs.
func (s *sandbox) enter(ctx context.Context) (err error) {
	s.prolong(ctx)
	if s.around, err = s.lookAround(ctx); err != nil {
		return err
	}
	s.pool = ptychannel.NewPool(s.dial)
	s.info = s.makeInfo()
	notice := ""
	s.files, notice = cloudbox.FilesOf(s.req, s.around, s.plan.name, s.bash)
	s.info.Notices = append(s.info.Notices, s.plan.notices...)
	if notice != "" {
		s.info.Notices = append(s.info.Notices, notice)
	}
	if !s.made {
		s.removeLeftovers()
	}
	s.reapBehind()
	s.bashes.Behind(s.mind)
	return nil
}

func (s *sandbox) makeInfo() driver.Info {
	a := s.around
	info := driver.Info{
		Host: strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(s.api.Base, "https://"), "http://"), "/api"), SandboxID: s.plan.name, User: a.User, Home: a.Home, Dir: a.Dir,
		StateDir: a.State, PrivateDir: a.Private, KeepsChildren: true, Watchdog: true, Lease: true,
	}
	info.CallEnv, info.Notices = scrub.Forward(s.req.Environ, s.req.Config.Strings("env_passthrough"))
	info.Notices = append(info.Notices, a.Notices...)
	info.Features = append([]driver.Feature{
		{Name: "isolation", State: driver.Active, Detail: "the sandbox " + s.plan.name + " of Vercel"},
	}, s.plan.features...)
	return info
}

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
	one := &process{Process: p, call: slices.Contains(spec.Env, mark)}
	if !s.bashes.Own(one) {
		return nil, errClosed
	}
	return one, nil
}

// busy tells whether a call was made since the last time, or runs.
func (s *sandbox) busy() bool {
	s.mu.Lock()
	used := s.used
	s.used = false
	s.mu.Unlock()
	return s.bashes.Any(carried.busy) || used
}

func (s *sandbox) getRun() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

func (s *sandbox) setRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run = r
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
	if status := cloudhttp.StatusOf(err); status == http.StatusNotFound || status == http.StatusGone {
		return failure(driver.KindUnavailable, "cannot start a bash in the sandbox %s: %w", s.plan.name, err)
	}
	return s.api.explain("cannot start a bash in the sandbox "+s.plan.name, err)
}

// execute runs a script of ours beside the calls.
func (s *sandbox) execute(ctx context.Context, wait time.Duration, script string, args ...string) (string, int, error) {
	return s.api.execute(ctx, s.getRun().ID, script, args, wait)
}

// Alive asks the service whether the sandbox runs.
func (s *sandbox) Alive(ctx context.Context) error {
	if s.bashes.Closed() {
		return errClosed
	}
	now, err := s.api.look(ctx, s.getRun().ID)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		_ = s.lock.Close()
		return failure(driver.KindLost, "the sandbox %s is gone", s.plan.name)
	case err != nil:
		return s.api.explain("asking for the sandbox "+s.plan.name, err)
	case now.Status == "running":
		return nil
	}
	_ = s.lock.Close()
	return failure(driver.KindLost, "the sandbox %s has ended (%s)", s.plan.name, now.Status)
}

// Prepare brings the files of HERMES_HOME up to date.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.bashes.Closed() {
		return nil, nil
	}
	s.mu.Lock()
	s.used = true
	s.mu.Unlock()
	if s.files == nil {
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
	err := s.end(ectx, alive)
	s.bashes.End(false)
	_ = s.lock.Close()
	return err
}

// stillRuns asks whether there is anything to be tidied up.
func (s *sandbox) stillRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	now, err := s.api.look(ctx, s.getRun().ID)
	return err == nil && now.Status == "running"
}

// end stops or deletes the sandbox, unless it stays as it is.
func (s *sandbox) end(ctx context.Context, alive bool) error {
	if alone(s.req) {
		return s.remove(ctx)
	}
	busy := alive && s.inside.Tidy(ctx, s.info.PrivateDir)
	_ = s.lock.Close()
	return kept.IfUnused(ctx, s.req.Identity.Home, lockName(s.plan.name), false, endWait, func() error { return s.endUnused(ctx, alive, busy) })
}

// endUnused is end where nobody else uses the sandbox, and alive and busy what was found in it.
func (s *sandbox) endUnused(ctx context.Context, alive, busy bool) error {
	st, err := s.api.get(ctx, s.plan.name, false)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		return nil
	case err != nil:
		return s.api.explain("asking for the sandbox "+s.plan.name, err)
	case st.Box.Created != s.box.Created:
		return nil // another one has its name now
	case !st.Box.Persistent:
		return s.remove(ctx)
	case busy:
		s.log.Info("the sandbox is left running for what was started in it", "sandbox", s.plan.name)
		return nil
	}
	return s.stop(ctx, alive)
}

func (s *sandbox) remove(ctx context.Context) error {
	return s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.plan.name, false))
}

// stop ends the session where it runs, by which the service stores the files, and tells Hermes where they are.
func (s *sandbox) stop(ctx context.Context, alive bool) error {
	var id string
	var err error
	if alive {
		id, err = s.api.store(ctx, s.plan.name, s.getRun().ID)
	} else {
		id, err = s.api.newest(ctx, s.plan.name)
	}
	if err != nil {
		return s.api.explain("stopping the sandbox "+s.plan.name, err)
	}
	s.record(ctx, id)
	return nil
}

// Stop ends the session, whatever runs in it; the service stores the files of a sandbox that persists.
func (s *sandbox) Stop(ctx context.Context) error {
	if s.box.Persistent {
		return s.stop(ctx, true)
	}
	_, err := s.api.stop(ctx, s.getRun().ID)
	return s.api.explain("stopping the sandbox "+s.plan.name, err)
}

// record writes into Hermes' record what is stored last of the sandbox, "" for nothing. What another has stored for the task since is
// left there, and the next opening tells of it.
func (s *sandbox) record(ctx context.Context, id string) {
	if !s.plan.persist {
		return
	}
	other, err := s.store.put(ctx, s.plan.name, s.req.Task, id, s.box.Snapshot)
	switch {
	case err != nil:
		s.log.Warn("Hermes' record of stored files was not brought up to date", "sandbox", s.plan.name, "error", err)
	case other != "":
		s.log.Warn("Hermes has stored other files for the task: its record is left as it is", "task", s.req.Task, "sandbox", s.plan.name, "stored", other)
		s.say("Hermes has stored files for this task (" + other + ") that are not in this sandbox, which goes on with its own; `elsewhere sandbox rm` gives these up, and the next run starts with those")
	}
}

func (s *sandbox) lookAround(ctx context.Context) (*cloudbox.Surroundings, error) {
	look := cloudbox.Look{Identity: s.req.Identity, Owner: s.owner, Keep: !alone(s.req), Name: s.plan.name, Setting: "vercel_image or vercel_runtime"}
	look.Dir, look.Notice = cloudbox.StartDir(s.req, hermesDir)
	look.OfHost = func(dir string) bool { return hostpath.Likely(dir, s.req) }
	if look.Notice == "" && (look.Dir == "" || look.Dir == ".") {
		look.Dir = s.getRun().Cwd // which is the service's to choose; "" is the home directory
	}
	return s.inside.LookAround(ctx, look)
}

// ListState lists the plain files in dir, which is the state or the private directory.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	return s.inside.ListState(ctx, s.info, dir)
}

var _ driver.Stopper = (*sandbox)(nil)
