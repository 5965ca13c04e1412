package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// The messages of SSH's connection layer (RFC 4254) that a session needs.
const (
	msgGlobalRequest = 80
	msgOpen          = 90
	msgOpenConfirm   = 91
	msgOpenFailure   = 92
	msgWindowAdjust  = 93
	msgData          = 94
	msgExtendedData  = 95
	msgEOF           = 96
	msgClose         = 97
	msgRequest       = 98
	msgSuccess       = 99
	msgFailure       = 100
)

const (
	// ourWindow is how much of a bash's output may be on its way: it bounds what is kept of a flood that nobody reads.
	ourWindow = 2 << 20
	// ourPacket is the largest piece of it; OpenSSH's own size.
	ourPacket = 32 << 10
	// killWait is how long a bash that was sent KILL may take before its channel is closed.
	killWait = 2 * time.Second
)

// errRefused says that the server opens no more sessions on this connection (MaxSessions).
var errRefused = errors.New("the server opens no more sessions on this connection")

// refused is errRefused with the connection to the master that has to stay open as long as others use the master.
type refused struct{ conn *muxConn }

func (*refused) Error() string        { return errRefused.Error() }
func (*refused) Is(target error) bool { return target == errRefused }

// channel is one session channel of a master's connection, and the bash in it. The master relays its packets as they are
// (its "proxy" mode), so that how a bash ended is known exactly, also by which signal: the ssh program tells a signal's end
// from a lost connection by nothing. It has a connection to the master of its own.
type channel struct {
	conn     *muxConn
	theirs   uint32 // the server's number for the channel
	packet   int    // the most it takes at once
	lostText func() string
	closed   func(c *channel, clean bool) // called once when the connection to the master is closed

	wmu       sync.Mutex // one packet is written at a time
	closeSent bool       // nothing may follow our CLOSE

	mu      sync.Mutex
	changed *sync.Cond
	window  int // what it takes now
	started int // 1 the bash was started, -1 it was not
	pings   []func()
	inEnded bool
	expire  time.Time // of writes to stdin
	ended   bool
	over    bool // their CLOSE came, or the connection went
	gaveUp  bool // our CLOSE went out
	out     inbound
	err     inbound

	done   chan struct{} // closed when status and failed are set
	status driver.ExitStatus
	failed error
}

// request is what a bash is started with.
type request struct {
	command string
	env     []string // "K=V", where the server takes it
	agent   bool     // forward the agent
	pty     *ptySize // nil for plain streams
}

// ptySize is the size of a terminal in characters.
type ptySize struct{ rows, cols uint16 }

// startOn opens a channel over the master at socket and starts req in it. errRefused says that the server opens no more
// sessions; any other error but ctx's that the master is of no use. onClose is called once when the channel is no more, and
// also before an error; clean says that the server has closed the session. When ctx is done the start goes on behind and is undone: a
// master dies of a channel that is given up before the server has answered.
func startOn(ctx context.Context, socket string, req request, lostText func() string, onClose func(c *channel, clean bool)) (*channel, error) {
	c := &channel{lostText: lostText, closed: onClose, done: make(chan struct{})}
	c.changed = sync.NewCond(&c.mu)
	c.out.c, c.err.c = c, c
	conn, release, err := dialMaster(ctx, socket)
	if err != nil {
		onClose(c, false)
		return nil, err
	}
	release()
	c.conn = conn
	started := make(chan error, 1)
	go func() {
		if err := c.open(); err != nil {
			if errors.Is(err, errRefused) {
				err = &refused{conn}
			} else {
				_ = conn.Close()
			}
			onClose(c, false)
			started <- err
			return
		}
		go c.read()
		err := c.exec(req)
		if err != nil {
			c.abort()
		}
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		go func() {
			if <-started == nil {
				c.abort()
			}
		}()
		return nil, ctx.Err()
	}
}

// abort closes a channel that nobody has been given.
func (c *channel) abort() {
	_ = stdin{c}.Close()
	_ = c.out.Close()
	_ = c.err.Close()
	_ = c.Kill(context.Background())
}

