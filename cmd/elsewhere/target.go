package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
)

// target is where a command works: the flags -b, --task and --set, and the settings that they lead to.
type target struct {
	flags         *cobra.Command
	backend, task string
	set           []string
}

func (t *target) addTo(a *app, cmd *cobra.Command) {
	t.flags = cmd
	t.addBackend(a, cmd)
	cmd.Flags().StringVar(&t.task, "task", elsewhere.DefaultTask, "the sandbox's `NAME`")
	t.addSet(a, cmd)
}

func (t *target) addBackend(a *app, cmd *cobra.Command) {
	t.flags = cmd
	cmd.Flags().StringVarP(&t.backend, "backend", "b", "", "a backend, or the `NAME` of an entry of terminal.backends (default: terminal.backend)")
	complete(cmd, "backend", a.completeBackends)
}

// addNarrow adds a -b without which all backends are meant.
func (t *target) addNarrow(a *app, cmd *cobra.Command) {
	t.addBackend(a, cmd)
	cmd.Flags().Lookup("backend").Usage = "only this backend, or the entry `NAME` of terminal.backends (default: all that keep sandboxes)"
}

func (t *target) addSet(a *app, cmd *cobra.Command) {
	t.flags = cmd
	cmd.Flags().StringArrayVar(&t.set, "set", nil, "use another value for a setting, for this call alone: `KEY=VALUE`")
	complete(cmd, "set", a.completeSettings)
}

// given tells whether a flag was on the command line.
func (t *target) given(flag string) bool { return t.flags.Flags().Changed(flag) }

// check refuses what cannot name a backend or a task.
func (t *target) check() error {
	if t.given("backend") {
		if err := checkName("--backend", t.backend); err != nil {
			return err
		}
	}
	if t.given("task") {
		return checkName("--task", t.task)
	}
	return nil
}

// load reads the settings as this backend has them. -b is the strongest origin of terminal.backend, so that what is wrong
// with another backend's settings does not matter.
func (a *app) load(t *target) (*config.Config, error) {
	flags := make(map[string]string, len(t.set)+1)
	for _, entry := range t.set {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, ownError("--set", "write KEY=VALUE, such as --set spawn_ahead=0", "%q has no =", entry)
		}
		flags[key] = value
	}
	if t.backend != "" {
		flags["backend"] = t.backend
	}
	cfg, err := config.Load(config.Options{Backends: a.backends, Flags: flags})
	if wrong, ok := errors.AsType[*config.Error](err); ok && t.backend != "" && wrong.Origin == "--set backend" {
		wrong.Origin, wrong.Hint = "-b", "`elsewhere backends` lists them"
	}
	if err != nil {
		return nil, err
	}
	if a.logLevel == "" {
		a.level.Set(logLevels[cfg.String("log_level")])
	}
	return cfg, nil
}

// open opens the sandbox; on a terminal it says meanwhile what takes long. A command line starts no bash ahead: it would not
// live to use it.
func (a *app) open(ctx context.Context, cfg *config.Config, t target, throwAway bool) (*elsewhere.Sandbox, error) {
	none := 0
	progress, opened := a.status.steps()
	defer opened()
	a.startTelemetry(ctx, false)
	a.signals.opened(closeWait(cfg))
	return elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{
		Task: t.task, ThrowAway: throwAway, SpawnAhead: &none, Logger: a.log, Progress: progress, Approve: a.approver(t),
		TracerProvider: a.telemetry.tracers, MeterProvider: a.telemetry.meters,
	})
}
