package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// lateEnd bounds how long the end of a call is tried for behind its result, and lateTry one try.
	lateEnd = time.Minute
	lateTry = 10 * time.Second
	// stopAfter is for how long the engine says that a sandbox runs, in which a call's end cannot be confirmed, before the sandbox is
	// stopped; stopWait bounds that, what it takes to store the files included.
	stopAfter = 10 * time.Second
	stopWait  = 2 * time.Minute
	// closeEnd is how long the watchdog may take on Close, beside the grace, to end what is not known to have ended.
	closeEnd = 5 * time.Second
)

// endLater has a call ended behind its result, whose end was not confirmed in time.
func (c *call) endLater(request string) {
	c.sh.at.noteUnended(c.sh.id, true)
	c.s.sb.behind(func() { c.endBehind(request) })
}

// endBehind goes on ending a call whose end was not confirmed in time, and lets the next result say what came of it. Where the engine
// answers all the while and the driver can, the sandbox is stopped at last: what goes on in it cannot be reached, and is paid for. An
// engine that does not answer is no reason: then it is the way there that is broken.
func (c *call) endBehind(request string) {
	sh, s, p := c.sh, c.s, c.sh.at
	ctx, cancel := context.WithTimeout(context.Background(), lateEnd)
	defer cancel()
	var since time.Time // when the engine answered first
	var failed error    // of the stop
	for ctx.Err() == nil && p == s.sb.at() {
		lost, silent := p.look(ctx)
		switch {
		case lost != nil:
			return // they went with the sandbox
		case silent != nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= s.sb.stopAfter && p.canStop():
			if failed = p.stop(); failed == nil {
				return
			}
		}
		tctx, done := context.WithTimeout(ctx, lateTry)
		left, confirmed := p.end(tctx, request)
		done()
		if confirmed {
			p.noteUnended(sh.id, false)
			sh.release()
			s.tell(fmt.Sprintf("the processes of an earlier call (%s) have ended now, but for %d", sh.id, len(left)))
			return
		}
		if c.await(ctx.Done(), s.sb.closing, time.Second); closedNow(s.sb.closing) {
			return // Close sees to it
		}
	}
	text := "it is not known whether all processes of an earlier call (" + sh.id + ") have ended"
	if failed != nil {
		text += ", and the sandbox could not be stopped: " + failed.Error()
	}
	s.tell(text)
}

func (p *place) canStop() bool {
	_, ok := p.drv.(driver.Stopper)
	return ok
}

// noteUnended notes that the end of a call (its id) is not confirmed, or that it is now.
func (p *place) noteUnended(id string, unended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if unended {
		p.unended = append(p.unended, id)
	} else {
		p.unended = slices.DeleteFunc(p.unended, func(other string) bool { return other == id })
	}
}

// unendedCalls are the ids of the calls whose end is not confirmed, for people; "" for none.
func (p *place) unendedCalls() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.unended, ", ")
}

// stop is the last resort against calls whose end cannot be confirmed: all in the sandbox ends. No bash is begun here
// meanwhile; whoever wants one waits for the sandbox that takes this one's place. An error says that it may run on.
func (p *place) stop() error {
	stopper, ok := p.drv.(driver.Stopper)
	if !ok {
		return errors.ErrUnsupported
	}
	p.stopping <- struct{}{}
	defer func() { <-p.stopping }()
	if p.stopped.Load() != nil {
		return nil // it was meanwhile
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWait)
	defer cancel()
	calls := p.unendedCalls()
	why := "the sandbox was stopped, with the calls and jobs in it, since the end of an earlier call's processes (" + calls + ") could not be confirmed"
	p.sb.log.Warn("the sandbox is stopped: it cannot be confirmed that the processes of a call have ended", "sandbox", p.info.SandboxID, "calls", calls)
	p.stopped.Store(&why)
	p.lost.Store(true)
	err := stopper.Stop(ctx)
	if err != nil {
		p.lost.Store(false)
		p.stopped.Store(nil)
		p.sb.log.Warn("the sandbox was not stopped", "sandbox", p.info.SandboxID, "error", err)
	}
	return err
}

// awaitStop waits until nobody stops the sandbox, and tells whether somebody did.
func (p *place) awaitStop(ctx context.Context) (waited bool) {
	select {
	case p.stopping <- struct{}{}:
		<-p.stopping
		return false
	default:
	}
	select {
	case p.stopping <- struct{}{}:
		<-p.stopping
	case <-ctx.Done():
	}
	return true
}

// endUnended sees to it on Close that nothing goes on of calls whose end was not confirmed: by the watchdog, which closing it has end what
// it watches, else by stopping the sandbox.
func (p *place) endUnended(ctx context.Context) error {
	if p.unendedCalls() == "" || !p.canStop() || p.lost.Load() {
		p.watch.close(ctx)
		return nil
	}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.sb.grace+closeEnd)
	defer cancel()
	if p.watch.close(wctx) {
		return nil
	}
	return p.stop()
}