// open waits for the server's leave to open a session.
func (c *channel) open() error {
	if _, err := c.conn.ask(muxProxy, muxIsProxy); err != nil {
		return err
	}
	const ours = 0
	if err := c.sendPacket(msgOpen, text("session"), u32(ours), u32(ourWindow), u32(ourPacket)); err != nil {
		return err
	}
	for {
		kind, body, err := c.receivePacket()
		if err != nil {
			return err
		}
		switch kind {
		case msgOpenConfirm:
			body = skip(body, 4)
			c.theirs, c.window, c.packet = first(body), int(first(skip(body, 4))), int(first(skip(body, 8)))
			if c.packet <= 0 || c.packet > ourPacket {
				c.packet = ourPacket
			}
			return nil
		case msgOpenFailure:
			return errRefused
		}
	}
}

// exec starts the command and waits for the server's word that it has.
func (c *channel) exec(req request) error {
	var errs []error
	for _, entry := range req.env {
		name, value, _ := strings.Cut(entry, "=")
		errs = append(errs, c.ask("env", false, text(name), text(value)))
	}
	if req.agent {
		errs = append(errs, c.ask("auth-agent-req@openssh.com", false))
	}
	if size := req.pty; size != nil {
		// Its refusal is an answer too, which would be taken for the command's: none is asked for, and bash finds out.
		errs = append(errs, c.ask("pty-req", false, text("xterm-256color"), u32(uint32(size.cols)), u32(uint32(size.rows)), u32(0), u32(0), text("\x00")))
	}
	errs = append(errs, c.ask("exec", true, text(req.command)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.started == 0 && !c.over {
		c.changed.Wait()
	}
	switch {
	case c.started < 0:
		return failure(driver.KindUnavailable, "the server does not run commands for this account")
	case c.started == 0 && c.failed != nil:
		return c.failed
	case c.started == 0:
		return errors.New("the server closed the channel before the command was started")
	}
	return nil
}

// ask sends a request about this channel.
func (c *channel) ask(what string, reply bool, parts ...[]byte) error {
	return c.sendPacket(msgRequest, append([][]byte{u32(c.theirs), text(what), flag(reply)}, parts...)...)
}

// ping calls answered when the server has answered what was asked now; never where the channel is closed before that.
func (c *channel) ping(answered func()) {
	c.mu.Lock()
	c.pings = append(c.pings, answered)
	c.mu.Unlock()
	_ = c.ask("keepalive@openssh.com", true)
}

// sendPacket writes one packet of the connection layer: a padding length of 0, the kind and the body.
func (c *channel) sendPacket(kind byte, parts ...[]byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.closeSent {
		return io.ErrClosedPipe // the server ends the whole connection over a message for a channel that is no more
	}
	c.closeSent = kind == msgClose
	err := c.conn.send(append([][]byte{{0, kind}}, parts...)...)
	if err != nil {
		_ = c.conn.Close() // part of it may have been written
	}
	return err
}

func (c *channel) receivePacket() (kind byte, body []byte, err error) {
	packet, err := c.conn.receive()
	if err != nil || len(packet) < 2 {
		return 0, nil, err
	}
	return packet[1], packet[2:], nil
}

// read takes what comes until the channel is closed on both sides or the connection is lost.
func (c *channel) read() {
	for {
		kind, body, err := c.receivePacket()
		if err != nil {
			c.lose(err)
			return
		}
		if kind == msgGlobalRequest {
			continue // the master answers them
		}
		c.take(kind, skip(body, 4))
		if kind == msgClose {
			c.lose(nil)
			return
		}
	}
}

// take handles one message; body is what stands behind the channel's number.
func (c *channel) take(kind byte, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	switch kind {
	case msgWindowAdjust:
		c.window += int(first(body))
	case msgData:
		data, _ := cutText(body)
		c.out.add(data)
	case msgExtendedData:
		data, _ := cutText(skip(body, 4))
		c.err.add(data)
	case msgEOF:
		c.out.end, c.err.end = true, true
	case msgSuccess, msgFailure:
		switch {
		case c.started == 0 && kind == msgSuccess:
			c.started = 1
		case c.started == 0:
			c.started = -1
		case len(c.pings) > 0:
			go c.pings[0]()
			c.pings = c.pings[1:]
		}
	case msgRequest:
		what, rest := cutText(body)
		c.takeRequest(string(what), skip(rest, 1))
	}
}

func (c *channel) takeRequest(what string, rest []byte) {
	switch what {
	case "exit-status":
		c.finish(driver.ExitStatus{Code: int(first(rest))}, nil)
	case "exit-signal":
		name, _ := cutText(rest)
		c.finish(signaled(string(name)), nil)
	case "eow@openssh.com":
		c.inEnded = true // nobody reads stdin any more
	}
}

// finish notes how the bash ended. c.mu is held.
func (c *channel) finish(status driver.ExitStatus, err error) {
	if c.ended {
		return
	}
	c.ended, c.inEnded = true, true
	c.status, c.failed = status, err
	close(c.done)
	c.giveUpUnread()
}

// lose ends the channel: with err because the connection went, else because the server closed it. It gives the slot of the
// connection back.
func (c *channel) lose(err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	c.out.end, c.err.end = true, true
	closing := err == nil && !c.gaveUp
	c.gaveUp = true
	if !c.ended {
		why := c.lostText()
		if err == nil {
			why = "the server closed the channel"
		}
		c.finish(driver.ExitStatus{}, failure(driver.KindLost, "the connection to the bash was lost: %s", why))
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	if closing {
		_ = c.sendPacket(msgClose, u32(c.theirs)) // the server frees the session when it has ours
	}
	_ = c.conn.Close()
	c.closed(c, err == nil)
}

// giveUpUnread closes the channel of a bash that ended and whose output nobody reads: a child that holds it must not take a
// session of the server's for as long as it lives. c.mu is held.
func (c *channel) giveUpUnread() {
	if c.ended && c.out.unread && c.err.unread && !c.gaveUp {
		c.gaveUp = true
		go func() {
			if c.sendPacket(msgClose, u32(c.theirs)) != nil {
				return // the reader finds it closed
			}
			// The server answers with its own; a connection that is dead does not.
			select {
			case <-time.After(killWait):
				_ = c.conn.Close()
			case <-c.whenOver():
			}
		}()
	}
}

// whenOver is closed when the channel is.
func (c *channel) whenOver() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for !c.over {
			c.changed.Wait()
		}
		close(over)
	}()
	return over
}

func (c *channel) Stdin() io.WriteCloser { return stdin{c} }
func (c *channel) Stdout() io.ReadCloser { return &c.out }
func (c *channel) Stderr() io.ReadCloser { return &c.err }

func (c *channel) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-c.done:
		return c.status, c.failed
	default:
	}
	select {
	case <-c.done:
		return c.status, c.failed
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}

