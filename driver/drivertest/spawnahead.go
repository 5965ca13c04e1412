package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// ahead is a sandbox spec with so many waiting shells.
func ahead(n int) boxSpec { return boxSpec{Options: elsewhere.SandboxOptions{SpawnAhead: &n}} }

// waiting waits until exactly n bash processes for calls live, the same ones for a moment, and gives their ids. No call may
// run: a shell whose call has ended still lives while it writes its state, and is then gone.
func (b *box) waiting(n int) []string {
	b.t.Helper()
	var ids []string
	same := 0
	defer func() {
		if same <= 5 {
			b.t.Logf("%d wait: %q", len(ids), ids)
		}
	}()
	b.t.eventually(fmt.Sprintf("%d shells wait", n), time.Second, func() bool {
		now := b.rec.idle()
		if len(now) != n || !slices.Equal(now, ids) {
			same = 0
		}
		ids = now
		same++
		return same > 5
	})
	return ids
}

// spawnAheadGroup: shells that are started before their command is known (SPEC 1.10).
func spawnAheadGroup() group {
	g := group{name: "spawn ahead", cases: []testCase{
		{name: "the number of waiting shells is the setting, never more, and a call takes one of them", run: func(t *test) {
			for _, n := range []int{1, 3} {
				b := t.own(ahead(n))
				s := b.session("")
				s.want(`true`, "")
				s.flush()
				for i := range 12 {
					ids := b.waiting(n)
					r := s.want(fmt.Sprintf(`echo %d`, i), fmt.Sprintf("%d\n", i))
					if !strings.Contains(strings.Join(ids, " "), r.CallID) {
						r.fail("call %s did not run in one of the waiting shells %q", r.CallID, ids)
					}
					s.flush()
					if live := len(b.rec.idle()); live > n+1 {
						t.Errorf("%d shells live after call %d, %d should wait", live, i, n)
					}
				}
				b.waiting(n)
			}
		}},
		{name: "with 0 no shell waits and everything works", run: func(t *test) {
			b := t.own(ahead(0))
			s := b.session("")
			for i := range 5 {
				s.want(fmt.Sprintf(`export A=%d; cd /usr`, i), "")
				s.want(`echo "$A"; pwd`, fmt.Sprintf("%d\n/usr\n", i))
				s.flush()
				b.waiting(0)
			}
		}},
		{name: "the setting spawn_ahead does the same as the option", run: func(t *test) {
			b := t.own(boxSpec{Settings: map[string]string{"spawn_ahead": "2"}})
			s := b.session("")
			s.want(`true`, "")
			s.flush()
			b.waiting(2)
		}},
		{name: "each session has its own waiting shells, and closing one ends only its", run: func(t *test) {
			b := t.own(ahead(2))
			s, o := b.session(""), b.session("")
			s.want(`true`, "")
			o.want(`true`, "")
			s.flush()
			o.flush()
			b.waiting(4)
			s.close()
			b.waiting(2)
			o.want(`echo fine`, "fine\n")
		}},
		{name: "a burst is served and the number of waiting shells is what it was afterwards", run: func(t *test) {
			b := t.own(ahead(3))
			s := b.session("")
			s.want(`export A=0`, "")
			for round := range 3 {
				for i := range 5 {
					s.want(`export A=$((A + 1)); echo $A`, fmt.Sprintf("%d\n", round*5+i+1))
				}
				s.flush()
				b.waiting(3)
			}
		}},
		{name: "no waiting shell that loaded an older state is used", run: func(t *test) {
			for _, n := range []int{1, 3} {
				s := t.own(ahead(n)).session("")
				s.want(`export N=0`, "")
				for i := range 30 {
					// The shells that wait loaded the state before this one; each call has to see the one just before it.
					s.want(`echo $N; export N=$((N + 1)); f() { echo "f$N"; }; cd /tmp`, fmt.Sprintf("%d\n", i))
					if i%5 == 0 {
						s.flush()
						s.want(`f; alias g="echo g$N"; umask 02$((N % 7))`, fmt.Sprintf("f%d\n", i+1))
						s.want("g; umask", fmt.Sprintf("g%d\n002%d\n", i+1, (i+1)%7))
					}
				}
			}
		}},
		{name: "a call that changes nothing leaves the waiting shells of use", run: func(t *test) {
			b := t.own(ahead(2))
			s := b.session("")
			s.want(`export A=1`, "")
			s.flush()
			b.waiting(2)
			before := b.rec.started()
			for range 6 {
				s.want(`echo "$A"`, "1\n")
				s.flush()
				b.waiting(2)
			}
			if n := b.rec.started() - before; n > 8 {
				t.Errorf("6 calls that changed nothing started %d shells", n)
			}
		}},
		{name: "a waiting shell whose directory is gone serves the call in the nearest ancestor", run: func(t *test) {
			b := t.own(ahead(2))
			s := b.session("")
			s.want(`mkdir -p @D/a/b; cd @D/a/b`, "")
			s.flush()
			b.waiting(2)
			s.observe(`rm -rf @D/a`)
			s.want(`pwd; echo ok`, s.d()+"\nok\n").cwd(s.d())
		}},
		{name: "a directory that was gone and is there again is entered", run: func(t *test) {
			b := t.own(ahead(1))
			s := b.session("")
			s.want(`mkdir @D/a; cd @D/a`, "")
			s.flush()
			b.waiting(1)
			s.observe(`rm -rf @D/a; mkdir @D/a; : > @D/a/new`)
			s.want(`pwd; echo *`, s.d()+"/a\nnew\n")
		}},
		{name: "a waiting shell that was idle too long is ended, and the next call is well", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{Settings: map[string]string{"spawn_ahead": "2", "spawn_ahead_idle": "4"}})
			s := b.session("")
			s.want(`export A=1`, "")
			s.flush()
			var seen []process
			t.eventually("two shells wait and are seen", time.Second, func() bool {
				if len(b.rec.live()) == 0 { // to look took so long that they were idle for too long
					s.want(`true`, "")
					s.flush()
				}
				ids := b.rec.live()
				seen = b.carrying(ids)
				return len(ids) == 2 && len(seen) == 2
			})
			started := b.rec.started()
			b.gone(seen, 4*time.Second)
			// That a process has ended is known on this side a little later.
			t.eventually("the idle shells have ended", endPromise, func() bool { return len(b.rec.live()) == 0 })
			if n := b.rec.started() - started; n > 0 {
				t.Errorf("instead of the idle shells %d others were started", n)
			}
			s.want(`echo "$A"`, "1\n")
			s.flush()
			b.waiting(2)
		}},
		{name: "a waiting shell that was killed from outside is replaced and the call is well", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(ahead(2))
			s := b.session("")
			s.want(`export A=0`, "")
			for i := range 5 {
				s.flush()
				var seen []process
				t.eventually("shells wait and are seen", time.Second, func() bool { seen = b.carrying(b.waiting(2)); return len(seen) >= 2 })
				var kill strings.Builder
				for _, p := range seen {
					kill.WriteString("kill -9 " + p.pid + "; ")
				}
				b.observe(kill.String())
				s.want(`echo $A; cat; export A=$((A + 1)); echo x >> @D/count`, fmt.Sprintf("%d\nin %d", i, i), stdin(fmt.Sprintf("in %d", i)))
			}
			if n := strings.Count(s.read("@D/count"), "x"); n != 5 {
				t.Errorf("5 commands ran %d times", n)
			}
		}},
		{name: "a waiting shell that is stopped does not hang the call for ever", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(ahead(1))
			s := b.session("")
			s.want(`export A=1`, "")
			s.flush()
			var seen []process
			t.eventually("a shell waits and is seen", time.Second, func() bool { seen = b.carrying(b.waiting(1)); return len(seen) == 1 })
			b.observe("kill -STOP " + seen[0].pid)
			begin := time.Now()
			r, err := s.try(`echo "$A"`, timeout(3*time.Second))
			// One that was stopped while it still loaded its state holds the call for as long as a start may take.
			within(t, begin, startWait+3*time.Second+endPromise)
			if err == nil && r.Duration > 3*time.Second+endPromise+allowance {
				t.Errorf("it ran for %v; its time limit was 3s", r.Duration)
			}
			if err == nil && r.Cause == elsewhere.Exited && string(r.Output) != "1\n" {
				t.Errorf("the call came to %+v", r)
			}
			b.observe("kill -CONT " + seen[0].pid)
			s.want(`echo "$A"`, "1\n")
		}},
		{name: "waiting shells use no processor time", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(ahead(2))
			s := b.session("")
			s.want(`true`, "")
			s.flush()
			var seen []process
			t.eventually("shells wait and are seen", time.Second, func() bool { seen = b.carrying(b.waiting(2)); return len(seen) == 2 })
			time := func() string {
				var script strings.Builder
				for _, p := range seen {
					fmt.Fprintf(&script, "read -r stat < /proc/%s/stat; set -- ${stat##*) }; echo ${12} ${13}\n", p.pid)
				}
				return b.observe(script.String())
			}
			before := time()
			b.observe(`sleep 0.5`)
			if after := time(); after != before || before == "" {
				t.Errorf("processor times went from %q to %q", before, after)
			}
		}},
		{name: "nothing of a command or a per-call value is in the arguments or the environment of its shell or of a waiting one", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(ahead(2))
			s := b.session("")
			s.want(`mkfifo @D/go; export STATE=drivertest-state; f() { : drivertest-state; }`, "")
			s.flush()
			p := s.start(`: drivertest-command; : > @D/started; read -r _ < @D/go`, env("SECRET", "drivertest-percall"), dir(s.d()))
			s.await("@D/started")
			var procs []process
			t.eventually("the call's shell and two that wait are seen", time.Second, func() bool {
				procs = b.carrying(b.rec.live())
				return len(procs) >= 3
			})
			var script strings.Builder
			for _, proc := range procs {
				fmt.Fprintf(&script, "tr '\\0' '\\n' < /proc/%[1]s/cmdline; tr '\\0' '\\n' < /proc/%[1]s/environ\n", proc.pid)
			}
			seen := b.observe(script.String())
			for _, word := range []string{"drivertest-command", "drivertest-percall", "drivertest-state", s.d()} {
				if strings.Contains(seen, word) {
					t.Errorf("%q stands in the arguments or the environment of a shell", word)
				}
			}
			s.observe(`echo go > @D/go`)
			p.wait().code(0)
			for _, rec := range b.rec.all() {
				said := strings.Join(rec.spec.Args, "\n") + strings.Join(rec.spec.Env, "\n")
				if strings.Contains(said, "drivertest-") {
					t.Errorf("the driver was told the command or a value: %s", shorten(said))
				}
			}
		}},
		{name: "pkill -f of a word of the command does not end the command's own shell", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.session()
			s.want(`for f in /proc/[0-9]*; do { IFS= read -r -d '' -n 4000 c < $f/cmdline; grep -qa drivertest-pkill-word $f/cmdline; } 2>/dev/null && [ "${f#/proc/}" = $$ ] && kill -9 $$; done; echo alive`, "alive\n")
		}},
		{name: "settings of the first sandbox do not reach a second one with others", run: func(t *test) {
			a, b := t.own(ahead(1)), t.own(ahead(0))
			sa, sb := a.session("x"), b.session("x")
			sa.want(`export A=a`, "")
			sb.want(`echo "${A-unset}"`, "unset\n")
		}},
	}}
	return g
}

