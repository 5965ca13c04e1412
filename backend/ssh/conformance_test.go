//go:build linux

package ssh_test

import (
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/ssh"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

func TestConformance(t *testing.T) {
	port(t, "main")
	drivertest.Run(t, harness("main", "bash"))
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
		KeepsChildren:    true,
		OrphansEndOnOpen: true,
	}
}
