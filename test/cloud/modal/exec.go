//go:build linux

package modal

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// running is a command in a sandbox, from its start until it is forgotten.
type running struct {
	box      *box
	proc     *machine.Process
	out, err *output
	in       *input
	timedOut bool

	done   chan struct{} // closed when it has ended
	code   int
	signal syscall.Signal
}

// begin starts a command. b.mu is held.
func (b *box) begin(args, env []string, dir string, timeout *time.Duration, pty, noOutput bool) (*running, error) {
	if b.ending {
		return nil, errOver
	}
	if dir == "" {
		dir = b.workdir
	}
	x := &running{box: b, done: make(chan struct{}), out: newOutput(), err: newOutput()}
	command := machine.Command{Args: args, Env: append(append([]string{}, b.env...), env...), Dir: dir}
	var ours, theirs [3]*os.File
	if pty {
		command.Terminal = &machine.Size{Cols: 80, Rows: 24}
		command.Env = append(command.Env, "TERM=xterm-256color", "COLORTERM=truecolor")
	} else {
		for i := range 3 {
			if noOutput && i > 0 {
				continue
			}
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			ours[i], theirs[i] = r, w
			if i == 0 {
				ours[i], theirs[i] = w, r
			}
		}
		command.Stdin, command.Stdout, command.Stderr = theirs[0], theirs[1], theirs[2]
	}
	proc, err := b.machine.StartCommand(command)
	for _, f := range theirs {
		if f != nil {
			_ = f.Close()
		}
	}
	if err != nil {
		for _, f := range ours {
			if f != nil {
				_ = f.Close()
			}
		}
		return nil, err
	}
	x.proc = proc
	if pty {
		ours = [3]*os.File{proc.Terminal, proc.Terminal, nil}
	}
	x.in = newInput(ours[0], pty)
	x.follow(ours, timeout)
	return x, nil
}

// follow reads what the command prints and waits for its end.
func (x *running) follow(ours [3]*os.File, timeout *time.Duration) {
	ended := make(chan struct{})
	for i, to := range []*output{nil, x.out, x.err} {
		switch {
		case to == nil:
		case ours[i] == nil:
			to.finish()
		default:
			go to.fill(ours[i], ended)
		}
	}
	if timeout != nil {
		timer := time.AfterFunc(*timeout, func() {
			x.timedOut = true
			_ = x.proc.Signal(syscall.SIGKILL, true)
		})
		go func() { <-x.done; timer.Stop() }()
	}
	go func() {
		x.code, x.signal = x.proc.Wait()
		x.in.close()
		close(ended)
		close(x.done)
	}()
}

func (x *running) wait() (int, syscall.Signal) {
	<-x.done
	return x.code, x.signal
}

// abandon says that the sandbox is no more.
func (x *running) abandon() {
	x.out.finish()
	x.err.finish()
	x.in.close()
}

const (
	// keptOutput is how much of what was sent is kept for a reader that comes back; more than the SDK can have in its
	// buffers.
	keptOutput = 72 << 20
	// aheadOutput is how much may be printed that nobody has read: the command waits behind it.
	aheadOutput = 4 << 20
	// outputChunk is the most that one message holds.
	outputChunk = 256 << 10
)

// output is one of a command's streams: appended to by one goroutine, read from any offset.
type output struct {
	mu      sync.Mutex
	changed *sync.Cond
	start   int64 // the offset of the first byte that is kept
	data    []byte
	sent    int64 // the largest offset that a reader had
	over    bool
}

func newOutput() *output {
	o := &output{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// fill copies what comes. When the command itself has ended it takes what is in the pipe, and then throws away what others
// print: they live on.
func (o *output) fill(from *os.File, ended <-chan struct{}) {
	defer from.Close()
	read := make(chan struct{})
	go func() {
		select {
		case <-ended:
			// Whoever waits for a child's output is woken; what the command had written is in the pipe.
			_ = from.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		case <-read:
		}
	}()
	defer close(read)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		o.put(buffer[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.put(rest(from))
			o.finish()
			_ = from.SetReadDeadline(time.Time{})
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err != nil { // also a terminal's EIO
			o.finish()
			return
		}
	}
}

// rest reads what is in a pipe now.
func rest(from *os.File) []byte {
	raw, err := from.SyscallConn()
	if err != nil {
		return nil
	}
	var data []byte
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil || n <= 0 {
			return
		}
		data = make([]byte, n)
		n, err = unix.Read(int(fd), data)
		if err != nil {
			n = 0
		}
		data = data[:n]
	})
	return data
}

func (o *output) put(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.over && o.start+int64(len(o.data))-o.sent > aheadOutput {
		o.changed.Wait()
	}
	if o.over || len(p) == 0 {
		return
	}
	o.data = append(o.data, p...)
	if drop := o.sent - o.start - keptOutput; drop > 8<<20 {
		o.data = append([]byte(nil), o.data[drop:]...)
		o.start += drop
	}
	o.changed.Broadcast()
}

func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.changed.Broadcast()
}

