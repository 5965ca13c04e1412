// Package jobscript is the bash side of background jobs, and nothing else knows it.
//
// A job is launched by an ordinary call of its session (launch.sh in place of the command), so it has all that a call has. The launcher
// starts a supervisor (supervise.sh) in a bash and a process group of its own, which outlives the call; the supervisor starts the job
// in a bash of its own (start.sh), waits for it and writes down how it ended, while its other half keeps the output. Texts and
// variables travel through a pipe and through exec, never in an argument or a file.
//
// What is known of job ID are flat files in the sandbox's state directory, of mode 0600:
//
//	job-ID.meta   one line of JSON (Meta), written by the launcher before anything is started
//	job-ID.run    SUPERVISOR START JOB START TIME INPUT . (pids, their start times in ticks, seconds since 1970, 0 or 1)
//	job-ID.end    CODE WHY TIME .
//	job-ID.log    OFFSET:N ... and . or, when no more output can come, ! (which parts of the output job-ID.log.N holds)
//	job-ID.log.N  eight of them: the window of output
//	job-ID.in     its input, a fifo
//	job-ID.eof, job-ID.kill   the input was closed; the job is being killed
//	job-ID.tty    JOB START . of a job on a terminal, written by itself when it has that
//
// A line without its last word was not written to its end. The supervisor carries the id Meta.Supervisor in ELSEWHERE_CALL, the job Meta.ID, and
// both Meta.Supervisor in ELSEWHERE_SESSION; Meta.Mark is the job's rlimit mark, whose session part is the supervisor's too. So the end of the
// call or session that launched a job does not touch it.
//
// A job on a terminal stands between the same fifo and the same window: what holds its terminal (script of util-linux, or terminal.py) is the supervisor's child
// and carries its marks, so that the end of the job's tree leaves it alone, and it passes on what they print at their end. The terminal's session is led by the job's
// bash itself (lead.sh), which tells its number.
//
// Everything runs on bash 3.2 to 5.3. It uses mkfifo, dd, head, cat and rm where they are; with bash alone there is no
// input, and the log's bytes pass through bash, which is slower.
package jobscript

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

//go:embed launch.sh
var launchSource string

//go:embed supervise.sh
var superviseSource string

//go:embed start.sh
var startSource string

//go:embed lead.sh
var leadSource string

//go:embed terminal.py
var terminalSource string

//go:embed ask.sh
var askSource string

//go:embed list.sh
var listSource string

//go:embed read.sh
var readSource string

//go:embed act.sh
var actSource string

// MinLog is the smallest window of output.
const MinLog = 64 << 10

// Launch says what is launched.
type Launch struct {
	Dir      string // the state directory
	Name     string // the job's short id
	Meta     string // one line
	ID       string // the job's id, 32 hexadecimal digits; Supervisor is its supervisor's
	Sup      string
	Mark     bashscript.Mark // the job's
	SupMark  bashscript.Mark // of the same session part
	LogBytes int64
	Lifetime time.Duration // 0 is none
	Grace    time.Duration
	Token    string // of the launcher's answer
	Command  string
	Terminal *Size               // nil where it has none
	End      *bashscript.Scripts // to end the job's tree when its lifetime is over
}

// Size is a terminal's, in characters.
type Size struct{ Rows, Cols uint16 }

