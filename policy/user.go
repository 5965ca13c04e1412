package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

// UserRule is a rule of the user's settings: either Rule names a built-in one, whose action it changes, or Command and
// Args describe commands.
//
// Command and Args are compared with the command as bash would run it, its quotes gone and what is constant expanded; in
// them * stands for any text and ? for one character. A rule that asks or blocks fits where Args fit arguments in this
// order, with others between them: {git, [push, --force*]} fits `git push origin --force`. A rule that allows has to fit
// all of them; ** as the last one takes the rest. It never fits an argument that is known only when the command runs,
// nor, by a pattern with a slash, a path with .. in it.
type UserRule struct {
	Rule    string
	Command string
	Args    []string
	Action  Action
	Reason  string // of a rule of one's own; may be empty
}

// ParseRule makes a rule of a command as one writes it in a shell, each word one of Args: `git push --force*`. Nothing in it is
// expanded.
func ParseRule(text string, action Action) (UserRule, error) {
	wrong := fmt.Errorf("%q: write one command with its arguments, quoted as in a shell, and no more", text)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil || len(file.Stmts) != 1 || len(file.Stmts[0].Redirs) > 0 || file.Stmts[0].Background || file.Stmts[0].Negated {
		return UserRule{}, wrong
	}
	call, ok := file.Stmts[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(call.Args) == 0 {
		return UserRule{}, wrong
	}
	var words []string
	for _, w := range shellwords.Words(call.Args) {
		if !w.Literal {
			return UserRule{}, wrong
		}
		words = append(words, w.Text)
	}
	u := UserRule{Command: words[0], Args: words[1:], Action: action}
	return u, u.Validate()
}

// Validate returns an error that names what is wrong with the rule.
func (u UserRule) Validate() error {
	switch {
	case u.Action != Allow && u.Action != Ask && u.Action != Block:
		return fmt.Errorf("action %q: use allow, ask or block", u.Action)
	case u.Rule == "" && u.Command == "":
		return errors.New("a rule needs the name of a built-in one, or a command")
	case u.Rule != "" && (u.Command != "" || len(u.Args) > 0):
		return errors.New("a rule has either the name of a built-in one or a command with args, not both")
	case u.Rule != "" && Lookup(u.Rule) == nil:
		return fmt.Errorf("there is no rule %q: docs/policy.md lists them", u.Rule)
	case strings.ContainsAny(u.Command, " /"):
		return fmt.Errorf("command %q: give a command's name alone, its arguments as args", u.Command)
	case slices.Contains(u.Args[:max(len(u.Args)-1, 0)], "**"):
		return errors.New("** stands at the end of args only")
	}
	return nil
}

// fits reports whether a rule with a command fits one.
func (u UserRule) fits(c *command) bool {
	if u.Command == "" || !glob(u.Command, c.name) {
		return false
	}
	if u.Action != Allow {
		at := 0
		for _, want := range u.Args {
			if want == "**" {
				break
			}
			for at < len(c.args) && !glob(want, c.args[at]) {
				at++
			}
			if at == len(c.args) {
				return false
			}
			at++
		}
		return true
	}
	rest := c.args
	if slices.ContainsFunc(rest, func(a string) bool { return !known(a) }) || len(c.writes) > 0 {
		return false
	}
	for _, want := range u.Args {
		if want == "**" {
			return true
		}
		if len(rest) == 0 || !glob(want, rest[0]) || strings.Contains(want, "/") && slices.Contains(strings.Split(rest[0], "/"), "..") {
			return false
		}
		rest = rest[1:]
	}
	return len(rest) == 0
}

// glob compares s with a pattern in which * is any text and ? one byte.
func glob(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// action returns what the settings make of a built-in rule for a command (nil for a text or a path), and why. One that does not hold
// here allows.
func (c Context) action(rule string, cmd *command) (Action, string) {
	r := Lookup(rule)
	if r == nil || c.NetworkAlone && !r.Network() {
		return Allow, ""
	}
	action, set := r.Action, false
	for _, u := range c.User {
		fits := u.Rule == rule || cmd != nil && u.Action == Allow && u.fits(cmd)
		if !fits {
			continue
		}
		if !set || u.Action.stricter(action) {
			action, set = u.Action, true
		}
	}
	return action, r.Reason
}
