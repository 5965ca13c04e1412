package drivertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// hostileGroup: what a command does to its own shell breaks no later call (SPEC 1.1).
func hostileGroup() group {
	g := group{name: "hostile"}
	for _, c := range hostileCommands {
		g.cases = append(g.cases, testCase{name: "the session is whole after " + c.name, run: func(t *test) {
			s := t.session()
			s.want(`export KEPT=before; f() { echo "f $KEPT"; }; cd /usr`, "")
			for range 2 {
				begin := time.Now()
				r := s.run(c.text, timeout(20*time.Second))
				if r.Cause == elsewhere.TimedOut {
					r.fail("the call hung")
				}
				within(t, begin, 5*time.Second)
				if c.code >= 0 && r.ExitCode != c.code {
					r.fail("exit code is %d, want %d", r.ExitCode, c.code)
				}
				if c.out != "" && string(r.Output) != c.out {
					r.fail("output is %q, want %q", r.Output, c.out)
				}
				after := s.run("\\builtin echo \"$KEPT\"; \\f; \\builtin pwd; \\builtin false", split)
				if len(after.Notices) == 0 {
					after.out("before\nf before\n/usr\n").code(1)
				} else if string(after.Stdout) != "before\nf before\n/usr\n" {
					after.fail("the session is not what it was")
				}
			}
			s.want(`echo fine`, "fine\n")
		}})
	}
	return g
}

