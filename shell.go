package elsewhere

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// shell is one bash of ours from its start to its end: it boots, loads a state, waits, runs one command, reports its end,
// writes the new state and leaves. Three goroutines own it (two read its streams, one waits for its end); they finish
// when nobody holds its streams any more, or when they are closed.
type shell struct {
	sb      *Sandbox
	at      *place
	session *Session
	id      string
	token   string
	mark    bashscript.Mark
	slot    string // its state file; made when it loads
	proc    driver.Process
	out     *stream
	errs    *stream

	wmu sync.Mutex // messages to stdin

	bootFile string          // where it finds its boot text; "" for its stdin
	from     *stateRef       // what it was told to load; nil before
	loading  bashscript.Load // the message that told it
	ready    chan struct{}   // closed when R came
	begun    chan struct{}   // closed when B came
	ended    chan struct{}   // closed when E came
	saved    chan struct{}   // closed when S, U or F came
	eof      chan struct{}   // closed when stdout and stderr are at their end
	exited   chan struct{}   // closed when the bash itself ended

	// Written before the channel of the same event is closed.
	readyReport, beginReport, endReport bashscript.Report
	savedKind                           byte
	status                              driver.ExitStatus
	statusErr                           error

	settled chan struct{} // closed when the session has taken over its state, or cannot

	errEnd chan struct{} // closed when the end was reported on stderr, with streams apart

	ending int64  // the place of its call among those of the session that ended
	endCwd string // the directory that becomes the session's when the state is saved; "" for none

	mu        sync.Mutex
	toOut     func([]byte) // where output goes; nil discards
	toErr     func([]byte)
	idleSince time.Time
	released  bool
}

// startShell starts a bash that boots and waits for its first message. ctx bounds the start alone.
// spare says that no call waits for it.
func (p *place) startShell(ctx context.Context, session *Session, spare bool) (*shell, error) {
	sh := p.newShell(session)
	args, file := p.bootArgs()
	sh.bootFile = file
	err := sh.launch(ctx, func(env []string) (driver.Process, error) {
		return p.drv.Bash(ctx, driver.BashSpec{ID: sh.id, Args: args, Env: env, Spare: spare})
	})
	if err != nil {
		return nil, err
	}
	if file == "" {
		// An error shows as a bash that is never ready, with more to say.
		_ = sh.write(p.scripts.Boot())
	}
	return sh, nil
}

func (p *place) newShell(session *Session) *shell {
	return &shell{
		sb: p.sb, at: p, session: session, id: bashscript.NewID(), token: bashscript.NewToken(), mark: bashscript.NewMark(session.mark),
		ready: make(chan struct{}), begun: make(chan struct{}), ended: make(chan struct{}), saved: make(chan struct{}),
		eof: make(chan struct{}), exited: make(chan struct{}), errEnd: make(chan struct{}), settled: make(chan struct{}), idleSince: time.Now(),
	}
}

// launch starts its bash with the environment by which it is found, and owns its streams.
func (sh *shell) launch(ctx context.Context, start func(env []string) (driver.Process, error)) error {
	p := sh.at
	if p.lost.Load() {
		return errText("the sandbox is gone")
	}
	watched := p.watch.addBeside(ctx, sh.mark, sh.id)
	proc, err := start([]string{bashscript.CallVariable + "=" + sh.id, bashscript.SessionVariable + "=" + sh.session.id})
	if watchErr := watched(); err != nil || watchErr != nil {
		p.watch.remove(sh.mark)
		if err != nil {
			return err
		}
		_ = proc.Kill(ctx)
		closeStreams(proc)
		_, _ = proc.Wait(ctx)
		return watchErr
	}
	sh.proc, sh.out, sh.errs = proc, &stream{r: proc.Stdout()}, &stream{r: proc.Stderr()}
	p.sb.goroutines.Go(sh.readStreams)
	p.sb.goroutines.Go(sh.awaitExit)
	sh.session.own(sh)
	return nil
}

// bootArgs are the arguments of the next bash: it finds the boot text in a file ("" for none) once an earlier one has written
// it there.
func (p *place) bootArgs() (args []string, file string) {
	p.mu.Lock()
	file = p.boot.file
	p.mu.Unlock()
	if file != "" {
		if args, ok := p.scripts.FileArgs(file); ok {
			return args, file
		}
	}
	return p.scripts.Args(), ""
}

