package ptychannel

import (
	"bytes"
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
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
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
	// maxText is the most that is sent as text, which some versions of bash read byte by byte.
	maxText = 12 << 10
	// meetings is for how many bashes the relays make fifos at once.
	meetings = 8
)

// link is two terminals with our relays, on which one bash runs after the other.
type link struct {
	pool *Pool
	name string
	a, b Conn // the terminals of input.sh and output.sh

	ctx    context.Context // done when the connections are given up
	cancel context.CancelFunc
	ready  chan struct{} // closed when both relays have answered

	mu       sync.Mutex
	changed  *sync.Cond
	toA, toB queue
	answered int // of the relays
	goneA    bool
	goneB    bool
	quit     bool   // the relays were told to leave
	runs     int    // how many bashes there were
	meet     string // the name of the fifos of this and some others
	bash     *Process
	idle     *time.Timer // while there is none
}

// Process is a bash on the far side.
type Process struct {
	*link
	spec   Spec
	out    inbound
	errs   inbound
	done   chan struct{} // closed when status and failed are set
	gone   chan struct{} // closed when nothing of it is here any more
	status driver.ExitStatus
	failed error

	// Guarded by the link's mu.
	pid      string
	ended    bool
	inEnded  bool
	inClosed bool
	over     bool // it uses the link no more
	late     *time.Timer
	expire   time.Time
}

func newLink(pool *Pool, spec Spec, token string, a, b Conn) *link {
	l := &link{pool: pool, name: spec.Name, a: a, b: b, ready: make(chan struct{})}
	l.changed = sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.toA, l.toB = queue{l: l, conn: a}, queue{l: l, conn: b}
	go l.toA.run()
	go l.toB.run()
	go l.beat(spec.Lease)
	go l.read(a, true, newMarks(token))
	go l.read(b, false, newMarks(token))
	return l
}

// start has the relays start a bash. l.mu is held, and none runs.
func (l *link) start(spec Spec) *Process {
	p := &Process{link: l, spec: spec, done: make(chan struct{}), gone: make(chan struct{})}
	p.out.p, p.errs.p, p.out.letter, p.errs.letter = p, p, "o", "e"
	l.bash = p
	if l.runs%meetings == 0 {
		l.meet = bashscript.Quote(strings.TrimSuffix(spec.Temp, "/") + "/.elsewhere-" + random())
	}
	meet := l.meet + " " + strconv.Itoa(l.runs%meetings)
	l.runs++
	words := []string{meet, strconv.Itoa(len(spec.Env))}
	for _, word := range append(append([]string{}, spec.Env...), spec.Args...) {
		words = append(words, bashscript.Quote(word))
	}
	l.toA.put([]byte("b " + strings.Join(words, " ") + "\n"))
	l.toB.put([]byte("b " + meet + "\n"))
	p.late = time.AfterFunc(spec.StartWait, func() {
		l.mu.Lock()
		late := p.pid == "" && !p.ended
		l.mu.Unlock()
		if late {
			l.lose(p, kinderr.New(driver.KindUnavailable, "the login shell of %s did not run bash within %v", spec.Name, spec.StartWait))
		}
	})
	return p
}

// beat tells the relays now and then that this process lives.
func (l *link) beat(lease time.Duration) {
	ticker := time.NewTicker(max(time.Second/4, min(time.Minute, lease/4)))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.mu.Lock()
			for _, q := range []*queue{&l.toA, &l.toB} {
				if len(q.waits) == 0 {
					q.put([]byte("h\n"))
				}
			}
			l.mu.Unlock()
		case <-l.ctx.Done():
			return
		}
	}
}

// read takes what comes by one terminal until it ends.
func (l *link) read(conn Conn, isA bool, m *marks) {
	// What comes is of the bash that runs: the last one had said all before this one was begun.
	data := func(p []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.bash != nil {
			l.bash.stream(isA).add(p)
		}
	}
	for {
		p, err := conn.Read(l.ctx)
		m.feed(p, data, func(fields []string) { l.word(isA, fields) })
		if err != nil {
			m.rest(data)
			l.broke(isA, m, err)
			return
		}
	}
}

func (p *Process) stream(isA bool) *inbound {
	if isA {
		return &p.errs
	}
	return &p.out
}

