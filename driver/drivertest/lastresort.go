package drivertest

import (
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// stopPromise is for how long a call's end is tried for behind its result, before its sandbox is stopped.
const stopPromise = 10 * time.Second

// lastResortGroup: where a call's end cannot be confirmed its sandbox is stopped, and comes back (SPEC 1.12).
func lastResortGroup() group {
	return group{name: "last resort", needs: []Need{NeedStopper}, cases: []testCase{
		{name: "a call whose end is not confirmed returns on time, and its sandbox is stopped and comes back with its files", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s, dev := b.session(""), b.session("dev")
			s.want(`echo kept > ~/kept; export A=1`, "")
			j := dev.job(`sleep 1000`, elsewhere.JobOptions{})
			beside := dev.start(`: > @D/beside; sleep 1000`)
			dev.await("@D/beside")
			victim := s.start(`: > @D/started; sleep 1000`)
			s.await("@D/started")
			stopped := b.wedge()

			r := victim.interrupt().ended(elsewhere.Interrupted, 130).notice("not confirmed", "sandbox is stopped")
			if stopped() {
				t.Error("the sandbox was stopped at once")
			}
			beside.running()
			t.eventually("the sandbox is stopped", stopPromise+hang/3, stopped)
			if d := time.Since(victim.ended); d < stopPromise {
				t.Errorf("it was stopped %v after the result", d.Round(time.Millisecond))
			}
			<-beside.done
			if beside.err == nil {
				t.Errorf("the call beside it ended by %s with %d", beside.res.Cause, beside.res.ExitCode)
			} else {
				t.wantKind(beside.err, elsewhere.ErrLost, "a call whose sandbox was stopped")
			}

			next := s.want(`cat ~/kept`, "kept\n")
			if !strings.Contains(next.Recreated, "stopped") || !strings.Contains(next.Recreated, r.CallID) {
				next.fail("recreated is %q, the call was %s", next.Recreated, r.CallID)
			}
			if again := s.want(`echo fine`, "fine\n"); again.Recreated != "" {
				again.fail("said twice: %q", again.Recreated)
			}
			if st := j.status(); st.State != elsewhere.JobLost {
				t.Errorf("the job is %+v", st)
			}
		}},
		{name: "closing a sandbox in which a call's end is not confirmed stops it", slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`echo kept > ~/kept`, "")
			victim := s.start(`: > @D/started; sleep 1000`)
			s.await("@D/started")
			stopped := b.wedge()
			victim.interrupt().ended(elsewhere.Interrupted, 130)
			b.close()
			if !stopped() {
				t.Error("the sandbox goes on")
			}
			b.again().session("").want(`cat ~/kept`, "kept\n")
		}},
	}}
}

// wedge makes nothing in the sandbox answer any more, and gives what tells whether it has been stopped since.
func (b *box) wedge() (stopped func() bool) {
	b.t.Helper()
	if b.place.Wedge == nil {
		b.t.Fatal("this backend is a driver.Stopper, and this place has no Wedge")
	}
	stopped, err := b.place.Wedge(b.t.ctx(), b.sb.Info())
	if err != nil {
		b.t.Fatalf("wedging the sandbox: %v", err)
	}
	return stopped
}
