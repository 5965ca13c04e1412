package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

func (a *app) cmdConfig() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show, explain and change settings",
		Long: `A setting's value comes from the first of: the command line (--set), the process environment, HERMES_HOME/config.yaml,
HERMES_HOME/.env, the default. HERMES_HOME is ~/.hermes unless that variable says otherwise. docs/settings.md lists all.`,
		Example: `  elsewhere config set backend docker
  elsewhere config explain backend
  elsewhere config show`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.cmdConfigShow(), a.cmdConfigExplain(), a.cmdConfigSet())
	return cmd
}

// settings is what config show and explain print as JSON.
type settings struct {
	Schema   int            `json:"schema"`
	Backend  string         `json:"backend"`
	Home     string         `json:"home"` // HERMES_HOME, or "" where there is none
	Settings []config.Value `json:"settings"`
	Warnings []string       `json:"warnings"`
}

func newSettings(cfg *config.Config, values []config.Value) settings {
	return settings{
		Schema: resultjson.Schema, Backend: cfg.Name(), Home: cfg.Home(),
		Settings: append([]config.Value{}, values...), Warnings: append([]string{}, cfg.Warnings()...),
	}
}

func (a *app) cmdConfigShow() *cobra.Command {
	var t target
	var asJSON, every bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the settings in force and where each came from",
		Example: `  elsewhere config show
  elsewhere config show -b docker
  elsewhere config show --json --all`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load(&t)
			if err != nil {
				return err
			}
			values := cfg.All()
			if !every {
				values = slices.DeleteFunc(values, func(v config.Value) bool { return !v.Used })
			}
			if asJSON {
				return a.printJSON(newSettings(cfg, values))
			}
			tab := newTable(a.out, "SETTING", "VALUE", "FROM")
			for _, v := range values {
				tab.row(v.Key, v.Value, v.Origin)
			}
			return a.noted(tab.print(), cfg.Warnings())
		},
	}
	t.addBackend(a, cmd)
	t.addSet(a, cmd)
	cmd.Flags().BoolVar(&every, "all", false, "also the settings that this backend does not read")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) cmdConfigExplain() *cobra.Command {
	var t target
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Tell what a setting is, where it came from and what that hid",
		Long:  "Tell what a setting is, where its value came from and what that hid. Without KEY: every setting that something sets.",
		Example: `  elsewhere config explain timeout
  elsewhere config explain TERMINAL_CWD
  elsewhere config explain`,
		Args:              atMostOne,
		ValidArgsFunction: a.completeKeys,
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.load(&t)
			if err != nil {
				return err
			}
			values, err := explained(cfg, args)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(newSettings(cfg, values))
			}
			for i, v := range values {
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if err := a.written(explain(a.out, v)); err != nil {
					return err
				}
			}
			if len(args) > 0 {
				return nil
			}
			if len(values) == 0 {
				_, err = fmt.Fprintln(a.out, "nothing sets anything: all settings have their defaults, which `elsewhere config show` lists")
			}
			return a.noted(err, cfg.Warnings())
		},
	}
	t.addBackend(a, cmd)
	t.addSet(a, cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// explained is the setting that a user names by its key or its variable, or all that something sets.
func explained(cfg *config.Config, args []string) ([]config.Value, error) {
	if len(args) == 0 {
		return slices.DeleteFunc(cfg.All(), func(v config.Value) bool {
			return v.Origin == "default" && v.Problem == "" && len(v.Hidden) == 0
		}), nil
	}
	for _, v := range cfg.All() {
		if v.Env != "" && v.Env == args[0] {
			return []config.Value{v}, nil
		}
	}
	v, err := cfg.Explain(args[0])
	return []config.Value{v}, err
}

func (a *app) cmdConfigSet() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Write a setting to HERMES_HOME/config.yaml",
		Long: `Write a setting to HERMES_HOME/config.yaml. The rest of the file stays as it is, comments too. A value that is not allowed
is not written. KEY may be backends.NAME.KEY for a backend with a name of its own.`,
		Example: `  elsewhere config set timeout 300
  elsewhere config set shell_init_files '["~/.agentrc"]'
  elsewhere config set backends.gpu1.backend ssh`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			if len(args) == 1 && strings.Contains(args[0], "=") {
				key, value, _ := strings.Cut(args[0], "=")
				if _, secret, err := config.Secret(a.backends, key); secret || err != nil {
					value = "VALUE"
				}
				return ownError("config set", fmt.Sprintf("write: elsewhere config set %s %s", key, value), "a key and a value are two arguments")
			}
			return ownError("config set", "write: elsewhere config set KEY VALUE", "a key and a value are needed, and there are %d arguments", len(args))
		},
		ValidArgsFunction: a.completeKeys,
		RunE: func(_ *cobra.Command, args []string) error {
			o := config.Options{Backends: a.backends}
			warnings, err := config.Set(o, args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(struct {
					Schema   int      `json:"schema"`
					Key      string   `json:"key"`
					Warnings []string `json:"warnings"`
				}{resultjson.Schema, args[0], append([]string{}, warnings...)})
			}
			return a.noted(nil, warnings)
		},
	}
	cmd.Flags().SetInterspersed(false) // so that a value may begin with a minus
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
