package ssh

import (
	"strings"
	"testing"
)

func TestAdviceNamesTheMachineAndNoVariableIsChanged(t *testing.T) {
	d := &destination{host: "gpu1"}
	for said, want := range map[string]string{
		"ssh: Could not resolve hostname gpu1: Name or service not known": "terminal.ssh_host (TERMINAL_SSH_HOST)",
		"Host key verification failed.":                                   "`ssh gpu1`",
	} {
		if got := d.explain(said).Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", said, got)
		}
	}
}
