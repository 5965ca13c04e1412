package mcpserver

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// terminalInput is what the tool terminal takes.
type terminalInput struct {
	Command    string  `json:"command" jsonschema:"The bash text to run; any size, several lines too."`
	Workdir    string  `json:"workdir,omitempty" jsonschema:"Run in this directory, for this call alone. Default: where the session is. Relative to that; ~ is the sandbox's home."`
	Timeout    float64 `json:"timeout,omitempty" jsonschema:"End the command, and all it started, after this many seconds."`
	Background bool    `json:"background,omitempty" jsonschema:"Start it as a background job and return at once with its job_id; follow it with the tool process. For servers, watchers and long work."`
	PTY        bool    `json:"pty,omitempty" jsonschema:"Run it on a terminal, for programs that refuse to work or behave otherwise without one. In the foreground nobody types there; with background you do, by process action:submit and write."`
	Rows       uint16  `json:"rows,omitempty" jsonschema:"With pty: the terminal's height in characters. Default: 24."`
	Cols       uint16  `json:"cols,omitempty" jsonschema:"With pty: the terminal's width in characters. Default: 80."`
	Session    string  `json:"session,omitempty" jsonschema:"A shell of its own under this name: its directory and variables are apart from those of other sessions. Default: your main session."`
	Backend    string  `json:"backend,omitempty" jsonschema:"Where to run it."`
}

// terminalOutput is what it answers, beside the text.
type terminalOutput struct {
	Output      string               `json:"output"`
	ExitCode    *int                 `json:"exit_code"` // null for a job, and where it is not known
	Cause       string               `json:"cause,omitempty" jsonschema:"exited, signal, timeout, interrupted, directory (nothing ran), denied (nothing ran) or lost"`
	Signal      string               `json:"signal,omitempty"`
	ExitMeaning string               `json:"exit_meaning,omitempty"`
	Cwd         string               `json:"cwd,omitempty" jsonschema:"the session's directory after the call"`
	StateSaved  bool                 `json:"state_saved" jsonschema:"whether what the command changed in its shell is there for the next call"`
	DurationMS  int64                `json:"duration_ms"`
	Truncated   bool                 `json:"truncated" jsonschema:"output is cut in the middle; output_id has all of it"`
	OutputBytes int64                `json:"output_bytes"`
	OutputID    string               `json:"output_id,omitempty" jsonschema:"read the whole output with process action:log job_id:OUTPUT_ID, or as the resource output_uri"`
	OutputURI   string               `json:"output_uri,omitempty"`
	CallID      string               `json:"call_id,omitempty"`
	Backend     string               `json:"backend,omitempty"`
	Task        string               `json:"task,omitempty"`
	Session     string               `json:"session,omitempty"`
	Where       *elsewhere.Where     `json:"where,omitempty" jsonschema:"where it really ran"`
	Job         *jobOutput           `json:"job,omitempty" jsonschema:"the background job that was started"`
	Survivors   []elsewhere.Survivor `json:"survivors,omitempty" jsonschema:"processes that could not be ended"`
	Recreated   string               `json:"recreated,omitempty" jsonschema:"why the sandbox is a new one: earlier files and state may be gone"`
	Notices     []string             `json:"notices,omitempty"`
	Error       *resultjson.Error    `json:"error,omitempty"`
}

