//go:build linux

package modal_test

import (
	"os"
	"slices"
	"testing"

	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/modal"
	"github.com/elsewhere-sh/elsewhere/test/cloud/victim"
)

// TestAKillLosesNothingThatWasStored ends a process by KILL before, while and after it stores files on close.
func TestAKillLosesNothingThatWasStored(t *testing.T) {
	if url, is := victim.Is(); is {
		a := &account{home: os.Getenv("HERMES_HOME"), environ: os.Environ(), settings: map[string]string{
			"modal_server_url": url, "modal_token_id": emulator.DefaultToken.ID, "modal_token_secret": emulator.DefaultToken.Secret,
		}}
		sb := a.mustOpen(t, ends)
		run(t, sb, "echo second > /root/f; : > /root/done", "")
		closeIt(t, sb)
		return
	}
	const snapshot, terminate = "TaskSnapshotFilesystem", "SandboxTerminateV2"
	for _, c := range []struct {
		name   string
		fault  emulator.Fault
		method string // it is killed when the second call of this one has come; "" is when the command has run
		images int    // and so many are there
		stored string // what a new sandbox starts with
	}{
		{"before", emulator.Fault{Method: snapshot, Hang: true}, "", 1, "first\n"},
		{"while they are stored", emulator.Fault{Method: snapshot, Hang: true}, snapshot, 1, "first\n"},
		{"stored and not known", emulator.Fault{Method: snapshot, Hang: true, After: true}, snapshot, 2, "first\n"},
		{"noted and those before not removed", emulator.Fault{Method: "ImageDelete", Hang: true}, "ImageDelete", 2, "second\n"},
		{"noted and the sandbox not ended", emulator.Fault{Method: terminate, Hang: true}, terminate, 1, "second\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := own(t)
			sb := a.mustOpen(t, ends)
			run(t, sb, "echo first > /root/f", "")
			closeIt(t, sb)
			first := a.table(t)["direct:default"]

			a.e.Inject(c.fault)
			before := a.e.Counts()[c.method]
			victim.Kill(t, a.environ, a.e.URL(), func() bool {
				if c.method != "" {
					return a.e.Counts()[c.method] > before && len(a.e.Images()) == c.images
				}
				id := a.running()
				if id == "" {
					return false
				}
				o, err := a.e.Observe(t.Context(), id, nil, "cat", "/root/done")
				return err == nil && o.Code == 0
			})
			a.e.Heal()
			all := a.sandboxes()
			left := all[len(all)-1]
			if d := left.Definition; !left.Running || d.GetTimeoutSecs() == 0 || d.GetIdleTimeoutSecs() == 0 {
				t.Errorf("what it left has no end, or runs no more: %+v", left)
			}
			now := a.table(t)["direct:default"]
			for _, id := range a.e.Images() {
				if id != now && a.e.Expires(id).IsZero() {
					t.Errorf("%s is stored for ever, and is not the one that is remembered", id)
				}
			}
			if !slices.Contains(a.e.Images(), now) || (now == first) != (c.stored == "first\n") {
				t.Fatalf("remembered is %q, before %q, stored are %q", now, first, a.e.Images())
			}

			// What was not stored is there for as long as the sandbox runs, and what was stored when it runs no more.
			sb = a.mustOpen(t, ends)
			run(t, sb, "cat /root/f", "second\n")
			if err := a.e.Lose(left.ID); err != nil {
				t.Fatal(err)
			}
			res, err := try(t, sb, "cat /root/f", nil)
			if err != nil {
				res, err = try(t, sb, "cat /root/f", nil)
			}
			if err != nil || string(res.Output) != c.stored {
				t.Errorf("%q, %v", res.Output, err)
			}
			closeIt(t, sb)
			if id := a.running(); id != "" {
				t.Errorf("%s still runs", id)
			}
		})
	}
}
