package drivertest

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// stateGroup: what carries over from call to call (SPEC 1.1, 1.3).
func stateGroup() group {
	return group{name: "state", cases: []testCase{
		{name: "each command runs in a bash of its own", run: func(t *test) {
			s := t.session()
			seen := map[string]bool{}
			for range 8 {
				pid := string(s.run(`echo $$`).code(0).Output)
				if seen[pid] {
					t.Errorf("bash %q was used twice", pid)
				}
				seen[pid] = true
			}
		}},
		{name: "an exported variable reaches the next call", run: func(t *test) {
			s := t.session()
			s.want(`export A=1`, "").saved(true)
			s.want(`echo "$A"`, "1\n")
			s.want(`A=2`, "")
			s.want(`echo "$A"; bash -c 'echo "$A"'`, "2\n2\n")
		}},
		{name: "an unexported variable does not", run: func(t *test) {
			s := t.session()
			s.want(`A=1; declare -g B=2; readonly C=3; export D=4; export -n D`, "")
			s.want(`echo "${A-}${B-}${C-}${D-}."`, ".\n")
		}},
		{name: "a variable that the command unset stays unset", run: func(t *test) {
			s := t.session()
			s.want(`export A=1 B=2`, "")
			s.want(`unset A`, "")
			s.want(`echo "${A-unset} ${B-unset}"`, "unset 2\n")
			s.want(`echo "${A-unset} ${B-unset}"`, "unset 2\n")
		}},
		{name: "a variable of the surroundings that the command unset stays unset", run: func(t *test) {
			s := t.session()
			s.want(`[ -n "${HOME+x}${PATH+x}" ] && unset HOME && echo ok`, "ok\n")
			s.want(`echo "${HOME-unset}"; bash --norc --noprofile -c 'echo "${HOME-unset}"'`, "unset\nunset\n")
			s.want(`export HOME=/; echo "${HOME-unset}"`, "/\n")
			s.want(`echo "${HOME-unset}"`, "/\n")
		}},
		{name: "a variable of the caller that the command unset stays unset", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: []string{"DRIVERTEST_OUTER=outer"}}}).session("")
			s.want(`echo "$DRIVERTEST_OUTER"`, "outer\n")
			s.want(`unset DRIVERTEST_OUTER`, "")
			s.want(`echo "${DRIVERTEST_OUTER-unset}"; env | grep -c DRIVERTEST_OUTER; :`, "unset\n0\n")
		}},
		{name: "a variable that is no longer exported is gone", run: func(t *test) {
			s := t.session()
			s.want(`export A=1`, "")
			s.want(`export -n A`, "")
			s.want(`echo "${A-unset}"`, "unset\n")
		}},
		{name: "a value with every byte but NUL survives", run: func(t *test) {
			s := t.session()
			all := allBytes()[1:]
			s.want("export ALL="+bashBytes(all), "")
			t.sameBytes("the value in the next call", s.run(`printf %s "$ALL"`).Output, all)
			t.sameBytes("the value one call later", s.run(`printf %s "$ALL"`).Output, all)
			t.sameBytes("the value in a child", s.run(`bash --norc --noprofile -c 'printf %s "$ALL"'`).Output, all)
		}},
		{name: "each byte alone, at the start and at the end of a value survives", run: func(t *test) {
			s := t.session()
			var set, get strings.Builder
			var want bytes.Buffer
			for i, b := range allBytes()[1:] {
				fmt.Fprintf(&set, "export A%d=%s B%d=%s\n", i, bashBytes([]byte{b}), i, bashBytes([]byte{b, 'x', b}))
				fmt.Fprintf(&get, "printf '%%s|%%s;' \"$A%d\" \"$B%d\"\n", i, i)
				want.Write([]byte{b, '|', b, 'x', b, ';'})
			}
			s.want(set.String(), "")
			t.sameBytes("the values", s.run(get.String()).Output, want.Bytes())
		}},
		{name: "values survive in other locales", run: func(t *test) {
			for _, locale := range []string{"C", "C.UTF-8", "POSIX", "ja_JP.SJIS", "zh_CN.GBK", "no_SUCH"} {
				s := t.session()
				value := []byte("\x83\x5c'\xe3\x81\x82\xff$(x)`y`\\\n\x80 end")
				s.run("export LC_ALL=" + locale + " 2>/dev/null; export V=" + bashBytes(value)).code(0)
				t.sameBytes("the value under "+locale, s.run(`printf %s "$V"`, split).Stdout, value)
				s.run(`echo "$LC_ALL"`, split).out(locale + "\n").err("").code(0)
			}
		}},
		{name: "values that look like code are only text", run: func(t *test) {
			s := t.session()
			for _, v := range []string{`$(touch @D/pwned)`, "`touch @D/pwned`", "a\ntouch @D/pwned\n", `'; touch @D/pwned; '`, `"; touch @D/pwned; "`,
				`\`, `'`, `"`, `$'\n'`, "declare -x Z=1\n", "export -p\n", "}\n}\n", "\n", "EOF\ntouch @D/pwned\n"} {
				v = s.fill(v)
				s.want("export V="+bashBytes([]byte(v)), "")
				s.want(`printf %s "$V"`, v)
			}
			if s.exists("@D/pwned") {
				t.Error("a value was executed")
			}
		}},
		{name: "exported arrays, integers and readonly variables carry over", run: func(t *test) {
			s := t.session()
			s.want(`a=("x y" $'z\n' "" '*'); export a; declare -Ax m=([k 1]="v 1" [k]='$x'); declare -ix n=5; declare -rx r=fixed; declare -lx l=ABC`, "")
			s.want(`printf '<%s>' "${#a[@]}" "${a[@]}" "${m[k 1]}" "${m[k]}" "$r" "$l"; n=n+2; echo "$n"`, "<4><x y><z\n><><*><v 1><$x><fixed><abc>7\n")
			s.want(`printf '<%s>' "${#a[@]}" "${a[1]}" "$r"; echo "$n"`, "<4><z\n><fixed>7\n").noNotice("readonly")
		}},
		{name: "variables with the names that a wrapper might use are the user's", run: func(t *test) {
			s := t.session()
			names := strings.Fields("cmd command script tmp tmpfile state snapshot dir cwd code rc ret status result out output line name value var fd pid i n x REPLY ew e c _x self token args opts")
			var set, get strings.Builder
			want := ""
			for _, n := range names {
				set.WriteString("export " + n + "='of " + n + "'\n")
				get.WriteString(`echo "$` + n + "\"\n")
				want += "of " + n + "\n"
			}
			s.want(set.String(), "")
			s.want(get.String(), want)
			s.want(get.String(), want)
		}},
		{name: "IFS, PS4, CDPATH, GLOBIGNORE, TMOUT, BASH_ENV and POSIXLY_CORRECT that a command exports break nothing", run: func(t *test) {
			s := t.session()
			s.write("@D/env.sh", "echo from BASH_ENV\n")
			for _, v := range []string{"IFS=abcdefghijklmnopqrstuvwxyz0123456789_/=", "IFS=,", "IFS=", `IFS=$'\n'`, "PS4='$(echo x)'", "CDPATH=/usr:/", "GLOBIGNORE='*'", "TMOUT=1", "POSIXLY_CORRECT=", "BASH_ENV=@D/env.sh", "ENV=@D/env.sh"} {
				s := s.b.session("")
				s.dir = ""
				v = strings.ReplaceAll(v, "@D", "/no/such")
				name, _, _ := strings.Cut(v, "=")
				s.want("export A='a b,c'; export "+v, "").saved(true)
				r := s.want(`echo "$A"; cd @D; printf %q "$`+name+`" > @D/value; export B=1`, "a b,c\n").cwd(s.d()).saved(true)
				if len(r.Notices) > 0 {
					r.fail("notices after export %s", v)
				}
				s.want(`echo "$A $B"; pwd; unset `+name, "a b,c 1\n"+s.d()+"\n").cwd(s.d())
				s.want(`echo "$A"; cat @D/value`, "a b,c\n"+s.observe("printf %q "+strings.TrimPrefix(v, name+"=")))
			}
			s.want(`export BASH_ENV=@D/env.sh`, "")
			s.want(`bash -c :`, "from BASH_ENV\n")
		}},
		{name: "three thousand variables carry over, and so does their going", run: func(t *test) {
			s := t.session()
			s.want(manyExports(3000), "")
			s.want(`compgen -e BASE_ | wc -l; echo "$BASE_2999"; for ((i = 0; i < 3000; i += 2)); do unset BASE_$i; done`, "3000\nvalue 2999\n")
			s.want(`compgen -e BASE_ | wc -l; echo "${BASE_2998-unset} $BASE_2999"; unset "${!BASE_@}"`, "1500\nunset value 2999\n")
			s.want(`compgen -e BASE_ | wc -l`, "0\n")
		}},
		{name: "the umask carries over, also for what commands create", run: func(t *test) {
			s := t.session()
			s.want(`umask 027; umask`, "0027\n")
			s.want(`umask; touch @D/f; stat -c %a @D/f`, "0027\n640\n")
			s.want(`umask 0`, "")
			s.want(`umask; touch @D/g; stat -c %a @D/g`, "0000\n666\n")
		}},
		{name: "extglob carries over, with what was parsed under it", run: func(t *test) {
			s := t.session()
			s.want(`shopt -q extglob && echo on || echo off`, "off\n")
			s.want(`shopt -s extglob`, "")
			s.want("shopt -q extglob && echo on; [[ abc == @(abc|x) ]] && echo match; case aa in +(a)) echo case;; esac", "on\nmatch\ncase\n")
			s.want("f() { case $1 in @(a|b)) echo yes;; *) echo no;; esac; }", "")
			s.want(`f a; f c`, "yes\nno\n")
			s.want(`shopt -u extglob`, "")
			s.want(`shopt -q extglob && echo on || echo off`, "off\n")
		}},
		{name: "a function that needs extglob works when extglob was on only where it was defined", run: func(t *test) {
			s := t.session()
			s.want("shopt -s extglob\nf() { [[ $1 == @(a|b) ]] && echo yes || echo no; }\nshopt -u extglob", "")
			s.want(`g() { echo g; }`, "").noNotice("f")
			s.want(`f a; g`, "yes\ng\n")
		}},
		{name: "other options are not carried", run: func(t *test) {
			s := t.session()
			options := string(s.run(`set +o; shopt -p | grep -v extglob`).code(0).Output)
			for _, set := range []string{"set -u", "set -o pipefail", "set -f", "set -C", "set -a", "set -k", "set -o posix", "set -b", "set -h", "set -E -T", "set -o noclobber; shopt -s nullglob dotglob nocaseglob",
				"shopt -u expand_aliases", "shopt -s failglob; shopt -s lastpipe extdebug", "set -e", "set -x; set -v", "set -m"} {
				s.run(set)
				s.want(`set +o; shopt -p | grep -v extglob`, options)
			}
		}},
		{name: "C10 options that end a shell early do not reach the next call", run: func(t *test) {
			for _, set := range []string{"set -t", "set -n", "set -e; false", "set -u; echo $nothing", "set -euxo pipefail; false | true"} {
				s := t.session()
				s.run(set)
				s.want(`echo a; echo b`, "a\nb\n")
				s.want(`false; echo "$-"; echo c`, string(t.session().run(`false; echo "$-"`).Output)+"c\n")
			}
		}},
		{name: "traps, limits and jobs are not carried", run: func(t *test) {
			s := t.session()
			limit := string(s.run(`ulimit -S -n`).code(0).Output)
			s.want(`trap 'echo trapped' USR1 ERR RETURN; ulimit -S -n 256; sleep 0.01 & export A=1`, "").saved(true)
			s.want(`trap -p USR1 DEBUG ERR RETURN; ulimit -S -n; jobs; echo "<$!>$A"`, limit+"<>1\n")
		}},
		{name: "state is saved when the command ends by exit, set -e, set -u or a catchable signal", run: func(t *test) {
			for name, c := range map[string]struct {
				end   string
				cause elsewhere.Cause
				code  int
			}{
				"exit":           {`exit 3`, elsewhere.Exited, 3},
				"exit in depth":  {`f() { eval 'exit 4'; }; f; echo no`, elsewhere.Exited, 4},
				"set -e":         {`set -e; false; echo no`, elsewhere.Exited, 1},
				"set -u":         {`set -u; echo "$nothing"; echo no`, elsewhere.Exited, 0},
				"set -euxo":      {`set -euxo pipefail; false | true; echo no`, elsewhere.Exited, 1},
				"TERM":           {`kill -TERM $$; sleep 5`, elsewhere.Signaled, 143},
				"INT":            {`kill -INT $$; sleep 5`, elsewhere.Signaled, 130},
				"HUP":            {`kill -HUP $$; sleep 5`, elsewhere.Signaled, 129},
				"USR1":           {`kill -USR1 $$; sleep 5`, elsewhere.Signaled, 138},
				"a syntax error": {"if then", elsewhere.Exited, 0},
				"${x?}":          {`: "${nothing?gone}"; echo no`, elsewhere.Exited, 0},
				"return":         {`return 5`, elsewhere.Exited, 0},
				"a last failure": {`false`, elsewhere.Exited, 1},
			} {
				s := t.session()
				r := s.run("export A='" + name + "'; cd @D\n" + c.end).saved(true).cwd(s.d()).hasNot("no\n")
				if c.code != 0 { // else it is bash's affair
					r.ended(c.cause, c.code)
				}
				s.want(`echo "$A"; pwd`, name+"\n"+s.d()+"\n")
			}
		}},
		{name: "state is saved with an EXIT trap in the command, as it was before the trap's action", run: func(t *test) {
			for _, end := range []string{``, `exit 3`, `set -e; false`, `kill -TERM $$; sleep 5`} {
				s := t.session()
				r := s.run(`export A=1; cd @D; trap 'echo "trap sees $?"; export B=2 A=9; cd /; exit 7' EXIT; echo body; ` + end)
				r.saved(true).has("body\n", "trap sees")
				if r.Cause == elsewhere.Exited && r.ExitCode != 7 {
					r.fail("the trap's own exit code is lost")
				}
				s.want(`echo "$A ${B-unset}"; pwd`, "1 unset\n"+s.d()+"\n")
			}
		}},
		{name: "what an EXIT trap prints is output, in order, and its $? is the command's", run: func(t *test) {
			s := t.session()
			s.run(`trap 'echo "bye $?"' EXIT; echo hi; false`).out("hi\nbye 1\n").code(1)
			s.run(`trap 'echo "bye $?" >&2' 0; echo hi; exit 9`, split).out("hi\n").err("bye 9\n").code(9)
			s.want(`trap 'echo no' EXIT; trap - EXIT; echo hi`, "hi\n")
			s.want(`trap 'echo no' EXIT; trap '' EXIT; echo hi`, "hi\n")
			s.want(`trap 'echo one' EXIT; trap 'echo two' EXIT; echo hi`, "hi\ntwo\n")
			s.want(`trap -- 'echo dashes' EXIT INT; echo hi`, "hi\ndashes\n")
			s.want(`( trap 'echo sub' EXIT; echo in ); echo out`, "in\nsub\nout\n")
			s.want(`f() { trap 'echo from f' EXIT; }; f; echo hi`, "hi\nfrom f\n")
			s.want(`trap 'rm -f @D/tmp; echo cleaned' EXIT INT TERM; touch @D/tmp; export A=kept`, "cleaned\n")
			s.want(`echo "$A"`, "kept\n")
		}},
		{name: "an EXIT trap that was set lists as it was set", run: func(t *test) {
			t.session().want(`trap 'echo bye' EXIT; trap -p EXIT; trap - EXIT`, "trap -- 'echo bye' EXIT\n")
		}},
		{name: "traps on signals work and do not end the session", run: func(t *test) {
			s := t.session()
			s.want(`trap 'echo usr1; export GOT=1' USR1; kill -USR1 $$; echo after`, "usr1\nafter\n").saved(true)
			s.want(`echo "$GOT"`, "1\n")
			s.run(`trap 'echo term; exit 6' TERM; kill -TERM $$; sleep 5; echo no`).out("term\n").code(6).saved(true)
			s.want(`trap 'echo err' ERR; false; echo after`, "err\nafter\n")
			s.want(`trap 'echo ret' RETURN; f() { :; }; declare -ft f; f; echo after`, "ret\nafter\n")
			s.want(`trap '' INT TERM; kill -TERM $$; echo alive`, "alive\n")
		}},
		{name: "a shell that was replaced or killed keeps the state of before and says so", run: func(t *test) {
			s := t.session()
			s.want(`export A=1; cd @D`, "")
			s.want(`export A=2; cd /; exec echo replaced`, "replaced\n").code(0).saved(false)
			s.want(`echo "$A"; pwd`, "1\n"+s.d()+"\n")
			s.run(`export A=3; exec bash -c 'exit 5'`).code(5).saved(false)
			s.run(`export A=4; exec /no/such/program`).code(127).saved(false)
			s.run(`export A=4; exec @D`).code(126).saved(false)
			s.run(`export A=5; kill -9 $$; sleep 5`).ended(elsewhere.Signaled, 137).saved(false)
			s.run(`export A=6; exec 3</dev/null; exec -a x true`).code(0).saved(false)
			s.want(`echo "$A"; pwd`, "1\n"+s.d()+"\n")
		}},
		{name: "an EXIT trap that a sourced file sets may hide the end, and the next call is well", run: func(t *test) {
			s := t.session()
			s.want(`export A=1`, "")
			s.write("@D/trap.sh", "trap 'echo from the file' EXIT\n")
			r := s.want(`export A=2; . @D/trap.sh; echo body`, "body\nfrom the file\n")
			want := "1\n"
			if r.StateSaved {
				want = "2\n"
			}
			s.want(`echo "$A"`, want)
			s.run(`builtin trap 'echo own' EXIT; export A=3; exit 4`).code(4).out("own\n")
			s.want(`echo fine`, "fine\n")
		}},
		{name: "SHLVL does not climb from call to call", run: func(t *test) {
			s := t.session()
			first := string(s.run(`echo "$SHLVL"`).code(0).Output)
			for range 3 {
				s.want(`echo "$SHLVL"`, first)
			}
		}},
		{name: "each call's shell starts fresh: SECONDS, $?, $!, $_ and positional parameters", run: func(t *test) {
			s := t.session()
			s.run(`set -- a b c; SECONDS=1000; false`)
			s.want(`echo "$? $# <$!>"; [ "$SECONDS" -lt 100 ] && echo early`, "0 0 <>\nearly\n")
		}},
		{name: "a session that is idle between calls keeps its state", run: func(t *test) {
			// The waiting shell is dropped when it has been idle; the state must not go with it.
			b := t.own(boxSpec{Settings: map[string]string{"spawn_ahead_idle": "1"}})
			s := b.session("")
			s.want(`export A=1; f() { echo f; }; cd /usr`, "")
			s.flush()
			t.eventually("no shell waits", time.Second, func() bool { return len(b.rec.live()) == 0 })
			s.want(`echo "$A"; f; pwd`, "1\nf\n/usr\n")
		}},
		{name: "two sessions of one sandbox do not share state", run: func(t *test) {
			a, b := t.session(), t.session()
			a.want(`export A=1; f() { :; }; alias g=echo; cd /usr; umask 77`, "")
			b.want(`echo "${A-unset}"; type -t f; type -t g; [ "$PWD" = /usr ] && echo moved; umask`, "unset\n"+string(t.session().run(`umask`).Output))
		}},
		{name: "U07 the directory stays where the command left it", run: func(t *test) {
			s := t.session()
			s.want(`cd /tmp`, "").cwd("/tmp")
			s.want(`pwd`, "/tmp\n").cwd("/tmp")
			s.want(`true`, "").cwd("/tmp")
			s.want(`pwd`, "/tmp\n").cwd("/tmp").noNotice("directory")
		}},
	}}
}
