package elsewhere

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/exitmeaning"
	"github.com/elsewhere-sh/elsewhere/internal/output"
)

// call is one Run: what was asked, the shell that runs it, what came.
type call struct {
	s       *Session
	command string
	text    string            // what is run in place of command, to start it as a job; else ""
	pty     driver.PTYProcess // of a call on a terminal; else nil
	opts    *RunOptions
	tries   int
	policy  string // what was decided about it, for the audit

	writing   atomic.Int64 // since when the caller's writer has been busy, in Unix nanoseconds; 0 while it is not
	capturing bool         // this call makes the first state
	allRead   bool         // the shell ended without a report, and all that it had written was read

	op    string // as errors name it
	asked time.Time
	span  trace.Span

	sh      *shell
	cwd     string // the session's directory when it was sent
	started time.Time

	out, err *output.Window // err with Split only

	mu      sync.Mutex  // held while output is passed on
	done    atomic.Bool // no more output is taken
	failed  chan struct{}
	failure error // of the caller's writer; set before failed is closed

	cause     Cause
	code      int
	signal    string
	cwdAfter  string
	duration  time.Duration
	stateSave bool
	survivors []Survivor
	notices   []string
	lost      error
}

func newCall(s *Session, command string, opts *RunOptions) *call {
	c := &call{s: s, command: command, opts: opts, failed: make(chan struct{}), code: -1}
	limit := opts.MaxOutput
	if limit == 0 {
		limit = DefaultMaxOutput
	}
	window := func(w io.Writer) *output.Window {
		o := output.Options{Limit: limit, SpillDir: s.sb.spillDir, Name: bashscript.NewID()}
		if limit < 0 || w != nil && opts.MaxOutput == 0 {
			o = output.Options{}
		}
		return output.NewWindow(o)
	}
	c.out = window(opts.Stdout)
	if opts.Split {
		c.err = window(opts.Stderr)
	}
	return c
}

func (c *call) close() {
	_ = c.out.Close()
	if c.err != nil {
		_ = c.err.Close()
	}
}

// sink returns where one stream's output goes: the window, which is looked up when it is used, and the caller's writer.
func (c *call) sink(window **output.Window, w io.Writer) func([]byte) {
	if *window == nil {
		return nil
	}
	return func(p []byte) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.done.Load() {
			return
		}
		_, _ = (*window).Write(p)
		if w == nil || c.failure != nil {
			return
		}
		c.writing.Store(time.Now().UnixNano())
		_, err := w.Write(p)
		c.writing.Store(0)
		if err != nil {
			c.failure = err
			close(c.failed)
		}
	}
}

// stopOutput makes sure that nothing is passed on any more. A write of the caller's that is blocked is waited for, but not
// for ever.
func (c *call) stopOutput() {
	c.done.Store(true)
	c.sh.setOutput(nil, nil)
	for range 1000 {
		if c.mu.TryLock() {
			c.mu.Unlock()
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// pump copies stdin while the command reads it.
func pump(to io.Writer, from io.Reader) {
	buffer := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buffer)
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
}

// reported is the usual end: the shell said so.
func (c *call) reported(ctx context.Context) {
	sh := c.sh
	c.duration = time.Since(c.started)
	if c.opts.Split {
		c.awaitStderr(ctx)
	}
	provisional := sh.endReport.Kind == 'P'
	code, certain := sh.endReport.Code()
	c.code = code
	if !certain || provisional {
		// It is dying of a signal, or the command's own EXIT trap runs: the process's own end tells.
		if provisional {
			c.awaitTrap(ctx)
		} else {
			c.await(sh.exited, nil, statusWait)
		}
		if c.cause != "" {
			return
		}
		c.duration = time.Since(c.started)
		c.takeStatus()
		if c.cause == Exited && !provisional && code >= 0 {
			c.code = code // bash before 5.1 ends with its trap's code where exec failed
		}
		if !provisional {
			c.readRest(ctx)
		}
	} else {
		c.cause = Exited
	}
	if sh.endReport.Moved() || strings.Contains(c.command, ">(") {
		c.await(sh.eof, nil, tailWait)
	}
	c.noteEnd()
}

// awaitStderr waits for the end of what was written to stderr: some engines bring it on a connection of its own, which may be the slower
// one. It waits for as long as the caller's writer takes, but within the call's own limits.
func (c *call) awaitStderr(ctx context.Context) {
	marked, limit := c.sh.endReport.MarksStderr(), tailWait
	if marked {
		limit = statusWait
	}
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(c.opts.Timeout-time.Since(c.started), tailWait))
		defer cancel()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-c.sh.errEnd:
		case <-c.sh.eof:
		case <-ctx.Done():
		case <-c.s.done:
		case <-c.failed:
		case <-timer.C:
			if marked && c.writing.Load() != 0 {
				timer.Reset(limit)
				continue
			}
		}
		return
	}
}

