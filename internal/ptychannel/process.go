package ptychannel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

const (
	// killWait is how long a bash may take to end that its relay was told to kill.
	killWait = 2 * time.Second
	// farWait bounds a kill by other means, and leaveWait how long relays may take to leave.
	farWait   = 10 * time.Second
	leaveWait = 5 * time.Second
	// ackBytes is how much is read before the far side is told so at once, and ackWait how long it waits for less.
	ackBytes = 32 << 10
	ackWait  = 20 * time.Millisecond
)

// Process is a bash on the far side.
type Process struct {
	spec Spec
	a, b Conn // the terminals of input.sh and output.sh

	ctx    context.Context // done when the connections are given up
	cancel context.CancelFunc
	toA    queue
	toB    queue
	out    inbound
	errs   inbound
	ready  chan struct{} // closed when both relays have answered
	done   chan struct{} // closed when status and failed are set
	status driver.ExitStatus
	failed error

	mu       sync.Mutex
	changed  *sync.Cond
	pid      string
	answered int // of the relays
	ended    bool
	inEnded  bool
	inClosed bool
	expire   time.Time
	quit     bool // the relays were told to leave
}

func newProcess(spec Spec, token string, a, b Conn) *Process {
	p := &Process{spec: spec, a: a, b: b, ready: make(chan struct{}), done: make(chan struct{})}
	p.changed = sync.NewCond(&p.mu)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.out.p, p.errs.p, p.out.letter, p.errs.letter = p, p, "o", "e"
	p.toA, p.toB = queue{p: p, conn: a}, queue{p: p, conn: b}
	go p.toA.run()
	go p.toB.run()
	go p.beat()
	go p.read(a, &p.errs, newMarks(token))
	go p.read(b, &p.out, newMarks(token))
	late := time.AfterFunc(spec.StartWait, func() {
		p.lose(kinderr.New(driver.KindUnavailable, "the login shell of %s did not run bash within %v", spec.Name, spec.StartWait))
	})
	go func() {
		select {
		case <-p.ready:
		case <-p.done:
		}
		late.Stop()
	}()
	return p
}

// beat tells the relays now and then that this process lives.
func (p *Process) beat() {
	ticker := time.NewTicker(max(time.Second/4, min(time.Minute, p.spec.Lease/4)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.mu.Lock()
			for _, q := range []*queue{&p.toA, &p.toB} {
				if len(q.waits) == 0 {
					q.put([]byte("h\n"))
				}
			}
			p.mu.Unlock()
		case <-p.ctx.Done():
			return
		}
	}
}

// read takes what comes by one terminal until it ends.
func (p *Process) read(conn Conn, to *inbound, m *marks) {
	for {
		data, err := conn.Read(p.ctx)
		m.feed(data, to.add, func(fields []string) { p.word(to, fields) })
		if err != nil {
			m.rest(to.add)
			p.broke(to, m, err)
			return
		}
	}
}

// word takes a relay's word.
func (p *Process) word(from *inbound, fields []string) {
	if len(fields) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.changed.Broadcast()
	switch kind := fields[0]; {
	case kind == "r":
		if p.answered++; p.answered == 2 {
			close(p.ready)
		}
	case kind == "s" && len(fields) == 2:
		p.pid = fields[1]
	case kind == "x" && len(fields) == 2:
		code, _ := strconv.Atoi(fields[1])
		// Nothing tells a death by signal n from an exit with 128+n. A bash of ours reports its exits before it leaves; what is
		// asked here is the end of one that could not.
		p.finish(driver.ExitStatus{Code: code, Signal: signame.Of(code - 128)}, nil)
	case kind == from.letter:
		from.finish(io.EOF)
	}
	p.leave()
}

// finish notes how the bash ended. p.mu is held.
func (p *Process) finish(status driver.ExitStatus, err error) {
	if p.ended {
		return
	}
	p.ended, p.inEnded = true, true
	p.status, p.failed = status, err
	close(p.done)
}

// leave lets the relays go when the bash has ended and nothing more is wanted of its output. A child that still writes is not hurt:
// it is read, there, by somebody. p.mu is held.
func (p *Process) leave() {
	if p.quit || !p.ended || !(p.out.end || p.out.unread) || !(p.errs.end || p.errs.unread) {
		return
	}
	p.giveUp()
}

// giveUp tells the relays to leave and closes the connections a moment later. p.mu is held.
func (p *Process) giveUp() {
	if p.quit {
		return
	}
	p.quit = true
	p.toA.put([]byte("q\n"))
	p.toB.put([]byte("q\n"))
	time.AfterFunc(leaveWait, p.closeConns)
}

