package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

func (a *app) cmdSession() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "List and remove named sessions",
		Long: `A named session keeps exported variables, functions, aliases, directory and umask from one "elsewhere run -s NAME" to the
next. It is yours until you remove it or do not use it for terminal.session_expiry (7 days).`,
		Example: `  elsewhere run -s dev 'cd /tmp; export A=1'
  elsewhere session ls
  elsewhere session rm dev`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.cmdSessionLs(), a.cmdSessionRm())
	return cmd
}

// sessionRow is a session as JSON.
type sessionRow struct {
	Name    string     `json:"name"`
	Backend string     `json:"backend"`
	Task    string     `json:"task"`
	Cwd     string     `json:"cwd"`
	Created *time.Time `json:"created"`
	Used    *time.Time `json:"used"`
	Problem *string    `json:"problem"` // why it cannot be used
}

func newSessionRow(s elsewhere.SessionInfo) sessionRow {
	row := sessionRow{Name: s.Name, Backend: s.Backend, Task: s.Task, Cwd: s.Cwd}
	if s.Err != nil {
		row.Problem = why(s.Err)
		return row
	}
	row.Created, row.Used = &s.Created, &s.Used
	return row
}

// chosen is which sessions -b and --task choose.
type chosen struct {
	home     string
	backend  string // terminal.backend unless -b says otherwise
	sessions []elsewhere.SessionInfo
}

// choose lists the sessions that -b and --task choose; without them all. -b may also name a backend that the settings do
// not know any more, as long as there are sessions of it.
func (a *app) choose(t *target) (*chosen, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	cfg, err := a.load(&target{flags: t.flags})
	if err != nil {
		return nil, err
	}
	c := &chosen{home: cfg.Home(), backend: cfg.Name()}
	if c.home == "" {
		return nil, ownError("session", "set HOME or HERMES_HOME", "there is no HERMES_HOME that could hold sessions")
	}
	sessions, err := elsewhere.Sessions(c.home)
	if err != nil {
		return nil, err
	}
	if t.backend != "" {
		view, _, err := cfg.Named(t.backend)
		switch {
		case err == nil:
			c.backend = view.Name()
		case slices.ContainsFunc(sessions, func(s elsewhere.SessionInfo) bool { return s.Backend == t.backend }):
			c.backend = t.backend
		default:
			return nil, err
		}
	}
	for _, s := range sessions {
		if (t.backend == "" || s.Backend == c.backend) && (!t.given("task") || s.Task == t.task) {
			c.sessions = append(c.sessions, s)
		}
	}
	return c, nil
}

func (a *app) cmdSessionLs() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List named sessions",
		Example: `  elsewhere session ls
  elsewhere session ls -b local --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			c, err := a.choose(&t)
			if err != nil {
				return err
			}
			if asJSON {
				rows := []sessionRow{}
				for _, s := range c.sessions {
					rows = append(rows, newSessionRow(s))
				}
				return a.printJSON(struct {
					Schema   int          `json:"schema"`
					Sessions []sessionRow `json:"sessions"`
				}{resultjson.Schema, rows})
			}
			var corrupt []string
			tab := newTable(a.out, "SESSION", "BACKEND", "TASK", "DIRECTORY", "LAST USED")
			for _, s := range c.sessions {
				if s.Err != nil {
					tab.row(shownTask(s.Name), s.Backend, shownTask(s.Task), "", "")
					corrupt = append(corrupt, s.Err.Error())
					continue
				}
				tab.row(shownTask(s.Name), s.Backend, shownTask(s.Task), s.Cwd, s.Used.Local().Format(time.DateTime))
			}
			return a.noted(tab.print(), corrupt)
		},
	}
	t.addBackend(a, cmd)
	cmd.Flags().StringVar(&t.task, "task", "", "only those of the sandbox `NAME`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) cmdSessionRm() *cobra.Command {
	var t target
	var asJSON, every, forget bool
	cmd := &cobra.Command{
		Use:     "rm {NAME... | --all}",
		Aliases: []string{"remove"},
		Short:   "Remove named sessions",
		Long: `Remove named sessions and their state. NAME is looked for on the backend of -b (default: terminal.backend) in the sandbox of
