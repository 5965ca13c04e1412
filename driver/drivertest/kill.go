package drivertest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// killGroup: a timeout and an interrupt end the whole tree of a call and nothing else (SPEC 1.12).
func killGroup() group {
	tree := func(name, text string, live ...string) testCase {
		return testCase{name: "an interrupt ends " + name, needs: []Need{NeedProc}, run: func(t *test) { killTree(t, text, live, byInterrupt) }}
	}
	timed := func(name, text string, live ...string) testCase {
		return testCase{name: name, needs: []Need{NeedProc}, slow: true, run: func(t *test) { killTree(t, text, live, byTimeout) }}
	}
	return group{name: "kill", cases: []testCase{
		tree("a foreground child", `{live a}`, "a"),
		timed("L01 a timeout ends every part of a pipeline", `{live a} | {live b} | cat | {live c}`, "a", "b", "c"),
		tree("background children and a wait", `{live a} & {live b} & ( {live c} & wait ) & wait`, "a", "b", "c"),
		tree("children in a session of their own", `setsid {live a} & setsid -f {live b}; setsid setsid {live c} & wait`, "a", "b", "c"),
		tree("double forks", `( ( {live a} & ) & ); (setsid {live b} &) ; (setsid bash -c '{live c} &' &); wait; sleep 100`, "a", "b", "c"),
		tree("children that ignore TERM", `{live a deaf} & setsid {live b deaf} & (setsid {live c deaf} &); wait`, "a", "b", "c"),
		tree("children without environment", `env -i {live a} & env -i setsid {live b} & (env -i setsid {live c} &); wait; sleep 100`, "a", "b", "c"),
		tree("children without environment, session, parent or ears", `(env -i setsid bash -c '(env -i setsid {live a deaf} &) &' &); (setsid env -i {live b deaf} >/dev/null 2>&1 </dev/null &); sleep 100`, "a", "b"),
		timed("a timeout ends children without environment, session, parent or ears", `(env -i setsid bash -c '(env -i setsid {live a deaf} &) &' &); (setsid env -i {live b deaf} >/dev/null 2>&1 </dev/null &); sleep 100`, "a", "b"),
		tree("nohup, disown and closed streams", `nohup {live a} >/dev/null 2>&1 & {live b} <&- >&- 2>&- & disown -a; sleep 100`, "a", "b"),
		{name: "an interrupt ends stopped children", needs: []Need{NeedProc}, run: func(t *test) {
			killTree(t, `{live a} & setsid {live b deaf} & sleep 100`, []string{"a", "b"}, byInterruptOfStopped)
		}},
		tree("children of a shell with job control", `set -m; {live a} & ( {live b} & wait ) & wait`, "a", "b"),
		tree("a coprocess and a process substitution", `coproc {live a}; exec 5> >({live b}); cat < <({live c})`, "a", "b", "c"),
		tree("a shell that ignores TERM itself", `trap '' TERM INT HUP; while :; do {live a}; done`, "a"),
		tree("a shell whose TERM trap goes on", `trap 'echo not yet' TERM; while :; do {live a deaf}; done`, "a"),
		tree("a loop that starts its children anew", `n=0; while :; do n=$((n + 1)); {live a}; done`, "a"),
		tree("a command that replaced the shell", `exec {live a}`, "a"),
		{name: "a timeout ends children that go on starting children", needs: []Need{NeedProc}, slow: true, run: func(t *test) {
			s := t.session()
			s.write("@D/spawn", s.fill("echo $$ >> @D/pids; trap '' TERM; n=$1; while :; do [ $n -gt 40 ] || setsid bash @D/spawn $((n + 1)) & echo >> @D/beat; sleep 0.2; n=99; done\n"))
			s.run(`echo early; bash @D/spawn 1`, timeout(2*time.Second)).ended(elsewhere.TimedOut, 124).has("early\n")
			pids := strings.Fields(s.read("@D/pids"))
			if len(pids) < 2 {
				t.Fatalf("only %d processes were started: the case proves nothing", len(pids))
			}
			t.eventually("all of the brood are gone", grace, func() bool {
				return s.observe(`for p in $(cat @D/pids); do kill -0 $p 2>/dev/null && ! grep -q '^State:.[ZX]' /proc/$p/status 2>/dev/null && echo $p; done`) == ""
			})
			if n := s.beatOf("@D/beat"); n != s.beatOf("@D/beat") {
				t.Error("something of the brood goes on")
			}
		}},
		{name: "C20 a timeout returns what was printed, 124 and its cause, within the promise", run: func(t *test) {
			s := t.session()
			for _, how := range [][]runOption{{}, {split}} {
				begin := time.Now()
				r := s.run(`echo early; printf half; sleep 100`, append(how, timeout(time.Second))...).ended(elsewhere.TimedOut, 124).out("early\nhalf")
				within(t, begin, time.Second+endPromise)
				if len(r.Survivors) > 0 || r.Signal != "" {
					r.fail("survivors %v, signal %q", r.Survivors, r.Signal)
				}
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "U08 a timeout is named with the limit that fired", run: func(t *test) {
			s := t.session()
			r := s.run(`sleep 100`, timeout(1500*time.Millisecond)).ended(elsewhere.TimedOut, 124)
			if said := strings.Join(r.Notices, "\n"); said != "" && !strings.Contains(said, "1.5") {
				r.fail("the notices do not name the limit of 1.5 s")
			}
		}},
		{name: "a deadline of the context is a timeout", run: func(t *test) {
			s := t.session()
			s.want(`echo warm`, "warm\n") // the deadline is for elsewhere's own work too, which a loaded machine does slowly
			const deadline = 4 * time.Second
			ctx, cancel := context.WithTimeout(context.Background(), deadline)
			defer cancel()
			begin := time.Now()
			res, err := s.Session.Run(ctx, `echo early; sleep 100`, nil)
			within(t, begin, deadline+endPromise)
			if err != nil {
				t.Fatal(err)
			}
			(&result{Result: res, t: t, command: "sleep"}).ended(elsewhere.TimedOut, 124).out("early\n")
			s.want(`echo fine`, "fine\n")
		}},
		{name: "a timeout within the limit does nothing", run: func(t *test) {
			s := t.session()
			s.run(`sleep 0.2; echo done`, timeout(hang)).code(0).out("done\n")
		}},
		{name: "a builtin loop that never gives way is ended", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`while :; do :; done`, `until false; do x=$((x + 1)); done`, `f() { f; }; while :; do (:); done`, `read -r _ < <(sleep 100)`, `trap '' TERM; while :; do :; done`} {
				begin := time.Now()
				s.run(c, timeout(500*time.Millisecond)).ended(elsewhere.TimedOut, 124)
				within(t, begin, 500*time.Millisecond+endPromise)
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "state is saved when a timeout ends the command by TERM", run: func(t *test) {
			s := t.session()
			s.run(`export A=1; f() { echo f; }; cd /usr; sleep 100`, timeout(time.Second)).ended(elsewhere.TimedOut, 124).saved(true).cwd("/usr")
			s.want(`echo "$A"; f; pwd`, "1\nf\n/usr\n")
		}},
		{name: "state is as before when a timeout has to KILL the shell", run: func(t *test) {
			s := t.session()
			s.want(`export A=0; cd /usr`, "")
			s.run(`trap '' TERM; export A=1; cd /tmp; while :; do :; done`, timeout(500*time.Millisecond)).ended(elsewhere.TimedOut, 124).saved(false)
			s.want(`echo "$A"; pwd`, "0\n/usr\n")
		}},
		{name: "the EXIT trap of a command runs when a timeout ends it", run: func(t *test) {
			s := t.session()
			s.run(`trap 'echo cleaned; : > @D/cleaned' EXIT; echo body; sleep 100`, timeout(time.Second)).ended(elsewhere.TimedOut, 124).has("body\n", "cleaned\n").hasNot("numeric")
			if !s.exists("@D/cleaned") {
				t.Error("the trap did not run")
			}
		}},
		{name: "what an EXIT trap starts has the grace, and what outlives it is ended", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.session()
			live := s.beater()
			s.run(`trap 'bash -c "sleep 0.5; (sleep 0.3); echo cleaned"; : > @D/cleaned' EXIT; echo body; sleep 100`, timeout(time.Second)).ended(elsewhere.TimedOut, 124).has("body\n", "cleaned\n").saved(true)
			if !s.exists("@D/cleaned") {
				t.Error("the trap was ended before it was through")
			}
			p := s.start(`trap '`+live("late")+`' EXIT; echo body; sleep 100`, timeout(time.Second))
			p.wait().ended(elsewhere.TimedOut, 124)
			p.within(p.started, time.Second+endPromise)
			if n, err := strconv.Atoi(strings.TrimSpace(s.beatCount("late"))); err != nil || n < 3 {
				t.Errorf("it beat %d times, %v", n, err)
			}
			s.silent("late")
		}},
		{name: "an interrupt is 130 with its cause, returns what was printed and ends the tree", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.session()
			live := s.beater()
			p := s.start(`echo early; export A=1; (setsid ` + live("a", "deaf") + ` &); ` + live("b"))
			procs := s.alive("a", "b")
			r := p.interrupt().ended(elsewhere.Interrupted, 130).out("early\n")
			if len(r.Survivors) > 0 {
				r.fail("survivors: %v", r.Survivors)
			}
			s.gone(procs, 0)
			s.want(`echo "$A"`, "1\n")
		}},
		{name: "an interrupt of a call that prints nothing and reads stdin ends it", run: func(t *test) {
			s := t.session()
			s.want(`mkfifo @D/f`, "")
			p := s.start(`: > @D/started; read -r _ < @D/f`)
			s.await("@D/started")
			p.interrupt().ended(elsewhere.Interrupted, 130)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "other calls of the session, its background children and other sessions are untouched", needs: []Need{NeedProc}, slow: true, run: func(t *test) {
			b := t.shared()
			s, o := b.session(""), b.session("")
			live, other := s.beater(), o.beater()
			s.run(live("background") + ` & (setsid ` + live("detached") + ` &); echo ok`).code(0)
			call := s.start(live("call") + `; echo no`)
			foreign := o.start(other("foreign"))
			procs := s.alive("background", "detached", "call")
			foreigners := o.alive("foreign")
			// Interrupted once both were seen: where an observer is slow, a timeout might come before.
			victim := s.start(`( ` + live("victim", "deaf") + ` & ); ` + live("victim2"))
			dead := s.alive("victim", "victim2")
			victim.interrupt().ended(elsewhere.Interrupted, 130)
			s.gone(dead, 0)
			s.still(procs)
			o.still(foreigners)
			call.running()
			foreign.running()
			call.interrupt().ended(elsewhere.Interrupted, 130)
			s.still(procs[:2])
			o.still(foreigners)
			foreign.interrupt().ended(elsewhere.Interrupted, 130)
		}},
		{name: "the shells that wait for the next call are untouched by a kill", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`true`, "")
			s.flush()
			t.eventually("a shell waits", 0, func() bool { return len(b.rec.live()) > 0 })
			s.run(`sleep 100`, timeout(300*time.Millisecond)).ended(elsewhere.TimedOut, 124)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "several calls are ended at once", needs: []Need{NeedProc}, slow: true, run: func(t *test) {
			s := t.session()
			live := s.beater()
			var calls []*pending
			var names []string
			for i := range 6 {
				name := fmt.Sprintf("n%d", i)
				calls = append(calls, s.start(`(setsid `+live(name, "deaf")+` &); sleep 100`))
				names = append(names, name)
			}
			procs := s.alive(names...)
			begin := time.Now()
			for _, c := range calls {
				c.cancel()
			}
			for _, c := range calls {
				c.wait().ended(elsewhere.Interrupted, 130)
				c.within(begin, endPromise)
			}
			s.gone(procs, 0)
		}},
		{name: "a timeout while another call floods is on time", slow: true, run: func(t *test) {
			s := t.session()
			flood := s.start(`yes`, maxOutput(1<<20))
			begin := time.Now()
			s.run(`sleep 100`, timeout(time.Second)).ended(elsewhere.TimedOut, 124)
			within(t, begin, time.Second+endPromise)
			flood.interrupt().ended(elsewhere.Interrupted, 130)
		}},
		{name: "a process that died is no survivor, nor is a zombie", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.session()
			r := s.run(`sleep 0 & sleep 0 & (sleep 0 &); bash -c 'sleep 0 & exec sleep 100' & while :; do sleep 0.1; done`, timeout(time.Second)).ended(elsewhere.TimedOut, 124)
			if len(r.Survivors) > 0 {
				r.fail("survivors: %v", r.Survivors)
			}
		}},
		{name: "U09 a new command runs beside one that still runs", run: func(t *test) {
			s := t.session()
			s.want(`export A=1; mkfifo @D/go`, "")
			p := s.start(`: > @D/started; read -r _ < @D/go; echo first`)
			s.await("@D/started")
			s.want(`echo "$A"; export B=2`, "1\n")
			p.running()
			s.observe(`echo go > @D/go`)
			p.wait().code(0).out("first\n")
			s.want(`echo fine`, "fine\n")
		}},
		{name: "closing a session ends its calls", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			live := s.beater()
			p := s.start(`(setsid ` + live("a", "deaf") + ` &); ` + live("b"))
			procs := s.alive("a", "b")
			begin := time.Now()
			s.close()
			<-p.done
			within(t, begin, endPromise)
			s.gone(procs, grace)
		}},
		{name: "after the sandbox is closed no process of its calls and no waiting shell is left", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s, named := b.session(""), b.session("named")
			s.want(`true`, "")
			named.want(`true`, "")
			t.eventually("shells wait", 0, func() bool { return len(b.carrying(b.rec.live())) >= 2 })
			seen := b.carrying(b.rec.live())
			s.close()
			named.close()
			b.close()
			b.gone(seen, grace)
			if left := b.carrying(b.everyID()); len(left) > 0 {
				t.Errorf("%d processes are left: %v", len(left), left)
			}
			t.eventually("every bash of the sandbox has ended", grace, func() bool { return len(b.rec.live())+b.rec.helpers() == 0 })
		}},
	}}
}

