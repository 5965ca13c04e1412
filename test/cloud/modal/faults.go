//go:build linux

package modal

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Fault is what goes wrong with the next calls of a method.
type Fault struct {
	Method string // as in the protocol, "TaskExecStart"; "" is any
	Skip   int    // so many calls go well first
	Times  int    // how many go wrong; 0 is one

	Code    codes.Code // the answer; OK is none, for Hang alone
	Message string
	// RetryAfter tells the client to try again after so long; nil tells nothing.
	RetryAfter *time.Duration
	// Hang gives no answer until the client gives up.
	Hang bool
	// Delay is waited for before the answer.
	Delay time.Duration
	// After does what was asked before it fails: the answer is lost.
	After bool
	// Bytes ends a stream of output with Code after so many bytes of data.
	Bytes int64
}

// Inject makes faults happen, in the order in which they were injected.
func (e *Emulator) Inject(all ...Fault) {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	for _, f := range all {
		f.Times = max(f.Times, 1)
		e.faults.waiting = append(e.faults.waiting, &f)
	}
}

// Heal takes back the faults that have not happened.
func (e *Emulator) Heal() {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	e.faults.waiting = nil
}

type faults struct {
	mu      sync.Mutex
	waiting []*Fault
}

func (f *faults) take(method string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, one := range f.waiting {
		if one.Method != "" && one.Method != method {
			continue
		}
		if one.Skip > 0 {
			one.Skip--
			continue
		}
		if one.Times--; one.Times == 0 {
			f.waiting = append(f.waiting[:i:i], f.waiting[i+1:]...)
		}
		return one
	}
	return nil
}

// fail is the fault's answer; nil where there is none but the right one.
func (f *Fault) fail(ctx context.Context, closing <-chan struct{}) error {
	wait := f.Delay
	if f.Hang {
		wait = time.Hour
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-closing:
			return status.Error(codes.Unavailable, "the emulator is closed")
		}
	}
	if f.Code == codes.OK {
		return nil
	}
	answer := status.New(f.Code, f.Message)
	if f.RetryAfter != nil {
		with, err := answer.WithDetails(pb.RPCRetryPolicy_builder{RetryAfterSecs: float32(f.RetryAfter.Seconds())}.Build())
		if err != nil {
			return err
		}
		answer = with
	}
	return answer.Err()
}

// cutStream ends after so many bytes of output.
type cutStream struct {
	grpc.ServerStream
	left    int64
	fault   *Fault
	closing <-chan struct{}
}

func (s *cutStream) SendMsg(m any) error {
	chunk, ok := m.(*pb.TaskExecStdioReadResponse)
	if !ok {
		return s.ServerStream.SendMsg(m)
	}
	if data := chunk.GetData(); int64(len(data)) >= s.left {
		if s.left > 0 {
			if err := s.ServerStream.SendMsg(pb.TaskExecStdioReadResponse_builder{Data: data[:s.left]}.Build()); err != nil {
				return err
			}
		}
		s.left = 0
		if err := s.fault.fail(s.Context(), s.closing); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "the stream was cut")
	}
	s.left -= int64(len(chunk.GetData()))
	return s.ServerStream.SendMsg(m)
}

// counters count calls by method.
type counters struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counters) add(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[method]++
}

// Counts tells how many calls of each method came.
func (e *Emulator) Counts() map[string]int {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	return maps.Clone(e.counts.n)
}

// SetLatency makes every byte take half of d in each direction, from now on.
func (e *Emulator) SetLatency(d time.Duration) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.net.latency = d
}

// CutConnections cuts all connections now.
func (e *Emulator) CutConnections() { e.net.cutAll() }

// CutAtRandom cuts the connection of one message in n from now on, by a generator with this seed; n 0 is never.
func (e *Emulator) CutAtRandom(n int, seed uint64) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.net.cutOne, e.net.random = n, rand.New(rand.NewPCG(seed, 0))
}