// hostileCommands have an exit code, or -1 where it is bash's affair, and an output or "". Those that take away what the
// bookkeeping itself is written with (set -r, enable -n, its own names readonly) may show it; no later call is harmed.
var hostileCommands = []struct {
	name, text string
	code       int
	out        string
}{
	{"exit", `exit 7`, 7, ""},
	{"exec", `exec true`, 0, ""},
	{"exec of a failing program", `exec false`, 1, ""},
	{"exec of nothing that exists", `exec /no/such`, 127, ""},
	{"exec with a bare shell", `exec bash --norc`, 0, ""},
	{"kill -9 $$", `kill -9 $$`, 137, ""},
	{"kill -TERM 0", `trap '' TERM; kill -TERM 0; echo still`, 0, "still\n"},
	{"kill of its own process group", `kill -KILL -- -$$; sleep 5`, 137, ""},
	{"kill -STOP $$ undone by a child", `(sleep 0.2; kill -CONT $$) & kill -STOP $$; echo back`, 0, "back\n"},
	{"every descriptor closed", `for ((i = 0; i < 256; i++)); do eval "exec $i>&-"; done; exit 4`, 4, ""},
	{"descriptors 3 to 255 redirected", `for ((i = 3; i < 256; i++)); do eval "exec $i</dev/null"; done; echo x`, 0, "x\n"},
	{"writing garbage to every descriptor", `for ((i = 3; i < 256; i++)); do { echo garbage >&$i; } 2>/dev/null; done; echo x`, 0, ""},
	{"reading every descriptor", `for ((i = 3; i < 256; i++)); do { IFS= read -r -t 0.001 x <&$i; } 2>/dev/null; done; echo x`, 0, "x\n"},
	{"a limit of no open files", `ulimit -S -n 4; cat /dev/null; echo x`, 0, ""},
	{"a limit of no file size", `ulimit -S -f 0; trap '' XFSZ; echo x`, 0, ""},
	{"a limit of little memory", `ulimit -S -v 40000; echo x`, 0, "x\n"},
	{"a limit of no processes", `ulimit -S -u 1; echo x; :`, 0, ""},
	{"set -euxo pipefail", `set -euxo pipefail; false`, 1, ""},
	{"set -n", `set -n; echo no`, -1, ""},
	{"set -t", `set -t; echo x`, -1, ""},
	{"set -o posix", `set -o posix; echo x`, 0, "x\n"},
	{"set -r", `set -r; echo x`, -1, ""},
	{"set -p and +p", `set -p; set +p; echo x`, 0, "x\n"},
	{"shopt of everything", `for o in $(shopt | cut -f1); do shopt -s "$o" 2>/dev/null; done; echo x`, 0, ""},
	{"shopt of nothing", `for o in $(shopt | cut -f1); do shopt -u "$o" 2>/dev/null; done; echo x`, 0, "x\n"},
	{"set of everything", `for o in allexport braceexpand emacs errtrace functrace hashall histexpand history ignoreeof interactive-comments keyword monitor noclobber noglob notify physical; do set -o $o; done; echo x`, 0, "x\n"},
	{"set of nothing", `for o in braceexpand hashall interactive-comments; do set +o $o; done; echo x`, 0, "x\n"},
	{"extdebug with a false DEBUG trap", `shopt -s extdebug; trap false DEBUG; echo no; exit 3`, -1, ""},
	{"a DEBUG trap that exits", `trap 'exit 9' DEBUG; echo no`, 9, ""},
	{"a DEBUG trap that prints", `trap 'echo d' DEBUG; :`, 0, "d\n"},
	{"an ERR trap that exits", `trap 'exit 8' ERR; false; echo no`, 8, ""},
	{"an EXIT trap that runs for long", `trap 'sleep 0.3; echo late' EXIT; echo x`, 0, "x\nlate\n"},
	{"an EXIT trap that kills its shell", `trap 'kill -9 $$' EXIT; echo x`, 137, "x\n"},
	{"an EXIT trap that execs", `trap 'exec echo replaced' EXIT; echo x`, 0, "x\nreplaced\n"},
	{"an EXIT trap that sets an EXIT trap", `trap 'trap "echo again" EXIT; echo first' EXIT; echo x`, 0, ""},
	{"traps on every signal", `for i in {1..64}; do trap "echo $i" $i 2>/dev/null; done; echo x`, 0, "x\n"},
	{"every signal ignored", `for i in {1..64}; do trap '' $i 2>/dev/null; done; echo x`, 0, "x\n"},
	{"the EXIT trap taken away", `trap - EXIT; echo x`, 0, "x\n"},
	{"the EXIT trap ignored", `trap '' EXIT; echo x`, 0, "x\n"},
	{"the EXIT trap taken away by the builtin", `builtin trap - EXIT; echo x; exit 3`, 3, "x\n"},
	{"a builtin EXIT trap", `builtin trap 'echo mine' 0; echo x; exit 3`, 3, "x\nmine\n"},
	{"all variables unset", `for v in $(compgen -v); do [ $v = KEPT ] || unset "$v" 2>/dev/null; done; exit 0`, 0, ""},
	{"all functions unset", `for f in $(compgen -A function); do [ $f = f ] || unset -f $f; done; exit 0`, 0, ""},
	{"the positional parameters gone", `set --; shift 2>/dev/null; echo "$#"`, 0, "0\n"},
	{"IFS, PS4 and PATH spoiled", `IFS=x PS4='$(' PATH=/nowhere; builtin echo x`, 0, "x\n"},
	{"BASH_ENV, ENV, SHELLOPTS and BASHOPTS in the environment", `export BASH_ENV=/dev/stdin ENV=/dev/stdin; export SHELLOPTS BASHOPTS; set -u; echo x; unset BASH_ENV ENV; exit`, 0, "x\n"},
	{"readonly IFS, PWD, OLDPWD, PATH and umask", `readonly IFS PWD OLDPWD SECONDS; echo x`, 0, "x\n"},
	{"readonly names that a wrapper might use", `readonly x=1 i=1 n=1 cmd=1 rc=1 status=1 REPLY=1 ew=1 ew_q=1 ew_slot=1 ew_token=1 ew_fd=1 ew_late=1; echo x`, -1, ""},
	{"variables that a wrapper might use", `export ew=1 ew_from=/nowhere ew_slot=/nowhere ew_token=x ew_kind=Z ew_text='echo no' ew_set='echo no' ew_fd=2; echo x; unset ew ew_from ew_slot ew_token ew_kind ew_text ew_set ew_fd`, 0, "x\n"},
	{"arrays with the names of bash's own", `declare -a SECONDS=(1 2) 2>/dev/null; unset BASH_SOURCE FUNCNAME GROUPS PIPESTATUS 2>/dev/null; echo x`, 0, "x\n"},
	{"enable -n of every builtin", `for b in $(enable | cut -d' ' -f2); do [ $b = enable ] || enable -n $b; done; exit 3`, -1, ""},
	{"enable -n of what a wrapper needs", `enable -n printf trap eval read unset export declare alias umask shopt compgen cd; echo x`, -1, ""},
	{"a deep recursion", `f2() { f2; }; (ulimit -S -s 512; f2) 2>/dev/null; echo x`, 0, ""},
	{"nested shells", `bash -c 'bash -c "bash -c \"exit 5\""'`, 5, ""},
	{"a syntax error", `)`, -1, ""},
	{"an unfinished quote", `'`, -1, ""},
	{"a here-document without end", "cat <<X\ntext", 0, ""},
	{"return", `return 4`, -1, ""},
	{"break out of everything", `break 99; continue 99; echo x`, 0, ""},
	{"history expansion", `set -o history; set -H; echo '!!' '!x'; echo x`, 0, ""},
	{"a background child that kills the shell", `(sleep 0.1; kill -9 $$) & while :; do :; done`, 137, ""},
	{"suspend", `suspend 2>/dev/null; echo x`, 0, "x\n"},
	{"umask of everything", `umask 777; umask 022; echo x`, 0, "x\n"},
	{"output of control characters", `printf '\033c\033[2J\017\016\x1e\x1f'; :`, 0, "\033c\033[2J\017\016\x1e\x1f"},
	{"its directory removed under it", `d=/tmp/drivertest-hostile-$$; mkdir $d && cd $d && rmdir $d; cd /usr; echo x`, 0, "x\n"},
	{"LC_ALL and LANG of nonsense", `export LC_ALL=xx_NO LANG=yy_NO 2>/dev/null; unset LC_ALL LANG; echo x`, 0, ""},
	{"hash -p", `hash -p /bin/false echo cat bash env printf; builtin echo x`, 0, "x\n"},
	{"command_not_found_handle", `command_not_found_handle() { echo handled; return 66; }; nosuch; r=$?; unset -f command_not_found_handle; exit $r`, 66, "handled\n"},
	{"a fork storm of short children", `for i in {1..200}; do (:) & done; wait; echo x`, 0, "x\n"},
	{"coproc", `coproc cat; echo x`, 0, "x\n"},
	{"jobs control on", `set -m; sleep 0.05 & fg >/dev/null; echo x`, 0, "x\n"},
	{"a loadable builtin that does not exist", `enable -f /no/such nothing 2>/dev/null; echo x`, 0, "x\n"},
	{"bind and complete", `bind 'set editing-mode vi' 2>/dev/null; complete -W 'a b' cd; echo x`, 0, "x\n"},
	{"PROMPT_COMMAND and PS0", `PROMPT_COMMAND='exit 9' PS0='$(exit 9)'; export PROMPT_COMMAND PS0; echo x; unset PROMPT_COMMAND PS0`, 0, "x\n"},
	{"exported functions of the names of builtins", `for n in cd trap builtin; do eval "$n() { :; }"; done; export -f cd trap; \unset -f cd trap builtin; echo x`, 0, "x\n"},
	{"a lock on the time", `TMOUT=1; export TMOUT; echo x; unset TMOUT`, 0, "x\n"},
}

