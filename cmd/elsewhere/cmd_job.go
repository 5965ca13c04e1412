package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// exitTimeout is the exit code where --timeout was over, as of run.
const exitTimeout = 124

func (a *app) cmdJob() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "job",
		Short: "Start and look after background jobs",
		Long: `A background job is a command that goes on when "elsewhere job start" has returned. It starts with all that a call has (the
session's variables, functions and directory); its output and exit code are kept in the sandbox, so that any later elsewhere finds
them. It belongs to its named session, or with --keep or without a session to the sandbox's task.

-b and --task name the sandbox in which it is, as for "elsewhere run".`,
		Example: `  elsewhere job start -s dev 'npm run dev'          # prints the job's id, such as j3fa2
  elsewhere job logs -f j3fa2
  elsewhere job send j3fa2 rs
  elsewhere job kill j3fa2`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.cmdJobStart(), a.cmdJobLs(), a.cmdJobLogs(), a.cmdJobSend(), a.cmdJobWait(), a.cmdJobKill())
	return cmd
}

// jobRow is a job as JSON. What is not known is null.
type jobRow struct {
	ID       string     `json:"id"`
	Backend  string     `json:"backend"`
	Task     string     `json:"task"`
	Session  *string    `json:"session"`
	Owner    string     `json:"owner"`
	Command  string     `json:"command"`
	State    string     `json:"state"`
	ExitCode *int       `json:"exit_code"`
	Signal   *string    `json:"signal"`
	Reason   *string    `json:"reason"`
	Started  *time.Time `json:"started"`
	Ended    *time.Time `json:"ended"`
	PID      *int       `json:"pid"`
	Left     int        `json:"left"`
	Input    bool       `json:"input"`
	Terminal bool       `json:"terminal"`
	LogMax   int64      `json:"log_max_bytes"`
	Lifetime int64      `json:"lifetime_s"`
}

func newJobRow(st elsewhere.JobStatus) jobRow {
	return jobRow{
		ID: st.ID, Backend: st.Backend, Task: st.Task, Session: known(st.Session, ""), Owner: string(st.Owner), Command: st.Command,
		State: string(st.State), ExitCode: known(st.ExitCode, -1), Signal: known(st.Signal, ""), Reason: known(st.Reason, ""),
		Started: known(st.Started, time.Time{}), Ended: known(st.Ended, time.Time{}), PID: known(st.PID, 0), Left: st.Left,
		Input: st.Input, Terminal: st.Terminal, LogMax: st.LogBytes, Lifetime: int64(st.Lifetime / time.Second),
	}
}

// known is v, or nil where it is the value that stands for none.
func known[T comparable](v, none T) *T {
	if v == none {
		return nil
	}
	return &v
}

// jobAnswer is one job as the whole of a command's JSON.
type jobAnswer struct {
	Schema    int                  `json:"schema"`
	Job       jobRow               `json:"job"`
	Survivors []elsewhere.Survivor `json:"survivors,omitempty"`
	Notices   []string             `json:"notices"`
}

func newJobAnswer(st elsewhere.JobStatus, notices []string) jobAnswer {
	if notices == nil {
		notices = []string{}
	}
	return jobAnswer{Schema: resultjson.Schema, Job: newJobRow(st), Notices: notices}
}

// jobFlags are the flags that all of the job commands have.
type jobFlags struct {
	target
	json bool
}

