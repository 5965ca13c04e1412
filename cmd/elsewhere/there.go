package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// errNotThere is of a task that has no sandbox.
var errNotThere = errors.New("it is not there")

// listedMost is how many sandboxes an error lists.
const listedMost = 10

// there tells whether the sandbox of a task is there, so that what only looks into it makes no empty one for a name that was
// mistyped. The error is errNotThere, with the sandboxes that are there and the next step; of a backend that keeps none it is nil.
func (a *app) there(ctx context.Context, op string, cfg *config.Config, task string) error {
	backend, err := cfg.Backend("")
	if err != nil || backend.Keeper == nil {
		return err
	}
	fail := func(hint, format string, args ...any) error {
		return &elsewhere.Error{Kind: driver.KindConfig, Op: op, Hint: hint, Err: &notThere{fmt.Sprintf(format, args...)}}
	}
	if cfg.Home() == "" {
		return fail("set HOME or HERMES_HOME", "there is no HERMES_HOME, so that no sandbox of an earlier command can be found")
	}
	answer := a.list(ctx, cfg, cfg.Name(), reachWait)
	if answer.all != nil {
		defer a.closing("backend", func(context.Context) error { return answer.all.Close() })
	}
	if answer.err != nil {
		return answer.err
	}
	var names []string
	for _, info := range answer.infos {
		box := keptBox{SandboxInfo: info, all: answer.all}
		switch {
		case info.State != driver.StateData && info.Task == task:
			return nil
		case info.Task == task:
			return fail(fmt.Sprintf("look there, or make it again: elsewhere run -b %s --task %s true", cfg.Name(), quoted(task)),
				"of the sandbox %s only its files are left (%s)", box.address(), strings.Join(info.Data, ", "))
		case info.State != driver.StateData && len(names) < listedMost:
			names = append(names, box.address())
		}
	}
	hint := "`elsewhere sandbox ls` lists them"
	if len(names) == 0 {
		hint = fmt.Sprintf("there is none at all; a command makes it: elsewhere run -b %s --task %s COMMAND", cfg.Name(), quoted(task))
	} else {
		hint = "there are " + strings.Join(names, ", ") + "; " + hint
	}
	return fail(hint, "there is no sandbox of the task %s on %s", shownTask(task), cfg.Name())
}

// notThere is errNotThere in other words.
type notThere struct{ text string }

func (n *notThere) Error() string   { return n.text }
func (n *notThere) Is(e error) bool { return e == errNotThere }

// quoted is a word as bash reads it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
