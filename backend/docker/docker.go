package docker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

// sandbox is one container as one process uses it.
type sandbox struct {
	eng   *engine
	plan  *plan
	req   driver.OpenRequest
	log   *slog.Logger
	id    string     // the container's whole id
	lock  *kept.Lock // nil for a container that nobody else can find
	since string     // when the container was started that was opened, as the engine says it; "" is not known
	fresh bool       // the opening itself has started the container
	// replaced says that the opening itself has removed the one that was there; recreated why the container is another one
	// than the home remembers, or "".
	replaced  bool
	recreated string
	bare      bool     // the engine has no image for the container, which was there when the opening began
	user      string   // as which the container runs; "" is root
	env       []string // added to that of every bash
	info      driver.Info

	ctx    context.Context // done when the sandbox is closed
	cancel context.CancelFunc
	work   sync.WaitGroup // what runs behind the calls
	opened atomic.Bool
	tidied atomic.Bool // a watchdog runs, which removes the private directory
	state  *statescript.Files
	closed atomic.Bool
	kills  atomic.Int64 // how many processes in the container the kernel has ended for want of memory, when that was last asked

	mu         sync.Mutex
	live       map[*process]struct{} // whose connections are open
	blanks     []*blank              // of which the first bashes are made
	blankTimer *time.Timer           // ends those that were of no use
	enders     []string              // the execs of bashes that end trees: the watchdog's, and the latest of others
}

// open finds or makes the container of req.Task.
func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	eng, err := connect(ctx, req.Environ)
	if err != nil {
		return nil, err
	}
	s := newSandbox(eng, req)
	if err := s.open(ctx); err != nil {
		s.cancel()
		s.work.Wait()
		_ = s.lock.Close()
		_ = eng.Close()
		return nil, eng.explain("opening a container", err)
	}
	return s, nil
}