// network is a listener whose connections can be slow and can be cut.
type network struct {
	net.Listener

	mu      sync.Mutex
	latency time.Duration
	conns   map[*slowConn]struct{}
	cutOne  int
	random  *rand.Rand
}

func newNetwork(l net.Listener) *network {
	return &network{Listener: l, conns: map[*slowConn]struct{}{}}
}

func (n *network) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &slowConn{Conn: conn, net: n, in: make(chan piece, 1024), out: make(chan piece, 1024), closed: make(chan struct{})}
	n.mu.Lock()
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	go c.receive()
	go c.send()
	return c, nil
}

func (n *network) halfLatency() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.latency / 2
}

func (n *network) cutAll() {
	n.mu.Lock()
	var all []*slowConn
	for c := range n.conns {
		all = append(all, c)
	}
	n.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// cutNow cuts the connection of a call, now and then.
func (n *network) cutNow(ctx context.Context) bool {
	n.mu.Lock()
	hit := n.cutOne > 0 && n.random.IntN(n.cutOne) == 0
	n.mu.Unlock()
	if !hit {
		return false
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	n.mu.Lock()
	var victim *slowConn
	for c := range n.conns {
		if c.RemoteAddr().String() == p.Addr.String() {
			victim = c
		}
	}
	n.mu.Unlock()
	if victim == nil {
		return false
	}
	_ = victim.Close()
	return true
}

// noisyStream has its connection cut now and then.
type noisyStream struct {
	grpc.ServerStream
	net *network
}

func (s *noisyStream) SendMsg(m any) error {
	if s.net.cutNow(s.Context()) {
		return status.Error(codes.Unavailable, "the connection was cut")
	}
	return s.ServerStream.SendMsg(m)
}

// piece is data on its way.
type piece struct {
	data []byte
	err  error
	due  time.Time
}

// slowConn delivers late what is read and written.
type slowConn struct {
	net.Conn
	net     *network
	in, out chan piece
	rest    []byte
	closed  chan struct{}
	once    sync.Once
}

func (c *slowConn) receive() {
	for {
		buffer := make([]byte, 32<<10)
		n, err := c.Conn.Read(buffer)
		select {
		case c.in <- piece{buffer[:n], err, time.Now().Add(c.net.halfLatency())}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *slowConn) send() {
	for {
		select {
		case p := <-c.out:
			c.await(p.due)
			if _, err := c.Conn.Write(p.data); err != nil {
				_ = c.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *slowConn) await(due time.Time) {
	wait := time.Until(due)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.closed:
	}
}

func (c *slowConn) Read(b []byte) (int, error) {
	for len(c.rest) == 0 {
		select {
		case p := <-c.in:
			c.await(p.due)
			if len(p.data) == 0 && p.err != nil {
				return 0, p.err
			}
			c.rest = p.data
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *slowConn) Write(b []byte) (int, error) {
	select {
	case c.out <- piece{data: append([]byte(nil), b...), due: time.Now().Add(c.net.halfLatency())}:
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (c *slowConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.net.mu.Lock()
		delete(c.net.conns, c)
		c.net.mu.Unlock()
	})
	return c.Conn.Close()
}

// watch looks for a text in requests.
type watch struct {
	mu    sync.Mutex
	text  string
	found []string
	stdin int64
}

func (w *watch) look(method string, req any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if in, ok := req.(*pb.TaskExecStdinWriteRequest); ok {
		w.stdin += int64(len(in.GetData()))
		return
	}
	if m, ok := req.(fmt.Stringer); ok && w.text != "" && strings.Contains(m.String(), w.text) {
		w.found = append(w.found, method)
	}
}

// WatchFor looks from now on for a text in every request but what commands read.
func (e *Emulator) WatchFor(text string) {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	e.watch.text, e.watch.found = text, nil
}

// Watched are the methods in whose requests the text was.
func (e *Emulator) Watched() []string {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return slices.Clone(e.watch.found)
}

// StdinBytes is how much all commands were sent to read.
func (e *Emulator) StdinBytes() int64 {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return e.watch.stdin
}
