//go:build linux

package daytona_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
)

// sdk is where the testbed puts the vendor's SDK (test/testbed/cloud.sh).
const sdk = "/var/cache/elsewhere-testbed/daytona-sdk/node_modules"

func serve(t *testing.T) *daytona.Server {
	t.Helper()
	s, err := daytona.New(daytona.Tree)
	if err != nil {
		missing(t, err.Error())
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_ALL") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func TestVendorSDK(t *testing.T) {
	s := serve(t)
	if _, err := os.Stat(sdk); err != nil {
		missing(t, "the vendor's SDK is not there: test/testbed/up cloud installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "sdk/check.js")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NODE_PATH=" + sdk, "DAYTONA_API_URL=" + s.URL(), "DAYTONA_API_KEY=" + s.NewAccount(nil).Key}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.HasSuffix(string(out), "ok delete\n") {
		t.Fatal(err)
	}
}
