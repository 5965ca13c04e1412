package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

func (a *app) cmdSandbox() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "List, inspect, stop and remove kept sandboxes",
		Long: `A sandbox is the place in which commands of one task run: a container, an instance, a cloud sandbox. It is made by the first
"elsewhere run --task TASK" and, as its settings say, kept for the next one. Backends that have no sandbox of their own
(local, ssh) keep none.

ADDRESS is [BACKEND/]TASK: "build", "docker/build", or "box/build" for an entry "box" of terminal.backends. Without a
backend the task is looked for on all that keep sandboxes and can be reached. Only your own sandboxes are seen: those
that this HERMES_HOME made.`,
		Example: `  elsewhere sandbox ls
  elsewhere sandbox inspect build
  elsewhere sandbox reset docker/build     # throw it away and make a clean one`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.cmdSandboxLs(), a.cmdSandboxInspect(), a.cmdSandboxStop(), a.cmdSandboxReset(), a.cmdSandboxRm(), a.cmdSandboxPrune())
	return cmd
}

// sandboxRow is a kept sandbox as JSON.
type sandboxRow struct {
	Backend    string    `json:"backend"`
	Also       []string  `json:"also"` // other names of the backend by which it can be reached
	Task       string    `json:"task"`
	TaskB64    *string   `json:"task_b64"` // only where the task is not UTF-8
	Address    string    `json:"address"`
	SandboxID  string    `json:"sandbox_id"`
	Name       string    `json:"name"`
	State      string    `json:"state"`
	Image      string    `json:"image"`
	Created    time.Time `json:"created"`
	Persistent bool      `json:"persistent"`
	InUse      bool      `json:"in_use"`
	Data       []string  `json:"data"`
	Policy     *guarding `json:"policy"` // null where it is not known
}

// guarding is whether the policy looks at commands in a sandbox, and why.
type guarding struct {
	Checked bool   `json:"checked"`
	Why     string `json:"why"`
}

func newGuarding(b keptBox) *guarding {
	guarded, why, known := b.all.Guarded(b.SandboxInfo)
	if !known {
		return nil
	}
	return &guarding{guarded, why}
}

func (g *guarding) String() string {
	switch {
	case g == nil:
		return "not known: it does not run, or an earlier elsewhere made it"
	case g.Checked:
		return "dangerous commands and paths are asked about or blocked: " + g.Why
	}
	return "commands and paths are not looked at before they are used: " + g.Why
}

func newSandboxRow(b keptBox) sandboxRow {
	task, b64 := plainText(b.Task)
	return sandboxRow{
		Backend: b.all.Backend(), Also: append([]string{}, b.also...), Task: task, TaskB64: b64, Address: b.address(), SandboxID: b.ID,
		Name: b.Name, State: b.State, Image: b.Image, Created: b.Created, Persistent: b.Persistent, InUse: b.InUse,
		Data: append([]string{}, b.Data...), Policy: newGuarding(b),
	}
}

// plainText gives text as UTF-8 and, where it was not, its bytes in base64 too.
func plainText(text string) (valid string, b64 *string) {
	if utf8.ValidString(text) {
		return text, nil
	}
	enc := base64.StdEncoding.EncodeToString([]byte(text))
	return string([]rune(text)), &enc
}

// rows are sandboxes as JSON; none are an empty list.
func rows(boxes []keptBox) []sandboxRow {
	list := []sandboxRow{}
	for _, b := range boxes {
		list = append(list, newSandboxRow(b))
	}
	return list
}

