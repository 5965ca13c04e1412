package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/elsewhere-sh/elsewhere"
)

// lostGroup: a sandbox that vanished is noticed, and no command runs twice (SPEC 1.14).
func lostGroup() group {
	return group{name: "lost", needs: []Need{NeedLose}, cases: []testCase{
		{name: "a sandbox that vanished between calls is made again, and the next result says that earlier state is gone", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`export A=1`, "")
			s.flush()
			b.lose()
			res, err := s.try(`echo "${A-unset}"`)
			if err != nil {
				t.wantKind(err, elsewhere.ErrLost, "a call that found its sandbox gone")
				res, err = s.try(`echo "${A-unset}"`)
			}
			if err != nil {
				t.Fatalf("the sandbox was not made again: %v", err)
			}
			if string(res.Output) != "unset\n" || res.Recreated == "" {
				t.Errorf("output %q, recreated %q", res.Output, res.Recreated)
			}
			if r := s.run(`echo fine`).code(0).out("fine\n"); r.Recreated != "" {
				r.fail("said twice: %q", r.Recreated)
			}
		}},
		{name: "a call whose sandbox vanishes under it fails as lost and is not run again", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`true`, "")
			p := s.start(`echo early; : > @D/started; sleep 100`)
			s.await("@D/started")
			b.lose()
			<-p.done
			if p.err == nil {
				t.Errorf("the call ended by %s with %d", p.res.Cause, p.res.ExitCode)
			} else {
				t.wantKind(p.err, elsewhere.ErrLost, "a call whose sandbox vanished")
			}
			s.run(`echo fine`).out("fine\n")
		}},
		{name: "a sandbox that vanishes under a burst loses each call at most once and runs none twice", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`true`, "")
			b.lose()
			for range 4 {
				// Output of two runs would stand one behind the other.
				if res, err := s.try(`echo body`); err == nil && string(res.Output) != "body\n" {
					t.Errorf("output %q", res.Output)
				} else if err != nil {
					t.wantKind(err, elsewhere.ErrLost, "a call that found its sandbox gone")
				}
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "many sessions that find their sandbox gone get one new sandbox", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			var all []*session
			for i := range 8 {
				s := b.session("")
				s.want(fmt.Sprintf(`export A=%d`, i), "")
				s.flush()
				all = append(all, s)
			}
			b.lose()
			var wg sync.WaitGroup
			ids := make([]string, len(all))
			for i, s := range all {
				wg.Go(func() {
					res, err := s.try(`echo fine`)
					if err != nil {
						t.wantKind(err, elsewhere.ErrLost, "a call that found its sandbox gone")
						res, err = s.try(`echo fine`)
					}
					if err != nil {
						t.Errorf("session %d: %v", i, err)
						return
					}
					ids[i] = res.Where.SandboxID
				})
			}
			wg.Wait()
			slices.Sort(ids)
			if len(slices.Compact(ids)) != 1 {
				t.Errorf("the sessions are in %q", ids)
			}
		}},
		{name: "a named session goes on in the new sandbox, and says what is gone", needs: []Need{NeedReopen}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			s.want(`export A=1; cd /usr`, "")
			s.flush()
			b.lose()
			res, err := s.try(`echo "${A-unset}"; pwd`)
			if err != nil {
				t.wantKind(err, elsewhere.ErrLost, "a call that found its sandbox gone")
				res, err = s.try(`echo "${A-unset}"; pwd`)
			}
			if err != nil {
				t.Fatalf("the sandbox was not made again: %v", err)
			}
			// Where its state lay outside the sandbox it is still there; else the result says that it is not.
			said := strings.Contains(strings.Join(res.Notices, " "), "earlier state")
			if kept := string(res.Output) == "1\n/usr\n"; kept == said || res.Recreated == "" {
				t.Errorf("output %q, recreated %q, notices %q", res.Output, res.Recreated, res.Notices)
			}
			s.want(`export B=2`, "")
			s.want(`echo $B`, "2\n")
		}},
	}}
}

// lose makes the sandbox vanish.
func (b *box) lose() {
	b.t.Helper()
	if b.place.Lose == nil {
		b.t.Fatal("this place has no Lose, and the harness does not say that it lacks it")
	}
	if err := b.place.Lose(b.t.ctx(), b.sb.Info()); err != nil {
		b.t.Fatalf("losing the sandbox: %v", err)
	}
}
