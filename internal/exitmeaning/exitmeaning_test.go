package exitmeaning

import (
	"strings"
	"testing"
	"time"
)

const (
	noMatch  = "no match"
	differ   = "the files differ"
	isFalse  = "the condition is false"
	notFound = "command not found"
	oom      = "killed by SIGKILL (often out of memory)"
	pipe     = "ended by SIGPIPE (nobody read its output any more)"
	term     = "ended by SIGTERM"
	recipe   = "a recipe failed, or the makefile has an error"
	curl22   = "the server answered with an HTTP error (400 or above)"
)

func TestMeaning(t *testing.T) {
	for _, tc := range []struct {
		name    string
		command string
		code    int
		want    string
	}{
		// One command.
		{"success needs no meaning", "grep x f", 0, ""},
		{"an unknown code needs none either", "grep x f", -1, ""},
		{"grep that finds nothing", "grep x f", 1, noMatch},
		{"grep that fails says so itself", "grep x f", 2, ""},
		{"ripgrep that finds nothing", "rg -n x src", 1, noMatch},
		{"grep -L has the sense that its version gives it", "grep -rL x .", 1, ""},
		{"an option after -- is a name", "grep x -- -L", 1, noMatch},
		{"a path is its last part", "/usr/bin/grep x f", 1, noMatch},
		{"a quoted name is the same name", `'grep' x f`, 1, noMatch},
		{"a name that is escaped past an alias is the same name", `\grep x f`, 1, noMatch},
		{"diff of files that differ", "diff a b", 1, differ},
		{"cmp of files that differ", "cmp -s a b", 1, differ},
		{"test", "test -f x", 1, isFalse},
		{"bracket", "[ -f x ]", 1, isFalse},
		{"double bracket", "[[ a == b ]]", 1, isFalse},
		{"arithmetic", "(( 0 ))", 1, "the expression is 0 (false)"},
		{"let", "let x=0", 1, "the expression is 0 (false)"},
		{"find with paths that it may not read", "find / -name x", 1, "partial: some paths could not be read, the rest of the result is there"},
		{"curl without a name server's answer", "curl http://x.invalid", 6, "the host name could not be resolved"},
		{"curl without a connection", "curl localhost:1", 7, "could not connect"},
		{"curl -f with an HTTP error", "curl -fsS http://x", 22, curl22},
		{"curl in time", "curl -m 1 http://x", 28, "timed out"},
		{"git diff --exit-code", "git diff --exit-code", 1, "there are differences"},
		{"git diff --quiet with options of git before", "git -C /x --no-pager diff --quiet HEAD", 1, "there are differences"},
		{"git diff alone has no such code", "git diff", 1, ""},
		{"a branch is no subcommand", "git log grep", 1, ""},
		{"git grep", "git grep x", 1, noMatch},
		{"git's 128 is no signal", "git status", 128, "git gave up (fatal error)"},
		{"git's 129 is no signal either", "git status --nope", 129, "wrong usage of git"},
		{"make", "make -j4 all", 2, recipe},
		{"timeout that struck", "timeout 5 grep x f", 124, "the timeout command ended it"},
		{"timeout that did not", "timeout -k 1 5s grep x f", 1, noMatch},
		{"ssh that did not connect", "ssh -p 22 host uptime", 255, "ssh itself failed (connection, host key or login)"},
		{"what ran over ssh is not known", "ssh host grep x f", 1, ""},
		{"pytest with failures", "pytest -q", 1, "some tests failed"},
		{"pytest without tests", "python3 -m pytest tests", 5, "no tests were collected"},
		{"pytest behind a runner", "uv run pytest", 1, "some tests failed"},
		{"a runner's other command", "uv pip install x", 1, ""},
		{"command -v", "command -v nope", 1, "not found"},
		{"a command without a row", "frobnicate", 1, ""},

		// Codes of the shell.
		{"a command that is not there", "nope", 127, notFound},
		{"one that may not be run", "./data.txt", 126, "found but not executable (permission, or not a program)"},
		{"KILL", "python train.py", 137, oom},
		{"TERM", "sleep 100", 143, term},
		{"SEGV", "./a.out", 139, "crashed: segmentation fault (SIGSEGV)"},
		{"PIPE", "yes", 141, pipe},
		{"a signal without a row", "x", 128 + 40, ""},
		{"codes beyond signals", "x", 255, ""},
		{"a missing command whose name is a variable's", "$EDITOR x", 127, notFound},
		{"exit with that code is no missing command", "true; exit 127", 127, ""},
		{"an unset variable ends with 127 too", "set -u; echo $x", 127, ""},
		{"so does one that is demanded", "echo ${x:?missing}", 127, ""},

		// What is seen through.
		{"assignments before the command", "LC_ALL=C x=$(date) grep x f", 1, noMatch},
		{"sudo", "sudo grep x f", 1, noMatch},
		{"sudo with options", "sudo -n -u bob -- grep x f", 1, noMatch},
		{"sudo with a cluster of options", "sudo -nEu bob grep x f", 1, noMatch},
		{"sudo with an option that is not known", "sudo --frob grep x f", 1, ""},
		{"sudo with an assignment", "sudo A=1 grep x f", 1, noMatch},
		{"env", "env -i -u X A=1 B=2 grep x f", 1, noMatch},
		{"nohup", "nohup grep x f", 1, noMatch},
		{"time as a word of the shell", "time -p grep x f", 1, noMatch},
		{"time as a program", "/usr/bin/time -v -o log grep x f", 1, noMatch},
		{"command", "command grep x f", 1, noMatch},
		{"builtin", "builtin test -f x", 1, isFalse},
		{"exec", "exec grep x f", 1, noMatch},
		{"nice with a number", "nice -5 grep x f", 1, noMatch},
		{"several of them", "sudo env A=1 nohup nice -n 5 timeout 10 grep x f", 1, noMatch},
		{"bash -c", "bash -c 'grep x f'", 1, noMatch},
		{"bash -c with options", "bash -euo pipefail -c 'make; grep x f'", 1, ""},
		{"bash -lc", `bash -lc "cd x && grep x f"`, 1, noMatch},
		{"bash with a file", "bash grep", 1, ""},
		{"xargs speaks for itself", "ls | xargs grep x", 123, "a command that xargs ran failed"},

		// Lists.
		{"the last of a list decides", "make; grep x f", 1, noMatch},
		{"not the first", "grep x f; make", 1, ""},
		{"lines are a list", "make\ngrep x f\n", 1, noMatch},
		{"a comment is nothing", "grep x f # ; make", 1, noMatch},
		{"of || the second decides", "make || grep x f", 1, noMatch},
		{"a second that cannot fail does not", "grep x f || true", 1, ""},
		{"nor does one without a meaning", "grep x f || echo none", 1, ""},
		{"of && either decides", "make && grep x f", 1, ""},
		{"of && with one meaning it has that", "grep x f && grep y f", 1, noMatch},
		{"of && with two meanings none", "grep x f && diff a b", 1, ""},
		{"a code that only one side has", "grep x f && curl -f http://x", 22, ""},
		{"cd before && only sets the stage", "cd /x && grep x f", 1, noMatch},
		{"so do several", "cd /x && export A=1 && echo hi && grep x f", 1, noMatch},
		{"but not what is between", "cd /x && make && grep x f", 1, ""},
		{"a found match before && can be the one", "grep -q x f && echo yes", 1, ""},
		{"a test before &&", "[ -f x ] && [ -f y ]", 1, isFalse},
		{"a command in the background never fails", "grep x f &", 1, ""},
		{"exit decides for itself", "grep x f; exit 1", 1, ""},
		{"an exit that may have come before", "cd /x || exit 1; grep x f", 1, ""},
		{"an exit with another code did not", "cd /x || exit 3; grep x f", 1, noMatch},
		{"an exit in a subshell leaves only that", "(exit 1); grep x f", 1, noMatch},
		{"an exit in a function may be reached", "die() { exit 1; }; test -d x || die; grep x f", 1, ""},
		{"a trap on EXIT that exits", "trap 'exit 1' EXIT; grep x f", 1, ""},
		{"a trap on EXIT that cleans up", "trap 'rm -f t' EXIT; grep x f", 1, noMatch},
		{"under errexit every one decides", "set -e; make; grep x f", 1, ""},
		{"under errexit with one meaning it has that", "set -e\ngrep x f\ngrep y f", 1, noMatch},
		{"errexit that was taken back", "set -e; set +e; make; grep x f", 1, noMatch},
		{"exec ends the list", "exec make; grep x f", 1, ""},

		// Pipelines.
		{"the last of a pipeline decides", "cat f | grep x", 1, noMatch},
		{"not one before", "grep x f | wc -l", 1, ""},
		{"|& is a pipeline", "make |& grep x", 1, noMatch},
		{"under pipefail any of them", "set -o pipefail; cat f | grep x", 1, ""},
		{"under pipefail with one meaning it has that", "set -euo pipefail; grep x f | grep y", 1, noMatch},
		{"pipefail after it does not matter", "cat f | grep x; set -o pipefail", 1, ""},
		{"pipefail and a closed pipe", "set -o pipefail; yes | head -1", 141, pipe},
		{"pipefail in a subshell stays there", "(set -o pipefail); cat f | grep x", 1, noMatch},

		// Compounds.
		{"a negation turns it around", "! grep x f", 1, ""},
		{"a negated pipeline too", "! cat f | grep x", 1, ""},
		{"a subshell", "(cd /x; grep x f)", 1, noMatch},
		{"a block", "{ make; grep x f; } 2>&1", 1, noMatch},
		{"the branch of an if", "if make; then grep x f; fi", 1, noMatch},
		{"the condition of an if decides nothing", "if grep x f; then make; fi", 1, ""},
		{"branches with one meaning", "if a; then grep x f; else grep y f; fi", 1, noMatch},
		{"branches with two", "if a; then grep x f; elif b; then diff a b; fi", 1, ""},
		{"a branch that cannot fail", "if a; then grep x f; else true; fi", 1, noMatch},
		{"a loop", "for f in a b; do echo $f; grep x $f; done", 1, noMatch},
		{"a loop with while", "while read l; do grep x $l; done < f", 1, noMatch},
		{"a case", "case $x in a) grep x f ;; b) grep y f ;; esac", 1, noMatch},
		{"an assignment ends as its substitution", `x=$(grep x f)`, 1, noMatch},
		{"a quoted one too", `x="$(cat f | grep x)"`, 1, noMatch},
		{"export hides it", `export x=$(grep x f)`, 1, ""},
		{"a function's call is not followed", "f() { grep x f; }; f", 1, ""},
		{"a function in a command's name", "grep() { make; }; grep x f", 1, ""},
		{"an alias in a command's name", "alias grep='rm'\ngrep x f", 1, ""},

		// Data that looks like syntax.
		{"a quoted bar is data", `grep 'a|b' f`, 1, noMatch},
		{"a quoted && is data", `echo "x && grep y"`, 1, ""},
		{"a here-document is data", "cat <<E\ngrep x f\nE", 1, ""},
		{"a here-document's text decides nothing", "grep x <<E\n; make\nE", 1, noMatch},
		{"a name that is expanded is not known", "$GREP x f", 1, ""},
		{"a name with a tilde is not known", "~/grep x f", 1, ""},
		{"an expanded argument does not matter", `grep "$x" $f`, 1, noMatch},
		{"text that does not parse has no meaning", "grep x f; fi", 1, ""},
		{"an open quote has none", "grep 'x", 1, ""},
		{"no text has none", "", 127, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Meaning(tc.command, tc.code); got != tc.want {
				t.Errorf("%q with %d: got %q, want %q", tc.command, tc.code, got, tc.want)
			}
		})
	}
}