// secretGroup: what is the agent's own stays with it (SPEC 2.1, 1.10 and 1.4).
func secretGroup() group {
	return group{name: "secrets", cases: []testCase{
		{name: "X04 keys, tokens and endpoints of the agent are in no command's environment", run: func(t *test) {
			names := strings.Fields("OPENAI_API_KEY OPENAI_BASE_URL OPENROUTER_API_KEY ANTHROPIC_API_KEY ANTHROPIC_TOKEN GOOGLE_API_KEY GH_TOKEN GITHUB_TOKEN TELEGRAM_BOT_TOKEN DISCORD_BOT_TOKEN " +
				"SLACK_BOT_TOKEN MODAL_TOKEN_ID MODAL_TOKEN_SECRET DAYTONA_API_KEY VERCEL_TOKEN VERCEL_OIDC_TOKEN HASS_TOKEN EMAIL_PASSWORD SUDO_PASSWORD AUXILIARY_VISION_API_KEY AUXILIARY_X_BASE_URL " +
				"GATEWAY_RELAY_SECRET GATEWAY_RELAY_X_SECRET GATEWAY_RELAY_X_TOKEN ELEVENLABS_API_KEY HF_TOKEN FIRECRAWL_API_KEY VIRTUAL_ENV CONDA_PREFIX PYTHONHOME")
			var environ []string
			for _, n := range names {
				environ = append(environ, n+"=drivertest-secret-"+n)
			}
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: environ}}).session("")
			for range 2 {
				s.want(`env | grep drivertest-secret; set | grep -a drivertest-secret | grep -v BASH_EXECUTION_STRING; tr '\0' '\n' < /proc/$$/environ 2>/dev/null | grep drivertest-secret; :`, "")
				s.want(`sleep 0.01 & env | grep -c drivertest-secret; wait`, "0\n")
			}
		}},
		{name: "X04 what the passthrough list names is there, but for what is always blocked, which is said", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			s := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Environ: []string{"MY_TOKEN=1", "NOTION_API_KEY=2", "AWS_SECRET_ACCESS_KEY=3", "CLAUDE_CODE_OAUTH_TOKEN=4", "OPENAI_API_KEY=5", "GROQ_API_KEY=6", "GITHUB_TOKEN=7"}},
				Settings:  map[string]string{"env_passthrough": `["MY_TOKEN", "OPENAI_API_KEY", "GITHUB_TOKEN"]`},
			}).session("")
			s.run(`echo "$MY_TOKEN $NOTION_API_KEY $AWS_SECRET_ACCESS_KEY $CLAUDE_CODE_OAUTH_TOKEN $OPENAI_API_KEY ${GROQ_API_KEY-unset} ${GITHUB_TOKEN-unset}"`).
				code(0).out("1 2 3 4 5 unset unset\n").notice("GITHUB_TOKEN")
		}},
		{name: "G01 what the passthrough list names reaches commands and jobs, and no waiting shell has it", inapt: sharesEnvironment, run: func(t *test) {
			b := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Environ: []string{"MY_TOKEN=drivertest-secret", "MY_OTHER=drivertest-other", "SUDO_PASSWORD=drivertest-other"}},
				Settings:  map[string]string{"env_passthrough": `["MY_TOKEN", "SUDO_PASSWORD"]`},
			})
			s := b.session("")
			s.run(`printenv MY_TOKEN; echo "${MY_OTHER-unset} ${SUDO_PASSWORD-unset}"`).code(0).out("drivertest-secret\nunset unset\n").notice("SUDO_PASSWORD")
			s.want(`printenv MY_TOKEN; tr '\0' '\n' </proc/$$/environ 2>/dev/null | grep -c drivertest; :`, "drivertest-secret\n0\n")
			j := s.job(`printenv MY_TOKEN; echo "${MY_OTHER-unset}"`, elsewhere.JobOptions{})
			if got := string(j.log()); got != "drivertest-secret\nunset\n" {
				t.Errorf("the job printed %q", got)
			}
		}},
		{name: "X04 a secret that the passthrough list names is in no state, and gone when the caller has it no more", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			b := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Environ: []string{"OPENAI_API_KEY=drivertest-secret"}},
				Settings:  map[string]string{"env_passthrough": `["OPENAI_API_KEY"]`},
			})
			s := b.session("dev")
			s.want(`echo "$OPENAI_API_KEY"; export A=1 OPENAI_API_KEY`, "drivertest-secret\n")
			s.want(`bash -c 'echo "$OPENAI_API_KEY"'; echo "$A"`, "drivertest-secret\n1\n")
			s.close()
			if found := b.observe(`grep -rl drivertest-secret ` + quote(b.sb.Info().StateDir) + `; :`); found != "" {
				t.Errorf("it is in %s", found)
			}
			later := *b
			later.opts.Environ = slices.DeleteFunc(slices.Clone(b.opts.Environ), func(e string) bool { return strings.HasPrefix(e, "OPENAI_API_KEY=") })
			later.open()
			later.session("dev").want(`echo "${OPENAI_API_KEY-unset} $A"`, "unset 1\n")
		}},
		{name: "what a command or a login file exports under such a name is kept", run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "export GITHUB_TOKEN=of-the-profile\n"}}}).session("")
			s.want(`echo "$GITHUB_TOKEN"; export OPENAI_API_KEY=of-the-command`, "of-the-profile\n")
			s.want(`echo "$GITHUB_TOKEN $OPENAI_API_KEY"`, "of-the-profile of-the-command\n")
		}},
		{name: "scrub_profile removes such names of the login files too", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			s := t.own(boxSpec{
				PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "export GITHUB_TOKEN=drivertest-secret AUXILIARY_X_API_KEY=drivertest-secret OTHER=kept\n"}},
				Settings:  map[string]string{"scrub_profile": "true"},
			}).session("")
			s.want(`env | grep -c drivertest-secret; echo "$OTHER"`, "0\nkept\n")
		}},
		{name: "X05 the agent's keys cannot be read back from the parent process", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: []string{"OPENAI_API_KEY=drivertest-secret"}}}).session("")
			// Where the shell's parent is outside, it has the number 0.
			s.want(`{ tr '\0' '\n' < /proc/$PPID/environ; } 2>/dev/null | grep -c drivertest-secret; :`, "0\n")
		}},
		{name: "L11 the temp directory is there and can be written", run: func(t *test) {
			t.session().want(`d=$(mktemp -d) && [ -d "$d" ] && touch "$d/x" && rm -r "$d" && echo ok`, "ok\n")
		}},
		{name: "L12 semaphores and process pools work", run: func(t *test) {
			b := t.shared()
			if b.observe(`command -v python3 >/dev/null && echo there`) != "there\n" {
				t.skip("python3 is not installed in this place")
			}
			b.session("").want(`python3 -c 'from multiprocessing import Lock; Lock(); print("ok")'`, "ok\n")
		}},
	}}
}

