package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// chooseFlags are the flags of choose.
type chooseFlags struct {
	target
	isolation, where string
	write, json      bool
}

// advice is the answer of choose.
type advice struct {
	Schema    int              `json:"schema"`
	Backend   string           `json:"backend"`
	Why       string           `json:"why"`
	Cost      string           `json:"cost"`
	Latency   string           `json:"latency"`
	Interrupt string           `json:"interrupt"` // what one ends
	Or        *string          `json:"or"`
	State     backendState     `json:"state"`
	Problem   *string          `json:"problem"` // why it cannot be used yet
	Settings  []settingToWrite `json:"settings"`
	Missing   []string         `json:"missing"` // settings that only the user can know
	Others    []string         `json:"others"`  // backends that would do too
	Written   bool             `json:"written"`
}

type settingToWrite struct {
	Key   string `json:"key"`
	Value string `json:"value"` // as people see it: a secret's never

	text string // that is written
}

func (a *app) cmdChoose() *cobra.Command {
	var o chooseFlags
	cmd := &cobra.Command{
		Use:   "choose",
		Short: "Find the backend for what you need, and write its settings",
		Long: `Two questions: must your machine be protected from the commands, and where shall they run. On a terminal they are asked, in a
script --isolation and --where answer them. The answer is a backend with the reason, what it costs, how fast it is and what an interrupt ends, whether
it can be used here now, and the settings to write; --write writes them to HERMES_HOME/config.yaml. Nothing is started.`,
		Example: `  elsewhere choose
  elsewhere choose --isolation yes --where here --write
  elsewhere choose --isolation no --where machine --set ssh_host=gpu1 --set ssh_user=me --write`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.adviseFor(cmd, &o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.isolation, "isolation", "", "whether the machine is to be protected from the commands: `yes` or no")
	f.StringVar(&o.where, "where", "", "where commands shall run: `here`, machine (another one of yours) or cloud")
	f.BoolVar(&o.write, "write", false, "write the settings")
	f.BoolVar(&o.json, "json", false, "print JSON")
	o.addSet(a, cmd)
	f.Lookup("set").Usage = "another setting to write, such as ssh_host: `KEY=VALUE`"
	complete(cmd, "isolation", cobra.FixedCompletions([]string{"yes", "no"}, nothingElse))
	complete(cmd, "where", cobra.FixedCompletions([]string{"here", "machine", "cloud"}, nothingElse))
	return cmd
}

func (a *app) adviseFor(cmd *cobra.Command, o *chooseFlags) error {
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	err := a.advise(ctx, o)
	if sig := in.signal(); sig != 0 {
		return exitStatus(128 + int(sig))
	}
	return err
}

func (a *app) advise(ctx context.Context, o *chooseFlags) error {
	err := errors.Join(o.checkAnswer("where", o.where, wheres), o.checkAnswer("isolation", o.isolation, isolations))
	if err != nil {
		return err
	}
	if o.where, err = a.answer(ctx, o, "where", o.where, "Where shall commands run? On this machine (here), on another machine of yours (machine) or in a cloud service (cloud)?", wheres); err != nil {
		return err
	}
	if o.isolation, err = a.answer(ctx, o, "isolation", o.isolation, "Must the machine be protected from what the commands do (yes, no)?", isolations); err != nil {
		return err
	}
	c, err := a.bestOf(ctx, o, candidates(isolation(o.isolation), whereabouts(o.where)))
	if err != nil {
		return err
	}
	if o.write {
		if err := a.writeChoice(c); err != nil {
			return err
		}
	}
	if o.json {
		return a.printJSON(c)
	}
	return a.printChoice(c)
}

// The answers that the two questions take.
var (
	wheres     = []string{"here", "machine", "cloud"}
	isolations = []string{"yes", "no"}
)

// checkAnswer refuses a flag that answers nothing before anything is asked.
func (o *chooseFlags) checkAnswer(flag, given string, allowed []string) error {
	if !o.given(flag) || slices.Contains(allowed, given) {
		return nil
	}
	return ownError("choose", "add --"+flag+" "+strings.Join(allowed, ", or --"+flag+" "), "%.40q is no answer", given)
}

// answer gives the answer of a flag, or asks on the terminal.
func (a *app) answer(ctx context.Context, o *chooseFlags, flag, given, question string, allowed []string) (string, error) {
	if given == "" && !o.given(flag) && !o.json && a.asks() {
		fmt.Fprint(a.err, question+" ")
		line, err := a.readLine(ctx)
		if err != nil {
			fmt.Fprintln(a.err)
			return "", ownError("choose", "answer "+strings.Join(allowed, " or "), "there was no answer: %w", err)
		}
		given = strings.ToLower(strings.TrimSpace(line))
	}
	if !slices.Contains(allowed, given) {
		hint := "add --" + flag + " " + strings.Join(allowed, ", or --"+flag+" ")
		if given == "" {
			return "", ownError("choose", hint, "--%s is not given, and there is no terminal to ask on", flag)
		}
		return "", ownError("choose", hint, "%.40q is no answer", given)
	}
	return given, nil
}

// bestOf chooses the first of the backends that can be used here now, or else the first.
func (a *app) bestOf(ctx context.Context, o *chooseFlags, of []choice) (*advice, error) {
	var best *advice
	var others []string
	for _, c := range of {
		found, err := a.consider(ctx, o, c)
		if err != nil {
			return nil, err
		}
		if best == nil || best.State != available && found.State == available {
			best = found
		}
		others = append(others, c.backend)
	}
	best.Others = slices.DeleteFunc(others, func(name string) bool { return name == best.Backend })
	return best, nil
}

// consider says what one backend would be.
func (a *app) consider(ctx context.Context, o *chooseFlags, c choice) (*advice, error) {
	found := &advice{
		Schema: resultjson.Schema, Backend: c.backend, Why: c.why, Cost: c.cost, Latency: c.latency, Interrupt: c.interrupt,
		State: available, Settings: []settingToWrite{{"backend", c.backend, c.backend}}, Missing: []string{}, Others: []string{},
	}
	if c.or != "" {
		found.Or = &c.or
	}
	t := o.target
	t.backend = c.backend
	cfg, err := a.load(&t)
	if err != nil {
		return nil, err
	}
	if err := a.askWithin(ctx, cfg); err != nil {
		found.State, found.Problem = unavailable, why(err)
	}
	given := map[string]string{}
	for _, entry := range o.set {
		key, value, _ := strings.Cut(entry, "=") // load has looked at it
		given[key] = value
	}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		found.Settings = append(found.Settings, settingToWrite{key, cfg.Shown(key, given[key]), given[key]})
	}
	for _, key := range c.need {
		if !cfg.IsSet(key) {
			found.Missing = append(found.Missing, key)
		}
	}
	return found, nil
}

