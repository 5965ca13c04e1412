package drivertest

import (
	"fmt"
	"slices"
	"strings"
)

// functionGroup: functions and aliases carry over, whatever they are called (SPEC 1.3).
func functionGroup() group {
	g := group{name: "functions", cases: []testCase{
		{name: "a function reaches the next call whole", run: func(t *test) {
			s := t.session()
			s.want(`f() { local a=$1; echo "f:$a:$*"; return 3; }`, "").saved(true)
			s.want(`f x y; echo $?`, "f:x:x y\n3\n")
			s.want(`unset -f f`, "")
			s.want(`type -t f; echo .`, ".\n")
		}},
		{name: "function bodies of every shape are read back", run: func(t *test) {
			s := t.session()
			s.want(shapes, "")
			for range 2 {
				s.want(`heredoc; two; quoted "a  b"; looped; cased bb; arith; cond; sub; redir; nested; inner; coloned; procsub; ansi; bracketed`, shapesOutput)
			}
		}},
		{name: "an exported function stays exported, a plain one does not become so", run: func(t *test) {
			s := t.session()
			s.want(`f() { echo "f $1"; }; export -f f; g() { echo g; }`, "")
			s.want(`bash -c 'f 1; type -t g; echo .'; g`, "f 1\n.\ng\n")
			s.want(`export -n -f f`, "")
			s.want(`bash -c 'type -t f; echo .'; f 2`, ".\nf 2\n")
		}},
		{name: "an exported function of the caller is there", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: []string{"BASH_FUNC_outer%%=() {  echo \"outer $1\"\n}"}}}).session("")
			s.want(`outer 1; bash -c 'outer 2'`, "outer 1\nouter 2\n")
			s.want(`unset -f outer`, "")
			s.want(`type -t outer; echo .`, ".\n")
		}},
		{name: "functions with odd names carry over", run: func(t *test) {
			s := t.session()
			names := []string{"a-b", "a.b", "a:b", "a+b", "a/b", "a@b", "-x", "git-foo", "_h", "__x", "a,b", "a%b", "ls.exe", "été", "a^b", "café-1", "1a", "@", "+", ".."}
			var define, call strings.Builder
			want := ""
			for _, n := range names {
				fmt.Fprintf(&define, "function %s { echo 'this is %s'; }\n", n, n)
				fmt.Fprintf(&call, "%s\n", n)
				want += "this is " + n + "\n"
			}
			s.want(define.String(), "")
			s.want(call.String(), want).noNotice("function")
			s.want(call.String(), want)
		}},
		{name: "a function that bash prints but cannot read back is left out alone, by name, with a notice", run: func(t *test) {
			s := t.session()
			s.want("aa() { echo aa; }\nfunction m=n { echo mn; }\nfunction if { echo if; }\nzz() { echo zz; }\nexport A=1; alias al='echo al'", "")
			r := s.want("aa; zz; echo $A\nal", "aa\nzz\n1\nal\n")
			s.flush()
			after := s.run(`aa; zz`).out("aa\nzz\n")
			// Newer versions print a name of this kind so that it can be read.
			if s.run(`type -t m=n`).text() != "function\n" && !hasNotice(r.Notices, "m=n") && !hasNotice(after.Notices, "m=n") {
				after.fail("no notice names the function m=n that was lost")
			}
			s.want(`aa; zz; echo $A`, "aa\nzz\n1\n").noNotice("aa")
		}},
		{name: "a readonly function breaks nothing", run: func(t *test) {
			s := t.session()
			s.want(`f() { echo f; }; readonly -f f; export A=1`, "")
			s.want(`f; echo $A`, "f\n1\n")
			s.want(`f; export A=2`, "f\n")
			s.want(`f; echo $A`, "f\n2\n")
		}},
		{name: "an alias reaches the next call", run: func(t *test) {
			s := t.session()
			s.want(`alias ll='echo listed' q="echo 'it''s'" two='echo one; echo '`, "")
			s.want("ll a\nq\ntwo b", "listed a\nits\none\nb\n")
			s.want(`unalias ll`, "")
			s.want(`type -t ll; type -t q`, "alias\n")
		}},
		{name: "an alias is not baked into a function, again and again", run: func(t *test) {
			s := t.session()
			s.want(`alias say='echo loud'; f() { say "$@"; }; say() { echo "plain $*"; }`, "")
			first := string(s.run(`declare -f f`).code(0).Output)
			for range 3 {
				s.want(`declare -f f`, first)
			}
		}},
		{name: "C07 an alias that needs an underscore function works", run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{
				".bashrc": "_h() { \"$@\"; }; w() { _h \"$@\"; }; alias ls='w ls'\n"}}}).session("")
			s.want(`touch @D/x; ls @D | grep x`, "x\n")
			s.want(`ls @D | grep x`, "x\n")
		}},
		{name: "C05 a function cd that fails does not stand in the way", run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{
				".bashrc": "cd() { builtin cd \"$@\"; return 1; }\nalias pwd='echo no' printf='echo no' export='echo no' source='echo no' exit='echo no'\n"}}}).session("")
			s.want(`echo hi`, "hi\n")
			s.run(`cd /tmp`).code(1).cwd("/tmp")
			s.want(`builtin pwd`, "/tmp\n")
			s.want("type -t cd pwd", "function\nalias\n")
		}},
		{name: "C05 functions of all these names at once break nothing", run: func(t *test) {
			s := t.session()
			var define strings.Builder
			for _, n := range commonWords {
				if n != "builtin" && n != "echo" && n != "return" {
					fmt.Fprintf(&define, "%s() { builtin echo 'fn %s' >&2; return 9; }\n", n, n)
				}
			}
			s.run(define.String(), split)
			s.run(`builtin export A=1; builtin cd /tmp; echo body`, split).out("body\n").saved(true).cwd("/tmp")
			s.run(`echo "$A $PWD"; cd; echo $?`, split).out("1 /tmp\n9\n").err("fn cd\n").code(0)
			s.run(`export; echo "$?"; builtin exit 7`, split).out("9\n").err("fn export\n").code(7).saved(true)
			s.run(`echo "$A $PWD"`, split).out("1 /tmp\n").err("")
		}},
		{name: "aliases of all these names at once break nothing", run: func(t *test) {
			s := t.session()
			var define strings.Builder
			for _, n := range commonWords {
				if n != "alias" {
					fmt.Fprintf(&define, "alias %s='echo alias-%s'\n", n, n)
				}
			}
			s.run("\\shopt -u expand_aliases\n" + define.String())
			s.run(`\builtin export A=1; \cd /tmp; \echo body`).out("body\n").code(0).saved(true).cwd("/tmp")
			s.want(`\echo "$A $PWD"; cd /`, "1 /tmp\nalias-echo alias-cd /\n").cwd("/tmp")
			s.want("\\unalias -a\ncd /", "").cwd("/")
		}},
		{name: "aliases named after reserved words break nothing", run: func(t *test) {
			s := t.session()
			s.run(`alias if='echo no' '[['='echo no' while='echo no' for='echo no' case='echo no' '}'='echo no' do='echo no'; export A=1`)
			s.run(`\builtin echo "$A"`).out("1\n").code(0).saved(true)
			s.want("\\unalias -a\nif true; then echo \"$A\"; fi", "1\n")
		}},
	}}
	for _, name := range commonWords {
		g.cases = append(g.cases,
			testCase{name: "a function named " + name + " leaves the session whole and is there in the next call", run: func(t *test) { namedFunction(t, name) }})
	}
	return g
}