// concurrencyGroup: many calls at once on one session and one sandbox (SPEC 1.5, 1.12, 7.1).
func concurrencyGroup() group {
	return group{name: "concurrency", cases: []testCase{
		{name: "C08 twenty calls at once see each a whole state", run: func(t *test) {
			s := t.session()
			s.want(manyExports(50)+"for i in {1..50}; do eval \"fn_$i() { echo $i; }\"; done", "")
			s.manyAtOnce(20, func(i int) (string, func(string) bool) {
				return fmt.Sprintf(`export V%d=1; compgen -e BASE_ | wc -l; compgen -A function fn_ | wc -l; fn_50`, i), func(out string) bool { return out == "50\n50\n50\n" }
			})
			s.flush()
			s.want(`compgen -e BASE_ | wc -l; fn_50`, "50\n50\n")
		}},
		{name: "of two calls at once the one that ends last wins, whole", run: func(t *test) {
			s := t.session()
			s.want(`export A=0; mkfifo @D/a @D/b`, "")
			for range 3 {
				late := s.start(`export A=late B=late; : > @D/late; read -r _ < @D/a`)
				s.await("@D/late")
				early := s.start(`export A=early C=early; : > @D/early; read -r _ < @D/b`)
				s.await("@D/early")
				s.observe(`echo go > @D/b`)
				early.wait().code(0)
				s.want(`echo "$A $C ${B-unset}"; unset C`, "early early unset\n")
				s.observe(`echo go > @D/a`)
				late.wait().code(0)
				s.want(`echo "$A $B ${C-unset}"; unset B; rm @D/late @D/early`, "late late unset\n")
			}
		}},
		{name: "the one that ends last wins also where the other's state takes longer to write", run: func(t *test) {
			s := t.session()
			s.want(`export WHO=nobody; mkfifo @D/quick @D/slow`, "")
			for i := range 3 {
				quick := s.start(fmt.Sprintf(`export WHO=quick%d; : > @D/q; read -r _ < @D/quick`, i))
				slow := s.start(`for ((i = 0; i < 3000; i++)); do eval "fn_$i() { echo a function that makes the state of this call a big one, $i; }"; done; export WHO=slow; : > @D/s; read -r _ < @D/slow`)
				s.await("@D/q")
				s.await("@D/s")
				s.observe(`echo go > @D/slow`)
				slow.wait().code(0)
				s.observe(`echo go > @D/quick`)
				quick.wait().code(0)
				s.want(`echo "$WHO"; type -t fn_1; rm @D/q @D/s`, fmt.Sprintf("quick%d\n", i))
			}
		}},
		{name: "a long call that changes nothing leaves what others saved meanwhile", run: func(t *test) {
			s := t.session()
			s.want(`export WHO=before; mkfifo @D/gate`, "")
			for i := range 3 {
				long := s.start(`: > @D/on; read -r _ < @D/gate`)
				s.await("@D/on")
				s.want(fmt.Sprintf(`export WHO=meanwhile%d; cd /usr`, i), "")
				s.flush()
				s.observe(`echo go > @D/gate`)
				long.wait().code(0)
				s.flush()
				s.want(`echo "$WHO"; rm @D/on`, fmt.Sprintf("meanwhile%d\n", i))
			}
		}},
		{name: "two hundred calls at once on one session each get their own output, code and directory", alone: true, run: func(t *test) {
			s := t.session()
			s.want(manyExports(30), "")
			begin := time.Now()
			s.manyAtOnce(200, func(i int) (string, func(string) bool) {
				return fmt.Sprintf(`echo "call %d of $BASE_29"; export W_%d=1; cat; (exit %d)`, i, i, i%100), func(out string) bool {
					return out == fmt.Sprintf("call %d of value 29\nin %d", i, i)
				}
			})
			t.Logf("two hundred calls took %v", time.Since(begin).Round(time.Millisecond))
			s.flush()
			r := s.run(`compgen -e BASE_ | wc -l; compgen -e W_ | wc -l`).code(0)
			if f := strings.Fields(r.text()); len(f) != 2 || f[0] != "30" || f[1] == "0" {
				r.fail("the state afterwards is not a whole one")
			}
		}},
		{name: "calls, kills and closes at once do not disturb each other", slow: true, run: func(t *test) {
			b := t.own(ahead(2))
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					s, err := b.sb.Session(t.ctx(), "")
					if err != nil {
						t.Errorf("session %d: %v", i, err)
						return
					}
					own := &session{Session: s, t: t, b: b}
					defer own.close()
					for j := range 6 {
						res, err := own.try(fmt.Sprintf(`export N=$((N + 1)); echo "s%d $N"`, i))
						if err != nil || string(res.Output) != fmt.Sprintf("s%d %d\n", i, j+1) {
							t.Errorf("session %d, call %d: %v, %+v", i, j, err, res)
						}
						if j == i%6 {
							if res, err := own.try(`sleep 100`, timeout(100*time.Millisecond)); err != nil || res.Cause != elsewhere.TimedOut {
								t.Errorf("session %d: %v, %+v", i, err, res)
							}
						}
					}
				})
			}
			wg.Wait()
		}},
		{name: "many sessions of one sandbox are opened at once", slow: true, run: func(t *test) {
			b := t.shared()
			var wg sync.WaitGroup
			for i := range 30 {
				wg.Go(func() {
					s, err := b.sb.Session(t.ctx(), "")
					if err != nil {
						t.Errorf("session %d: %v", i, err)
						return
					}
					own := &session{Session: s, t: t, b: b}
					defer own.close()
					if res, err := own.try(fmt.Sprintf(`echo %d`, i)); err != nil || string(res.Output) != fmt.Sprintf("%d\n", i) {
						t.Errorf("session %d: %v, %+v", i, err, res)
					}
				})
			}
			wg.Wait()
		}},
		{name: "closing the sandbox while calls run ends them, and nothing hangs", slow: true, run: func(t *test) {
			b := t.own(ahead(1))
			s := b.session("")
			var calls []*pending
			for i := range 5 {
				calls = append(calls, s.start(fmt.Sprintf(`: > @D/s%d; sleep 100`, i)))
				s.await(fmt.Sprintf("@D/s%d", i))
			}
			begin := time.Now()
			b.close()
			for _, c := range calls {
				c.within(begin, endPromise)
			}
		}},
		{name: "a call that was interrupted before it began runs nothing or is ended", run: func(t *test) {
			s := t.session()
			for i := range 20 {
				p := s.start(`echo x >> @D/ran; sleep 100`)
				t.eventually("some time passes", 0, func() bool { return time.Since(p.started) > time.Duration(i)*time.Millisecond/2 })
				p.cancel()
				<-p.done
				if p.err == nil && p.res.Cause != elsewhere.Interrupted {
					t.Errorf("an interrupted call ended by %s", p.res.Cause)
				}
			}
			if n := strings.Count(s.observe(`cat @D/ran 2>/dev/null`), "x"); n > 20 {
				t.Errorf("20 commands ran %d times", n)
			}
			s.want(`echo fine`, "fine\n")
		}},
	}}
}

// manyAtOnce runs n calls at once, each with a stdin and an exit code of its own, and judges each one's output.
func (s *session) manyAtOnce(n int, call func(i int) (command string, good func(out string) bool)) {
	s.t.Helper()
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			command, good := call(i)
			<-start
			res, err := s.try(command, stdin(fmt.Sprintf("in %d", i)))
			switch {
			case err != nil:
				s.t.Errorf("call %d: %v", i, err)
			case res.Cause != elsewhere.Exited || !good(string(res.Output)):
				s.t.Errorf("call %d ended by %s with %d, notices %q, output %s", i, res.Cause, res.ExitCode, res.Notices, shorten(string(res.Output)))
			case strings.Contains(command, "(exit") && res.ExitCode != i%100:
				s.t.Errorf("call %d ended with %d", i, res.ExitCode)
			}
		})
	}
	close(start)
	wg.Wait()
}
