package elsewhere

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/jobscript"
	"github.com/elsewhere-sh/elsewhere/internal/redact"
)

const (
	// keptJobs is how many jobs that have ended are kept in a sandbox.
	keptJobs = 64
	// jobCommand is how much of a job's command is written down.
	jobCommand = 2000
	// launchWait bounds a launch, beside what its session needs to be ready.
	launchWait = 30 * time.Second
)

// Start starts a command as a background job and returns when it has been started. It has what a call of the session would have (state,
// environment, directory, the variables for this one alone), in a bash of its own; what it changes does not come back into
// the session. Its standard input is a pipe (Job.Send), or at end of file where the sandbox has no mkfifo. It outlives the session
// object and this process, as its owner says. Errors are as those of Run; a directory that cannot be entered is ErrConfig, and a sandbox that
// has no terminal for it ErrUnsupported.
func (s *Session) Start(ctx context.Context, command string, opts *JobOptions) (*Job, error) {
	if opts == nil {
		opts = &JobOptions{}
	}
	run := &RunOptions{Dir: opts.Dir, Env: opts.Env, Timeout: launchWait}
	if opts.Terminal {
		run.Env = map[string]string{"TERM": cmp.Or(opts.Term, defaultTerm)}
		maps.Copy(run.Env, opts.Env)
	}
	if err := checkCall(command, run); err != nil {
		return nil, wrap(err, driver.KindConfig, "job start", s.sb.backend, s.sb.task, "")
	}
	verdict, err := s.permitCommand(ctx, "job start", command, opts.Dir, opts.Env)
	if err != nil {
		s.sb.auditDenied(s.name, command, verdict, err)
		return nil, s.sb.telemetry.failed(ctx, "job start", err)
	}
	for range 5 {
		job, taken, err := s.launch(ctx, command, verdict, opts, run)
		if !taken {
			return job, err
		}
	}
	return nil, s.sb.wrap(errText("no free id was found"), "job start")
}

// launch tries to start a job under one short id; taken says that another job has it.
func (s *Session) launch(ctx context.Context, command, verdict string, opts *JobOptions, run *RunOptions) (job *Job, taken bool, err error) {
	sb := s.sb
	meta := s.describeJob(command, opts)
	line, err := meta.Line()
	if err != nil {
		return nil, false, sb.wrap(err, "job start")
	}
	l := jobscript.Launch{
		Name: meta.Name, Meta: line, ID: meta.ID, Sup: meta.Supervisor, Mark: meta.Mark, SupMark: bashscript.NewMark(meta.Mark.Session()),
		LogBytes: meta.LogBytes, Lifetime: meta.Lifetime, Grace: sb.grace, Token: bashscript.NewToken(),
	}
	if opts.Terminal {
		l.Terminal = &jobscript.Size{Rows: cmp.Or(opts.Rows, defaultRows), Cols: cmp.Or(opts.Cols, defaultCols)}
	}
	p := sb.at()
	if err := p.ownJob(ctx, meta); err != nil {
		p.disownJob(meta)
		return nil, false, sb.wrap(err, "job start")
	}
	l.Dir, l.End, l.Command = p.info.StateDir, p.scripts, p.sudoText(command)
	c := newCall(s, command, run)
	c.text, c.policy = l.Text(), verdict
	res, err := s.perform(ctx, c, "job start")
	if err != nil {
		if !errors.Is(err, ErrLost) {
			p.disownJob(meta) // nothing ran
		}
		return nil, false, err
	}
	launched := jobscript.ParseLaunch(l.Token, string(res.Output))
	job = &Job{sb: sb, meta: meta, notices: append(res.Notices, sb.jobNotices(meta)...)}
	switch {
	case launched.Taken:
		p.disownJob(meta)
		return nil, true, nil
	case res.Cause == Directory:
		p.disownJob(meta)
		return nil, false, wrap(errText(strings.TrimSpace(strings.TrimPrefix(string(res.Output), "elsewhere: "))), driver.KindConfig, "job start", sb.backend, sb.task, "name another directory")
	case !launched.Started:
		err := job.notStarted(context.WithoutCancel(ctx), launched, res)
		if _, unconfirmed := job.end(context.WithoutCancel(ctx), bashscript.WatchSession(meta.Mark.Session(), meta.Supervisor)); unconfirmed != nil {
			return nil, false, job.stays(err)
		}
		p.disownJob(meta)
		_ = sb.removeJobs(context.WithoutCancel(ctx), meta.Name)
		return nil, false, err
	}
	sb.telemetry.sawJob(meta.Name, true)
	if launched.Ended > keptJobs {
		sb.pruneJobs(ctx)
	}
	return job, false, nil
}

