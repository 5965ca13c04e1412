package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage is how long one message of a client may be, in bytes: a file that it writes, with its quoting.
const maxMessage = 64 << 20

// Serve serves one client on a pair of streams, a message on each line, until it closes its end, ctx is done or the server is
// closed. Commands that run then are interrupted. It closes in and out. The error is nil where the client just left. A client that does
// not read holds up its own answers alone, and its end for no more than half a minute; a write of out may then still be on its way.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, left := context.WithCancel(ctx)
	defer left()
	// The end of the stream is seen here: calls that run must not go on for a client that is gone.
	ss, err := s.mcp.Connect(ctx, &mcp.IOTransport{Reader: &ending{in, left}, Writer: &outlet{to: out, ending: ctx.Done()}, MaxLineLength: maxMessage}, nil)
	if err != nil {
		return failure("unavailable", "", "serve: %w", err)
	}
	// Made now, so that its end is waited for.
	c, err := s.client(ss)
	if err != nil {
		left()
		_ = ss.Close()
		return err
	}
	stop := context.AfterFunc(s.ctx, left)
	defer stop()
	gone := make(chan error, 1)
	go func() { gone <- ss.Wait() }()
	select {
	case err = <-gone:
	case <-ctx.Done():
		late := time.After(closeWait)
		c.close()
		go func() { _ = ss.Close() }()
		select {
		case err = <-gone:
		case <-late:
		}
	}
	c.close()
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// ending is a stream whose end is told.
type ending struct {
	io.ReadCloser
	ended func()
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil {
		e.ended()
	}
	return n, err
}

// outlet is a stream to a client that may have stopped reading. While the connection lasts a write waits for it; when it ends, no longer
// than lastWrite, and then the stream is given up.
type outlet struct {
	to     io.WriteCloser
	ending <-chan struct{}

	mu  sync.Mutex // of one write at a time
	err error      // of the first write that failed: what comes behind it would be no message
}

// errNotRead is of a message that its client did not take.
var errNotRead = errors.New("the client does not read")

func (o *outlet) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	type outcome struct {
		n   int
		err error
	}
	end := make(chan outcome, 1)
	own := bytes.Clone(p) // it may be written when we have returned
	go func() {
		n, err := o.to.Write(own)
		end <- outcome{n, err}
	}()
	var all outcome
	select {
	case all = <-end:
	case <-o.ending:
		select {
		case all = <-end:
		case <-time.After(lastWrite):
			all.err = errNotRead
		}
	}
	o.err = all.err
	return all.n, all.err
}

func (o *outlet) Close() error { return o.to.Close() }
