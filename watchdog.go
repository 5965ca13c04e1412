package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// watchdog is one bash that ends what this process leaves when it dies, also by KILL: its stdin is a pipe that only this
// process holds. It needs nothing but bash and knows every call before its bash starts. One that died or does not read is
// replaced. A nil watchdog does nothing.
type watchdog struct {
	p       *place
	closing context.Context // done when it is closed: nothing is begun any more
	cancel  context.CancelFunc

	watches atomic.Bool // calls or sessions holds anything

	mu       sync.Mutex
	proc     driver.Process
	since    time.Time
	calls    map[bashscript.Mark]string // the requests that are in force
	sessions map[uint32]string
	closed   bool
}

// watchdogWait bounds a write to the watchdog, which reads at once unless it is dead or stopped.
const watchdogWait = 2 * time.Second

func newWatchdog(p *place) *watchdog {
	w := &watchdog{p: p, calls: map[bashscript.Mark]string{}, sessions: map[uint32]string{}}
	w.closing, w.cancel = context.WithCancel(context.Background())
	return w
}

// add makes it watch a call, starting it where it does not run yet.
func (w *watchdog) add(ctx context.Context, mark bashscript.Mark, id string, pid int) error {
	if w == nil {
		return nil
	}
	request := bashscript.Watch(mark, id, pid)
	return w.send(ctx, request, func() { w.calls[mark] = request })
}

// addBeside is add, begun now and waited for by the function that it returns: starting a watchdog takes as long as starting a
// bash. It has to be waited for before a bash is told anything; until then it leaves by itself when this process dies.
func (w *watchdog) addBeside(ctx context.Context, mark bashscript.Mark, id string) (wait func() error) {
	if w == nil || w.runs() {
		err := w.add(ctx, mark, id, 0)
		return func() error { return err }
	}
	done := make(chan error, 1)
	w.p.sb.goroutines.Go(func() { done <- w.add(ctx, mark, id, 0) })
	return func() error { return <-done }
}

func (w *watchdog) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proc != nil
}

func (w *watchdog) remove(mark bashscript.Mark) {
	if w != nil {
		w.forget(bashscript.Unwatch(mark), func() { delete(w.calls, mark) })
	}
}

// addSession makes it watch all that the calls of a throw-away session start.
func (w *watchdog) addSession(ctx context.Context, s *Session) error {
	if w == nil {
		return nil
	}
	request := bashscript.WatchSession(s.mark, s.id)
	return w.send(ctx, request, func() { w.sessions[s.mark] = request })
}

func (w *watchdog) removeSession(mark uint32) {
	if w != nil {
		w.forget(bashscript.UnwatchSession(mark), func() { delete(w.sessions, mark) })
	}
}

// send passes a request on and notes what is in force from now on.
func (w *watchdog) send(ctx context.Context, request string, note func()) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.note(note)
	if w.proc != nil {
		if w.write(request) == nil {
			return nil
		}
		_ = w.proc.Kill(ctx)
		closeStreams(w.proc)
		w.proc = nil
		err := w.start(ctx)
		if err == nil {
			w.p.sb.log.Warn("the watchdog did not answer; another one was started") // it had not gone with its sandbox
		}
		return err
	}
	return w.start(ctx)
}

// forget passes on that something needs no watching any more. Nobody waits for more than the write: a watchdog that does not take it is
// replaced behind.
func (w *watchdog) forget(request string, note func()) {
	if !w.mu.TryLock() {
		w.p.sb.behind(func() { w.mu.Lock(); w.forgetLocked(request, note) }) // another one may be being started
		return
	}
	w.forgetLocked(request, note)
}

// forgetLocked is forget by who holds w.mu, which it gives back.
func (w *watchdog) forgetLocked(request string, note func()) {
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.note(note)
	if w.proc == nil || w.write(request) == nil {
		return
	}
	proc := w.proc
	w.p.sb.behind(func() {
		ctx, cancel := context.WithTimeout(w.closing, startWait)
		defer cancel()
		_ = proc.Kill(ctx)
		w.replace(proc)
	})
}

// note changes what is in force. w.mu is held.
func (w *watchdog) note(change func()) {
	change()
	w.watches.Store(len(w.calls)+len(w.sessions) > 0)
}

// start starts a watchdog and tells it all that is in force. One whose connection goes before it is told is tried again: nothing has come of
// it. w.mu is held.
func (w *watchdog) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	stop := context.AfterFunc(w.closing, cancel)
	defer stop()
	for try := 0; ; try++ {
		err := w.tryStart(ctx)
		if _, again := errors.AsType[untold](err); !again || try == startTries || ctx.Err() != nil {
			return err
		}
	}
}

// untold says that a bash which was started could not be told what to do: it has done nothing.
type untold struct{ error }

func (u untold) Unwrap() error { return u.error }

// tryStart is one try of start.
func (w *watchdog) tryStart(ctx context.Context) error {
	proc, err := w.p.startEnder(ctx, w)
	if err != nil {
		return err
	}
	w.proc, w.since = proc, time.Now()
	w.p.sb.goroutines.Go(func() { w.mind(proc) })
	var all strings.Builder
	if w.p.info.Lease {
		all.WriteString(bashscript.Lease(w.p.sb.orphanGrace))
	}
	if w.p.info.Tidy {
		all.WriteString(bashscript.RemoveAtEnd(w.p.info.PrivateDir))
	}
	for _, request := range w.sessions {
		all.WriteString(request)
	}
	for _, request := range w.calls {
		all.WriteString(request)
	}
	if err := w.write(all.String()); err != nil {
		_ = proc.Kill(ctx)
		closeStreams(proc)
		w.proc = nil
		return untold{err}
	}
	return nil
}

