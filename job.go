package elsewhere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/jobscript"
)

// JobOptions says how a job is started. Nil is: the session's directory, owned as JobOwner says, no lifetime but the setting's.
type JobOptions struct {
	// Dir is the directory in which it starts; as RunOptions.Dir.
	Dir string
	// Env holds variables for this job alone; as RunOptions.Env.
	Env map[string]string
	// Keep makes the task its owner where it would be the named session.
	Keep bool
	// Lifetime ends the whole job after this time (whole seconds, at least one): 0 is terminal.job_lifetime, a negative one is never.
	Lifetime time.Duration
	// LogBytes is how much of its output is kept at most, in the sandbox; the oldest goes first, and at least three quarters of it
	// are kept. 0 is terminal.job_log_max; less than 64 KiB is 64 KiB.
	LogBytes int64
	// Terminal gives it a pseudo-terminal in the sandbox: Send types there, and its output is what is shown. It lasts as long as the
	// job's own bash; what that leaves running is hung up. The rest means something with Terminal alone.
	Terminal bool
	// Rows and Cols are the terminal's size, in characters; 0 is 24 and 80.
	Rows, Cols uint16
	// Term is the terminal's type, TERM there; "" is xterm-256color. Env beats it.
	Term string
}

// JobOwner says whose end is a job's end.
type JobOwner string

// The owners of jobs.
const (
	// OwnerSession: the named session that started it. It ends with `session rm` or the session's expiry.
	OwnerSession JobOwner = "session"
	// OwnerTask: the task. It ends with the sandbox; on local, where there is none that could end, it ends by itself or is killed.
	OwnerTask JobOwner = "task"
	// OwnerProcess: this process, since nothing is kept here (no HERMES_HOME, or a throw-away run). It ends when the Sandbox is
	// closed or this process dies.
	OwnerProcess JobOwner = "process"
)

// JobState is what became of a job.
type JobState string

// The states of a job.
const (
	JobRunning JobState = "running"
	JobExited  JobState = "exited" // ExitCode is its own
	JobKilled  JobState = "killed" // by Kill, or because its lifetime was over (Reason)
	JobLost    JobState = "lost"   // its processes are gone, and nobody wrote down how it ended: the sandbox was stopped or made again
)

// JobStatus is what is known of a job.
type JobStatus struct {
	ID      string   `json:"id"` // short, unique in its sandbox
	Backend string   `json:"backend"`
	Task    string   `json:"task"`
	Session string   `json:"session"` // that started it; "" for a throw-away one
	Owner   JobOwner `json:"owner"`
	Command string   `json:"command"` // its beginning, secrets masked
	State   JobState `json:"state"`

	// ExitCode is the job's own, 128+n where signal n ended it; -1 while it runs and where it is lost. Signal is then that signal's
	// name without SIG. A job that exits with such a code by itself looks the same, as in every shell.
	ExitCode int    `json:"exit_code"`
	Signal   string `json:"signal"`
	// Reason says why it was killed: "killed" or "lifetime"; else "".
	Reason string `json:"reason"`

	// Started and Ended are the sandbox's own clock, in whole seconds; zero where they are not known.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`

	PID int `json:"pid"` // in the sandbox; 0 before it has begun
	// Left counts processes of a job that has ended which live on: what it put into the background. Kill ends them. Only Sandbox.Jobs
	// and Job.Status count; where there is no /proc it is 0.
	Left int `json:"left"`
	// Input says that Send works: the sandbox has mkfifo.
	Input    bool          `json:"input"`
	Terminal bool          `json:"terminal"`  // it runs on a terminal
	LogBytes int64         `json:"log_bytes"` // of the window, at most
	Lifetime time.Duration `json:"lifetime_ns"`
}

// Over tells whether the job has ended or is lost.
func (st JobStatus) Over() bool { return st.State != JobRunning }