func (p *Process) closeConns() {
	p.cancel()
	_ = p.a.Close()
	_ = p.b.Close()
}

// broke notes that a terminal has nothing more to say.
func (p *Process) broke(to *inbound, m *marks, err error) {
	p.mu.Lock()
	why := err.Error()
	if errors.Is(err, io.EOF) {
		why = "its terminal was closed"
	}
	to.finish(lost(p.spec, why))
	// A relay that has done its part leaves before the other one.
	left := p.quit || p.ended && to.err == io.EOF
	both := p.out.gone && p.errs.gone
	starting := p.answered < 2
	p.changed.Broadcast()
	p.mu.Unlock()
	switch {
	case left && both:
		p.closeConns()
	case left:
	case starting:
		p.lose(kinderr.New(driver.KindUnavailable, "no bash could be started in %s: its login shell said %q (%s)", p.spec.Name, lastWords(string(m.noise)), why))
	default:
		p.lose(lost(p.spec, why))
	}
}

// lastWords is the end of what a terminal showed, without control characters.
func lastWords(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	return s[max(0, len(s)-300):]
}

// lose ends the process for want of a channel. The bash is ended too, by other means, before its relays are: the end of its input
// would tell it that this process is gone, which it is not.
func (p *Process) lose(err error) {
	p.mu.Lock()
	kill := !p.ended && p.pid != "" && p.spec.Kill != nil
	p.drop(err)
	p.mu.Unlock()
	if !kill {
		p.closeConns()
		return
	}
	p.cancel()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), farWait)
		defer cancel()
		if p.spec.Kill(ctx) == nil {
			p.closeConns()
			return
		}
		// The far side finds out by itself that nobody speaks to it.
		_ = p.a.Leave()
		_ = p.b.Leave()
	}()
}

// drop ends the process on this side. p.mu is held.
func (p *Process) drop(err error) {
	p.finish(driver.ExitStatus{}, err)
	p.out.finish(err)
	p.errs.finish(err)
	p.quit = true
	p.changed.Broadcast()
}

// Stdin is the bash's standard input.
func (p *Process) Stdin() io.WriteCloser { return stdin{p} }

// Stdout and Stderr are its output.
func (p *Process) Stdout() io.ReadCloser { return &p.out }

// Stderr is its standard error.
func (p *Process) Stderr() io.ReadCloser { return &p.errs }

// Wait waits for the bash's own end.
func (p *Process) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-p.done:
		return p.status, p.failed
	default:
	}
	select {
	case <-p.done:
		return p.status, p.failed
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}

// Ready is closed when the relays on the far side have answered.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// Kill has the relay send KILL to the bash's group. Where that does not end it in a moment the channel is given up and the bash
// ended by other means, where there are any. It does not wait.
func (p *Process) Kill(ctx context.Context) error {
	p.mu.Lock()
	ended, pid := p.ended, p.pid
	p.mu.Unlock()
	if ended {
		return nil
	}
	go func() {
		if pid != "" {
			p.mu.Lock()
			p.toB.put([]byte("k " + pid + "\n"))
			p.mu.Unlock()
			select {
			case <-p.done:
				return
			case <-time.After(killWait):
			}
		}
		p.lose(lost(p.spec, "it was given up"))
	}()
	return ctx.Err()
}

// queue sends to one terminal what it is given, one after the other, so that nobody waits who does not want to.
type queue struct {
	p     *Process
	conn  Conn
	waits []piece
}

type piece struct {
	data []byte
	sent chan struct{} // nil where nobody waits
}

// put has data sent; nobody waits for it. The process's mu is held.
func (q *queue) put(data []byte) {
	q.waits = append(q.waits, piece{data: data})
	q.p.changed.Broadcast()
}

// run sends until the connections are given up. Nothing is sent before the relay has answered: until then a shell reads.
func (q *queue) run() {
	select {
	case <-q.p.ready:
	case <-q.p.ctx.Done():
		return
	}
	stop := context.AfterFunc(q.p.ctx, func() {
		q.p.mu.Lock()
		defer q.p.mu.Unlock()
		q.p.changed.Broadcast()
	})
	defer stop()
	for {
		q.p.mu.Lock()
		for len(q.waits) == 0 && q.p.ctx.Err() == nil {
			q.p.changed.Wait()
		}
		if q.p.ctx.Err() != nil {
			q.p.mu.Unlock()
			return
		}
		next := q.waits[0]
		q.waits = q.waits[1:]
		q.p.mu.Unlock()
		if q.conn.Write(q.p.ctx, next.data) != nil {
			return // the reader learns why
		}
		if next.sent != nil {
			q.p.mu.Lock()
			close(next.sent)
			q.p.changed.Broadcast()
			q.p.mu.Unlock()
		}
	}
}