func (a *app) cmdSandboxLs() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List kept sandboxes",
		Long: `List the kept sandboxes of every backend that can be reached, or of that of -b. IN-USE says that a living process has it
open; PERSISTENT that it was made to outlive the process that made it. STATE is running, paused, stopped, dead (it cannot be
used any more), or data: the sandbox is gone and its files on this machine are kept for the next command of the task.`,
		Example: `  elsewhere sandbox ls
  elsewhere sandbox ls -b docker
  elsewhere sandbox ls --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.interruptibly(cmd, func(ctx context.Context) error { return a.listSandboxes(ctx, &t, asJSON) })
		},
	}
	t.addNarrow(a, cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) listSandboxes(ctx context.Context, t *target, asJSON bool) error {
	if err := t.check(); err != nil {
		return err
	}
	k, err := a.reach(ctx, t, reachWait)
	if err != nil {
		return err
	}
	defer k.close(a)
	if asJSON {
		k.expose(ctx)
		return a.printJSON(struct {
			Schema      int          `json:"schema"`
			Sandboxes   []sandboxRow `json:"sandboxes"`
			Unreachable []unreached  `json:"unreachable"`
		}{resultjson.Schema, rows(k.boxes), append([]unreached{}, k.unreached...)})
	}
	if len(k.boxes) == 0 {
		text := "there are no kept sandboxes" + k.where()
		_, err := fmt.Fprintln(a.out, text)
		return a.noted(err, k.notes())
	}
	err = a.sandboxTable(k.boxes)
	return a.noted(err, slices.Concat(oddNames(k.boxes), leftNotes(k.boxes), k.notes()))
}

func (a *app) sandboxTable(boxes []keptBox) error {
	tab := newTable(a.out, "BACKEND", "TASK", "STATE", "IMAGE", "AGE", "PERSISTENT", "IN-USE")
	for _, b := range boxes {
		tab.row(b.all.Backend(), shownTask(b.Task), b.State, cut(b.Image, 60), age(b.Created), yesNo(b.Persistent), yesNo(b.InUse))
	}
	return tab.print()
}

// notes say of the backends that could not be asked what a user who did not name them wants to know: of the configured one, and of one that
// is set up: it may have sandboxes that cost something.
func (k *keptBoxes) notes() []string {
	var notes []string
	for _, u := range k.unreached {
		if u.configured || u.there {
			text := u.Backend + " could not be asked: " + u.Error.Message
			if u.Error.Hint != nil {
				text += "; " + *u.Error.Hint
			}
			notes = append(notes, text)
		}
	}
	return notes
}

// oddNames say how sandboxes are addressed whose tasks are no plain names.
func oddNames(boxes []keptBox) []string {
	var notes []string
	for _, b := range boxes {
		if !safename.Plain(b.Task) {
			notes = append(notes, fmt.Sprintf("the address of task %s is %s", shownTask(b.Task), b.address()))
		}
	}
	return notes
}

// leftNotes says what to do with the files that sandboxes have left.
func leftNotes(boxes []keptBox) []string {
	if at := slices.IndexFunc(boxes, func(b keptBox) bool { return b.State == driver.StateData }); at >= 0 {
		return []string{"data: the sandbox is gone, and its files are kept for the next command of its task; to remove them: elsewhere sandbox rm --data " + boxes[at].address()}
	}
	return nil
}

// inspected is what inspect prints as JSON.
type inspected struct {
	sandboxRow
	Host      string           `json:"host"`
	User      string           `json:"user"`
	ImageID   string           `json:"image_id"`
	Started   *time.Time       `json:"started"`  // null while it does not run
	UptimeS   *int64           `json:"uptime_s"` // null while it does not run
	Processes *int             `json:"processes"`
	Features  []driver.Feature `json:"features"`
	Mounts    []string         `json:"mounts"`
	Sessions  []sessionRow     `json:"sessions"`
}

func newInspected(b keptBox, d driver.SandboxDetail, sessions []elsewhere.SessionInfo) inspected {
	b.SandboxInfo = d.SandboxInfo
	i := inspected{
		sandboxRow: newSandboxRow(b), Host: d.Host, User: d.User, ImageID: d.ImageID,
		Features: append([]driver.Feature{}, d.Features...), Mounts: append([]string{}, d.Mounts...), Sessions: []sessionRow{},
	}
	if !d.Started.IsZero() {
		up := int64(time.Since(d.Started).Seconds())
		i.Started, i.UptimeS = &d.Started, &up
	}
	if d.Processes >= 0 {
		i.Processes = &d.Processes
	}
	for _, s := range sessions {
		i.Sessions = append(i.Sessions, newSessionRow(s))
	}
	return i
}

func (a *app) cmdSandboxInspect() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect ADDRESS",
		Short: "Tell all about a kept sandbox",
		Long: `Tell all about a kept sandbox as its engine has it, and not as it was asked for: where its commands really run, what