// JobOutput is a part of a job's output, stdout and stderr in the order in which they were written.
type JobOutput struct {
	// From is the offset of Data's first byte, counted from the job's first, and Next the one to ask for next.
	From, Next int64
	Data       []byte
	// Lost counts the bytes between the offset that was asked for and From: the window has rolled over them.
	Lost   int64
	Status JobStatus
	// End says that the job is over and that there is nothing more; what its children write afterwards may still follow.
	End bool
}

// Job is a background job in a sandbox. It needs no Close, and is safe for concurrent use. Its methods work while its Sandbox is
// open, from whichever process; their errors are *Error, ErrLost where the sandbox is gone. Each of them starts a bash in the sandbox.
type Job struct {
	sb      *Sandbox
	meta    jobscript.Meta
	notices []string
}

const (
	// jobPoll is how long one bash in the sandbox waits for output or an end.
	jobPoll = 20 * time.Second
	// jobAnswer is how long one may take beside that.
	jobAnswer = 30 * time.Second
	// jobSend bounds how long input may wait for a job that does not read.
	jobSend = 30 * time.Second
	// jobEnd is how long the end of a job's tree may take beside the grace, on a machine that is busy and full of processes.
	jobEnd = 15 * time.Second
	// jobEnds is how long a supervisor may take to write down the end of a job whose processes were ended.
	jobEnds = 3 * time.Second
	// jobStarts is how long a job that is written down may take to begin before it is taken for lost.
	jobStarts = 30 * time.Second
	// jobChunk is how much output one bash is asked for.
	jobChunk = 1 << 20
)

// ID is the job's short id.
func (j *Job) ID() string { return j.meta.Name }

// Terminal tells whether it runs on a terminal.
func (j *Job) Terminal() bool { return j.meta.Terminal }

// Notices are what a user has to know about the start, each one line; nil for a job that was found.
func (j *Job) Notices() []string { return j.notices }

// Status asks the sandbox. A job that was removed there, or whose sandbox was made again, is JobLost.
func (j *Job) Status(ctx context.Context) (JobStatus, error) {
	out, err := j.read(ctx, 0, 0, 0)
	return out.Status, err
}

// ended is for a job that was found over. Where it has left nothing, this process need not end it any more; a question that waited did
// not count what is left, so that is asked behind it.
func (j *Job) ended(left int, counted bool) {
	p := j.sb.at()
	switch {
	case j.meta.Owner != string(OwnerProcess):
	case !counted:
		j.sb.behind(func() {
			if !p.watch.watchesJob(j.meta) {
				return
			}
			if _, err := j.Status(context.Background()); err != nil { // which bounds it
				j.sb.log.Debug("it is not known what a job has left", "job", j.meta.Name, "error", err)
			}
		})
	case left == 0:
		p.disownJob(j.meta)
	}
}

// Logs reads at most limit bytes (0 is 1 MiB) of output from offset after on. Where there is none yet it waits for some, or for the
// job's end, for at most wait. An offset that has rolled out of the window is moved on to what is left (Lost).
func (j *Job) Logs(ctx context.Context, after, limit int64, wait time.Duration) (JobOutput, error) {
	if after < 0 || limit < 0 {
		return JobOutput{}, j.fail(errText("an offset or a limit is negative"), driver.KindConfig, "job logs", "count from 0")
	}
	if limit == 0 {
		limit = jobChunk
	}
	deadline := time.Now().Add(wait)
	for {
		out, err := j.read(ctx, after, limit, min(jobPoll, max(0, time.Until(deadline))))
		if err != nil || len(out.Data) > 0 || out.End || !time.Now().Before(deadline) {
			return out, err
		}
	}
}

// Follow copies output from offset after on to w until the job is over and all is copied, or ctx is done. It returns the next
// offset, how many bytes had rolled out of the window before they could be read, and the last status; also beside an error, which is
// w's own or an *Error.
func (j *Job) Follow(ctx context.Context, w io.Writer, after int64) (next, lost int64, st JobStatus, err error) {
	for next = after; ; {
		out, err := j.Logs(ctx, next, 0, jobPoll)
		if err != nil {
			return next, lost, st, err
		}
		st = out.Status
		lost += out.Lost
		if len(out.Data) > 0 {
			if _, err := w.Write(out.Data); err != nil {
				return out.From, lost, st, err
			}
		}
		next = out.Next
		if out.End {
			return next, lost, st, nil
		}
	}
}