--task (default: "default"); --all removes every session, or every one of that backend and task. A session's state is in its sandbox:
where that cannot be opened the session stays, and --forget removes what is known of it here alone.`,
		Example: `  elsewhere session rm dev
  elsewhere session rm --task build a b
  elsewhere session rm --all`,
		ValidArgsFunction: a.completeSessions,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case every && len(names) > 0:
				return ownError("session rm", "give one of them", "there are names and --all too")
			case !every && len(names) == 0:
				return ownError("session rm", "give a NAME or --all; `elsewhere session ls` lists them", "there is no name")
			}
			return a.removeSessions(cmd, &t, names, forget, asJSON)
		},
	}
	t.addBackend(a, cmd)
	cmd.Flags().StringVar(&t.task, "task", "", "the sandbox's `NAME`")
	cmd.Flags().BoolVar(&every, "all", false, "remove all")
	cmd.Flags().BoolVar(&forget, "forget", false, "do not open the sandbox; the state there stays")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// removeSessions removes those of the names, or with none all that are selected. One that cannot be removed does not keep
// the others.
func (a *app) removeSessions(cmd *cobra.Command, t *target, names []string, forget, asJSON bool) error {
	for _, name := range names {
		if err := checkName("session rm", name); err != nil {
			return err
		}
	}
	c, err := a.choose(t)
	if err != nil {
		return err
	}
	found := c.sessions
	if len(names) > 0 {
		found = nil
		for _, name := range names {
			found = append(found, elsewhere.SessionInfo{Backend: c.backend, Task: cmp.Or(t.task, elsewhere.DefaultTask), Name: name})
		}
	}
	removed := []string{}
	var errs []error
	for _, s := range found {
		if err := a.removeSession(cmd.Context(), c.home, s, forget); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, s.Name)
	}
	if asJSON {
		type failure struct {
			Schema  int                 `json:"schema"`
			Removed []string            `json:"removed"`
			Errors  []*resultjson.Error `json:"errors"`
		}
		out := failure{resultjson.Schema, removed, []*resultjson.Error{}}
		for _, err := range errs {
			out.Errors = append(out.Errors, resultjson.NewError(err))
		}
		if err := a.printJSON(out); err != nil {
			return err
		}
	} else {
		for _, name := range removed {
			if _, err := fmt.Fprintln(a.out, name); err != nil {
				return a.written(err)
			}
		}
		for _, err := range errs {
			complain(a.err, err)
		}
	}
	if len(errs) > 0 {
		return exitStatus(exitOwn)
	}
	return nil
}

// removeSession removes one session, or with forget only what is known of it here. One whose sandbox cannot be opened stays: its state
// may hold secrets, and nothing would name it any more.
func (a *app) removeSession(ctx context.Context, home string, s elsewhere.SessionInfo, forget bool) error {
	if forget {
		if err := elsewhere.ForgetSession(home, s.Backend, s.Task, s.Name); err != nil {
			return missing(err, s)
		}
		notice(a.err, fmt.Sprintf("%s is forgotten here; its state stays where its sandbox is, if that is there", s.Name))
		return nil
	}
	sandbox, err := a.sandboxOf(ctx, s)
	switch {
	case err == nil:
		defer a.closing("sandbox", sandbox.Close)
		return missing(sandbox.RemoveSession(ctx, s.Name), s)
	case errors.Is(err, errNotThere): // its state was in there
		return missing(elsewhere.ForgetSession(home, s.Backend, s.Task, s.Name), s)
	}
	all, listErr := elsewhere.Sessions(home)
	if listErr == nil && !slices.ContainsFunc(all, func(o elsewhere.SessionInfo) bool {
		return o.Backend == s.Backend && o.Task == s.Task && o.Name == s.Name
	}) {
		return missing(fs.ErrNotExist, s)
	}
	e := &elsewhere.Error{Kind: driver.KindConfig, Op: "session rm", Target: s.Name, Err: err}
	if own, ok := errors.AsType[*elsewhere.Error](err); ok {
		*e = *own
	}
	forgets := "elsewhere session rm --forget " + s.Name + " -b " + s.Backend
	if s.Task != elsewhere.DefaultTask {
		forgets += " --task " + quoted(s.Task)
	}
	e.Hint = strings.TrimLeft(e.Hint+"; or `"+forgets+"` forgets it here alone, and its state stays there", "; ")
	return e
}

func (a *app) sandboxOf(ctx context.Context, s elsewhere.SessionInfo) (*elsewhere.Sandbox, error) {
	cfg, err := config.Load(config.Options{Backends: a.backends, Flags: map[string]string{"backend": s.Backend}})
	if err != nil {
		return nil, err
	}
	if err := a.there(ctx, "session rm", cfg, s.Task); err != nil {
		return nil, err
	}
	return a.open(ctx, cfg, target{task: s.Task}, false)
}

// missing says of a session that is not there where it was looked for.
func missing(err error, s elsewhere.SessionInfo) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ownError("session rm", "`elsewhere session ls` lists them", "there is no session %s on %s in task %s", s.Name, s.Backend, s.Task)
	}
	return err
}

// completeSessions offers the named sessions.
func (a *app) completeSessions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	cfg, err := a.load(&target{flags: cmd})
	if err != nil {
		return nil, nothingElse
	}
	sessions, _ := elsewhere.Sessions(cfg.Home())
	var names []string
	for _, s := range sessions {
		names = append(names, s.Name)
	}
	return names, nothingElse
}