// writeChoice writes the settings: the others first, so that the backend is not changed where one of them is wrong.
func (a *app) writeChoice(c *advice) error {
	if len(c.Missing) > 0 {
		return ownError("choose", "add --set "+strings.Join(c.Missing, "=... --set ")+"=...", "%s needs %s", c.Backend, strings.Join(c.Missing, " and "))
	}
	order := append(slices.Clone(c.Settings[1:]), c.Settings[0])
	for _, s := range order {
		warnings, err := config.Set(config.Options{Backends: a.backends}, s.Key, s.text)
		if err != nil {
			return err
		}
		for _, text := range warnings {
			notice(a.err, text)
		}
	}
	c.Written = true
	return nil
}

func (a *app) printChoice(c *advice) error {
	out := newTable(a.out)
	out.line("use " + c.Backend + ": " + c.Why)
	out.row("cost", c.Cost)
	out.row("latency", c.Latency)
	out.row("interrupt ends", c.Interrupt)
	if c.Or != nil {
		out.row("or", *c.Or)
	}
	if len(c.Others) > 0 {
		out.row("would do too", strings.Join(c.Others, ", "))
	}
	if c.Problem != nil {
		out.row("not usable yet", *c.Problem)
	} else {
		out.row("here", "it can be used now; `elsewhere doctor -b "+c.Backend+"` tests it")
	}
	switch {
	case c.Written:
		out.row("written", settingsText(c))
	case len(c.Missing) > 0:
		out.row("settings", settingsText(c)+", and "+strings.Join(c.Missing, " and ")+", which --set names")
	default:
		out.row("settings", settingsText(c)+"; --write writes them")
	}
	return a.written(out.print())
}

func settingsText(c *advice) string {
	var all []string
	for _, s := range c.Settings {
		all = append(all, s.Key+": "+s.Value)
	}
	return strings.Join(all, ", ")
}
