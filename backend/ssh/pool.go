package ssh

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/lockfile"
)

// pool is the connections to one destination that this sandbox uses. A server lets a connection carry so many sessions
// (MaxSessions) and no more: where all are taken another connection is made, one at a time among all processes of this user
// (MaxStartups).
type pool struct {
	d       *destination
	dir     string // of the control sockets
	control controlDir
	log     *slog.Logger

	mu      sync.Mutex
	uses    []*use
	changed chan struct{} // closed, and replaced, when a place became free or a connection came or went
	growing bool
	failed  error // of the last attempt to connect
	closed  bool
	stop    context.CancelFunc
	ctx     context.Context
	work    sync.WaitGroup
}

// use is a master in a pool.
type use struct {
	*master
	live   []*channel
	full   time.Time  // when no session was left; zero while one may be
	doomed []*muxConn // see doom
}

const (
	// fullAgain is after how long a full connection is tried again: another process may have left it.
	fullAgain = 2 * time.Second
	// connectTries is how often a first connection is tried whose server hung up before it said a word: that is how a server
	// answers that has too many beginners (MaxStartups).
	connectTries = 4
	// connectPause is the wait before another try.
	connectPause = 300 * time.Millisecond
)

// errNoSpare says that a bash that nobody waits for would cost another connection.
var errNoSpare = errors.New("all sessions that the server gives are taken; no shell is started ahead")

func newPool(d *destination, dir controlDir, log *slog.Logger) *pool {
	p := &pool{d: d, dir: dir.path, control: dir, log: log, changed: make(chan struct{})}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// start starts a bash where there is room for it, or on another connection. A bash that may have been started and was not given
// anything to do is not counted: it ends when its connection does. With spare no connection is made for it. ctx bounds the
// start.
func (p *pool) start(ctx context.Context, req request, spare bool) (driver.Process, error) {
	waited := false
	for {
		changed := p.whenChanged()
		if spare && p.free() <= reserve {
			return nil, errNoSpare
		}
		for _, u := range p.usable() {
			c, err := p.startIn(ctx, u, req)
			if err == nil {
				if p.free() < reserve {
					_ = p.grow() // a closed pool needs none
				}
				return c, nil
			}
			if ctx.Err() != nil {
				return nil, p.late(ctx)
			}
			if kind := kinderr.Of(err); kind != "" && kind != driver.KindLost {
				return nil, err
			}
		}
		if spare {
			return nil, errNoSpare
		}
		wait := fullAgain
		if p.settling() && !waited {
			waited, wait = true, settleTime // a session is about to be free
		} else if err := p.grow(); err != nil {
			return nil, err
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, p.late(ctx)
		}
		if err := p.hopeless(); err != nil {
			return nil, err
		}
	}
}

// reserve is how many sessions are kept free, as far as may be: what ends a call must not wait for a connection.
const reserve = 1

// free is how many sessions nobody of this process uses.
func (p *pool) free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, u := range p.uses {
		if len(u.doomed) == 0 {
			n += max(0, p.d.sessions(p.dir)-len(u.live))
		}
	}
	return n
}

// late says what a start waited for when its time was over.
func (p *pool) late(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return p.failed
	}
	return failure(driver.KindUnavailable, "no bash could be started on %s in time: %w", p.d.name(), ctx.Err())
}

// startIn starts a bash over one connection and notes what came of it.
func (p *pool) startIn(ctx context.Context, u *use, req request) (*channel, error) {
	place, err := u.takeSlot(p.d)
	if err == nil {
		if err = place.begin(); err != nil {
			_ = place.lock.Close()
		}
	}
	var c *channel
	if err == nil {
		before := u.closingNow()
		c, err = startOn(ctx, u.socket, req, u.lostText, func(c *channel, clean bool) { p.freed(u, c, place, clean) })
		if err == nil {
			p.mu.Lock()
			u.live = append(u.live, c)
			p.mu.Unlock()
			p.settled(u, before) // the server has answered what was asked after they were closed
			return c, nil
		}
	}
	if r, ok := errors.AsType[*refused](err); ok {
		// More than the server was known to give: it was configured anew, or had not freed a session in time.
		p.log.Debug("a session was refused against expectation", "socket", u.socket)
		_ = os.Remove(p.d.sessionsFile(p.dir))
		p.doom(u, r.conn)
	} else if errors.Is(err, errRefused) {
		p.mu.Lock()
		u.full = time.Now()
		p.mu.Unlock()
	} else if ctx.Err() == nil {
		p.log.Debug("a bash could not be started over a connection", "socket", u.socket, "error", err)
		p.doubt(ctx, u)
	}
	return nil, err
}

// doom lets nothing more be started over a connection that ends with this process; what runs there goes on.
func (p *pool) doom(u *use, conn *muxConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u.doomed = append(u.doomed, conn)
	_ = os.Rename(u.socket, u.socket+".doomed") // no process takes it up any more
}

// doubt finds out whether a master over which nothing could be started still lives, and drops it where not.
func (p *pool) doubt(ctx context.Context, u *use) {
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	conn, release, err := dialMaster(ctx, u.socket)
	if err == nil {
		_, err = conn.ask(muxAliveCheck, muxAlive)
		release()
		_ = conn.Close()
	}
	if err != nil {
		_ = u.control.Close()
		select { // watch notes it, and drop takes it out
		case <-u.gone:
		case <-ctx.Done():
		}
	}
}

