package docker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

const (
	// askWait bounds one question to the engine.
	askWait = 5 * time.Second
	// engineBack is how long an engine that does not answer may take to come back before an ended bash counts as lost with it.
	engineBack = 5 * time.Second
	// killWait bounds Kill.
	killWait = 5 * time.Second
	// copyBytes is the size of the buffer by which output is passed on; the engine's own frames are at most as big.
	copyBytes = 32 << 10
)

// process is one exec in the container. One goroutine takes the two streams apart; another one, started by the first Wait,
// learns how the bash ended.
type process struct {
	box  *sandbox
	exec string // the engine's id of the exec
	mark string // "NAME=ID": what its processes have in their environment

	script   bool // it runs a script of ours, by run
	terminal bool // its output is not in frames, and its input has no end

	conn   connection
	frames *bufio.Reader
	stdin  stdin
	out    *outStream
	errs   *outStream
	closed atomic.Int32 // how many of the three streams the user of the process has closed
	sent   atomic.Bool  // stdin is closed: a command runs

	streamEnd chan struct{} // closed when nothing more comes
	streamErr error         // nil where the engine ended the streams

	watch  sync.Once
	done   chan struct{} // closed when status and err are set
	status driver.ExitStatus
	err    error
}

// connection is what of a hijacked connection is used.
type connection interface {
	io.WriteCloser
	CloseWrite() error
	SetWriteDeadline(t time.Time) error
}

// Bash starts a bash by an exec as the container's user, never with more rights.
func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.closed.Load() {
		return nil, failure(driver.KindLost, "the sandbox is closed")
	}
	mark := bashscript.CallVariable + "=" + spec.ID
	env := slices.Clone(spec.Env)
	if !slices.Contains(env, mark) {
		env = append(env, mark) // by it Kill finds the bash
	}
	env = append(env, s.env...)
	p := s.become(ctx, spec.Args, env)
	if p == nil {
		var err error
		if p, err = s.start(ctx, spec.Args, env, client.ConsoleSize{}); err != nil {
			return nil, s.startFailed(ctx, err)
		}
		if !s.own(p) {
			_ = p.conn.Close()
			return nil, failure(driver.KindLost, "the sandbox is closed")
		}
		go p.split()
	}
	p.mark = mark
	if spec.Watchdog {
		s.tidied.Store(true)
	}
	if isWatchdog("bash " + strings.Join(spec.Args, " ")) {
		s.noteEnder(p.exec) // one that ends trees looks the same from outside
	}
	return p, nil
}

// terminalProcess is an exec with a terminal: one stream without frames, both ways.
type terminalProcess struct{ *process }

// waitForSize makes a bash wait for one line before it becomes the one that was asked for: an engine below API 1.42 makes a
// terminal without a size, which can be set only when it is there.
const waitForSize = `IFS= read -r -s; exec bash "$@"`

// BashPTY starts a bash by an exec with a terminal. It has no end of output while anybody in the container has the terminal open.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if s.closed.Load() {
		return nil, failure(driver.KindLost, "the sandbox is closed")
	}
	mark := bashscript.CallVariable + "=" + spec.ID
	env := slices.Clone(spec.Env)
	if !slices.Contains(env, mark) {
		env = append(env, mark)
	}
	args := append([]string{"--noprofile", "--norc", "-p", "-c", waitForSize, "bash"}, spec.Args...)
	p, err := s.start(ctx, args, append(env, s.env...), client.ConsoleSize{Height: uint(rows), Width: uint(cols)})
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	p.mark, p.terminal = mark, true
	if !s.own(p) {
		_ = p.conn.Close()
		return nil, failure(driver.KindLost, "the sandbox is closed")
	}
	go p.split()
	t := &terminalProcess{p}
	for pause := time.Millisecond; ; pause = min(2*pause, firstAsk) {
		if err = t.Resize(ctx, rows, cols); err == nil || ctx.Err() != nil || p.streamsEnded() {
			break
		}
		select {
		case <-time.After(pause): // it is not there yet
		case <-ctx.Done():
		}
	}
	if err == nil {
		_, err = p.stdin.Write([]byte("\n"))
	}
	if err != nil {
		// The engine does not end it when its terminal goes.
		_ = p.Kill(context.WithoutCancel(ctx))
		_ = p.conn.Close()
		return nil, s.startFailed(ctx, err)
	}
	p.sent.Store(true)
	return t, nil
}

// Resize asks the engine to.
func (t *terminalProcess) Resize(ctx context.Context, rows, cols uint16) error {
	_, err := t.box.eng.ExecResize(ctx, t.exec, client.ExecResizeOptions{Height: uint(rows), Width: uint(cols)})
	return err
}

