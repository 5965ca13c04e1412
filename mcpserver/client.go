package mcpserver

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

const (
	// maxSessions is how many sessions one client may have: each may keep a bash waiting.
	maxSessions = 32
	// maxOutputs is how many outputs of a client can be read afterwards; the files of older ones stay for their time.
	maxOutputs = 256
)

// looking is the session in which a file is looked at before it is written: no client can give it this name.
const looking = "\x00"

// client is what belongs to one connection: its sessions and what they left to be read. Nobody else reaches it.
type client struct {
	server *Server
	ss     *mcp.ServerSession
	ctx    context.Context // done when the connection or the server has ended
	cancel context.CancelFunc

	mu       sync.Mutex
	sessions map[sessionKey]*elsewhere.Session
	outputs  map[string]string // files by the id of their call
	order    []string          // ids of outputs, the oldest first
	cursors  map[string]cursor // how far each job's output was handed out, by backend and id
	closed   bool
	calls    sync.WaitGroup
}

type sessionKey struct{ backend, name string }

// cursor is a place in a job's output, and what a terminal's sequences were in the middle of there.
type cursor struct {
	at     int64
	escape escape
}

func newClient(s *Server, ss *mcp.ServerSession) *client {
	c := &client{
		server: s, ss: ss, sessions: map[sessionKey]*elsewhere.Session{}, outputs: map[string]string{}, cursors: map[string]cursor{},
	}
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	return c
}

// begin counts a call in. Its context is done when the request was cancelled or the connection has ended; done is called at
// its end.
func (c *client) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, failure(driver.KindUnavailable, "connect again", "the connection is closed")
	}
	c.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
		c.calls.Done()
	}, nil
}

// session gives the session of that name on a backend; the first use opens it.
func (c *client) session(ctx context.Context, p *place, name string, told *progress) (*elsewhere.Session, error) {
	if name != "" && name != looking && !safename.Plain(name) {
		return nil, failure(driver.KindConfig, "use letters, digits, dots, dashes and underscores", "%.80q is no name of a session", name)
	}
	sandbox, err := p.open(ctx, told)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := sessionKey{p.name, name}
	switch {
	case c.closed:
		return nil, failure(driver.KindUnavailable, "connect again", "the connection is closed")
	case c.sessions[key] != nil:
		return c.sessions[key], nil
	case len(c.sessions) >= maxSessions:
		return nil, failure(driver.KindConfig, "use one of those that are there", "there are %d sessions already", len(c.sessions))
	}
	session, err := sandbox.Session(ctx, c.server.sessionName(name))
	if err != nil {
		return nil, err
	}
	c.sessions[key] = session
	return session, nil
}

// sessionName is the lasting name of what a client calls by a name; "" is a throw-away session.
func (s *Server) sessionName(name string) string {
	switch {
	case s.opts.Session == "", name == looking:
		return ""
	case name == "":
		return s.opts.Session
	}
	return s.opts.Session + "." + name
}

// keepOutput notes that the whole output of a call is in a file.
func (c *client) keepOutput(id, file string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outputs[id] = file
	c.order = append(c.order, id)
	if len(c.order) > maxOutputs {
		delete(c.outputs, c.order[0])
		c.order = c.order[1:]
	}
}

// output is the file with the output of one of this client's calls.
func (c *client) output(id string) (file string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file, ok = c.outputs[id]
	return file, ok
}

// cursor is how far the output of a job was handed out, and moveCursor moves it.
func (c *client) cursor(key string) cursor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cursors[key]
}

func (c *client) moveCursor(key string, to cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.at > c.cursors[key].at {
		c.cursors[key] = to
	}
}

// close interrupts what runs and gives the sessions up. It waits for that, at most closeWait.
func (c *client) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	sessions := c.sessions
	c.mu.Unlock()
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	c.awaitCalls(ctx)
	for key, session := range sessions {
		if err := session.Close(ctx); err != nil {
			c.server.log.Warn("a session was not closed", "backend", key.backend, "session", key.name, "error", err)
		}
	}
}

// awaitCalls waits for the end of the calls that run, which were interrupted.
func (c *client) awaitCalls(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callsWait)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		c.server.log.Warn("a call of a client that has left has not ended in time")
	}
}

// seconds is a time as a model gives it.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