// bootText is the file with the boot text. Only a sandbox that starts shells ahead has one: a single call gains nothing. A file
// is never written again: a bash that was started a moment ago may not have read it yet.
type bootText struct {
	file    string   // "" while there is none
	writing bool     // a bash has been told to write one
	all     []string // to remove
}

// newBootFile is where a bash with this id is to write the boot text, or "" where it need not.
func (p *place) newBootFile(id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sb.ahead == 0 || p.boot.writing || p.boot.file != "" {
		return ""
	}
	file := p.slotPath(true, "boot-"+id)
	p.boot.writing = true
	p.boot.all = append(p.boot.all, file)
	return file
}

// noteEnd is noteReady for a shell that has ended.
func (sh *shell) noteEnd() {
	select {
	case <-sh.ready:
		sh.noteReady(true)
	default:
		sh.noteReady(false)
	}
}

// noteReady learns from a shell that is ready, or has ended before, whether the boot text's file can be used. One that was dropped
// before it was ready says nothing against the file.
func (sh *shell) noteReady(ready bool) {
	p := sh.at
	if ready {
		now := time.Now()
		p.sb.ready.Store(&now)
	}
	sh.mu.Lock()
	dropped := sh.released
	sh.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case sh.loading.Boot != "":
		p.boot.writing = false
		if ready && sh.readyReport.Fields[2] == "" {
			p.boot.file = sh.loading.Boot
		}
	case !ready && !dropped && sh.bootFile != "" && sh.bootFile == p.boot.file:
		p.boot.file = ""
	}
}

func (sh *shell) write(p []byte) error {
	sh.wmu.Lock()
	defer sh.wmu.Unlock()
	_, err := sh.proc.Stdin().Write(p)
	return err
}

// load tells it which state to load, once. It does not wait until that is written, which a sandbox that hangs can hold up for as long as
// it likes; what is written later comes behind it. A shell that cannot be told so leaves.
func (sh *shell) load(from *stateRef, drop []string) {
	sh.choose(from, drop)
	if sh.bootFile == "" {
		sh.loading.Boot = sh.at.newBootFile(sh.id)
	}
	text := sh.at.scripts.Load(sh.loading)
	sh.wmu.Lock()
	go func() { // ends with the shell's connection
		defer sh.wmu.Unlock()
		if _, err := sh.proc.Stdin().Write(text); err != nil {
			_ = sh.proc.Stdin().Close()
		}
	}()
}

// choose notes which state it is to load.
func (sh *shell) choose(from *stateRef, drop []string) {
	sh.from = from
	sh.slot = sh.at.slotPath(from.private, sh.id)
	sh.loading = bashscript.Load{
		Token: sh.token, Mark: sh.mark, Slot: sh.slot, From: from.path,
		Record: fmt.Sprintf("%s %s %d", sh.sb.recordOwner(), sh.id, uint64(sh.mark)),
		Drop:   drop, Linger: sh.at.info.Linger,
	}
}

// abandon ends a bash that is not what it should be: it need not heed the end of its input.
func (sh *shell) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = sh.proc.Kill(ctx)
	sh.drop()
}

// drop ends a bash that no command was sent to: end of file is its sign to leave.
func (sh *shell) drop() {
	_ = sh.proc.Stdin().Close()
	sh.release()
	sh.sb.goroutines.Go(func() {
		select {
		case <-sh.exited:
		case <-time.After(5 * time.Second):
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = sh.proc.Kill(ctx)
		}
		sh.closeStreams()
		if sh.slot != "" {
			sh.at.removeState(sh.slot)
		}
	})
}

// release says that this bash's call is over: nobody has to end it any more.
func (sh *shell) release() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.released {
		sh.released = true
		sh.at.watch.remove(sh.mark)
	}
}

// pid is the bash's process id as it reported it, 0 before it is ready.
func (sh *shell) pid() int {
	if sh.readyReport.Fields == nil {
		return 0
	}
	pid, err := strconv.Atoi(sh.readyReport.Fields[0])
	if err != nil {
		return 0
	}
	return pid
}

