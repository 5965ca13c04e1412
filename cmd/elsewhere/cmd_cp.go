package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// exitPart is the exit code of cp and sync when something was left as it was.
const exitPart = 1

func (a *app) cmdCp() *cobra.Command {
	var o transferFlags
	cmd := &cobra.Command{
		Use:   "cp [flags] SRC DST",
		Short: "Copy files into a sandbox or out of it",
		Long: `Copy a file or a tree between this machine and a sandbox, with permissions, links as links and holes as holes.

One of the two is an address in a sandbox, [BACKEND[/TASK]]:PATH. A relative path starts at the sandbox's home. What begins
with ./, ../ or / is always on this machine, and so is a prefix of one letter, which is a drive.

As with docker cp, a destination that is a directory gets the source under its own name, a source that ends in /. stands
for what is in it, and what is there is overwritten. Nothing is ever half written. A copy into a sandbox that was cut goes
on from there when it is repeated. It makes the sandbox where there is none, and says so; a copy out of one that is not there
is an error.

Exit code: 0; 1 where something could not be copied and the rest was; 125 for failures.`,
		Example: `  elsewhere cp ./data ssh:data
  elsewhere cp ssh:out.tar .
  elsewhere cp docker/web:/etc/nginx/. ./nginx
  elsewhere cp --exclude node_modules . :project`,
		Args: takes("SRC", "DST"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.cp(cmd, &o, args) },
	}
	o.addTo(a, cmd)
	o.addTransfer(cmd)
	return cmd
}

func (o *transferFlags) addTransfer(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.exclude, "exclude", nil, "leave out what matches this `PATTERN`, as in a .gitignore file")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
}

// copiedJSON is what cp --json prints.
type copiedJSON struct {
	Schema  int                     `json:"schema"`
	Files   int                     `json:"files"`
	Bytes   int64                   `json:"bytes"`
	Resumed bool                    `json:"resumed"`
	Skipped []elsewhere.SkippedFile `json:"skipped"`
}

func (a *app) cp(cmd *cobra.Command, o *transferFlags, args []string) error {
	local, remote, toSandbox, err := o.addresses("cp", args)
	if err == nil && toSandbox {
		err = source("cp", local)
	}
	if err != nil {
		return err
	}
	var done *elsewhere.Transfer
	err = a.transfer(cmd, o, "cp", toSandbox, func(ctx context.Context, sb *elsewhere.Sandbox, line *transferLine) (err error) {
		opts := &elsewhere.TransferOptions{Exclude: o.exclude, Progress: line.show}
		if toSandbox {
			done, err = sb.Upload(ctx, local, remote, opts)
		} else {
			done, err = sb.Download(ctx, remote, local, opts)
		}
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		err = a.printJSON(copiedJSON{resultjson.Schema, done.Files, done.Bytes, done.Resumed, listed(done.Skipped)})
	}
	return a.partly(err, o.json, "not copied", done.Skipped)
}

// source refuses to copy what is not here, before a sandbox is made for it.
func source(op, local string) error {
	if _, err := os.Lstat(local); err != nil {
		return ownError(op, "check the path; one in a sandbox is written BACKEND/TASK:PATH", "%s: %w", local, unwrapPath(err))
	}
	return nil
}

// transfer opens the sandbox for a transfer that a signal ends, and shows how far it is on a terminal. Only a transfer to a sandbox
// makes one, and says so.
func (a *app) transfer(cmd *cobra.Command, o *transferFlags, op string, toSandbox bool, do func(context.Context, *elsewhere.Sandbox, *transferLine) error) error {
	cfg, err := a.load(&o.target)
	if err != nil {
		return err
	}
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	var sandbox *elsewhere.Sandbox
	missing := a.there(ctx, op, cfg, o.task)
	if err = missing; err == nil || toSandbox && errors.Is(err, errNotThere) {
		sandbox, err = a.open(ctx, cfg, o.target, false)
	}
	if err == nil {
		defer a.closing("sandbox", sandbox.Close)
		if !o.json {
			a.toldAnew(sandbox, cfg, missing != nil)
		}
		line := a.newTransferLine()
		err = do(ctx, sandbox, line)
		line.over()
	}
	if sig := in.signal(); sig != 0 {
		return exitStatus(128 + int(sig))
	}
	return err
}

// toldAnew says that a sandbox was made, or had to be made again, for what is no command in it.
func (a *app) toldAnew(sandbox *elsewhere.Sandbox, cfg *config.Config, made bool) {
	switch why := sandbox.Info().Recreated; {
	case why != "":
		notice(a.err, "the sandbox is a new one: "+why)
	case made && cfg.Home() != "":
		notice(a.err, fmt.Sprintf("the sandbox %s/%s was not there and was made", sandbox.Backend(), sandbox.Task()))
	}
}

// partly says what was left as it was; then the exit code is not 0.
func (a *app) partly(err error, asJSON bool, what string, skipped []elsewhere.SkippedFile) error {
	if err != nil || len(skipped) == 0 {
		return err
	}
	if !asJSON {
		for _, s := range skipped {
			notice(a.err, fmt.Sprintf("%s: %s: %s", what, shown(s.Path), s.Why))
		}
	}
	return exitStatus(exitPart)
}

// listed is a list that is never null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// transferLine says how far a transfer is.
type transferLine struct {
	tell func(string)
	over func() // nothing is shown any more until it is told of again
	bar  bool
	last time.Time
}

func (a *app) newTransferLine() *transferLine {
	tell, over := a.status.steps()
	return &transferLine{tell: tell, over: over, bar: a.status.redraws, last: time.Now()}
}

// show is not for what is over in a moment, nor for each piece.
func (l *transferLine) show(p elsewhere.TransferProgress) {
	if time.Since(l.last) < 100*time.Millisecond {
		return
	}
	l.last = time.Now()
	text := fmt.Sprintf("%s of %s, %d of %d files", sizeText(p.Bytes), sizeText(p.AllBytes), p.Files, p.AllFiles)
	if l.bar {
		const width = 24
		full := width
		if p.AllBytes > 0 {
			full = int(min(width, width*p.Bytes/p.AllBytes))
		}
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "] " + text
	}
	l.tell(text)
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	value, unit := float64(n), "B"
	for _, next := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, next
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}
