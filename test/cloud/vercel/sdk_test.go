//go:build linux

package vercel_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
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

// runSDK runs one of the programs in sdk/, which has to end with this line.
func runSDK(t *testing.T, s *vercel.Server, program, last string) {
	t.Helper()
	if _, err := os.Stat(sdk); err != nil {
		missing(t, "the vendor's SDK is not there: test/testbed/up cloud installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--experimental-websocket", "sdk/"+program)
	a := s.NewAccount(nil)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NODE_PATH=" + sdk, "VERCEL_SANDBOX_API_URL=" + s.URL(), "VERCEL_TELEMETRY_DISABLED=1",
		"VERCEL_TOKEN=" + a.Token, "VERCEL_TEAM_ID=" + a.Team, "VERCEL_PROJECT_ID=" + a.Project, "VERCEL_OIDC_TOKEN=" + a.OIDC,
	}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.HasSuffix(string(out), last+"\n") {
		t.Fatal(err)
	}
}

func TestVendorSDK(t *testing.T) { runSDK(t, serve(t), "check.js", "ok delete") }

// TestVendorSDKOnFaults shows that an emulated fault is what the vendor's own client takes for one, the wait that it names included.
func TestVendorSDKOnFaults(t *testing.T) {
	s := serve(t)
	for _, test := range []struct {
		n        int
		fault    front.Fault
		want     string
		requests int
		least    time.Duration
	}{
		{1, front.Fault{Status: 429, RetryAfter: "2"}, "APIError 404", 2, 2 * time.Second},
		{1, front.Fault{Status: 500}, "APIError 404", 2, 0},
		{1, front.Fault{Cut: true}, "APIError 404", 2, 0},
		{3, front.Fault{Status: 500}, "APIError 500", 3, 0},
		{1, front.Fault{Status: 429, RetryAfter: "30"}, "APIError 429", 1, 0},
	} {
		const get = "GET /v2/sandboxes/{}"
		before, begin := s.Requests(get), time.Now()
		s.Fail(get, test.n, test.fault)
		runSDK(t, s, "faults.js", test.want)
		if n := s.Requests(get) - before; n != test.requests || time.Since(begin) < test.least {
			t.Errorf("%+v: %d requests in %v", test.fault, n, time.Since(begin))
		}
	}
}