// newSandbox makes the value that opens one; cancel ends what it begins.
func newSandbox(eng *engine, req driver.OpenRequest) *sandbox {
	s := &sandbox{eng: eng, req: req, log: req.Logger, live: map[*process]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// available asks whether an engine answers.
func available(ctx context.Context, req driver.OpenRequest) error {
	eng, err := connect(ctx, req.Environ)
	if err != nil {
		return err
	}
	return eng.Close()
}

func (s *sandbox) open(ctx context.Context) error {
	image, err := s.findImage(ctx)
	if err != nil {
		return err
	}
	if err := s.planFrom(ctx, image); err != nil {
		return err
	}
	found, err := s.enter(ctx)
	if err != nil {
		return err
	}
	notices := append(found.notices, s.plan.notices...)
	which := s.plan.name + " (" + s.plan.config.Image + ")"
	if s.req.ThrowAway {
		which = "a throw-away one (" + s.plan.config.Image + ")"
	}
	exposure, err := s.exposure(ctx)
	if err != nil {
		return err
	}
	s.info = driver.Info{
		Host: s.eng.host, SandboxID: shortID(s.id), User: found.user, Home: found.home, Dir: found.dir,
		StateDir: found.state, PrivateDir: found.private,
		Linger: true, KeepsChildren: true, Watchdog: true, Tidy: true, Lease: !s.eng.here(), CallEnv: maps.Clone(s.plan.callEnv),
		Exposure: exposure,
		Features: append([]driver.Feature{{Name: "container", State: driver.Active, Detail: which}}, s.plan.features...),
		Notices:  notices, Recreated: s.recreated,
	}
	s.state = s.stateFiles(found.files)
	s.opened.Store(true)
	s.behind(func() { s.removeDead(found.others) })
	s.reapBehind()
	return nil
}

// planFrom makes the plan for an image and brings up to date what is mounted from this machine.
func (s *sandbox) planFrom(ctx context.Context, image *client.ImageInspectResult) error {
	p, err := makePlan(ctx, s.eng.Client, s.req, image)
	if err != nil {
		return err
	}
	if s.user = p.config.User; s.user == "" && image.Config != nil {
		s.user = image.Config.User
	}
	if s.alone() {
		p.process = false
	}
	s.plan = p
	if p.refresh == nil {
		return nil
	}
	notices, err := p.refresh(ctx)
	p.notices = append(p.notices, notices...)
	return err
}

// alone says that no other process can find this container: it is a throw-away one, or its identity is this process's alone.
func (s *sandbox) alone() bool {
	return s.req.ThrowAway || s.req.Identity.Home == "" && s.sharedKey() == ""
}

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

// address is what the commands of `elsewhere sandbox` take for this container.
func (s *sandbox) address() string {
	return kept.Address("docker", s.req.Identity, s.req.Task, s.plan.name)
}

// shortID is a container's id as `docker ps` shows it.
func shortID(id string) string { return id[:min(len(id), 12)] }

func (s *sandbox) Info() driver.Info { return s.info }

// Alive asks the engine whether the container runs. One that does not is given up at once: a second opening finds nobody who
// uses it.
func (s *sandbox) Alive(ctx context.Context) error {
	answer, err := s.eng.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		s.giveUp()
		return failure(driver.KindLost, "the container %s is gone", s.plan.name)
	case err != nil:
		if ctx.Err() != nil {
			return failure(driver.KindUnavailable, "the docker engine at %s does not answer: %w", s.eng.at, ctx.Err())
		}
		return s.eng.explain("asking for the container "+s.plan.name, err)
	}
	state := answer.Container.State
	switch state.Status {
	case container.StateRunning:
		if s.since != "" && state.StartedAt != s.since {
			s.giveUp()
			return failure(driver.KindLost, "the container %s was stopped and has been started again by another process", s.plan.name)
		}
		return nil
	case container.StatePaused:
		return paused(s.plan.name)
	case container.StateRestarting:
		return failure(driver.KindUnavailable, "the container %s is being restarted; try again", s.plan.name)
	case container.StateRemoving, container.StateDead:
		s.giveUp()
		return failure(driver.KindLost, "the container %s has been removed", s.plan.name)
	default:
		s.giveUp()
		return s.stopped(state)
	}
}

// stopped says that a container was stopped under this sandbox.
func (s *sandbox) stopped(state *container.State) error {
	if state.OOMKilled {
		return failure(driver.KindLost, "the container %s has been stopped: %s", s.plan.name, s.outOfMemory())
	}
	return failure(driver.KindLost, "the container %s has been stopped", s.plan.name)
}

func paused(name string) error {
	return failure(driver.KindUnavailable, "the container %s is paused; `docker unpause %s` lets it go on", name, name)
}

// giveUp says that this value uses its container no more.
func (s *sandbox) giveUp() {
	if !s.opened.Load() {
		return // the opening holds the lock and decides
	}
	if err := s.lock.Close(); err != nil {
		s.log.Debug("the lock of a container was not given up", "container", s.plan.name, "error", err)
	}
}

// Prepare brings what is mounted from this machine up to date.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.plan.refresh == nil {
		return nil, nil
	}
	return s.plan.refresh(ctx)
}

// own notes a process whose connection has to be closed with the sandbox; false says that it is closed already.
func (s *sandbox) own(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		return false
	}
	s.live[p] = struct{}{}
	return true
}

// maxEnders is how many bashes that end trees are remembered. All but the watchdog, which is mostly the first, are short.
const maxEnders = 16

// noteEnder notes the exec of a bash that ends trees.
func (s *sandbox) noteEnder(exec string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enders = append(s.enders, exec)
	if len(s.enders) > maxEnders {
		s.enders = slices.Delete(s.enders, 1, 2)
	}
}

func (s *sandbox) disown(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, p)
}

const (
	// tidyWait bounds what Close does inside the container, and endWait what it takes to stop and remove it.
	tidyWait = 5 * time.Second
	endWait  = 30 * time.Second
)

// Close removes the private directory and, where the container is not to outlive this process and nobody else uses it, the
// container. What cannot be tidied up is no error: it is in the container's memory.
func (s *sandbox) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	s.state.Stop()
	s.cancel()
	s.mu.Lock()
	s.blanks = nil // they are in live
	if s.blankTimer != nil {
		s.blankTimer.Stop()
	}
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for p := range live {
		p.closeAll()
	}
	s.work.Wait()
	removed, err := false, error(nil)
	if !s.plan.process {
		ectx, cancel := context.WithTimeout(ctx, endWait)
		defer cancel()
		removed, err = s.end(ectx)
	}
	if !removed {
		tctx, cancel := context.WithTimeout(ctx, tidyWait)
		defer cancel()
		s.removePrivate(tctx)
	}
	s.giveUp()
	_ = s.eng.Close()
	return err
}
