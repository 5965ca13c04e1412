package bashscript

import "strings"

// A bash on a terminal finds what others read from stdin (the boot text and both messages) in a file, since what is read from a
// terminal is echoed and changed by it. The file is 0600 in a directory of 0700, is emptied by the bash before the command
// begins, and is removed by its writer. Between the report that it is ready and the command the bash waits for a word on the terminal
// (Run.Go): one whose report was lost on the way never runs the command, so that another may be started in its place.

// TerminalArgs are the arguments of a bash that reads Boot and the two messages from file. ok is false where the path cannot stand
// in a command line.
func (s *Scripts) TerminalArgs(file string) (args []string, ok bool) {
	if strings.ContainsAny(file, "'\"\\!$`\n") {
		return nil, false
	}
	args = commandLine(len(s.boot)-1, runCommand)
	last := len(args) - 1
	args[last] = `exec <"` + file + `"; ` + args[last]
	return args, true
}

// Receive is bash text that writes what follows it on stdin, to the end, to a new file that nobody else can read, and then
// prints done. Stdin ends with a NUL.
func Receive(file, done string) string {
	return "LC_ALL=C\n(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401 )) || IFS= read -r -d '' x\numask 077\n" +
		"while IFS= read -r -d '' x; do printf '%s\\0' \"$x\"; done >" + Quote(file) + " && printf '%s.\\n' " + Quote(done) + "\n"
}

// ReceiveProgram is Receive of one text without NUL, to a file that its user alone can read and run.
func ReceiveProgram(file, done string) string {
	return "LC_ALL=C\n(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 401 )) || IFS= read -r -d '' x\numask 077\n" +
		"IFS= read -r -d '' x && printf '%s' \"$x\" >" + Quote(file) + " && chmod 700 " + Quote(file) + " && { [[ -x " + Quote(file) + " ]] || { rm -f " + Quote(file) + "; exit 1; }; } && printf '%s.\\n' " + Quote(done) + "\n"
}

// Empty is bash text that empties a file.
func Empty(file string) string { return "builtin : >|" + Quote(file) + "\n" }

// Interactive is the text of a command that becomes an interactive bash with the session's state; file, which is there, holds its
// start-up text for a moment. What the EXIT trap of this bash reports and saves, that one reports and saves. It reads no start-up
// file of the user's, whose settings the state has, and so keeps no history file, which bash would cut to its own default length.
func Interactive(file string) string {
	return `{
builtin trap -p EXIT
[[ ${PS1+x} ]] || builtin printf '%s\n' "PS1='\\u@\\h:\\w\\\$ '"
[[ ${HISTFILE+x} ]] || builtin printf 'builtin unset -v HISTFILE\n'
builtin shopt -p extglob
builtin printf 'builtin : >|%q\n' ` + Quote(file) + `
builtin declare -f
builtin alias -p
} >|` + Quote(file) + ` && builtin exec -a bash "$BASH" --noprofile --rcfile ` + Quote(file) + ` -i
`
}

// HangUpArgs are the arguments of a bash that sends HUP to a terminal's first process and its group.
func HangUpArgs(pid string) []string {
	return []string{"--noprofile", "--norc", "-p", "-c", "kill -HUP -- -" + pid + " || kill -HUP " + pid}
}