// awaitTrap waits while the command's own EXIT trap runs, for as long as the command may.
func (c *call) awaitTrap(ctx context.Context) {
	var timeout <-chan time.Time
	if c.opts.Timeout > 0 {
		timer := time.NewTimer(c.opts.Timeout - time.Since(c.started))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-c.sh.exited:
		c.sh.awaitRest(ctx)
	case <-timeout:
		c.endTree(TimedOut)
	case <-ctx.Done():
		c.endTree(Interrupted)
	case <-c.s.done:
		c.endTree(Interrupted)
	case <-c.failed:
		c.endTree(Interrupted)
	}
}

// await waits for one of two events, at most for limit.
func (c *call) await(event, other <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-event:
	case <-other:
	case <-timer.C:
	}
}

// unreported is the end of a shell that said nothing: it was replaced or killed, or hid its exit.
func (c *call) unreported(ctx context.Context) {
	c.duration = time.Since(c.started)
	c.readRest(ctx)
	select {
	case <-c.sh.ended:
		c.reported(ctx)
		return
	default:
	}
	if r := c.sh.beginReport; r.Fields != nil && r.Fields[1] != "" {
		c.cause, c.code = Directory, 126
		c.refuseDirectory(r.Fields[1])
		return
	}
	c.takeStatus()
	c.askWhetherLost(ctx)
	if c.cause == Lost && c.sh.at.usable() {
		// The connection went and the sandbox is there: what the call started may go on for as long as nobody tells it.
		request := bashscript.Watch(c.sh.mark, c.sh.id, c.sh.pid())
		c.endLater(request)
	} else {
		c.sh.release()
	}
	c.s.sb.removeState(c.sh.slot)
}

// askWhetherLost asks the engine about a shell that ended without a word: its sandbox may have gone with it, whatever its
// status says.
func (c *call) askWhetherLost(ctx context.Context) {
	if err := c.sh.at.askLost(ctx); err != nil {
		c.cause, c.code, c.signal, c.lost = Lost, -1, "", err
	}
}

// readRest reads what the shell had written before it ended, for as long as the caller's writer takes, but within the call's
// own limits.
func (c *call) readRest(ctx context.Context) {
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.started.Add(c.opts.Timeout))
		defer cancel()
	}
	for {
		rctx, cancel := context.WithTimeout(context.Background(), statusWait)
		c.allRead = c.sh.awaitRest(rctx)
		cancel()
		since := c.writing.Load()
		if c.allRead || since == 0 || time.Since(time.Unix(0, since)) < writerBusy || ctx.Err() != nil || closedNow(c.s.done) {
			return
		}
	}
}

