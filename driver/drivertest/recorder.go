package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// recorder stands between package elsewhere and a driver and notes every bash that is started, so that a case knows
// which processes to look for and what was said where other users of the machine can read it.
type recorder struct {
	mu     sync.Mutex
	open   int // sandbox values that are not closed
	bashes []*recorded
	used   map[string]bool // ids of calls that have returned
}

// recorded is one bash that was started.
type recorded struct {
	spec  driver.BashSpec
	ended chan struct{} // closed when Wait has returned
}

func newRecorder() *recorder { return &recorder{} }

// wrap gives a backend whose sandboxes are recorded.
func (r *recorder) wrap(b driver.Backend) driver.Backend {
	open := b.Open
	if open == nil {
		return b
	}
	b.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		sb, err := open(ctx, req)
		if err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.open++
		r.mu.Unlock()
		return r.sandbox(sb), nil
	}
	return b
}

// closed tells whether every sandbox value was closed.
func (r *recorder) closed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open == 0
}

// all gives every bash so far.
func (r *recorder) all() []*recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.bashes)
}

// live gives the ids of the calls' bashes that have not ended: those that wait for a call and those that run one.
func (r *recorder) live() []string {
	var ids []string
	for _, b := range r.all() {
		if b.forCall() && !b.over() {
			ids = append(ids, b.spec.ID)
		}
	}
	return ids
}

// returned notes that a call has returned; its bash may live on for a while.
func (r *recorder) returned(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		r.used = map[string]bool{}
	}
	r.used[id] = true
}

// idle is live without the bashes of calls that have returned.
func (r *recorder) idle() []string {
	ids := r.live()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return r.used[id] })
}

// helpers counts the bashes that live and run no call: the watchdog, and what ends trees.
func (r *recorder) helpers() int {
	n := 0
	for _, b := range r.all() {
		if !b.forCall() && !b.over() {
			n++
		}
	}
	return n
}

// started tells how many bashes were started for calls.
func (r *recorder) started() int {
	n := 0
	for _, b := range r.all() {
		if b.forCall() {
			n++
		}
	}
	return n
}

// forCall tells whether a bash runs calls: then its id is in its environment.
func (b *recorded) forCall() bool {
	return slices.ContainsFunc(b.spec.Env, func(entry string) bool { return strings.HasSuffix(entry, "="+b.spec.ID) })
}

func (b *recorded) over() bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// variable gives the name of the variable that carries a call's id.
func (r *recorder) variable() string {
	for _, b := range r.all() {
		for _, entry := range b.spec.Env {
			if name, value, ok := strings.Cut(entry, "="); ok && value == b.spec.ID && value != "" {
				return name
			}
		}
	}
	return ""
}

func (r *recorder) bash(ctx context.Context, sb driver.Sandbox, spec driver.BashSpec) (driver.Process, error) {
	p, err := sb.Bash(ctx, spec)
	if err != nil {
		return nil, err
	}
	r.note(spec, p)
	return p, nil
}

func (r *recorder) note(spec driver.BashSpec, p driver.Process) {
	rec := &recorded{spec: spec, ended: make(chan struct{})}
	r.mu.Lock()
	r.bashes = append(r.bashes, rec)
	r.mu.Unlock()
	go func() {
		defer close(rec.ended)
		_, _ = p.Wait(context.Background())
	}()
}

// recordedSandbox forwards the two duties; the types below add the abilities that the sandbox has, since package elsewhere
// finds them by assertion.
type recordedSandbox struct {
	driver.Sandbox
	r    *recorder
	once sync.Once
}

func (s *recordedSandbox) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.r.mu.Lock()
		s.r.open--
		s.r.mu.Unlock()
	})
	return s.Sandbox.Close(ctx)
}

func (s *recordedSandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	return s.r.bash(ctx, s.Sandbox, spec)
}

// BashPTY is the sandbox's own, which a harness says that it lacks where it does.
func (s *recordedSandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	p, ok := s.Sandbox.(driver.PTY)
	if !ok {
		return nil, errors.New("this backend has no pseudo-terminals; Harness.Lacks has to say so")
	}
	proc, err := p.BashPTY(ctx, spec, rows, cols)
	if err != nil {
		return nil, err
	}
	s.r.note(spec, proc)
	return proc, nil
}

// Prepare is the sandbox's own, or nothing to do.
func (s *recordedSandbox) Prepare(ctx context.Context) ([]string, error) {
	if p, ok := s.Sandbox.(driver.Preparer); ok {
		return p.Prepare(ctx)
	}
	return nil, nil
}

// ListState is the sandbox's own, or a failure that counts as none.
func (s *recordedSandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	if l, ok := s.Sandbox.(driver.StateLister); ok {
		return l.ListState(ctx, dir)
	}
	return nil, errors.New("this backend lists no state files")
}

type (
	withRemover struct {
		*recordedSandbox
		driver.StateRemover
	}
	withStopper struct {
		*recordedSandbox
		driver.Stopper
	}
	withBoth struct {
		*recordedSandbox
		driver.StateRemover
		driver.Stopper
	}
)

// sandbox wraps sb with as many abilities as calls make use of. The others (files, snapshots, listing) are no part
// of this suite.
func (r *recorder) sandbox(sb driver.Sandbox) driver.Sandbox {
	own := &recordedSandbox{Sandbox: sb, r: r}
	remover, hasRemover := sb.(driver.StateRemover)
	stopper, hasStopper := sb.(driver.Stopper)
	switch {
	case hasRemover && hasStopper:
		return withBoth{own, remover, stopper}
	case hasRemover:
		return withRemover{own, remover}
	case hasStopper:
		return withStopper{own, stopper}
	}
	return own
}
