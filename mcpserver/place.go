package mcpserver

import (
	"context"
	"sync"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// place is one backend that clients can reach, and its sandbox once a call has needed it.
type place struct {
	server *Server
	name   string
	cfg    *config.Config
	back   driver.Backend

	opening chan struct{} // holds a token while nobody opens or closes

	mu        sync.Mutex
	sandbox   *elsewhere.Sandbox
	closed    bool
	listeners map[*progress]struct{} // calls that are told of slow steps
}

func newPlace(s *Server, name string, cfg *config.Config, back driver.Backend) *place {
	p := &place{server: s, name: name, cfg: cfg, back: back, opening: make(chan struct{}, 1), listeners: map[*progress]struct{}{}}
	p.opening <- struct{}{}
	return p
}

// open gives the sandbox, and opens it where nobody has. A failure is not kept: the next call tries again.
func (p *place) open(ctx context.Context, told *progress) (*elsewhere.Sandbox, error) {
	defer p.listen(told)()
	select {
	case <-p.opening:
	case <-ctx.Done():
		return nil, failure(driver.KindCanceled, "try again", "the sandbox was not open yet: %w", ctx.Err())
	}
	defer func() { p.opening <- struct{}{} }()
	p.mu.Lock()
	sandbox, closed := p.sandbox, p.closed
	p.mu.Unlock()
	if closed {
		return nil, failure(driver.KindUnavailable, "start it again", "the server is ending")
	}
	if sandbox != nil {
		return sandbox, nil
	}
	sandbox, err := elsewhere.OpenSandbox(ctx, p.server.opts.Config, &elsewhere.SandboxOptions{
		Backend: p.name, Task: p.server.opts.Task, Environ: p.server.opts.Environ, ThrowAway: p.server.opts.ThrowAway,
		Logger: p.server.log, Progress: p.tell, Approve: p.server.approve,
		TracerProvider: p.server.opts.TracerProvider, MeterProvider: p.server.opts.MeterProvider,
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sandbox = sandbox
	return sandbox, nil
}

// listen lets a call hear of slow steps until stop is called.
func (p *place) listen(to *progress) (stop func()) {
	if to == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[to] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, to)
	}
}

// tell passes the text about a slow step on to the calls that wait here.
func (p *place) tell(text string) {
	if text == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for to := range p.listeners {
		to.say(text)
	}
}

func (p *place) close(ctx context.Context) error {
	select {
	case <-p.opening:
	default: // only then ctx matters: what is open is closed also where there is no time left
		select {
		case <-p.opening:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer func() { p.opening <- struct{}{} }()
	p.mu.Lock()
	sandbox := p.sandbox
	p.sandbox, p.closed = nil, true
	p.mu.Unlock()
	if sandbox == nil {
		return nil
	}
	return sandbox.Close(ctx)
}

// home is the home directory there; "" while nothing is open.
func (p *place) home() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sandbox == nil {
		return ""
	}
	return p.sandbox.Info().Home
}
