//go:build linux

package vercel_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

// sdk is where the testbed puts the vendor's SDK (test/testbed/cloud.sh).
const sdk = "/var/cache/elsewhere-testbed/vercel-sdk/node_modules"

func serve(t *testing.T) *vercel.Server {
	t.Helper()
	s, err := vercel.New(vercel.Tree)
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
	cmd := exec.CommandContext(ctx, "node", "--experimental-websocket", "sdk/check.js")
	a := s.NewAccount(nil)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NODE_PATH=" + sdk, "VERCEL_SANDBOX_API_URL=" + s.URL(), "VERCEL_TELEMETRY_DISABLED=1",
		"VERCEL_TOKEN=" + a.Token, "VERCEL_TEAM_ID=" + a.Team, "VERCEL_PROJECT_ID=" + a.Project, "VERCEL_OIDC_TOKEN=" + a.OIDC,
	}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.HasSuffix(string(out), "ok delete\n") {
		t.Fatal(err)
	}
}