// word takes a relay's word.
func (l *link) word(isA bool, fields []string) {
	if len(fields) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.changed.Broadcast()
	p := l.bash
	if fields[0] == "r" {
		if l.answered++; l.answered == 2 {
			close(l.ready)
		}
	}
	if p == nil {
		return
	}
	switch kind := fields[0]; {
	case kind == "s" && len(fields) == 2:
		p.pid = fields[1]
		p.late.Stop()
	case kind == "x" && len(fields) == 2:
		code, _ := strconv.Atoi(fields[1])
		// Nothing tells a death by signal n from an exit with 128+n. A bash of ours reports its exits before it leaves; what is
		// asked here is the end of one that could not.
		p.finish(driver.ExitStatus{Code: code, Signal: signame.Of(code - 128)}, nil)
	case kind == p.stream(isA).letter:
		p.stream(isA).finish(io.EOF)
	}
	p.leave()
}

// finish notes how the bash ended. mu is held.
func (p *Process) finish(status driver.ExitStatus, err error) {
	if p.ended {
		return
	}
	p.ended, p.inEnded = true, true
	p.status, p.failed = status, err
	close(p.done)
}

// leave gives the terminals back when the bash has ended and its output is at its end; where nobody wants the rest, a
// child that still writes is not hurt: somebody there reads on. mu is held.
func (p *Process) leave() {
	if p.over || !p.ended {
		return
	}
	switch {
	case p.out.end && p.errs.end:
		p.toA.put([]byte("z\n"))
		p.toB.put([]byte("z\n"))
		p.part()
		l := p.link
		l.idle = time.AfterFunc(idleWait, func() {
			l.pool.forget(l)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.bash == nil {
				l.giveUp()
			}
		})
		if l.quit || l.ctx.Err() != nil || l.goneA || l.goneB || !l.pool.give(l) {
			l.giveUp()
		}
	case (p.out.end || p.out.unread) && (p.errs.end || p.errs.unread):
		p.part()
		p.giveUp()
	}
}

// part says that the process uses the link no more. mu is held.
func (p *Process) part() {
	if !p.over {
		p.over = true
		p.late.Stop()
		p.link.bash = nil
		close(p.gone)
	}
}

// giveUp tells the relays to leave and closes the connections a moment later. l.mu is held.
func (l *link) giveUp() {
	if l.quit {
		return
	}
	l.quit = true
	l.toA.put([]byte("q\n"))
	l.toB.put([]byte("q\n"))
	time.AfterFunc(leaveWait, l.closeConns)
}

func (l *link) closeConns() {
	l.cancel()
	_ = l.a.Close()
	_ = l.b.Close()
}

// broke notes that a terminal has nothing more to say.
func (l *link) broke(isA bool, m *marks, err error) {
	why := err.Error()
	if errors.Is(err, io.EOF) {
		why = "its terminal was closed"
	}
	l.mu.Lock()
	if isA {
		l.goneA = true
	} else {
		l.goneB = true
	}
	p, both, left, starting := l.bash, l.goneA && l.goneB, l.quit, l.answered < 2
	l.quit = true
	l.changed.Broadcast()
	l.mu.Unlock()
	switch {
	case p == nil:
		l.pool.forget(l)
		if both || !left {
			l.closeConns()
		}
	case starting:
		l.lose(p, kinderr.New(driver.KindUnavailable, "no bash could be started in %s: its login shell said %q (%s)", l.name, lastWords(string(m.noise)), why))
	default:
		l.lose(p, lost(p.spec, why))
	}
}

// lastWords is the end of what a terminal showed, without control characters.
func lastWords(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	return s[max(0, len(s)-300):]
}

// lose ends a process for want of a channel. The bash is ended too, by other means, before its relays are: the end of its input
// would tell it that this process is gone, which it is not.
func (l *link) lose(p *Process, err error) {
	l.mu.Lock()
	kill := !p.ended && p.pid != "" && p.spec.Kill != nil
	p.drop(err)
	l.mu.Unlock()
	if !kill {
		l.closeConns()
		return
	}
	l.cancel()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), farWait)
		defer cancel()
		if p.spec.Kill(ctx) == nil {
			l.closeConns()
			return
		}
		// The far side finds out by itself that nobody speaks to it.
		_ = l.a.Leave()
		_ = l.b.Leave()
	}()
}

// drop ends the process on this side. mu is held.
func (p *Process) drop(err error) {
	p.finish(driver.ExitStatus{}, err)
	p.out.finish(err)
	p.errs.finish(err)
	p.quit = true
	p.part()
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
		p.lose(p, lost(p.spec, "it was given up"))
	}()
	return ctx.Err()
}

