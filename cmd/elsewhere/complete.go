package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/config"
)

// complete registers what the shell offers for a flag's value.
func complete(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(err) // the flag is not there: a slip that every run of this command would show
	}
}

const nothingElse = cobra.ShellCompDirectiveNoFileComp

func completeVariables(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); variableForm.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nothingElse | cobra.ShellCompDirectiveNoSpace
}

// completeBackends offers the backends and the entries of terminal.backends.
func (a *app) completeBackends(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	if cfg, err := config.Load(config.Options{Backends: a.backends}); err == nil {
		return cfg.Names(), nothingElse
	}
	var names []string
	for _, b := range a.backends {
		names = append(names, b.Name)
	}
	return names, nothingElse
}

// completeKeys offers the settings, by key.
func (a *app) completeKeys(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, nothingElse
	}
	return a.keys(func(key, doc string) string { return key + "\t" + doc }), nothingElse
}

func (a *app) completeSettings(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.keys(func(key, _ string) string { return key + "=" }), nothingElse | cobra.ShellCompDirectiveNoSpace
}

func (a *app) keys(form func(key, doc string) string) []string {
	rows, err := config.Table(a.backends)
	if err != nil {
		return nil
	}
	var keys []string
	for _, row := range rows {
		keys = append(keys, form(row.Key, row.Doc))
	}
	return keys
}
