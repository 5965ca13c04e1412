package ptychannel

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

//go:embed terminal.sh
var leaderSource string

var leaderLine = oneLine(leaderSource)

// Lead gives the command line of a leader of ours that runs argv on its terminal, and the token by which it says how that ended,
// for TerminalSpec. Where a provider shows nothing more once the leader has ended, what argv showed last would be lost otherwise. argv
// then has a process group of its own, in front, and is not its session's leader.
func Lead(argv []string) (command []string, token string) {
	token = random()
	// In halves: the shell shows what it is given to read.
	return append([]string{"bash", "--noprofile", "--norc", "-p", "-c", leaderLine, "leader", token[:16], token[16:]}, argv...), token
}

// TerminalSpec says what runs on a Terminal.
type TerminalSpec struct {
	// Name says in errors where it runs ("the sandbox x").
	Name string
	// Kill ends it by other means than its terminal.
	Kill func(ctx context.Context) error
	// Token is Lead's; "" where the connection's Status says how it ended.
	Token string
}

// TerminalConn is a Conn whose terminal is a person's.
type TerminalConn interface {
	Conn
	// Status is what the far end said about the end of what ran on the terminal; ok is false where it did not. It is asked when Read
	// has failed.
	Status() (status driver.ExitStatus, ok bool)
	// Resize tells the terminal a new size, in characters.
	Resize(ctx context.Context, rows, cols uint16) error
}

// Terminal is a bash that has a terminal for itself: no relay stands between. It is a driver.PTYProcess. What is shown is read at
// once and kept until it is taken, at most shownAhead of it, since providers drop a connection that does not keep up.
type Terminal struct {
	conn   TerminalConn
	spec   TerminalSpec
	ctx    context.Context // done when the connection is given up
	cancel context.CancelFunc
	done   chan struct{} // closed when status and failed are set

	status driver.ExitStatus
	failed error

	mu      sync.Mutex
	changed *sync.Cond
	shown   []byte
	end     error // why nothing more is shown; nil before
	unread  bool  // closed by the reader
}

// shownAhead is how much may wait to be taken before no more is read.
const shownAhead = 64 << 20

// NewTerminal makes a Terminal of a connection on which a bash runs, and owns the connection.
func NewTerminal(conn TerminalConn, spec TerminalSpec) *Terminal {
	t := &Terminal{conn: conn, spec: spec, done: make(chan struct{})}
	t.changed = sync.NewCond(&t.mu)
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.read()
	return t
}

// read takes what is shown until there is no more.
func (t *Terminal) read() {
	split := t.splitter()
	for {
		p, err := t.conn.Read(t.ctx)
		t.mu.Lock()
		ended := split(p, err != nil)
		if !ended && err == nil {
			t.changed.Broadcast()
			for len(t.shown) > shownAhead && !t.unread && t.ctx.Err() == nil {
				t.changed.Wait()
			}
			t.mu.Unlock()
			continue
		}
		if !ended {
			t.noteEnd(err)
		}
		t.mu.Unlock()
		close(t.done)
		t.changed.Broadcast()
		_ = t.conn.Close()
		t.cancel()
		return
	}
}

// splitter keeps what is shown, and finds the leader's word in it, behind which is nothing. t.mu is held when it is called.
func (t *Terminal) splitter() func(p []byte, last bool) (ended bool) {
	keep := func(p []byte) {
		if !t.unread && t.end == nil {
			t.shown = append(t.shown, p...)
		}
	}
	if t.spec.Token == "" {
		return func(p []byte, _ bool) bool {
			keep(p)
			return false
		}
	}
	m := newMarks(t.spec.Token)
	return func(p []byte, last bool) bool {
		m.feed(p, keep, func(fields []string) {
			if len(fields) == 2 && fields[0] == "x" && t.end == nil {
				code, _ := strconv.Atoi(fields[1])
				t.status, t.end = driver.ExitStatus{Code: code, Signal: signame.Of(code - 128)}, io.EOF
			}
		})
		if last {
			m.rest(keep)
		}
		return t.end != nil
	}
}

// noteEnd notes why nothing more is shown. t.mu is held.
func (t *Terminal) noteEnd(err error) {
	why := err.Error()
	if status, ok := t.conn.Status(); ok {
		t.status, t.end = status, io.EOF
		return
	}
	if t.ctx.Err() != nil {
		why = "the terminal was closed"
	}
	t.failed = lost(Spec{Name: t.spec.Name}, why)
	t.end = t.failed
}

// Stdin is what is typed. Its Close does nothing.
func (t *Terminal) Stdin() io.WriteCloser { return typed{t} }

// Stdout is what is shown. Its Close gives the terminal up.
func (t *Terminal) Stdout() io.ReadCloser { return shown{t} }

// Stderr is empty.
func (t *Terminal) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Wait waits for the bash's end.
func (t *Terminal) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-t.done:
		return t.status, t.failed
	default:
	}
	select {
	case <-t.done:
		return t.status, t.failed
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}

// Kill ends the bash and what it started that carries its id.
func (t *Terminal) Kill(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	default:
		return t.spec.Kill(ctx)
	}
}

// Resize tells the terminal its new size.
func (t *Terminal) Resize(ctx context.Context, rows, cols uint16) error {
	return t.conn.Resize(ctx, rows, cols)
}

// Gone is closed when nothing of the terminal is here any more.
func (t *Terminal) Gone() <-chan struct{} { return t.done }

// Abandon gives the terminal up, which ends what runs on it.
func (t *Terminal) Abandon() {
	t.mu.Lock()
	t.unread, t.shown = true, nil
	t.mu.Unlock()
	t.cancel()
	_ = t.conn.Close()
	t.changed.Broadcast()
}

type typed struct{ t *Terminal }

func (w typed) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		size := min(len(p), MaxWrite)
		if err := w.t.conn.Write(w.t.ctx, p[:size]); err != nil {
			if w.t.ctx.Err() != nil {
				err = io.ErrClosedPipe
			}
			return n, fmt.Errorf("typing on a terminal: %w", err)
		}
		n, p = n+size, p[size:]
	}
	return n, nil
}

func (typed) Close() error { return nil }

type shown struct{ t *Terminal }

func (r shown) Read(p []byte) (int, error) {
	t := r.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.shown) == 0 && t.end == nil && !t.unread {
		t.changed.Wait()
	}
	switch {
	case t.unread:
		return 0, os.ErrClosed
	case len(t.shown) == 0:
		return 0, t.end
	}
	n := copy(p, t.shown)
	if t.shown = t.shown[n:]; len(t.shown) == 0 {
		t.shown = nil
	}
	t.changed.Broadcast()
	return n, nil
}

func (r shown) Close() error {
	r.t.Abandon()
	return nil
}

var _ driver.PTYProcess = (*Terminal)(nil)