func TestTableIsReachable(t *testing.T) {
	for _, r := range table {
		for name := range strings.FieldsSeq(r.commands) {
			command := name
			if r.sub != "" {
				command += " " + strings.Fields(r.sub)[0]
			}
			if r.with != "" {
				command += " " + strings.Fields(r.with)[0]
			}
			if name == "[" || name == "[[" {
				command = name + " -f x " + strings.Repeat("]", len(name))
			}
			if name == "let" {
				command = "let x=0"
			}
			if name == "unittest" {
				command = "python -m unittest"
			}
			if got := Meaning(command, r.code); got != r.text {
				t.Errorf("%q with %d: got %q, want %q", command, r.code, got, r.text)
			}
		}
	}
}

func TestHugeCommandsAreNotParsed(t *testing.T) {
	// What is checked is that the answer is "": the guards stand before the parser. How long it takes is only logged.
	for name, command := range map[string]string{
		"a megabyte of data":              "cat > f <<E\n" + strings.Repeat("0123456789abcdef\n", 1<<16) + "E\ngrep x f",
		"a megabyte of brackets":          strings.Repeat("(", 1<<20),
		"brackets up to the limit":        strings.Repeat("(", maxSize),
		"brackets that quotes hide":       strings.Repeat("( ')'", maxSize/5),
		"closing brackets before others":  "x='" + strings.Repeat(")", maxSize/2) + "'; " + strings.Repeat("(", maxSize/3),
		"substitutions up to the limit":   strings.Repeat("$(", maxSize/2),
		"command words up to the limit":   strings.Repeat("a ", maxSize/2-10) + "; fi",
		"a pipeline up to the limit":      strings.Repeat("a|", maxSize/2-10) + "a",
		"statements up to the limit":      strings.Repeat("a;", maxSize/2-10) + "a",
		"if without end up to the limit":  strings.Repeat("if a; then ", maxSize/11),
		"functions in functions":          strings.Repeat("f() ", maxSize/4),
		"arithmetic that is none":         strings.Repeat("((", 100) + strings.Repeat("a+", maxSize/2-300),
		"backquotes":                      strings.Repeat("`", maxSize),
		"an expansion in each other":      strings.Repeat("${a:-", maxSize/5),
		"here-documents without an end":   strings.Repeat("<<E\n", maxSize/4),
		"bash in bash in bash":            strings.Repeat("bash -c '", 100),
		"calls with && up to the limit":   strings.Repeat("a &&", maxSize/4-10) + "a",
		"subshells that are closed again": strings.Repeat("(a);", 4000) + "a",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			if got := Meaning(command, 1); got != "" {
				t.Errorf("got %q", got)
			}
			t.Log(time.Since(start))
		})
	}
}

