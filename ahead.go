package elsewhere

import (
	"context"
	"slices"
	"time"
)

// aheadPool is a session's shells that were started before their command is known. One of them has loaded the current state
// and the others have not been told anything, since a state can be loaded once; while calls change nothing of the state, all
// have loaded it. One that is stale (another state is current, or idle for too long) is dropped, never used. The session's
// mu guards it.
type aheadPool struct {
	shells []*shell  // the loaded one first
	coming []*coming // that are being started
	timer  *time.Timer
	failed int         // how often in a row one could not be started since a call has asked for them
	retry  *time.Timer // tries again; nil while nothing is to be tried again
}

// Where a shell cannot be started ahead, it is tried for again after aheadRetry, and after twice as long each time: an engine that has no
// room for one (a server's MaxSessions) has some when others have ended.
const (
	aheadRetry = 500 * time.Millisecond
	aheadTries = 6
)

// coming is a shell that is being started ahead. A call that finds none waiting claims it: that is sooner there than one that is
// begun now.
type coming struct {
	claimed bool
	done    chan struct{} // closed when it has been started, or could not be
	sh      *shell        // for whom claimed it; nil where it could not be started
}

// unclaimed counts those that are not taken yet.
func (p *aheadPool) unclaimed() int {
	n := 0
	for _, c := range p.coming {
		if !c.claimed {
			n++
		}
	}
	return n
}

// claim takes a shell that is being started, or gives nil.
func (p *aheadPool) claim() *coming {
	for _, c := range p.coming {
		if !c.claimed {
			c.claimed = true
			return c
		}
	}
	return nil
}

// take returns a shell for a call on state: the one that has loaded it, else one that has loaded nothing, else nil.
func (p *aheadPool) take(state stateRef) *shell {
	for _, loaded := range []bool{true, false} {
		for i, sh := range p.shells {
			if (sh.from != nil) != loaded || sh.exitedNow() || !sh.at.usable() {
				continue
			}
			if loaded && *sh.from != state {
				continue
			}
			p.shells = slices.Delete(p.shells, i, i+1)
			return sh
		}
	}
	return nil
}

// dropStale drops what loaded another state than the session's, and what has ended.
func (p *aheadPool) dropStale(s *Session) {
	p.shells = slices.DeleteFunc(p.shells, func(sh *shell) bool {
		stale := sh.exitedNow() || !sh.at.usable() || sh.from != nil && *sh.from != s.state
		if stale {
			if sh.exitedNow() && !closedNow(sh.ready) {
				sh.noteReady(false) // what a ready one tells is known
			}
			sh.drop()
		}
		return stale
	})
}

func (p *aheadPool) dropAll() {
	for _, timer := range []*time.Timer{p.timer, p.retry} {
		if timer != nil {
			timer.Stop()
		}
	}
	for _, sh := range p.shells {
		sh.drop()
	}
	p.shells = nil
}

// refill starts what is missing of the shells that wait, and lets one of them load the current state. It does not wait for
// them. A shell that cannot be started is logged, and tried for again; a call that comes before starts its own and reports that.
func (s *Session) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead.failed = 0
	s.refillNow()
}

// refillNow is refill by who holds s.mu.
func (s *Session) refillNow() {
	if s.closed {
		return
	}
	s.ahead.dropStale(s)
	for len(s.ahead.shells)+s.ahead.unclaimed() < s.sb.ahead {
		s.startAhead()
	}
	s.loadAhead()
}

// loadAhead lets one waiting shell load the current state unless one has, or all where the state is steady. No state is
// loaded while one is being written that will supersede it at once. s.mu is held.
func (s *Session) loadAhead() {
	if s.state.path == "" || len(s.saving) > 0 && !s.steady {
		return
	}
	loaded := slices.ContainsFunc(s.ahead.shells, func(sh *shell) bool { return sh.from != nil })
	for _, sh := range s.ahead.shells {
		if sh.from != nil || loaded && !s.steady {
			continue
		}
		loaded = true
		s.loadShell(sh, s.state)
	}
}

// loadShell tells sh to load state and keeps the file until sh has ended: at its end it compares the two. s.mu is held.
func (s *Session) loadShell(sh *shell, state stateRef) {
	sh.load(&state, sh.at.dropped())
	s.keepLoaded(sh, state)
}

// keepLoaded keeps state's file until sh has ended. s.mu is held.
func (s *Session) keepLoaded(sh *shell, state stateRef) {
	s.loading[state.path]++
	s.sb.goroutines.Go(func() {
		select {
		case <-sh.ready:
			sh.noteReady(true)
			sh.noteGroup()
			<-sh.exited
		case <-sh.exited:
			sh.awaitRest(context.Background())
			sh.noteEnd()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.loading[state.path]--; s.loading[state.path] <= 0 {
			delete(s.loading, state.path)
		}
	})
}

// startEarly starts, beside the shell that makes the first state, the one for the call that waits for that state.
func (s *Session) startEarly() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.ahead.shells)+len(s.ahead.coming) == 0 {
		s.startAhead()
	}
}

// startAhead begins to start a shell. s.mu is held.
func (s *Session) startAhead() {
	c := &coming{done: make(chan struct{})}
	s.ahead.coming = append(s.ahead.coming, c)
	s.sb.goroutines.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startWait)
		defer cancel()
		sh, err := s.sb.at().startShell(ctx, s, true)
		if err != nil {
			s.sb.log.Debug("no shell was started ahead", "error", err)
		}
		s.arriveAhead(c, sh)
	})
}

// arriveAhead hands a shell that was started, nil where none could be, to whoever claimed it, else to the pool.
func (s *Session) arriveAhead(c *coming, sh *shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(c.done)
	s.ahead.coming = slices.DeleteFunc(s.ahead.coming, func(other *coming) bool { return other == c })
	switch {
	case c.claimed:
		c.sh = sh
	case s.closed && sh == nil:
	case sh == nil:
		s.refillLater()
	case s.closed:
		sh.drop()
	default:
		s.ahead.shells = append(s.ahead.shells, sh)
		s.loadAhead()
		s.dropIdleLater()
	}
}

// refillLater tries again for what could not be started. s.mu is held.
func (s *Session) refillLater() {
	if s.ahead.retry != nil || s.ahead.failed >= aheadTries {
		return
	}
	s.ahead.retry = time.AfterFunc(aheadRetry<<s.ahead.failed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ahead.retry = nil
		s.refillNow()
	})
	s.ahead.failed++
}

// await waits for a shell that was claimed; nil where it could not be started, and where ctx is done first: then it is
// nobody's again.
func (s *Session) await(ctx context.Context, c *coming) *shell {
	select {
	case <-c.done:
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		c.claimed = false
		if c.sh != nil {
			c.sh.drop() // it came in the same moment
		}
		return nil
	}
	if c.sh == nil || c.sh.exitedNow() || !c.sh.at.usable() {
		if c.sh != nil {
			c.sh.drop()
		}
		return nil
	}
	return c.sh
}

// dropIdleLater sets the timer that ends shells which wait for too long: a waiting bash must not look like a leak. s.mu
// is held.
func (s *Session) dropIdleLater() {
	if s.ahead.timer != nil {
		s.ahead.timer.Stop()
	}
	if s.sb.aheadIdle <= 0 {
		return
	}
	s.ahead.timer = time.AfterFunc(s.sb.aheadIdle, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, sh := range s.ahead.shells {
			sh.drop()
		}
		s.ahead.shells = nil
		s.ahead.failed = aheadTries // none is tried for any more
		if s.ahead.retry != nil {
			s.ahead.retry.Stop()
			s.ahead.retry = nil
		}
	})
}
