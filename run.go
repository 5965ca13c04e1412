package elsewhere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

const (
	// startTries is how often another bash is started where one did not become ready.
	startTries = 2
	// startWait bounds how long a bash may take from its start to being ready with the state loaded, while no other bash of the
	// sandbox becomes ready: of hundreds that are asked for at once the last waits for all others.
	startWait = 30 * time.Second
	// startWaitMost bounds it whatever else becomes ready.
	startWaitMost = 10 * startWait
	// refillDelay is how long a command runs alone before the next shell is started beside it, and farRefillDelay the same where
	// starting one is an engine's work, which takes the processors for longer than most commands do.
	refillDelay    = 2 * time.Millisecond
	farRefillDelay = 30 * time.Millisecond
	// smallMessage is what any pipe or stream takes at once.
	smallMessage = 2 << 10
	// tailWait is how long output is awaited after the end where the command's own process substitution may still pass it on.
	tailWait = 250 * time.Millisecond
	// writerBusy is how long one write of the caller's takes at least that holds output up.
	writerBusy = time.Second
	// statusWait bounds how long the exit status is awaited of a bash that reported that it is dying.
	statusWait = 15 * time.Second
)

// Run runs one command (bash text; any size, no NUL) in a bash of its own with the session's state, and waits for its end. A
// command that fails, times out or is interrupted is a Result with a nil error. Canceling ctx interrupts the command
// (cause Interrupted); a deadline of ctx ends it as a timeout does. An error is always an *Error: nothing ran, or, for
// ErrLost, it is not known how the command ended; then the Result holds what came. ErrDenied says that a policy refused it
// (SandboxOptions.Approve); the Result then has the cause Denied.
//
// Run returns when the command's shell has ended or reported its end. A child that it left in the background does not
// delay it and is not ended.
func (s *Session) Run(ctx context.Context, command string, opts *RunOptions) (*Result, error) {
	if opts == nil {
		opts = &RunOptions{}
	}
	err := checkCall(command, opts)
	if err != nil {
		return nil, s.sb.telemetry.failed(ctx, "run", wrap(err, driver.KindConfig, "run", s.sb.backend, s.sb.task, ""))
	}
	c := newCall(s, command, opts)
	if c.policy, err = s.permitCommand(ctx, "run", command, opts.Dir, opts.Env); err != nil {
		defer c.close()
		if errors.Is(err, ErrDenied) {
			return c.denied(), s.sb.telemetry.failed(ctx, "run", err)
		}
		return nil, s.sb.telemetry.failed(ctx, "run", err)
	}
	return s.perform(ctx, c, "run")
}

// perform runs a call to its end; op says what it is.
func (s *Session) perform(ctx context.Context, c *call, op string) (res *Result, err error) {
	ctx = c.requested(ctx, op)
	defer func() { c.told(ctx, res, err) }()
	defer c.close()
	if !s.begin() {
		return nil, wrap(errText("the session is closed"), driver.KindConfig, "run", s.sb.backend, s.name, "open it again")
	}
	defer s.calls.Done()
	for {
		if err := c.prepare(ctx, s.shellFor); err != nil {
			return nil, err
		}
		c.send()
		c.wait(ctx)
		if !c.neverStarted() || c.tries > 2 {
			break
		}
		// A waiting bash that died before it read the command: nothing ran, so another one may.
		s.note("a waiting shell had ended by itself; another one was used")
	}
	return c.result()
}

// checkCall refuses what cannot be run.
func checkCall(command string, opts *RunOptions) error {
	switch {
	case strings.TrimSpace(command) == "":
		return errText("the command is empty; give one")
	case strings.Contains(command, "\x00"):
		return errText("the command holds a NUL byte, which no shell can read; put such data into a file or into stdin")
	case opts.Timeout < 0:
		return fmt.Errorf("the timeout %v is negative; give a positive time, or none", opts.Timeout)
	case strings.Contains(opts.Dir, "\x00"):
		return errText("the directory holds a NUL byte")
	}
	for name, value := range opts.Env {
		if err := checkVariable(name, value); err != nil {
			return err
		}
	}
	return nil
}

