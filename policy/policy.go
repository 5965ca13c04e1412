// Package policy looks at a command before it runs where it could do harm outside a sandbox, and says whether it may.
//
// It is a seat belt, not a wall: it reads the command's syntax tree as bash would, follows what is constant (variables,
// substitutions, here-documents, bash -c, pipes into a shell) and compares the commands that it finds with a table of
// rules. What is only known while the command runs (the content of a script, the answer of a server) it cannot see, and
// whoever wants to deceive it can. Where that matters, the boundary has to be a container.
//
// Nothing here runs anything, reads a file that a command names, or follows a symbolic link: a check is a pure function
// of its text and its Context.
package policy

import (
	"path"
	"strings"
)

// Action is what happens to a command.
type Action string

// The actions, from mild to strict.
const (
	Allow Action = "allow"
	Ask   Action = "ask"   // somebody has to agree; nobody to ask means no
	Block Action = "block" // refused; an answer does not help, a rule in the settings does
)

// stricter reports whether a is stricter than b.
func (a Action) stricter(b Action) bool { return a.rank() > b.rank() }

func (a Action) rank() int {
	switch a {
	case Ask:
		return 1
	case Block:
		return 2
	}
	return 0
}

// Context is where a command would run. Paths are absolute and of the place where it runs; an empty one is unknown. The
// zero Context is valid: then everything with a path is outside the workspace.
type Context struct {
	Workspace  []string // directories that the command may do with as it likes
	Cwd        string   // where it starts
	Home       string   // of the user that it runs as
	Temp       []string // directories for temporary files; nil is /tmp, /var/tmp and /private/tmp
	HermesHome string   // "" is Home/.hermes
	Blocked    []string // further paths that may be neither read nor written, with what is below them
	Given      []string // paths that were put there to be read, with what is below them, whatever the table says of them

	// NetworkAlone says that commands have files, processes and devices of their own, and share a machine's network alone: of the
	// built-in rules only those hold that are about it (Rule.Network).
	NetworkAlone bool

	// Env has variables whose values are known, as the session left them. Others are unknown.
	Env map[string]string

	// User has the user's own rules; the strictest that fits a command wins over the built-in ones.
	User []UserRule

	// Deny has patterns (* is any text, ? one character, case does not matter) of commands that are blocked, whatever else is
	// set: each command as bash would run it is compared with them, and the text as a whole.
	Deny []string

	// Answers knows what has been agreed to before. Nil is nothing.
	Answers Answers
}

// Answers remembers what somebody agreed to. Store is one.
type Answers interface {
	// Allowed reports whether the finding, whose action is Ask, has been agreed to.
	Allowed(Finding) bool
}

// Finding is one rule that fits one command of a text.
type Finding struct {
	Rule   string
	Action Action
	Reason string
	Where  string // the offending text, as written, at most 200 bytes

	// Command is the offending command after expansion, with what feeds it, in a form that is the same however it was
	// quoted; Dir is the directory that it would run in. Together with Rule they are what an answer is remembered by.
	Command string
	Dir     string

	// Fixed says that Command holds all that matters. Without it (a part is only known when the command runs) an answer
	// counts once.
	Fixed bool
}

// Decision is what Check says about a whole text: that of its strictest finding.
type Decision struct {
	Action Action
	Rule   string // "" when allowed
	Reason string
	Where  string
	Hint   string // how to allow it

	// Findings has everything that was found, the strictest first, without what was allowed.
	Findings []Finding
}

// String is one line for a person, without a full stop.
func (d Decision) String() string {
	if d.Action == Allow {
		return "allowed"
	}
	verb := "asks before"
	if d.Action == Block {
		verb = "blocks"
	}
	return "rule " + d.Rule + " " + verb + " `" + d.Where + "`: " + d.Reason
}

func (c Context) hermesHome() string {
	if c.HermesHome != "" {
		return path.Clean(c.HermesHome)
	}
	if c.Home != "" {
		return path.Join(c.Home, ".hermes")
	}
	return ""
}

func (c Context) temp() []string {
	if c.Temp != nil {
		return c.Temp
	}
	return []string{"/tmp", "/var/tmp", "/private/tmp"}
}

// within reports whether p is dir or below it; both are clean.
func within(p, dir string) bool {
	if dir == "" {
		return false
	}
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// decide makes the decision of findings.
func (c Context) decide(found []Finding) Decision {
	d := Decision{Action: Allow}
	for _, f := range found {
		if f.Action == Ask && c.Answers != nil && c.Answers.Allowed(f) {
			continue
		}
		if f.Action.stricter(d.Action) {
			d.Action, d.Rule, d.Reason, d.Where = f.Action, f.Rule, f.Reason, f.Where
			d.Findings = append([]Finding{f}, d.Findings...)
		} else {
			d.Findings = append(d.Findings, f)
		}
	}
	d.Hint = hint(d)
	return d
}

// Only returns the decision of those findings that keep says yes to.
func (d Decision) Only(keep func(Finding) bool) Decision {
	only := Decision{Action: Allow}
	for _, f := range d.Findings {
		if !keep(f) {
			continue
		}
		if f.Action.stricter(only.Action) {
			only.Action, only.Rule, only.Reason, only.Where = f.Action, f.Rule, f.Reason, f.Where
		}
		only.Findings = append(only.Findings, f)
	}
	only.Hint = hint(only)
	return only
}

func hint(d Decision) string {
	switch {
	case d.Rule == denied:
		return "it is one of your own patterns, in the settings: " + denied
	case d.Rule == yours:
		return "it is a rule of your own, in the settings: policy.ask or policy.block"
	}
	switch d.Action {
	case Block:
		return "if this is really wanted, run it yourself, or allow the rule in the settings: policy.rules." + d.Rule + ": allow"
	case Ask:
		return "agree when asked, or allow the rule in the settings: policy.rules." + d.Rule + ": allow"
	}
	return ""
}