// Wait waits until the job is over or ctx is done; the status is the last one then, beside the error.
func (j *Job) Wait(ctx context.Context) (JobStatus, error) {
	var last JobStatus
	for {
		out, err := j.read(ctx, 0, 0, jobPoll)
		if err != nil {
			return last, err
		}
		if last = out.Status; last.Over() {
			return last, nil
		}
	}
}

// Send writes data to the job's standard input. Where the job does not read, it waits for at most 30 s (ErrTimeout: part of data may
// have been taken). A sandbox without mkfifo is ErrUnsupported, a job that is over or whose input was closed ErrConfig.
//
// On a terminal it types them, and the program there decides what they are: a carriage return is the Enter key, 0x03 Ctrl-C, 0x04 Ctrl-D. A
// terminal whose program reads nothing holds some 64 KiB; from then on nothing is shown either, until it reads.
//
// Where commands are checked, so is what is sent as far as it is a command of bash (ErrDenied); what is sent in parts is not put together.
func (j *Job) Send(ctx context.Context, data []byte) error {
	text := string(data)
	if j.meta.Terminal {
		text = typedLines(text)
	}
	if verdict, err := j.sb.permitInput(ctx, j.meta.Name, text); err != nil {
		j.sb.auditDenied("", "input of job "+j.meta.Name+": "+string(data), verdict, err)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jobSend)
	defer cancel()
	err := j.act(ctx, "job send", jobscript.Send, "", bytes.NewReader(data))
	if errors.Is(err, ErrTimeout) {
		return j.fail(fmt.Errorf("it has not read its input within %v", jobSend), driver.KindTimeout, "job send", "see its output; part of the input may have reached it")
	}
	return err
}

// typedLines is what is typed on a terminal as lines of text: a control key may begin a new one.
func typedLines(typed string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '\n'
		}
		return r
	}, typed)
}

// SendLine sends a line: text and a newline or, on a terminal, the Enter key.
func (j *Job) SendLine(ctx context.Context, text string) error {
	end := "\n"
	if j.meta.Terminal {
		end = "\r"
	}
	return j.Send(ctx, []byte(text+end))
}

// CloseInput closes the job's standard input: behind what was sent it finds the end of file. A second time does nothing. On a terminal
// it types Ctrl-D, which a program that reads lines takes for the end of file at the beginning of one; it may be typed again, and more behind it.
func (j *Job) CloseInput(ctx context.Context) error {
	return j.act(ctx, "job send", jobscript.Close, "", nil)
}

// Signal sends a signal, by name without SIG ("INT", "HUP"), to the job's process group, as a terminal does. A job that is over
// is ErrConfig.
func (j *Job) Signal(ctx context.Context, name string) error {
	if !isName(name) {
		return j.fail(fmt.Errorf("%q is no signal", name), driver.KindConfig, "job signal", "give a name such as INT or HUP")
	}
	return j.act(ctx, "job signal", jobscript.Signal, name, nil)
}

// Kill ends the job and all that it started (TERM, the grace, KILL) and waits until its end is written down. It returns what was
// found and could not be ended. For a job that is over it ends what it left running.
func (j *Job) Kill(ctx context.Context) ([]Survivor, error) {
	st, err := j.Status(ctx)
	if err != nil || st.Over() && st.Left == 0 {
		return nil, err
	}
	if !st.Over() {
		if err := j.act(ctx, "job kill", jobscript.Mark, "", nil); err != nil {
			return nil, err
		}
	}
	left, err := j.end(ctx, bashscript.Watch(j.meta.Mark, j.meta.ID, st.PID))
	if err != nil || st.Over() {
		return left, err
	}
	out, err := j.read(ctx, 0, 0, jobEnds)
	if err != nil || out.Status.Over() {
		return left, err
	}
	// Its supervisor does not answer.
	more, err := j.end(ctx, bashscript.WatchSession(j.meta.Mark.Session(), j.meta.Supervisor))
	if err != nil {
		return left, err
	}
	return append(left, more...), j.act(ctx, "job kill", jobscript.End, "", nil)
}

