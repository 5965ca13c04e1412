package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// profileGroup: the first state is that of a login shell, however odd its files are (SPEC 1.3).
func profileGroup() group {
	with := func(name, file, text string, then func(t *test, s *session)) testCase {
		return testCase{name: name, run: func(t *test) {
			then(t, t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{file: text}}}).session(""))
		}}
	}
	// hostile is a profile that takes no part of the state with it: what stands before is gone, the session works.
	hostile := func(name, text string) testCase {
		c := with("a login file that "+name+" is left out, said once", ".bashrc", text, func(t *test, s *session) {
			first := s.run(`echo "<${BEFORE-}>"; export A=1; cd /usr`).code(0)
			if v := first.text(); v != "<>\n" && v != "<1>\n" {
				first.fail("the login file's own output is in the call's")
			}
			if len(first.Notices) == 0 {
				first.fail("nothing says that the login files were left out")
			}
			s.want(`echo "$A"; pwd`, "1\n/usr\n").noNotice("login").noNotice("profile").noNotice("bashrc").noNotice("init")
			s.run(`exit 3`).code(3)
		})
		c.slow = true
		return c
	}
	return group{name: "profile", cases: []testCase{
		{name: "all login files are read, in order, once", run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{
				".profile":      "export FIRST=profile ORDER=1; f() { echo f; }; alias al='echo al'\n",
				".bash_profile": "export ORDER=${ORDER}2\n",
				".bashrc":       "export ORDER=${ORDER}3; plain=unexported\n",
			}}}).session("")
			s.want("echo \"$FIRST $ORDER ${plain-none}\"; f\nal", "profile 123 none\nf\nal\n")
			s.want(`echo "$ORDER"`, "123\n")
		}},
		{name: "P06 login files are read once for a session, not for every call", run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "echo read >> \"$HOME/reads\"; sleep 0.3\n"}}})
			s := b.session("")
			for range 4 {
				s.want(`true`, "")
			}
			if n := strings.Count(b.observe(`cat `+quote(b.place.Home)+`/reads`), "read"); n != 1 {
				t.Errorf("the login file was read %d times", n)
			}
		}},
		{name: "auto_source_bashrc: false reads what a login bash reads and no more", run: func(t *test) {
			s := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Profile: map[string]string{".profile": "export A=profile", ".bash_profile": "export B=bash_profile", ".bashrc": "export C=bashrc"}},
				Settings:  map[string]string{"auto_source_bashrc": "false"},
			}).session("")
			s.want(`echo "${A-unset} ${B-unset} ${C-unset}"`, "unset bash_profile unset\n")
		}},
		{name: "shell_init_files are read instead, missing ones skipped", run: func(t *test) {
			b := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "export A=bashrc", "one.sh": "export B=1", "two words.sh": "export B=${B}2"}},
				Settings:  map[string]string{"shell_init_files": `["~/one.sh", "~/no such file", "~/two words.sh"]`},
			})
			b.session("").want(`echo "${A-unset} $B"`, "unset 12\n")
		}},
		with("C09 what login files print is in no result", ".bashrc", "echo out; echo err >&2; printf 'no newline'; env; set -v; set -x; export A=1\n", func(t *test, s *session) {
			s.run(`echo "hi $A"`, split).out("hi 1\n").err("")
			s.run(`echo hi`, split).out("hi\n").err("")
		}),
		with("a login file that changes directory changes nothing", ".bashrc", "cd /; pushd /usr; export A=1; OLDPWD=/nowhere; PWD=/nowhere\n", func(t *test, s *session) {
			s.want(`pwd; echo "$A"`, s.b.sb.Info().Dir+"\n1\n").cwd(s.b.sb.Info().Dir)
		}),
		with("a login file that sets options and traps leaves none of them", ".bashrc",
			"set -euxo pipefail; set -f -C -a; shopt -s nullglob failglob; set -o posix; trap 'echo no' EXIT DEBUG ERR INT; umask 027; ulimit -S -n 99; export A=1\n", func(t *test, s *session) {
				plain := t.session()
				s.want(`set +o; shopt -p | grep -v extglob; ulimit -S -n; trap -p INT DEBUG ERR`, string(plain.run(`set +o; shopt -p | grep -v extglob; ulimit -S -n; trap -p INT DEBUG ERR`).Output))
				s.want(`echo "$A"; umask; false; echo $nothing`, "1\n0027\n\n")
			}),
		with("a login file that exits keeps what it had set, said once", ".bashrc", "export BEFORE=1; f() { echo f; }; exit 3; export AFTER=1\n", func(t *test, s *session) {
			r := s.run(`echo "$BEFORE ${AFTER-unset}"; f`).code(0).out("1 unset\nf\n")
			if len(r.Notices) == 0 {
				r.fail("nothing says that a login file exited")
			}
			s.want(`echo "$BEFORE"`, "1\n").noNotice("exit")
		}),
		with("a login file that fails under -e keeps what it had set, said once", ".bash_profile", "set -e; export BEFORE=1; false; export AFTER=1\n", func(t *test, s *session) {
			r := s.run(`echo "$BEFORE ${AFTER-unset}"; false; echo alive`).code(0).out("1 unset\nalive\n")
			if len(r.Notices) == 0 {
				r.fail("nothing says that a login file failed")
			}
			s.want(`echo "$BEFORE"`, "1\n").noNotice("exit")
		}),
		with("a login file that dies of an unset variable keeps what it had set", ".bashrc", "export BEFORE=1; set -u; export AFTER=$nothing\n", func(t *test, s *session) {
			s.run(`echo "$BEFORE ${AFTER-unset}"; echo $nothing`).code(0).out("1 unset\n\n")
		}),
		with("a login file with a syntax error costs nothing but itself", ".bash_profile", "export BEFORE=1\nif then\nexport AFTER=1\n", func(t *test, s *session) {
			s.run(`echo "${AFTER-unset}"; echo ok`).code(0).out("unset\nok\n")
		}),
		with("a login file that ends early by return is no failure", ".bashrc", "case $- in *i*) ;; *) return;; esac\nexport AFTER=1\n", func(t *test, s *session) {
			s.want(`echo "${AFTER-unset}"`, "unset\n").noNotice("bashrc")
		}),
		with("a login file that reads its stdin gets end of file", ".bashrc", "read -r x; cat; export GOT=\"<$x>\"\n", func(t *test, s *session) {
			s.want(`echo "$GOT"`, "<>\n")
		}),
		with("L08 a login file that asks for a terminal finds none", ".bashrc", "stty sane; tty; read -r x < /dev/tty; bash --norc -i -c : ; export A=1\n", func(t *test, s *session) {
			s.want(`echo "$A"`, "1\n")
		}),
		with("a login file that leaves a child behind does not delay the session", ".bashrc", "sleep 1000 & (setsid sleep 1000 &) ; export A=1\n", func(t *test, s *session) {
			begin := time.Now()
			s.want(`echo "$A"`, "1\n")
			within(t, begin, 5*time.Second)
		}),
		with("a login file that traps EXIT keeps what it had set", ".bashrc", "export BEFORE=1; trap 'echo bye; exit 5' EXIT\n", func(t *test, s *session) {
			s.want(`echo "$BEFORE"`, "1\n")
			s.run(`echo x; exit 4`).code(4).out("x\n")
		}),
		with("a login file with readonly TMOUT and friends breaks nothing", ".bashrc",
			"readonly TMOUT=1; export TMOUT; declare -rx R=r; readonly PLAIN=1; declare -r IFS; readonly HISTFILE=; export LC_ALL=xx_NO.SUCH; export A=1\n", func(t *test, s *session) {
				s.run(`echo "$A $R $LC_ALL"; export B=2`, split).out("1 r xx_NO.SUCH\n").err("").code(0).saved(true)
				s.observe(`sleep 1.5`) // longer than TMOUT, for the shell that waits
				s.run(`echo "$A $B $R"; cd /usr`, split).out("1 2 r\n").err("").code(0)
				s.run(`pwd; exit 3`, split).out("/usr\n").err("").code(3)
			}),
		with("an LC_ALL that does not exist warns on no call", ".bashrc", "export LC_ALL=xx_NO.SUCH LANG=xx_NO.SUCH\n", func(t *test, s *session) {
			for range 3 {
				s.run(`echo hi`, split).out("hi\n").err("")
			}
		}),
		with("a login file that redefines builtins breaks nothing", ".bashrc",
			"trap() { :; }; export() { command export \"$@\"; echo exported; }; printf() { :; }; declare() { :; }; exit() { :; }; eval() { :; }; set() { :; }; unset() { :; }; read() { :; }\nexport A=1\n", func(t *test, s *session) {
				s.run(`echo "$A"; command export B=2; command cd /usr`, split).out("1\n").err("").saved(true)
				s.run(`echo "$B $PWD"`, split).out("2 /usr\n").err("")
				s.run(`set +e; echo x; (command exit 3)`, split).out("x\n").code(3)
			}),
		with("a login file that defines a function builtin breaks nothing", ".bashrc", "export A=1; builtin() { command builtin \"$@\"; }\n", func(t *test, s *session) {
			s.run(`echo "$A"; export B=2; cd /usr`, split).out("1\n").err("").saved(true)
			s.run(`echo "$B $PWD"; type -t builtin`, split).out("2 /usr\nfunction\n").err("")
		}),
		with("a login file that closes descriptors breaks nothing", ".bashrc", "exec 2>&- 1>&-; exec 0<&-; for ((i = 3; i < 256; i++)); do eval \"exec $i>&-\"; done 2>/dev/null; export A=1\n", func(t *test, s *session) {
			s.run(`echo hi; cat`, stdin("in")).code(0).out("hi\nin")
			s.want(`echo again`, "again\n")
		}),
		with("a login file with many functions and an option parser is taken whole", ".bashrc",
			"for i in {1..300}; do eval \"fn_$i() { case \\$1 in -a|--all) echo all $i;; *) echo $i;; esac; }\"; done; complete -F fn_1 cmd; shopt -s extglob progcomp; PROMPT_COMMAND='echo prompt'; PS1='> '\n", func(t *test, s *session) {
				s.want(`fn_1; fn_300 -a; compgen -A function fn_ | wc -l`, "1\nall 300\n300\n")
			}),
		with("the PATH of a login file is kept", ".bashrc", "mkdir -p \"$HOME/bin\"; printf '#!/bin/sh\\necho tool\\n' > \"$HOME/bin/drivertest-tool\"; chmod +x \"$HOME/bin/drivertest-tool\"; PATH=\"$HOME/bin:$PATH\"\n", func(t *test, s *session) {
			s.want(`drivertest-tool`, "tool\n")
			s.want(`drivertest-tool`, "tool\n")
		}),
		{name: "the caller's own PATH entries stay in front of what login files set", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			b := t.place(boxSpec{PlaceSpec: PlaceSpec{}})
			tools := b.scratch()
			b.observe(fmt.Sprintf(`mkdir %[1]s/own %[1]s/profile; for d in own profile; do printf '#!/bin/sh\necho of the %%s\n' $d > %[1]s/$d/drivertest-which; chmod +x %[1]s/$d/drivertest-which; done`, tools))
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{
				Environ: []string{"PATH=" + tools + "/own:/usr/local/bin:/usr/bin:/bin"},
				Profile: map[string]string{".bashrc": "PATH=" + tools + "/profile:/usr/bin:/bin\n"},
			}}).session("")
			s.want(`drivertest-which`, "of the own\n")
			s.want(`drivertest-which; case :$PATH: in *:`+tools+`/profile:*) echo kept;; esac`, "of the own\nkept\n")
		}},
		hostile("replaces the shell", "export BEFORE=1; exec /bin/sh -c 'echo replaced; exit 0'\n"),
		hostile("becomes a shell that waits for input", "export BEFORE=1; exec sh\n"),
		hostile("kills its shell", "export BEFORE=1; kill -9 $$\n"),
		hostile("turns execution off", "export BEFORE=1; set -n\n"),
		{name: "L09 a login file that hangs is left out after its limit, its children ended, said once", needs: []Need{NeedProc}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Profile: map[string]string{
					"beat":    beatScript,
					".bashrc": "export BEFORE=1; (setsid bash \"$HOME/beat\" \"$HOME\" child deaf &); bash \"$HOME/beat\" \"$HOME\" hang; export AFTER=1\n",
				}},
				Settings: map[string]string{"shell_init_timeout": "15"},
			})
			begin := time.Now()
			var s *session
			var r *elsewhere.Result
			done := make(chan error, 1)
			go func() { // the login files may be read when the session is opened or with its first call
				own, err := b.sb.Session(t.ctx(), "")
				if err == nil {
					s = &session{Session: own, t: t, b: b}
					r, err = s.try(`echo "${AFTER-unset}"; export A=1`)
				}
				done <- err
			}()
			look := &session{t: t, b: b, dir: b.place.Home}
			procs := look.alive("child", "hang")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			defer s.close()
			within(t, begin, 15*time.Second+endPromise)
			first := &result{Result: r, t: t, command: "the first call"}
			if first.code(0).out("unset\n"); len(r.Notices) == 0 {
				first.fail("nothing says that a login file was left out")
			}
			look.gone(procs, grace)
			s.want(`echo "$A"`, "1\n").noNotice("bashrc").noNotice("limit").noNotice("login")
		}},
		{name: "L09 a call can be canceled while a login file hangs, and nothing of it is left", needs: []Need{NeedProc}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{
				"beat":    beatScript,
				".bashrc": "[ -e \"$HOME/let\" ] || bash \"$HOME/beat\" \"$HOME\" hang; export A=1\n",
			}}})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			done := make(chan error, 1)
			var s *elsewhere.Session
			go func() { // the login files may be read when the session is opened or with its first call
				var err error
				if s, err = b.sb.Session(ctx, ""); err == nil {
					_, err = s.Run(ctx, `echo no`, nil)
				}
				done <- err
			}()
			look := &session{t: t, b: b, dir: b.place.Home}
			procs := look.alive("hang")
			begin := time.Now()
			cancel()
			if err := <-done; !errors.Is(err, elsewhere.ErrCanceled) {
				t.Errorf("error is %v, want %v", err, elsewhere.ErrCanceled)
			}
			within(t, begin, endPromise)
			look.gone(procs, grace)
			look.observe(`: > "` + b.place.Home + `/let"`)
			if s == nil {
				b.session("").want(`echo "$A"`, "1\n")
				return
			}
			next := &session{Session: s, t: t, b: b}
			defer next.close()
			next.want(`echo "$A"`, "1\n")
		}},
		{name: "L09 a login file that waits for input for ever is bounded by 30 s", big: true, slow: true, run: func(t *test) {
			b := t.place(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "mkfifo \"$HOME/never\" 2>/dev/null; read -r x < \"$HOME/never\"\n"}}})
			begin := time.Now()
			b.open()
			s := b.session("")
			s.want(`pwd`, b.sb.Info().Dir+"\n")
			within(t, begin, 30*time.Second+endPromise)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "each session has the login state anew, whatever another did to its own", run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "export A=profile\n"}}})
			s := b.session("")
			s.want(`echo "$A"; export A=changed`, "profile\n")
			b.session("").want(`echo "$A"`, "profile\n")
			s.want(`echo "$A"`, "changed\n")
		}},
	}}
}