func closedNow(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// refuseDirectory puts the reason why nothing ran where the command's own message would stand.
func (c *call) refuseDirectory(why string) {
	why = strings.TrimSpace(why[strings.LastIndexByte(why, ':')+1:])
	text := "elsewhere: cannot enter the directory " + c.opts.Dir + ": " + why + "; the command was not run\n"
	if c.opts.Split {
		c.sink(&c.err, c.opts.Stderr)([]byte(text))
	} else {
		c.sink(&c.out, c.opts.Stdout)([]byte(text))
	}
	c.sh.release()
	c.s.sb.removeState(c.sh.slot)
}

// takeStatus reads the end from the process itself.
func (c *call) takeStatus() {
	select {
	case <-c.sh.exited:
	default:
		c.cause, c.lost = Lost, errText("the shell reported its end, but its exit status did not come")
		return
	}
	switch {
	case c.sh.statusErr != nil:
		c.cause, c.lost = Lost, c.sh.statusErr
	case c.sh.status.Signal != "":
		c.cause, c.code, c.signal = Signaled, c.sh.status.Code, c.sh.status.Signal
	default:
		c.cause, c.code = Exited, c.sh.status.Code
	}
}

// noteEnd takes what an end report says and lets the session take over the state when it is written.
func (c *call) noteEnd() {
	c.cwdAfter = c.sh.endReport.Fields[1]
	c.stateSave = true
	if c.capturing {
		return
	}
	if c.opts.Dir == "" && c.cwdAfter != c.cwd {
		c.sh.endCwd = c.cwdAfter
	}
	c.s.awaitSave(c.sh)
}

// endTree ends the whole tree of this call and nothing else, and returns within the grace and one second.
func (c *call) endTree(cause Cause) {
	sh, sb := c.sh, c.s.sb
	p := sh.at
	if c.pty != nil {
		c.hangUp()
	}
	deadline := time.Now().Add(sb.grace + 900*time.Millisecond)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	request := bashscript.Watch(sh.mark, sh.id, sh.pid())
	left, confirmed := p.end(ctx, request)
	for pause := 50 * time.Millisecond; !confirmed && ctx.Err() == nil; {
		// No bash can be started, perhaps because this call has used up the processes: its own group ends without one.
		_ = sh.proc.Kill(ctx)
		c.await(ctx.Done(), nil, pause)
		pause = min(2*pause, 500*time.Millisecond)
		left, confirmed = p.end(ctx, request)
	}
	c.survivors = left
	if !confirmed {
		c.notices = append(c.notices, p.unconfirmed())
		_ = sh.proc.Kill(ctx)
		c.endLater(request)
	}
	c.await(sh.eof, ctx.Done(), time.Until(deadline))
	c.cause, c.code = cause, 124
	if cause == Interrupted {
		c.code = 130
	}
	c.duration = time.Since(c.started)
	select {
	case <-sh.ended:
		c.noteEnd()
	default:
		if confirmed {
			sh.release() // else the watchdog may still have to end it
		}
		c.s.sb.removeState(sh.slot)
	}
}

// neverStarted tells for certain that the bash ended by itself before it began the command.
func (c *call) neverStarted() bool {
	select {
	case <-c.sh.begun:
		return false
	default:
		return c.allRead && c.sh.statusErr == nil && c.lost == nil
	}
}

// result says what the call came to.
func (c *call) result() (*Result, error) {
	c.stopOutput()
	s, sb := c.s, c.s.sb
	r := &Result{
		CallID: c.sh.id, Backend: sb.backend, Task: sb.task, Session: s.name, Where: c.sh.at.where(),
		Split: c.opts.Split, ExitCode: c.code, Cause: c.cause, Signal: c.signal, Cwd: c.cwdAfter,
		StateSaved: c.stateSave, Survivors: c.survivors, Duration: c.duration,
	}
	if r.Recreated = s.arrive(c.sh.at); r.Recreated == "" {
		r.Recreated = sb.takeAnew()
	}
	if c.cause == Exited || c.cause == Signaled {
		r.ExitMeaning = exitmeaning.Meaning(c.command, c.code)
	}
	if c.cause == Signaled && r.ExitMeaning == "" {
		r.ExitMeaning = exitmeaning.Signal(c.code - 128)
	}
	if why := c.explainExit(); why != "" {
		r.ExitMeaning = why
	}
	if r.Cwd == "" {
		r.Cwd = c.cwd
	}
	if b := c.sh.beginReport; b.Fields != nil && b.Fields[0] != c.cwd {
		c.notices = append(c.notices, "the session's directory "+c.cwd+" is gone; the command ran in "+b.Fields[0])
		if r.Cwd == c.cwd {
			r.Cwd = b.Fields[0]
		}
	}
	c.takeOutput(r)
	r.Notices = append(s.takeNotices(), c.notices...)
	c.audit(r)
	if c.lost != nil {
		return r, wrap(c.lost, driver.KindLost, "run", sb.backend, sb.task,
			"the command may have run; look at what it left before running it again")
	}
	return r, nil
}

// explainWait is how long a driver may take to say why a command was killed, or had no process.
const explainWait = 5 * time.Second

// explainExit asks a driver that knows why a command was killed, or had no process; "" where nobody does.
func (c *call) explainExit() string {
	if c.code != driver.CodeKilled && c.code != driver.CodeNoProcess || c.cause != Exited && c.cause != Signaled {
		return ""
	}
	explainer, ok := c.sh.at.drv.(driver.ExitExplainer)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), explainWait)
	defer cancel()
	return explainer.ExplainExit(ctx, c.code)
}

// takeOutput moves what the windows kept into the result.
func (c *call) takeOutput(r *Result) {
	r.OutputBytes = c.out.Total()
	r.Truncated = c.out.Truncated()
	r.OutputFile = c.out.File()
	if !c.opts.Split {
		r.Output = c.out.Bytes()
	} else {
		r.Stdout, r.Stderr = c.out.Bytes(), c.err.Bytes()
		r.OutputBytes += c.err.Total()
		r.Truncated = r.Truncated || c.err.Truncated()
		if file := c.err.File(); r.OutputFile == "" {
			r.OutputFile = file
		} else if file != "" {
			c.notices = append(c.notices, "what was left out of standard error is in a file of its own: "+file)
		}
	}
	if c.opts.MaxOutput < 0 && c.opts.Stdout == nil && c.opts.Stderr == nil && r.OutputBytes > 0 {
		r.Truncated = true
	}
	for _, w := range []*output.Window{c.out, c.err} {
		if w == nil {
			continue
		}
		if w.FileCapped() {
			c.notices = append(c.notices, "the output file stops at its limit: "+w.File())
		}
		if err := w.Err(); err != nil {
			if w.File() != "" && r.OutputFile == w.File() {
				r.OutputFile = "" // it does not hold what it should
			}
			c.notices = append(c.notices, "the output that the result leaves out could not be written to a file: "+err.Error())
		}
	}
}