func (o *jobFlags) addTo(a *app, cmd *cobra.Command) {
	o.target.addTo(a, cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
}

// inSandbox opens the sandbox, lets do work in it, and closes it again. With looks the sandbox has to be there: the error is
// errNotThere, said for this operation.
func (a *app) inSandbox(cmd *cobra.Command, t *target, looks string, do func(context.Context, *elsewhere.Sandbox) error) error {
	if err := t.check(); err != nil {
		return err
	}
	cfg, err := a.load(t)
	if err != nil {
		return err
	}
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	if looks != "" {
		if err := a.there(ctx, looks, cfg, t.task); err != nil {
			return err
		}
	}
	sandbox, err := a.open(ctx, cfg, *t, false)
	if err != nil {
		return err
	}
	defer a.closing("sandbox", sandbox.Close)
	if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON {
		a.toldAnew(sandbox, cfg, false)
	}
	err = do(ctx, sandbox)
	if sig := in.signal(); sig != 0 && err != nil {
		return exitStatus(128 + int(sig))
	}
	return err
}

// withJob finds the job that a command names.
func (a *app) withJob(cmd *cobra.Command, t *target, id string, do func(context.Context, *elsewhere.Job) error) error {
	return a.inSandbox(cmd, t, operation(cmd), func(ctx context.Context, sandbox *elsewhere.Sandbox) error {
		job, err := sandbox.Job(ctx, id)
		if err != nil {
			return err
		}
		return do(ctx, job)
	})
}

// operation is the name of a command, for an error.
func operation(cmd *cobra.Command) string { return cmd.CommandPath()[len("elsewhere "):] }

// oneJob is an Args that wants a job's id and says what to do without one.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return ownError(operation(cmd), "give one ID; `elsewhere job ls` lists them", "%d ids were given", len(args))
	}
	return nil
}

