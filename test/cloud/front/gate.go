package front

import (
	"context"
	"sync"
)

// Gate stands where a daemon in a sandbox may hang: while it is shut nothing passes, in either direction. The zero Gate is open. It is
// safe for concurrent use.
type Gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

// Shut lets nothing pass from now on.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// Open lets pass what waits and what comes.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// IsOpen tells whether the gate is open now.
func (g *Gate) IsOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut == nil
}

// Pass waits while the gate is shut, until ctx is done; false says that it still is.
func (g *Gate) Pass(ctx context.Context) bool {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return true
	}
	select {
	case <-shut:
		return true
	case <-ctx.Done():
		return false
	}
}
