package exitmeaning

import (
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

// row is one exit code of some commands.
type row struct {
	commands string // names, separated by spaces
	sub      string // the first words that are no options, "" for any: "diff", "tag list"
	with     string // options of which one must be there, "" for none
	without  string // options of which none may be there
	code     int
	text     string
}

// table has codes that are answers, not failures, or whose number says more than the command prints. What a command
// says well itself is not in it.
var table = []row{
	// Searching. With -L the code's sense has changed between versions of grep.
	{"grep egrep fgrep zgrep rg ag ack", "", "", "-L --files-without-match", 1, "no match"},
	{"git", "grep", "", "-L --files-without-match", 1, "no match"},
	{"find", "", "", "", 1, "partial: some paths could not be read, the rest of the result is there"},
	{"pgrep pidof", "", "", "", 1, "no such process"},
	{"pkill killall", "", "", "", 1, "no process matched"},
	{"lsof", "", "", "", 1, "nothing found"},
	{"which type hash", "", "", "", 1, "not found"},
	{"getent", "", "", "", 2, "not found"},

	// Comparing and asking.
	{"diff colordiff sdiff zdiff diff3", "", "", "", 1, "the files differ"},
	{"cmp zcmp", "", "", "", 1, "the files differ"},
	{"diff colordiff sdiff zdiff diff3 cmp zcmp", "", "", "", 2, "a file could not be read"},
	{"test [ [[", "", "", "", 1, "the condition is false"},
	{"test [ [[", "", "", "", 2, "the condition is malformed"},
	{"let", "", "", "", 1, "the expression is 0 (false)"},
	{"expr", "", "", "", 1, "the result is 0 or empty"},
	{"jq", "", "-e --exit-status", "", 1, "the last result is false or null"},
	{"jq", "", "-e --exit-status", "", 4, "there was no result"},
	{"mountpoint", "", "", "", 32, "not a mount point"},
	{"systemctl", "is-active", "", "", 3, "the unit is not active"},
	{"systemctl", "status", "", "", 3, "the unit is not running"},
	{"systemctl", "is-enabled", "", "", 1, "the unit is not enabled"},
	{"systemctl", "", "", "", 4, "no such unit"},
	{"tmux", "has-session has", "", "", 1, "no such session"},
	{"dpkg", "", "-s --status -l --list", "", 1, "not installed"},
	{"rpm", "", "-q --query", "", 1, "not installed"},
	{"pip pip3", "show", "", "", 1, "not installed"},
	{"npm", "outdated", "", "", 1, "some packages are outdated"},
	{"dnf yum", "check-update", "", "", 100, "updates are available"},
	{"crontab", "", "-l", "", 1, "no crontab"},
	{"read", "", "", "", 1, "end of input"},

	// git.
	{"git", "diff", "--exit-code --quiet --no-index", "", 1, "there are differences"},
	{"git", "diff-index diff-files diff-tree", "--exit-code --quiet", "", 1, "there are differences"},
	{"git", "merge-base", "--is-ancestor", "", 1, "not an ancestor"},
	{"git", "check-ignore", "", "", 1, "no path is ignored"},
	{"git", "ls-remote", "--exit-code", "", 2, "no matching ref"},
	{"git", "show-ref", "", "", 1, "no matching ref"},
	{"git", "ls-files", "--error-unmatch", "", 1, "not a tracked file"},
	{"git", "config", "", "", 1, "the key is not set or not valid"},
	{"git", "merge rebase cherry-pick revert", "", "", 1, "usually conflicts that need to be resolved"},
	{"git", "", "", "", 128, "git gave up (fatal error)"},
	{"git", "", "", "", 129, "wrong usage of git"},

	// The network.
	{"curl", "", "", "", 3, "malformed URL"},
	{"curl", "", "", "", 6, "the host name could not be resolved"},
	{"curl", "", "", "", 7, "could not connect"},
	{"curl", "", "", "", 22, "the server answered with an HTTP error (400 or above)"},
	{"curl", "", "", "", 23, "the output could not be written"},
	{"curl", "", "", "", 28, "timed out"},
	{"curl", "", "", "", 35, "the TLS handshake failed"},
	{"curl", "", "", "", 47, "too many redirects"},
	{"curl", "", "", "", 52, "the server answered nothing"},
	{"curl", "", "", "", 56, "the connection broke while receiving"},
	{"curl", "", "", "", 60, "the server's certificate could not be verified"},
	{"wget", "", "", "", 4, "network failure"},
	{"wget", "", "", "", 5, "the server's certificate could not be verified"},
	{"wget", "", "", "", 6, "authentication failed"},
	{"wget", "", "", "", 8, "the server answered with an error"},
	{"ping ping6", "", "", "", 1, "no reply"},
	{"ssh scp sftp", "", "", "", 255, "ssh itself failed (connection, host key or login)"},
	{"sshpass", "", "", "", 5, "wrong password"},
	{"sshpass", "", "", "", 6, "the host key is unknown"},
	{"rsync", "", "", "", 23, "partial transfer: some files were not transferred"},
	{"rsync", "", "", "", 24, "partial transfer: some source files vanished"},
	{"rsync", "", "", "", 30, "timed out"},
	{"rsync", "", "", "", 255, "ssh itself failed (connection, host key or login)"},

	// Building and testing.
	{"make gmake", "", "-q --question", "", 1, "not up to date"},
	{"make gmake", "", "", "", 2, "a recipe failed, or the makefile has an error"},
	{"pytest py.test", "", "", "", 1, "some tests failed"},
	{"pytest py.test", "", "", "", 2, "interrupted, or tests could not be collected"},
	{"pytest py.test", "", "", "", 3, "internal error of pytest"},
	{"pytest py.test", "", "", "", 4, "wrong usage of pytest"},
	{"pytest py.test", "", "", "", 5, "no tests were collected"},
	{"unittest", "", "", "", 1, "some tests failed"},
	{"unittest", "", "", "", 5, "no tests were run"},
	{"go", "test", "", "", 1, "tests or the build failed"},
	{"cargo", "test", "", "", 101, "tests or the build failed"},
	{"cargo", "build check clippy run", "", "", 101, "the build failed"},
	{"mypy", "", "", "", 1, "type errors were found"},
	{"tsc", "", "", "", 1, "type errors were found, no output written"},
	{"tsc", "", "", "", 2, "type errors were found"},
	{"ruff", "check", "", "", 1, "problems were found"},
	{"flake8 shellcheck golangci-lint", "", "", "", 1, "problems were found"},
	{"eslint", "", "", "", 1, "problems were found"},
	{"eslint", "", "", "", 2, "eslint itself failed (configuration or internal error)"},
	{"black", "", "--check", "", 1, "some files would be reformatted"},
	{"ruff", "format", "--check", "", 1, "some files would be reformatted"},
	{"prettier", "", "--check -c --list-different -l", "", 1, "some files would be reformatted"},
	{"terraform tofu", "plan", "-detailed-exitcode", "", 2, "there are changes to apply"},

	// Running other commands.
	{"timeout gtimeout", "", "", "", 124, "the timeout command ended it"},
	{"timeout gtimeout", "", "", "", 125, "the timeout command itself failed"},
	{"xargs", "", "", "", 123, "a command that xargs ran failed"},
	{"xargs", "", "", "", 124, "a command that xargs ran exited with 255"},
	{"xargs", "", "", "", 125, "a command that xargs ran was killed by a signal"},
	{"docker podman", "run exec", "", "", 125, "docker itself failed, not the command in the container"},

	// Packing.
	{"tar", "", "", "", 1, "some files changed while they were read, or differ"},
	{"zip", "", "", "", 12, "nothing to do"},
	{"unzip", "", "", "", 1, "finished with warnings"},
	{"unzip", "", "", "", 11, "no file matched"},
	{"apt-get apt", "", "", "", 100, "the package operation failed"},
}

// rows is table by name.
var rows = func() map[string][]row {
	m := map[string][]row{}
	for _, r := range table {
		for name := range strings.FieldsSeq(r.commands) {
			m[name] = append(m[name], r)
		}
	}
	// `command -v x` is seen through only where it runs x.
	m["command -v"] = []row{{code: 1, text: "not found"}}
	return m
}()

// matches reports whether the arguments are those that the row is about.
func (r row) matches(args []shellwords.Word) bool {
	if r.sub != "" && !slices.Contains(strings.Fields(r.sub), subcommand(args)) {
		return false
	}
	if r.with != "" && !hasOption(args, r.with) {
		return false
	}
	return r.without == "" || !hasOption(args, r.without)
}

// subcommand returns the first argument that is no option. Of git's options before it, those with a value are known.
func subcommand(args []shellwords.Word) string {
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case !a.Literal:
			return ""
		case a.Text == "-C", a.Text == "-c", a.Text == "--git-dir", a.Text == "--work-tree", a.Text == "--namespace":
			i++
		case !strings.HasPrefix(a.Text, "-"):
			return a.Text
		}
	}
	return ""
}

