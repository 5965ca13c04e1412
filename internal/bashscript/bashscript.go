// Package bashscript is the bash side of the contract, and nothing else knows it.
//
// Every bash of ours is started with one short, fixed command line (Args) and reads the rest from its standard input:
// the boot text, then two messages. The first says which state to load, so that a bash can be started and made ready before its
// command is known; the second says what to run and how (directory, variables, stdin). What follows on stdin is the command's own. Command text and values are never in argv nor in the environment.
//
// The bash answers with reports in its standard output (Scanner): a token, random for each bash, a letter and fields. R:
// ready, the state is loaded. B: the command begins. E: it ended, with its code and directory. S, U or F: the new state is
// written to the slot, is the same as the old one, or could not be written. P stands for E where the command has an EXIT
// trap of its own: the state is as it was before the trap's action, and the code is the process's. X stands for E where
// the directory cannot be entered. A shell that was replaced, or killed by KILL, reports no end: then the process's own
// end is the end.
//
// boot.sh is the way up to the command, report.sh and dump.sh are its EXIT trap, into which normal completion falls too;
// end.sh ends process trees. All run on bash 3.2 to 5.3 and use builtins alone. The command runs at the top level of the
// command line, so that return, local and error line numbers are those of a plain `bash -c`; its text stands in
// BASH_EXECUTION_STRING, where `bash -c` keeps it too. The reports' descriptor is closed around the command, which makes
// bash keep it close-on-exec: no child ever has it.
package bashscript

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed boot.sh
var bootSource string

//go:embed report.sh
var reportSource string

//go:embed dump.sh
var dumpSource string

//go:embed end.sh
var endSource string

// CallVariable is the environment variable that holds a call's id from the start of its bash, and SessionVariable the one
// that holds its session's: by them every process of a call can be found.
const (
	CallVariable    = "ELSEWHERE_CALL"
	SessionVariable = "ELSEWHERE_SESSION"
)

// neverSaved are the families of names that belong to one call or to elsewhere, as bash patterns.
var neverSaved = []string{
	"HERMES_SESSION_*", "HERMES_UI_SESSION_ID", "HERMES_CRON_*", "HERMES_BROWSER_CONTROL_*", "HERMES_RPC_*",
	"HERMES_KERNEL_DIR", "HERMES_DELEGATED_CHILD_CONTEXT", "AI_AGENT", "HERMES_AGENT", CallVariable, SessionVariable,
}

// Scripts are the texts for one sandbox. Its zero value is not usable; NewScripts makes one.
type Scripts struct {
	args    []string
	endArgs []string
	boot    []byte
	endTrap string
	end     []byte
}

// NewScripts prepares the texts. keepEnv are names (not patterns) that always keep the value with which a bash was started
// and never go into state.
func NewScripts(keepEnv []string) *Scripts {
	never := append(append([]string{}, neverSaved...), keepEnv...)
	words := make([]string, len(never))
	for i, name := range never {
		words[i] = name
		if prefix, ok := strings.CutSuffix(name, "*"); ok {
			words[i] = `"${!` + prefix + `@}"`
		}
	}
	names := strings.Join(words, " ")
	dump := strings.ReplaceAll(compact(dumpSource), "@NEVER@", names)
	report := compact(reportSource)
	boot := "ew_report=" + Quote(report) + "\new_dump=" + Quote(dump) + "\n" +
		strings.ReplaceAll(compact(bootSource), "@NEVER@", names)
	s := &Scripts{
		boot:    append([]byte(boot), 0),
		endTrap: report + dump,
		end:     append([]byte(compact(endSource)), 0),
	}
	s.args = commandLine(len(boot), runCommand)
	s.endArgs = commandLine(len(s.end)-1, "")
	return s
}

// runCommand is the end of a command line: the command runs at its top level, without the reports' descriptors.
const runCommand = `; builtin : "$BASH"; { builtin eval -- "$BASH_EXECUTION_STRING"; } 193>&- 194>&-`

// commandLine is bash's arguments: read a text of n bytes from stdin and evaluate it, then the rest. It holds no ', \ , !
// nor newline, so that any login shell on the far side of ssh passes it on unharmed.
func commandLine(n int, rest string) []string {
	read := fmt.Sprintf(`IFS= read -r -N %d BASH_EXECUTION_STRING 2>/dev/null || IFS= read -r -d "" BASH_EXECUTION_STRING; eval "$BASH_EXECUTION_STRING"`, n)
	return []string{"--noprofile", "--norc", "-p", "-c", read + rest}
}

// TextArgs are the arguments of a bash that reads a text of n bytes, which a NUL follows, from stdin and evaluates it. One that
// can count (bash 4.1) leaves the NUL to the text.
func TextArgs(n int) []string { return commandLine(n, "") }

// Compact drops comment lines and indentation from a script whose indentation is tabs: bash reads every byte.
func Compact(source string) string { return compact(source) }