// startFailed asks the engine why no bash could be started.
func (s *sandbox) startFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if alive := s.Alive(actx); alive != nil {
		return alive
	}
	return s.eng.explain("cannot start a bash in the container "+s.plan.name, err)
}

// start makes an exec and takes its streams over: two requests, and nothing more for what then runs in it. The caller starts
// split.
func (s *sandbox) start(ctx context.Context, args, env []string, terminal client.ConsoleSize) (*process, error) {
	tty := terminal != client.ConsoleSize{}
	made, err := s.eng.ExecCreate(ctx, s.id, client.ExecCreateOptions{
		TTY: tty, ConsoleSize: terminal, DetachKeys: detachKeys(tty, env),
		AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Env: env, Cmd: append([]string{"bash"}, args...),
		WorkingDir: "/", // the image's own may be gone by now, and then no exec would start
	})
	if err != nil {
		return nil, err
	}
	attached, err := s.eng.ExecAttach(ctx, made.ID, client.ExecAttachOptions{TTY: tty, ConsoleSize: terminal})
	if err != nil {
		return nil, err
	}
	p := &process{
		box: s, exec: made.ID, conn: hijacked{attached.HijackedResponse}, frames: attached.Reader,
		streamEnd: make(chan struct{}), done: make(chan struct{}),
	}
	p.stdin.p = p
	p.out, p.errs = newOutStream(p.closeOne), newOutStream(p.closeOne)
	return p, nil
}

// detachKeys stand in place of ctrl-p ctrl-q, by which the engine gives up a terminal: they cannot be turned off, and these nobody
// types by chance. The engine holds back what may begin them, so the first is a key that programs rarely act on alone.
func detachKeys(tty bool, env []string) string {
	if !tty {
		return ""
	}
	keys := "ctrl-@"
	for _, entry := range env {
		if id, ok := strings.CutPrefix(entry, bashscript.CallVariable+"="); ok {
			for _, c := range id {
				keys += "," + string(c)
			}
		}
	}
	return keys
}

type hijacked struct{ client.HijackedResponse }

func (h hijacked) Write(p []byte) (int, error)        { return h.Conn.Write(p) }
func (h hijacked) Close() error                       { return h.Conn.Close() }
func (h hijacked) CloseWrite() error                  { return h.HijackedResponse.CloseWrite() }
func (h hijacked) SetWriteDeadline(t time.Time) error { return h.Conn.SetWriteDeadline(t) }

// stdin writes to the bash's standard input.
type stdin struct {
	p    *process
	once sync.Once
}

func (s *stdin) Write(b []byte) (int, error) {
	select {
	case <-s.p.streamEnd:
		return 0, io.ErrClosedPipe
	default:
		return s.p.conn.Write(b)
	}
}

// Close tells the bash that its input is at its end; its output goes on.
func (s *stdin) Close() error {
	var err error
	s.once.Do(func() {
		s.p.sent.Store(true)
		if !s.p.terminal {
			err = s.p.conn.CloseWrite()
		}
		s.p.closeOne()
	})
	return err
}

func (s *stdin) SetWriteDeadline(t time.Time) error { return s.p.conn.SetWriteDeadline(t) }

// closeOne gives the connection up when all three streams are closed. A child in the background lives on: the engine then
// throws away what it prints.
func (p *process) closeOne() {
	if p.closed.Add(1) == 3 {
		_ = p.conn.Close()
	}
}

func (p *process) closeAll() {
	_, _, _ = p.stdin.Close(), p.out.Close(), p.errs.Close()
}

func (p *process) Stdin() io.WriteCloser { return &p.stdin }
func (p *process) Stdout() io.ReadCloser { return p.out }
func (p *process) Stderr() io.ReadCloser { return p.errs }

// split takes the frames apart until the connection ends: a stream's number, a length, so many bytes.
func (p *process) split() {
	err := p.splitFrames(p.frames)
	if !errors.Is(err, io.EOF) && p.closed.Load() < 3 {
		p.streamErr = err
	}
	_ = p.conn.Close() // a write to an ended bash is an error
	end := p.streamErr
	if end == nil {
		end = io.EOF
	}
	p.out.finish(end)
	p.errs.finish(end)
	close(p.streamEnd)
	p.box.disown(p)
}

func (p *process) splitFrames(r *bufio.Reader) error {
	if p.terminal {
		return p.copyShown(r)
	}
	var head [8]byte
	var buffer []byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		to := p.out
		switch stdcopy.StdType(head[0]) {
		case stdcopy.Stdin, stdcopy.Stdout:
		case stdcopy.Stderr, stdcopy.Systemerr:
			to = p.errs
		default:
			return fmt.Errorf("the engine's stream is not in frames (%q)", head[:])
		}
		if buffer == nil {
			buffer = make([]byte, copyBytes)
		}
		for left := int(binary.BigEndian.Uint32(head[4:])); left > 0; {
			n, err := r.Read(buffer[:min(left, len(buffer))])
			to.put(buffer[:n])
			left -= n
			if err != nil {
				return io.ErrUnexpectedEOF
			}
		}
	}
}