// notStarted says why a launch came to nothing.
func (j *Job) notStarted(ctx context.Context, l jobscript.Launched, res *Result) error {
	sb := j.sb
	switch {
	case l.NoHolder:
		return wrap(errText("nothing in this sandbox can hold a terminal for a job: there is neither script of util-linux (2.27 or later, but 2.31 and 2.32) nor python3, or no stty or mkfifo"), driver.KindUnsupported,
			"job start", sb.backend, sb.task, "install util-linux or python3 there, with coreutils, or start it without a terminal")
	case l.NoTerminal:
		why := "nothing said why"
		if out, err := j.read(ctx, 0, 1000, 0); err == nil && len(bytes.Fields(out.Data)) > 0 {
			why = strings.ToValidUTF8(string(bytes.Join(bytes.Fields(out.Data), []byte(" "))), "\uFFFD")
		}
		return wrap(fmt.Errorf("the sandbox gave the job no terminal: %s", why), driver.KindUnsupported,
			"job start", sb.backend, sb.task, "see that /dev/ptmx and /dev/pts are there, or start it without a terminal")
	}
	return wrap(fmt.Errorf("it did not start (%s, exit code %d) %s", res.Cause, res.ExitCode, bytes.TrimSpace(res.Output)),
		driver.KindUnavailable, "job start", sb.backend, sb.task, "see that "+sb.Info().StateDir+" can be written to in the sandbox")
}

// stays says of a launch that came to nothing (err) that something of it may run: the job stays known, so that it can be killed.
func (j *Job) stays(err error) error {
	var own *Error
	if !errors.As(err, &own) {
		return err
	}
	e := *own
	e.Err = fmt.Errorf("%w; it was not confirmed that nothing of job %s runs", own.Err, j.meta.Name)
	e.Hint = j.sb.suggest("job kill", j.meta.Name) + " ends what is left"
	return &e
}

// describeJob is what is written down of a job before it is started.
func (s *Session) describeJob(command string, opts *JobOptions) jobscript.Meta {
	sb := s.sb
	id := bashscript.NewID()
	m := jobscript.Meta{
		ID: id, Supervisor: bashscript.NewID(), Mark: bashscript.NewMark(bashscript.NewSessionMark()), Name: "j" + id[:4],
		Backend: sb.backend, Task: sb.task, Session: s.name, Owner: string(OwnerTask), Created: time.Now().UTC(),
		LogBytes: opts.LogBytes, Lifetime: opts.Lifetime, Terminal: opts.Terminal,
	}
	switch {
	case !sb.KeepsJobs():
		m.Owner = string(OwnerProcess)
	case s.name != "" && !opts.Keep:
		m.Owner, m.SessionID = string(OwnerSession), s.id
	}
	m.Command = strings.ToValidUTF8(redact.Text(command[:min(len(command), jobCommand)]), "\uFFFD")
	if m.LogBytes == 0 {
		m.LogBytes = sb.cfg.Bytes("job_log_max")
	}
	m.LogBytes = max(m.LogBytes, jobscript.MinLog)
	if m.Lifetime == 0 {
		m.Lifetime = sb.cfg.Duration("job_lifetime")
	}
	m.Lifetime = max(m.Lifetime, 0)
	return m
}

// ownJob makes this process's death a job's end, where nobody else could end it.
func (p *place) ownJob(ctx context.Context, m jobscript.Meta) error {
	if m.Owner != string(OwnerProcess) {
		return nil
	}
	return p.watch.addJob(ctx, m.Mark.Session(), m.Supervisor)
}

// addJob makes it watch a job that ends with this process.
func (w *watchdog) addJob(ctx context.Context, mark uint32, id string) error {
	if w == nil {
		return nil
	}
	request := bashscript.WatchSession(mark, id)
	return w.send(ctx, request, func() { w.sessions[mark] = request })
}

// disownJob takes back ownJob for a job of which nothing is left.
func (p *place) disownJob(m jobscript.Meta) {
	if m.Owner == string(OwnerProcess) {
		p.watch.removeSession(m.Mark.Session())
	}
}

// watchesJob tells whether ownJob is in force for a job.
func (w *watchdog) watchesJob(m jobscript.Meta) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, watched := w.sessions[m.Mark.Session()]
	return watched
}