// mind renews the lease while there is something to watch, and replaces a watchdog that ended by itself.
func (w *watchdog) mind(proc driver.Process) {
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_, _ = proc.Wait(context.Background())
	}()
	var beat <-chan time.Time
	if w.p.info.Lease {
		ticker := time.NewTicker(max(time.Second/4, min(time.Minute, w.p.sb.orphanGrace/4)))
		defer ticker.Stop()
		beat = ticker.C
	}
	for {
		select {
		case <-beat:
			if !w.renew(proc) {
				return
			}
		case <-ended:
			w.replace(proc)
			return
		}
	}
}

// removeFiles has files removed by the watchdog, where one runs: another bash for that would cost far more. False says that
// somebody else has to.
func (w *watchdog) removeFiles(paths []string) bool {
	if w == nil || !w.mu.TryLock() {
		return false // another one may be being started, which nobody waits for who ends
	}
	defer w.mu.Unlock()
	if w.closed || w.proc == nil {
		return false
	}
	var all strings.Builder
	for _, file := range paths {
		all.WriteString(bashscript.RemoveFile(file))
	}
	return w.write(all.String()) == nil
}

// renew tells whether proc is still the watchdog.
func (w *watchdog) renew(proc driver.Process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.proc != proc {
		return false
	}
	if len(w.calls)+len(w.sessions) > 0 {
		_ = w.write(bashscript.Beat) // an error shows with the next request
	}
	return true
}

// replace starts another watchdog in place of one that ended by itself, unless that is what they do here.
func (w *watchdog) replace(proc driver.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.proc != proc {
		return
	}
	closeStreams(proc)
	w.proc = nil
	if len(w.calls)+len(w.sessions) == 0 || time.Since(w.since) < time.Second || !w.p.usable() {
		return // the next request starts one
	}
	if err := w.start(context.Background()); err != nil {
		w.p.sb.log.Debug("the watchdog ended, and no other one could be started", "error", err)
	}
}

func (w *watchdog) write(request string) error {
	in := w.proc.Stdin()
	if d, ok := in.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Now().Add(watchdogWait)) // where it cannot be set, a write is not bounded
	}
	_, err := io.WriteString(in, request)
	return err
}

// close lets it end what is still watched, which goes on behind; it waits for that until ctx is done, and tells whether it saw the end.
func (w *watchdog) close(ctx context.Context) (ended bool) {
	if w == nil {
		return false
	}
	late := time.AfterFunc(closeEnd, w.cancel) // one may be being started
	defer late.Stop()
	w.mu.Lock()
	proc, closed := w.proc, w.closed
	w.closed = true
	w.mu.Unlock()
	if proc == nil || closed {
		return false
	}
	_ = proc.Stdin().Close()
	if w.p.sb.readied().IsZero() {
		// No bash here has ever answered: what was started is none, and will not end by itself.
		_ = proc.Kill(ctx)
	}
	_, err := proc.Wait(ctx)
	closeStreams(proc)
	return err == nil
}

// abandon gives up a watchdog whose sandbox is lost.
func (w *watchdog) abandon(ctx context.Context) {
	if w == nil {
		return
	}
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.proc != nil {
		_ = w.proc.Kill(ctx)
		closeStreams(w.proc)
	}
}

func closeStreams(p driver.Process) {
	_ = p.Stdin().Close()
	_ = p.Stdout().Close()
	_ = p.Stderr().Close()
}

// startEnder starts a bash that ends trees, for w or, where that is nil, for one request; what it prints on stderr is nothing.
func (p *place) startEnder(ctx context.Context, w *watchdog) (driver.Process, error) {
	spec := driver.BashSpec{ID: bashscript.NewID(), Args: p.scripts.EndArgs()}
	if w != nil {
		spec.Watchdog, spec.Watches = true, w.watches.Load
	}
	proc, err := p.drv.Bash(ctx, spec)
	if err != nil {
		return nil, err
	}
	if _, err := proc.Stdin().Write(p.scripts.End()); err != nil {
		_ = proc.Kill(ctx)
		closeStreams(proc)
		return nil, untold{err}
	}
	return proc, nil
}

// end ends, by a second bash in the sandbox, all that request names: TERM, the grace, KILL. It returns what could not be
// ended; confirmed is false where no answer came before ctx was done.
func (p *place) end(ctx context.Context, request string) (left []Survivor, confirmed bool) {
	proc, err := p.startEnder(ctx, nil)
	p.noteEnder(err)
	if err != nil {
		p.sb.log.Debug("no bash to end a call's processes", "error", err)
		return nil, false
	}
	defer closeStreams(proc)
	token := bashscript.NewID()
	if _, err := io.WriteString(proc.Stdin(), request+bashscript.EndNow(token, p.sb.grace)); err != nil {
		return nil, false
	}
	answer := make(chan []bashscript.Left, 1)
	p.sb.goroutines.Go(func() {
		defer close(answer)
		if found, ok := readEnd(proc.Stdout(), token); ok {
			answer <- found
		}
	})
	select {
	case found, ok := <-answer:
		for _, f := range found {
			left = append(left, Survivor{PID: f.PID, Command: f.Name})
		}
		return left, ok
	case <-ctx.Done():
		return nil, false
	}
}

// noteEnder keeps why no bash could be started to end a call's processes; nil where one could.
func (p *place) noteEnder(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noEnder = err
}

// unconfirmed says for people that the end of a call was not confirmed, and why where that is known.
func (p *place) unconfirmed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := "it was not confirmed in time that all processes of this call ended"
	if p.noEnder != nil {
		text += ": " + p.noEnder.Error()
	}
	if p.canStop() {
		text += fmt.Sprintf("; where that cannot be done within %v the sandbox is stopped, with all that runs in it", p.sb.stopAfter)
	}
	return text
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
