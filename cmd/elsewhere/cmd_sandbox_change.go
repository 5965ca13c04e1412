package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// changeWait bounds how long an engine may take to stop or remove sandboxes.
const changeWait = 2 * time.Minute

// changed is a sandbox that was stopped or removed, as JSON.
type changed struct {
	Backend string  `json:"backend"`
	Task    string  `json:"task"`
	TaskB64 *string `json:"task_b64"`
	Address string  `json:"address"`
	// ThrownAway is what is gone, and Data the directories on this machine that stay; both for people.
	ThrownAway []string `json:"thrown_away"`
	Data       []string `json:"data"`
}

func newChanged(b keptBox, thrownAway, data []string) changed {
	task, b64 := plainText(b.Task)
	return changed{b.all.Backend(), task, b64, b.address(), append([]string{}, thrownAway...), append([]string{}, data...)}
}

// changes is what stop and rm print as JSON: one of the two lists.
type changes struct {
	Schema  int                 `json:"schema"`
	Stopped []changed           `json:"stopped,omitzero"`
	Removed []changed           `json:"removed,omitzero"`
	Errors  []*resultjson.Error `json:"errors"`
}

// changeEach does something to the sandbox of each address and reports it. One that fails does not keep the others.
func (a *app) changeEach(ctx context.Context, l *lookup, addresses []string, stop, asJSON bool, do func(keptBox) (changed, error)) error {
	defer l.close()
	done := []changed{}
	var errs []error
	for _, address := range addresses {
		if ctx.Err() != nil {
			break
		}
		b, err := l.find(ctx, address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c, err := do(b)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, c)
		if !asJSON {
			if err := a.printChanged(b, c); err != nil {
				return err
			}
		}
	}
	if asJSON {
		out := changes{Schema: resultjson.Schema, Errors: jsonErrors(errs)}
		if stop {
			out.Stopped = done
		} else {
			out.Removed = done
		}
		if err := a.printJSON(out); err != nil {
			return err
		}
	}
	return a.failedEach(errs, asJSON)
}

// failedEach ends a command of which parts failed.
func (a *app) failedEach(errs []error, asJSON bool) error {
	if len(errs) == 0 {
		return nil
	}
	for _, err := range errs {
		if !asJSON {
			complain(a.err, err)
		}
	}
	return exitStatus(exitOwn)
}

func jsonErrors(errs []error) []*resultjson.Error {
	list := []*resultjson.Error{}
	for _, err := range errs {
		list = append(list, resultjson.NewError(err))
	}
	return list
}

// printChanged prints the address, and below it what went and what stays.
func (a *app) printChanged(b keptBox, c changed) error {
	var text strings.Builder
	fmt.Fprintln(&text, b.address())
	for _, gone := range c.ThrownAway {
		fmt.Fprintf(&text, "  removed  %s\n", oneLine(gone))
	}
	for _, dir := range c.Data {
		fmt.Fprintf(&text, "  kept     %s\n", oneLine(dir))
	}
	if _, err := a.out.WriteString(text.String()); err != nil {
		return a.written(err)
	}
	if len(c.Data) > 0 {
		notice(a.err, fmt.Sprintf("the files of %[1]s are kept for the next command of its task; `elsewhere sandbox rm --data %[1]s` removes them", b.address()))
	}
	return nil
}