func FuzzMeaning(f *testing.F) {
	for _, s := range []string{
		"grep x f", "set -euo pipefail; a | grep 'x|y' || exit 1", "if a; then b; else c; fi", "sudo -u x env A=1 -- grep",
		"bash -c 'grep x'", "x=$(grep a b)", "case a in a) b;; esac", "for ((;;)); do a; done", "time", "! ! a", "shopt -uo x",
		"command -v", "exec", "env", "timeout", "coproc a", "select x in a; do b; done", "[[ a =~ b ]]", "trap", "set -o",
	} {
		f.Add(s, 1)
		f.Add(s, 127)
	}
	f.Fuzz(func(t *testing.T, command string, code int) {
		if got := Meaning(command, code); got != "" && (code <= 0 || code > 255 || strings.ContainsAny(got, "\n")) {
			t.Fatalf("%d means %q", code, got)
		}
	})
}

func BenchmarkMeaning(b *testing.B) {
	for name, command := range map[string]string{
		"one line":     "cd /x && cat f | grep -n 'a|b' | sort",
		"the limit":    strings.Repeat("echo 'some text' >> file\n", maxSize/25-1) + "grep x f",
		"1 MB is left": strings.Repeat("echo 'some text' >> file\n", 1<<20/25),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Meaning(command, 1)
			}
		})
	}
}
