package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/audit"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// Sandbox is one running place in which sessions live. It must be closed. It is safe for concurrent use.
type Sandbox struct {
	backend string // as it was named
	task    string
	dir     string // the caller's directory
	home    string // HERMES_HOME, "" where there is none
	cfg     driver.Config
	back    driver.Backend
	request driver.OpenRequest // with which a lost one is opened again
	log     *slog.Logger
	lease   *owner.Lease
	owner   string

	grace       time.Duration // between TERM and KILL
	orphanGrace time.Duration // for how long the owner of a call may be silent
	stopAfter   time.Duration // for how long the end of a call is tried for before the sandbox is stopped
	ahead       int
	aheadIdle   time.Duration
	spillDir    string
	auditLog    *audit.Log // nil where none is kept
	telemetry   *telemetry

	rules   []policy.UserRule // the user's own
	hermes  string            // HERMES_HOME, also where nothing is kept there
	approve func(context.Context, PolicyQuestion) (PolicyAnswer, error)
	answers *answers // of what belongs to no session

	allowlist     string      // where a list of Hermes' is that is not read; "" for none
	allowlistTold atomic.Bool // that was said

	ready atomic.Pointer[time.Time] // when a bash last answered as one should; nil where none has
	told  atomic.Bool               // the last text about a slow step stands

	current   atomic.Pointer[place]
	reopening chan struct{} // holds a token while somebody finds out whether the sandbox is lost

	goroutines sync.WaitGroup
	closing    chan struct{} // closed by Close

	mu       sync.Mutex
	notices  []string
	anew     string // why it is not the one of an earlier process, for the first result
	sessions map[*Session]struct{}
	closed   bool
}

// OpenSandbox opens, finds or makes the sandbox of a task. cfg says where and how; nil opts is the configured backend and
// the task "default". It never falls back to another backend. ctx bounds the opening. Errors are *Error.
func OpenSandbox(ctx context.Context, cfg *config.Config, opts *SandboxOptions) (*Sandbox, error) {
	if opts == nil {
		opts = &SandboxOptions{}
	}
	view, back, err := cfg.Named(opts.Backend)
	if err != nil {
		return nil, configError(err, "open", opts.Backend)
	}
	name := view.Name()
	if view.EgressEnabled() {
		return nil, wrap(errText("egress control is not built yet"), driver.KindUnsupported, "open", name, "egress.enabled",
			"turn egress.enabled off, and cut the network by the backend's own means")
	}
	if back.Open == nil {
		return nil, wrap(fmt.Errorf("the backend %s is not built yet", back.Name), driver.KindUnsupported, "open", name, "",
			"see `elsewhere backends` for those that are")
	}
	sb := newSandbox(view, back, opts)
	if err := sb.takePolicy(view, opts); err != nil {
		return nil, err
	}
	ctx, opened := sb.telemetry.opening(ctx, sb.task)
	if err := sb.open(ctx, view, opts); err != nil {
		_ = sb.releaseLease()
		err = sb.wrap(err, "open")
		opened(err)
		return nil, err
	}
	opened(nil)
	sb.telemetry.count(sb.telemetry.sandboxes, 1)
	return sb, nil
}

func newSandbox(view *config.Config, back driver.Backend, opts *SandboxOptions) *Sandbox {
	sb := &Sandbox{
		backend: view.Name(), task: opts.Task, dir: view.Dir(), home: view.Home(), cfg: view, back: back, log: opts.Logger,
		grace:       view.Duration("daemon_term_grace_seconds"),
		orphanGrace: view.Duration("orphan_grace"),
		stopAfter:   stopAfter,
		ahead:       int(view.Int("spawn_ahead")),
		aheadIdle:   view.Duration("spawn_ahead_idle"),
		sessions:    map[*Session]struct{}{},
		reopening:   make(chan struct{}, 1),
		closing:     make(chan struct{}),
	}
	if sb.task == "" {
		sb.task = DefaultTask
	}
	if sb.log == nil {
		sb.log = slog.New(slog.DiscardHandler)
	}
	sb.telemetry = newTelemetry(sb.backend, opts, sb.log)
	if opts.SpawnAhead != nil {
		sb.ahead = *opts.SpawnAhead
	}
	if opts.ThrowAway {
		sb.home = ""
	}
	return sb
}