// copyShown passes on what a terminal shows.
func (p *process) copyShown(r *bufio.Reader) error {
	p.errs.finish(io.EOF)
	buffer := make([]byte, copyBytes)
	for {
		n, err := r.Read(buffer)
		p.out.put(buffer[:n])
		if err != nil {
			return err
		}
	}
}

// Wait learns of the bash's own end in two ways: from the end of its streams, and, where a child holds them or nobody reads
// them, from the engine, which is asked now and then while a command runs. The engine itself closes the streams of an exec two seconds after its
// bash.
func (p *process) Wait(ctx context.Context) (driver.ExitStatus, error) {
	p.watch.Do(func() {
		if !p.box.behind(func() { p.learn(p.box.ctx) }) {
			p.learn(p.box.ctx)
		}
	})
	select {
	case <-p.done:
		return p.status, p.err
	default:
	}
	select {
	case <-p.done:
		return p.status, p.err
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}

// How often the engine is asked while the streams are open: at first soon, for a call that is short.
const (
	firstAsk = 250 * time.Millisecond
	lastAsk  = 5 * time.Second
)

// learn waits for the bash's end and notes it. ctx is the sandbox's life.
func (p *process) learn(ctx context.Context) {
	defer close(p.done)
	pause := firstAsk
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for open := true; open; {
		if ctx.Err() != nil {
			p.err = failure(driver.KindLost, "the sandbox was closed while a bash ran in it")
			return
		}
		select {
		case <-p.streamEnd:
			open = false
		case <-ctx.Done():
		case <-timer.C:
			if p.sent.Load() || p.out.held() || p.errs.held() {
				if ended, err := p.ask(ctx); err == nil && ended {
					return
				}
				pause = min(2*pause, lastAsk)
			}
			timer.Reset(pause)
		}
	}
	p.learnAfterStreams(ctx)
}

// learnAfterStreams asks until the engine says that the bash has ended, which is mostly at once. A program may also have
// closed its streams and run on.
func (p *process) learnAfterStreams(ctx context.Context) {
	var silent time.Time
	for pause := time.Millisecond; ; pause = min(2*pause, firstAsk) {
		ended, err := p.ask(ctx)
		switch {
		case ended:
			return
		case err == nil && p.streamErr != nil:
			p.err = failure(driver.KindLost, "the connection to a bash in the container %s broke: %w", p.box.plan.name, p.streamErr)
			return
		case err == nil:
			silent = time.Time{}
		case silent.IsZero():
			silent = time.Now()
		case time.Since(silent) > engineBack:
			p.err = p.box.eng.explain("asking how a bash in the container "+p.box.plan.name+" ended", err)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			p.err = failure(driver.KindLost, "the sandbox was closed while a bash ran in it")
			return
		}
	}
}

// ask asks the engine whether the bash has ended, and notes how. An error says that the engine gave no answer.
func (p *process) ask(ctx context.Context) (ended bool, err error) {
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	answer, err := p.box.eng.ExecInspect(actx, p.exec, client.ExecInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		if p.err = p.box.Alive(actx); p.err == nil {
			p.err = failure(driver.KindLost, "the engine has forgotten a bash that ran in the container %s", p.box.plan.name)
		}
		return true, nil
	case err != nil:
		return false, err
	case answer.Running, answer.PID == 0 && answer.ExitCode == 0 && !p.streamsEnded():
		return false, nil // it runs, or has not started yet
	case answer.ExitCode == 137 && p.containerGone(ctx):
		return true, nil
	}
	p.status = exitStatus(answer.ExitCode)
	return true, nil
}

func (p *process) streamsEnded() bool {
	select {
	case <-p.streamEnd:
		return true
	default:
		return false
	}
}

// containerGone tells whether a bash was killed because its container ended, and makes that the process's error. The engine
// may learn of the container's end later than of the bash's, and says until then that it runs: only a bash that can be started
// in it proves that.
func (p *process) containerGone(ctx context.Context) bool {
	gone := func() bool {
		actx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		err := p.box.Alive(actx)
		if err == nil || classify(err) != driver.KindLost {
			return false
		}
		p.err = err
		return true
	}
	if gone() {
		return true
	}
	if !p.script {
		rctx, cancel := context.WithTimeout(ctx, askWait)
		_, err := p.box.run(rctx, ":")
		cancel()
		if err == nil {
			return gone() // it may have been started again
		}
	}
	for until := time.Now().Add(settleWait); time.Now().Before(until) && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
		if gone() {
			return true
		}
	}
	return false
}