// ending says how killTree ends a call.
type ending int

const (
	byInterrupt ending = iota
	byInterruptOfStopped
	byTimeout
)

// killTree runs a command whose tree has the named beaters, ends it when all were seen alive, and expects them gone when
// the call returns. In text, {live NAME HOW} starts a beater.
func killTree(t *test, text string, names []string, how ending) {
	const limit = 8 * time.Second
	s := t.session()
	command := "echo early; " + liveWords(text, s.beater())
	var p *pending
	if how == byTimeout {
		p = s.start(command, timeout(limit))
	} else {
		p = s.start(command)
	}
	procs := s.alive(names...)
	var r *result
	switch how {
	case byTimeout:
		r = p.wait().ended(elsewhere.TimedOut, 124)
		p.within(p.started, limit+endPromise)
	case byInterruptOfStopped:
		for _, proc := range procs {
			s.observe("kill -STOP " + proc.pid)
		}
		fallthrough
	default:
		r = p.interrupt().ended(elsewhere.Interrupted, 130)
	}
	if r.has("early\n"); len(r.Survivors) > 0 {
		r.fail("survivors: %v", r.Survivors)
	}
	s.gone(procs, 0)
	s.want(`echo fine`, "fine\n")
}

// liveWords replaces {live NAME HOW} by the command that starts a beater.
func liveWords(text string, live func(string, ...string) string) string {
	for {
		before, rest, ok := strings.Cut(text, "{live ")
		if !ok {
			return text
		}
		words, after, _ := strings.Cut(rest, "}")
		f := strings.Fields(words)
		text = before + live(f[0], f[1:]...) + after
	}
}

// beatOf gives the size of a file that something beats into, three beats later.
func (s *session) beatOf(path string) string {
	s.t.Helper()
	return s.observe(`sleep 0.35; wc -c < ` + path)
}