func (a *app) cmdJobStart() *cobra.Command {
	var o runFlags
	var keep, tty bool
	var rows, cols uint16
	var lifetime, logMax string
	cmd := &cobra.Command{
		Use:   "start [flags] [--] COMMAND [ARG...]",
		Short: "Start a background job",
		Long: `Start a background job and print its id. COMMAND is read as by "elsewhere run": one argument is bash text, several are an
argument vector, - reads standard input and -f a file. Its standard input is a pipe ("elsewhere job send"), or with -t a terminal, on which
"elsewhere job send" types and whose output "elsewhere job logs" prints as it is.

With --session it starts with that session's state and ends with it ("elsewhere session rm"); --keep makes it the task's. Without a
session it is the task's. What it changes does not come back into the session.`,
		Example: `  elsewhere job start -s dev 'npm run dev'
  elsewhere job start --keep -s dev --lifetime 8h python train.py
  elsewhere job start -b gpu1 -C /data -e HF_TOKEN ./download.sh
  elsewhere job start -t python3`,
		RunE: func(cmd *cobra.Command, args []string) error {
			text, run, err := a.call(&o, args)
			if own, ok := errors.AsType[*elsewhere.Error](err); ok && own.Op == "run" {
				own.Op, own.Hint = "job start", strings.ReplaceAll(own.Hint, "elsewhere run", "elsewhere job start")
			}
			if err != nil {
				return err
			}
			if !tty && (o.given("rows") || o.given("cols")) {
				return ownError("job start", "give -t too", "--rows and --cols are a terminal's size, and this job has none")
			}
			opts := &elsewhere.JobOptions{Dir: run.Dir, Env: run.Env, Keep: keep, Terminal: tty, Rows: rows, Cols: cols}
			if o.given("lifetime") {
				if opts.Lifetime, err = parseLifetime(lifetime); err != nil {
					return err
				}
			}
			if o.given("log-max") {
				if opts.LogBytes, err = config.ParseBytes(logMax); err != nil || opts.LogBytes == 0 {
					return ownError("--log-max", "give bytes, or a number with a unit such as 64k or 8MiB", "%q is no size above zero", logMax)
				}
			}
			return a.startJob(cmd, &o, text, opts)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.addTo(a, cmd)
	f.StringVarP(&o.session, "session", "s", "", "start with the state of the session `NAME`, and end with it")
	f.StringVarP(&o.dir, "cwd", "C", "", "start in this `DIR` (default: the session's own)")
	f.StringVarP(&o.dir, "workdir", "w", "", "the same as --cwd (`DIR`)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set a variable for this job alone: `K=V`, or K to hand on your own")
	f.StringVarP(&o.file, "file", "f", "", "read the command's text from `FILE`")
	f.BoolVarP(&tty, "tty", "t", false, "give it a terminal")
	f.Uint16Var(&rows, "rows", 24, "with -t: `N` characters high")
	f.Uint16Var(&cols, "cols", 80, "with -t: `N` characters wide")
	f.BoolVar(&keep, "keep", false, "let it go on when its session is removed")
	f.StringVar(&lifetime, "lifetime", "", "end it after this `TIME`: 90, 8h, 7d, or never (default: terminal.job_lifetime)")
	f.StringVar(&logMax, "log-max", "", "keep this `SIZE` of its output, the youngest (default: terminal.job_log_max)")
	f.BoolVar(&o.json, "json", false, "print JSON")
	_ = cmd.MarkFlagDirname("cwd")
	_ = cmd.MarkFlagDirname("workdir")
	complete(cmd, "session", a.completeSessions)
	complete(cmd, "env", completeVariables)
	return cmd
}

// parseLifetime reads the value of --lifetime.
func parseLifetime(text string) (time.Duration, error) {
	if text == "never" || text == "off" {
		return -1, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil || d == 0 {
		return 0, ownError("--lifetime", "give seconds or a duration such as 90, 8h or 7d, or never", "%q is no time above zero", text)
	}
	return d, nil
}

func (a *app) startJob(cmd *cobra.Command, o *runFlags, text string, opts *elsewhere.JobOptions) error {
	return a.inSandbox(cmd, &o.target, "", func(ctx context.Context, sandbox *elsewhere.Sandbox) error {
		if !sandbox.KeepsJobs() {
			return ownError("job start", "set HOME or HERMES_HOME to a directory that can be written to", "nothing is kept here, so the job would end with this command")
		}
		session, err := sandbox.Session(ctx, o.session)
		if err != nil {
			return err
		}
		job, err := session.Start(ctx, text, opts)
		if err != nil {
			return err
		}
		if o.session != "" {
			// The session's first state may be of this call.
			if err := session.Flush(context.WithoutCancel(ctx)); err != nil {
				a.log.Warn("the session's state was not saved", "error", err)
			}
		}
		if !o.json {
			_, err := fmt.Fprintln(a.out, job.ID())
			return a.noted(err, job.Notices())
		}
		st, err := job.Status(ctx)
		if err != nil {
			return err
		}
		return a.printJSON(newJobAnswer(st, job.Notices()))
	})
}

func (a *app) cmdJobLs() *cobra.Command {
	var o jobFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List background jobs",
		Long:    `List the jobs of a sandbox: those that run, and the last 64 that have ended.`,
		Example: `  elsewhere job ls
  elsewhere job ls -b gpu1 --task train --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var jobs []elsewhere.JobStatus
			err := a.inSandbox(cmd, &o.target, "job ls", func(ctx context.Context, sandbox *elsewhere.Sandbox) (err error) {
				jobs, err = sandbox.Jobs(ctx)
				return err
			})
			if err != nil && !errors.Is(err, errNotThere) {
				return err
			}
			if o.json {
				rows := []jobRow{}
				for _, st := range jobs {
					rows = append(rows, newJobRow(st))
				}
				return a.printJSON(struct {
					Schema int      `json:"schema"`
					Jobs   []jobRow `json:"jobs"`
				}{resultjson.Schema, rows})
			}
			tab := newTable(a.out, "JOB", "STATE", "CODE", "SESSION", "STARTED", "COMMAND")
			for _, st := range jobs {
				tab.row(st.ID, stateText(st), codeText(st), st.Session, when(st.Started), short(st.Command))
			}
			var notes []string
			if err != nil {
				e := resultjson.NewError(err)
				notes = append(notes, e.Message+"; "+*e.Hint)
			}
			return a.noted(tab.print(), notes)
		},
	}
	o.addTo(a, cmd)
	return cmd
}

// stateText is a job's state for people.
func stateText(st elsewhere.JobStatus) string {
	text := string(st.State)
	if st.Reason == "lifetime" {
		text += " (lifetime)"
	}
	if st.Left > 0 {
		text += fmt.Sprintf(" (%d left)", st.Left)
	}
	return text
}

func codeText(st elsewhere.JobStatus) string {
	if st.ExitCode < 0 {
		return ""
	}
	return strconv.Itoa(st.ExitCode)
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

// short is the beginning of a command, for a table.
func short(command string) string {
	return cut(oneLine(command), 60)
}

func (a *app) cmdJobLogs() *cobra.Command {
	var o jobFlags
	var follow bool
	var after int64
	var most, wait string
	cmd := &cobra.Command{
		Use:     "logs ID",
		Aliases: []string{"log"},
		Short:   "Print a job's output",
		Long: `Print a job's output: standard output and standard error, byte for byte. The youngest 8 MiB are kept (terminal.job_log_max).
--after goes on where an earlier call ended: the offset of a byte, counted from the job's first, which --json gives as "next".`,
		Example: `  elsewhere job logs -f j3fa2
  elsewhere job logs --json --after 1200 --wait 30s j3fa2`,
		Args:              oneJob,
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var limit int64
			var poll time.Duration
			var err error
			if o.given("max") {
				if limit, err = config.ParseBytes(most); err != nil || limit == 0 {
					return ownError("--max", "give bytes, or a number with a unit such as 64k", "%q is no size above zero", most)
				}
			}
			if o.given("wait") {
				if poll, err = parseTimeout(wait); err != nil {
					return ownError("--wait", "give seconds or a duration such as 30s", "%q is no time above zero", wait)
				}
			}
			switch {
			case follow && (o.json || limit > 0 || poll > 0):
				return ownError("job logs", "leave out -f, or call again with --after", "-f does not go with --json, --max and --wait")
			case after < 0:
				return ownError("--after", "count from 0", "%d is no offset", after)
			}
			return a.withJob(cmd, &o.target, args[0], func(ctx context.Context, job *elsewhere.Job) error {
				if o.json {
					return a.printLog(ctx, job, after, limit, poll)
				}
				return a.copyLog(ctx, job, after, limit, poll, follow)
			})
		},
	}
	o.addTo(a, cmd)
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	f.Int64Var(&after, "after", 0, "from this `OFFSET` on")
	f.StringVar(&most, "max", "", "at most this `SIZE`: 64k, 1MiB (default with --json: 1MiB)")
	f.StringVar(&wait, "wait", "", "where there is nothing yet, wait for this `TIME`")
	return cmd
}

// printLog prints a part of the output as JSON.
func (a *app) printLog(ctx context.Context, job *elsewhere.Job, after, limit int64, wait time.Duration) error {
	out, err := job.Logs(ctx, after, limit, wait)
	if err != nil {
		return err
	}
	answer := struct {
		jobAnswer
		From      int64   `json:"from"`
		Next      int64   `json:"next"`
		Lost      int64   `json:"lost"`
		End       bool    `json:"end"`
		Output    string  `json:"output"`
		OutputB64 *string `json:"output_b64,omitempty"`
	}{newJobAnswer(out.Status, nil), out.From, out.Next, out.Lost, out.End, strings.ToValidUTF8(string(out.Data), "\uFFFD"), nil}
	if !utf8.Valid(out.Data) {
		answer.OutputB64 = new(base64.StdEncoding.EncodeToString(out.Data))
	}
	return a.printJSON(answer)
}

// copyLog passes the output on, as far as it is there or, with follow, until the job has ended.
func (a *app) copyLog(ctx context.Context, job *elsewhere.Job, after, limit int64, wait time.Duration, follow bool) error {
	out := &sink{w: a.out}
	var lost, sent int64
	for next := after; ; {
		most, poll := int64(0), wait
		if limit > 0 {
			most = min(limit-sent, 1<<20)
		}
		if follow {
			poll = time.Hour
		}
		part, err := job.Logs(ctx, next, most, poll)
		if err != nil {
			return err
		}
		lost, next, wait = lost+part.Lost, part.Next, 0
		if _, err := out.Write(part.Data); err != nil {
			return a.written(err)
		}
		sent += int64(len(part.Data))
		if part.End || !follow && len(part.Data) == 0 || limit > 0 && sent >= limit {
			break
		}
	}
	if lost > 0 {
		notice(a.err, fmt.Sprintf("%d bytes are not kept any more (terminal.job_log_max)", lost))
	}
	return nil
}

func (a *app) cmdJobSend() *cobra.Command {
	var o jobFlags
	var bare, closing bool
	cmd := &cobra.Command{
		Use:   "send ID [TEXT]",
		Short: "Write to a job's standard input, or type on its terminal",
		Long: `Write TEXT and a newline to a job's standard input; - sends standard input as it is. --close closes the job's input behind it,
so that the job finds the end of file there. On a job's terminal TEXT is typed with the Enter key behind it, and --close types Ctrl-D.`,
		Example: `  elsewhere job send j3fa2 yes
  elsewhere job send -n j3fa2 y
  elsewhere job send -n j3fa2 $'\x03'          # Ctrl-C on its terminal
  elsewhere job send --close j3fa2 - <data`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 || len(args) == 1 && !closing {
				return ownError("job send", "give an ID and one TEXT, or --close", "%d arguments were given", len(args))
			}
			return nil
		},
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withJob(cmd, &o.target, args[0], func(ctx context.Context, job *elsewhere.Job) error {
				if err := a.sendTo(ctx, job, args[1:], bare); err != nil {
					return err
				}
				if closing {
					if err := job.CloseInput(ctx); err != nil {
						return err
					}
				}
				if !o.json {
					return nil
				}
				st, err := job.Status(ctx)
				if err != nil {
					return err
				}
				return a.printJSON(newJobAnswer(st, nil))
			})
		},
	}
	o.addTo(a, cmd)
	f := cmd.Flags()
	f.BoolVarP(&bare, "no-newline", "n", false, "send TEXT alone, without a newline or Enter")
	f.BoolVar(&closing, "close", false, "close the job's input behind it")
	return cmd
}

