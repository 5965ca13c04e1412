package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// runFlags are the flags of run.
type runFlags struct {
	target
	session, dir, file, timeout, maxOutput string
	env                                    []string
	stdin, tty, split, json                bool
}

func (a *app) cmdRun() *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] [--] COMMAND [ARG...]",
		Short: "Run one command",
		Long: `Run one command on a backend and end with its exit code.

One argument is bash text. Several are an argument vector, of which each word reaches the command as it is. - reads the
text from standard input, -f from a file; both may be of any size. Flags stand before the command: what follows it is
the command's own.

Without --session the command starts from a fresh login shell and leaves nothing behind. With it, exported variables,
functions, aliases, directory and umask go on in the next call of that session, from one process to the next.

Exit code: the command's own; 124 after --timeout, 130 after Ctrl-C, 126 where --cwd cannot be entered, 128+n where
signal n ended it; 125 for elsewhere's own failures.`,
		Example: `  elsewhere run 'cd /tmp && ls | wc -l'
  elsewhere run ls -la 'a file'
  elsewhere run -s dev 'cd ~/project && . venv/bin/activate'
  elsewhere run -s dev --timeout 10m make test
  elsewhere run -b gpu1 -e CUDA_VISIBLE_DEVICES=0 -e HF_TOKEN python train.py
  elsewhere run -i 'tar xf -' <src.tar
  elsewhere run --json --split - <script.sh`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, &o, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	o.addTo(a, cmd)
	f.StringVarP(&o.session, "session", "s", "", "keep shell state under this `NAME` (default: a throw-away session)")
	f.StringVarP(&o.dir, "cwd", "C", "", "run in this `DIR`, for this call alone (default: the session's own)")
	f.StringVarP(&o.dir, "workdir", "w", "", "the same as --cwd (`DIR`)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set a variable for this call alone: `K=V`, or K to hand on your own")
	f.StringVarP(&o.file, "file", "f", "", "read the command's text from `FILE`")
	f.StringVar(&o.timeout, "timeout", "", "end the command and all it started after this `TIME`: 90, 90s, 2m (default: never)")
	f.BoolVarP(&o.stdin, "interactive", "i", false, "pass standard input to the command")
	f.BoolVarP(&o.tty, "tty", "t", false, "run on a pseudo-terminal, joined to your own where there is one")
	f.BoolVar(&o.split, "split", false, "with --json: standard output and standard error apart")
	f.StringVar(&o.maxOutput, "max-output", "", "with --json: keep this `SIZE` of output: 64k, 8MiB (default 64MiB); the rest is in a file")
	f.BoolVar(&o.json, "json", false, "print one JSON object instead of the output")
	_ = cmd.MarkFlagDirname("cwd")
	_ = cmd.MarkFlagDirname("workdir")
	complete(cmd, "session", a.completeSessions)
	complete(cmd, "env", completeVariables)
	return cmd
}

// run runs one command. It reports everything itself, since with --json a failure may come with half a result.
func (a *app) run(cmd *cobra.Command, o *runFlags, args []string) error {
	text, opts, err := a.call(o, args)
	if err != nil {
		return err
	}
	if o.tty {
		return a.onTerminal(cmd, o, text, opts)
	}
	cfg, err := a.load(&o.target)
	if err != nil {
		return err
	}
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	stdout, stderr := &sink{w: a.out}, &sink{w: a.err}
	if !o.json {
		opts.Stdout, opts.Stderr = stdout, stderr
		// Where both go to one place anyway, the true order is worth more than the two ways there.
		opts.Split = !sameFile(a.out, a.err)
	}
	if o.stdin {
		opts.Stdin = releasable(a.in)
	}
	res, err := a.oneCall(ctx, cfg, o, text, opts)
	if o.json {
		where := resultjson.Target{Backend: cfg.Name(), Task: o.task, Session: o.session, Split: o.split}
		_ = resultjson.New(res, err, where).Encode(stdout)
	}
	write := errors.Join(stdout.err, stderr.err)
	if !o.json && write == nil {
		a.comment(o, opts.Timeout, res, err, in.signal())
	}
	return a.exitCode(res, err, in.signal(), write)
}

