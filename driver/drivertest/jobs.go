package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// jobGroup: background jobs (SPEC 7.5). They need named sessions that are kept, since a job is found by files beside theirs.
func jobGroup() group {
	return group{name: "jobs", needs: []Need{NeedReopen}, cases: []testCase{
		{name: "a job has all that a call has, and gives nothing back to its session", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			s.want(`export A=1 B=b; f() { echo "f $A"; }; export -f f; g() { f; }; alias al='echo al'; cd /tmp; umask 027; shopt -s extglob; unset HOME`, "")
			text := "g; al; pwd; umask; [[ ab == +(a|b) ]] && echo glob; echo ${HOME-unset} $V \"$B\"; bash -c f; echo \"$SHLVL $-\"\ntype builtin | head -1; [ $$ = $BASHPID ] && echo own"
			call := string(s.run(text, env("V", "x\ny")).Output)
			j := s.job(text+"; export A=2; cd /; f() { :; }", elsewhere.JobOptions{Env: map[string]string{"V": "x\ny"}})
			if got := string(j.log()); got != call || !strings.Contains(got, "f 1\nal\n/tmp\n0027\nglob\nunset x y b\nf 1\n") {
				t.Errorf("the job printed %q, a call %q", got, call)
			}
			j.over(elsewhere.JobExited, 0)
			s.want(`f; pwd; echo "${V-unset}"`, "f 1\n/tmp\nunset\n")
		}},
		{name: "names that mean something to bash are no trouble", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			s.want(`exec() { echo exec; }; printf() { echo printf; }; set() { :; }; export LC_ALL=C.UTF-8 TMOUT=1 POSIXLY_CORRECT=y; alias echo='echo -n' export=false`, "")
			const text = `exec; printf; sleep 1.5; builtin printf '%s\n' "$LC_ALL $TMOUT $POSIXLY_CORRECT"`
			call := string(s.run(text).Output)
			j := s.job(text, elsewhere.JobOptions{})
			if got := string(j.log()); got != call || !strings.Contains(got, "C.UTF-8 1 y\n") {
				t.Errorf("the job printed %q, a call %q", got, call)
			}
			s.want(`builtin() { command builtin "$@"; }`, "")
			j = s.job(`builtin echo fine`, elsewhere.JobOptions{})
			if got := string(j.log()); got != "fine\n" {
				t.Errorf("the job printed %q", got)
			}
		}},
		{name: "an exit code is known, and a signal", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			for text, code := range map[string]int{`exit 3`: 3, `false`: 1, `no-such-command`: 127, `kill -KILL $$`: 137, `kill -TERM $$`: 143, `exec sh -c 'exit 9'`: 9} {
				st := s.job(text, elsewhere.JobOptions{}).over(elsewhere.JobExited, code)
				if want := map[int]string{137: "KILL", 143: "TERM"}[code]; st.Signal != want {
					t.Errorf("%s: signal %q, want %q", text, st.Signal, want)
				}
				if st.Started.IsZero() || st.Ended.Before(st.Started) || st.PID <= 0 {
					t.Errorf("%s: %+v", text, st)
				}
			}
		}},
		{name: "a job that cannot start is an error", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			_, err := s.Start(t.ctx(), "echo no", &elsewhere.JobOptions{Dir: "/no/such"})
			t.wantKind(err, elsewhere.ErrConfig, "a job in a directory that is not there")
			_, err = s.Start(t.ctx(), " ", nil)
			t.wantKind(err, elsewhere.ErrConfig, "an empty job")
			if all := s.b.jobs(); len(all) > 0 {
				t.Errorf("there are jobs: %+v", all)
			}
		}},
		{name: "every byte goes in and comes out, until the input is closed", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			j := s.job(`cat; echo end`, elsewhere.JobOptions{})
			want := bytes.Repeat(allBytes(), 30)
			for i := 0; i < len(want); i += 1000 {
				j.send(want[i:min(i+1000, len(want))])
			}
			out := j.await(func(out []byte) bool { return len(out) >= len(want) })
			t.sameBytes("the output", out, want)
			j.running()
			for range 2 {
				if err := j.CloseInput(t.ctx()); err != nil {
					t.Errorf("closing the input: %v", err)
				}
				t.wantKind(j.Send(t.ctx(), []byte("late\n")), elsewhere.ErrConfig, "input behind its end")
			}
			j.over(elsewhere.JobExited, 0)
			t.sameBytes("all output", j.log(), append(want, "end\n"...))
			t.wantKind(j.Send(t.ctx(), []byte("x")), elsewhere.ErrConfig, "input for a job that has ended")
		}},
		{name: "a cursor reads on where it was, waits for more, and says what rolled out of the window", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			s.d()
			j := s.job(s.fill(`echo one; read -r _; echo two; read -r _; i=0; while [ $i -lt 40000 ]; do echo "line $((i++))"; done; : > @D/flooded; read -r _; echo last`), elsewhere.JobOptions{LogBytes: 64 << 10})
			first := j.logs(0, 0, hang)
			if string(first.Data) != "one\n" || first.From != 0 || first.Next != 4 || first.End {
				t.Errorf("first %q, %+v", first.Data, first)
			}
			if none := j.logs(4, 0, 300*time.Millisecond); len(none.Data) > 0 || none.Next != 4 || none.End {
				t.Errorf("nothing was written, and there is %q", none.Data)
			}
			got := make(chan elsewhere.JobOutput, 1)
			go func() { out, _ := j.Logs(t.ctx(), 4, 0, hang); got <- out }()
			j.send([]byte("go\n"))
			if out := <-got; string(out.Data) != "two\n" || out.From != 4 {
				t.Errorf("waiting for more gave %q, %+v", out.Data, out)
			}
			if out := j.logs(1, 5, 0); string(out.Data) != "ne\ntw" || out.Next != 6 {
				t.Errorf("five bytes from 1 on are %q", out.Data)
			}
			j.send([]byte("go\n"))
			s.await("@D/flooded")
			var all strings.Builder
			all.WriteString("one\ntwo\n")
			for i := range 40000 {
				fmt.Fprintf(&all, "line %d\n", i)
			}
			whole := all.String()
			j.send([]byte("go\n"))
			j.over(elsewhere.JobExited, 0)
			whole += "last\n"
			var kept []byte
			out := j.logs(8, 0, 0)
			if out.Lost != out.From-8 || out.From < int64(len(whole))-64<<10 || out.From > int64(len(whole))-48<<10 {
				t.Errorf("of %d bytes those from %d on are kept, and %d are said to be lost", len(whole), out.From, out.Lost)
			}
			from := out.From
			for !out.End {
				kept = append(kept, out.Data...)
				out = j.logs(out.Next, 10000, 0)
			}
			t.sameBytes("what is kept", kept, []byte(whole[from:]))
		}},
		{name: "a job outlives its call and its session, and the end of other calls", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			live := s.beater()
			j := s.job(live("job")+` & setsid `+live("detached")+` & wait`, elsewhere.JobOptions{})
			procs := s.alive("job", "detached")
			s.run(`sleep 50`, timeout(200*time.Millisecond)).ended(elsewhere.TimedOut, 124)
			s.want(`exit 0`, "")
			s.close()
			s.still(procs)
			j.running()
			j.kill()
			s.gone(procs, 0)
		}},
		{name: "kill ends the whole tree and nothing else, and the end is told", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			live := s.beater()
			other := s.job(live("other"), elsewhere.JobOptions{})
			s.run(live("left") + ` >/dev/null 2>&1 &`)
			j := s.job(`trap '' TERM; `+live("a")+` & env -i setsid `+live("b", "deaf")+` & (setsid `+live("c")+` &) & `+live("d", "deaf"), elsewhere.JobOptions{})
			procs, rest := s.alive("a", "b", "c", "d"), s.alive("other", "left")
			begin := time.Now()
			j.kill()
			within(t, begin, endPromise+time.Second)
			s.gone(procs, 0)
			if st := j.killed("killed"); st.ExitCode != 137 || st.Left != 0 {
				t.Errorf("%+v", st)
			}
			s.still(rest)
			j = s.job(live("e")+`; echo no`, elsewhere.JobOptions{})
			s.alive("e")
			j.kill()
			j.killed("killed")
			other.kill()
			b.observe("kill " + rest[1].pid) // a named session's children are ended by nobody
		}},
		{name: "B03 a job that puts its work into the background has ended, says what is left, and kill ends that", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			live := s.beater()
			j := s.job(`(setsid `+live("left")+` >/dev/null 2>&1 &); `+live("loud", "loud")+` & echo launched`, elsewhere.JobOptions{})
			procs := s.alive("left", "loud")
			if st := j.over(elsewhere.JobExited, 0); st.Left < 2 {
				t.Errorf("%d processes are said to be left", st.Left)
			}
			at := j.logs(0, 0, 0)
			if !strings.Contains(string(at.Data), "launched\n") {
				t.Errorf("the output is %q", at.Data)
			}
			t.eventually("what is left goes on writing into the log", time.Second, func() bool { return len(j.logs(at.Next, 0, 0).Data) > 0 })
			s.still(procs)
			j.kill()
			s.gone(procs, 0)
			if st := j.status(); st.Left != 0 || st.State != elsewhere.JobExited {
				t.Errorf("%+v", st)
			}
		}},
		{name: "signals reach the job's own group, and an interrupt is not ignored", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			j := s.job(`trap 'echo hup' HUP; trap 'echo int; exit 5' INT; echo ready; while :; do sleep 0.1; done`, elsewhere.JobOptions{})
			j.await(func(out []byte) bool { return string(out) == "ready\n" })
			t.wantKind(j.Signal(t.ctx(), "-9 1"), elsewhere.ErrConfig, "a signal that is none")
			for sig, want := range map[string]string{"HUP": "hup\n"} {
				if err := j.Signal(t.ctx(), sig); err != nil {
					t.Errorf("signal %s: %v", sig, err)
				}
				j.await(func(out []byte) bool { return strings.HasSuffix(string(out), want) })
			}
			if err := j.Signal(t.ctx(), "INT"); err != nil {
				t.Errorf("signal INT: %v", err)
			}
			j.over(elsewhere.JobExited, 5)
			j = s.job(`sleep 1000`, elsewhere.JobOptions{})
			j.status()
			if err := j.Signal(t.ctx(), "INT"); err != nil {
				t.Errorf("signal INT: %v", err)
			}
			j.over(elsewhere.JobExited, 130)
			t.wantKind(j.Signal(t.ctx(), "INT"), elsewhere.ErrConfig, "a signal to a job that has ended")
		}},
		{name: "a job on a terminal is typed to, shows all, and its exit code is its own", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			s.want(`export A=a SHELL=/bin/false BASH_ENV=/dev/stdin; exec() { echo exec; }; export -f exec; cd /tmp`, "")
			shell := string(s.run(`echo "$SHELL $SHLVL $BASH_ENV $0 $-"`).Output)
			j := s.job(`[[ -t 0 && -t 1 && -t 2 ]] && : </dev/tty && echo "all $TERM $A $V $PWD"; stty size; echo "$SHELL $SHLVL $BASH_ENV $0 $-"; unset -f exec
read -r -p 'name: ' x; echo "hello $x"; cat; read -r -s -p "secret: " x; echo; seq 1 20000; exit ${#x}`,
				elsewhere.JobOptions{Terminal: true, Rows: 31, Cols: 97, Term: "vt100", Env: map[string]string{"V": "v"}})
			want := "all vt100 a v /tmp\r\n31 97\r\n" + strings.ReplaceAll(shell, "\n", "\r\n") + "name: "
			j.await(func(out []byte) bool { return string(out) == want })
			if st := j.status(); !st.Terminal || !st.Input || !j.Terminal() {
				t.Errorf("%+v", st)
			}
			types := func(text, shows string) {
				if err := j.SendLine(t.ctx(), text); err != nil {
					t.Fatalf("typing %q: %v", text, err)
				}
				want += shows
				j.await(func(out []byte) bool { return strings.HasPrefix(string(out), want) })
			}
			types("bob", "bob\r\nhello bob\r\n")
			types("to cat", "to cat\r\nto cat\r\n")
			if err := j.CloseInput(t.ctx()); err != nil {
				t.Fatal(err)
			}
			// Behind the end of file more can be typed.
			want += "secret: "
			j.await(func(out []byte) bool { return string(out) == want })
			types("secrets", "\r\n1\r\n")
			for i := 2; i <= 20000; i++ {
				want += strconv.Itoa(i) + "\r\n"
			}
			t.sameBytes("all that was shown", j.log(), []byte(want))
			j.over(elsewhere.JobExited, 7)
		}},
		{name: "the keys of a job's terminal interrupt what is in front, and kill ends all that runs on it", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			live := s.beater()
			j := s.job(`echo ready; sleep 1000; echo no`, elsewhere.JobOptions{Terminal: true})
			j.await(func(out []byte) bool { return string(out) == "ready\r\n" })
			j.send([]byte("\x03"))
			if st := j.over(elsewhere.JobExited, 130); st.Signal != "INT" {
				t.Errorf("%+v", st)
			}
			j = s.job(`exec bash --noprofile --norc -i`, elsewhere.JobOptions{Terminal: true})
			shows := func(text string) { j.await(func(out []byte) bool { return bytes.Contains(out, []byte(text)) }) }
			j.send([]byte("bash -c 'echo a\"\"sleep; exec sleep 1000'\r"))
			shows("asleep")
			j.send([]byte("\x03"))
			j.send([]byte("echo int-$?\r"))
			shows("int-130")
			j.send([]byte(s.fill("trap '' HUP; " + live("back", "deaf") + " & " + live("front") + " | setsid " + live("apart", "deaf") + "\r")))
			procs := s.alive("front", "back", "apart")
			j.kill()
			s.gone(procs, 0)
			j.killed("killed")
		}},
		{name: "a lifetime ends the whole job from within", slow: true, run: func(t *test) {
			b := t.own(boxSpec{Settings: map[string]string{"job_lifetime": "1"}})
			s := b.session("dev")
			live := s.beater()
			j := s.job(`setsid `+live("a", "deaf")+` & echo $$; wait`, elsewhere.JobOptions{})
			procs := s.alive("a")
			free := s.job(`sleep 1000`, elsewhere.JobOptions{Lifetime: -1})
			j.killed("lifetime")
			s.gone(procs, endPromise)
			free.running()
			free.kill()
		}},
		{name: "a job is its named session's or the task's: removing the session ends the one alone", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			live := s.beater()
			mine := s.job(live("mine"), elsewhere.JobOptions{})
			kept := s.job(live("kept"), elsewhere.JobOptions{Keep: true})
			none := b.session("").job(live("none"), elsewhere.JobOptions{})
			for _, j := range []*job{mine, kept, none} {
				want := map[*job]elsewhere.JobOwner{mine: elsewhere.OwnerSession, kept: elsewhere.OwnerTask, none: elsewhere.OwnerTask}[j]
				if st := j.status(); st.Owner != want {
					t.Errorf("the owner is %q, want %q", st.Owner, want)
				}
			}
			procs, rest := s.alive("mine"), s.alive("kept", "none")
			s.close()
			s.still(procs)
			if err := b.sb.RemoveSession(t.ctx(), "dev"); err != nil {
				t.Fatal(err)
			}
			s.gone(procs, endPromise)
			mine.killed("killed")
			s.still(rest)
			kept.kill()
			none.kill()
		}},
		{name: "twenty jobs at once are twenty", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			var wg sync.WaitGroup
			ids := make([]string, 20)
			for i := range ids {
				wg.Go(func() {
					j, err := s.Start(t.ctx(), fmt.Sprintf("echo job %d; read -r x; echo $x; exit %d", i, i), nil)
					if err != nil {
						t.Errorf("job %d: %v", i, err)
						return
					}
					ids[i] = j.ID()
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			if all := b.jobs(); len(all) != len(ids) {
				t.Errorf("%d jobs are listed", len(all))
			}
			for i, id := range ids {
				wg.Go(func() {
					j := b.job(id)
					if err := j.Send(t.ctx(), fmt.Appendf(nil, "to %d\n", i)); err != nil {
						t.Errorf("job %d: %v", i, err)
					}
					st, err := j.Wait(t.ctx())
					if err != nil || st.ExitCode != i {
						t.Errorf("job %d: %+v, %v", i, st, err)
					}
					out, err := j.Logs(t.ctx(), 0, 0, 0)
					if want := fmt.Sprintf("job %d\nto %d\n", i, i); err != nil || string(out.Data) != want {
						t.Errorf("job %d: %q, %v", i, out.Data, err)
					}
				})
			}
			wg.Wait()
		}},
		{name: "no text and no variable of a job stands in an argument or in a file in the clear", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			j := s.job(`hidden=word-of-the-job; [ ${#V} = 16 ] && echo ready; read -r _`, elsewhere.JobOptions{Env: map[string]string{"V": "value-of-the-job"}})
			j.await(func(out []byte) bool { return string(out) == "ready\n" })
			look := func(pattern string) string {
				return b.observe(`grep -al -- ` + quote(pattern) + ` /proc/[0-9]*/cmdline 2>/dev/null | while read -r f; do tr '\0' ' ' < $f | grep -v grep; done`)
			}
			if found := look("word-of-the-jo[b]") + look("value-of-the-jo[b]"); found != "" {
				t.Errorf("in arguments: %q", found)
			}
			dir := quote(b.sb.Info().StateDir)
			if found := b.observe(`cd ` + dir + ` && for f in job-*; do [ -p "$f" ] || grep -l value-of-the-job "$f"; done; find job-* ! -perm 600`); found != "" {
				t.Errorf("in files, or readable by others: %q", found)
			}
			if seen := b.observe(`cd ` + dir + ` && ls | grep -c ^job-`); seen == "0\n" {
				t.Error("the observer sees no file of the job: the case proves nothing")
			}
			j.kill()
		}},
		{name: "a job whose processes are gone without a word is lost", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			live := s.beater()
			j := s.job(`echo early; `+live("a"), elsewhere.JobOptions{})
			procs := s.alive("a")
			st := j.status()
			// The supervisor's number stands in the first line of its file; its other half and the job carry its id too. They are
			// stopped first, so that none has the time to tell of another's end.
			b.observe(`cd ` + quote(b.sb.Info().StateDir) + ` && sid=$(sed 's/.*"supervisor":"\([0-9a-f]*\)".*/\1/' job-` + st.ID + `.meta) && [ ${#sid} = 32 ] && all=$(grep -al "ELSEWHERE_SESSION=$sid" /proc/[0-9]*/environ | cut -d/ -f3) && kill -STOP $all && kill -9 $all`)
			b.gone(procs, 0)
			if st := j.over(elsewhere.JobLost, -1); st.Signal != "" {
				t.Errorf("%+v", st)
			}
			if out := j.logs(0, 0, time.Second); string(out.Data) != "early\n" {
				t.Errorf("its output is %q", out.Data)
			}
			if _, err := j.Kill(t.ctx()); err != nil {
				t.Errorf("killing what is lost: %v", err)
			}
		}},
		{name: "a job of a sandbox that vanished is lost", needs: []Need{NeedLose}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			j := s.job(`echo early; sleep 1000`, elsewhere.JobOptions{})
			j.running()
			b.lose()
			st, err := j.Status(t.ctx())
			if err != nil {
				t.wantKind(err, elsewhere.ErrLost, "a question that found the sandbox gone")
				st, err = j.Status(t.ctx())
			}
			if err != nil || st.State != elsewhere.JobLost {
				t.Errorf("%+v, %v", st, err)
			}
			if got := string(s.job(`echo fine`, elsewhere.JobOptions{}).log()); got != "fine\n" {
				t.Errorf("the next job printed %q", got)
			}
		}},
		{name: "notices tell of lines that fit a pattern, not too often, and of the end", run: func(t *test) {
			s := t.own(boxSpec{}).session("dev")
			j := s.job(`echo starting; echo Listening on 1; echo Listening on 2; echo other; read -r _; printf 'Listening at last'; exit 4`, elsewhere.JobOptions{})
			notices := j.Watch(t.ctx(), &elsewhere.JobWatch{Pattern: regexp.MustCompile(`^Listening`), Every: hang})
			if n := <-notices; n.Line != "Listening on 1" || n.Job != j.ID() || n.Skipped != 0 {
				t.Errorf("first notice %+v", n)
			}
			j.send([]byte("\n"))
			if n := <-notices; n.Status == nil || n.Status.ExitCode != 4 || n.Skipped != 2 {
				t.Errorf("last notice %+v", n)
			}
			if n, open := <-notices; open {
				t.Errorf("one more notice: %+v", n)
			}
		}},
		{name: "those that ended long ago are forgotten, those that run are not", slow: true, big: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			live := s.job(`read -r _`, elsewhere.JobOptions{})
			for i := range 67 {
				s.job(fmt.Sprintf("exit %d", i), elsewhere.JobOptions{}).over(elsewhere.JobExited, i)
			}
			all := b.jobs()
			if len(all) < 65 || len(all) > 67 || all[0].ID != live.ID() || all[len(all)-1].ExitCode != 66 {
				t.Errorf("%d jobs are kept, from %+v to %+v", len(all), all[0], all[len(all)-1])
			}
			live.kill()
		}},
		{name: "a job goes on when its controller is killed, and is found again with output and exit code", needs: []Need{NeedHostChildren}, slow: true, run: func(t *test) {
			b := t.place(boxSpec{})
			b.open()
			s := b.session("")
			live := s.beater()
			h := b.host(childJob{Session: "dev", First: []string{`export A=1`}, Jobs: []string{
				s.fill(`echo "before $A"; ` + live("a") + ` & until [ -e @D/go ]; do sleep 0.05; done; echo after; kill $!; exit 7`),
			}, Typed: []string{`read -r x; echo "typed $x"; exit 8`}})
			procs := s.alive("a")
			h.kill()
			s.still(procs)
			found := b.again()
			if all := found.jobs(); len(all) != 2 || all[0].ID != h.report.Jobs[0] || all[0].State != elsewhere.JobRunning || all[0].Session != "dev" {
				t.Fatalf("found were %+v", all)
			}
			j := found.job(h.report.Jobs[0])
			if out := j.logs(0, 0, hang); string(out.Data) != "before 1\n" {
				t.Errorf("its output is %q", out.Data)
			}
			s.observe(`: > @D/go`)
			j.over(elsewhere.JobExited, 7)
			if got := string(j.log()); got != "before 1\nafter\n" {
				t.Errorf("its output is %q", got)
			}
			typed := found.job(h.report.Jobs[1])
			typed.send([]byte("late\r"))
			typed.over(elsewhere.JobExited, 8)
			if got := string(typed.log()); got != "late\r\ntyped late\r\n" {
				t.Errorf("the terminal showed %q", got)
			}
			s.gone(procs, 0)
		}},
		{name: "a flood stays below the cap when the controller was killed", needs: []Need{NeedHostChildren}, slow: true, run: func(t *test) {
			const most = 128 << 10
			b := t.place(boxSpec{})
			b.open()
			h := b.host(childJob{Session: "dev", Jobs: []string{`exec yes`}, JobOptions: &elsewhere.JobOptions{LogBytes: most}})
			h.kill()
			j := b.again().job(h.report.Jobs[0])
			files := quote(b.sb.Info().StateDir) + `/job-` + j.ID() + `.log*`
			size := func() int {
				n, err := strconv.Atoi(strings.TrimSpace(b.observe(`cat ` + files + ` | wc -c`)))
				if err != nil || n == 0 {
					t.Fatalf("the size of the log: %d, %v", n, err)
				}
				return n
			}
			var at int64
			for range 5 {
				t.eventually("the flood goes on", time.Second, func() bool {
					out := j.logs(0, 1, 0)
					moved := out.From > at+most
					if moved {
						at = out.From
					}
					return moved
				})
				if n := size(); n > most+200 {
					t.Errorf("the log takes %d bytes", n)
				}
			}
			// A read that the window overtook again and again is empty.
			t.eventually("something of the flood is read", time.Second, func() bool {
				out := j.logs(0, most, 0)
				if strings.Trim(string(out.Data), "y\n") != "" {
					t.Errorf("read was %s", shorten(string(out.Data)))
				}
				return len(out.Data) > 0
			})
			j.kill()
			j.killed("killed")
		}},
		{name: "where nothing is kept a job ends with its process", slow: true, run: func(t *test) {
			b := t.own(boxSpec{Options: elsewhere.SandboxOptions{ThrowAway: true}})
			s := b.session("")
			live := s.beater()
			j := s.job(live("a"), elsewhere.JobOptions{})
			if st := j.status(); st.Owner != elsewhere.OwnerProcess || !hasNotice(j.Notices(), "ends", "process") {
				t.Errorf("%+v, %q", st, j.Notices())
			}
			procs := s.alive("a")
			s.close()
			s.still(procs)
			b.close()
			watch := b.t.own(boxSpec{})
			watch.gone(procs, endPromise)
		}},
		{name: "with bash as the only program all but input works", needs: []Need{NeedBashOnly}, slow: true, run: func(t *test) {
			s := t.own(boxSpec{PlaceSpec: PlaceSpec{BashOnly: true}}).session("dev")
			s.want(`export A=1; f() { echo "f $A"; }; cd /tmp`, "")
			j := s.job(`f; pwd; echo "$V"; exit 3`, elsewhere.JobOptions{Env: map[string]string{"V": "v"}})
			j.over(elsewhere.JobExited, 3)
			if got := string(j.log()); got != "f 1\n/tmp\nv\n" {
				t.Errorf("the job printed %q", got)
			}
			_, err := s.Start(t.ctx(), `echo no`, &elsewhere.JobOptions{Terminal: true})
			t.wantKind(err, elsewhere.ErrUnsupported, "a terminal that nothing can hold")
			want := bytes.Repeat(allBytes(), 3)
			j = s.job(`printf '`+printfBytes(want)+`'`, elsewhere.JobOptions{})
			j.over(elsewhere.JobExited, 0)
			t.sameBytes("every byte", j.log(), want)
			t.sameBytes("from the middle on", j.logs(300, 0, 0).Data, want[300:])
			j = s.job(`read -r x; echo "$? <$x>"; i=0; while (( i < 10000 )); do echo "line $((i++))"; done; while :; do :; done`, elsewhere.JobOptions{LogBytes: 64 << 10})
			t.wantKind(j.Send(t.ctx(), []byte("x\n")), elsewhere.ErrUnsupported, "input without mkfifo")
			var out elsewhere.JobOutput
			t.eventually("the window has rolled", hang/3, func() bool {
				out = j.logs(0, 0, 0)
				return strings.HasSuffix(string(out.Data), "line 9999\n")
			})
			out = j.logs(0, 0, 0) // the read before may have gone on while the window rolled
			if out.Lost != out.From || out.From == 0 || len(out.Data) > 64<<10 || len(out.Data) < 48<<10 {
				t.Errorf("kept are %d bytes from %d on, lost %d", len(out.Data), out.From, out.Lost)
			}
			j.kill()
			j.killed("killed")
		}},
	}}
}

