package elsewhere

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// keptVersions is how many earlier versions of a named session's state stay on disk, for readers that are about to load
// one when it is superseded.
const keptVersions = 3

// saveWait bounds how long a call waits for the state that an earlier call is still writing.
const saveWait = 5 * time.Second

// lateSave bounds how long a state may take to be written that is still taken over.
const lateSave = time.Minute

// Session is shell state in a sandbox: what one call leaves (exported variables, functions, aliases, directory, umask) the
// next one finds. Several calls may run at once: each sees one whole state, and the one that ends last wins. A throw-away
// session (no name) and all that its calls left running end when it is closed or when this process dies; a named session
// is the user's and lives on disk. A Session must be closed. It is safe for concurrent use.
type Session struct {
	sb       *Sandbox
	name     string
	id       string // in the environment of all its processes
	mark     uint32 // in the limits of all its processes
	closeAll bool   // Close closes the sandbox too

	start   string   // the directory in which it began
	answers *answers // what was agreed to

	first chan struct{} // holds one token: whoever takes it makes the first state

	mu      sync.Mutex
	at      *place   // of the last call
	state   stateRef // current; path "" before the first
	steady  bool     // the last call changed nothing of it
	cwd     string
	file    *sessionFile        // of a named session
	saveErr error               // the last failure since the last Flush
	saving  map[*shell]struct{} // shells that reported their end and write their state
	loading map[string]int      // state files that a living bash has loaded, or is about to
	old     []string            // superseded state files that are not removed yet, oldest first
	notices []string            // for the next result
	ahead   aheadPool
	shells  map[*shell]struct{} // whose streams are open
	calls   sync.WaitGroup
	closed  bool
	closing sync.Once
	done    chan struct{} // closed by Close

	ends      atomic.Int64 // counts calls that ended
	committed int64        // which of them wrote the current state
	moved     int64        // which of them set the directory
}

// begin counts a call in, unless the session is closed.
func (s *Session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// own keeps a shell until its streams are at their end.
func (s *Session) own(sh *shell) {
	s.mu.Lock()
	s.shells[sh] = struct{}{}
	s.mu.Unlock()
	s.sb.goroutines.Go(func() {
		<-sh.eof
		<-sh.exited
		sh.closeStreams()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.shells, sh)
	})
}

// Name is the session's name, "" for a throw-away session.
func (s *Session) Name() string { return s.name }

// Cwd is the session's own directory: where the next call runs.
func (s *Session) Cwd() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cwd
}

// arrive says, once, why a call of this session is in another place than the one before.
func (s *Session) arrive(p *place) (instead string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at != p {
		instead = p.instead
	}
	s.at = p
	return instead
}

// note keeps something to say for the next result.
func (s *Session) note(notice string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, notice)
}

// tell is note for what comes to be known behind a call: where the session is closed any other's next result says it.
func (s *Session) tell(notice string) {
	if closedNow(s.done) {
		s.sb.say(notice)
		return
	}
	s.note(notice)
}

// takeNotices returns what is to be said with this result: the sandbox's own once, then the session's.
func (s *Session) takeNotices() []string {
	notices := s.sb.takeNotices()
	s.mu.Lock()
	defer s.mu.Unlock()
	notices = append(notices, s.notices...)
	s.notices = nil
	return notices
}

// Flush waits until the state of every call that has ended is written, at most 5 s or until ctx is done. A write that
// failed is a notice of the next result and is returned here too; one that takes longer goes on and is taken over later.
func (s *Session) Flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	for {
		s.mu.Lock()
		var sh *shell
		for sh = range s.saving {
			break
		}
		var err error
		if sh == nil {
			err, s.saveErr = s.saveErr, nil
		}
		s.mu.Unlock()
		if sh == nil {
			return err
		}
		select {
		case <-sh.settled:
		case <-ctx.Done():
			return wrap(errText("the state of an earlier call is still being written"), driver.KindTimeout, "session", s.sb.backend, s.name, "")
		}
	}
}

// awaitSave lets the session take over the state that sh is about to write. It goes on behind the call.
func (s *Session) awaitSave(sh *shell) {
	s.mu.Lock()
	s.saving[sh] = struct{}{}
	s.mu.Unlock()
	s.sb.goroutines.Go(func() {
		// A bash that still lives may still write: only its end, or the session's, ends the wait.
		ctx, cancel := context.WithTimeout(context.Background(), lateSave)
		defer cancel()
		select {
		case <-sh.saved:
		case <-sh.exited:
			sh.awaitRest(ctx)
		case <-ctx.Done():
		}
		err := s.finishSave(sh)
		if err != nil && sh.exitedNow() && sh.at.askLost(ctx) != nil {
			err = nil // it went with the sandbox, which the next result tells
		}
		// Before anybody who waited for the state goes on: Close lets the watchdog end what is not released.
		sh.release()
		s.mu.Lock()
		delete(s.saving, sh)
		if err != nil {
			s.saveErr = err
			s.notices = append(s.notices, "the state of an earlier call was not saved: "+err.Error())
		}
		s.mu.Unlock()
		close(sh.settled)
		if err != nil {
			s.sb.log.Warn("a session's state was not saved", "session", s.name, "error", err)
		}
		s.refill()
	})
}

