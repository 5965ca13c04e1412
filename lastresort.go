package elsewhere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// lateEnd bounds how long the end of a call is tried for behind its result, lateTry one try; lateEvery is between two.
	lateEnd   = time.Minute
	lateTry   = 10 * time.Second
	lateEvery = time.Second
	// stopAfter is for how long the engine says that a sandbox runs, in which a call's end cannot be confirmed, before the sandbox is
	// stopped; stopWait bounds that, what it takes to store the files included.
	stopAfter = 10 * time.Second
	stopWait  = 2 * time.Minute
	// closeEnd is how long the watchdog may take on Close, beside the grace, to end what is not known to have ended.
	closeEnd = 5 * time.Second
)

// unended is a call whose end is not confirmed.
type unended struct {
	id      string
	request string // what ends it, for place.end
}

// endLater has a call ended behind its result, whose end was not confirmed in time.
func (c *call) endLater(request string) {
	p := c.sh.at
	p.mu.Lock()
	p.unended = append(p.unended, unended{c.sh.id, request})
	p.mu.Unlock()
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
		if left, confirmed := p.endLate(ctx, unended{sh.id, request}); confirmed {
			sh.release()
			s.tell(fmt.Sprintf("the processes of an earlier call (%s) have ended now, but for %d", sh.id, len(left)))
			return
		}
		if c.await(ctx.Done(), s.sb.closing, lateEvery); closedNow(s.sb.closing) {
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

// endLate is one more try to end a call; one that is confirmed is no longer among those that are not.
func (p *place) endLate(ctx context.Context, u unended) (left []Survivor, confirmed bool) {
	ctx, cancel := context.WithTimeout(ctx, lateTry)
	defer cancel()
	if left, confirmed = p.end(ctx, u.request); confirmed {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unended = slices.DeleteFunc(p.unended, func(other unended) bool { return other.id == u.id })
	}
	return left, confirmed
}

// unendedCalls are the calls whose end is not confirmed, and their ids for people.
func (p *place) unendedCalls() (calls []unended, ids string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make([]string, len(p.unended))
	for i, u := range p.unended {
		names[i] = u.id
	}
	return slices.Clone(p.unended), strings.Join(names, ", ")
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
	_, calls := p.unendedCalls()
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
// it watches, else by bashes that end them, and where these get no answer though the engine says that the sandbox runs, by stopping it. What
// was not confirmed long ago may well be confirmed now.
func (p *place) endUnended(ctx context.Context) error {
	own := context.WithoutCancel(ctx)
	sctx, cancel := context.WithTimeout(own, stopWait)
	p.awaitStop(sctx)
	cancel()
	calls, _ := p.unendedCalls()
	if len(calls) == 0 || !p.canStop() || p.lost.Load() {
		p.watch.close(ctx)
		return nil
	}
	wctx, cancel := context.WithTimeout(own, p.sb.grace+closeEnd)
	defer cancel()
	if p.watch.close(wctx) {
		return nil
	}
	return p.endOrStop(own)
}

// endOrStop is the rest of endUnended.
func (p *place) endOrStop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lateEnd)
	defer cancel()
	for began := time.Now(); ; {
		lost, silent := p.look(ctx)
		calls, ids := p.unendedCalls()
		switch {
		case lost != nil || len(calls) == 0:
			return nil
		case ctx.Err() != nil, silent != nil:
			return fmt.Errorf("it is not known whether all processes of earlier calls (%s) have ended: %w", ids, cmp.Or(silent, ctx.Err()))
		case time.Since(began) >= p.sb.stopAfter:
			return p.stop()
		}
		for _, u := range calls {
			p.endLate(ctx, u)
		}
		select {
		case <-time.After(lateEvery):
		case <-ctx.Done():
		}
	}
}
