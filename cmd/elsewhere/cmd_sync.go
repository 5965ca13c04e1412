package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/internal/filesync"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// syncFlags are the flags of sync.
type syncFlags struct {
	transferFlags
	elsewhere.SyncOptions
	watch bool
}

func (a *app) cmdSync() *cobra.Command {
	var o syncFlags
	cmd := &cobra.Command{
		Use:   "sync [flags] SRC DST",
		Short: "Make a directory in a sandbox like one here, or the other way round",
		Long: `Make the directory DST like the directory SRC. One of the two is in a sandbox: [BACKEND[/TASK]]:PATH, as with cp.

Only what differs is sent, by content. A file of DST that was changed since the last sync of these two, or that differs at
the first sync, is a conflict: it is left as it is and listed, until --force lets SRC win. --delete removes from DST what is
gone from SRC, as far as an earlier sync wrote it and nobody has changed it since; anything else there is listed and stays,
unless --force.

Exit code: 0; 1 with conflicts, or where something could not be transferred; the rest was. 125 for failures.`,
		Example: `  elsewhere sync . ssh:project --exclude .git --gitignore
  elsewhere sync . ssh:project --watch
  elsewhere sync ssh:results ./results --dry-run`,
		Args: takes("SRC", "DST"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.sync(cmd, &o, args) },
	}
	o.addTo(a, cmd)
	o.addTransfer(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.Delete, "delete", false, "remove what is gone from SRC, as far as an earlier sync wrote it")
	f.BoolVar(&o.Force, "force", false, "let SRC win every conflict")
	f.BoolVarP(&o.DryRun, "dry-run", "n", false, "only say what would be done")
	f.BoolVar(&o.GitIgnore, "gitignore", false, "leave out what the .gitignore files of SRC name, and .git")
	f.BoolVar(&o.watch, "watch", false, "go on, and sync again after each change (SRC has to be here)")
	return cmd
}

// syncedJSON is what sync --json prints, once for each sync.
type syncedJSON struct {
	Schema    int                     `json:"schema"`
	DryRun    bool                    `json:"dry_run"`
	Sent      []string                `json:"sent"`
	Removed   []string                `json:"removed"`
	Same      int                     `json:"same"`
	Bytes     int64                   `json:"bytes"`
	Resumed   bool                    `json:"resumed"`
	Conflicts []elsewhere.SkippedFile `json:"conflicts"`
	Skipped   []elsewhere.SkippedFile `json:"skipped"`
}

func (a *app) sync(cmd *cobra.Command, o *syncFlags, args []string) error {
	local, remote, toSandbox, err := o.addresses("sync", args)
	switch {
	case err != nil:
		return err
	case !toSandbox && o.watch:
		return ownError("sync", "leave out --watch", "changes can be watched where the source is on this machine")
	case o.watch && o.DryRun:
		return ownError("sync", "leave out one of them", "--watch and --dry-run exclude each other")
	}
	if toSandbox {
		if err := source("sync", local); err != nil {
			return err
		}
	}
	o.Local, o.Remote, o.FromSandbox, o.Exclude = local, remote, !toSandbox, o.exclude
	var last *elsewhere.Synced
	err = a.transfer(cmd, &o.transferFlags, "sync", toSandbox, func(ctx context.Context, sb *elsewhere.Sandbox, line *transferLine) error {
		o.Progress = line.show
		once := func() error {
			done, err := sb.Sync(ctx, o.SyncOptions)
			line.over()
			if err != nil {
				return err
			}
			last = done
			return a.printSynced(o, done)
		}
		if !o.watch {
			return once()
		}
		if err := filesync.Watch(ctx, local, o.exclude, once, once); err != nil {
			return err
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	if len(last.Conflicts)+len(last.Skipped) > 0 {
		return exitStatus(exitPart)
	}
	return nil
}

func (a *app) printSynced(o *syncFlags, s *elsewhere.Synced) error {
	if o.json {
		return a.printJSON(syncedJSON{
			resultjson.Schema, o.DryRun, listed(s.Sent), listed(s.Removed), s.Same, s.Bytes, s.Resumed, listed(s.Conflicts), listed(s.Skipped),
		})
	}
	would := ""
	if o.DryRun {
		would = "would be "
		for _, name := range s.Sent {
			fmt.Fprintf(a.out, "send %s\n", shown(name))
		}
		for _, name := range s.Removed {
			fmt.Fprintf(a.out, "remove %s\n", shown(name))
		}
	}
	for _, c := range s.Conflicts {
		notice(a.err, fmt.Sprintf("conflict: %s: %s", shown(c.Path), c.Why))
	}
	for _, c := range s.Skipped {
		notice(a.err, fmt.Sprintf("not synchronised: %s: %s", shown(c.Path), c.Why))
	}
	if len(s.Conflicts) > 0 {
		notice(a.err, "--force lets the source win")
	}
	_, err := io.WriteString(a.out, fmt.Sprintf("%d %ssent, %d %sremoved, %d the same, %d conflicts\n",
		len(s.Sent), would, len(s.Removed), would, s.Same, len(s.Conflicts)))
	return a.written(err)
}