// printfBytes writes bytes for the format of bash's printf, between single quotes.
func printfBytes(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		fmt.Fprintf(&out, `\%03o`, c)
	}
	return out.String()
}

// job is a background job in a case's hands.
type job struct {
	*elsewhere.Job
	t *test
}

// job starts a background job, to be killed with the case.
func (s *session) job(command string, opts elsewhere.JobOptions) *job {
	s.t.Helper()
	j, err := s.Start(s.t.ctx(), s.fill(command), &opts)
	if err != nil {
		s.t.Fatalf("starting the job %s: %v", shorten(command), err)
	}
	own := &job{j, s.t}
	own.killLater()
	return own
}

// job finds a job by its id, to be killed with the case.
func (b *box) job(id string) *job {
	b.t.Helper()
	j, err := b.sb.Job(b.t.ctx(), id)
	if err != nil {
		b.t.Fatalf("finding the job %s: %v", id, err)
	}
	own := &job{j, b.t}
	own.killLater()
	return own
}

func (j *job) killLater() {
	j.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		_, _ = j.Kill(ctx) // the sandbox may be closed
	})
}

func (b *box) jobs() []elsewhere.JobStatus {
	b.t.Helper()
	all, err := b.sb.Jobs(b.t.ctx())
	if err != nil {
		b.t.Fatalf("listing jobs: %v", err)
	}
	return all
}

