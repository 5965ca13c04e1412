package modal

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

// sandbox is one Modal sandbox as one process uses it.
type sandbox struct {
	account  *account
	plan     *plan
	req      driver.OpenRequest
	log      *slog.Logger
	store    store
	sb       *sdk.Sandbox
	lock     *kept.Lock // nil for a sandbox that nobody else can find
	fresh    bool       // this opening made it
	restored string     // from when its files are, where it was made from stored ones
	// recreated says why the task's last one is not there any more, where nothing of it was stored.
	recreated string
	ends      time.Time // when its lifetime is over; zero where that is not known
	env       map[string]string
	info      driver.Info
	files     *cloudbox.Files // nil where none are synchronised

	ctx    context.Context // done, with the cause, when the sandbox is closed or lost
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // what runs behind the calls
	state  *statescript.Files
	opened atomic.Bool
	closed atomic.Bool
	gone   atomic.Pointer[error] // what the service said when it was lost

	snapping chan struct{} // holds a token while a snapshot is being made

	mu    sync.Mutex
	live  map[*process]struct{}
	busy  int       // how many of them are no watchdog
	quiet time.Time // since when none is
	dirty bool      // somebody may have changed files since the last snapshot
	used  bool      // somebody may have changed files since it was made, and what he left running there may do so at any time
}

var errClosed = failure(driver.KindLost, "the sandbox is closed")

// open finds or makes the sandbox of req.Task.
func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	p, err := makePlan(req)
	if err != nil {
		return nil, err
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	s := &sandbox{
		account: a, plan: p, req: req, log: req.Logger, live: map[*process]struct{}{}, snapping: make(chan struct{}, 1), quiet: time.Now(),
	}
	if !alone(req) {
		s.store = newStore(req.Identity.Home)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	around, err := s.enter(ctx)
	if err != nil {
		s.cancel(errClosed)
		s.work.Wait()
		_ = s.lock.Close()
		a.close()
		return nil, err
	}
	s.tellOfOthers()
	s.makeInfo(around)
	s.dirty, s.used = !s.fresh, !s.fresh // one that ran may have what nobody has stored: a KILL, or a job
	s.state = s.stateFiles(around.files)
	s.files = newFiles(s)
	s.opened.Store(true)
	s.behind(s.watchEnd)
	s.behind(s.mind)
	s.behind(func() { s.endDead(around) })
	s.reapBehind()
	return s, nil
}

func (s *sandbox) makeInfo(around *surroundings) {
	state := driver.Feature{Name: "persistence", State: driver.Active, Detail: "files are stored on close and before the sandbox's lifetime ends; processes are not"}
	if !s.plan.persistent {
		state.State, state.Detail = driver.Degraded, "none: the sandbox ends with this run"
	}
	s.info = driver.Info{
		Host: s.account.host(), SandboxID: s.sb.SandboxID, User: around.user, Home: around.home, Dir: around.dir,
		StateDir: around.state, PrivateDir: around.private,
		Linger: true, KeepsChildren: true, Watchdog: true, Lease: true, CallEnv: maps.Clone(s.plan.callEnv),
		Features: append([]driver.Feature{
			{Name: "isolation", State: driver.Active, Detail: "a sandbox on the vendor's machines (image " + s.plan.image + ")"}, state,
		}, s.plan.features...),
		Notices: s.plan.notices, Recreated: s.recreated,
	}
}

func (s *sandbox) Info() driver.Info { return s.info }

// behind runs f behind the calls unless the sandbox is closed.
func (s *sandbox) behind(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return false
	}
	s.work.Go(f)
	return true
}

// watchEnd learns of the sandbox's end as soon as the service tells: the SDK tries for ever to learn the end of a command in one that is
// gone. It asks every 10 s at least.
func (s *sandbox) watchEnd() {
	for s.ctx.Err() == nil {
		_, err := s.sb.Wait(s.ctx, nil)
		if err == nil || notFound(err) {
			if s.ctx.Err() == nil {
				_ = s.lose("the sandbox " + s.info.SandboxID + " has ended")
			}
			return
		}
		select {
		case <-time.After(2 * time.Second):
		case <-s.ctx.Done():
		}
	}
}

// lose notes that the sandbox is gone, and ends with it what waits for its bashes.
func (s *sandbox) lose(what string) error {
	err := failure(driver.KindLost, "%s%s", what, s.whyEnded())
	if !s.opened.Load() {
		return err // the opening looks for another one
	}
	if !s.gone.CompareAndSwap(nil, &err) {
		return *s.gone.Load()
	}
	s.cancel(err)
	s.giveUp()
	return err
}

func (s *sandbox) whyEnded() string {
	if !s.ends.IsZero() && !time.Now().Before(s.ends.Add(-2*time.Second)) {
		return ": its lifetime is over (modal_lifetime)"
	}
	return ""
}