// nameGroup: any text names a session or task, and no two share one (SPEC 0).
func nameGroup() group {
	return group{name: "names", cases: []testCase{
		{name: "session names of every kind are kept apart", run: func(t *test) {
			b := t.own(boxSpec{})
			names := []string{"a", "a/b", "a-b", "a.b", "A", "..", ".", "../x", "/", "a b", "a\nb", "é", "\xff", strings.Repeat("n", 300), strings.Repeat("n", 301), "-rf", "$(x)", "'"}
			for i, n := range names {
				b.session(n).want(fmt.Sprintf(`echo "${ME-unset}"; export ME=%d`, i), "unset\n")
			}
			for i, n := range names {
				b.session(n).want(`echo "$ME"`, fmt.Sprintf("%d\n", i))
			}
		}},
		{name: "a task of any name is opened and is its own", needs: []Need{NeedReopen}, slow: true, run: func(t *test) {
			for _, task := range []string{"a/b", "../x", "x y", "é\n"} {
				b := t.own(boxSpec{Options: elsewhere.SandboxOptions{Task: task}})
				if b.sb.Task() != task {
					t.Errorf("task is %q, want %q", b.sb.Task(), task)
				}
				s := b.session("dev")
				if r := s.want(`echo "${ME-unset}"; export ME=1`, "unset\n"); r.Task != task || r.Session != "dev" {
					r.fail("the result names task %q and session %q", r.Task, r.Session)
				}
			}
		}},
		{name: "U10 a backend of a name of its own has state of its own, and a name that nothing has is an error", slow: true, run: func(t *test) {
			b := t.place(boxSpec{})
			b.hermes("config.yaml", "terminal:\n  backends:\n    other: {backend: "+b.backend.Name+"}\n")
			b.reload(nil)
			b.open()
			b.session("dev").want(`export A=1; echo "$A"`, "1\n")
			other, lost := *b, *b
			other.opts.Backend, lost.opts.Backend = "other", "otter"
			t.Cleanup(func() { // a place removes what is its backend's; this one has another identity
				all, err := elsewhere.OpenSandboxes(context.Background(), b.cfg, "other", &other.opts)
				if err != nil {
					return // nothing is kept on this backend
				}
				defer all.Close()                                        //nolint:errcheck // there is nothing to lose
				_, _ = all.Remove(context.Background(), "default", true) // it may be gone
			})
			other.open()
			if r := other.session("dev").want(`echo "${A-unset}"; export A=2`, "unset\n"); r.Backend != "other" {
				r.fail("the result names %q", r.Backend)
			}
			b.session("dev").want(`echo "$A"`, "1\n").noNotice("other")
			sb, err := elsewhere.OpenSandbox(t.ctx(), lost.cfg, &lost.opts)
			if err == nil {
				lost.closeSandbox(sb)
			}
			t.wantKind(err, elsewhere.ErrConfig, "a name that nothing has")
		}},
		{name: "the same session opened twice in one sandbox is the same", run: func(t *test) {
			b := t.own(boxSpec{})
			s, o := b.session("same"), b.session("same")
			s.want(`export A=1; cd /usr`, "")
			s.flush()
			o.want(`echo "$A"; pwd; export A=2`, "1\n/usr\n")
			o.flush()
			s.want(`echo "$A"`, "2\n")
		}},
		{name: "a throw-away session leaves nothing to a later one", run: func(t *test) {
			b := t.shared()
			s := b.session("")
			s.want(`export A=1`, "")
			s.close()
			b.session("").want(`echo "${A-unset}"`, "unset\n")
		}},
	}}
}