// jobNotices says what a user may not expect of a job here.
func (sb *Sandbox) jobNotices(m jobscript.Meta) []string {
	if m.Owner == string(OwnerProcess) {
		return []string{"nothing is kept here (no HERMES_HOME, or a throw-away run): the job ends when this process closes the sandbox or dies"}
	}
	for _, f := range sb.Info().Features {
		if f.Name == "persistence" && f.State != driver.Active {
			return []string{"this sandbox does not persist: the job ends with it"}
		}
	}
	return nil
}

// KeepsJobs tells whether a job that is started here can outlive this process: false where nothing is kept.
func (sb *Sandbox) KeepsJobs() bool {
	info := sb.Info()
	return sb.home != "" && info.StateDir != info.PrivateDir
}

// Jobs lists the jobs of this sandbox's task, oldest first: those that run and the last 64 that have ended.
func (sb *Sandbox) Jobs(ctx context.Context) ([]JobStatus, error) {
	found, err := sb.findJobs(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]JobStatus, len(found))
	for i, f := range found {
		all[i] = sb.jobStatus(f)
		if all[i].Over() && all[i].Left == 0 {
			sb.at().disownJob(f.Meta)
		}
	}
	return all, nil
}

// Job finds a job of this sandbox's task by its id, whichever process started it. One that is not there is ErrConfig.
func (sb *Sandbox) Job(ctx context.Context, id string) (*Job, error) {
	var found []*jobscript.Found
	if isName(id) {
		var err error
		if found, err = sb.findJobs(ctx, id); err != nil {
			return nil, err
		}
	}
	if len(found) != 1 {
		return nil, wrap(fmt.Errorf("there is no job %q in the task %s", id, sb.task), driver.KindConfig, "job", sb.backend, id, sb.suggest("job ls")+" lists them")
	}
	return &Job{sb: sb, meta: found[0].Meta}, nil
}

// findJobs asks the sandbox for the named jobs or for all. Several tasks may share one state directory; the others' are left out.
func (sb *Sandbox) findJobs(ctx context.Context, names ...string) ([]*jobscript.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, jobAnswer)
	defer cancel()
	var all []*jobscript.Found
	err := sb.ask(ctx, nil, func(dir, token string) string {
		return jobscript.List(dir, token, names...)
	}, func(token string, answer []byte) (err error) {
		all, err = jobscript.ParseList(token, answer)
		return err
	})
	if err != nil {
		return nil, sb.wrap(err, "list jobs")
	}
	all = slices.DeleteFunc(all, func(f *jobscript.Found) bool { return f.Backend != sb.backend || f.Task != sb.task })
	slices.SortStableFunc(all, func(a, b *jobscript.Found) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// jobStatus says what became of a job.
func (sb *Sandbox) jobStatus(f *jobscript.Found) JobStatus {
	st := JobStatus{
		ID: f.Name, Backend: f.Backend, Task: f.Task, Session: f.Session, Owner: JobOwner(f.Owner), Command: f.Command,
		State: JobRunning, ExitCode: -1, Started: f.Started, Ended: f.End, PID: f.PID, Left: f.Left, Input: f.Input, Terminal: f.Terminal,
		LogBytes: f.LogBytes, Lifetime: f.Lifetime,
	}
	switch {
	case f.Ended:
		st.State, st.ExitCode, st.Signal = JobExited, f.Code, signalOf(f.Code)
		if f.Why != "exited" {
			st.State, st.Reason = JobKilled, f.Why
		}
	case f.Running, !f.Begun && time.Since(f.Created) < jobStarts:
	default:
		st.State = JobLost
	}
	sb.telemetry.sawJob(st.ID, st.State == JobRunning)
	return st
}

// signalOf names the signal that an exit code stands for, as far as all systems number them alike.
func signalOf(code int) string {
	return map[int]string{
		1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 8: "FPE", 9: "KILL", 11: "SEGV", 13: "PIPE", 14: "ALRM", 15: "TERM",
	}[code-128]
}

// pruneJobs forgets the oldest of the jobs that have ended and left nothing running. What goes wrong shows the next time.
func (sb *Sandbox) pruneJobs(ctx context.Context) {
	found, err := sb.findJobs(ctx)
	if err != nil {
		return
	}
	over := slices.DeleteFunc(found, func(f *jobscript.Found) bool { return !sb.jobStatus(f).Over() || f.Left > 0 || f.Running })
	slices.SortStableFunc(over, func(a, b *jobscript.Found) int {
		return cmp.Or(a.End.Compare(b.End), a.Created.Compare(b.Created))
	})
	var names []string
	for _, f := range over[:max(0, len(over)-keptJobs)] {
		names = append(names, f.Name)
	}
	if len(names) > 0 {
		if err := sb.removeJobs(ctx, names...); err != nil {
			sb.log.Debug("old jobs were not removed", "error", err)
		}
	}
}

// removeJobs removes all that is known of jobs.
func (sb *Sandbox) removeJobs(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, jobAnswer)
	defer cancel()
	err := sb.ask(ctx, nil, func(dir, token string) string {
		return jobscript.Remove(dir, token, names...)
	}, func(token string, answer []byte) error {
		_, err := jobscript.ParseAct(token, answer)
		return err
	})
	return sb.wrap(err, "remove jobs")
}