func (sb *Sandbox) open(ctx context.Context, view *config.Config, opts *SandboxOptions) error {
	sb.takeLease()
	sb.spillDir = outputDir(sb.home)
	sb.openAudit()
	identity, err := owner.Identity(sb.home)
	alone := err != nil
	if alone {
		identity = owner.NewID()
	}
	sb.request = sb.openRequest(identity, opts)
	switch {
	case alone && sb.back.Keeper != nil:
		// Nobody would find a sandbox again that outlives this run.
		sb.say("the sandbox goes with this run, and its files: HERMES_HOME keeps no identity: " + err.Error())
		sb.request.ThrowAway, sb.request.Identity.Home = true, ""
	case alone:
		sb.say("this run has an identity of its own: " + err.Error())
	}
	drv, err := sb.back.Open(ctx, sb.request)
	if err != nil {
		return err
	}
	p := sb.newPlace(drv, "")
	p.provideSudo(ctx)
	sb.current.Store(p)
	sb.anew = p.info.Recreated
	sb.notices = append(append(sb.notices, p.info.Notices...), view.Warnings()...)
	sb.goroutines.Go(sb.clean)
	return nil
}

// takeLease takes the lock that proves that this process lives. Where none can be had, the run goes on without: what it
// leaves after a KILL is then found by nobody but the watchdog.
func (sb *Sandbox) takeLease() {
	lease, err := owner.Acquire(sb.home)
	if err != nil {
		sb.say("no lease: " + err.Error())
		sb.owner = owner.NewID()
		return
	}
	sb.lease, sb.owner = lease, lease.ID
}

func (sb *Sandbox) releaseLease() error {
	if sb.lease == nil {
		return nil
	}
	return sb.lease.Release()
}

// say keeps something to say with the first result.
func (sb *Sandbox) say(notice string) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.notices = append(sb.notices, notice)
}

// takeAnew says, once, why the sandbox is not the one that an earlier process had.
func (sb *Sandbox) takeAnew() string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	why := sb.anew
	sb.anew = ""
	return why
}

func (sb *Sandbox) takeNotices() []string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	notices := sb.notices
	sb.notices = nil
	return notices
}

// wrap makes a driver's raw error an *Error, with the kind that its backend gives it.
func (sb *Sandbox) wrap(err error, op string) error {
	return wrap(err, kindOf(sb.back, err), op, sb.backend, sb.task, "")
}

// kindOf is the kind that a backend gives to a raw error of its own.
func kindOf(back driver.Backend, err error) driver.Kind {
	if back.Classify != nil {
		if kind := back.Classify(err); kind != "" {
			return kind
		}
	}
	return driver.KindUnavailable
}

// configError makes an error of package config an *Error of its kind.
func configError(err error, op, backend string) error {
	kind := driver.KindConfig
	if own, ok := errors.AsType[*config.Error](err); ok && own.Kind != "" {
		kind = own.Kind
	}
	return wrap(err, kind, op, backend, "", "")
}

// Backend is the backend's name as it was chosen, Task the task's.
func (sb *Sandbox) Backend() string { return sb.backend }

// Task is the task that names this sandbox.
func (sb *Sandbox) Task() string { return sb.task }

// Info says what this place is and what is in force there. A sandbox that was lost and made again has another one.
func (sb *Sandbox) Info() driver.Info { return sb.at().info }

// Where says where commands really run.
func (sb *Sandbox) Where() Where { return sb.at().where() }

func (p *place) where() Where {
	return Where{Host: p.info.Host, SandboxID: p.info.SandboxID, User: p.info.User}
}

