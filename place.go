package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// place is the driver's sandbox as it was opened, with what lives and dies with it. A sandbox that its engine has lost is opened
// again: then another place is current, and what was begun in the old one ends there.
type place struct {
	sb      *Sandbox
	drv     driver.Sandbox
	info    driver.Info
	scripts *bashscript.Scripts
	watch   *watchdog
	askpass bool // sudo has a program to ask for its password
	guard   guard
	instead string // why it is there instead of an earlier one; "" for the first

	lost     atomic.Bool            // the engine said so: no bash here is used any more
	stopping chan struct{}          // holds a token while the sandbox is being stopped as the last resort
	stopped  atomic.Pointer[string] // why it was; nil where it was not

	mu   sync.Mutex
	boot bootText
	drop []string // state files for the next bash to truncate

	unended []unended // calls whose end is not confirmed
	noEnder error     // why the last bash that was to end processes could not be started
}

const (
	// aliveWait bounds the question to the engine whether the sandbox is still there.
	aliveWait = 10 * time.Second
	// reopenWait bounds how long a lost sandbox may take to be opened again.
	reopenWait = 2 * time.Minute
	// driverClose bounds how long a driver may take to give its sandbox up.
	driverClose = time.Minute
)

func (sb *Sandbox) newPlace(drv driver.Sandbox, instead string) *place {
	p := &place{sb: sb, drv: drv, info: drv.Info(), instead: instead, stopping: make(chan struct{}, 1)}
	p.dropNames()
	p.guard = sb.newGuard(p.info)
	p.scripts = bashscript.NewScripts(p.info.KeepEnv)
	if p.info.Watchdog {
		p.watch = newWatchdog(p)
	}
	return p
}

// dropNames leaves out forwarded variables that no bash can have, and says so.
func (p *place) dropNames() {
	for _, name := range slices.Sorted(maps.Keys(p.info.CallEnv)) {
		if err := checkVariable(name, p.info.CallEnv[name]); err != nil {
			p.info.CallEnv = maps.Clone(p.info.CallEnv)
			delete(p.info.CallEnv, name)
			p.info.Notices = append(p.info.Notices[:len(p.info.Notices):len(p.info.Notices)], "a forwarded variable is left out: "+err.Error())
		}
	}
}

// at is the place that is current.
func (sb *Sandbox) at() *place { return sb.current.Load() }

// sessionOwnsChildren tells whether what a finished call left in the background ends with its throw-away session.
func (p *place) sessionOwnsChildren() bool { return p.info.Watchdog && !p.info.KeepsChildren }

// askLost asks the engine. The error is the driver's own, and nil unless the engine says for certain that the sandbox is
// gone.
func (p *place) askLost(ctx context.Context) error {
	lost, _ := p.look(ctx)
	return lost
}

// look asks the engine: lost is as of askLost, silent why it gave no answer.
func (p *place) look(ctx context.Context) (lost, silent error) {
	ctx, cancel := context.WithTimeout(ctx, aliveWait)
	defer cancel()
	err := p.drv.Alive(ctx)
	if !p.saysLost(err) {
		return nil, err
	}
	p.lost.Store(true)
	if why := p.stopped.Load(); why != nil {
		err = fmt.Errorf("%s (%w)", *why, err)
	}
	return err, nil
}

func (p *place) saysLost(err error) bool {
	return err != nil && kindOf(p.sb.back, err) == driver.KindLost
}

// usable tells whether a bash that was started in p may be given a command.
func (p *place) usable() bool { return p == p.sb.at() && !p.lost.Load() }

// reopen is for whoever could not start a bash in p: where the engine has lost the sandbox it is opened again with the same
// settings, once for all who find it so. It tells whether another place is current now; an error says why none could be
// opened. What may have started is never run again by it.
func (sb *Sandbox) reopen(ctx context.Context, p *place) (again bool, err error) {
	select {
	case sb.reopening <- struct{}{}:
		defer func() { <-sb.reopening }()
	case <-ctx.Done():
		return false, nil
	}
	if sb.at() != p {
		return true, nil
	}
	waited := p.awaitStop(ctx)
	lost := p.askLost(ctx)
	if lost == nil || sb.isClosed() {
		return waited, nil // it goes on where the stop failed
	}
	sb.log.Warn("the sandbox is gone; it is opened again", "sandbox", p.info.SandboxID, "error", lost)
	p.leave(ctx)
	octx, cancel := context.WithTimeout(ctx, reopenWait)
	defer cancel()
	drv, err := sb.back.Open(octx, sb.request)
	if err != nil {
		return false, sb.wrap(err, "open again after it was lost")
	}
	next := sb.newPlace(drv, lost.Error())
	next.provideSudo(octx)
	for _, notice := range next.info.Notices {
		sb.say(notice)
	}
	sb.current.Store(next)
	if err := sb.watchSessions(ctx, next); err != nil {
		return false, sb.wrap(err, "start the watchdog")
	}
	return true, nil
}

// watchSessions tells a new place's watchdog of the throw-away sessions that are open.
func (sb *Sandbox) watchSessions(ctx context.Context, p *place) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	for s := range sb.sessions {
		if err := p.addSession(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// addSession makes the watchdog end, when this process dies, what a throw-away session's calls left.
func (p *place) addSession(ctx context.Context, s *Session) error {
	if s.name != "" || !p.sessionOwnsChildren() {
		return nil
	}
	return p.watch.addSession(ctx, s)
}

// leave gives up a place that is lost. A driver may still hold a connection, a lock or files on this machine.
func (p *place) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverClose)
	defer cancel()
	p.watch.abandon(ctx)
	if err := p.drv.Close(ctx); err != nil {
		p.sb.log.Debug("closing what was lost", "error", err)
	}
}

// close gives a place up that is well.
func (p *place) close(ctx context.Context) error {
	unended := p.endUnended(ctx)
	p.mu.Lock()
	boots := p.boot.all
	p.mu.Unlock()
	p.removeState(boots...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverClose)
	defer cancel()
	err := p.drv.Close(ctx)
	if p.saysLost(err) {
		err = nil // what is gone needs no closing
	}
	if err = errors.Join(unended, err); err != nil {
		return p.sb.wrap(err, "close")
	}
	return nil
}