// checkVariable says why a bash cannot be given this variable for one call.
func checkVariable(name, value string) error {
	switch {
	case !isName(name):
		return fmt.Errorf("%q cannot be the name of a variable; use letters, digits and _, no digit first", name)
	case name == "BASH_EXECUTION_STRING" || strings.HasPrefix(name, "ew_"):
		return fmt.Errorf("the name %s is elsewhere's own in every bash; use another", name)
	case strings.Contains(value, "\x00"):
		return fmt.Errorf("the value of %s holds a NUL byte, which no variable can", name)
	}
	return nil
}

func isName(name string) bool {
	for i, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

type errText string

func (e errText) Error() string { return string(e) }

// getShell gives a shell that loads a state, or has loaded it.
type getShell func(ctx context.Context, state stateRef) (*shell, error)

// prepare gets a shell that is ready and has loaded the session's current state, in a place that the driver has made ready.
func (c *call) prepare(ctx context.Context, get getShell) error {
	c.tries++
	c.cause, c.code, c.signal, c.lost, c.allRead = "", -1, "", nil, false
	s := c.s
	defer s.sb.stepsOver()
	for try := 0; ; try++ {
		ready, err := c.prepareDriver(ctx)
		if err != nil {
			return err
		}
		if err := s.ensureState(ctx); err != nil {
			return err
		}
		sh, err := s.readyShell(ctx, get)
		if err != nil {
			return err
		}
		if ready == nil || sh.at == ready {
			c.sh = sh
			return nil
		}
		// The sandbox was lost, and nobody has sent its files to the one that took its place.
		sh.drop()
		if try == startTries {
			return s.sb.wrap(errText("it was lost again each time that it had been made ready"), "prepare")
		}
	}
}

// prepareDriver lets the driver do what it does before each call, and says in which place; nil where it does nothing.
func (c *call) prepareDriver(ctx context.Context) (*place, error) {
	sb := c.s.sb
	for try := 0; ; try++ {
		p := sb.at()
		if p.lost.Load() && !sb.isClosed() {
			// It is known, or the sandbox is being stopped: nothing has to be prepared there.
			if _, lost := sb.reopen(ctx, p); lost != nil {
				return nil, lost
			}
			p = sb.at()
		}
		preparer, ok := p.drv.(driver.Preparer)
		if !ok {
			return nil, nil
		}
		notices, err := preparer.Prepare(ctx)
		c.notices = append(c.notices, notices...)
		if err == nil {
			return p, nil
		}
		again, lost := sb.reopen(ctx, p)
		if lost != nil {
			return nil, lost
		}
		if !again || try == startTries {
			return nil, sb.wrap(err, "prepare")
		}
	}
}

// startShell starts a shell in the place that is current; where the engine has lost that, in the one that takes its place.
func (s *Session) startShell(ctx context.Context) (*shell, error) {
	return s.startBy(ctx, func(ctx context.Context, p *place) (*shell, error) { return p.startShell(ctx, s, false) })
}

func (s *Session) startBy(ctx context.Context, start func(context.Context, *place) (*shell, error)) (*shell, error) {
	for try := 0; ; try++ {
		p, begun := s.sb.at(), time.Now()
		sctx, cancel := s.sb.startContext(ctx)
		sh, err := start(sctx, p)
		late := sctx.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			return sh, nil
		}
		if late {
			err = wrap(errText("no bash started in "+time.Since(begun).Round(time.Second).String()), driver.KindTimeout, "start a bash", s.sb.backend, s.sb.task,
				"see whether the machine or service that it is to run on has too much to do (elsewhere doctor)")
		}
		again, lost := s.sb.reopen(ctx, p)
		if lost != nil {
			return nil, lost
		}
		if !again || try == startTries {
			return nil, s.sb.wrap(err, "start a bash")
		}
	}
}

// notReady is for a shell that did not become ready, which happens to one that its engine lost: nil says that another try is
// worth it.
func (s *Session) notReady(ctx context.Context, sh *shell, err error, try int) error {
	sh.noteReady(false) // before the next one is started
	sh.abandon()
	if _, lost := s.sb.reopen(ctx, sh.at); lost != nil {
		return lost
	}
	if try >= startTries || ctx.Err() != nil {
		return s.sb.notReady(err)
	}
	return nil
}