// Driver gives the driver's sandbox, to ask for its optional abilities.
func (sb *Sandbox) Driver() driver.Sandbox { return sb.at().drv }

// Open opens a sandbox and a throw-away session in it; closing the session closes the sandbox.
func Open(ctx context.Context, cfg *config.Config, opts *SandboxOptions) (*Session, error) {
	sb, err := OpenSandbox(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	s, err := sb.Session(ctx, "")
	if err != nil {
		return nil, errors.Join(err, sb.Close(ctx))
	}
	s.closeAll = true
	return s, nil
}

// Session opens a session: with a name the user's own of that name, which lives on disk until it is removed or expires;
// with "" a throw-away one. Any string is a name. Each call of Session needs a Close. The first state is made by the
// first call.
func (sb *Sandbox) Session(ctx context.Context, name string) (*Session, error) {
	s := &Session{
		sb: sb, name: name, first: make(chan struct{}, 1), cwd: sb.at().info.Dir, start: sb.at().info.Dir,
		saving: map[*shell]struct{}{}, loading: map[string]int{}, shells: map[*shell]struct{}{}, done: make(chan struct{}),
	}
	s.first <- struct{}{}
	s.answers = sb.answersOf(s)
	if name != "" {
		if err := s.openNamed(); err != nil {
			return nil, err
		}
	} else {
		s.id, s.mark = bashscript.NewID(), bashscript.NewSessionMark()
		if err := sb.at().addSession(ctx, s); err != nil {
			return nil, sb.wrap(err, "start the watchdog")
		}
	}
	s.at = sb.at()
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.closed {
		return nil, wrap(errText("the sandbox is closed"), driver.KindConfig, "session", sb.backend, sb.task, "open it again")
	}
	sb.sessions[s] = struct{}{}
	sb.telemetry.count(sb.telemetry.sessions, 1)
	return s, nil
}

// behind runs f in the background, unless the sandbox is being closed: then what f would end is the watchdog's.
func (sb *Sandbox) behind(f func()) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if !sb.closed {
		sb.goroutines.Go(f)
	}
}

func (sb *Sandbox) isClosed() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.closed
}

func (sb *Sandbox) sessionClosed(s *Session) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if _, open := sb.sessions[s]; open {
		sb.telemetry.count(sb.telemetry.sessions, -1)
	}
	delete(sb.sessions, s)
}

// Close closes what sessions are open and gives the sandbox up: kept, stopped or removed as its settings say. It waits, until
// ctx is done, for the end of what throw-away sessions left running; that end goes on behind it, also when this process
// ends. A second Close does nothing.
func (sb *Sandbox) Close(ctx context.Context) error {
	sb.mu.Lock()
	closed := sb.closed
	sb.closed = true
	open := make([]*Session, 0, len(sb.sessions))
	for s := range sb.sessions {
		open = append(open, s)
	}
	sb.mu.Unlock()
	if closed {
		return nil
	}
	close(sb.closing)
	defer sb.telemetry.closed()
	var errs []error
	for _, s := range open {
		_, err := s.close(ctx) // what they left running is the watchdog's
		errs = append(errs, err)
	}
	errs = append(errs, sb.at().close(ctx), sb.releaseLease(), sb.auditLog.Close())
	sb.awaitGoroutines(ctx)
	return errors.Join(errs...)
}

// awaitGoroutines waits for what runs behind this sandbox, until ctx is done and not for ever.
func (sb *Sandbox) awaitGoroutines(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sb.grace+10*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		sb.goroutines.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// outputDir is where the output goes that results leave out: HERMES_HOME/elsewhere/output, or "" for none.
func outputDir(home string) string {
	if home == "" {
		return ""
	}
	return filepath.Join(home, "elsewhere", "output")
}

// readied is when a bash of the sandbox last became ready, the zero time where none has.
func (sb *Sandbox) readied() time.Time {
	if at := sb.ready.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
