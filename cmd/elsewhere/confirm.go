package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// confirm asks on the terminal whether to do what throws something away, after print has said what. Without a terminal to ask
// on, and with --json, only --yes will do. A nil error is a yes.
func (a *app) confirm(ctx context.Context, op string, yes, asJSON bool, print func()) error {
	switch {
	case yes && asJSON:
		return nil
	case yes:
		print()
		return nil
	case asJSON:
		return ownError(op, "add --yes", "with --json nobody is asked")
	case !a.asks():
		return ownError(op, "add --yes if that is what you want", "it has to be confirmed, and there is no terminal to ask on")
	}
	print()
	fmt.Fprint(a.err, "Go on? [y/N] ")
	answer, err := a.readLine(ctx)
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return err
	}
	if ctx.Err() != nil || !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(a.err)
	}
	return &elsewhere.Error{Kind: driver.KindCanceled, Op: op, Hint: "answer y, or add --yes", Err: errors.New("not confirmed, nothing was changed")}
}

// asks tells whether a question would be seen and could be answered.
func (a *app) asks() bool {
	in, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && a.status.terminal
}

// readLine reads one line of standard input, until ctx is done. A read of a terminal cannot be broken off: what still waits
// then ends with the process.
func (a *app) readLine(ctx context.Context) (string, error) {
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		line, err := bufio.NewReader(a.in).ReadString('\n')
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		return r.line, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