func (s *Server) addTerminal() {
	description := fmt.Sprintf(`Run a bash command %s and wait for its end. Output is standard output and standard error in their true order.

- Directory, exported variables, functions and aliases go on in the next call: no need to repeat cd or export. exit, set -e or a syntax error ends that one command, never the session.
- Standard input is empty: a command that asks a question finds end of file. Give answers by flags (-y), a pipe or a here-document, or start it with background:true and answer with process action:submit.
- A command is ended after timeout seconds (default %g). One that may run longer than %g seconds becomes a background job instead, and the result says so.
- With pty:true the command has a terminal of 24 rows and 80 columns (or rows and cols); what it shows comes as text without colours and cursor movements. In the foreground nobody types there, so a program that waits for a key ends with the timeout. With background:true too it is a program to talk to, such as a shell, a debugger or an interpreter: read it with process action:poll, type with action:submit and write (\u0003 is Ctrl-C).
- For servers, watchers and long builds use background:true instead of &, nohup or disown: then its output, exit code and whole process tree stay in reach of the tool process.
- A non-zero exit_code is a result, not an error of the tool.`, s.whereText(), s.limits.timeout.Seconds(), s.limits.foreground.Seconds())
	mcp.AddTool(s.mcp, &mcp.Tool{
		Name: "terminal", Title: "Run a command", Description: description, InputSchema: s.schema(inputSchema[terminalInput]()),
		Annotations: &mcp.ToolAnnotations{Title: "Run a command", DestructiveHint: new(true), OpenWorldHint: new(true)},
	}, handler(s, s.terminal))
}

// whereText says in a few words where commands run.
func (s *Server) whereText() string {
	names := s.backends()
	if len(names) > 1 {
		return "on " + strings.Join(names, " or ") + " (parameter backend)"
	}
	p := s.places[names[0]]
	return "on " + names[0] + " (" + strings.TrimSuffix(p.back.Summary, ".") + ")"
}

func inputSchema[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // of our own types
	}
	return schema
}

// schema takes the parameter backend out where there is no choice, and names the choices where there is.
func (s *Server) schema(schema *jsonschema.Schema) *jsonschema.Schema {
	names := s.backends()
	if len(names) == 1 {
		delete(schema.Properties, "backend")
		order := schema.PropertyOrder[:0:0]
		for _, name := range schema.PropertyOrder {
			if name != "backend" {
				order = append(order, name)
			}
		}
		schema.PropertyOrder = order
		return schema
	}
	backend := schema.Properties["backend"]
	for _, name := range names {
		backend.Enum = append(backend.Enum, name)
	}
	backend.Description += " Default: " + names[0] + "."
	return schema
}

// call is one request of a client.
type call struct {
	*client
	req  *mcp.CallToolRequest
	told *progress
}

// answer is what a tool has to say: to a model, and to a program.
type answer[Out any] struct {
	text    string
	out     Out
	content []mcp.Content // beside the text
	failed  bool
}

// handler makes a tool of a function that answers a call.
func handler[In, Out any](s *Server, do func(context.Context, *call, In) answer[Out]) mcp.ToolHandlerFor[In, Out] {
	return func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		var none Out
		c, err := s.client(req.Session)
		if err != nil {
			return nil, none, err
		}
		ctx, done, err := c.begin(ctx)
		if err != nil {
			return nil, none, err
		}
		defer done()
		ctx = withAsked(ctx, req.Session)
		told := newProgress(ctx, req)
		a := do(ctx, &call{client: c, req: req, told: told}, in)
		told.stop()
		result := &mcp.CallToolResult{IsError: a.failed, Content: append([]mcp.Content{&mcp.TextContent{Text: a.text}}, a.content...)}
		return result, a.out, nil
	}
}

// terminal runs a command.
func (s *Server) terminal(ctx context.Context, c *call, in terminalInput) answer[terminalOutput] {
	out := terminalOutput{Backend: cmp.Or(in.Backend, s.opts.Backends[0]), Task: s.opts.Task, Session: in.Session}
	if in.Timeout < 0 {
		return out.failed(failure(driver.KindConfig, "give seconds above zero, or leave it out", "the timeout %g is negative", in.Timeout))
	}
	timeout := seconds(in.Timeout)
	if err := checkPTY(in); err != nil {
		return out.failed(err)
	}
	if in.PTY && strings.TrimSpace(in.Command) == "" {
		return out.failed(failure(driver.KindConfig, "give one", "the command is empty"))
	}
	p, err := s.place(in.Backend)
	if err != nil {
		return out.failed(err)
	}
	session, err := c.session(ctx, p, in.Session, c.told)
	if err != nil {
		return out.failed(err)
	}
	defer p.listen(c.told)()
	switch {
	case in.Background:
		return s.start(ctx, c, p, session, in, timeout, "", out)
	case timeout > s.limits.foreground:
		why := fmt.Sprintf("a foreground command may run for %s at most (terminal.max_foreground_timeout), so this one was started as a background job; it is ended after the %s that were asked for",
			s.limits.foreground, timeout)
		return s.start(ctx, c, p, session, in, timeout, why, out)
	case timeout == 0:
		timeout = s.limits.timeout
	}
	return s.foreground(ctx, c, session, in, timeout, out)
}

