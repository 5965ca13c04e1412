//go:build linux

package daytona_test

import (
	"os"
	"testing"

	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
	"github.com/elsewhere-sh/elsewhere/test/cloud/victim"
)

// TestAKillLosesNoFiles ends a process by KILL before, while and after the service stops its sandbox on close.
func TestAKillLosesNoFiles(t *testing.T) {
	if _, is := victim.Is(); is {
		w := &world{t: t, home: os.Getenv("HERMES_HOME"), environ: os.Environ(), settings: map[string]string{"daytona_image": "debian:12"}}
		sb := w.open("web")
		w.want(w.session(sb, ""), `echo second > ~/file; : > ~/done`, "")
		_ = sb.Close(w.ctx())
		return
	}
	const stop = "POST /sandbox/{}/stop"
	srv := serve(t)
	for _, c := range []struct {
		name  string
		fault emulator.Fault
		asked bool   // it is killed when the stop has been asked for
		state string // in which the sandbox is then
	}{
		{"before", emulator.Fault{Hang: true}, false, "started"},
		{"a stop that was not taken", emulator.Fault{Hang: true}, true, "started"},
		{"a stop that goes on", emulator.Fault{Hang: true, After: true}, true, "stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, srv, nil)
			sb := w.open("web")
			w.want(w.session(sb, ""), `echo first > ~/file`, "")
			id := w.one()
			if err := sb.Close(w.ctx()); err != nil {
				t.Fatal(err)
			}
			w.await("it stops", func() bool { return srv.State(id) == "stopped" })
			srv.Fail(stop, 1, c.fault)
			before := srv.Requests(stop)
			victim.Kill(t, w.environ, "", func() bool {
				if c.asked {
					return srv.Requests(stop) > before && srv.State(id) == c.state
				}
				return srv.State(id) == "started" && w.see(id, `[ -e /root/done ] && echo yes`) == "yes\n"
			})
			srv.Heal()
			if stop, remove := srv.Intervals(id); stop <= 0 || remove == 0 {
				t.Errorf("it runs for ever, or is deleted: %d, %d", stop, remove)
			}
			srv.Lapse(id, "stopped") // as it is after its idle time
			sb = w.open("web")
			w.want(w.session(sb, ""), `cat ~/file`, "second\n")
			if w.one() != id {
				t.Error("it is another sandbox")
			}
		})
	}
}