// finishSave makes the state that sh wrote the current one.
func (s *Session) finishSave(sh *shell) error {
	select {
	case <-sh.saved:
	default:
		if sh.exitedNow() {
			return s.saveFailed(sh, "the shell ended ("+describe(sh.status, sh.statusErr)+") before its state was written")
		}
		return s.saveFailed(sh, "its state was not written within "+lateSave.String())
	}
	switch sh.savedKind {
	case 'U':
		s.sb.removeState(sh.slot)
		return s.keep(*sh.from, sh.endCwd, sh.ending)
	case 'S':
		return s.commit(stateRef{path: sh.slot, private: sh.from.private}, sh.endCwd, sh.ending)
	default:
		return s.saveFailed(sh, "its state could not be written (is the disk full?)")
	}
}

func (s *Session) saveFailed(sh *shell, why string) error {
	s.sb.removeState(sh.slot)
	return wrap(errText(why), driver.KindUnavailable, "session", s.sb.backend, s.name, "free some space and run the command again")
}

// keep is for a call that changed nothing but perhaps the directory ("" keeps that too): what others saved meanwhile stays.
func (s *Session) keep(from stateRef, cwd string, ending int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steady = from == s.state
	return s.switchTo(stateRef{}, s.cwdAfter(cwd, ending))
}

// commit switches to a new version of the state and of the directory ("" keeps that). ending is the place of the call that
// wrote it among those that ended: the one that ended last wins, whichever is written first.
func (s *Session) commit(state stateRef, cwd string, ending int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cwd = s.cwdAfter(cwd, ending)
	if ending < s.committed {
		s.sb.removeState(state.path)
		return s.switchTo(stateRef{}, cwd)
	}
	s.committed, s.steady = ending, false
	return s.switchTo(state, cwd)
}

// cwdAfter is the session's directory after a call that ended in cwd, "" for one that does not set it. s.mu is held.
func (s *Session) cwdAfter(cwd string, ending int64) string {
	if cwd == "" || ending < s.moved {
		return s.cwd
	}
	s.moved = ending
	return cwd
}

// switchTo makes state (path "" keeps what is current) and cwd the session's. s.mu is held.
func (s *Session) switchTo(state stateRef, cwd string) error {
	var remove []string
	if s.file != nil {
		superseded, err := s.file.switchTo(state.path, cwd)
		if err != nil {
			if state.path != "" {
				s.sb.removeState(state.path)
			}
			return wrap(err, driver.KindUnavailable, "session", s.sb.backend, s.name, "free some space or check the rights of "+s.file.path)
		}
		remove, state = append(s.old, superseded...), stateRef{path: s.file.data.State}
		s.old = nil
	} else if state.path == "" {
		state = s.state
	} else if s.state.path != state.path && s.state.path != "" {
		s.old = append(s.old, s.state.path)
		remove, s.old = s.old, nil
	}
	if state.path != s.state.path {
		s.state = state
		s.ahead.dropStale(s)
	}
	s.cwd = cwd
	s.removeUnused(remove)
	return nil
}

// removeUnused removes superseded state files; one that a bash is about to load stays until the next time. s.mu is held.
func (s *Session) removeUnused(paths []string) {
	var free []string
	for _, p := range paths {
		if s.loading[p] > 0 {
			s.old = append(s.old, p)
		} else {
			free = append(free, p)
		}
	}
	s.sb.removeState(free...)
}

// current returns the state that a new call loads, and its directory. It reads what another process did to a named session.
func (s *Session) current() (stateRef, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		changed, err := s.file.reload()
		if err != nil {
			return stateRef{}, "", err
		}
		if changed {
			s.state = stateRef{path: s.file.data.State}
			s.cwd = s.file.data.Cwd()
			s.ahead.dropStale(s)
		}
	}
	return s.state, s.cwd, nil
}

// Close interrupts the calls that run, waits (at most 5 s) for states that are being written and gives the session up:
// waiting shells leave, and what calls of a throw-away session left running is ended (TERM, the grace, KILL) behind it. A
// named session stays on disk with all that its calls started. A second Close does nothing.
func (s *Session) Close(ctx context.Context) error {
	if s.closeAll {
		return s.sb.Close(ctx)
	}
	first, err := s.close(ctx)
	if p := s.sb.at(); first && s.name == "" && p.sessionOwnsChildren() {
		s.sb.behind(func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.sb.grace+time.Second)
			defer cancel()
			p.end(ctx, bashscript.WatchSession(s.mark, s.id))
			p.watch.removeSession(s.mark)
		})
	}
	return err
}

// close gives the session up but for what its calls left running. One that is not the first waits for it.
func (s *Session) close(ctx context.Context) (first bool, err error) {
	s.closing.Do(func() { first, err = true, s.closeOnce(ctx) })
	return first, err
}

func (s *Session) closeOnce(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.done)
	s.calls.Wait() // each call returns within the grace and a second
	err := s.Flush(ctx)
	s.mu.Lock()
	s.ahead.dropAll()
	remove := s.old
	if s.name == "" && s.state.path != "" {
		remove = append(remove, s.state.path)
	}
	open := slices.Collect(maps.Keys(s.shells))
	s.mu.Unlock()
	for _, sh := range open {
		// Nobody reads any more what a child in the background still writes.
		sh.closeStreams()
	}
	s.sb.sessionClosed(s)
	s.sb.removeState(remove...)
	return err
}