// noteGroup tells the watchdog the bash's process group, beside the marks.
func (sh *shell) noteGroup() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.released {
		_ = sh.at.watch.add(context.Background(), sh.mark, sh.id, sh.pid())
	}
}

func (sh *shell) closeStreams() { closeStreams(sh.proc) }

// exitedNow tells whether the bash itself ended.
func (sh *shell) exitedNow() bool {
	select {
	case <-sh.exited:
		return true
	default:
		return false
	}
}

func (sh *shell) awaitExit() {
	sh.status, sh.statusErr = sh.proc.Wait(context.Background())
	close(sh.exited)
}

// setOutput says where what the command writes goes from now on.
func (sh *shell) setOutput(out, err func([]byte)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.toOut, sh.toErr = out, err
}

func (sh *shell) output(stderr bool) func([]byte) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if stderr {
		return sh.toErr
	}
	return sh.toOut
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

func (sh *shell) readStreams() {
	var both sync.WaitGroup
	both.Go(func() { sh.readStream(sh.out, false) })
	both.Go(func() { sh.readStream(sh.errs, true) })
	both.Wait()
	close(sh.eof)
}

// readStream takes the reports out of one stream and passes on what stands between the command's begin and its end.
// What follows the end is passed on as long as the call wants it, and then thrown away: a child in the background can go on
// writing.
func (sh *shell) readStream(s *stream, stderr bool) {
	scanner := bashscript.NewScanner(sh.token)
	running := false
	data := func(p []byte) {
		if !running {
			return
		}
		if to := sh.output(stderr); to != nil {
			to(p)
		}
	}
	report := func(rep bashscript.Report) {
		switch rep.Kind {
		case 'B', 'b':
			running = true
		}
		sh.report(rep)
	}
	s.read(func(p []byte) { scanner.Feed(p, data, report) })
	data(scanner.Rest())
}

// report notes one report. Each kind comes once; a second one is not ours.
func (sh *shell) report(rep bashscript.Report) {
	switch rep.Kind {
	case 'R':
		sh.once(sh.ready, func() { sh.readyReport = rep })
	case 'B':
		sh.once(sh.begun, func() { sh.beginReport = rep })
	case 'E', 'P':
		sh.once(sh.ended, func() { sh.endReport, sh.ending = rep, sh.session.ends.Add(1) })
	case 'S', 'U', 'F':
		sh.once(sh.saved, func() { sh.savedKind = rep.Kind })
	case 'e':
		sh.once(sh.errEnd, func() {})
	}
}

func (sh *shell) once(event chan struct{}, note func()) {
	select {
	case <-event:
	default:
		note()
		close(event)
	}
}

// awaitRest waits, after the bash has ended, until all that it had written was read: until its streams end or, where a child
// in the background holds them, until they are empty. It tells whether that is certain.
func (sh *shell) awaitRest(ctx context.Context) bool {
	out, errs := sh.out.emptied(), sh.errs.emptied()
	if out == nil || errs == nil {
		return sh.awaitQuiet(ctx)
	}
	for _, empty := range []<-chan struct{}{out, errs} {
		select {
		case <-empty:
		case <-sh.eof:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// awaitQuiet is awaitRest where the streams cannot be asked. The streams of such a transport end with the bash, or all that can be
// done is to wait until nothing more comes.
func (sh *shell) awaitQuiet(ctx context.Context) bool {
	began := time.Now()
	for {
		last := max(began.UnixNano(), sh.out.last.Load(), sh.errs.last.Load())
		wait := min(time.Until(time.Unix(0, last).Add(restWait)), time.Until(began.Add(restWaitMost)))
		if wait <= 0 {
			return false
		}
		timer := time.NewTimer(wait)
		select {
		case <-sh.eof:
			timer.Stop()
			return true
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

const (
	// restWait is how long nothing has come from a bash that has ended when its output counts as all there, where its streams cannot be
	// asked: far engines bring it on another connection than the one that tells the end.
	restWait = time.Second
	// restWaitMost bounds it where a child in the background goes on writing.
	restWaitMost = 3 * restWait
)
