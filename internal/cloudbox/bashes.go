package cloudbox

import (
	"context"
	"sync"
)

// Bash is a bash on a service's terminals.
type Bash interface {
	// Gone is closed when nothing of it is here any more.
	Gone() <-chan struct{}
	// Abandon gives its terminals up at once.
	Abandon()
}

// Bashes are the bashes of a sandbox value, and what runs behind its calls, from its opening to its end. Make it by NewBashes. It is safe
// for concurrent use.
type Bashes[B interface {
	comparable
	Bash
}] struct {
	ctx    context.Context // done at the end
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ended  bool       // nothing more may be begun behind
	live   map[B]bool // nil from the end on
}

// NewBashes makes a Bashes.
func NewBashes[B interface {
	comparable
	Bash
}]() *Bashes[B] {
	b := &Bashes[B]{live: map[B]bool{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Behind runs f behind the calls; its context is done at the end.
func (b *Bashes[B]) Behind(f func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.work.Go(func() { f(b.ctx) })
	}
}

// Own notes a bash until it is gone, or gives it up: false says that the sandbox is closed.
func (b *Bashes[B]) Own(p B) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live == nil {
		go p.Abandon()
		return false
	}
	b.live[p] = true
	b.work.Go(func() {
		<-p.Gone()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.live, p)
	})
	return true
}

// Any tells whether f holds for one of them.
func (b *Bashes[B]) Any(f func(B) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range b.live {
		if f(p) {
			return true
		}
	}
	return false
}

// Closed tells whether Close was called.
func (b *Bashes[B]) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// Close says that no more calls come; first is false where that was said before.
func (b *Bashes[B]) Close() (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = !b.closed
	b.closed = true
	return first
}

// End gives up the bashes that are left, and waits for what runs behind. Where the sandbox runs on, that may go on to end what it has there.
func (b *Bashes[B]) End(runsOn bool) {
	b.mu.Lock()
	b.closed, b.ended = true, !runsOn
	live := b.live
	b.live = nil
	b.mu.Unlock()
	for p := range live {
		p.Abandon()
	}
	if !runsOn {
		b.cancel()
	}
	b.work.Wait()
	b.cancel()
}