isolates and limits it (active, degraded, unsupported), what is mounted, and the named sessions in it.`,
		Example: `  elsewhere sandbox inspect build
  elsewhere sandbox inspect docker/build --json`,
		Args:              addresses("inspect", true),
		ValidArgsFunction: a.completeAddresses(&t, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.interruptibly(cmd, func(ctx context.Context) error { return a.inspectSandbox(ctx, &t, args[0], asJSON) })
		},
	}
	t.addNarrow(a, cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) inspectSandbox(ctx context.Context, t *target, address string, asJSON bool) error {
	if err := t.check(); err != nil {
		return err
	}
	l := a.lookup("sandbox inspect", t)
	defer l.close()
	b, err := l.find(ctx, address)
	if err != nil {
		return err
	}
	d, err := within(ctx, reachWait, func(ctx context.Context) (driver.SandboxDetail, error) { return b.all.Inspect(ctx, b.Task) })
	if err != nil {
		return err
	}
	sessions, err := l.sessionsOf(b)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(struct {
			Schema  int       `json:"schema"`
			Sandbox inspected `json:"sandbox"`
		}{resultjson.Schema, newInspected(b, d, sessions)})
	}
	return a.written(a.printDetail(b, d, sessions))
}

// sessionsOf are the named sessions in a sandbox.
func (l *lookup) sessionsOf(b keptBox) ([]elsewhere.SessionInfo, error) {
	sessions, err := elsewhere.Sessions(l.home())
	return b.sessions(sessions), err
}

func (a *app) printDetail(b keptBox, d driver.SandboxDetail, sessions []elsewhere.SessionInfo) error {
	out := newTable(a.out)
	out.line("sandbox " + b.address())
	if d.State == driver.StateData {
		return printLeft(out, b, d)
	}
	out.row("task", shownTask(d.Task))
	if len(b.also) > 0 {
		out.row("also on", strings.Join(b.also, ", "))
	}
	out.row("state", state(d))
	out.row("made", fmt.Sprintf("%s (%s ago)", d.Created.Local().Format(time.DateTime), age(d.Created)))
	out.row("persistent", yesNo(d.Persistent))
	out.row("in use", yesNo(d.InUse))
	out.row("host", d.Host)
	out.row("sandbox id", d.ID)
	out.row("name", d.Name)
	out.row("user", d.User)
	out.row("image", d.Image)
	out.row("image id", d.ImageID)
	b.SandboxInfo = d.SandboxInfo
	out.row("policy", newGuarding(b).String())
	if d.Processes >= 0 {
		out.row("processes", strconv.Itoa(d.Processes))
	} else {
		out.row("processes", "cannot be counted here")
	}
	list := func(name string, values []string) {
		if len(values) == 0 {
			out.row(name, "none")
		}
		for _, v := range values {
			out.row(name, v)
		}
	}
	list("data", d.Data)
	list("mounts", d.Mounts)
	var names []string
	for _, s := range sessions {
		text := shownTask(s.Name)
		switch {
		case s.Err != nil:
			text += ": " + s.Err.Error()
		case s.Cwd != "":
			text += fmt.Sprintf(" in %s, last used %s ago", s.Cwd, age(s.Used))
		}
		names = append(names, text)
	}
	list("sessions", names)
	if len(d.Features) > 0 {
		out.line("")
		out.line("features")
	}
	for _, f := range d.Features {
		out.row(string(f.State), f.Name, f.Detail)
	}
	return out.print()
}

// printLeft tells of what a sandbox has left that is gone.
func printLeft(out *table, b keptBox, d driver.SandboxDetail) error {
	out.row("task", shownTask(d.Task))
	out.row("state", d.State)
	out.row("image", d.Image)
	for _, dir := range d.Data {
		out.row("data", dir)
	}
	out.line("the sandbox is gone, and its files are kept: the next command of the task makes one on them, `elsewhere sandbox rm --data " + b.address() + "` removes them")
	return out.print()
}

// state is a sandbox's state with how long it has had it, where that is known. One that is paused runs for as long, for its engine.
func state(d driver.SandboxDetail) string {
	switch {
	case d.Started.IsZero():
		return d.State
	case d.State == driver.StatePaused:
		return d.State + ", started " + age(d.Started) + " ago"
	}
	return d.State + " for " + age(d.Started)
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// age says how long ago a time is, in its greatest unit; "" of no time.
func age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := max(time.Since(t), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// addresses takes one address, or with one false one or more.
func addresses(name string, one bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return ownError("sandbox "+name, "name one by [BACKEND/]TASK; `elsewhere sandbox ls` lists them", "there is no address of a sandbox")
		case one && len(args) > 1:
			return ownError("sandbox "+name, "give one", "there are %d addresses", len(args))
		}
		return nil
	}
}

// interruptibly runs a command that a signal ends.
func (a *app) interruptibly(cmd *cobra.Command, do func(context.Context) error) error {
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	err := do(ctx)
	if sig := in.signal(); sig != 0 {
		return exitStatus(128 + int(sig))
	}
	return err
}

// completeWait bounds how long the shell waits for what it offers.
const completeWait = 2 * time.Second

// completeAddresses offers the kept sandboxes: by task alone where no other has the same, with their backend where the user
// began to write one. What cannot be asked in time is not offered.
func (a *app) completeAddresses(t *target, one bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if one && len(args) > 0 {
			return nil, nothingElse
		}
		k, err := a.reach(cmd.Context(), &target{flags: cmd, backend: t.backend}, completeWait)
		if err != nil {
			return nil, nothingElse
		}
		var offered []string
		for _, b := range k.boxes {
			text := b.Task
			if _, err := k.find("", text); err != nil || !safename.Plain(text) || strings.Contains(begun, "/") {
				text = b.address()
			}
			if !slices.Contains(args, text) {
				offered = append(offered, fmt.Sprintf("%s\t%s, %s", text, b.State, oneLine(b.Image)))
			}
		}
		return offered, nothingElse
	}
}
