package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
	"github.com/elsewhere-sh/elsewhere/policy"
)

func (a *app) cmdPolicy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "List and forget what dangerous commands were always agreed to",
		Long: `Where nothing else protects a machine, dangerous commands are asked about before they run. An answer "always" is kept in
HERMES_HOME/elsewhere/policy.json with the rule, the command as bash would run it, and its directory. docs/policy.md has the rules.`,
		Example: `  elsewhere policy ls
  elsewhere policy forget force-push`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.cmdPolicyLs(), a.cmdPolicyForget())
	return cmd
}

// answerRow is a lasting answer as JSON.
type answerRow struct {
	Rule    string    `json:"rule"`
	Command string    `json:"command"`
	Dir     *string   `json:"dir"` // null where the directory does not matter
	When    time.Time `json:"when"`
}

func answerRows(of []policy.Given) []answerRow {
	rows := []answerRow{}
	for _, g := range of {
		rows = append(rows, answerRow{g.Rule, g.Command, known(g.Dir, ""), g.When})
	}
	return rows
}

// answerStore is where this HERMES_HOME keeps lasting answers.
func (a *app) answerStore(cmd *cobra.Command) (*policy.Store, error) {
	cfg, err := a.load(&target{flags: cmd})
	if err != nil {
		return nil, err
	}
	if cfg.Home() == "" {
		return nil, ownError(operation(cmd), "set HOME or HERMES_HOME", "there is no HERMES_HOME that could hold answers")
	}
	return policy.NewStore(cfg.Home()), nil
}

func (a *app) cmdPolicyLs() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List what was always agreed to",
		Example: `  elsewhere policy ls
  elsewhere policy ls --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := a.answerStore(cmd)
			if err != nil {
				return err
			}
			answers, err := store.List()
			if err != nil {
				return ownError(operation(cmd), "until then nothing counts as agreed to", "%w", err)
			}
			if asJSON {
				return a.printJSON(struct {
					Schema  int         `json:"schema"`
					Answers []answerRow `json:"answers"`
				}{resultjson.Schema, answerRows(answers)})
			}
			if len(answers) == 0 {
				_, err := fmt.Fprintln(a.out, "nothing was always agreed to")
				return a.written(err)
			}
			tab := newTable(a.out, "RULE", "COMMAND", "DIRECTORY", "WHEN")
			for _, g := range answers {
				tab.row(g.Rule, cut(g.Command, 80), g.Dir, g.When.Local().Format(time.DateTime))
			}
			return a.written(tab.print())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) cmdPolicyForget() *cobra.Command {
	var asJSON, every bool
	var command string
	cmd := &cobra.Command{
		Use:   "forget {RULE... | --all}",
		Short: "Forget what was always agreed to, so that it is asked about again",
		Long: `Forget the lasting answers of the rules, or all of them; --command narrows that to one command, as "elsewhere policy ls --json" shows
it. Servers that run notice at their next command. What was agreed to for a session ends with that ("elsewhere session rm").`,
		Example: `  elsewhere policy forget force-push
  elsewhere policy forget force-push --command 'git push --force origin main'
  elsewhere policy forget --all --json`,
		ValidArgsFunction: a.completeAnswered,
		RunE: func(cmd *cobra.Command, rules []string) error {
			switch {
			case every && len(rules) > 0:
				return ownError(operation(cmd), "give one of them", "there are rules and --all too")
			case !every && len(rules) == 0:
				return ownError(operation(cmd), "give a RULE or --all; `elsewhere policy ls` lists them", "there is no rule")
			}
			return a.forgetAnswers(cmd, rules, command, asJSON)
		},
	}
	cmd.Flags().BoolVar(&every, "all", false, "forget the answers of all rules")
	cmd.Flags().StringVar(&command, "command", "", "only the answers about this `COMMAND`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// forgetAnswers forgets those of the rules, or with none of all; a rule of which there is no such answer is an error, and then nothing is
// changed.
func (a *app) forgetAnswers(cmd *cobra.Command, rules []string, command string, asJSON bool) error {
	store, err := a.answerStore(cmd)
	if err != nil {
		return err
	}
	narrow := cmd.Flags().Changed("command")
	match := func(g policy.Given) bool {
		return (len(rules) == 0 || slices.Contains(rules, g.Rule)) && (!narrow || g.Command == command)
	}
	answers, err := store.List()
	if err != nil {
		return ownError(operation(cmd), "nothing counts as agreed to until then", "%w", err)
	}
	for _, rule := range rules {
		if !slices.ContainsFunc(answers, func(g policy.Given) bool { return g.Rule == rule && match(g) }) {
			return ownError(operation(cmd), "`elsewhere policy ls` lists them", "there is no lasting answer of the rule %s%s", shown(rule), aboutCommand(narrow, command))
		}
	}
	gone, err := store.Forget(match)
	if err != nil {
		return ownError(operation(cmd), "nothing was forgotten", "%w", err)
	}
	if asJSON {
		return a.printJSON(struct {
			Schema    int         `json:"schema"`
			Forgotten []answerRow `json:"forgotten"`
		}{resultjson.Schema, answerRows(gone)})
	}
	var b strings.Builder
	for _, g := range gone {
		fmt.Fprintf(&b, "%s: %s\n", g.Rule, oneLine(g.Command))
	}
	_, err = fmt.Fprint(a.out, b.String())
	return a.written(err)
}

func aboutCommand(narrow bool, command string) string {
	if !narrow {
		return ""
	}
	return " about `" + oneLine(cut(command, 80)) + "`"
}

// completeAnswered offers the rules of which there are lasting answers.
func (a *app) completeAnswered(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	store, err := a.answerStore(cmd)
	if err != nil {
		return nil, nothingElse
	}
	answers, _ := store.List()
	var rules []string
	for _, g := range answers {
		if !slices.Contains(args, g.Rule) && !slices.Contains(rules, g.Rule) {
			rules = append(rules, g.Rule)
		}
	}
	return rules, nothingElse
}
