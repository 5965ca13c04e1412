package drivertest

import (
	"fmt"
	"strings"
)

// orphanGroup: a host process that is gone leaves nothing of its calls behind (SPEC 1.13, 1.5).
func orphanGroup() group {
	ending := func(name, how string) testCase {
		return testCase{name: name, slow: true, run: func(t *test) { orphans(t, how, "") }}
	}
	return group{name: "orphans", needs: []Need{NeedHostChildren, NeedProc}, cases: []testCase{
		ending("a host process killed by KILL leaves no process of its call and no waiting shell", "kill"),
		ending("a host process that exits without closing anything leaves none either", "exit"),
		ending("a host process that panics leaves none either", "panic"),
		ending("a host process that closes everything leaves none either", "close"),
		{name: "a host process killed while its call is of a named session leaves nothing of the call, and the session is well", needs: []Need{NeedReopen}, slow: true, run: func(t *test) {
			b := orphans(t, "kill", "dev")
			b.open()
			b.session("dev").want(`echo "$A"`, "1\n")
		}},
		{name: "X03 the throw-away files of a killed host process are gone at the next start", slow: true, run: func(t *test) {
			b := t.place(boxSpec{})
			h := b.host(childJob{First: []string{`export TOK=drivertest-s3cret`}, Ahead: 1})
			if h.report.Private == "" {
				t.skip("this sandbox has no private directory")
			}
			look := `grep -rl drivertest-s3cret ` + quote(h.report.Private) + ` 2>/dev/null`
			if b.observe(look) == "" {
				t.Fatal("the throw-away state is in no file: the case proves nothing")
			}
			h.kill()
			next := b.host(childJob{First: []string{`echo fine`}})
			defer next.kill()
			t.eventually("the files of the dead process are gone", 0, func() bool {
				return b.observe(`[ -e `+quote(h.report.Private)+` ] && echo there`) == ""
			})
		}},
		{name: "the files of a living host process are left alone", slow: true, run: func(t *test) {
			b := t.place(boxSpec{})
			look := &session{t: t, b: b}
			on := look.d() + "/on"
			h := b.host(childJob{First: []string{`export A=1`}, Ahead: 1, Call: `: > ` + on + `; sleep 1000`, Await: []string{on}})
			b.open()
			b.session("").want(`echo fine`, "fine\n")
			b.close()
			if h.report.Private != "" && b.observe(`[ -e `+quote(h.report.Private)+` ] && echo there`) != "there\n" {
				t.Error("the private directory of another process was removed")
			}
			if len(b.carrying(h.report.IDs)) == 0 {
				t.Error("the processes of another host were ended")
			}
		}},
		{name: "calls of this process are untouched by the death of another host process on the same session", needs: []Need{NeedReopen}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			live := s.beater()
			p := s.start(live("mine"))
			procs := s.alive("mine")
			h := b.host(childJob{Session: "dev", Ahead: 1, Call: live("theirs"), Await: []string{s.d() + "/theirs.beat"}})
			theirs := s.alive("theirs")
			h.kill()
			if t.r.h.OrphansEndOnOpen {
				b.again()
			}
			s.gone(theirs, max(t.r.h.OrphanGrace, grace))
			s.still(procs)
			p.interrupt()
			s.gone(procs, 0)
		}},
		{name: "two host processes on one named session lose no state", needs: []Need{NeedReopen}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			s.want(`export A=1; cd /usr`, "")
			s.flush()
			h := b.host(childJob{Session: "dev", First: []string{`echo "$A"; pwd; export B=2; cd /tmp`, `export C=3`}, Ahead: 1, End: "close"})
			if want := []string{"1\n/usr\n", ""}; strings.Join(h.report.Outputs, "|") != strings.Join(want, "|") {
				t.Errorf("the other process got %q", h.report.Outputs)
			}
			h.end()
			s.want(`echo "$A $B $C"; pwd`, "1 2 3\n/tmp\n")
		}},
	}}
}

// orphans starts a host process with a call whose tree leaves it in every way, ends it as how says, and expects all gone.
func orphans(t *test, how, name string) *box {
	t.Helper()
	b := t.place(boxSpec{})
	look := &session{t: t, b: b}
	live := look.beater()
	names := []string{"plain", "setsid", "forked", "bare", "deaf"}
	call := fmt.Sprintf("%s & setsid %s & ( ( %s & ) & ); (env -i setsid %s >/dev/null 2>&1 </dev/null &); (setsid %s &); wait; sleep 1000",
		live("plain"), live("setsid"), live("forked"), live("bare"), live("deaf", "deaf"))
	var await []string
	for _, n := range names {
		await = append(await, look.d()+"/"+n+".beat")
	}
	h := b.host(childJob{Session: name, First: []string{`export A=1`}, Ahead: 2, Call: call, Await: await, End: how})
	procs := look.alive(names...)
	shells := b.carrying(h.report.IDs)
	if h.report.Waiting != 2 || len(shells) < 3 {
		t.Fatalf("%d shells wait, %d processes carry a call's id: the case proves nothing", h.report.Waiting, len(shells))
	}
	if how == "kill" {
		h.kill()
	} else {
		h.end()
	}
	promise := max(t.r.h.OrphanGrace, grace)
	if t.r.h.OrphansEndOnOpen {
		b.open()
		b.session("").want(`echo fine`, "fine\n")
	}
	look.gone(procs, promise)
	b.gone(shells, promise)
	return b
}