// Text is the bash text that a call runs in place of a command. Its output is read with ParseLaunch.
func (l Launch) Text() string {
	base := l.Dir + "/job-" + l.Name
	end, endArgs := "", ""
	lifetime := int64(0)
	if l.Lifetime > 0 {
		lifetime = max(1, int64(l.Lifetime/time.Second))
		end = strings.TrimSuffix(string(l.End.End()), "\x00")
		endArgs = script(l.End.EndArgs())
	}
	start := bashscript.Compact(startSource)
	const args = `IFS= read -r -d "" -u 9 BASH_EXECUTION_STRING; eval "$BASH_EXECUTION_STRING"; builtin : "$BASH"; builtin eval -- "$BASH_EXECUTION_STRING"`
	lead, python := "", ""
	if l.Terminal != nil {
		lead = assign("ew_base", base, "ew_call", l.ID, "ew_mark", mark(l.Mark), "ew_args", args,
			"ew_rows", number(int64(l.Terminal.Rows)), "ew_cols", number(int64(l.Terminal.Cols))) + bashscript.Compact(leadSource)
		python = terminalSource
	}
	supervise := assign(
		"ew_base", base, "ew_token", l.Token, "ew_id", l.Sup, "ew_call", l.ID, "ew_mark", mark(l.Mark),
		"ew_cap", number(max(l.LogBytes, MinLog)), "ew_lifetime", number(lifetime), "ew_grace", number(l.Grace.Milliseconds()),
		"ew_args", args, "ew_end", end, "ew_endargs", endArgs, "ew_lead", lead, "ew_python", python,
	) + bashscript.Compact(superviseSource)
	return assign(
		"ew_token", l.Token, "ew_base", base, "ew_dir", l.Dir, "ew_meta", l.Meta, "ew_command", l.Command,
		"ew_supervise", supervise, "ew_start", start, "ew_args", script(bashscript.TextArgs(len(supervise))),
		"ew_id", l.Sup, "ew_mark", mark(l.SupMark),
	) + bashscript.Compact(launchSource)
}

// Launched is what became of a launch.
type Launched struct {
	Started bool
	Taken   bool // the short id is another job's: nothing was started
	// NoHolder says that nothing there can hold a terminal, NoTerminal that the sandbox gave none: nothing was started.
	NoHolder, NoTerminal bool
	Ended                int // how many jobs that have ended are written down here
}

// ParseLaunch reads a launcher's output.
func ParseLaunch(token, output string) (l Launched) {
	for line := range strings.Lines(output) {
		_, word, ok := strings.Cut(strings.TrimSuffix(line, "\n"), token)
		if !ok {
			continue
		}
		word, rest, _ := strings.Cut(word, " ")
		switch word {
		case "started":
			l.Started = true
		case "taken":
			l.Taken = true
		case "noprogram":
			l.NoHolder = true
		case "noterminal":
			l.NoTerminal = true
		case "ended":
			l.Ended, _ = strconv.Atoi(rest) // what is no number is none
		}
	}
	return l
}

// List is a text for a bash started with bashscript.TextArgs: what is known of the named jobs, or of all.
func List(dir, token string, names ...string) string {
	return ask(dir, token, "ew_ids=("+words(names)+")\n", listSource)
}

// Read is a text that asks for at most most bytes of a job's output from byte after on, and waits for some, or for the job's end,
// for so long. Most 0 asks for the end alone.
func Read(dir, token, name string, after, most int64, wait time.Duration) string {
	return ask(dir, token, assign("ew_id", name, "ew_after", number(after), "ew_max", number(most),
		"ew_wait", number(int64((wait+99*time.Millisecond)/(100*time.Millisecond)))), readSource)
}

// What Act does to a job.
const (
	Send   = "send"   // bytes that follow on standard input to the end
	Close  = "close"  // its input
	Signal = "signal" // to its process group
	Mark   = "mark"   // it is about to be killed
	End    = "end"    // write down an end that its supervisor could not
)

// Act is a text that does verb to a job. signal is a name without SIG, for Signal alone.
func Act(dir, token, name, verb, signal string, now time.Time) string {
	return ask(dir, token, assign("ew_verb", verb, "ew_id", name, "ew_signal", signal, "ew_now", number(now.Unix()))+"ew_ids=()\n", actSource)
}

// Remove is a text that removes all files of the named jobs.
func Remove(dir, token string, names ...string) string {
	return ask(dir, token, assign("ew_verb", "remove")+"ew_ids=("+words(names)+")\n", actSource)
}

func ask(dir, token, more, source string) string {
	return assign("ew_dir", dir, "ew_token", token) + more + bashscript.Compact(askSource) + bashscript.Compact(source)
}

// assign is bash text that sets variables, names and values in turns.
func assign(pairs ...string) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(pairs[i] + "=" + bashscript.Quote(pairs[i+1]) + "\n")
	}
	return b.String()
}

func words(all []string) string {
	quoted := make([]string, len(all))
	for i, w := range all {
		quoted[i] = bashscript.Quote(w)
	}
	return strings.Join(quoted, " ")
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func mark(m bashscript.Mark) string { return strconv.FormatUint(uint64(m), 10) }

// script is the text behind -c.
func script(args []string) string { return args[len(args)-1] }