// sendTo sends a text, or standard input piece by piece.
func (a *app) sendTo(ctx context.Context, job *elsewhere.Job, text []string, bare bool) error {
	switch {
	case len(text) == 0:
		return nil
	case text[0] != "-":
		if bare {
			return job.Send(ctx, []byte(text[0]))
		}
		return job.SendLine(ctx, text[0])
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a.in, buffer)
		if n > 0 {
			if err := job.Send(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return ownError("job send", "give the text as an argument", "read standard input: %w", unwrapPath(err))
		}
	}
}

func (a *app) cmdJobWait() *cobra.Command {
	var o jobFlags
	var timeout string
	cmd := &cobra.Command{
		Use:   "wait ID",
		Short: "Wait for a job's end",
		Long: `Wait until a job has ended, and end with its exit code: 124 where --timeout was over first (the job goes on), 125 where it is not
known how it ended.`,
		Example: `  elsewhere job wait j3fa2
  elsewhere job wait --timeout 10m --json j3fa2`,
		Args:              oneJob,
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var limit time.Duration
			if o.given("timeout") {
				var err error
				if limit, err = parseTimeout(timeout); err != nil {
					return err
				}
			}
			return a.withJob(cmd, &o.target, args[0], func(ctx context.Context, job *elsewhere.Job) error {
				return a.waitFor(ctx, job, limit, o.json)
			})
		},
	}
	o.addTo(a, cmd)
	cmd.Flags().StringVar(&timeout, "timeout", "", "wait for at most this `TIME`: 90, 90s, 2m (default: for ever)")
	return cmd
}

