package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// askWait bounds how long an engine is asked whether it is there.
const askWait = 10 * time.Second

// backendState says what a backend can do on this machine.
type backendState string

const (
	available   backendState = "available"   // it was asked, and a sandbox can be opened
	unavailable backendState = "unavailable" // its engine is missing, or its settings are wrong; why says which
	notBuilt    backendState = "not built"
)

// backendRow is one backend, or one entry of terminal.backends.
type backendRow struct {
	Name       string       `json:"name"`
	Backend    string       `json:"backend"` // the same but for an entry of terminal.backends
	Configured bool         `json:"configured"`
	State      backendState `json:"state"`
	Why        *string      `json:"why"`
	Abilities  []string     `json:"abilities"`
	Summary    string       `json:"summary"`
}

func (a *app) cmdBackends() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backends",
		Short: "List the backends, which of them work here, and what each can do",
		Long: `List the backends and the entries of terminal.backends. Each is asked whether it could be used here; nothing is started.

An ability that is not listed is done through a bash where that is possible; "keep" is of backends whose sandboxes can outlive
a process ("elsewhere sandbox ls"). "elsewhere doctor" tests for real.`,
		Example: `  elsewhere backends
  elsewhere backends --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(&target{flags: cmd})
			if err != nil {
				return err
			}
			ctx, in, stop := a.interruptible(cmd.Context())
			defer stop()
			rows := a.askBackends(ctx, cfg)
			if sig := in.signal(); sig != 0 {
				return exitStatus(128 + int(sig))
			}
			if asJSON {
				return a.printJSON(struct {
					Schema   int          `json:"schema"`
					Backends []backendRow `json:"backends"`
				}{resultjson.Schema, rows})
			}
			tab := newTable(a.out, "NAME", "STATE", "ABILITIES", "WHERE COMMANDS RUN")
			for _, row := range rows {
				name := row.Name
				if row.Configured {
					name += " *"
				}
				state := string(row.State)
				if row.Why != nil {
					state += ": " + *row.Why
				}
				tab.row(name, state, strings.Join(row.Abilities, " "), row.Summary)
			}
			return a.written(tab.print())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) askBackends(ctx context.Context, cfg *config.Config) []backendRow {
	var rows []backendRow
	for _, name := range cfg.Names() {
		row := backendRow{Name: name, Backend: name, Configured: name == cfg.Name(), State: notBuilt, Abilities: []string{}}
		b, err := cfg.Backend(name)
		if err != nil {
			row.State, row.Why = unavailable, why(err)
			rows = append(rows, row)
			continue
		}
		row.Backend, row.Summary = b.Name, b.Summary
		if b.Open != nil {
			row.Abilities = elsewhere.Abilities(b.Type)
			if b.Keeper != nil {
				row.Abilities = append(row.Abilities, "keep")
			}
			row.State = available
			if err := a.ask(ctx, cfg, name); err != nil {
				row.State, row.Why = unavailable, why(err)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// ask tells whether a sandbox could be opened on a backend, without opening one.
func (a *app) ask(ctx context.Context, cfg *config.Config, name string) error {
	view, b, err := cfg.Named(name)
	if err != nil || b.Available == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	return b.Available(ctx, driver.OpenRequest{
		Config: view, Task: elsewhere.DefaultTask, Environ: os.Environ(), Dir: view.Dir(), ThrowAway: true, Logger: a.log,
	})
}

func why(err error) *string {
	text := oneLine(err.Error())
	return &text
}
