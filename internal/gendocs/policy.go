package main

import (
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere/policy"
)

const policyIntro = `# Dangerous commands

<!-- Made by "go run ./internal/gendocs" from the tables of package policy; do not edit. -->

Where a command can do harm outside a container, elsewhere looks at it before it runs. It is a seat belt, not a wall: it keeps an agent that
errs from deleting a home, and does not stop a program that wants to. Where that matters, use a container without writable mounts.

The check is package policy, which Go programs can call; elsewhere's own programs do not ask it yet.

## Where commands are checked

On local and ssh, and in a container that has a writable mount of yours, a device, the machine's network or process namespace, its engine's
socket, or all privileges: computed from what is really mounted, not from what the settings asked for. In other containers and in the clouds
nothing is checked: the container is the boundary.

## What is looked at

The command is parsed as bash and walked as bash would run it; nothing runs, no file is read. The rules are compared with commands, never with
text: ` + "`echo 'rm -rf /'`" + `, ` + "`grep -r mkfs`" + `, a commit message or a here-document that goes into a file are data.

- Quotes, escapes, ` + "`$'\\x72\\x6d'`" + `, ` + "`{a,b}`" + `, ` + "`~`" + `; variables, arrays and parameters whose values the text says, with ` + "`${x:-y}`, `${x%y}`, `${x:1:2}`, `${x/a/b}`" + `;
  each value of a loop's variable; what ` + "`if`" + ` may or may not have assigned.
- What is run by sudo, doas, su, env, nohup, nice, timeout, time, xargs, parallel, ` + "`find -exec`" + `, flock, strace, tmux, watch and their like; bash -c, eval, trap, source,
  functions and aliases; command and process substitutions; here-documents, here-strings and pipes into a shell; files that the text itself
  writes and then runs; what echo, printf, cat, ` + "`base64 -d`" + ` and ` + "`xxd -r`" + ` print of constant text; strings that python, perl, ruby, node hand to a shell.
- ` + "`cd`" + `, so that ` + "`cd / && rm -rf *`" + ` is what it is.
- What comes from the network, from a decoder, or from a file of secrets, on its way through variables and pipes.
- ` + "`ssh HOST COMMAND`" + `: only the rules marked *remote*, and they ask at most.

What is only known when the command runs stays unknown and is let through: the content of a script that is there already, the answer of a
command, a variable that the session does not know, symbolic links, a Makefile, a compiled program. ` + "`testdata/dangerous.txt`" + ` of the package lists such
misses beside what is found. A text that bash would not parse, is longer than 24 KiB (long here-documents that nothing expands do not
count) or too involved to be checked in some 50 ms is asked about.

The same tables of paths hold for the file tools, for copies into such a place, and for what is typed into a job.

## Actions

| action | what happens |
|---|---|
| allow | it runs |
| ask | somebody has to agree: at the terminal, or through the MCP client; nobody to ask means no |
| block | it does not run; an answer does not help, a rule in the settings does |

*Once* counts for one call, *this session* until it ends; *always* is kept in ` + "`HERMES_HOME/elsewhere/policy.json`" + ` (0600). An answer is kept with the rule, the command as
bash would run it, and its directory, never as a pattern of text: the same push to another branch is asked about again. What is known only
when it runs can be agreed to once only.

## Rules

| rule | action | it | fits | remote |
|---|---|---|---|---|
`

const policyPaths = `
## Paths

The first row that fits counts; what lies below a path belongs to it. ` + "`~`" + ` is any home, ` + "`$H`" + ` is HERMES_HOME. Everything below ` + "`/dev`" + ` is *write-device*, but for
` + "`/dev/null`" + ` and its like. Reading means the content: ` + "`ls ~/.ssh`" + ` and ` + "`ssh -i KEY`" + ` are fine.

| path | reading | writing |
|---|---|---|
`

// policyPage renders docs/policy.md.
func policyPage() string {
	var b strings.Builder
	b.WriteString(policyIntro)
	cell := strings.NewReplacer("|", `\|`)
	for _, r := range policy.Rules() {
		remote := ""
		if r.Remote {
			remote = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Name, r.Action, cell.Replace(r.Reason), cell.Replace(r.About), remote)
	}
	b.WriteString(policyPaths)
	name := func(rule string) string {
		if rule == "" {
			return ""
		}
		return "`" + rule + "`"
	}
	for _, p := range policy.Paths() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Path, name(p.Read), name(p.Write))
	}
	b.WriteString(policyAllow)
	return b.String()
}

const policyAllow = `
## Changing rules

A user's rule either names a built-in one and gives it another action, or describes commands by their name and arguments, in which ` + "`*`" + ` is any
text and ` + "`?`" + ` one character; they are compared with the command after its quotes and constants are resolved. Of the user's rules that fit, the
strictest counts.

- A rule that asks or blocks fits where its arguments occur in this order, with others between them: ` + "`npm`, `[publish]`" + `.
- A rule that allows has to fit all arguments; ` + "`**`" + ` at the end takes the rest: ` + "`git`, `[push, --force-with-lease, origin, my/*]`" + `. It allows only the one command, not its
  neighbours, and never an argument that is known only when the command runs, a path with ` + "`..`" + ` under a pattern with a slash, or a redirection
  to a file.

A Go program gives them as ` + "`policy.Context.User`" + `.
`