// hasOption reports whether one of the options, separated by spaces, is among the arguments before "--": a long one or
// one letter, also among others ("-rL").
func hasOption(args []shellwords.Word, options string) bool {
	for _, a := range args {
		if a.Is("--") {
			return false
		}
		if !a.Literal || len(a.Text) < 2 || a.Text[0] != '-' {
			continue
		}
		for option := range strings.FieldsSeq(options) {
			name, _, _ := strings.Cut(a.Text, "=")
			if name == option {
				return true
			}
			if len(option) == 2 && a.Text[1] != '-' && strings.IndexByte(letters(a.Text[1:]), option[1]) >= 0 {
				return true
			}
		}
	}
	return false
}

// letters returns the leading ASCII letters of s: the options of a cluster before a value such as a number.
func letters(s string) string {
	for i := range len(s) {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return s[:i]
		}
	}
	return s
}

// stage are the commands before && that are taken to have worked.
var stage = map[string]bool{
	"cd": true, "pushd": true, "popd": true, "pwd": true, "echo": true, "printf": true, "sleep": true, "clear": true,
	"set": true, "unset": true, "shopt": true, "alias": true, "umask": true, "ulimit": true, "trap": true,
	"source": true, ".": true, "true": true, ":": true, "date": true, "wait": true,
}

// generic returns what a code means whatever the command is.
func generic(code int) string {
	switch code {
	case 126:
		return "found but not executable (permission, or not a program)"
	case 127:
		return "command not found"
	}
	return signals[code-128]
}

// signals are by Linux's numbers: what runs a bash elsewhere is nearly always Linux, and the common ones are the same
// everywhere.
var signals = map[int]string{
	1:  "ended by SIGHUP (the terminal or connection went away)",
	2:  "interrupted (SIGINT)",
	3:  "ended by SIGQUIT",
	4:  "crashed: illegal instruction (SIGILL), often a program built for another processor",
	6:  "aborted (SIGABRT), often a failed assertion",
	7:  "crashed: bus error (SIGBUS)",
	8:  "crashed: arithmetic error (SIGFPE), often a division by zero",
	9:  "killed by SIGKILL (often out of memory)",
	11: "crashed: segmentation fault (SIGSEGV)",
	13: "ended by SIGPIPE (nobody read its output any more)",
	14: "ended by SIGALRM",
	15: "ended by SIGTERM",
	24: "ended by SIGXCPU (limit of CPU time)",
	25: "ended by SIGXFSZ (limit of file size)",
	31: "ended by SIGSYS (a system call that is not allowed)",
}