// readyShell returns a shell that has loaded the current state. A state that is gone or cannot be read is made anew once,
// and the result says so.
func (s *Session) readyShell(ctx context.Context, get getShell) (*shell, error) {
	var broken string
	for try := 0; ; try++ {
		if err := s.Flush(ctx); errors.Is(err, ErrTimeout) && try == 0 {
			s.note("the state of an earlier call is still being written; this call ran without it")
		}
		state, _, err := s.current()
		if err != nil {
			return nil, err
		}
		if broken != "" && broken == state.path {
			if err := s.renew(ctx, state); err != nil {
				return nil, err
			}
			continue
		}
		sh, err := get(ctx, state)
		if err != nil {
			return nil, err
		}
		bad, err := s.awaitReady(ctx, sh)
		switch {
		case err != nil:
			if err := s.notReady(ctx, sh, err, try); err != nil {
				return nil, err
			}
		case bad == "state":
			broken = state.path
			sh.drop()
			// Perhaps another process started the sandbox again: then more than this state is gone.
			if _, lost := s.sb.reopen(ctx, sh.at); lost != nil {
				return nil, lost
			}
		default:
			return sh, nil
		}
	}
}

// shellFor takes a waiting shell, or one that is being started, or starts one, and lets it load state unless it has.
func (s *Session) shellFor(ctx context.Context, state stateRef) (*shell, error) {
	s.mu.Lock()
	sh := s.ahead.take(state)
	var c *coming
	if sh == nil {
		c = s.ahead.claim()
	}
	s.mu.Unlock()
	if c != nil {
		sh = s.await(ctx, c)
	}
	if sh == nil {
		var err error
		if sh, err = s.startShell(ctx); err != nil {
			return nil, err
		}
	}
	if sh.from != nil {
		return sh, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// An error of the write shows in awaitReady, with more to say.
	s.loadShell(sh, state)
	return sh, nil
}

// awaitReady waits until sh has loaded its state. bad is "state" where it could not.
func (s *Session) awaitReady(ctx context.Context, sh *shell) (bad string, err error) {
	if err := sh.awaitAnswer(ctx); err != nil {
		return "", err
	}
	bad, lost := sh.readyReport.Fields[2], strings.Fields(sh.readyReport.Fields[3])
	if bad == "slot" {
		s.note("the state of this call cannot be saved: its file cannot be written")
	}
	if len(lost) > 0 {
		s.note("left out of the session, since this bash cannot read its own print of it: function " + strings.Join(lost, ", "))
	}
	return bad, nil
}

// awaitAnswer waits until sh is ready, for as long as startLeft lets it.
func (sh *shell) awaitAnswer(ctx context.Context) error {
	begun := time.Now()
	late := time.NewTimer(startWait)
	defer late.Stop()
	for {
		select {
		case <-sh.ready:
			return nil
		case <-sh.exited:
			rest, cancel := context.WithTimeout(ctx, startWait)
			defer cancel()
			sh.awaitRest(rest)
			select {
			case <-sh.ready:
				return nil
			default:
				return fmt.Errorf("bash ended before it was ready (%s)", describe(sh.status, sh.statusErr))
			}
		case <-late.C:
			left := startLeft(time.Since(begun), time.Since(sh.sb.readied()))
			if left <= 0 {
				return errText("bash did not answer in " + time.Since(begun).Round(time.Second).String())
			}
			late.Reset(left)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startContext bounds the start of a bash as startLeft says.
func (sb *Sandbox) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	begun := time.Now()
	go func() {
		late := time.NewTimer(startWait)
		defer late.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-late.C:
			}
			left := startLeft(time.Since(begun), time.Since(sb.readied()))
			if left <= 0 {
				cancel()
				return
			}
			late.Reset(left)
		}
	}()
	return ctx, cancel
}

// startLeft is how much longer a bash that began to start waited ago may take, where one of its sandbox last became ready readied ago.
func startLeft(waited, readied time.Duration) time.Duration {
	return min(startWait-min(waited, readied), startWaitMost-waited)
}

// notReady explains a bash that did not start as one does.
func (sb *Sandbox) notReady(err error) error {
	return wrap(err, driver.KindUnavailable, "start a bash", sb.backend, sb.task,
		"see what `command -v bash` names there, and whether `bash --noprofile --norc -c true` ends with 0")
}

func describe(status driver.ExitStatus, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case status.Signal != "":
		return "signal " + status.Signal
	default:
		return fmt.Sprintf("exit code %d", status.Code)
	}
}