func (j *job) status() elsewhere.JobStatus {
	j.t.Helper()
	st, err := j.Status(j.t.ctx())
	if err != nil {
		j.t.Fatalf("status: %v", err)
	}
	return st
}

func (j *job) running() {
	j.t.Helper()
	if st := j.status(); st.State != elsewhere.JobRunning {
		j.t.Errorf("the job does not run: %+v", st)
	}
}

// over waits for the end and expects this one.
func (j *job) over(state elsewhere.JobState, code int) elsewhere.JobStatus {
	j.t.Helper()
	if _, err := j.Wait(j.t.ctx()); err != nil {
		j.t.Fatalf("waiting: %v", err)
	}
	st := j.status()
	if st.State != state || st.ExitCode != code {
		j.t.Errorf("the job is %s with %d (%q), want %s with %d", st.State, st.ExitCode, st.Reason, state, code)
	}
	return st
}

// killed expects that it was ended for this reason: by TERM or, where the machine is too slow for the grace, by KILL.
func (j *job) killed(reason string) elsewhere.JobStatus {
	j.t.Helper()
	st, err := j.Wait(j.t.ctx())
	if err != nil {
		j.t.Fatalf("waiting: %v", err)
	}
	st = j.over(elsewhere.JobKilled, st.ExitCode)
	if st.Reason != reason || st.ExitCode != 143 && st.ExitCode != 137 {
		j.t.Errorf("ended with %d because of %q, want %q", st.ExitCode, st.Reason, reason)
	}
	return st
}

