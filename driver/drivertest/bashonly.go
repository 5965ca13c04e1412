package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// bashOnlyGroup: the contract where bash is the only program (SPEC 1.10, 1.12, 9): no /proc, no coreutils, nothing to fork
// for. The observer's scripts are of builtins alone too; $R is the root as the observer sees it.
func bashOnlyGroup() group {
	spec := boxSpec{PlaceSpec: PlaceSpec{BashOnly: true}}
	return group{name: "bash only", needs: []Need{NeedBashOnly}, cases: []testCase{
		{name: "there is really no other program, and calls work", run: func(t *test) {
			s := t.own(spec).session("")
			s.run(`ls`).code(127)
			s.run(`cat /dev/null`).code(127)
			s.run(`/bin/sh -c :`).code(127)
			s.want(`echo hi; echo err >&2`, "hi\nerr\n")
			s.run(`echo hi; echo err >&2; exit 3`, split).out("hi\n").err("err\n").code(3)
		}},
		{name: "state carries over: variables, functions, aliases, directory, umask, extglob", run: func(t *test) {
			s := t.own(spec).session("")
			all := allBytes()[1:]
			s.want("export A=1 ALL="+bashBytes(all)+"; f() { echo \"f $A\"; }; alias al='echo al'; cd /tmp; umask 027; shopt -s extglob; unset HOME", "")
			s.want("f; pwd; umask; [[ ab == +(a|b) ]] && echo glob; echo ${HOME-unset}\nal", "f 1\n/tmp\n0027\nglob\nunset\nal\n").cwd("/tmp")
			t.sameBytes("every byte", s.run(`printf %s "$ALL"`).Output, all)
			s.run(`export A=2; exit 3`).code(3).saved(true)
			s.run(`export A=3; kill -TERM $$`).ended(elsewhere.Signaled, 143)
			s.run(`export A=4; trap 'echo bye; A=9' EXIT; echo in`).out("in\nbye\n").saved(true)
			s.want(`echo $A`, "4\n")
		}},
		{name: "a named session and many calls work, with and without waiting shells", run: func(t *test) {
			for _, n := range []int{0, 2} {
				with := spec
				with.Options.SpawnAhead = &n
				s := t.own(with).session("dev")
				s.want(`export N=0`, "")
				for i := range 15 {
					s.want(`echo $N; export N=$((N + 1))`, fmt.Sprintf("%d\n", i))
				}
			}
		}},
		{name: "stdin, per-call variables and directories work", run: func(t *test) {
			s := t.own(spec).session("")
			s.want(`read -r a; read -r b; echo "$a|$b|$V"; pwd`, "one|two|x\ny\n/tmp\n", stdin("one\ntwo\nthree\n"), env("V", "x\ny"), dir("/tmp"))
			s.want(`read -r x; echo "$? <$x>"`, "1 <>\n")
			s.run(`echo no`, dir("/no/such")).ended(elsewhere.Directory, 126).hasNot("no\n")
			s.want(`pwd; echo "${V-unset}"`, s.b.sb.Info().Dir+"\nunset\n")
		}},
		{name: "a big command and a big output work", run: func(t *test) {
			s := t.own(spec).session("")
			word := strings.Repeat("0123456789abcdef", 1<<15)
			t.sameBytes("the output", s.run("printf %s '"+word+"'").code(0).Output, []byte(word))
		}},
		{name: "C03 a directory that is gone and odd names are no trouble", run: func(t *test) {
			b := t.own(spec)
			s := b.session("")
			s.want(`cd /tmp`, "").cwd("/tmp")
			s.want(`cd /; pwd`, "/\n").cwd("/")
		}},
		{name: "a timeout ends the shell and its children, and returns what was printed", slow: true, run: func(t *test) {
			b := t.own(spec)
			s := b.session("")
			// No sleep here: a heart waits by reading from a coprocess that says nothing.
			beat := `beat() { echo $BASHPID > /tmp/$1.pid; coproc WAIT { read -r; }; while :; do echo >> /tmp/$1.beat; read -r -t 0.1 _ <&${WAIT[0]}; done; }; `
			for name, command := range map[string]string{
				"plain": beat + `echo early; beat plain & beat plain2`,
				"deaf":  beat + `trap '' TERM INT; echo early; ( beat deaf & wait ) & beat deaf2`,
			} {
				p := s.start(command)
				for _, n := range []string{name, name + "2"} {
					b.t.eventually(n+" beats", hang/6, func() bool {
						return b.observe(`pid=$(< "$R/tmp/`+n+`.pid") && [ -s "$R/tmp/`+n+`.beat" ] && kill -0 "$pid" && echo alive`) == "alive\n"
					})
				}
				p.interrupt().ended(elsewhere.Interrupted, 130).has("early\n")
				for _, n := range []string{name, name + "2"} {
					b.t.eventually(n+" is gone", 0, func() bool {
						return b.observe(`kill -0 "$(< "$R/tmp/`+n+`.pid")" 2>/dev/null || echo gone`) == "gone\n"
					})
				}
				begin := time.Now()
				s.run(`echo early; while :; do :; done`, timeout(time.Second)).ended(elsewhere.TimedOut, 124).out("early\n")
				within(t, begin, time.Second+endPromise)
				s.want(`echo fine`, "fine\n")
			}
		}},
		{name: "a background child does not delay the result", run: func(t *test) {
			s := t.own(spec).session("")
			begin := time.Now()
			s.want(`{ coproc WAIT { read -r; }; read -r -t 60 _ <&${WAIT[0]}; } & echo started`, "started\n")
			within(t, begin, time.Second)
			s.want(`echo next`, "next\n")
		}},
		{name: "functions named after what a wrapper uses break nothing", run: func(t *test) {
			s := t.own(spec).session("")
			s.run(`cd() { :; }; printf() { :; }; export() { :; }; trap() { :; }; read() { :; }; eval() { :; }; builtin declare -x A=1`, split).code(0).saved(true)
			s.run(`echo "$A"; cd /tmp; echo "$PWD"`, split).out("1\n" + s.b.sb.Info().Dir + "\n").err("").code(0)
		}},
		{name: "what a login file does is kept there too", run: func(t *test) {
			with := spec
			with.Profile = map[string]string{".bashrc": "export P=profile; noise() { echo; }; echo loud; cd /; ls; exit 3\n"}
			s := t.own(with).session("")
			s.run(`echo "$P"; exit 2`, split).out("profile\n").err("").code(2)
		}},
	}}
}