// foreground runs a command and waits for its end.
func (s *Server) foreground(ctx context.Context, c *call, session *elsewhere.Session, in terminalInput, timeout time.Duration, out terminalOutput) answer[terminalOutput] {
	seen := newSeen(s.limits.output, s.outputDir())
	opts := &elsewhere.RunOptions{Dir: in.Workdir, Timeout: timeout, Stdout: io.Writer(seen)}
	if c.told != nil {
		opts.Stdout = io.MultiWriter(seen, c.told)
	}
	run := session.Run
	if in.PTY {
		run = func(ctx context.Context, _ string, opts *elsewhere.RunOptions) (*elsewhere.Result, error) {
			return runOnTerminal(ctx, session, in, opts)
		}
	}
	res, err := run(ctx, in.Command, opts)
	if s.opts.Session != "" {
		// The next server reads this state, so it has to be there before the client hears of the end.
		if ferr := session.Flush(context.WithoutCancel(ctx)); ferr != nil && res != nil {
			res.Notices = append(res.Notices, ferr.Error())
		}
	}
	if res == nil || res.Cause == elsewhere.Denied {
		seen.discard()
		if res != nil {
			out.fill(res)
		}
		return out.failed(err)
	}
	out.fill(res)
	text, file := seen.text()
	out.Output, out.Truncated = text, seen.cut
	a := answer[terminalOutput]{}
	if file != "" {
		out.OutputID, out.OutputURI = res.CallID, outputURI(res.CallID)
		c.keepOutput(res.CallID, file)
		a.content = append(a.content, &mcp.ResourceLink{
			URI: out.OutputURI, Name: "output of " + res.CallID, MIMEType: "text/plain", Size: new(out.OutputBytes),
			Description: "the whole output of this command",
		})
	}
	if err != nil {
		out.ExitCode, out.Error, a.failed = nil, resultjson.NewError(err), true
	}
	if res.Cause == elsewhere.TimedOut {
		out.Notices = append(out.Notices, fmt.Sprintf("it was ended after %s with all it had started; give a longer timeout, or use background:true for what has to go on", timeout))
	}
	a.out, a.text = out, out.text()
	return a
}

// start starts a command as a job of the task. why says that this was not asked for.
func (s *Server) start(ctx context.Context, c *call, p *place, session *elsewhere.Session, in terminalInput, lifetime time.Duration, why string, out terminalOutput) answer[terminalOutput] {
	if lifetime > 0 {
		lifetime = max(lifetime, time.Second)
	}
	job, err := session.Start(ctx, in.Command, &elsewhere.JobOptions{
		Dir: in.Workdir, Keep: true, Lifetime: lifetime, Terminal: in.PTY, Rows: in.Rows, Cols: in.Cols,
	})
	if err != nil {
		return out.failed(err)
	}
	sandbox, err := p.open(ctx, nil)
	if err != nil {
		return out.failed(err)
	}
	where := sandbox.Where()
	out.Where, out.Cwd, out.StateSaved = &where, session.Cwd(), false
	out.Notices = append(out.Notices, job.Notices()...)
	if why != "" {
		out.Notices = append(out.Notices, why)
	}
	st, err := job.Status(ctx)
	if err != nil {
		// It runs: its id must not be lost.
		st = elsewhere.JobStatus{ID: job.ID(), Backend: p.name, Task: s.opts.Task, State: elsewhere.JobRunning, ExitCode: -1}
		out.Notices = append(out.Notices, "its status is not known: "+err.Error())
	}
	out.Job = newJobOutput(st)
	text := fmt.Sprintf("Started background job %s on %s. See its output with process action:poll job_id:%s (or action:wait, log); end it with action:kill.",
		job.ID(), p.name, job.ID())
	return answer[terminalOutput]{text: withNotices(text, "", out.Notices), out: out}
}