func (a *app) cmdSandboxStop() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "stop ADDRESS...",
		Short: "End all that runs in kept sandboxes",
		Long: `End all that runs in kept sandboxes, also for other processes that use them. The files stay, and the next command of the task
starts the sandbox again.`,
		Example: `  elsewhere sandbox stop build
  elsewhere sandbox stop -b docker build test`,
		Args:              addresses("stop", false),
		ValidArgsFunction: a.completeAddresses(&t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}
			return a.interruptibly(cmd, func(ctx context.Context) error {
				return a.changeEach(ctx, a.lookup("sandbox stop", &t), args, true, asJSON, func(b keptBox) (changed, error) {
					_, err := within(ctx, changeWait, func(ctx context.Context) (struct{}, error) { return struct{}{}, b.all.Stop(ctx, b.Task) })
					return newChanged(b, nil, nil), err
				})
			})
		},
	}
	t.addNarrow(a, cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) cmdSandboxRm() *cobra.Command {
	var t target
	var asJSON, data, force bool
	cmd := &cobra.Command{
		Use:     "rm ADDRESS...",
		Aliases: []string{"remove"},
		Short:   "Remove kept sandboxes",
		Long: `Remove kept sandboxes with all that runs in them and the named sessions in them. Their directories on this machine stay, and it
says where they are; with --data they go too, also later, when the sandbox itself is gone ("data" in "elsewhere sandbox ls").
The next command of the task makes a new sandbox, on the same directories where they stayed. In a cloud the files are the service's: on
daytona and vercel they go with the sandbox, on modal they are stored, and --data removes what is stored.

One that a living process uses is not removed without --force.`,
		Example: `  elsewhere sandbox rm build
  elsewhere sandbox rm --data docker/build docker/test`,
		Args:              addresses("rm", false),
		ValidArgsFunction: a.completeAddresses(&t, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}
			return a.interruptibly(cmd, func(ctx context.Context) error {
				l := a.lookup("sandbox rm", &t)
				return a.changeEach(ctx, l, args, false, asJSON, func(b keptBox) (changed, error) {
					return l.remove(ctx, b, data, force)
				})
			})
		},
	}
	t.addNarrow(a, cmd)
	cmd.Flags().BoolVar(&data, "data", false, "remove its directories on this machine too, and what modal has stored")
	cmd.Flags().BoolVar(&force, "force", false, "remove it although a living process uses it")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// remove removes a sandbox and what goes with it.
func (l *lookup) remove(ctx context.Context, b keptBox, data, force bool) (changed, error) {
	if err := l.free(b, force); err != nil {
		return changed{}, err
	}
	if b.State == driver.StateData && !data {
		return changed{}, ownError(l.op, "add --data to remove them", "of the sandbox %s only its files are left (%s)", b.address(), strings.Join(b.Data, ", "))
	}
	sessions, err := l.sessionsOf(b)
	if err != nil {
		return changed{}, err
	}
	removed, err := within(ctx, changeWait, func(ctx context.Context) ([]string, error) { return b.all.Remove(ctx, b.Task, data) })
	if err != nil {
		return changed{}, err
	}
	var kept []string
	if !data {
		kept = append(slices.DeleteFunc(slices.Clone(b.Data), gone), l.stored(ctx, b, len(removed) == 0)...)
	}
	for _, s := range sessions { // those that were made by another name of the backend
		if s.Backend != b.all.Backend() && elsewhere.ForgetSession(l.home(), s.Backend, s.Task, s.Name) == nil {
			removed = append(removed, "session "+s.Name)
		}
	}
	return newChanged(b, removed, kept), nil
}

// stored names the files of a removed sandbox that its service has stored: the task is still listed then, by another id unless
// nothing else was there.
func (l *lookup) stored(ctx context.Context, b keptBox, alone bool) []string {
	if !b.FilesInside {
		return nil
	}
	infos, err := within(ctx, reachWait, b.all.List)
	if err != nil {
		return nil // it is removed: what the service has is no part of that
	}
	var files []string
	for _, info := range infos {
		if info.Task == b.Task && info.State == driver.StateStopped && (alone || info.ID != b.ID) {
			files = append(files, "the stored files "+info.ID)
		}
	}
	return files
}

// gone tells whether a directory of this machine is not there any more; what is no such path is.
func gone(dir string) bool {
	_, err := os.Stat(dir)
	return filepath.IsAbs(dir) && errors.Is(err, fs.ErrNotExist)
}

// free refuses a sandbox that a living process uses.
func (l *lookup) free(b keptBox, force bool) error {
	if b.InUse && !force {
		return ownError(l.op, "let it end, or add --force", "a process that lives uses the sandbox %s", b.address())
	}
	return nil
}

// resetFlags are the flags of reset.
type resetFlags struct {
	target
	yes, force, json bool
}

