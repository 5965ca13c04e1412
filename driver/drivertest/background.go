package drivertest

import (
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// backgroundGroup: children that a finished call leaves behind (SPEC 1.11).
func backgroundGroup() group {
	return group{name: "background", needs: []Need{NeedProc}, cases: []testCase{
		{name: "B01 a background child that holds stdout does not delay the result and lives on", run: func(t *test) {
			for _, how := range []string{`%s & echo started`, `setsid %s & disown; echo started`, `nohup %s 2>/dev/null & echo started`, `( %s & ); echo started`, `{ %s & } ; echo started`, `(setsid %s &) & wait; echo started`} {
				s := t.session()
				live := s.beater()
				begin := time.Now()
				s.run(strings.Replace(how, "%s", live("child"), 1)).code(0).out("started\n").saved(true)
				within(t, begin, time.Second)
				procs := s.alive("child")
				s.want(`echo next`, "next\n")
				s.still(procs)
			}
		}},
		{name: "B02 job control is off and a background child changes nothing for the next call", run: func(t *test) {
			s := t.session()
			live := s.beater()
			s.run(live("child")+` & echo "$-"`).code(0).hasNot("m", "i")
			procs := s.alive("child")
			s.want(`jobs; echo "<$!>"; export A=1`, "<>\n").saved(true)
			s.still(procs)
		}},
		{name: "B03 a command that only starts a background child ends with its own code, and the session's end is the child's or not, as declared", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			live := s.beater()
			s.run(`(` + live("child") + ` >/dev/null 2>&1 &); echo launched; exit 3`).code(3).out("launched\n")
			s.childrenEnd(s.alive("child"))
		}},
		{name: "a detached child is the session's or the sandbox's too", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			live := s.beater()
			s.run(`(setsid ` + live("a") + ` >/dev/null 2>&1 &); env -i setsid ` + live("b") + ` >/dev/null 2>&1 & echo ok`).out("ok\n")
			s.childrenEnd(s.alive("a", "b"))
		}},
		{name: "what a background child prints after its call is drained, so that it does not block or die", run: func(t *test) {
			s := t.session()
			s.want(`mkfifo @D/go`, "")
			s.run(`(read -r _ < @D/go; head -c 3000000 /dev/zero && echo err >&2 && : > @D/written) & echo ok`).out("ok\n")
			if s.exists("@D/written") {
				t.Fatal("the child has not waited")
			}
			s.observe(`echo go > @D/go`)
			s.await("@D/written")
		}},
		{name: "a loud background child is heard in no other call", run: func(t *test) {
			s := t.session()
			live := s.beater()
			s.run(live("noise", "loud") + ` & `).code(0)
			procs := s.alive("noise")
			for range 5 {
				s.want(`echo mine`, "mine\n")
			}
			s.still(procs)
		}},
		{name: "what a background child prints before its call has ended is output", run: func(t *test) {
			s := t.session()
			s.want(`(echo from child; : > @D/said) & until [ -e @D/said ]; do sleep 0.01; done; echo end`, "from child\nend\n")
		}},
		{name: "a background child is untouched by the end of later calls", run: func(t *test) {
			s := t.session()
			live := s.beater()
			s.run(live("a") + ` & echo ok`)
			procs := s.alive("a")
			s.want(`true`, "")
			s.run(`exit 3`)
			s.run(`kill -9 $$; sleep 5`)
			s.run(`sleep 50`, timeout(200*time.Millisecond)).ended(elsewhere.TimedOut, 124)
			s.still(procs)
		}},
		{name: "a background child survives what its own shell does at its end", run: func(t *test) {
			for _, end := range []string{`exit 0`, `kill -9 $$; sleep 5`, `exec true`, `set -e; false`, `kill -HUP $$; sleep 5`} {
				s := t.session()
				live := s.beater()
				s.run(live("a") + ` & until [ -e @D/a.pid ]; do sleep 0.01; done; ` + end)
				s.still(s.alive("a"))
			}
		}},
		{name: "many background children do not add up to a delay", run: func(t *test) {
			s := t.session()
			live := s.beater()
			var start strings.Builder
			names := []string{}
			for _, n := range strings.Split("abcdefgh", "") {
				start.WriteString(live(n) + " & ")
				names = append(names, n)
			}
			s.want(start.String()+"echo ok", "ok\n")
			procs := s.alive(names...)
			begin := time.Now()
			for range 5 {
				s.want(`echo ok`, "ok\n")
			}
			within(t, begin, time.Second)
			s.still(procs[:2])
		}},
		{name: "a background child has no terminal, and its shell none either", run: func(t *test) {
			s := t.session()
			s.run(`: < /dev/tty`, split).code(1)
			s.want(`[ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo none`, "none\n")
		}},
		{name: "L08 each call has a session and group of its own and no controlling terminal", run: func(t *test) {
			s := t.session()
			fields := `read -r stat < /proc/$$/stat; set -- ${stat##*) }; echo "$3 $4 $5 $$"`
			f := strings.Fields(s.run(fields).code(0).text()) // group, session, terminal, pid
			if len(f) != 4 || f[2] != "0" {
				t.Fatalf("group, session, terminal, pid are %q", f)
			}
			if g := strings.Fields(s.run(fields).code(0).text()); g[1] == f[1] || g[0] == f[0] {
				t.Errorf("two calls share group or session: %q, %q", f, g)
			}
		}},
	}}
}

// childrenEnd closes the session and expects of children left in the background what the harness declares.
func (s *session) childrenEnd(procs []process) {
	s.t.Helper()
	s.still(procs)
	s.close()
	if s.t.r.h.KeepsChildren {
		s.still(procs)
		var kill strings.Builder
		for _, p := range procs {
			kill.WriteString("kill -9 " + p.pid + "; ")
		}
		s.observe(kill.String())
		return
	}
	s.gone(procs, grace)
}