// fill takes over what a result says.
func (o *terminalOutput) fill(res *elsewhere.Result) {
	if res.ExitCode >= 0 {
		o.ExitCode = new(res.ExitCode)
	}
	o.Cause, o.Signal, o.ExitMeaning = string(res.Cause), res.Signal, res.ExitMeaning
	o.Cwd, o.StateSaved = strings.ToValidUTF8(res.Cwd, "\uFFFD"), res.StateSaved
	o.DurationMS, o.OutputBytes, o.CallID = res.Duration.Milliseconds(), res.OutputBytes, res.CallID
	o.Backend, o.Task = res.Backend, res.Task
	if res.Where != (elsewhere.Where{}) {
		o.Where = new(res.Where)
	}
	o.Survivors, o.Recreated, o.Notices = res.Survivors, res.Recreated, res.Notices
}

// failed is the answer where elsewhere itself failed and nothing is known to have run.
func (o terminalOutput) failed(err error) answer[terminalOutput] {
	o.Error = resultjson.NewError(err)
	if o.Error.Kind == driver.KindDenied {
		o.Cause = string(elsewhere.Denied)
	}
	return answer[terminalOutput]{text: errorText(o.Error), out: o, failed: true}
}

// text is the result for a model: the output, and one line about the end.
func (o *terminalOutput) text() string {
	var facts []string
	switch {
	case o.Error != nil:
		facts = append(facts, "how it ended is not known")
	case o.Cause == string(elsewhere.TimedOut):
		facts = append(facts, "timed out: exit code 124")
	case o.Cause == string(elsewhere.Interrupted):
		facts = append(facts, "interrupted: exit code 130")
	case o.Cause == string(elsewhere.Directory):
		facts = append(facts, "nothing ran: the directory cannot be entered")
	case o.ExitCode != nil:
		fact := fmt.Sprintf("exit code %d", *o.ExitCode)
		if o.ExitMeaning != "" {
			fact += " (" + o.ExitMeaning + ")"
		}
		if o.Signal != "" {
			fact += " (signal " + o.Signal + ")"
		}
		facts = append(facts, fact)
	}
	facts = append(facts, (time.Duration(o.DurationMS) * time.Millisecond).String())
	if o.Cwd != "" {
		facts = append(facts, "cwd "+o.Cwd)
	}
	if o.Where != nil {
		facts = append(facts, "on "+o.Backend+" "+o.Where.Host)
	}
	if o.OutputID != "" {
		facts = append(facts, fmt.Sprintf("%d bytes of output, all of it: process action:log job_id:%s", o.OutputBytes, o.OutputID))
	}
	var notices []string
	if o.Recreated != "" {
		notices = append(notices, "the sandbox is a new one: "+o.Recreated)
	}
	for _, s := range o.Survivors {
		notices = append(notices, fmt.Sprintf("process %d (%s) could not be ended", s.PID, s.Command))
	}
	notices = append(notices, o.Notices...)
	if o.Error != nil {
		notices = append(notices, errorText(o.Error))
	}
	return withNotices(o.Output, strings.Join(facts, "; "), notices)
}

// withNotices puts what is to be known behind a text, in brackets, so that a model can tell it from output.
func withNotices(text, facts string, notices []string) string {
	var b strings.Builder
	b.WriteString(text)
	line := func(s string) {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("[" + s + "]")
	}
	for _, n := range notices {
		line("notice: " + n)
	}
	if facts != "" {
		line(facts)
	}
	return b.String()
}

// errorText is a failure for a model: what failed, and the next step.
func errorText(e *resultjson.Error) string {
	text := "elsewhere failed (" + string(e.Kind) + "): " + e.Message
	if e.Hint != nil {
		text = strings.TrimRight(text, ".;") + "; " + *e.Hint
	}
	if e.Kind == driver.KindDenied {
		text += ". Do not try to reach the same in another way: tell the user what you wanted to do and why"
	}
	return text
}
