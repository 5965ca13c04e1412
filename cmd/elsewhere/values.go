package main

import (
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// plainWord matches a word that bash leaves as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:=-]+$`)

var variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkName refuses names of tasks and sessions that are not fit for a command line. The library takes any string; here
// a name that needs quoting, or looks like a path or a flag, is more likely a mistake.
func checkName(what, name string) error {
	if safename.Plain(name) {
		return nil
	}
	return ownError(what, "use letters, digits, and . _ - after the first (63 at most)", "%.80q is no name", name)
}

// parseEnv reads K=V, and K alone as the caller's own value, as docker does. Unlike there a K that the caller does not
// have is an error: it would be a typo that nobody sees.
func parseEnv(entries []string, lookup func(string) (string, bool)) (map[string]string, error) {
	env := make(map[string]string, len(entries))
	for _, entry := range entries {
		name, value, given := strings.Cut(entry, "=")
		if !variableForm.MatchString(name) {
			return nil, ownError("--env", "write NAME=VALUE", "%q is no name of a variable", name)
		}
		if !given {
			if value, given = lookup(name); !given {
				return nil, ownError("--env", "write "+name+"=VALUE, or export it first", "%s has no value and is not set here", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// parseTimeout reads the value of --timeout.
func parseTimeout(text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err != nil || d == 0 {
		return 0, ownError("--timeout", "give seconds or a duration such as 90, 90s or 2m, or leave it out for none",
			"%q is no time above zero", text)
	}
	return d, nil
}

// parseMaxOutput reads the value of --max-output; 0 keeps nothing.
func parseMaxOutput(text string) (int64, error) {
	n, err := config.ParseBytes(text)
	switch {
	case err != nil:
		return 0, ownError("--max-output", "give bytes, or a number with a unit such as 64k or 8MiB", "%q is no size", text)
	case n == 0:
		return -1, nil
	}
	return n, nil
}

// noArgs is an Args that takes no argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return ownError(operation(cmd), "leave it out, or see: "+cmd.CommandPath()+" --help", "it takes no argument, and %q is one", cut(args[0], 60))
	}
	return nil
}

// atMostOne is an Args that takes one argument or none.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return ownError(operation(cmd), "see: "+cmd.CommandPath()+" --help", "it takes one argument at most, and there are %d", len(args))
	}
	return nil
}

// takes is an Args that wants these arguments.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			want := strings.Join(names, " ")
			return ownError(operation(cmd), "write: "+cmd.CommandPath()+" "+want, "it takes %s, and there are %d arguments", strings.Join(names, " and "), len(args))
		}
		return nil
	}
}
