package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// exitOwn is the exit code of elsewhere's own failures, as docker and env have it.
const exitOwn = 125

// exitStatus is returned by a command that has said all it had to say, to end with this code.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// app is what all commands share.
type app struct {
	in        io.Reader
	out, err  *os.File
	logLevel  string
	level     *slog.LevelVar
	log       *slog.Logger
	status    *statusLine
	telemetry *telemetry    // nil until a sandbox is opened
	signals   *interruption // nil until the command heeds signals
	backends  []driver.Backend
}

// run runs one command line with these backends and returns the exit code.
func run(args []string, backends []driver.Backend) int {
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, level: new(slog.LevelVar), backends: backends}
	a.status = newStatusLine(a.err)
	a.level.Set(slog.LevelWarn)
	a.log = slog.New(slog.NewTextHandler(a.status, &slog.HandlerOptions{Level: a.level}))
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(withParent(context.Background()))
	defer func() { a.telemetry.end() }()
	var status exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	var bad *badFlag
	if errors.As(err, &bad) {
		cmd = bad.cmd
	}
	a.report(cmd, err, wantsJSON(cmd, args, bad != nil))
	return exitOwn
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "elsewhere",
		Short: "Run bash commands somewhere else, behind one contract",
		Long: `elsewhere runs an agent's bash commands somewhere else: on this machine, in a container, on an SSH host, in a cloud
sandbox. The contract (what carries over from call to call, how a call ends, what a timeout ends) is the same everywhere.`,
		Example: `  elsewhere run 'uname -a; pwd'
  elsewhere run -s dev 'cd /tmp && export A=1'      # state for the next call of session dev
  elsewhere run --json --timeout 2m make test
  elsewhere doctor`,
		Version:           buildVersion(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Args:              cobra.ArbitraryArgs,
		RunE:              group,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if f := cmd.Flags().Lookup("json"); f != nil && f.Value.String() == "true" {
				a.status.quiet = true
			}
			if a.logLevel == "" {
				return nil
			}
			return a.setLogLevel()
		},
	}
	root.SetVersionTemplate("elsewhere {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &badFlag{cmd, err} })
	root.PersistentFlags().StringVar(&a.logLevel, "log-level", "", "log this `LEVEL` and worse on standard error: debug, info, warn, error or off (default: terminal.log_level)")
	complete(root, "log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error", "off"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.cmdRun(), a.cmdShell(), a.cmdJob(), a.cmdCp(), a.cmdSync(), a.cmdSession(), a.cmdSandbox(), a.cmdConfig(), a.cmdPolicy(), a.cmdBackends(), a.cmdChoose(), a.cmdDoctor(), a.cmdMCP(), a.cmdVersion(), cmdMan(root))
	root.SetHelpCommand(cmdHelp(root))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = cobra.ArbitraryArgs, group
		completion.Example = "  source <(elsewhere completion bash)"
	}
	return root
}

// group runs a command that only holds others: its help, or an error that suggests the nearest of them.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	hint := "see: " + cmd.CommandPath() + " --help"
	if cmd.SuggestionsMinimumDistance = 2; len(args[0]) <= 2 { // two other letters are another word
		cmd.SuggestionsMinimumDistance = 0
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean: " + cmd.CommandPath() + " " + near[0]
	} else if !cmd.HasParent() {
		hint += "; to run a command: elsewhere run COMMAND"
	}
	return ownError("command line", hint, "%s has no command %q", cmd.CommandPath(), args[0])
}

// cmdHelp is cobra's help command, but one that fails where there is nothing to help with.
func cmdHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "Help about a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if cmd, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				for _, sub := range cmd.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name()+"\t"+sub.Short)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return err
			case len(rest) > 0:
				return group(cmd, rest)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// setLogLevel takes the level from the command line; without one, load takes it from the settings.
func (a *app) setLogLevel() error {
	level, ok := logLevels[strings.ToLower(a.logLevel)]
	if !ok {
		return ownError("--log-level", "use debug, info, warn, error or off", "%q is no log level", a.logLevel)
	}
	a.level.Set(level)
	return nil
}

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "off": slog.LevelError + 100,
}

// printJSON prints v as one line; schema 1 of every command but run is documented in docs/cli.md.
func (a *app) printJSON(v any) error { return a.written(resultjson.Encode(a.out, v)) }

// written turns a failure to write standard output into one that says so; nobody has to be told that the reader of a pipe
// left.
func (a *app) written(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return exitStatus(128 + int(syscall.SIGPIPE))
	}
	return ownError("write standard output", "make room or choose another file", "%w", unwrapPath(err))
}