// giveUp says that this value uses its sandbox no more.
func (s *sandbox) giveUp() {
	if err := s.lock.Close(); err != nil {
		s.log.Debug("the lock of a sandbox was not given up", "sandbox", s.plan.name, "error", err)
	}
}

// Alive asks the service whether the sandbox runs.
func (s *sandbox) Alive(ctx context.Context) error {
	if gone := s.gone.Load(); gone != nil {
		return *gone
	}
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	code, err := s.sb.Poll(actx, nil)
	switch {
	case notFound(err) || err == nil && code != nil:
		return s.lose("the sandbox " + s.sb.SandboxID + " has ended")
	case err != nil:
		return s.account.explain(actx, "asking for the sandbox "+s.sb.SandboxID, err)
	}
	return nil
}

// Prepare brings the files of HERMES_HOME in the sandbox up to date.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.files == nil || s.closed.Load() {
		return nil, nil
	}
	return s.files.Push(ctx), nil
}

// own notes a process; false says that the sandbox is closed.
func (s *sandbox) own(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return false
	}
	s.live[p] = struct{}{}
	if !p.watchdog {
		s.busy++
		s.dirty, s.used = true, true
	}
	return true
}

func (s *sandbox) disown(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.watchdog {
		if s.busy--; s.busy == 0 {
			s.quiet = time.Now()
		}
	}
	delete(s.live, p)
}

const (
	// leaveWait is how long the last bashes may take to leave, and tidyWait bounds what Close does in the sandbox.
	leaveWait = 3 * time.Second
	tidyWait  = 10 * time.Second
)

// Close brings files back, stores the sandbox's own and gives it up: nobody else uses it and it is not to be kept, it is ended. An
// error says that files are not stored; the sandbox then goes on for as long as the service lets it.
func (s *sandbox) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	ctx = context.WithoutCancel(ctx) // what follows has times of its own
	lost := s.gone.Load() != nil
	if s.files != nil && !lost {
		s.files.Pull(ctx)
	}
	s.leave(ctx)
	var err error
	if !lost && s.gone.Load() == nil {
		tctx, cancel := context.WithTimeout(ctx, tidyWait)
		s.removePrivate(tctx)
		cancel()
		if s.plan.persistent && s.hasToStore() {
			err = s.snapshotNow(ctx) // after one that is under way
		}
	}
	s.cancel(errClosed)
	s.work.Wait()
	if !lost && s.gone.Load() == nil && err == nil {
		err = s.endUnused(ctx)
	}
	s.giveUp()
	s.account.close()
	return err
}

// leave lets the bashes end: no new one can be started, and their input is at its end.
func (s *sandbox) leave(ctx context.Context) {
	s.state.Stop()
	s.mu.Lock()
	live := s.live
	s.live = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, leaveWait)
	defer cancel()
	for p := range live {
		_ = p.stdin.Close()
	}
	for p := range live {
		if _, err := p.Wait(ctx); err != nil {
			p.closeStreams()
		}
	}
}

// endUnused ends the sandbox where it is not to be left running, unless another process of this machine uses it. What is in it then is stored,
// or nothing that could be lost.
func (s *sandbox) endUnused(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	if s.lock == nil {
		return s.account.end(ctx, s.sb)
	}
	s.giveUp()
	name := lockName(s.plan.name)
	if s.plan.keep {
		if s.hasToStore() { // which has been done, and the note is gone
			return nil
		}
		if err := kept.IfUnused(ctx, s.req.Identity.Home, name, false, kept.LookWait, s.lock.Forget); err != nil {
			s.log.Debug("the note of a sandbox in which nothing ran stays", "sandbox", s.plan.name, "error", err)
		}
		return nil
	}
	return kept.IfUnused(ctx, s.req.Identity.Home, name, false, endWait, func() error {
		if err := s.account.end(ctx, s.sb); err != nil {
			return err
		}
		return s.lock.Forget()
	})
}

// Stop stores the files of a sandbox that persists and ends it, whoever uses it.
func (s *sandbox) Stop(ctx context.Context) error {
	if s.plan.persistent && s.gone.Load() == nil {
		if err := s.keepFiles(ctx); err != nil {
			return err
		}
	}
	if err := s.account.end(ctx, s.sb); err != nil {
		return err
	}
	_ = s.lose("the sandbox " + s.sb.SandboxID + " has ended")
	return nil
}

// hasToStore tells whether the sandbox may have, at its close, what is not stored. What was stored a moment ago does not count: a job may have
// written since.
func (s *sandbox) hasToStore() bool {
	s.mu.Lock()
	used := s.used
	s.mu.Unlock()
	return used || !s.plan.keep && s.store.entered(s.plan.name)
}

func (s *sandbox) isDirty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

var (
	_ driver.Preparer     = (*sandbox)(nil)
	_ driver.StateRemover = (*sandbox)(nil)
	_ driver.StateLister  = (*sandbox)(nil)
	_ driver.Snapshotter  = (*sandbox)(nil)
	_ driver.Stopper      = (*sandbox)(nil)
)