// commonWords are builtins (and a few programs) that a wrapper might use as plain words.
var commonWords = strings.Fields("cd printf export builtin trap exit eval unset command declare read set source . : [ test true false echo pwd " +
	"local return shift exec kill wait umask ulimit shopt alias unalias typeset readonly break continue compgen mapfile readarray hash type let " +
	"pushd popd dirs jobs bg fg disown enable getopts caller times history cat sleep env bash mkdir rm")

// namedFunction defines a function of this name and holds the session against what matters.
func namedFunction(t *test, name string) {
	s := t.session()
	body := fmt.Sprintf(`builtin echo "fn %s $*" >&2; return 9`, name)
	switch name {
	case "builtin":
		body = `echo "fn builtin $*" >&2; return 9`
	case "return":
		body = `builtin echo "fn return $*" >&2; builtin return 9`
	}
	say := "echo"
	if name == "echo" {
		say = `builtin echo`
	}
	plain := func(word string) string { // a way to reach the builtin itself
		switch name {
		case word:
			return "builtin " + word
		}
		return word
	}
	s.run(fmt.Sprintf("%s() { %s; }", name, body), split).out("").err("").code(0).saved(true)
	// It is there, it is called, and its exit code is its own.
	s.run(name+" a b", split).out("").err("fn " + name + " a b\n").code(9).saved(true)
	// Everything that a call does besides goes on without it.
	value := "value\nof " + name
	s.run(fmt.Sprintf("%s V=%s; %s /tmp; %s body", plain("export"), quote(value), plain("cd"), say), split).
		out("body\n").err("").code(0).saved(true).cwd("/tmp")
	s.run(say+` "$V"; `+say+` "$PWD"`, split).out(value + "\n/tmp\n").err("").code(0).saved(true)
	s.run(plain("exit")+" 5", split).out("").err("").code(5).saved(true)
	s.run(fmt.Sprintf(`%s '%s 6' EXIT; %s in`, plain("trap"), plain("exit"), say), split).out("in\n").err("").code(6)
	s.run(say+` x`, dir("/"), stdin("data"), env("E", "per call"), split).out("x\n").err("").code(0)
	// After all these it is still there, and so is what they left.
	s.run(say+` "$V"; `+name+" a b", split).out(value + "\n").err("fn " + name + " a b\n").code(9).saved(true).cwd("/tmp")
	if !slices.Contains([]string{"builtin", "unset"}, name) {
		s.run("unset -f "+quote(name), split).err("").code(0)
		s.run(`export V=2; cd /; echo "$V"`, split).out("2\n").err("").cwd("/")
	}
}