// endJobsOf ends the jobs that a named session owned which is gone.
func (sb *Sandbox) endJobsOf(ctx context.Context, d *sessionData) {
	if d.ID == "" || !sb.KeepsJobs() {
		return
	}
	found, err := sb.findJobs(ctx)
	if err != nil {
		sb.log.Warn("the session's jobs were not ended", "session", d.Name, "error", err)
		return
	}
	var all sync.WaitGroup
	for _, f := range found {
		if st := sb.jobStatus(f); f.SessionID != d.ID || st.Over() && st.Left == 0 {
			continue
		}
		all.Go(func() {
			job := &Job{sb: sb, meta: f.Meta}
			if left, err := job.Kill(ctx); err != nil || len(left) > 0 {
				sb.log.Warn("a job of the session was not ended", "session", d.Name, "job", f.Name, "left", left, "error", err)
			}
		})
	}
	all.Wait()
}

// notStarted is the failure of a bash that was asked nothing yet.
type notStarted struct{ error }

func (e notStarted) Unwrap() error { return e.error }

// ask lets a bash in the sandbox answer a question about jobs, with data on its standard input; parse reads the answer. Where the
// engine has lost the sandbox it is opened again, as for a call. What may have been done is not done again.
func (sb *Sandbox) ask(ctx context.Context, data io.Reader, text func(dir, token string) string, parse func(token string, answer []byte) error) error {
	for try := 0; ; try++ {
		p := sb.at()
		token := bashscript.NewToken()
		answer, err := p.ask(ctx, text(p.info.StateDir, token), token, data)
		if err == nil {
			return parse(token, answer)
		}
		if _, not := errors.AsType[notStarted](err); !not || try == startTries || ctx.Err() != nil || sb.isClosed() {
			return err
		}
		if preparer, ok := p.drv.(driver.Preparer); ok {
			_, _ = preparer.Prepare(ctx) // it may sleep; a failure shows in the next try
			sb.stepsOver()
		}
		if _, lost := sb.reopen(ctx, p); lost != nil {
			return lost
		}
	}
}

// ask starts a bash with a text and reads its answer.
func (p *place) ask(ctx context.Context, text, token string, data io.Reader) ([]byte, error) {
	if p.lost.Load() {
		return nil, notStarted{errText("the sandbox is gone")}
	}
	proc, err := p.drv.Bash(ctx, driver.BashSpec{ID: bashscript.NewID(), Args: bashscript.TextArgs(len(text))})
	if err != nil {
		return nil, notStarted{err}
	}
	goroutines := &p.sb.goroutines
	defer closeStreams(proc)
	goroutines.Go(func() { _, _ = proc.Wait(context.Background()) })
	goroutines.Go(func() { _, _ = io.Copy(io.Discard, proc.Stderr()) })
	goroutines.Go(func() {
		in := proc.Stdin()
		if _, err := io.WriteString(in, text+"\x00"); err == nil && data != nil {
			_, _ = io.Copy(in, data)
		}
		_ = in.Close()
	})
	type read struct {
		all []byte
		err error
	}
	whole := make(chan read, 1)
	goroutines.Go(func() {
		var r read
		buffer := make([]byte, 64<<10)
		for r.err == nil && !jobscript.Whole(token, r.all) {
			var n int
			n, r.err = proc.Stdout().Read(buffer)
			r.all = append(r.all, buffer[:n]...)
		}
		whole <- r
	})
	select {
	case r := <-whole:
		if jobscript.Whole(token, r.all) {
			return r.all, nil
		}
		if lost := p.askLost(ctx); lost != nil {
			return nil, lost
		}
		return nil, fmt.Errorf("the bash that was asked ended without an answer: %w", r.err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-p.sb.closing:
		err = errText("the sandbox is being closed")
	}
	kctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = proc.Kill(kctx)
	return nil, err
}
