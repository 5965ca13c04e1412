package drivertest

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// nativeGroup: a command does what `bash -c` does with it (SPEC 1.1, 1.7, 1.8). The observer runs each one with the same
// bash, $0 and directory, and stdout, stderr and exit code have to be the same.
func nativeGroup() group {
	g := group{name: "native"}
	for _, c := range nativeCommands {
		c.text = strings.TrimPrefix(c.text, "\n")
		g.cases = append(g.cases, testCase{name: "as in bash -c: " + c.name, run: func(t *test) { compareNative(t, c.text) }})
	}
	return g
}

// prologue matches what bash puts before its complaints about the text of `bash -c`; elsewhere's command line evaluates the
// same text, so there it is "eval" or nothing. Line numbers are not touched.
var prologue = regexp.MustCompile(`(?m)^(\S+: )(?:-c: |eval: )`)

// deadChild matches bash's report of a child that a signal ended, which names its pid.
var deadChild = regexp.MustCompile(`(?m)^(\S+ line \d+:) +\d+ ([A-Z])`)

// badCopy is bash's word on a saved descriptor that the command has closed.
var badCopy = regexp.MustCompile(`(?m)^\S+ (?:line \d+: )?\d+: Bad file descriptor\n`)

// oneLessTraced takes back what docs/contract.md says of a trace: it shows the first character of PS4 once more, since the
// command line evaluates the command's text.
func oneLessTraced(trace string) string {
	var b strings.Builder
	for line := range strings.Lines(trace) {
		if len(line) > 1 && line[0] == line[1] {
			line = line[1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// nativeSessions are sessions of the shared sandbox whose state is as it was at first, to be used again: opening one reads
// the login files, which is most of the cost of a case here.
type nativeSessions struct {
	mu   sync.Mutex
	free []*nativeSession
}

// nativeSession is one of them, with what is the same in each of its calls.
type nativeSession struct {
	*session
	state          []byte // what stateText printed at first
	shell, program string // $0 and $BASH
}

// stateText prints all that is carried but the directory.
const stateText = `export -p | grep -v -e OLDPWD -e ' PWD'; alias -p; declare -f; umask; shopt -p extglob`

// native gives a session in the case's hands, which the case puts back by free.
func (t *test) native() *nativeSession {
	t.Helper()
	pool := &t.r.natives
	pool.mu.Lock()
	var kept *nativeSession
	if n := len(pool.free); n > 0 {
		kept, pool.free = pool.free[n-1], pool.free[:n-1]
	}
	pool.mu.Unlock()
	if kept == nil {
		owner := &test{T: t.r.t, r: t.r}
		kept = &nativeSession{session: t.shared().in(owner).session("")}
		names, err := kept.try(`echo "$0"; echo "$BASH"`)
		if err != nil {
			t.Fatal(err)
		}
		kept.shell, kept.program, _ = strings.Cut(strings.TrimSuffix(string(names.Output), "\n"), "\n")
		state, err := kept.try(stateText)
		if err != nil {
			t.Fatal(err)
		}
		kept.state = state.Output
	}
	s := *kept
	s.session = &session{Session: kept.Session, t: t, b: kept.b.in(t)}
	return &s
}

// free holds the session against what matters after a command, and keeps it for another case where its state is what it was.
func (s *nativeSession) free() {
	s.t.Helper()
	after := s.run(stateText + "\necho fine").code(0)
	state, fine := bytes.CutSuffix(after.Output, []byte("fine\n"))
	if !fine {
		after.fail("the session is not well")
	}
	if s.t.Failed() || !bytes.Equal(state, s.state) {
		return
	}
	kept := *s
	owner := &test{T: s.t.r.t, r: s.t.r}
	kept.session = &session{Session: s.Session, t: owner, b: s.b.in(owner)}
	pool := &s.t.r.natives
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.free = append(pool.free, &kept)
}

func compareNative(t *test, text string) {
	s := t.native()
	s.want(`cd @D`, "")
	clean := `chmod -R u+rwx @D; find @D -mindepth 1 -delete`
	text = s.fill(text)
	// The observer's own bash may have inherited descriptors; what is compared starts with three.
	want := s.b.observed("", s.fill(fmt.Sprintf(`cd @D; for ((i = 3; i < 256; i++)); do eval "exec $i>&-"; done; exec -a %s %s --noprofile --norc -c %s </dev/null`,
		quote(s.shell), quote(s.program), quote(text))))
	s.observe(clean)
	got := s.run(text, split)
	normal := func(b []byte) string {
		return deadChild.ReplaceAllString(prologue.ReplaceAllString(string(b), "$1"), "$1 PID $2")
	}
	if strings.Contains(text, "set -x") {
		got.Stderr = []byte(oneLessTraced(string(got.Stderr)))
	}
	if strings.Contains(text, "$i>&-") {
		// docs/contract.md: bash says that its own copy of the reports' descriptor was closed.
		got.Stderr = badCopy.ReplaceAll(got.Stderr, nil)
	}
	if o, w := string(got.Stdout), string(want.Stdout); o != w {
		t.Errorf("stdout is %s\n  natively  %s", shorten(o), shorten(w))
	}
	if o, w := normal(got.Stderr), normal(want.Stderr); o != w {
		t.Errorf("stderr is %s\n  natively  %s", shorten(o), shorten(w))
	}
	if got.ExitCode != want.Code {
		t.Errorf("exit code is %d, natively %d", got.ExitCode, want.Code)
	}
	if testing.Verbose() && len(want.Stdout)+len(want.Stderr) == 0 && want.Code == 0 {
		t.Log("prints nothing and exits with 0")
	}
	s.free()
}

var nativeCommands = []struct{ name, text string }{
	{"a plain word", `echo hi`},
	{"output without a final newline", `printf abc`},
	{"both streams", `echo out; echo err >&2; exit 3`},
	{"$0, $#, $*, $@", `echo "$0 $# <$*> <$@>"`},
	{"$- and set -o", `echo "$-"; set -o`},
	{"$? at the start", `echo $?`},
	{"$BASH_SUBSHELL and $FUNCNAME", `echo "$BASH_SUBSHELL ${#FUNCNAME[@]} ${FUNCNAME[*]}."; (echo $BASH_SUBSHELL)`},
	{"$BASH_SOURCE and caller", `echo "${BASH_SOURCE[*]}|${BASH_LINENO[*]}|"; caller; f() { caller; echo "${BASH_SOURCE[*]}|${#BASH_LINENO[@]}"; }; f`},
	{"$LINENO over lines", "echo $LINENO\n\necho $LINENO; echo \\\n$LINENO\nf() {\necho $LINENO\n}\nf"},
	{"$BASH_EXECUTION_STRING", `echo "$BASH_EXECUTION_STRING"`},
	{"$BASH_COMMAND", `echo "$BASH_COMMAND"; trap 'echo "<$BASH_COMMAND>"' DEBUG; :; trap - DEBUG`},
	{"$PIPESTATUS", `true | (exit 3) | false; echo "${PIPESTATUS[*]}"`},
	{"$_ after a command", `echo a b >/dev/null; echo "$_"`},
	{"$IFS and splitting", `printf %q "$IFS"; x="a b  c"; set -- $x; echo $#`},
	{"$OPTIND and getopts", `set -- -a -b x; while getopts ab: o; do echo "$o $OPTARG"; done; echo $OPTIND`},
	{"$SHELLOPTS", `echo "$SHELLOPTS"`},
	{"$RANDOM with a seed", `RANDOM=7; echo $RANDOM $RANDOM`},
	{"$SECONDS and its arithmetic", `SECONDS=5; echo $((SECONDS >= 5))`},
	{"the limits", `ulimit -a | grep -v 'file locks'`},
	{"open descriptors", `ls /proc/self/fd 2>/dev/null | tr '\n' ' '; for f in 3 4 5 9 10 63 99 193 194 255; do { : >&$f; } 2>/dev/null && echo "open $f"; done; :`},
	{"a new descriptor", `exec 3>f; echo x >&3; exec 3>&-; cat f; exec {fd}<f; [ $fd -ge 10 ] && cat <&$fd`},
	{"a child's descriptors", `bash -c 'for f in 3 4 5 6 7 8 9 10 11 12 193 194 255; do { : >&$f; } 2>/dev/null && echo "open $f"; done; :'`},
	{"jobs control is off", `set -o | grep monitor; sleep 0.01 & jobs -p | wc -l; wait; fg`},
	{"a background job and wait", `(exit 5) & wait $!; echo $?; wait -n; echo $?`},
	{"a subshell's exit", `(exit 7); echo $?; (trap 'echo sub' EXIT; exit 2); echo $?`},
	{"a syntax error at the start", `if then fi`},
	{"a syntax error on the third line", "echo a\necho b\nif then\necho c"},
	{"a syntax error after a here-document", "cat <<E\nx\nE\n)"},
	{"a lone closing brace", "echo a\n}"},
	{"an unfinished double quote", `echo "abc`},
	{"an unfinished single quote over lines", "echo a\necho 'b\nc"},
	{"an unfinished substitution", `echo a; echo $(echo`},
	{"an unfinished here-document", "cat <<E\nx"},
	{"a bad substitution", `echo a; echo ${x!}; echo b`},
	{"a bad array index", "a=(1)\necho ${a[1+]}\necho after"},
	{"a division by zero", "echo $((1 / 0)); echo after"},
	{"an unset variable under -u", "set -u\n\necho $nothing\necho after"},
	{"${x?word}", ": ${nothing?is not set}; echo after"},
	{"a readonly variable", "readonly r=1\nr=2\necho after"},
	{"a readonly variable in a function", "readonly r=1; f() { local r=2; echo in; }; f; echo after $?"},
	{"an invalid option", `set -Z; echo after $?`},
	{"an invalid option of a builtin", `cd -Z; export -Z; echo $?`},
	{"an invalid identifier", `export 1a=b; declare 'x y=1'; unset 1a; read 1a; echo $?`},
	{"a command that is not found", "echo a\nnosuchcommand x\necho $?"},
	{"a file that is not executable", `echo > f; ./f; echo $?; . ./nosuch; echo $?`},
	{"a directory as a command", `mkdir d; ./d; echo $?`},
	{"a script without a first line", `echo 'echo "script $0 $1"' > s; chmod +x s; ./s a; bash s b; . ./s`},
	{"a bad interpreter", `printf '#!/no/such\n' > s; chmod +x s; ./s; echo $?`},
	{"exec of a command that does not exist", `exec nosuchcommand; echo after`},
	{"exec of a command", `exec echo replaced; echo after`},
	{"exec with redirections alone", `exec > f; echo x; exec >&2; cat f`},
	{"exit in a function in a pipe", `f() { exit 3; }; f | cat; echo $?; f; echo no`},
	{"exit with nonsense", `exit abc`},
	{"exit with two arguments", `exit 1 2; echo $?`},
	{"return at the top", `return 3; echo after $?`},
	{"break and continue at the top", `break; echo $?; continue; echo $?`},
	{"local at the top", `local x=1; echo $?`},
	{"declare at the top is global", `declare x=1; declare -i n=1+1; f() { echo $x $n; }; f; declare -p x n`},
	{"set -e", "set -e\necho a\nfalse\necho b"},
	{"set -e in a condition", `set -e; if false; then :; fi; false || echo or; ! true; echo after`},
	{"set -e in a function and a substitution", `set -e; x=$(false; echo in); echo "<$x>"; f() { false; echo no; }; f; echo no`},
	{"set -x", `set -x; x=1; echo "$x" 'a b'; [[ $x == 1 ]]; set +x`},
	{"set -x with a PS4 of its own", `PS4='<$LINENO> '; set -x; echo a; { set +x; } 2>/dev/null; echo b`},
	{"set -f and globs", `touch a1 a2; echo a*; set -f; echo a*; set +f; echo b*`},
	{"nullglob and failglob", `shopt -s nullglob; echo x*; shopt -u nullglob; shopt -s failglob; echo x*; echo after`},
	{"set -C", `set -C; echo a > f; echo b > f; echo $?; echo c >| f; cat f`},
	{"set -k, -a and -h", `set -k; env A=1 bash -c 'echo $A$B' B=2; set +k; set -a; Z=3; bash -c 'echo $Z'`},
	{"set -o posix", `set -o posix; echo $POSIXLY_CORRECT; export() { echo no; }; echo after`},
	{"set --", `set -- a "b c"; echo $# "$2"; shift; echo "$1"; shift 5; echo $?`},
	{"a trap on EXIT", `trap 'echo bye $?' EXIT; echo hi; exit 4`},
	{"a trap on EXIT that exits", `trap 'exit 9' EXIT; exit 4`},
	{"a trap on EXIT in a subshell", `(trap 'echo sub' EXIT; :); trap 'echo main' EXIT; (echo plain)`},
	{"a trap on ERR with its line", "trap 'echo err $LINENO $?' ERR\ntrue\n(exit 3)\nfalse || :\necho end"},
	{"a trap on DEBUG", `trap 'echo "+$BASH_COMMAND"' DEBUG; x=1; echo $x; trap - DEBUG`},
	{"a trap on RETURN", `f() { trap 'echo ret' RETURN; echo f; }; f; echo end`},
	{"a trap on a signal", `trap 'echo usr1' USR1; kill -USR1 $$; trap 'echo term; exit 5' TERM; kill -TERM $$; echo no`},
	{"a trap with a wrong name", `trap 'x' NOSUCH; echo $?; trap -l | head -1`},
	{"a death by TERM", `kill -TERM $$; echo no`},
	{"a death by KILL", `kill -KILL $$; echo no`},
	{"a child's death by a signal", "bash -c 'kill -SEGV $$'\necho $?\nbash -c 'kill -TERM $$'; echo $?"},
	{"SIGPIPE in a pipeline", `set -o pipefail; yes | head -1; echo ${PIPESTATUS[*]}`},
	{"cd and its complaints", `cd /no/such; echo $?; OLDPWD=/usr; cd -; cd / && pwd; cd - >/dev/null; cd a b`},
	{"pushd, popd and dirs", `mkdir d; pushd d >/dev/null; basename "$(dirs -l +0)"; popd >/dev/null; popd`},
	{"here-documents", "cat <<E <<F\na\nE\nb $((1+1)) \\$x\nF\ncat <<'E'\n$x \\\nE\ncat <<-E\n\t\ttab\n\tE"},
	{"a here-document in a function and a loop", "f() { cat <<E\n$1\nE\n}\nfor i in 1 2; do f $i; done; while read l; do echo \"<$l>\"; done <<E\na  b\n\\c\nE"},
	{"here-strings and process substitution", `cat <<< "a b"; diff <(echo a) <(echo b); cat < <(echo c); echo d | tee >(cat >&2) >/dev/null; sleep 0.1`},
	{"quoting of every kind", `printf '<%s>' a 'b c' "d $((1+1))" $'e\tf\x41\u00e9\101' \g "h'i" 'j"k' ""; echo`},
	{"invalid UTF-8 and controls", `printf 'a\264\363b\n\001\033[0m\r\n'; x=$'\xff\xfe'; printf %s "$x"; echo ${#x}`},
	{"an output of every byte", `for i in {0..255}; do printf "\\$(printf %03o $i)"; done`},
	{"arithmetic", `echo $((2**10, 7%3, 1<<4, 0x1f, 8#17, 1?2:3)) $((x=5)) $((x++ + ++x)); let y=3*4; echo $y; ((0)); echo $?`},
	{"expansions", `x=/a/b.c.d; echo ${x##*/} ${x%.*} ${x/b/B} ${x//./_} ${x:2:3} ${#x} ${x^^} ${y:-def} ${y:=set} $y ${!x*} ; a=(1 2 3); echo ${a[@]:1} ${#a[@]} "${a[*]}" ${a[-1]}`},
	{"arrays and maps", `declare -A m; m[a b]=1; m[c]=2; for k in "${!m[@]}"; do echo "$k=${m[$k]}"; done | sort; a=([3]=x y); declare -p a`},
	{"brace expansion and globs", `echo {a,b}{1..3} {z..x} a{,b}; touch f1 f2 .h; echo f? [!f]* .h*`},
	{"tilde", `HOME=/h; echo ~ ~/x ~root x=~ "~"`},
	{"case with fall-through", `case ab in a*) echo 1;& x) echo 2;;& *b) echo 3;; *) echo 4;; esac`},
	{"conditions", `[[ abc =~ (b)(c) ]]; echo $? "${BASH_REMATCH[@]}"; [ 1 -lt 2 -a ! -e x ]; echo $?; [ a = ; echo $?; test; echo $?; [[ -n "" ]] ; echo $?`},
	{"printf and its complaints", `printf '%d %s %q %x %5.2f|%-4s|%b\n' 3 a 'b c' 255 1.5 z 'a\tb'; printf '%d\n' abc; printf '%s,' 1 2 3; printf -v v %03d 7; echo $v`},
	{"read in all its forms", `printf 'a b c\nd\\\ne\n' > f; { read x y; echo "$x|$y"; read -r z; echo "$z"; } < f; read -d : q <<< "1:2"; echo $q; IFS=, read -a a <<< "1,2,3"; echo ${#a[@]}; read -t 0.01; echo $?; read -n 2 w <<< abc; echo $w`},
	{"mapfile", `mapfile -t a < <(seq 3); echo "${a[*]}"; mapfile -d : -n 1 b <<< "x:y"; echo "$b"`},
	{"select without input", `select x in a b; do echo $x; done; echo $?`},
	{"functions that recurse", `f() { (( $1 > 0 )) && f $(($1 - 1)) && echo -n $1; :; }; f 50; g() { local x=$1; h; }; h() { echo $x; }; g 7; unset -f g; g`},
	{"a function named like a builtin", `echo() { builtin echo "<$*>"; }; echo a; printf() { echo p "$@"; }; printf x; unset -f echo; echo b`},
	{"nameref and indirection", `x=1; declare -n r=x; r=2; echo $x ${!r}; y=x; echo ${!y}`},
	{"a coprocess", `coproc { read x; echo "got $x"; }; echo hi >&${COPROC[1]}; read y <&${COPROC[0]}; echo $y; wait`},
	{"time", `TIMEFORMAT=t; time true; time -p :  2>/dev/null; :`},
	{"a pipeline of many", `seq 1000 | sort -rn | head -3 | tac | paste -sd+ | bc 2>/dev/null || seq 3 | paste -sd,`},
	{"|& and lastpipe", `{ echo o; echo e >&2; } |& sort; shopt -s lastpipe; echo x | read v; echo "<$v>"`},
	{"closing stdout and stderr", `echo a; exec 1>&-; echo b; exec 2>&-; echo c`},
	{"closing every descriptor", `for ((i = 3; i < 256; i++)); do eval "exec $i>&-"; done; echo still; exit 3`},
	{"a write to a full device", `echo x > /dev/full; echo $?`},
	{"a redirection that fails", "echo a > /no/such/f\necho $?\ncat < nosuch; echo $?; : > .; echo $?"},
	{"cat of nothing", `cat; echo $?; read x; echo "$? <$x>"; wc -c`},
	{"eval, its errors and its lines", "eval 'echo a; false'; echo $?\neval 'if'\necho $?\neval 'echo $LINENO\nnosuchcommand'"},
	{"source with arguments", `echo 'echo "$1 $#"; return 4' > s; . ./s x y; echo $?; source s; echo $?`},
	{"command, builtin and type", `command -v cd; command -V if; builtin nosuch; type -t [ ; type -a true | head -1; command nosuch; hash -r; hash`},
	{"enable", `enable -n echo; type -t echo; enable echo; enable -a | wc -l`},
	{"wait for a wrong pid", `wait 1; echo $?; kill -0 999999999; kill %9; echo $?`},
	{"times and umask", `umask; umask -S; umask 9; times | wc -l`},
	{"a comment with quotes", "echo a # it's \"not\nclosed $(\necho b"},
	{"carriage returns", "echo a\r\nx=b\r\nprintf '%q\\n' \"$x\""},
	{"a very long line", `x=$(printf '%070000d' 0); echo ${#x}; : "$x"; set -- $x $x; echo $#`},
	{"declare -f and -F", `f() { echo "a b"; }; declare -f f; declare -F f`},
	{"every other option", `shopt | grep -v -e expand_aliases`},
	{"export -p of one", `export ZZ_A='x y'; export -p | grep ZZ_; declare -p ZZ_A`},
	{"bash -i as a child", `echo 'echo in; exit 3' | bash --norc --noprofile; echo $?`},
	{"a child that ignores TERM", `bash -c 'trap "" TERM; kill -TERM $$; echo alive'`},
	{"nohup and setsid", `nohup bash -c 'echo up' 2>/dev/null; setsid -w bash -c 'echo sid'; echo $?`},
	{"the terminal device is not there", `: < /dev/tty; echo $?`},
	{"the devices stdin, stdout and stderr", `echo a > /dev/stdout; echo b > /dev/stderr; cat /dev/stdin; echo c > /dev/fd/1`},
	{"history and !", `echo a!b "c!d"; history | wc -l; set +H; fc -l; echo $?`},
	{"dollar-quotes for translation", `echo $"hello" $'\cA' | od -c | head -1`},
	{"printf of time", `printf '%(%Y)T\n' 0; TZ=UTC printf '%(%H:%M)T\n' 0`},
	{"suspend and logout", `logout; echo $?; suspend; echo $?`},
	{"a fifo", `mkfifo p; (echo through > p) & cat p; wait`},
	{"kill of a background child", `sleep 50 & kill $!; wait $!; echo $?`},
	{"B08 kill %1 ends a background child", `sleep 50 & kill %1; echo $?; wait; echo $?`},
}
