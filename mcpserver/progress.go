package mcpserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere/internal/output"
)

const (
	// progressEvery is the least time between two notifications of one call.
	progressEvery = 250 * time.Millisecond
	// progressBytes is how much output one notification carries at most; of more the youngest.
	progressBytes = 4 << 10
	// progressWait is how long one notification may take.
	progressWait = 5 * time.Second
)

// progress sends the output of a call to its client while it runs, as notifications. A client that does not read holds up
// nothing but them. Nil is one that nobody asked for.
type progress struct {
	ss    *mcp.ServerSession
	token any
	wake  chan struct{} // holds a token when there is something to send
	done  chan struct{}
	ended chan struct{} // closed when nothing is sent any more

	mu      sync.Mutex
	decoder output.Decoder
	pending string // not sent yet, its youngest part
	skipped int    // bytes of text before pending that are not sent
	bytes   int64  // of output so far
	steps   int64  // of texts so far
	sent    float64
}

// newProgress begins to report for a request, if it wants that. stop sends what is left and ends it.
func newProgress(ctx context.Context, req *mcp.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	g := &progress{ss: req.Session, token: token, wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(g.ended)
		g.run(context.WithoutCancel(ctx))
	}()
	return g
}

// Write takes output.
func (g *progress) Write(p []byte) (int, error) {
	g.mu.Lock()
	g.bytes += int64(len(p))
	g.add(g.decoder.Decode(p))
	g.mu.Unlock()
	g.notify()
	return len(p), nil
}

// say sends a text that is no output.
func (g *progress) say(text string) {
	g.mu.Lock()
	g.steps++
	g.add("[" + text + "]\n")
	g.mu.Unlock()
	g.notify()
}

// add keeps the youngest of what is to be sent. g.mu is held.
func (g *progress) add(text string) {
	g.pending += text
	if over := len(g.pending) - progressBytes; over > 0 {
		g.skipped += over
		g.pending = strings.ToValidUTF8(g.pending[over:], "")
	}
}

func (g *progress) notify() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

func (g *progress) run(ctx context.Context) {
	for {
		select {
		case <-g.wake:
			g.send(ctx)
		case <-g.done:
			g.send(ctx)
			return
		}
		select {
		case <-time.After(progressEvery):
		case <-g.done:
		}
	}
}

// send sends what has come since the last time.
func (g *progress) send(ctx context.Context) {
	g.mu.Lock()
	text, skipped := g.pending, g.skipped
	g.pending, g.skipped = "", 0
	// It has to grow with each one, also where it is no output that came.
	g.sent = max(g.sent+1, float64(g.bytes))
	at := g.sent
	g.mu.Unlock()
	if text == "" {
		return
	}
	if skipped > 0 {
		text = fmt.Sprintf("[... %d bytes ...]", skipped) + text
	}
	ctx, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	_ = g.ss.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: g.token, Progress: at, Message: text})
}

// stop sends what is left, which a client that does not read holds up for a short time only. Nil is fine.
func (g *progress) stop() {
	if g == nil {
		return
	}
	close(g.done)
	// The transport does not heed a context while it writes.
	select {
	case <-g.ended:
	case <-time.After(progressWait):
	}
}
