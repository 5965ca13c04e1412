package elsewhere

import (
	"context"
	"io"
	"strings"
	"sync"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// watchdog is one bash that ends what this process leaves when it dies, also by KILL: its stdin is a pipe that only this
// process holds. It needs nothing but bash and knows every call before its bash starts. A nil watchdog does nothing.
type watchdog struct {
	sb *Sandbox

	mu     sync.Mutex
	proc   driver.Process
	closed bool
}

// add makes it watch a call, starting it where it does not run yet.
func (w *watchdog) add(ctx context.Context, mark bashscript.Mark, id string) error {
	return w.send(ctx, bashscript.Watch(mark, id, 0))
}

// addSession makes it watch all that the calls of a throw-away session start.
func (w *watchdog) addSession(ctx context.Context, s *Session) error {
	return w.send(ctx, bashscript.WatchSession(s.mark, s.id))
}

// named tells it the process id of a call's bash, for systems where processes carry no mark that can be read.
func (w *watchdog) named(mark bashscript.Mark, id string, pid int) {
	_ = w.send(context.Background(), bashscript.Watch(mark, id, pid))
}

func (w *watchdog) remove(mark bashscript.Mark) {
	_ = w.send(context.Background(), bashscript.Unwatch(mark))
}

func (w *watchdog) removeSession(s *Session) {
	_ = w.send(context.Background(), bashscript.UnwatchSession(s.mark))
}

func (w *watchdog) send(ctx context.Context, request string) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	if w.proc == nil {
		proc, err := w.sb.startEnder(ctx)
		if err != nil {
			return err
		}
		w.proc = proc
	}
	_, err := io.WriteString(w.proc.Stdin(), request)
	return err
}

// close lets it end what is still watched, which goes on behind; it waits for that until ctx is done.
func (w *watchdog) close(ctx context.Context) {
	if w == nil {
		return
	}
	w.mu.Lock()
	proc, closed := w.proc, w.closed
	w.closed = true
	w.mu.Unlock()
	if proc == nil || closed {
		return
	}
	_ = proc.Stdin().Close()
	_, _ = proc.Wait(ctx)
}

// startEnder starts a bash that ends trees; what it prints on stderr is nothing.
func (sb *Sandbox) startEnder(ctx context.Context) (driver.Process, error) {
	proc, err := sb.drv.Bash(ctx, driver.BashSpec{ID: bashscript.NewID(), Args: sb.scripts.EndArgs()})
	if err != nil {
		return nil, err
	}
	if _, err := proc.Stdin().Write(sb.scripts.End()); err != nil {
		_ = proc.Kill(ctx)
		return nil, err
	}
	return proc, nil
}

// end ends, by a second bash in the sandbox, all that request names: TERM, the grace, KILL. It returns what could not be
// ended; confirmed is false where no answer came before ctx was done.
func (sb *Sandbox) end(ctx context.Context, request string) (left []Survivor, confirmed bool) {
	proc, err := sb.startEnder(ctx)
	if err != nil {
		sb.log.Warn("no bash to end a call's processes", "error", err)
		return nil, false
	}
	defer func() {
		_ = proc.Stdin().Close()
		_ = proc.Stdout().Close()
		_ = proc.Stderr().Close()
	}()
	token := bashscript.NewID()
	if _, err := io.WriteString(proc.Stdin(), request+bashscript.EndNow(token, sb.grace)); err != nil {
		return nil, false
	}
	answer := make(chan []bashscript.Left, 1)
	sb.goroutines.Go(func() {
		defer close(answer)
		if found, ok := readEnd(proc.Stdout(), token); ok {
			answer <- found
		}
	})
	select {
	case found, ok := <-answer:
		for _, p := range found {
			left = append(left, Survivor{PID: p.PID, Command: p.Name})
		}
		return left, ok
	case <-ctx.Done():
		return nil, false
	}
}

// readEnd reads until the answer is whole.
func readEnd(r io.Reader, token string) ([]bashscript.Left, bool) {
	var text strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := r.Read(buffer)
		text.Write(buffer[:n])
		if left, done := bashscript.ParseEnd(token, text.String()); done {
			return left, true
		}
		if err != nil {
			return nil, false
		}
	}
}