// terminalChannel is a channel with a terminal: its input has no end but a key.
type terminalChannel struct{ *channel }

func (c terminalChannel) Stdin() io.WriteCloser { return typed{stdin{c.channel}} }

type typed struct{ stdin }

func (typed) Close() error { return nil }

// Resize tells the server the new size.
func (c terminalChannel) Resize(_ context.Context, rows, cols uint16) error {
	return c.ask("window-change", false, u32(uint32(cols)), u32(uint32(rows)), u32(0), u32(0))
}

// Kill asks the server, over the bash's own channel, to send KILL to its process group, so that no other channel is needed. A
// server older than OpenSSH 7.9 does not; then, and where the connection is dead, the channel is closed a moment later, which
// ends the bash's input and output.
func (c *channel) Kill(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	default:
	}
	go func() {
		_ = c.ask("signal", false, text("KILL"))
		select {
		case <-c.done:
		case <-time.After(killWait):
			_ = c.conn.Close()
		}
	}()
	return ctx.Err()
}

// stdin is the write end of a bash's input.
type stdin struct{ c *channel }

func (w stdin) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		piece, err := w.c.reserve(len(p))
		if err != nil {
			return n, err
		}
		if err := w.c.sendPacket(msgData, u32(w.c.theirs), u32(uint32(piece)), p[:piece]); err != nil {
			return n, err
		}
		n, p = n+piece, p[piece:]
	}
	return n, nil
}