// freed notes that a channel was closed. Its session can be used again when the server has answered something that another
// channel asks now, or a moment later.
func (p *pool) freed(u *use, c *channel, place *slot, clean bool) {
	u.ended(place, clean)
	p.mu.Lock()
	u.live = slices.DeleteFunc(u.live, func(other *channel) bool { return other == c })
	var other *channel
	if len(u.live) > 0 {
		other = u.live[0]
	}
	p.mu.Unlock()
	if !clean {
		return
	}
	slots := []*slot{place}
	time.AfterFunc(settleTime, func() { p.settled(u, slots) })
	if other != nil {
		other.ping(func() { p.settled(u, slots) })
	}
}

// settled gives slots free.
func (p *pool) settled(u *use, slots []*slot) {
	if !u.settle(slots) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	u.full = time.Time{}
	p.notify()
}

// notify wakes who waits for a change. p.mu is held.
func (p *pool) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pool) whenChanged() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// settling tells whether a session that was closed will be free in a moment.
func (p *pool) settling() bool {
	for _, u := range p.usableOrFull() {
		if len(u.closingNow()) > 0 {
			return true
		}
	}
	return false
}

func (p *pool) usableOrFull() []*use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.uses), func(u *use) bool { return len(u.doomed) > 0 })
}

// usable gives the connections that may have room, the oldest first.
func (p *pool) usable() []*use {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*use
	for _, u := range p.uses {
		select {
		case <-u.gone:
			continue
		default:
		}
		if len(u.doomed) == 0 && (u.full.IsZero() || time.Since(u.full) > fullAgain) {
			found = append(found, u)
		}
	}
	return found
}

// hopeless is the error of the last attempt to connect where there is no connection at all.
func (p *pool) hopeless() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if len(p.uses) > 0 || p.growing {
		return nil
	}
	return p.failed
}

var errClosed = failure(driver.KindLost, "the ssh sandbox is closed")

// grow makes another connection behind the caller, unless one is being made: who waits for it may go earlier.
func (p *pool) grow() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	if p.growing {
		return nil
	}
	p.growing, p.failed = true, nil
	p.work.Go(func() {
		m, err := p.connect()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.growing, p.failed = false, err
		if err == nil && p.closed {
			go m.watch(p.d)
			m.leave(p.keeps())
		} else if err == nil {
			p.add(m)
		}
		p.notify()
	})
	return nil
}

// add takes a master in. p.mu is held.
func (p *pool) add(m *master) {
	u := &use{master: m}
	p.uses = append(p.uses, u)
	p.work.Go(func() {
		m.watch(p.d)
		p.drop(u)
	})
}

// drop takes a master out that is of no use any more.
func (p *pool) drop(u *use) {
	p.mu.Lock()
	at := slices.Index(p.uses, u)
	if at >= 0 {
		p.uses = slices.Delete(p.uses, at, at+1)
	}
	closed := p.closed
	p.notify()
	p.mu.Unlock()
	if at >= 0 && !closed {
		p.log.Info("an ssh connection is gone", "destination", p.d.name(), "why", u.lostText())
		u.leave(false)
	}
}

// connect takes up a master that another process made, or makes one.
func (p *pool) connect() (*master, error) {
	lock, err := p.lockConnect()
	if err != nil {
		return nil, failure(driver.KindUnavailable, "the lock under which connections are made cannot be had: %w", err)
	}
	defer lock.Close()
	sweep(p.dir, p.d.id)
	if m := p.takeUp(); m != nil {
		return m, nil
	}
	for try := 1; ; try++ {
		m, err := p.connectOnce()
		if err == nil {
			p.control.reap(p.d.id)
			return m, nil
		}
		if try >= connectTries || !hungUp(err) {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(try) * connectPause):
		case <-p.ctx.Done():
			return nil, err
		}
	}
}

// lockConnect gives the right to connect.
func (p *pool) lockConnect() (*flock.Flock, error) {
	file := filepath.Join(p.dir, p.d.id+".connect")
	for {
		lock := flock.New(file, flock.SetPermissions(0o600))
		if _, err := lock.TryLockContext(p.ctx, 20*time.Millisecond); err != nil {
			_ = lock.Close()
			return nil, err
		}
		if lockfile.Current(lock) {
			_ = os.WriteFile(file, []byte(p.control.home), 0o600) // see stale, which goes by its age otherwise
			return lock, nil
		}
		_ = lock.Close() // it was reaped before we had it
	}
}

// takeUp takes up a master that another process made.
func (p *pool) takeUp() *master {
	if p.d.sessions(p.dir) == 0 {
		return nil
	}
	for _, socket := range masters(p.dir, p.d.id) {
		if p.has(socket) {
			continue
		}
		if m, err := attach(p.ctx, socket); err == nil {
			return m
		}
	}
	return nil
}

func (p *pool) connectOnce() (*master, error) {
	if p.d.sessions(p.dir) == 0 {
		for _, socket := range masters(p.dir, p.d.learner()) {
			clearAway(socket) // a process was killed while it learned
		}
		sweep(p.dir, p.d.learner())
		if err := p.d.learnSessions(p.ctx, p.dir); err != nil {
			return nil, err
		}
		if m := p.takeUp(); m != nil {
			return m, nil
		}
	}
	return newMaster(p.ctx, p.d, p.dir, p.d.id)
}

func (p *pool) has(socket string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.uses, func(u *use) bool { return u.socket == socket })
}

// keeps tells whether connections outlive this process.
func (p *pool) keeps() bool { return p.control.home != "" && p.d.persist > 0 }

// close gives all connections up and waits for what runs behind the pool.
func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	uses := slices.Clone(p.uses)
	p.uses = nil
	p.notify()
	p.mu.Unlock()
	p.stop()
	for _, u := range uses {
		u.leave(p.keeps())
	}
	p.work.Wait()
	p.control.forget(p.d.id)
	return nil
}