// exitStatus reads the engine's code. An engine gives 128+n for a death by signal n and for an exit with that code, and
// nothing tells one from the other. A bash of ours reports its exits, with their codes, before it leaves; what is asked here
// is the end of one that could not: it was killed, or another program took its place. So such a code is taken for the signal.
func exitStatus(code int) driver.ExitStatus {
	return driver.ExitStatus{Code: code, Signal: signame.Of(code - 128)}
}

// killScript ends every process that has $1 ("NAME=ID") in its environment, by builtins alone. The script itself has
// another id.
const killScript = `for dir in /proc/[0-9]*; do
	[[ ${dir#/proc/} != $$ ]] || continue
	while IFS= read -r -d '' entry; do
		[[ $entry != "$1" ]] || { kill -KILL "${dir#/proc/}"; break; }
	done <"$dir/environ"
done 2>/dev/null
:`

// Kill ends the bash and what it started that still carries its id, by another bash of the same user. Where no bash can be
// started any more nothing can be ended without more rights than the call had; the connection is given up all the same.
func (p *process) Kill(ctx context.Context) error {
	_ = p.stdin.Close()
	select {
	case <-p.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	if ended, err := p.ended(ctx); err == nil && ended {
		return nil
	}
	_, err := p.box.run(ctx, killScript, p.mark)
	return err
}

// ended is ask without noting anything.
func (p *process) ended(ctx context.Context) (bool, error) {
	answer, err := p.box.eng.ExecInspect(ctx, p.exec, client.ExecInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return true, nil
	}
	return err == nil && !answer.Running && (answer.PID != 0 || answer.ExitCode != 0), err
}

// scriptOutput bounds what a script of ours may print.
const scriptOutput = 4 << 20

// run runs a script of ours in the container, with arguments and without input, and returns what it printed.
func (s *sandbox) run(ctx context.Context, script string, args ...string) (string, error) {
	p, err := s.startScript(ctx, s.env, script, args...)
	if err != nil {
		return "", err
	}
	defer p.closeAll()
	_ = p.stdin.Close()
	out, _, err := p.answer(ctx, "")
	return out, err
}

// startScript starts a bash that runs a script of ours.
func (s *sandbox) startScript(ctx context.Context, env []string, script string, args ...string) (*process, error) {
	p, err := s.start(ctx, append([]string{"--noprofile", "--norc", "-p", "-c", script, "elsewhere"}, args...), env, client.ConsoleSize{})
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	p.script = true
	go p.split()
	return p, nil
}

// answer reads what a script of ours prints up to its end, or, where end is not "", up to that on both streams: then the bash waits.
func (p *process) answer(ctx context.Context, end string) (out string, waits bool, err error) {
	// Its end closes the connection, and that the readers below.
	stop := context.AfterFunc(ctx, p.closeAll)
	defer stop()
	var said string
	var told bool
	var reading sync.WaitGroup
	reading.Go(func() { said, told, _ = readUntil(p.errs, end, scriptOutput) })
	out, waits, err = readUntil(p.out, end, scriptOutput)
	reading.Wait()
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case err != nil:
		return "", false, err
	case waits && told:
		return out, stop(), nil
	}
	return out, false, p.scriptEnd(ctx, said)
}

// readUntil reads until what was read ends with end, which is left out, or to r's own end, limit bytes at most.
func readUntil(r io.Reader, end string, limit int) (text string, found bool, err error) {
	var all []byte
	buffer := make([]byte, 4<<10)
	for len(all) < limit {
		n, err := r.Read(buffer)
		all = append(all, buffer[:n]...)
		if end != "" && bytes.HasSuffix(all, []byte(end)) {
			return string(all[:len(all)-len(end)]), true, nil
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", false, err
		}
	}
	return string(all), false, nil
}

// scriptEnd waits until the engine says how a script of ours has ended, whose streams have; said is what it complained of.
func (p *process) scriptEnd(ctx context.Context, said string) error {
	for pause := time.Millisecond; ; pause = min(2*pause, firstAsk) {
		ended, err := p.ask(ctx)
		switch {
		case err != nil:
			return p.box.eng.explain("running a script in the container "+p.box.plan.name, err)
		case ended && p.err != nil:
			return p.err
		case ended && p.status.Code != 0:
			return &scriptError{code: p.status.Code, said: oneLine(said[max(0, len(said)-tailBytes):])}
		case ended:
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scriptError says that a script of ours did not end with 0.
type scriptError struct {
	code int
	said string
}

func (e *scriptError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("bash ended with %d", e.code)
	}
	return e.said
}