// call turns the command line of run into a call.
func (a *app) call(o *runFlags, args []string) (text string, opts *elsewhere.RunOptions, err error) {
	if err := o.check(); err != nil {
		return "", nil, err
	}
	if o.given("session") {
		if err := checkName("--session", o.session); err != nil {
			return "", nil, err
		}
	}
	switch {
	case o.tty && (o.json || o.split):
		return "", nil, ownError("run", "leave out one of them", "a terminal (-t) shows all in one stream, so that --json and --split do not go with it")
	case o.given("cwd") && o.dir == "", o.given("workdir") && o.dir == "":
		return "", nil, ownError("--cwd", "name a directory, or leave it out for the session's own", "it is empty")
	case !o.json && o.given("max-output"):
		return "", nil, ownError("--max-output", "add --json", "without --json all output is passed on")
	}
	opts = &elsewhere.RunOptions{Dir: o.dir, Split: o.split}
	if o.given("timeout") {
		if opts.Timeout, err = parseTimeout(o.timeout); err != nil {
			return "", nil, err
		}
	}
	if o.given("max-output") {
		if opts.MaxOutput, err = parseMaxOutput(o.maxOutput); err != nil {
			return "", nil, err
		}
	}
	if opts.Env, err = parseEnv(o.env, os.LookupEnv); err != nil {
		return "", nil, err
	}
	text, err = a.commandText(o, args)
	return text, opts, err
}

// commandText is the bash text that the arguments stand for.
func (a *app) commandText(o *runFlags, args []string) (string, error) {
	const give = "give one: elsewhere run 'uname -a; pwd'"
	var text string
	switch {
	case o.given("file") && len(args) > 0:
		return "", ownError("run", "leave out one of them", "there is a file with the command (-f) and a command too")
	case len(args) == 0 && !o.given("file"):
		return "", ownError("run", give, "there is no command")
	case len(args) > 1 && args[0] == "-":
		return "", ownError("run", "put them into the text", "arguments after - are not passed to the text read from standard input")
	case len(args) > 1:
		words := make([]string, len(args))
		for i, arg := range args {
			word, err := syntax.Quote(arg, syntax.LangBash)
			if err != nil {
				return "", ownError("run", "use a file or standard input for binary data", "argument %d: %w", i+1, err)
			}
			words[i] = word
		}
		return strings.Join(words, " "), nil
	case len(args) == 1 && args[0] != "-":
		text = args[0]
	case o.file == "-" || !o.given("file"):
		if o.stdin {
			return "", ownError("run", "use -f FILE for the command", "standard input holds the command, so -i cannot pass it on")
		}
		b, err := io.ReadAll(a.in)
		if err != nil {
			return "", ownError("run", "use -f FILE", "read the command from standard input: %w", unwrapPath(err))
		}
		text = string(b)
	default:
		b, err := os.ReadFile(o.file)
		if err != nil {
			return "", ownError("run", "check the name after -f", "read the command from %s: %w", o.file, unwrapPath(err))
		}
		text = string(b)
	}
	switch i := strings.IndexByte(text, 0); {
	case i >= 0:
		return "", ownError("run", "use -i and standard input for binary data", "the command has a NUL byte at offset %d, which bash cannot take", i)
	case strings.TrimSpace(text) == "":
		return "", ownError("run", give, "the command is empty")
	}
	return text, nil
}