// compact drops comment lines and indentation: bash reads every byte.
func compact(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimLeft(line, "\t")
		if line == "\n" || strings.HasPrefix(line, "#") {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// Args are the arguments with which a bash for a call is started that reads Boot first, EndArgs those for one that ends
// trees.
func (s *Scripts) Args() []string { return s.args }

// FileArgs are the arguments of a bash that finds the boot text in a file, where an earlier one has put it (Load.Boot);
// that costs less than to read it from a pipe; where the file is gone or was cut short, the bash leaves. ok is false where
// the path cannot stand in a command line.
func (s *Scripts) FileArgs(file string) (args []string, ok bool) {
	if strings.ContainsAny(file, "'\"\\!$`\n") {
		return nil, false
	}
	return []string{"--noprofile", "--norc", "-p", "-c", `BASH_EXECUTION_STRING=exit; . "` + file + `"` + runCommand}, true
}

// EndArgs are the arguments of a bash that reads the text of End.
func (s *Scripts) EndArgs() []string { return s.endArgs }

// Boot is what a bash for a call reads first.
func (s *Scripts) Boot() []byte { return s.boot }

// End is what a bash started with EndArgs reads first; see end.go.
func (s *Scripts) End() []byte { return s.end }

// Load is the first message: which state to load.
type Load struct {
	Token  string   // of this bash's reports, from NewToken
	Mark   Mark     // the rlimit mark of its processes
	Slot   string   // the state file to write; made by the bash
	From   string   // the state file to load; "" for a bash that keeps its environment
	Record string   // one line without newline: what is written into the slot until the command has ended
	Drop   []string // files to truncate
	Linger bool     // stay while there are background children
	Boot   string   // a file to write the boot text to; only for a bash that has read it from stdin
}

// head begins the EXIT trap.
func (l Load) head() string {
	return "ew_token=" + Quote(l.Token) + " ew_slot=" + Quote(l.Slot) + " ew_from=" + Quote(l.From) + " ew_linger=" + flag(l.Linger)
}

// EndTrap is the text of the EXIT trap of a bash that was told to load l, for a command that has to set it again.
func (s *Scripts) EndTrap(l Load) string {
	return "{ ew_x=$? " + l.head() + " ew_split= ew_check= ew_trap= ew_kind=E " + s.endTrap
}

// Load encodes a first message.
func (s *Scripts) Load(l Load) []byte {
	return message("ew_token=" + Quote(l.Token) + " ew_mark=" + strconv.FormatUint(uint64(l.Mark), 10) +
		" ew_slot=" + Quote(l.Slot) + " ew_from=" + Quote(l.From) + " ew_boot=" + Quote(l.Boot) +
		" ew_head=" + Quote(l.head()) + " ew_record=" + Quote(l.Record) + " ew_drop=(" + quoteAll(l.Drop) + ")")
}

// Run is the second message: what to run, and how.
type Run struct {
	Cwd      string   // the session's directory: absolute
	Dir      string   // the directory for this call alone, or ""
	Stdin    bool     // the command's stdin follows on the pipe; else it is empty
	Terminal bool     // stdin is the terminal that stdout is; not with Split
	Go       string   // a line that has to come from the terminal before the bash goes on; "" for none
	Split    bool     // keep stdout and stderr apart
	ExitTrap bool     // the text sets an EXIT trap of its own
	Env      []string // names and values, alternating: variables of this call alone
	Setup    string   // bash text run before the command, in the place of Env; trusted
	Command  string   // no NUL
}

// goSeconds is how long a bash waits for Run.Go. It comes at once, or never.
const goSeconds = "60"

// Run encodes a second message.
func (s *Scripts) Run(r Run) []byte {
	var names, set, last strings.Builder
	for i := 0; i+1 < len(r.Env); i += 2 {
		names.WriteString(" " + r.Env[i])
		into := &set
		switch r.Env[i] {
		case "LC_ALL", "TMOUT", "POSIXLY_CORRECT":
			into = &last // they change how text is read
		}
		into.WriteString("builtin export " + r.Env[i] + "=" + Quote(r.Env[i+1]) + "\n")
	}
	check := flag(strings.Contains(r.Command, "builtin"))
	stdin := flag(r.Stdin)
	if r.Terminal {
		stdin = "2"
	}
	wait := ""
	if r.Go != "" {
		wait = "IFS= builtin read -r -s -t " + goSeconds + " ew_x <&193 && [[ $ew_x == " + Quote(r.Go) + " ]] || builtin exit 0\n"
	}
	text := wait + "ew_cwd=" + Quote(r.Cwd) + " ew_dir=" + Quote(r.Dir) + " ew_stdin=" + stdin + " ew_split=" + flag(r.Split) +
		" ew_trap=" + flag(r.ExitTrap) + " ew_check=" + check + " ew_names=(" + names.String() + ") ew_set=" + Quote(set.String()+r.Setup) + " ew_last=" + Quote(last.String()) +
		" BASH_EXECUTION_STRING=" + Quote(r.Command)
	return message(text)
}

func message(text string) []byte {
	b := make([]byte, 0, len(text)+12)
	b = strconv.AppendInt(b, int64(len(text)), 10)
	b = append(b, '\n')
	b = append(b, text...)
	return append(b, 0)
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}

// Quote makes s one bash word, byte for byte, in any locale whose characters leave ASCII alone and in C. s must not
// hold a NUL.
func Quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	return strings.Join(quoted, " ")
}