// shapes are functions whose printed form is hard to read back, and shapesOutput what they print.
const shapes = `heredoc() { cat <<'EOF'
$a 'b' \c
EOF
cat <<-X
	tab $((1 + 1))
	X
}
two() { cat <<A; cat <<B
from a
A
from b
B
}
quoted() { printf '<%s>' "$1" '$x' "\$y" $'a\tb\'c' "d"'e'; echo; }
looped() { for i in 1 2 3; do [ $i = 2 ] && continue; echo -n "$i "; done; while read -r l; do echo "$l"; done < <(echo end); for ((i = 0; i < 2; i++)) { :; }; select x in a; do break; done < /dev/null 2> /dev/null; }
cased() { case $1 in a | aa) echo a ;; b*) echo b ;& c) echo c ;;& *) echo d ;; esac; }
arith() { (( x = 1 << 3, x > 4 )) && echo "$((x ? x : 0)) ${x#8}."; }
cond() { [[ $1 =~ ^(a|b)*$ && ! -e /no/such && ( 1 -lt 2 || x != y ) ]] && echo yes; }
sub() (
  cd /
  echo "sub $PWD"
)
redir() { echo out; echo err >&2; } 2> /dev/null
nested() { inner() { echo inner; }; inner; }
coloned() { : "${x:=v}" && ! false && { echo "c${x:+1}"; } | cat; }
procsub() { cat <(echo ps) - <<< here; }
ansi() { local IFS=$'\n' a=($'x\ny'); printf '%q\n' "${a[@]}"; }
bracketed() { local -A m=([k]=v); echo "${m[k]} ${!m[@]} ${m[@]@Q}"; time :; } 2> /dev/null
`

const shapesOutput = `$a 'b' \c
tab 2
from a
from b
<a  b><$x><$y><a	b'c><de>
1 3 end

b
c
d
8 .
yes
sub /
out
inner
inner
c1
ps
here
$'x\ny'
v k 'v'
`