// oneCall opens, runs, and gives everything back. A result and an error may come together.
func (a *app) oneCall(ctx context.Context, cfg *config.Config, o *runFlags, text string, opts *elsewhere.RunOptions) (*elsewhere.Result, error) {
	sandbox, err := a.open(ctx, cfg, o.target, false)
	if err != nil {
		return nil, err
	}
	// The end of what the command left in the background is not waited for: the watchdog sees to it when we are gone.
	defer a.closing("sandbox", func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return sandbox.Close(ctx)
	})
	session, err := sandbox.Session(ctx, o.session)
	if err != nil {
		return nil, err
	}
	res, err := session.Run(ctx, text, opts)
	if input, ok := opts.Stdin.(io.Closer); ok {
		_ = input.Close()
	}
	ferr := session.Flush(context.WithoutCancel(ctx))
	if res != nil && o.session != "" {
		// The next process reads this state, so it has to be there before we say that it is.
		why := ""
		if ferr != nil {
			res.StateSaved, why = false, ": "+ferr.Error()
		}
		if !res.StateSaved && res.Cause != elsewhere.Directory && res.Cause != elsewhere.Denied && res.Cause != elsewhere.Lost {
			res.Notices = append(res.Notices, fmt.Sprintf("session %s is as it was before this command%s", o.session, why))
		}
	}
	return res, err
}

// closing closes what a command opened. What is lost by a failure is told to the log: the command's result stands.
func (a *app) closing(what string, do func(context.Context) error) {
	defer a.signals.closing()()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := do(ctx); err != nil {
		a.log.Warn("close "+what, "error", err)
	}
}

// comment says on standard error, in text mode, what the output does not say.
func (a *app) comment(o *runFlags, limit time.Duration, res *elsewhere.Result, err error, sig syscall.Signal) {
	if res != nil {
		if res.Recreated != "" {
			notice(a.err, "the sandbox is a new one: "+res.Recreated)
		}
		for _, text := range res.Notices {
			notice(a.err, text)
		}
		switch res.Cause {
		case elsewhere.TimedOut:
			notice(a.err, fmt.Sprintf("timed out after %s (--timeout)", limit))
		case elsewhere.Signaled:
			notice(a.err, "the command was ended by signal "+res.Signal)
		}
		if why := endMeaning(res); why != "" {
			notice(a.err, why)
		}
		for _, s := range res.Survivors {
			notice(a.err, fmt.Sprintf("could not end process %d (%s)", s.PID, s.Command))
		}
	}
	if err != nil && sig == 0 {
		complain(a.err, err)
	}
}

// endMeaning is what an end means that is not the command's own doing, to a driver that knows (driver.ExitExplainer): it was killed, or
// its bash could start no process.
func endMeaning(res *elsewhere.Result) string {
	if res.ExitCode != driver.CodeKilled && res.ExitCode != driver.CodeNoProcess || res.ExitMeaning == "" {
		return ""
	}
	return fmt.Sprintf("exit code %d: %s", res.ExitCode, res.ExitMeaning)
}

// exitCode decides between the command's code and elsewhere's own.
func (a *app) exitCode(res *elsewhere.Result, err error, sig syscall.Signal, write error) error {
	switch {
	case sig != 0 && sig != syscall.SIGINT:
		return exitStatus(128 + int(sig))
	case write != nil:
		return a.written(write)
	case err != nil && sig != 0:
		return exitStatus(128 + int(sig))
	case err != nil || res.ExitCode < 0:
		return exitStatus(exitOwn)
	}
	return exitStatus(res.ExitCode)
}

// sink is one of our own streams. It keeps the first failure to write, after which the call is ended.
type sink struct {
	w   io.Writer
	mu  sync.Mutex
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.err == nil {
			s.err = err
		}
	}
	return n, err
}

// releasable is r until it is closed: a read of a terminal cannot be broken off, and nothing should wait for one when the
// command has ended.
//
// Nothing is read before somebody reads it: until then what is typed may be the answer to a question.
func releasable(r io.Reader) io.ReadCloser {
	to, from := io.Pipe()
	return &lazy{PipeReader: to, start: sync.OnceFunc(func() {
		go func() {
			_, err := io.Copy(from, r)
			_ = from.CloseWithError(err)
		}()
	})}
}

// lazy is a pipe that begins to be filled when it is first read.
type lazy struct {
	*io.PipeReader
	start func()
}

func (l *lazy) Read(p []byte) (int, error) {
	l.start()
	return l.PipeReader.Read(p)
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
