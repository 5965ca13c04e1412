package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/output"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// processInput is what the tool process takes.
type processInput struct {
	Action  string  `json:"action" jsonschema:"list: all jobs. poll: state and the output since you last looked, at once. wait: the same, but wait for the end. log: output from a byte offset, or its end. write: data to standard input. submit: data and a newline. close: end standard input. (On a job's terminal: type data; data and Enter; Ctrl-D.) kill: end the job and all it started."`
	JobID   string  `json:"job_id,omitempty" jsonschema:"The job, as terminal or list named it. For log also an output_id of terminal. Needed for all but list."`
	Data    string  `json:"data,omitempty" jsonschema:"For write and submit: the text. On a terminal control characters are keys: \\u0003 is Ctrl-C, \\u001b Escape, \\u001b[A the arrow up."`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"For wait: at most this many seconds; the job goes on. For poll: wait that long for output where there is none yet."`
	Offset  *int64  `json:"offset,omitempty" jsonschema:"For log: the byte from which on; answers say next. Left out: the end of the output."`
	Limit   int64   `json:"limit,omitempty" jsonschema:"For poll, wait and log: at most this many bytes."`
	Signal  string  `json:"signal,omitempty" jsonschema:"For kill: send only this signal (INT, HUP, ...) to the job's processes."`
	Backend string  `json:"backend,omitempty" jsonschema:"Where the job is."`
}

// jobOutput is a job.
type jobOutput struct {
	ID       string `json:"job_id"`
	State    string `json:"state" jsonschema:"running, exited, killed or lost"`
	ExitCode *int   `json:"exit_code"`
	Signal   string `json:"signal,omitempty"`
	Reason   string `json:"reason,omitempty" jsonschema:"why it was killed: killed or lifetime"`
	Command  string `json:"command,omitempty" jsonschema:"its beginning"`
	Started  string `json:"started,omitempty"`
	Ended    string `json:"ended,omitempty"`
	PID      int    `json:"pid,omitempty"`
	Left     int    `json:"left,omitempty" jsonschema:"processes that it left running; kill ends them"`
	Input    bool   `json:"input" jsonschema:"whether write and submit work"`
	Terminal bool   `json:"terminal,omitempty" jsonschema:"it runs on a terminal"`
	Backend  string `json:"backend,omitempty"`
	Task     string `json:"task,omitempty"`
}

func newJobOutput(st elsewhere.JobStatus) *jobOutput {
	j := &jobOutput{
		ID: st.ID, State: string(st.State), Signal: st.Signal, Reason: st.Reason, Command: strings.ToValidUTF8(st.Command, "\uFFFD"),
		Started: timeText(st.Started), Ended: timeText(st.Ended), PID: st.PID, Left: st.Left, Input: st.Input, Terminal: st.Terminal, Backend: st.Backend, Task: st.Task,
	}
	if st.ExitCode >= 0 {
		j.ExitCode = new(st.ExitCode)
	}
	return j
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// text is the job on one line.
func (j *jobOutput) text() string {
	text := j.ID + " " + j.State
	if j.ExitCode != nil {
		text += fmt.Sprintf(", exit code %d", *j.ExitCode)
	}
	if j.Reason == "lifetime" {
		text += ", its time was over"
	}
	if j.Left > 0 {
		text += fmt.Sprintf(", %d processes left running", j.Left)
	}
	return text
}

// processOutput is what it answers, beside the text.
type processOutput struct {
	Job       *jobOutput           `json:"job,omitempty"`
	Jobs      []jobOutput          `json:"jobs,omitempty"`
	Output    string               `json:"output"`
	From      int64                `json:"from" jsonschema:"offset of the first byte of output"`
	Next      int64                `json:"next" jsonschema:"offset to go on from"`
	Lost      int64                `json:"lost,omitempty" jsonschema:"bytes before it that are not kept any more"`
	End       bool                 `json:"end" jsonschema:"the job is over and there is no more output"`
	Survivors []elsewhere.Survivor `json:"survivors,omitempty"`
	Notices   []string             `json:"notices,omitempty"`
	Error     *resultjson.Error    `json:"error,omitempty"`
}

// processActions are what it does.
var processActions = []any{"list", "poll", "wait", "log", "write", "submit", "close", "kill"}

const (
	// tailRead is how much of a log is read at once.
	tailRead = 1 << 20
	// catchUp is how long a look at what a job has printed may go on where each part is a whole one.
	catchUp = 10 * time.Second
)

// pursuit bounds how long a job's output is followed, also where the job prints as fast as it is read.
type pursuit struct {
	// until, where it is set, is when to stop whatever has come: what is waited for is the job's end. Else all that is there is
	// waited for.
	until time.Time

	began time.Time // zero before the first part
	first int64     // offset
}

// done tells, of the part that was read last, whether it is the last one to read.
func (p *pursuit) done(part elsewhere.JobOutput) bool {
	if p.began.IsZero() {
		p.began, p.first = time.Now(), part.From
	}
	switch {
	case part.End:
		return true
	case !p.until.IsZero():
		return !time.Now().Before(p.until)
	}
	// The window holds no more than LogBytes, so that what comes behind them was printed meanwhile.
	return !behind(part) || part.Next-p.first >= part.Status.LogBytes || time.Since(p.began) >= catchUp
}

// behind tells whether there may be more than the part that was read.
func behind(part elsewhere.JobOutput) bool { return len(part.Data) == tailRead }

func (s *Server) addProcess() {
	schema := s.schema(inputSchema[processInput]())
	schema.Properties["action"].Enum = processActions
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "process", Title: "Background jobs", InputSchema: schema,
		Description: `Look after background jobs that terminal started: list them, read their output, give them input, wait for them, end them. Jobs go on when this connection ends, and are found again later with action:list. poll and wait give each part of the output once; log reads any part again.`,
		Annotations: &mcp.ToolAnnotations{Title: "Background jobs", DestructiveHint: new(true), OpenWorldHint: new(true)},
	}, handler(s, s.process))
}

// process does one thing with jobs.
func (s *Server) process(ctx context.Context, c *call, in processInput) answer[processOutput] {
	var out processOutput
	if in.Limit < 0 || in.Timeout < 0 {
		return out.failed(failure(driver.KindConfig, "count from 0", "timeout or limit is negative"))
	}
	if in.Action != "list" && in.JobID == "" {
		return out.failed(failure(driver.KindConfig, "name the job; action:list has them", "%s needs a job_id", in.Action))
	}
	p, err := s.place(in.Backend)
	if err != nil {
		return out.failed(err)
	}
	if file, ok := c.output(in.JobID); ok && in.Action == "log" {
		return s.logOutput(file, in)
	}
	sandbox, err := p.open(ctx, c.told)
	if err != nil {
		return out.failed(err)
	}
	defer p.listen(c.told)()
	if in.Action == "list" {
		return listJobs(ctx, sandbox)
	}
	job, err := sandbox.Job(ctx, in.JobID)
	if err != nil {
		return out.failed(err)
	}
	switch in.Action {
	case "poll", "wait":
		return s.follow(ctx, c, p, job, in)
	case "log":
		return s.readLog(ctx, job, in)
	}
	return s.act(ctx, job, in)
}

func listJobs(ctx context.Context, sandbox *elsewhere.Sandbox) answer[processOutput] {
	out := processOutput{Jobs: []jobOutput{}}
	jobs, err := sandbox.Jobs(ctx)
	if err != nil {
		return out.failed(err)
	}
	var b strings.Builder
	for _, st := range jobs {
		j := newJobOutput(st)
		out.Jobs = append(out.Jobs, *j)
		command, _, _ := output.Clip(strings.Join(strings.Fields(j.Command), " "), 100)
		fmt.Fprintf(&b, "%s: %s\n", j.text(), command)
	}
	if len(jobs) == 0 {
		b.WriteString("there are no jobs")
	}
	return answer[processOutput]{text: b.String(), out: out}
}

// follow gives what came since the client last looked, and with wait waits for the job's end. A job that goes on printing does not make
// it longer: what it did not get to comes with the next one.
func (s *Server) follow(ctx context.Context, c *call, p *place, job *elsewhere.Job, in processInput) answer[processOutput] {
	key := p.name + "/" + job.ID()
	shown := newSeen(s.shownBytes(in.Limit), "")
	defer shown.discard()
	from := c.cursor(key)
	out := processOutput{From: from.at, Next: from.at}
	to := io.Writer(shown)
	if c.told != nil {
		to = io.MultiWriter(shown, c.told)
	}
	text := &plain{to: to, escape: from.escape}
	if job.Terminal() {
		to = text
	}
	limit := seconds(in.Timeout)
	if in.Action == "wait" && limit == 0 {
		limit = s.limits.timeout
	}
	limit = min(limit, s.limits.foreground)
	deadline := time.Now().Add(limit)
	var chase pursuit
	if in.Action == "wait" {
		chase.until = deadline
	}
	for {
		part, err := job.Logs(ctx, out.Next, tailRead, max(0, time.Until(deadline)))
		if err != nil {
			if ctx.Err() != nil {
				err = failure(driver.KindCanceled, "the job goes on; poll it later", "the wait was cancelled")
			}
			return out.failed(err)
		}
		if part.Lost > 0 {
			text.escape = escape{}
		}
		_, _ = to.Write(part.Data)
		if out.Next == from.at {
			out.From = part.From
		}
		out.Next, out.End, out.Lost, out.Job = part.Next, part.End, out.Lost+part.Lost, newJobOutput(part.Status)
		if chase.done(part) {
			if behind(part) {
				out.Notices = append(out.Notices, "there is more: poll again")
			}
			break
		}
	}
	c.moveCursor(key, cursor{out.Next, text.escape})
	out.Output, _ = shown.text()
	if shown.cut {
		out.Notices = append(out.Notices, fmt.Sprintf("read what is left out with action:log offset:%d", out.From))
	}
	if in.Action == "wait" && !out.End && out.Job.State == string(elsewhere.JobRunning) {
		out.Notices = append(out.Notices, fmt.Sprintf("it still runs after %s; it goes on", limit))
	}
	return out.answer()
}

// shownBytes is how much of an output a model is shown.
func (s *Server) shownBytes(limit int64) int {
	if limit > 0 {
		return int(min(limit, int64(s.limits.output)))
	}
	return s.limits.output
}

// readLog gives a part of a job's output, or its end.
func (s *Server) readLog(ctx context.Context, job *elsewhere.Job, in processInput) answer[processOutput] {
	var out processOutput
	limit := int64(s.shownBytes(in.Limit))
	if in.Offset != nil {
		part, err := job.Logs(ctx, max(0, *in.Offset), limit, 0)
		if err != nil {
			return out.failed(err)
		}
		data := part.Data
		if int64(len(data)) == limit {
			data = data[:wholeRunes(data)]
		}
		out = processOutput{From: part.From, Next: part.From + int64(len(data)), Lost: part.Lost, End: part.End, Job: newJobOutput(part.Status), Output: shownText(job, data)}
		return out.answer()
	}
	var tail []byte
	var chase pursuit
	for {
		part, err := job.Logs(ctx, out.Next, tailRead, 0)
		if err != nil {
			return out.failed(err)
		}
		tail = append(tail, part.Data...)
		tail = tail[max(0, int64(len(tail))-limit):]
		out.Next, out.End, out.Job = part.Next, part.End, newJobOutput(part.Status)
		if chase.done(part) {
			if behind(part) {
				out.Notices = append(out.Notices, fmt.Sprintf("there is more: read it with offset:%d", out.Next))
			}
			break
		}
	}
	out.From = out.Next - int64(len(tail))
	out.Output = shownText(job, tail)
	if out.From > 0 {
		out.Notices = append(out.Notices, fmt.Sprintf("%d bytes come before this; read them with offset", out.From))
	}
	return out.answer()
}

// logOutput gives a part of the whole output of a command of terminal.
func (s *Server) logOutput(file string, in processInput) answer[processOutput] {
	var out processOutput
	limit := int64(s.shownBytes(in.Limit))
	offset := -limit
	if in.Offset != nil {
		offset = max(0, *in.Offset)
	}
	p, err := readPart(file, offset, limit)
	if err != nil {
		return out.failed(failure(driver.KindConfig, "run the command again", "the output is not kept any more: %w", err))
	}
	out = processOutput{Output: output.Text(p.data), From: p.from, Next: p.next, End: p.next >= p.size}
	return answer[processOutput]{out: out, text: withNotices(out.Output, fmt.Sprintf("bytes %d to %d of %d", p.from, p.next, p.size), nil)}
}

// act gives a job input, or ends it.
func (s *Server) act(ctx context.Context, job *elsewhere.Job, in processInput) answer[processOutput] {
	var out processOutput
	var err error
	done := ""
	switch in.Action {
	case "write", "submit":
		done = fmt.Sprintf("%d bytes were sent", len(in.Data))
		switch {
		case in.Action == "submit":
			done = "the line was sent"
			err = job.SendLine(ctx, in.Data)
		case in.Data == "":
			err = failure(driver.KindConfig, "give data", "there is nothing to write")
		default:
			err = job.Send(ctx, []byte(in.Data))
		}
	case "close":
		done = "its input is closed"
		if job.Terminal() {
			done = "Ctrl-D was typed"
		}
		err = job.CloseInput(ctx)
	case "kill":
		if in.Signal != "" {
			done = "the signal was sent"
			err = job.Signal(ctx, strings.TrimPrefix(strings.ToUpper(in.Signal), "SIG"))
		} else {
			done = "it was ended, with all it had started"
			out.Survivors, err = job.Kill(ctx)
		}
	default:
		err = failure(driver.KindConfig, "use list, poll, wait, log, write, submit, close or kill", "there is no action %q", in.Action)
	}
	if err != nil {
		return out.failed(err)
	}
	st, err := job.Status(ctx)
	if err != nil {
		return out.failed(err)
	}
	out.Job = newJobOutput(st)
	for _, left := range out.Survivors {
		out.Notices = append(out.Notices, fmt.Sprintf("process %d (%s) could not be ended", left.PID, left.Command))
	}
	return answer[processOutput]{out: out, text: withNotices(done, out.Job.text(), out.Notices)}
}

// answer is the output and a line about the job.
func (o processOutput) answer() answer[processOutput] {
	if o.Lost > 0 {
		o.Notices = append(o.Notices, fmt.Sprintf("%d bytes are not kept any more", o.Lost))
	}
	facts := o.Job.text()
	if o.Next > o.From {
		facts += fmt.Sprintf("; bytes %d to %d", o.From, o.Next)
	} else {
		facts += "; no new output"
	}
	return answer[processOutput]{out: o, text: withNotices(o.Output, facts, o.Notices)}
}

func (o processOutput) failed(err error) answer[processOutput] {
	o.Error = resultjson.NewError(nextStep(err))
	return answer[processOutput]{text: errorText(o.Error), out: o, failed: true}
}

// nextStep puts what a client of this server can do in place of a command of the user's own terminal.
func nextStep(err error) error {
	own, ok := errors.AsType[*elsewhere.Error](err)
	if !ok || !strings.Contains(own.Hint, " job ls") {
		return err
	}
	told := *own
	told.Hint = "process action:list has those that are there"
	return &told
}