func (a *app) cmdSandboxReset() *cobra.Command {
	var o resetFlags
	cmd := &cobra.Command{
		Use:   "reset ADDRESS",
		Short: "Throw a kept sandbox away and make a clean one",
		Long: `Throw a kept sandbox away, with all that runs in it, its directories on this machine and the named sessions in it, and make a
clean one with the present settings. It says first what goes, and asks; --yes answers.

This is also the way out where the sandbox was made with other settings than those of now. One that a living process uses
is not reset without --force.`,
		Example: `  elsewhere sandbox reset build
  elsewhere sandbox reset --yes docker/build`,
		Args:              addresses("reset", true),
		ValidArgsFunction: a.completeAddresses(&o.target, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.interruptibly(cmd, func(ctx context.Context) error { return a.resetSandbox(ctx, &o, args[0]) })
		},
	}
	o.addNarrow(a, cmd)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.force, "force", false, "reset it although a living process uses it")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON; needs --yes")
	return cmd
}

func (a *app) resetSandbox(ctx context.Context, o *resetFlags, address string) error {
	l := a.lookup("sandbox reset", &o.target)
	defer l.close()
	b, err := l.find(ctx, address)
	if err != nil {
		return err
	}
	if err := l.free(b, o.force); err != nil {
		return err
	}
	// What would keep a new one from being made is said before the old one is gone.
	cfg, err := a.settingsOf(b)
	if err != nil {
		return err
	}
	sessions, err := l.sessionsOf(b)
	if err != nil {
		return err
	}
	if err := a.confirm(ctx, l.op, o.yes, o.json, func() { a.announce(b, sessions) }); err != nil {
		return err
	}
	// The answer may have taken a while.
	if b.SandboxInfo, err = b.all.Find(ctx, b.Task); err != nil {
		return err
	}
	c, err := l.remove(ctx, b, true, o.force)
	if err != nil {
		return err
	}
	sandbox, err := a.open(ctx, cfg, target{task: b.Task}, false)
	if err != nil {
		return &elsewhere.Error{Kind: resultjson.NewError(err).Kind, Op: l.op, Backend: b.all.Backend(), Target: b.Task,
			Hint: "mend that; the next `elsewhere run` of this task makes a new one", Err: fmt.Errorf("the old one is gone, and a new one could not be made: %w", err)}
	}
	where := sandbox.Where()
	if err := sandbox.Close(ctx); err != nil {
		return err
	}
	_, gone := b.all.Find(ctx, b.Task)
	if o.json {
		return a.printJSON(struct {
			Schema int `json:"schema"`
			changed
			Where elsewhere.Where `json:"where"`
			Kept  bool            `json:"kept"`
		}{resultjson.Schema, c, where, gone == nil})
	}
	if err := a.printChanged(b, c); err != nil {
		return err
	}
	text := fmt.Sprintf("  made     a clean sandbox: %s on host %s as user %s", oneLine(where.SandboxID), oneLine(where.Host), oneLine(where.User))
	if gone != nil {
		text += "; its settings do not keep it, so that the next command makes one of its own"
	}
	_, err = fmt.Fprintln(a.out, text)
	return a.written(err)
}

// settingsOf are the settings as the backend of a sandbox has them.
func (a *app) settingsOf(b keptBox) (*config.Config, error) {
	cfg, err := config.Load(config.Options{Backends: a.backends, Flags: map[string]string{"backend": b.all.Backend()}})
	if err != nil {
		return nil, err
	}
	_, _, err = cfg.Named("")
	return cfg, err
}

// announce says what a reset throws away.
func (a *app) announce(b keptBox, sessions []elsewhere.SessionInfo) {
	var text strings.Builder
	fmt.Fprintf(&text, "Resetting %s throws away:\n", b.address())
	if b.State != driver.StateData { // else it is gone already
		fmt.Fprintf(&text, "  the sandbox %s and all that runs in it (%s, made %s ago from %s)\n", oneLine(b.Name), b.State, age(b.Created), oneLine(b.Image))
	}
	if b.FilesInside {
		fmt.Fprintln(&text, "  its files, which are nowhere else")
	}
	for _, dir := range b.Data {
		fmt.Fprintf(&text, "  the directory %s\n", oneLine(dir))
	}
	for _, s := range sessions {
		fmt.Fprintf(&text, "  the session %s\n", shownTask(s.Name))
	}
	_, _ = a.status.Write([]byte(text.String()))
}