func (a *app) waitFor(ctx context.Context, job *elsewhere.Job, limit time.Duration, asJSON bool) error {
	wctx, cancel := ctx, context.CancelFunc(func() {})
	if limit > 0 {
		wctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	st, err := job.Wait(wctx)
	late := err != nil && ctx.Err() == nil && wctx.Err() != nil
	if late {
		st, err = job.Status(ctx)
	}
	if err != nil {
		return err
	}
	if asJSON {
		if err := a.printJSON(newJobAnswer(st, nil)); err != nil {
			return err
		}
	}
	switch {
	case st.State == elsewhere.JobRunning:
		if !asJSON {
			notice(a.err, "the job still runs")
		}
		return exitStatus(exitTimeout)
	case st.ExitCode < 0:
		if !asJSON {
			notice(a.err, "the job is lost: its sandbox was stopped or made again, and it is not known how it ended")
		}
		return exitStatus(exitOwn)
	case st.ExitCode > 0:
		return exitStatus(st.ExitCode)
	}
	return nil
}

func (a *app) cmdJobKill() *cobra.Command {
	var o jobFlags
	var signal string
	cmd := &cobra.Command{
		Use:   "kill ID",
		Short: "End a job and all it started",
		Long: `End a job and all that it started: TERM, 2 s (terminal.daemon_term_grace_seconds), KILL. For one that has ended, end what it left
running. With --signal send that signal to the job's process group instead, and nothing else.`,
		Example: `  elsewhere job kill j3fa2
  elsewhere job kill --signal HUP j3fa2`,
		Args:              oneJob,
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withJob(cmd, &o.target, args[0], func(ctx context.Context, job *elsewhere.Job) error {
				return a.killJob(ctx, job, signal, o.json)
			})
		},
	}
	o.addTo(a, cmd)
	cmd.Flags().StringVar(&signal, "signal", "", "send the signal `NAME` (INT, HUP, ...) instead")
	complete(cmd, "signal", cobra.FixedCompletions([]string{"INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL"}, nothingElse))
	return cmd
}

