package daytona

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
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

	made       bool // by this opening
	unanswered int  // requests to make it
	old        atomic.Bool

	ctx    context.Context // done when the sandbox is closed
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ended  bool // nothing more may be begun behind
	live   map[carried]struct{}
}

// carried is a bash on the service's terminals.
type carried interface {
	Gone() <-chan struct{}
	Abandon()
}

const (
	probeWait = time.Minute
	// tidyWait bounds what is done in the sandbox behind calls and on Close, and endWait what it takes to stop or delete it.
	tidyWait = 20 * time.Second
	endWait  = 40 * time.Second
	askWait  = 10 * time.Second
)

func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	s := &sandbox{api: a, req: req, log: req.Logger, owner: req.Identity.Owner, live: map[carried]struct{}{}}
	if s.owner == "" {
		s.owner = owner.NewID()
	}
	if s.plan, err = makePlan(req, a.hosted); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.cancel()
		s.work.Wait()
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
	if err := s.ensure(ctx); err != nil {
		return err
	}
	err := s.enter(ctx)
	if err == nil && s.lock != nil {
		err = s.lock.Use()
	}
	if err != nil && s.made {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		_ = s.api.remove(rctx, s.box.ID)
	}
	return err
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
	s.files, notice = newFiles(s)
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

// behind runs f behind the calls; its context is done when the sandbox is closed for good.
func (s *sandbox) behind(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.work.Go(func() { f(s.ctx) })
	}
}

func (s *sandbox) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

var errClosed = failure(driver.KindLost, "the sandbox is closed")

// Bash starts a bash over two terminals.
func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.isClosed() {
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
		Name: "the sandbox " + s.plan.name, Kill: func(ctx context.Context) error { return s.kill(ctx, mark) },
	})
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	if !s.own(p) {
		return nil, errClosed
	}
	return p, nil
}

// own notes a bash until it is gone, or gives it up: false says that the sandbox is closed.
func (s *sandbox) own(p carried) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		go p.Abandon()
		return false
	}
	s.live[p] = struct{}{}
	s.work.Go(func() {
		<-p.Gone()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, p)
	})
	return true
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

// kill ends what carries a call's mark, by the toolbox.
func (s *sandbox) kill(ctx context.Context, mark string) error {
	_, _, err := s.api.execute(ctx, s.toolbox, cloudbox.Line(cloudbox.KillScript, mark), tidyWait)
	return err
}

// Alive asks the service whether the sandbox runs.
func (s *sandbox) Alive(ctx context.Context) error {
	if s.isClosed() {
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
	if s.isClosed() || s.files == nil {
		return nil, nil
	}
	return s.files.Push(ctx), nil
}

// Close brings back what may come back, removes what was this process's alone, and stops a sandbox that persists, unless
// another process uses it or something that was left in it still runs; another one is deleted.
func (s *sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	alive := s.stillRuns(ctx)
	if s.files != nil && alive {
		s.files.Pull(context.WithoutCancel(ctx))
	}
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	s.pool.Close()
	stays, err := s.end(ectx, alive)
	s.mu.Lock()
	s.ended = !stays // in a sandbox that stays terminals are ended one by one
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for p := range live {
		p.Abandon()
	}
	if s.ended {
		s.cancel()
	}
	s.work.Wait()
	s.cancel()
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
		return false, s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.box.ID))
	}
	busy := false
	if alive {
		busy = s.tidy(ctx)
	}
	_ = s.lock.Close()
	lock, err := kept.Open(s.req.Identity.Home, s.plan.name, false)
	if err != nil {
		return true, err
	}
	defer lock.Close()
	done, err := lock.Make(ctx)
	if err != nil {
		return true, err
	}
	defer done()
	if used, err := lock.InUse(); err != nil || used {
		return true, err
	}
	switch {
	case !s.plan.persist:
		return false, s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.box.ID))
	case busy:
		s.log.Info("the sandbox is left running for what was started in it", "sandbox", s.plan.name)
		return true, nil
	case alive:
		return false, s.stop(ctx, s.box.ID)
	}
	return false, nil
}

// stop asks for a stop; it goes on behind. One that does not run is no error.
func (s *sandbox) stop(ctx context.Context, id string) error {
	err := s.api.change(ctx, id, "stop")
	if status := cloudhttp.StatusOf(err); status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusConflict {
		return nil
	}
	return s.api.explain("stopping the sandbox "+s.plan.name, err)
}

func (s *sandbox) lookAround(ctx context.Context) (*cloudbox.Surroundings, error) {
	wanted, notice := cloudbox.StartDir(s.req, hermesHome)
	look := cloudbox.Look{Dir: wanted, Identity: s.req.Identity, Owner: s.owner, Keep: !s.alone(), Name: s.plan.name, Setting: "daytona_image"}
	script, args := look.Script()
	text, code, err := s.api.execute(ctx, s.toolbox, cloudbox.Line(script, args...), probeWait)
	if err != nil {
		return nil, s.api.explain("looking around in the sandbox "+s.plan.name, err)
	}
	a, err := look.Read(text, code)
	if err == nil && notice != "" {
		a.Notices = append(a.Notices, notice)
	}
	return a, err
}

// tidy removes what was this process's alone and tells whether something that was left in the sandbox still runs.
func (s *sandbox) tidy(ctx context.Context) (busy bool) {
	ctx, cancel := context.WithTimeout(ctx, tidyWait)
	defer cancel()
	text, _, err := s.api.execute(ctx, s.toolbox, cloudbox.Line(cloudbox.TidyScript, s.info.PrivateDir), tidyWait)
	if err != nil {
		s.log.Debug("temporary files stay in the sandbox", "sandbox", s.plan.name, "error", err)
	}
	return cloudbox.Busy(text)
}

// ListState lists the plain files in dir, which is the state or the private directory.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	dir, err := cloudbox.StateDir(s.info, dir)
	if err != nil {
		return nil, err
	}
	text, _, err := s.api.execute(ctx, s.toolbox, cloudbox.Line(cloudbox.ListScript, dir), tidyWait)
	if err != nil {
		return nil, s.api.explain("listing state files in the sandbox "+s.plan.name, err)
	}
	return cloudbox.StateFiles(text), nil
}