// queue sends to one terminal what it is given, one after the other, so that nobody waits who does not want to.
type queue struct {
	l     *link
	conn  Conn
	waits []piece
}

type piece struct {
	data []byte
	sent chan struct{} // nil where nobody waits
}

// put has data sent; nobody waits for it. The link's mu is held.
func (q *queue) put(data []byte) {
	q.waits = append(q.waits, piece{data: data})
	q.l.changed.Broadcast()
}

// run sends until the connections are given up. Nothing is sent before the relay has answered: until then a shell reads.
func (q *queue) run() {
	select {
	case <-q.l.ready:
	case <-q.l.ctx.Done():
		return
	}
	stop := context.AfterFunc(q.l.ctx, func() {
		q.l.mu.Lock()
		defer q.l.mu.Unlock()
		q.l.changed.Broadcast()
	})
	defer stop()
	for {
		q.l.mu.Lock()
		for len(q.waits) == 0 && q.l.ctx.Err() == nil {
			q.l.changed.Wait()
		}
		if q.l.ctx.Err() != nil {
			q.l.mu.Unlock()
			return
		}
		next := q.waits[0]
		q.waits = q.waits[1:]
		q.l.mu.Unlock()
		if q.conn.Write(q.l.ctx, next.data) != nil {
			return // the reader learns why
		}
		if next.sent != nil {
			q.l.mu.Lock()
			close(next.sent)
			q.l.changed.Broadcast()
			q.l.mu.Unlock()
		}
	}
}

type stdin struct{ p *Process }

// Write returns when all has been sent, or with an error when the bash has ended.
func (w stdin) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		data, size := frame(b)
		if err := w.p.send(data); err != nil {
			return n, err
		}
		n, b = n+size, b[size:]
	}
	return n, nil
}

// frame is the next frame of what is to be written, and how many bytes of that are in it: a text, which may end in a NUL, or
// anything.
func frame(b []byte) (data []byte, size int) {
	const head = 16
	b = b[:min(len(b), MaxWrite-head)]
	switch at := bytes.IndexByte(b, 0); {
	case at < 0 && len(b) <= maxText:
		return append(fmt.Appendf(nil, "t %d\n", len(b)), b...), len(b)
	case at > 0 && at <= maxText && at == len(b)-1:
		return append(fmt.Appendf(nil, "T %d\n", at), b[:at]...), len(b)
	}
	return append(fmt.Appendf(nil, "d %d\n", len(b)), b...), len(b)
}

// noStdin says why nothing is written any more. mu is held.
func (p *Process) noStdin() error {
	if p.failed != nil {
		return fmt.Errorf("write to the stdin of a bash: %w (%v)", io.ErrClosedPipe, p.failed)
	}
	return fmt.Errorf("write to the stdin of a bash that ended: %w", io.ErrClosedPipe)
}

func (p *Process) send(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inEnded || p.inClosed || p.over {
		return p.noStdin()
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
		case p.inEnded || p.over:
			return p.noStdin()
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
	if w.p.inClosed || w.p.inEnded || w.p.over {
		return nil
	}
	w.p.inClosed = true
	w.p.toA.put([]byte("c\n"))
	return nil
}

// inbound is one output stream. The link's mu guards it.
type inbound struct {
	p      *Process
	letter string
	waits  [][]byte
	err    error // why nothing more comes
	end    bool  // nothing more comes
	unread bool  // closed by the reader: what comes is thrown away

	taken, told int64 // bytes read, and of how many the far side was told
	timer       *time.Timer
}

// add takes what came. mu is held.
func (s *inbound) add(data []byte) {
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
	case s.taken == s.told || s.end || s.p.over:
	case s.taken-s.told >= ackBytes:
		s.tell()
	case s.timer == nil:
		s.timer = time.AfterFunc(ackWait, func() {
			s.p.mu.Lock()
			defer s.p.mu.Unlock()
			s.timer = nil
			if s.taken > s.told && !s.end && !s.p.over {
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

// Gone is closed when the process uses no terminals any more: it has ended and its output was read, or the channel was given up.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Abandon gives the channel up at once; what is at its far end finds that out by itself.
func (p *Process) Abandon() {
	p.mu.Lock()
	if p.over {
		p.mu.Unlock()
		return
	}
	p.drop(lost(p.spec, "the sandbox was closed"))
	p.mu.Unlock()
	p.closeConns()
}