func (a *app) killJob(ctx context.Context, job *elsewhere.Job, signal string, asJSON bool) error {
	var left []elsewhere.Survivor
	var err error
	if signal != "" {
		err = job.Signal(ctx, strings.TrimPrefix(strings.ToUpper(signal), "SIG"))
	} else {
		left, err = job.Kill(ctx)
	}
	if err != nil {
		return err
	}
	if asJSON {
		st, err := job.Status(ctx)
		if err != nil {
			return err
		}
		answer := newJobAnswer(st, nil)
		answer.Survivors = left
		if err := a.printJSON(answer); err != nil {
			return err
		}
	}
	for _, s := range left {
		if !asJSON {
			notice(a.err, fmt.Sprintf("could not end process %d (%s)", s.PID, s.Command))
		}
	}
	if len(left) > 0 {
		return exitStatus(exitOwn)
	}
	return nil
}

// completeJobs offers the ids of a sandbox's jobs.
func (a *app) completeJobs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, nothingElse
	}
	t := target{flags: cmd}
	t.backend, _ = cmd.Flags().GetString("backend")
	t.task, _ = cmd.Flags().GetString("task")
	t.set, _ = cmd.Flags().GetStringArray("set")
	cfg, err := a.load(&t)
	if err != nil {
		return nil, nothingElse
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if a.there(ctx, "job", cfg, t.task) != nil {
		return nil, nothingElse
	}
	sandbox, err := a.open(ctx, cfg, t, false)
	if err != nil {
		return nil, nothingElse
	}
	defer a.closing("sandbox", sandbox.Close)
	jobs, _ := sandbox.Jobs(ctx)
	var ids []string
	for _, st := range jobs {
		ids = append(ids, st.ID+"\t"+stateText(st)+" "+short(st.Command))
	}
	return ids, nothingElse
}
