package modal

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

// killWait bounds Kill.
const killWait = 5 * time.Second

// process is one exec in the sandbox.
type process struct {
	box      *sandbox
	proc     *sdk.ContainerProcess
	mark     string // "NAME=ID": what its processes have in their environment
	call     bool   // it runs a call or waits for one
	watchdog bool
	watches  func() bool // of a watchdog; nil is never
	stdin    *stdin
	out, err *outStream

	done   chan struct{} // closed when status and failed are set
	status driver.ExitStatus
	failed error
}

// Bash starts a bash by an exec. The SDK may ask more than once: the exec's id, which it chooses, makes that one bash.
func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	return s.bash(ctx, spec)
}

func (s *sandbox) bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	mark := bashscript.CallVariable + "=" + spec.ID
	env := append(slices.Clone(spec.Env), mark) // by it Kill finds the bash
	call := slices.Contains(spec.Env, mark)
	if !call { // a job's question and what ends a call's processes are their owner's too
		env = append(env, ownerVariable+"="+owner.Tag(s.req.Identity.Home)+"."+s.owner())
	}
	p, err := s.begin(ctx, spec.Args, env, beginning{mark: mark, call: call, watchdog: spec.Watchdog, watches: spec.Watches})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// beginning is what is known of a bash before it is started.
type beginning struct {
	mark           string
	call, watchdog bool
	watches        func() bool // of a watchdog; nil is never
	terminal       bool
}

// begin starts a bash and owns it.
func (s *sandbox) begin(ctx context.Context, args, env []string, b beginning) (*process, error) {
	mark := b.mark
	p, err := s.start(ctx, args, env, b.terminal)
	if err != nil {
		if ctx.Err() != nil {
			// It may have been started all the same, and would wait for ever.
			s.behind(func() { s.killMarked(mark) })
		}
		return nil, s.startFailed(ctx, err)
	}
	p.mark, p.call, p.watchdog, p.watches = mark, b.call, b.watchdog, b.watches
	if !s.own(p) {
		p.closeStreams()
		return nil, errClosed
	}
	go p.learn()
	return p, nil
}

// startFailed asks the service why no bash could be started.
func (s *sandbox) startFailed(ctx context.Context, err error) error {
	if gone := s.gone.Load(); gone != nil {
		return *gone
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if alive := s.Alive(ctx); alive != nil {
		return alive
	}
	return s.account.explain(ctx, "cannot start a bash in the sandbox "+s.sb.SandboxID, err)
}

// start starts an exec, on a terminal or not.
func (s *sandbox) start(ctx context.Context, args, env []string, terminal bool) (*process, error) {
	vars := map[string]string{}
	for name, value := range s.env {
		vars[name] = value
	}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		vars[name] = value
	}
	proc, err := s.sb.Exec(ctx, append([]string{"bash"}, args...), &sdk.SandboxExecParams{Env: vars, Workdir: "/", PTY: terminal})
	if err != nil {
		return nil, err
	}
	p := &process{box: s, proc: proc, done: make(chan struct{}), out: newOutStream(proc.Stdout), err: newOutStream(proc.Stderr)}
	p.stdin = newStdin(proc.Stdin)
	return p, nil
}

func (p *process) Stdin() io.WriteCloser { return p.stdin }
func (p *process) Stdout() io.ReadCloser { return p.out }
func (p *process) Stderr() io.ReadCloser { return p.err }

// learn waits for the bash's end. The SDK asks until it is told, also over new connections.
func (p *process) learn() {
	code, err := p.proc.Wait(p.box.ctx, nil)
	switch {
	case err == nil:
		// 128+n is a death by signal n: a bash of ours reports its exits, with their codes, before it leaves; what is asked here is the
		// end of one that could not.
		p.status = driver.ExitStatus{Code: code, Signal: signame.Of(code - 128)}
		if p.status.Signal == "KILL" {
			p.failed = p.endedWithSandbox()
		}
		if p.call && p.failed == nil {
			p.awaitOutput()
		}
	case p.box.ctx.Err() != nil:
		p.failed = context.Cause(p.box.ctx)
	default:
		actx, cancel := context.WithTimeout(p.box.ctx, askWait)
		if p.failed = p.box.Alive(actx); p.failed == nil {
			p.failed = failure(driver.KindLost, "it is not known how a bash in the sandbox %s ended: %s", p.box.sb.SandboxID, plainText(err))
		}
		cancel()
	}
	close(p.done)
	p.stdin.end()
	if p.failed != nil {
		p.closeStreams()
	}
	p.box.disown(p)
}

