package local_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

// TestConformanceOfAnOrdinaryUser runs again, as a user without rights, what root passes whatever the code does.
func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^"+t.Name()+"$")
		cmd.Dir = "/"
		cmd.Env = append(os.Environ(), "TMPDIR=/tmp", "HOME=/")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "1 cases started") {
			t.Errorf("as an ordinary user: %v\n%s", err, out)
		}
		return
	}
	h := harness()
	h.Only = []string{closedDirectory}
	drivertest.Run(t, h)
}
