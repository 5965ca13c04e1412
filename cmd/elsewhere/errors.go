package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// ownError is a wrong argument or setting: what it is about, what is wrong, and the next step.
func ownError(op, hint, format string, args ...any) error {
	return &elsewhere.Error{Kind: driver.KindConfig, Op: op, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// badFlag is a flag that cobra could not read, with the command that it was meant for.
type badFlag struct {
	cmd *cobra.Command
	err error
}

func (b *badFlag) Error() string { return b.err.Error() }
func (b *badFlag) Unwrap() error { return b.err }

// report says once why a command failed: one line on standard error, or with --json one object on standard output.
func (a *app) report(cmd *cobra.Command, err error, asJSON bool) {
	_, own := errors.AsType[*elsewhere.Error](err)
	if _, setting := errors.AsType[*config.Error](err); !own && !setting { // cobra's own
		err = ownError("command line", "see: "+cmd.CommandPath()+" --help", "%w", err)
	}
	if !asJSON {
		complain(a.err, err)
		return
	}
	var object any
	if cmd.Name() == "run" {
		f := cmd.Flags()
		split, _ := f.GetBool("split")
		target := resultjson.Target{Split: split}
		target.Backend, _ = f.GetString("backend")
		target.Task, _ = f.GetString("task")
		target.Session, _ = f.GetString("session")
		object = resultjson.New(nil, err, target)
	} else {
		object = struct {
			Schema int               `json:"schema"`
			Error  *resultjson.Error `json:"error"`
		}{resultjson.Schema, resultjson.NewError(err)}
	}
	if resultjson.Encode(a.out, object) != nil {
		complain(a.err, err)
	}
}

// wantsJSON tells whether --json was given. After a flag that could not be read, those behind it were not looked at.
func wantsJSON(cmd *cobra.Command, args []string, cut bool) bool {
	f := cmd.Flags().Lookup("json")
	if f == nil {
		return false
	}
	if on, _ := strconv.ParseBool(f.Value.String()); on {
		return true
	}
	for _, arg := range args {
		if arg == "--" || !cut {
			break
		}
		if arg == "--json" {
			return true
		}
	}
	return false
}

// complain prints a failure on one line that ends with the next step.
func complain(w io.Writer, err error) {
	e := resultjson.NewError(err)
	line := oneLine(e.Message)
	if e.Hint != nil {
		line = strings.TrimRight(line, ".;") + "; " + oneLine(*e.Hint)
	}
	fmt.Fprintf(w, "elsewhere: %s\n", line)
}

// notice prints something that is no failure.
func notice(w io.Writer, text string) { fmt.Fprintf(w, "elsewhere: notice: %s\n", oneLine(text)) }

// oneLine makes text safe to show on a line of a terminal: line breaks become "; ", other control characters are
// written out.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, shown(line))
		}
	}
	return strings.Join(lines, "; ")
}

// shown writes out what a terminal would obey.
func shown(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(quoted[1 : len(quoted)-1])
}

// unwrapPath drops the operation and the name from an error of the os package, where our own text says them.
func unwrapPath(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
