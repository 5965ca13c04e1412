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

Every way to run a command goes through it: ` + "`elsewhere run`, `job start`, `run -t`" + `, the tools of ` + "`elsewhere mcp`" + `, the library. So do the
paths of the file tools, of ` + "`cp` and `sync`" + `, and what is sent to a job.

## Where commands are checked

On local and ssh, and in a container that has a writable mount of yours, a device, the machine's network or process namespace, its engine's
socket, or all privileges: computed from what is really mounted, not from what the settings asked for. In other containers and in the clouds
nothing is checked: the container is the boundary. (Only ` + "`approvals.deny`" + ` holds everywhere.) Where the network is all that a container shares with the
machine, only the rules marked *network* hold: what a command does to files and processes, or a text that cannot be read, is the container's own
affair. An Apptainer instance is like that unless ` + "`terminal.singularity_network`" + ` is off.

*The workspace* is the directory in which the session began, and those of ` + "`policy.workspace`" + `: a command may delete there as it likes, and in
temporary directories. A home directory is too wide to be one: over ssh, where sessions begin there, set ` + "`terminal.cwd` or `policy.workspace`" + `.

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

The same table of paths holds for the file tools and for copies (` + "`cp`, `sync`" + `) into such a place and out of it; on local a link counts as what it leads to,
too. A copy of a tree is looked at as a whole, and one question covers it: what it writes, by the names in the tree; what it reads, and what
` + "`sync --delete --force`" + ` removes, by the places of the table that are there below the directory (where the table has a pattern, the
directory of the pattern has to be there). What ` + "`--exclude`" + ` leaves out does not count.

What is sent to a job is looked at as a command of bash, since the job may be a shell; what bash would not read is let through, and so is
what is typed on a terminal of ` + "`shell` and `run -t`" + `, what a command reads from its standard input, and a line that is sent in parts. On a job's own
terminal Enter and every other control key end a line as a newline does; what they edit, or mean to a program, is not followed.

## Actions

| action | what happens |
|---|---|
| allow | it runs |
| ask | somebody has to agree: at the terminal, or through the MCP client; nobody to ask means no |
| block | it does not run; an answer does not help, a rule in the settings does |

Who is asked: with ` + "`elsewhere run`" + ` and its like the person at the terminal, where standard input and standard error are one and there is no
` + "`--json`" + `; with ` + "`elsewhere mcp`" + ` the user of a client that has elicitation; with the library whoever ` + "`SandboxOptions.Approve`" + ` asks. No answer within
` + "`approvals.timeout`" + ` is no. What is refused does not run, not even in part: the result has the cause ` + "`denied`" + `, the error the rule, its reason and how to allow
it, the process ends with 125, and the audit record says ` + "`denied: RULE`" + ` (or ` + "`asked: once: RULE`, `allow`, `not asked: RULE`, `not checked`" + `).

*Once* counts for one call, *this session* until it ends (a named session: until it is removed); *always* is kept in ` + "`HERMES_HOME/elsewhere/policy.json`" + ` (0600). An answer is kept with the rule, the command as
bash would run it, and its directory, never as a pattern of text: the same push to another branch is asked about again. ` + "`elsewhere policy ls`" + ` lists what always counts, and
` + "`elsewhere policy forget`" + ` has it asked about again, also by servers that run. What is known only
when it runs can be agreed to once only. Where the session's directory changes while somebody is asked, the command is looked at again in the new one.

## Rules

| rule | action | it | fits | remote | network |
|---|---|---|---|---|---|
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
		yes := map[bool]string{true: "yes"}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.Name, r.Action, cell.Replace(r.Reason), cell.Replace(r.About), yes[r.Remote], yes[r.Network()])
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
## Settings

In ` + "`HERMES_HOME/config.yaml`" + `:

` + "```yaml" + `
policy:
  rules: {force-push: allow, write-startup: block}   # other actions for built-in rules
  allow: ["git push --force-with-lease origin my/*"] # commands of your own: these run,
  ask: ["npm publish"]                               # these are asked about,
  block: ["terraform apply"]                         # these do not run
  workspace: [~/src]                                 # more directories that are free
  blocked_paths: [~/taxes]                           # neither read nor written
  enabled: true                                      # false looks at nothing at all
approvals:                                           # as Hermes has it
  mode: manual                                       # off: asks nobody, and runs what would be asked about
  timeout: 300                                       # seconds
  deny: ["git push --force*"]                        # patterns, on every backend
` + "```" + `

For one call: ` + "`--set approvals.mode=off`, `--set 'policy.rules={\"force-push\":\"allow\"}'`, `--set policy.enabled=false`" + `. Hermes' variable
` + "`HERMES_YOLO_MODE=1`" + ` does what ` + "`mode: off`" + ` does. As in Hermes, what is blocked stays blocked then; unlike there, a rule that blocks can be
allowed by its name, and ` + "`smart`" + ` (a model that answers) is ` + "`manual`" + `. Hermes' ` + "`command_allowlist`" + ` is not read: it names
Hermes' own patterns (` + "`rm`, `git push *`" + `), which as rules of ours would let through more than they say. Where there is one, ` + "`doctor`" + ` says so, and the first question of a
process does in a notice, with the rule to write instead.

- A rule that asks or blocks fits where its arguments occur in this order, with others between them; ` + "`*`" + ` is any text and ` + "`?`" + ` one
  character. They are compared with the command after its quotes and constants are resolved. Of the rules that fit, the strictest counts.
- A rule that allows has to fit all arguments; ` + "`**`" + ` at the end takes the rest. It allows only the one command, not its neighbours, and never
  an argument that is known only when the command runs, a path with ` + "`..`" + ` under a pattern with a slash, or a redirection to a file.
- A pattern of ` + "`approvals.deny`" + ` is compared with the whole text and with each command in it; case does not matter.

## In a Go program

The check is on by default, and without ` + "`SandboxOptions.Approve`" + ` the answer is always no: a program that hands a model's commands on is safe when
its author never thought of this. One that runs its own commands sets ` + "`policy.enabled`" + ` to false (` + "`config.Options.Flags`" + `). ` + "`Sandbox.Guarded`" + ` says whether
and why a place is guarded (` + "`elsewhere doctor`, `elsewhere sandbox inspect`" + `), ` + "`errors.As`" + ` with a ` + "`*elsewhere.Denial`" + ` what was refused. A check of a small command takes some 30 µs; where
nothing is guarded it takes nothing.
`
