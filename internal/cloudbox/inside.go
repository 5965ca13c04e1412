package cloudbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// probeWait bounds the first look in a sandbox, and tidyWait what else is done there beside the calls.
	probeWait = time.Minute
	tidyWait  = 20 * time.Second
)

// Inside runs scripts of ours in a sandbox, beside the calls, by the service's own means.
type Inside struct {
	// Run runs a script that does no harm when it runs twice, by a bash, and gives what it printed.
	Run func(ctx context.Context, wait time.Duration, script string, args ...string) (text string, code int, err error)
	// Explain makes an error that says what was tried and what to do.
	Explain func(what string, err error) error
	Name    string // of the sandbox
	Log     *slog.Logger
}

// LookAround finds out what the sandbox has, and makes the directories.
func (i *Inside) LookAround(ctx context.Context, look Look) (*Surroundings, error) {
	script, args := look.script()
	text, code, err := i.Run(ctx, probeWait, script, args...)
	if err != nil {
		return nil, i.Explain("looking around in the sandbox "+i.Name, err)
	}
	return look.read(text, code)
}

// Kill ends what has mark ("NAME=ID") in its environment.
func (i *Inside) Kill(ctx context.Context, mark string) error {
	_, _, err := i.Run(ctx, tidyWait, KillScript, mark)
	return err
}

// Tidy removes a directory and tells whether something that a call has left still runs.
func (i *Inside) Tidy(ctx context.Context, dir string) (busy bool) {
	ctx, cancel := context.WithTimeout(ctx, tidyWait)
	defer cancel()
	text, _, err := i.Run(ctx, tidyWait, tidyScript, dir)
	if err != nil {
		i.Log.Debug("temporary files stay in the sandbox", "sandbox", i.Name, "error", err)
	}
	return isBusy(text)
}

// RemoveDirs removes directories that dead processes left.
func (i *Inside) RemoveDirs(ctx context.Context, dirs []string) {
	ctx, cancel := context.WithTimeout(ctx, tidyWait)
	defer cancel()
	if _, _, err := i.Run(ctx, tidyWait, `rm -rf -- "$@"`, dirs...); err != nil && ctx.Err() == nil {
		i.Log.Debug("what dead processes left was not removed", "error", err)
	}
}

// ListState lists the plain files in dir, which is one of info's state directories.
func (i *Inside) ListState(ctx context.Context, info driver.Info, dir string) ([]driver.StateFile, error) {
	dir, err := stateDir(info, dir)
	if err != nil {
		return nil, err
	}
	text, _, err := i.Run(ctx, tidyWait, listScript, dir)
	if err != nil {
		return nil, i.Explain("listing state files in the sandbox "+i.Name, err)
	}
	return stateFiles(text), nil
}
