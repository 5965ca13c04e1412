package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
)

// approver is who is asked before something dangerous is done: the person at the terminal, where there is one. With --json nobody
// is asked, as everywhere.
func (a *app) approver(t target) func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
	if !a.asks() {
		return nil
	}
	if t.flags != nil {
		if asJSON, err := t.flags.Flags().GetBool("json"); err == nil && asJSON {
			return nil
		}
	}
	return a.approve
}

// approve asks on the terminal. Anything but a clear yes is no.
func (a *app) approve(ctx context.Context, q elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
	for _, f := range q.Findings {
		fmt.Fprintf(a.err, "elsewhere: rule %s asks before `%s`: %s\n", f.Rule, oneLine(f.Where), oneLine(f.Reason))
	}
	where := "on " + q.Backend
	if q.Where.Host != "" {
		where += " (" + q.Where.User + "@" + q.Where.Host + ")"
	}
	if q.Dir != "" {
		where += ", in " + oneLine(q.Dir)
	}
	choices := "y once"
	if q.Lasts && q.Session != "" {
		choices += ", s for the session " + q.Session
	}
	if q.Lasts {
		choices += ", a always"
	}
	fmt.Fprintf(a.err, "Do it %s? [%s, N no] ", where, choices)
	line, err := a.readLine(ctx)
	if err != nil {
		fmt.Fprintln(a.err)
		if ctx.Err() == nil {
			err = errors.New("there was no answer")
		}
		return elsewhere.ApproveNot, err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes", "once":
		return elsewhere.ApproveOnce, nil
	case "s", "session":
		if q.Lasts && q.Session != "" {
			return elsewhere.ApproveSession, nil
		}
	case "a", "always":
		if q.Lasts {
			return elsewhere.ApproveAlways, nil
		}
	}
	return elsewhere.ApproveNot, nil
}