// pruneFlags are the flags of prune.
type pruneFlags struct {
	target
	yes, dry, json bool
}

func (a *app) cmdSandboxPrune() *cobra.Command {
	var o pruneFlags
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the kept sandboxes that nobody uses",
		Long: `Remove the kept sandboxes that no living process uses and that are stopped, and those that were made not to persist and
whose owners are dead. Their directories on this machine stay; so does a sandbox that persists in a cloud, which has its files
itself. It says first which go, and asks; --yes answers.`,
		Example: `  elsewhere sandbox prune --dry-run
  elsewhere sandbox prune --yes -b docker`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.interruptibly(cmd, func(ctx context.Context) error { return a.prune(ctx, &o) })
		},
	}
	o.addNarrow(a, cmd)
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "only list what would go")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON; needs --yes or --dry-run")
	return cmd
}

// prunable tells whether prune removes a sandbox: nobody uses it, no files go with it that persist, and it is stopped or was not made to.
func prunable(b keptBox) bool {
	runs := b.State == driver.StateRunning || b.State == driver.StatePaused
	return b.State != driver.StateData && !b.InUse && !b.FilesInside && (!b.Persistent || !runs)
}

func (a *app) prune(ctx context.Context, o *pruneFlags) error {
	k, err := a.reach(ctx, &o.target, reachWait)
	if err != nil {
		return err
	}
	defer k.close(a)
	would := slices.DeleteFunc(slices.Clone(k.boxes), func(b keptBox) bool { return !prunable(b) })
	var removed []keptBox
	var errs []error
	if len(would) > 0 && !o.dry {
		if err := a.confirm(ctx, "sandbox prune", o.yes, o.json, func() { a.announcePrune(would) }); err != nil {
			return err
		}
		removed, errs = k.prune(ctx, would)
	}
	if o.json {
		if err := a.printJSON(struct {
			Schema      int                 `json:"schema"`
			DryRun      bool                `json:"dry_run"`
			WouldRemove []sandboxRow        `json:"would_remove"`
			Removed     []sandboxRow        `json:"removed"`
			Errors      []*resultjson.Error `json:"errors"`
			Unreachable []unreached         `json:"unreachable"`
		}{resultjson.Schema, o.dry, rows(would), rows(removed), jsonErrors(errs), append([]unreached{}, k.unreached...)}); err != nil {
			return err
		}
		return a.failedEach(errs, true)
	}
	switch {
	case len(would) == 0:
		_, err = fmt.Fprintln(a.out, "there is nothing to remove"+k.where())
	case o.dry:
		err = a.sandboxTable(would)
	}
	for _, b := range removed {
		if err = a.printChanged(b, newChanged(b, nil, slices.DeleteFunc(slices.Clone(b.Data), gone))); err != nil {
			return err
		}
	}
	if err := a.noted(err, k.notes()); err != nil {
		return err
	}
	return a.failedEach(errs, false)
}

func (a *app) announcePrune(would []keptBox) {
	var text strings.Builder
	fmt.Fprintln(&text, "These sandboxes are removed (their directories on this machine stay):")
	for _, b := range would {
		fmt.Fprintf(&text, "  %s (%s, made %s ago)\n", b.address(), b.State, age(b.Created))
	}
	_, _ = a.status.Write([]byte(text.String()))
}

// prune removes what is still prunable on the backends of those that were listed, and gives those that went.
func (k *keptBoxes) prune(ctx context.Context, would []keptBox) (removed []keptBox, errs []error) {
	for _, all := range k.asked {
		on := slices.DeleteFunc(slices.Clone(would), func(b keptBox) bool { return b.all != all })
		if len(on) == 0 {
			continue
		}
		tasks, err := within(ctx, changeWait, all.Prune)
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			errs = append(errs, joined.Unwrap()...)
		} else if err != nil {
			errs = append(errs, err)
		}
		for _, b := range k.boxes {
			if b.all == all && slices.Contains(tasks, b.Task) {
				removed = append(removed, b)
			}
		}
	}
	return removed, slices.DeleteFunc(errs, func(err error) bool { return err == nil || errors.Is(err, context.Canceled) })
}