func (j *job) kill() {
	j.t.Helper()
	left, err := j.Kill(j.t.ctx())
	if err != nil || len(left) > 0 {
		j.t.Errorf("kill: %v, left %+v", err, left)
	}
}

func (j *job) send(data []byte) {
	j.t.Helper()
	if err := j.Send(j.t.ctx(), data); err != nil {
		j.t.Fatalf("send: %v", err)
	}
}

func (j *job) logs(after, limit int64, wait time.Duration) elsewhere.JobOutput {
	j.t.Helper()
	out, err := j.Logs(j.t.ctx(), after, limit, wait)
	if err != nil {
		j.t.Fatalf("logs: %v", err)
	}
	if out.Next != out.From+int64(len(out.Data)) {
		j.t.Errorf("%d bytes from %d on lead to %d", len(out.Data), out.From, out.Next)
	}
	return out
}

// log waits for the end and gives all output.
func (j *job) log() []byte {
	j.t.Helper()
	var all bytes.Buffer
	if _, lost, _, err := j.Follow(j.t.ctx(), &all, 0); err != nil || lost > 0 {
		j.t.Fatalf("follow: %v, lost %d", err, lost)
	}
	return all.Bytes()
}

// await reads on until enough was written.
func (j *job) await(enough func([]byte) bool) []byte {
	j.t.Helper()
	var all []byte
	next := int64(0)
	j.t.eventually("the job writes what it should", hang/6, func() bool {
		out := j.logs(next, 0, time.Second)
		next, all = out.Next, append(all, out.Data...)
		return enough(all)
	})
	return all
}
