package mcpserver

import (
	"context"
	"errors"
	"io"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxMessage is how long one message of a client may be, in bytes: a file that it writes, with its quoting.
const maxMessage = 64 << 20

// Serve serves one client on a pair of streams, a message on each line, until it closes its end, ctx is done or the server is
// closed. Commands that run then are interrupted. It closes in and out. The error is nil where the client just left.
func (s *Server) Serve(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	ctx, left := context.WithCancel(ctx)
	defer left()
	// The end of the stream is seen here: calls that run must not go on for a client that is gone.
	ss, err := s.mcp.Connect(ctx, &mcp.IOTransport{Reader: &ending{in, left}, Writer: out, MaxLineLength: maxMessage}, nil)
	if err != nil {
		return failure("unavailable", "", "serve: %w", err)
	}
	// Made now, so that its end is waited for.
	c, err := s.client(ss)
	if err != nil {
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
		c.close()
		_ = ss.Close()
		err = <-gone
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