const (
	// outputRest is after how long without a byte what a bash had printed counts as read, and outputMost is after how long in any case.
	outputRest = 5 * time.Second
	outputMost = 20 * time.Second
)

// awaitOutput waits until what the bash had printed was read: its end and its output come by requests of their own, in any order. The
// streams end with the bash, as far as is known; a child that holds one is waited for shortly.
func (p *process) awaitOutput() {
	began := time.Now()
	ticker := time.NewTicker(outputRest / 10)
	defer ticker.Stop()
	for _, o := range []*outStream{p.out, p.err} {
		for open := true; open; {
			select {
			case <-o.over:
				open = false
			case <-p.box.ctx.Done():
				return
			case <-ticker.C:
				last := time.Unix(0, max(p.out.last.Load(), p.err.last.Load(), began.UnixNano()))
				if time.Since(last) > outputRest || time.Since(began) > outputMost {
					return
				}
			}
		}
	}
}

// endWord is for how long the service's word of a sandbox's end is waited for behind a bash that was killed: it may come a moment later.
const endWord = 300 * time.Millisecond

// endedWithSandbox is the error of a bash that was killed because its sandbox has ended.
func (p *process) endedWithSandbox() error {
	select {
	case <-p.box.ctx.Done():
	case <-time.After(endWord):
		actx, cancel := context.WithTimeout(p.box.ctx, killWait)
		defer cancel()
		_ = p.box.Alive(actx)
	}
	if gone := p.box.gone.Load(); gone != nil {
		return *gone
	}
	return nil
}

func (p *process) Wait(ctx context.Context) (driver.ExitStatus, error) {
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

func (p *process) closeStreams() {
	_ = p.stdin.Close()
	_ = p.out.Close()
	_ = p.err.Close()
}

// outStream is one of a bash's output streams. Nothing is fetched that is not read.
type outStream struct {
	r    io.ReadCloser
	last atomic.Int64  // when something was read, in Unix nanoseconds
	over chan struct{} // closed when nothing more is read
	end  sync.Once
	once sync.Once
}

func newOutStream(r io.ReadCloser) *outStream { return &outStream{r: r, over: make(chan struct{})} }

func (o *outStream) Read(b []byte) (int, error) {
	n, err := o.r.Read(b)
	o.last.Store(time.Now().UnixNano())
	if err != nil {
		o.end.Do(func() { close(o.over) })
	}
	return n, err
}

func (o *outStream) Close() (err error) {
	o.end.Do(func() { close(o.over) })
	o.once.Do(func() { err = o.r.Close() })
	return err
}

// Kill ends the bash and what it started that still carries its id, by another bash: the service has no call for that.
func (p *process) Kill(ctx context.Context) error {
	_ = p.stdin.Close()
	return p.kill(ctx)
}

func (p *process) kill(ctx context.Context) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	_, err := p.box.run(ctx, cloudbox.KillScript, p.mark)
	return err
}

func (s *sandbox) killMarked(mark string) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if _, err := s.run(ctx, cloudbox.KillScript, mark); err != nil && ctx.Err() == nil {
		s.log.Debug("a bash that may have been started was not ended", "sandbox", s.info.SandboxID, "error", err)
	}
}

// scriptOutput bounds what a script of ours may print, and saidBytes what is kept of its complaints.
const (
	scriptOutput = 4 << 20
	saidBytes    = 4 << 10
)

// run runs a script of ours in the sandbox, with arguments and without input, and returns what it printed. ctx bounds it.
func (s *sandbox) run(ctx context.Context, script string, args ...string) (string, error) {
	p, err := s.start(ctx, append([]string{"--noprofile", "--norc", "-p", "-c", script, "elsewhere"}, args...), nil, false)
	if err != nil {
		return "", s.startFailed(ctx, err)
	}
	defer p.closeStreams()
	stop := context.AfterFunc(ctx, p.closeStreams)
	defer stop()
	_ = p.stdin.Close()
	var said []byte
	var reading sync.WaitGroup
	reading.Go(func() {
		said, _ = io.ReadAll(io.LimitReader(p.err, saidBytes))
		_, _ = io.Copy(io.Discard, p.err)
	})
	text, err := io.ReadAll(io.LimitReader(p.out, scriptOutput))
	reading.Wait()
	if err == nil {
		err = ctx.Err()
	}
	code := 0
	if err == nil {
		code, err = p.proc.Wait(ctx, nil)
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", s.account.explain(ctx, "running a script in the sandbox "+s.sb.SandboxID, err)
	case code != 0:
		return string(text), &scriptError{code: code, said: strings.Join(strings.Fields(string(said)), " ")}
	}
	return string(text), nil
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
