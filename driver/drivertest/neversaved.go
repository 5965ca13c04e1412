package drivertest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
)

// identityNames is one name of each family that never goes into state.
var identityNames = []string{
	"HERMES_SESSION_ID", "HERMES_SESSION_CHAT_NAME", "HERMES_SESSION_KEY", "HERMES_UI_SESSION_ID", "HERMES_CRON_SESSION",
	"HERMES_CRON_AUTO_DELIVER_CHAT_ID", "HERMES_BROWSER_CONTROL_PRINCIPAL", "HERMES_RPC_TOKEN", "HERMES_RPC_DIR",
	"HERMES_KERNEL_DIR", "HERMES_DELEGATED_CHILD_CONTEXT", "AI_AGENT", "HERMES_AGENT",
}

// neverSavedGroup: what belongs to one call stays in it (SPEC 1.4).
func neverSavedGroup() group {
	return group{name: "never saved", cases: []testCase{
		{name: "a per-call variable reaches the command and nothing after it", run: func(t *test) {
			s := t.session()
			s.want(`echo "$X"; bash --norc --noprofile -c 'echo "$X"'`, "call\ncall\n", env("X", "call"))
			s.want(`echo "${X-unset}"`, "unset\n")
		}},
		{name: "C18 a per-call variable beats the state and leaves the session's earlier value as it was", run: func(t *test) {
			s := t.session()
			s.want(`export X=state Y=y`, "")
			s.want(`echo "$X"; export Y=z`, "call\n", env("X", "call"))
			s.want(`echo "$X $Y"`, "state z\n")
			s.want(`export X=changed; Y=w`, "", env("X", "call"))
			s.want(`echo "$X $Y"`, "state w\n")
			s.want(`unset X`, "", env("X", "call"))
			s.want(`echo "$X"`, "state\n")
			s.want(`export -n X`, "", env("X", "call"))
			s.want(`echo "$X"`, "state\n")
		}},
		{name: "C18 two calls at once have each its own value", run: func(t *test) {
			s := t.session()
			s.want(`export X=state; mkfifo @D/a @D/b`, "")
			a := s.start(`read -r _ < @D/a; echo "$X"`, env("X", "of a"))
			b := s.start(`read -r _ < @D/b; echo "$X"`, env("X", "of b"))
			s.observe(`echo go > @D/b & echo go > @D/a; wait`)
			a.wait().out("of a\n")
			b.wait().out("of b\n")
			s.want(`echo "$X"`, "state\n")
		}},
		{name: "C18 a per-call PATH, HOME, PWD and IFS belong to the call", run: func(t *test) {
			s := t.session()
			before := string(s.run(`echo "$PATH:$HOME"; pwd; printf %q "$IFS"`).code(0).Output)
			s.run(`echo "$PATH $HOME"`, env("PATH", "/bin:/only", "HOME", "/elsewhere", "IFS", "x", "OLDPWD", "/o")).has("/bin:/only /elsewhere").code(0)
			s.want(`echo "$PATH:$HOME"; pwd; printf %q "$IFS"`, before)
		}},
		{name: "X01 a per-call value with line breaks, quotes and code is text, and survives byte for byte", run: func(t *test) {
			s := t.session()
			for _, v := range []string{"a\ntouch @D/pwned", "a\ntouch @D/pwned\n", `$(touch @D/pwned)`, "`touch @D/pwned`", `'`, `"`, `\`, "'\"'\n", `'; touch @D/pwned; '`, string(allBytes()[1:])} {
				v = s.fill(v)
				for _, name := range []string{"V", "HERMES_SESSION_CHAT_NAME"} {
					s.want(`printf %s "$`+name+`"`, v, env(name, v))
					s.want(`echo "${`+name+`-unset}"`, "unset\n")
				}
			}
			if s.exists("@D/pwned") {
				t.Error("a value was executed")
			}
		}},
		{name: "identity variables that a command exports are not saved", run: func(t *test) {
			s := t.session()
			var set, get strings.Builder
			for _, n := range identityNames {
				fmt.Fprintf(&set, "export %s=drivertest-secret\n", n)
				fmt.Fprintf(&get, "[ \"${%s-}\" != drivertest-secret ] || echo %s\n", n, n)
			}
			s.want(set.String()+"export HERMES_SESSIONX=kept HERMES_KERNEL_DIRS=kept AI_AGENTS=kept", "")
			s.want(get.String(), "")
			s.want(`echo "$HERMES_SESSIONX $HERMES_KERNEL_DIRS $AI_AGENTS"`, "kept kept kept\n")
		}},
		{name: "identity variables given for one call are not seen by the next, nor by another session", run: func(t *test) {
			b := t.shared()
			s, other := b.session(""), b.session("")
			var pairs []string
			for _, n := range identityNames {
				pairs = append(pairs, n, "drivertest-secret")
			}
			s.want(`env | grep -c drivertest-secret`, fmt.Sprintf("%d\n", len(identityNames)), env(pairs...))
			s.want(`env | grep -c drivertest-secret; :`, "0\n")
			other.want(`env | grep -c drivertest-secret; :`, "0\n")
		}},
		{name: "identity variables of the login files are not saved either", run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "export HERMES_SESSION_ID=drivertest-secret OTHER=kept\n"}}}).session("")
			s.want(`true`, "")
			s.want(`echo "${HERMES_SESSION_ID-unset} $OTHER"`, "unset kept\n")
		}},
		{name: "no per-call value is in a state file", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`export KEPT=drivertest-kept X=drivertest-changed; f() { :; }`, "", env("X", "drivertest-percall", "HERMES_SESSION_ID", "drivertest-percall"))
			s.flush()
			if got := stateContent(b); !strings.Contains(got, "drivertest-kept") {
				t.Errorf("the state files do not hold what was exported, so this proves nothing: %s", shorten(got))
			} else if strings.Contains(got, "drivertest-percall") || strings.Contains(got, "drivertest-changed") {
				t.Error("a state file holds a per-call value")
			}
		}},
		{name: "variables that point at the caller's sockets and displays always have the caller's value", needs: []Need{NeedCallerEnv}, run: func(t *test) {
			names := []string{"SSH_AUTH_SOCK", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "KRB5CCNAME", "TERM"}
			var environ []string
			get, set, want := "", "", ""
			for _, n := range names {
				environ = append(environ, n+"=of the caller")
				get += "echo \"${" + n + "-unset}\"\n"
				set += "export " + n + "=stale\n"
				want += "of the caller\n"
			}
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: environ, Profile: map[string]string{".bashrc": "export DISPLAY=stale\n"}}})
			for _, n := range names {
				if !slices.Contains(b.sb.Info().KeepEnv, n) {
					t.Errorf("Info.KeepEnv lacks %s", n)
				}
			}
			s := b.session("")
			s.want(set, "")
			s.want(get, want)
			s.want("unset "+strings.Join(names, " "), "")
			s.want(get, want)
		}},
		{name: "a per-call name that is no name is an error and runs nothing", run: func(t *test) {
			s := t.session()
			for _, n := range []string{"", "1A", "A-B", "A=B", "A B", "A\nB", "é", "A;touch @D/ran"} {
				_, err := s.try(s.fill(`touch @D/ran`), env(n, "x"))
				t.wantKind(err, elsewhere.ErrConfig, fmt.Sprintf("a variable named %q", n))
			}
			_, err := s.try(s.fill(`touch @D/ran`), env("A", "x\x00y"))
			t.wantKind(err, elsewhere.ErrConfig, "a value with a NUL")
			if s.exists("@D/ran") {
				t.Error("the command was run")
			}
			s.want(`echo fine`, "fine\n")
		}},
	}}
}

// stateContent gives everything that the sandbox's state files hold.
func stateContent(b *box) string {
	b.t.Helper()
	info := b.sb.Info()
	return b.observe(fmt.Sprintf(`for d in %s %s; do [ -z "$d" ] || find "$d" -type f -exec cat {} +; done`, quote(info.StateDir), quote(info.PrivateDir)))
}