type stdin struct{ p *Process }

// Write returns when all has been sent, or with an error when the bash has ended.
func (w stdin) Write(b []byte) (n int, err error) {
	const head = 16
	for len(b) > 0 {
		size := min(len(b), MaxWrite-head)
		frame := append(fmt.Appendf(nil, "d %d\n", size), b[:size]...)
		if err := w.p.send(frame); err != nil {
			return n, err
		}
		n, b = n+size, b[size:]
	}
	return n, nil
}

func (p *Process) send(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inEnded || p.inClosed || p.quit {
		return fmt.Errorf("write to the stdin of a bash that ended: %w", io.ErrClosedPipe)
	}
	sent := make(chan struct{})
	p.toA.waits = append(p.toA.waits, piece{frame, sent})
	p.changed.Broadcast()
	for {
		select {
		case <-sent:
			return nil
		default:
		}
		switch {
		case p.inEnded || p.quit:
			return fmt.Errorf("write to the stdin of a bash that ended: %w", io.ErrClosedPipe)
		case !p.expire.IsZero() && !time.Now().Before(p.expire):
			return os.ErrDeadlineExceeded
		}
		p.changed.Wait()
	}
}

// SetWriteDeadline bounds writes that wait for the far side. What was given to one that runs out may be sent all the same.
func (w stdin) SetWriteDeadline(t time.Time) error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	w.p.expire = t
	w.p.changed.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() {
			w.p.mu.Lock()
			defer w.p.mu.Unlock()
			w.p.changed.Broadcast()
		})
	}
	return nil
}

// Close sends the end of the input. It does not wait.
func (w stdin) Close() error {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if w.p.inClosed || w.p.inEnded || w.p.quit {
		return nil
	}
	w.p.inClosed = true
	w.p.toA.put([]byte("c\n"))
	return nil
}

// inbound is one output stream. The process's mu guards it.
type inbound struct {
	p      *Process
	letter string
	waits  [][]byte
	err    error // why nothing more comes
	end    bool  // nothing more comes
	gone   bool  // its connection is closed
	unread bool  // closed by the reader: what comes is thrown away

	taken, told int64 // bytes read, and of how many the far side was told
	timer       *time.Timer
}

func (s *inbound) add(data []byte) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.unread || s.end {
		s.take(len(data))
		return
	}
	s.waits = append(s.waits, append([]byte(nil), data...))
	s.p.changed.Broadcast()
}

// take notes that n bytes were read and lets the far side know, soon. p.mu is held.
func (s *inbound) take(n int) {
	s.taken += int64(n)
	switch {
	case s.taken == s.told || s.end || s.p.quit:
	case s.taken-s.told >= ackBytes:
		s.tell()
	case s.timer == nil:
		s.timer = time.AfterFunc(ackWait, func() {
			s.p.mu.Lock()
			defer s.p.mu.Unlock()
			s.timer = nil
			if s.taken > s.told && !s.end && !s.p.quit {
				s.tell()
			}
		})
	}
}

func (s *inbound) tell() {
	s.told = s.taken
	s.p.toB.put(fmt.Appendf(nil, "%s %d\n", s.letter, s.told))
}

// finish says that nothing more comes. p.mu is held.
func (s *inbound) finish(err error) {
	if err != io.EOF {
		s.gone = true
	}
	if !s.end {
		s.end, s.err = true, err
	}
}

func (s *inbound) Read(b []byte) (int, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	for len(s.waits) == 0 && !s.end && !s.unread {
		s.p.changed.Wait()
	}
	if s.unread {
		return 0, os.ErrClosed
	}
	if len(s.waits) == 0 {
		return 0, s.err
	}
	n := 0
	for n < len(b) && len(s.waits) > 0 {
		k := copy(b[n:], s.waits[0])
		n += k
		if s.waits[0] = s.waits[0][k:]; len(s.waits[0]) == 0 {
			s.waits = s.waits[1:]
		}
	}
	s.take(n)
	return n, nil
}

// Close says that nobody reads any more.
func (s *inbound) Close() error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.unread {
		return nil
	}
	s.unread = true
	for _, w := range s.waits {
		s.take(len(w))
	}
	s.waits = nil
	s.p.leave()
	s.p.changed.Broadcast()
	return nil
}

// Gone is closed when the channel is given up: nothing of the process is here any more.
func (p *Process) Gone() <-chan struct{} { return p.ctx.Done() }

// Abandon gives the channel up at once; what is at its far end finds that out by itself.
func (p *Process) Abandon() {
	p.mu.Lock()
	p.drop(lost(p.spec, "the sandbox was closed"))
	p.mu.Unlock()
	p.closeConns()
}
