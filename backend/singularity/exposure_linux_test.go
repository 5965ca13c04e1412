package singularity

import (
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/policy"
)

func TestWhatOfTheMachineIsInAnInstanceIsSaid(t *testing.T) {
	needEngine(t)
	for network, host := range map[string]bool{"true": true, "false": false} {
		w := newWhere(t, "singularity_network", network)
		sb := w.open("default")
		e := sb.Info().Exposure
		if e.Machine || e.Here || e.HostPID || e.HostNetwork != host {
			t.Errorf("network %s: %+v", network, e)
		}
		s := policy.Sandbox{Backend: name, HostNetwork: e.HostNetwork, Devices: e.Devices}
		for _, m := range e.Mounts {
			s.Mounts = append(s.Mounts, policy.Mount(m))
		}
		if guarded, why := policy.Guarded(s); guarded != host || guarded && !strings.Contains(why, "network") {
			t.Errorf("network %s: guarded %v, since %s: %+v", network, guarded, why, e.Mounts)
		}
		if !slices.ContainsFunc(e.Mounts, func(m driver.Mount) bool { return m.Target == sb.info.Home && m.Ours }) {
			t.Errorf("its home is not among %+v", e.Mounts)
		}
	}
}