// reserve waits until the other side takes more, and says how much of want may be sent now.
func (c *channel) reserve(want int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.inEnded || c.over || c.gaveUp:
			return 0, fmt.Errorf("write to the stdin of a bash that ended: %w", io.ErrClosedPipe)
		case !c.expire.IsZero() && !time.Now().Before(c.expire):
			return 0, os.ErrDeadlineExceeded
		case c.window > 0:
			n := min(want, c.window, c.packet)
			c.window -= n
			return n, nil
		}
		c.changed.Wait()
	}
}

// SetWriteDeadline bounds writes that wait for the other side to read.
func (w stdin) SetWriteDeadline(t time.Time) error {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.c.expire = t
	w.c.changed.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), w.c.changed.Broadcast)
	}
	return nil
}

// Close sends the end of the input. A second Close does nothing.
func (w stdin) Close() error {
	c := w.c
	c.mu.Lock()
	skip := c.inEnded || c.over || c.gaveUp
	c.inEnded = true
	c.changed.Broadcast()
	c.mu.Unlock()
	if skip {
		return nil
	}
	return c.sendPacket(msgEOF, u32(c.theirs))
}

// inbound is one output stream: what came and was not read yet. The channel's mu guards it.
type inbound struct {
	c      *channel
	waits  [][]byte
	end    bool
	unread bool // closed by the reader: what comes is thrown away
	owed   int  // bytes read that the other side was not told of
}

func (s *inbound) add(data []byte) {
	if s.unread {
		s.owe(len(data))
		return
	}
	if len(data) > 0 {
		s.waits = append(s.waits, data)
	}
}

// owe lets the other side send as much again as was read. c.mu is held, so the packet goes out behind it.
func (s *inbound) owe(n int) {
	s.owed += n
	if s.owed < ourWindow/4 || s.c.over || s.c.gaveUp {
		return
	}
	owed := s.owed
	s.owed = 0
	go func() { _ = s.c.sendPacket(msgWindowAdjust, u32(s.c.theirs), u32(uint32(owed))) }()
}

func (s *inbound) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for len(s.waits) == 0 && !s.end && !s.unread {
		s.c.changed.Wait()
	}
	if s.unread {
		return 0, os.ErrClosed
	}
	if len(s.waits) == 0 {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && len(s.waits) > 0 {
		k := copy(p[n:], s.waits[0])
		n += k
		if s.waits[0] = s.waits[0][k:]; len(s.waits[0]) == 0 {
			s.waits[0] = nil
			s.waits = s.waits[1:]
		}
	}
	s.owe(n)
	return n, nil
}

// Close says that nobody reads any more.
func (s *inbound) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.unread {
		return nil
	}
	s.unread = true
	left := 0
	for _, w := range s.waits {
		left += len(w)
	}
	s.waits = nil
	s.owe(left)
	s.c.giveUpUnread()
	s.c.changed.Broadcast()
	return nil
}

// signaled is the end by a signal, which SSH names as POSIX does.
func signaled(name string) driver.ExitStatus {
	name, _, _ = strings.Cut(name, "@")
	number, ok := signals[name]
	if !ok {
		return driver.ExitStatus{Code: 255, Signal: name}
	}
	return driver.ExitStatus{Code: 128 + number, Signal: name}
}

// signals are Linux's numbers of the signals that a server may name.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "FPE": 8, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12,
	"PIPE": 13, "ALRM": 14, "TERM": 15,
}