// send writes the command, behind it its stdin, and starts the clock. It does not wait: the bash may be slow to read.
func (c *call) send() { c.sendTo(c.s.Cwd()) }

func (c *call) sendTo(cwd string) {
	sh := c.sh
	sh.setOutput(c.sink(&c.out, c.opts.Stdout), c.sink(&c.err, c.opts.Stderr))
	env := c.variables()
	message := c.sh.at.scripts.Run(bashscript.Run{
		Cwd: cwd, Dir: c.opts.Dir, Stdin: c.opts.Stdin != nil, Split: c.opts.Split,
		ExitTrap: !c.capturing && c.text == "" && setsExitTrap(c.command), Env: env, Command: cmp.Or(c.text, c.sh.at.sudoText(c.command)),
	})
	c.cwd = cwd
	c.started = time.Now()
	if len(message) <= smallMessage && c.opts.Stdin == nil {
		// It fits into the pipe, which the bash has emptied: nothing blocks.
		_ = sh.write(message)
		_ = sh.proc.Stdin().Close()
		return
	}
	c.s.sb.goroutines.Go(func() {
		in := sh.proc.Stdin()
		if sh.write(message) == nil && c.opts.Stdin != nil {
			// Not before it began: a shell that never does must leave the caller's stdin to the next one.
			select {
			case <-sh.begun:
				// Nobody waits for it: a reader of the caller's may be blocked for ever.
				go func() {
					pump(in, c.opts.Stdin)
					_ = in.Close()
				}()
				return
			case <-sh.exited:
			}
		}
		_ = in.Close()
	})
}

// variables are those of this call alone, names and values in turns: what the sandbox forwards, and over it what the caller
// gave. Login files see none, since what they leave is state.
func (c *call) variables() []string {
	if c.capturing {
		return nil
	}
	forwarded := c.sh.at.info.CallEnv
	env := make([]string, 0, 2*(len(c.opts.Env)+len(forwarded)))
	for name, value := range forwarded {
		if _, given := c.opts.Env[name]; !given {
			env = append(env, name, value)
		}
	}
	for name, value := range c.opts.Env {
		env = append(env, name, value)
	}
	return env
}

// setsExitTrap tells whether the text seems to set an EXIT trap of its own. A text that only looks like it costs one fork.
func setsExitTrap(command string) bool {
	return strings.Contains(command, "trap") && exitTrap.MatchString(command)
}

var exitTrap = regexp.MustCompile(`(?s)\btrap\b.*\s(?:EXIT|0)(?:[\s;&|)}'"]|$)`)

// wait waits for the end, whichever it is, and notes it.
func (c *call) wait(ctx context.Context) {
	// The next shell is started when this command is over or takes long enough not to notice.
	delay := refillDelay
	if c.sh.at.info.KeepsChildren {
		delay = farRefillDelay
	}
	refill := time.AfterFunc(delay, c.s.refill)
	defer func() {
		if refill.Stop() {
			c.s.sb.goroutines.Go(c.s.refill)
		}
	}()
	var timeout <-chan time.Time
	if c.opts.Timeout > 0 {
		timer := time.NewTimer(c.opts.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-c.sh.ended:
		c.reported(ctx)
	case <-c.sh.exited:
		c.unreported(ctx)
	case <-timeout:
		c.endTree(TimedOut)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.endTree(TimedOut)
		} else {
			c.endTree(Interrupted)
		}
	case <-c.s.done:
		c.endTree(Interrupted)
	case <-c.failed:
		c.notices = append(c.notices, "the command was ended because its output could not be passed on: "+c.failure.Error())
		c.endTree(Interrupted)
	}
}
