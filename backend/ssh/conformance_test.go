//go:build linux

package ssh_test

import (
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/ssh"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

// The login shell is one that reads no start file over ssh. Many a bash does (it is built so by Debian and others), and then what
// ~/.bashrc does to the login shell it does before anything of ours runs; TestLoginShells and TestFaults have that.
func TestConformance(t *testing.T) {
	port(t, "main")
	drivertest.Run(t, harness("main", "dash"))
}

func harness(instance, login string) *drivertest.Harness {
	return &drivertest.Harness{
		Backend: ssh.Backend(),
		Place:   place(instance, login),
		Lacks: map[drivertest.Need]string{
			drivertest.NeedLose:      "an account does not vanish: what happens to a connection is in TestFaults",
			drivertest.NeedCallerEnv: "the caller's environment is another machine's",
			drivertest.NeedBashOnly:  "the account's directories are made there by mkdir",
		},
		Skip: map[string]string{
			"X05": "the parent is sshd, whose environment the kernel shows to no user, with a message where the case expects none",
			"secrets/scrub_profile removes such names of the login files too": "terminal.scrub_profile is the local backend's: login files are another machine's here",
		},
		KeepsChildren:    true,
		OrphansEndOnOpen: true,
	}
}

// TestFewSessions holds servers that give few sessions on a connection against the cases that want many. Those that count shells
// which wait do not apply: where sessions are few none is started ahead.
func TestFewSessions(t *testing.T) {
	for _, instance := range []string{"max1", "max2"} {
		t.Run(instance, func(t *testing.T) {
			port(t, instance)
			h := harness(instance, "dash")
			h.Only = []string{
				"concurrency/C08 twenty calls at once see each a whole state",
				"concurrency/calls, kills and closes at once do not disturb each other",
				"concurrency/closing the sandbox while calls run ends them, and nothing hangs",
				"kill/other calls of the session, its background children and other sessions are untouched",
				"state files/two users of one named session at once each see a whole state and lose none of it",
			}
			h.Skip = nil
			drivertest.Run(t, h)
		})
	}
}
