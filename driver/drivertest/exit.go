package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// exitGroup: how a call ends and what is said about it (SPEC 1.7, 1.15).
func exitGroup() group {
	return group{name: "exit", cases: []testCase{
		{name: "every exit code comes back as the command's own", run: func(t *test) {
			s := t.session()
			for _, code := range []int{0, 1, 2, 3, 63, 64, 100, 123, 124, 125, 126, 127, 128, 129, 130, 137, 143, 200, 254, 255} {
				s.run(fmt.Sprintf("exit %d", code)).code(code).out("")
				s.run(fmt.Sprintf("(exit %d)", code)).code(code).out("")
			}
			s.run(`exit 256`).code(0)
			s.run(`exit -1`).code(255)
		}},
		{name: "a signal that ends the shell is a signal, a child that died of one is an exit code", run: func(t *test) {
			s := t.session()
			for name, n := range map[string]int{"TERM": 15, "KILL": 9, "INT": 2, "HUP": 1, "USR1": 10, "ALRM": 14, "ABRT": 6} {
				r := s.run(fmt.Sprintf(`kill -%s $$; while :; do :; done`, name)).ended(elsewhere.Signaled, 128+n)
				if r.Signal != name {
					r.fail("signal is %q, want %q", r.Signal, name)
				}
				s.run(fmt.Sprintf(`bash -c 'kill -%s $$; sleep 5'`, name), split).code(128 + n)
				if r := s.run(fmt.Sprintf(`exit %d`, 128+n)).code(128 + n); r.Signal != "" {
					r.fail("signal is %q after an exit", r.Signal)
				}
			}
		}},
		{name: "exit 124 and 130 of the command are not taken for a timeout or an interrupt", run: func(t *test) {
			s := t.session()
			s.run(`exit 124`, timeout(time.Minute)).code(124)
			s.run(`exit 130`).code(130)
			s.run(`timeout 0.05 sleep 5`).code(124)
		}},
		{name: "a timeout is 124 with its cause, and the limit that fired is named", run: func(t *test) {
			s := t.session()
			begin := time.Now()
			r := s.run(`echo early; sleep 100`, timeout(time.Second)).ended(elsewhere.TimedOut, 124).out("early\n")
			within(t, begin, time.Second+endPromise)
			if time.Since(begin) < time.Second {
				r.fail("ended before its time")
			}
		}},
		{name: "C14 there is no syntax check but bash's own", run: func(t *test) {
			s := t.session()
			// The code of a syntax error in evaluated text is 1 before bash 5, and 2 since.
			code := 2
			if s.version() < 500 {
				code = 1
			}
			s.run(`if then fi`).code(code).has("syntax error")
			s.run("echo before\nif then\necho after").code(code).has("before\n", "syntax error").hasNot("after\n")
			s.want(`printf 'a b\nc d\n' | awk 'BEGIN { q = "\"" } { printf "%s%s%s'"'"'s\n", q, $2, q }' | sed -e 's/"\([a-z]\)"/<\1>/' -e "s/'s\$/!/"`, "<b>!\n<d>!\n")
		}},
		{name: "C14 an unfinished quote, substitution or here-document cannot hang the session", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`echo "abc`, `echo 'abc`, "echo `abc", `echo $(abc`, `x=${abc`, `( echo a`, `{ echo a`, `if true; then`, `while`, `case x in`, `f() {`, `echo a |`, `echo a &&`, "[[ a", `((`, `$'`, `x=(a b`} {
				s.run(c, stdin("more input\n\"'`)}\nfi\ndone\nesac\n")).hasNot("more input")
				s.want(`echo fine`, "fine\n")
			}
			s.run("cat <<EOF\nhi").has("hi").code(0)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "C01 a command that ends in a here-document gets nothing of the wrapper", run: func(t *test) {
			s := t.session()
			for _, end := range []string{"\n", ""} {
				s.want("cat > @D/f <<'EOF'\nhi\nEOF"+end, "")
				s.want(`cat @D/f`, "hi\n")
				s.want("cat <<EOF\nhi $((1+1))\nEOF"+end, "hi 2\n")
				s.want("cat <<-EOF | tr a-z A-Z\n\thi\n\tEOF"+end, "HI\n")
			}
		}},
		{name: "C01 a command that ends in anything odd gets nothing of the wrapper", run: func(t *test) {
			s := t.session()
			for command, out := range map[string]string{
				"echo a # comment":                "a\n",
				"echo a #":                        "a\n",
				"echo a \\":                       "a \n",
				"echo a \\\n":                     "a\n",
				"echo a;":                         "a\n",
				"echo a &\nwait":                  "a\n",
				"{ echo a; }":                     "a\n",
				"(echo a)":                        "a\n",
				"echo a\n\n\n":                    "a\n",
				"  \n\techo a":                    "a\n",
				"echo a\r":                        "a\r\n",
				"echo 'a\nb'":                     "a\nb\n",
				"! false; echo $?":                "0\n",
				"# nothing":                       "",
				":":                               "",
				"-n() { echo odd; }; -n":          "odd\n",
				"echo -- a":                       "-- a\n",
				"echo a |& cat":                   "a\n",
				"cat <<< 'a'":                     "a\n",
				"if true\nthen echo a\nfi":        "a\n",
				"function f { echo a; }\nf":       "a\n",
				"echo $'\\x41' \"\\$x\" '\\'":     "A $x \\\n",
				"echo \"!\" ! '!'":                "! ! !\n",
				"time :":                          "\nreal",
				"coproc cat; kill $COPROC_PID; :": "",
			} {
				r := s.run(command)
				if command == "time :" {
					r.has(out)
				} else if !strings.HasPrefix(command, "coproc") && !strings.HasSuffix(command, "\\") {
					r.out(out)
				}
				r.code(0)
			}
		}},
		{name: "return, break and continue outside of anything end nothing but themselves", run: func(t *test) {
			s := t.session()
			s.run(`break; continue; echo after`).has("after\n").code(0)
			s.run(`return 3; echo after; export A=1`, split).out("after\n").saved(true)
			s.want(`echo $A`, "1\n")
			s.want(`f() { return 3; echo no; }; f; echo $?`, "3\n")
			s.want("for i in 1 2; do break; done; echo $i", "1\n")
		}},
		{name: "the whole session works after set -euxo pipefail", run: func(t *test) {
			s := t.session()
			s.run(`set -euxo pipefail; export A=1; echo body; false | true; echo no`, split).out("body\n").code(1).saved(true)
			s.run(`echo "$A $nothing"; false | true; echo "$?"`, split).out("1 \n0\n").err("").code(0)
			s.run(`set -euxo pipefail; echo ok`, split).out("ok\n").code(0).saved(true)
		}},
		{name: "an empty command is a config error or does nothing", run: func(t *test) {
			s := t.session()
			for _, command := range []string{"", " ", "\n\t\n"} {
				res, err := s.try(command)
				if err != nil {
					t.wantKind(err, elsewhere.ErrConfig, "an empty command")
				} else if res.ExitCode != 0 || len(res.Output) > 0 {
					t.Errorf("the command %q came to %+v", command, res)
				}
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "a command with a NUL is a config error and nothing of it is run", run: func(t *test) {
			s := t.session()
			_, err := s.try(s.fill("touch @D/ran\x00; touch @D/ran"))
			t.wantKind(err, elsewhere.ErrConfig, "a command with a NUL")
			if s.exists("@D/ran") {
				t.Error("the command was run")
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "a context that is canceled already runs nothing", run: func(t *test) {
			s := t.session()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			res, err := s.tryCtx(ctx, s.fill(`touch @D/ran`))
			switch {
			case err != nil:
				if !errors.Is(err, elsewhere.ErrCanceled) {
					t.Errorf("error is %v, want %v", err, elsewhere.ErrCanceled)
				}
			case res.Cause != elsewhere.Interrupted || res.ExitCode != 130:
				t.Errorf("ended by %s with %d", res.Cause, res.ExitCode)
			}
			s.want(`echo fine`, "fine\n")
			if s.exists("@D/ran") {
				t.Error("the command was run")
			}
		}},
		{name: "a session that was closed refuses calls with an error", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`echo fine`, "fine\n")
			s.close()
			if res, err := s.try(`echo no`); err == nil {
				t.Errorf("a closed session ran a command: %+v", res)
			}
			other := b.session("")
			b.close()
			if res, err := other.try(`echo no`); err == nil {
				t.Errorf("a session of a closed sandbox ran a command: %+v", res)
			}
			if _, err := b.sb.Session(t.ctx(), ""); err == nil {
				t.Error("a closed sandbox opened a session")
			}
		}},
		{name: "closing twice does nothing", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`echo fine`, "fine\n")
			for range 2 {
				if err := s.Session.Close(t.ctx()); err != nil {
					t.Errorf("closing the session: %v", err)
				}
			}
			for range 2 {
				if err := b.sb.Close(t.ctx()); err != nil {
					t.Errorf("closing the sandbox: %v", err)
				}
			}
		}},
		{name: "a result says where, by what id and how long", run: func(t *test) {
			b := t.shared()
			s := b.session("")
			first, second := s.run(`echo "$`+b.rec.variable()+`"`), s.run(`true`)
			info := b.sb.Info()
			if first.Where != (elsewhere.Where{Host: info.Host, SandboxID: info.SandboxID, User: info.User}) {
				t.Errorf("Where is %+v, Info %+v", first.Where, info)
			}
			if first.Backend != b.sb.Backend() || first.Task != b.sb.Task() || first.Session != "" {
				t.Errorf("the result names backend %q, task %q, session %q", first.Backend, first.Task, first.Session)
			}
			if first.CallID == second.CallID || len(first.CallID) != 32 {
				t.Errorf("call ids are %q and %q", first.CallID, second.CallID)
			}
			if b.rec.variable() != "" {
				first.out(first.CallID + "\n")
			}
			if first.OutputBytes != int64(len(first.Output)) || first.Truncated || first.OutputFile != "" || first.Duration <= 0 {
				t.Errorf("output bytes %d, truncated %v, file %q, duration %v", first.OutputBytes, first.Truncated, first.OutputFile, first.Duration)
			}
		}},
		{name: "commands run as the user and on the host that Info names", run: func(t *test) {
			b := t.shared()
			info := b.sb.Info()
			user := strings.TrimSpace(b.session("").run(`id -un 2>/dev/null || id -u`).text())
			uid := strings.TrimSpace(b.session("").run(`id -u`).text())
			if info.User != user && info.User != uid {
				t.Errorf("Info.User is %q, commands run as %s (%s)", info.User, user, uid)
			}
			if info.Home != "" {
				b.session("").want(`cd ~ && pwd`, info.Home+"\n")
			}
		}},
		{name: "a command that is not found is 127 with bash's own words", run: func(t *test) {
			t.session().run(`nosuchcmd-xyz`).code(127).has("nosuchcmd-xyz: command not found")
		}},
		{name: "the meaning of an exit code is told for the command that it belongs to", run: func(t *test) {
			s := t.session()
			if r := s.run(`echo a | grep -q b`).code(1); r.ExitMeaning == "" {
				r.fail("grep's 1 has no meaning")
			}
			if r := s.run(`echo 'a | grep b'; false`).code(1); strings.Contains(strings.ToLower(r.ExitMeaning), "match") {
				r.fail("the meaning %q was taken from a quoted text", r.ExitMeaning)
			}
			if r := s.run(`true`).code(0); r.ExitMeaning != "" {
				r.fail("0 means %q", r.ExitMeaning)
			}
		}},
	}}
}

// wantKind fails the case where err is not an *elsewhere.Error of this kind that says what failed.
func (t *test) wantKind(err, kind error, what string) {
	t.Helper()
	var own *elsewhere.Error
	switch {
	case err == nil:
		t.Errorf("%s is no error", what)
	case !errors.Is(err, kind):
		t.Errorf("%s: error is %v, want kind %v", what, err, kind)
	case !errors.As(err, &own) || own.Op == "" || own.Err == nil:
		t.Errorf("%s: error %#v says not what failed", what, err)
	}
}