// end ends what request names.
func (j *Job) end(ctx context.Context, request string) ([]Survivor, error) {
	for range startTries {
		ectx, cancel := context.WithTimeout(ctx, j.sb.grace+jobEnd)
		left, confirmed := j.sb.at().end(ectx, request)
		cancel()
		if confirmed {
			return left, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, j.fail(errText("it was not confirmed that its processes ended"), driver.KindUnavailable, "job kill", "try again")
}

// Remove forgets a job that is over, with its output. One that runs is ErrConfig.
func (j *Job) Remove(ctx context.Context) error {
	st, err := j.Status(ctx)
	if err != nil {
		return err
	}
	if !st.Over() {
		return j.fail(errText("it runs"), driver.KindConfig, "job", "kill it first")
	}
	return j.sb.removeJobs(ctx, j.meta.Name)
}

// read asks for output and status.
func (j *Job) read(ctx context.Context, after, limit int64, wait time.Duration) (JobOutput, error) {
	var kept jobscript.Kept
	actx, cancel := context.WithTimeout(ctx, wait+jobAnswer)
	defer cancel()
	err := j.sb.ask(actx, nil, func(dir, token string) string {
		return jobscript.Read(dir, token, j.meta.Name, after, limit, wait)
	}, func(token string, answer []byte) (err error) {
		kept, err = jobscript.ParseRead(token, answer)
		return err
	})
	if err != nil {
		return JobOutput{}, j.fail(err, kindOf(j.sb.back, err), "job", "")
	}
	if kept.Job == nil || kept.Job.ID != j.meta.ID {
		st := j.sb.jobStatus(&jobscript.Found{Meta: j.meta, Begun: true})
		return JobOutput{From: after, Next: after, Status: st, End: true}, nil
	}
	out := JobOutput{From: kept.From, Next: kept.From + int64(len(kept.Data)), Data: kept.Data, Lost: max(0, kept.From-after), Status: j.sb.jobStatus(kept.Job)}
	out.End = out.Status.Over() && len(out.Data) == 0 && !kept.Overrun
	if out.End {
		j.ended(out.Status.Left, wait == 0)
	}
	return out, nil
}

// act does something to the job.
func (j *Job) act(ctx context.Context, op, verb, signal string, data io.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, jobAnswer)
	defer cancel()
	var answer string
	err := j.sb.ask(ctx, data, func(dir, token string) string {
		return jobscript.Act(dir, token, j.meta.Name, verb, signal, time.Now())
	}, func(token string, text []byte) (err error) {
		answer, err = jobscript.ParseAct(token, text)
		return err
	})
	if err != nil {
		return j.fail(err, kindOf(j.sb.back, err), op, "")
	}
	switch answer {
	case "ok":
		return nil
	case "none":
		return j.fail(errText("it is gone, with its sandbox or because it had ended long ago"), driver.KindLost, op, j.sb.suggest("job ls")+" lists those that are there")
	case "over":
		return j.fail(errText("it has ended"), driver.KindConfig, op, j.sb.suggest("job logs", j.meta.Name)+" shows its output")
	case "deaf":
		return j.fail(errText("it has no input: there is no mkfifo in this sandbox"), driver.KindUnsupported, op, "use an image with coreutils or busybox")
	case "closed":
		return j.fail(errText("its input was closed"), driver.KindConfig, op, "start it again")
	default:
		return j.fail(errText("the sandbox could not do it"), driver.KindUnavailable, op, "see "+j.sb.suggest("job ls"))
	}
}

// fail makes err an *Error about this job.
func (j *Job) fail(err error, kind driver.Kind, op, hint string) error {
	return wrap(err, kind, op, j.sb.backend, j.meta.Name, hint)
}