// read gives what stands at offset, waiting for it; io.EOF at the end.
func (o *output) read(ctx context.Context, offset int64) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.changed.Broadcast()
	})
	defer stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		end := o.start + int64(len(o.data))
		switch {
		case ctx.Err() != nil:
			return nil, status.FromContextError(ctx.Err()).Err()
		case offset < o.start:
			return nil, status.Errorf(codes.OutOfRange, "output before %d is not kept", o.start)
		case offset < end:
			at := offset - o.start
			data := append([]byte(nil), o.data[at:min(at+outputChunk, int64(len(o.data)))]...)
			if offset += int64(len(data)); offset > o.sent {
				o.sent = offset
				o.changed.Broadcast()
			}
			return data, nil
		case o.over:
			return nil, io.EOF
		}
		o.changed.Wait()
	}
}

// inputAhead is how much may be written that the command has not read: the one who writes waits behind it.
const inputAhead = 16 << 20

// input is a command's standard input: bytes at offsets, each taken once.
type input struct {
	to  *os.File // nil where there is none
	pty bool

	mu      sync.Mutex
	changed *sync.Cond
	queue   []byte
	written uint64 // bytes taken
	eof     bool   // no more will come
	closed  bool   // the command reads no more
}

func newInput(to *os.File, pty bool) *input {
	in := &input{to: to, pty: pty, closed: to == nil}
	in.changed = sync.NewCond(&in.mu)
	if to != nil {
		go in.pump()
	}
	return in
}

func (in *input) pump() {
	for {
		in.mu.Lock()
		for len(in.queue) == 0 && !in.eof && !in.closed {
			in.changed.Wait()
		}
		data := in.queue
		in.queue = nil
		last := in.eof && len(data) == 0
		closed := in.closed
		in.changed.Broadcast()
		in.mu.Unlock()
		if closed || last {
			if !in.pty {
				_ = in.to.Close()
			} else if last {
				_, _ = in.to.Write([]byte{4}) // what a person types for the end
			}
			return
		}
		if _, err := in.to.Write(data); err != nil {
			in.close()
			_ = in.to.Close()
			return
		}
	}
}

var errStdinClosed = status.Error(codes.FailedPrecondition, "stdin is closed")

// take takes data that stands at offset; what was taken before is passed over.
func (in *input) take(ctx context.Context, offset uint64, data []byte, eof bool) error {
	stop := context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.changed.Broadcast()
	})
	defer stop()
	in.mu.Lock()
	defer in.mu.Unlock()
	if offset > in.written {
		return status.Errorf(codes.InvalidArgument, "offset %d is beyond the %d bytes that came", offset, in.written)
	}
	if skip := in.written - offset; skip >= uint64(len(data)) {
		data = nil
	} else {
		data = data[skip:]
	}
	for len(data) > 0 && len(in.queue) > inputAhead && !in.closed && ctx.Err() == nil {
		in.changed.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case len(data) == 0 && (eof && in.eof || !eof):
		return nil // it was here before
	case in.closed, in.eof:
		return errStdinClosed
	}
	in.queue = append(in.queue, data...)
	in.written += uint64(len(data))
	in.eof = in.eof || eof
	in.changed.Broadcast()
	return nil
}

// close says that the command has ended.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.changed.Broadcast()
	if in.to != nil && !in.pty {
		_ = in.to.SetWriteDeadline(time.Now()) // a write that waits for a child
	}
}

// argumentLimit is the most that all arguments of a command hold.
const argumentLimit = 128 << 10

func tooLong(args []string) bool { return len(strings.Join(args, "")) > argumentLimit }
