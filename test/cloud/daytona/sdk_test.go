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
	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
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

// runSDK runs one of the programs in sdk/, which has to end with this line.
func runSDK(t *testing.T, s *daytona.Server, program, last string) {
	t.Helper()
	if _, err := os.Stat(sdk); err != nil {
		missing(t, "the vendor's SDK is not there: test/testbed/up cloud installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "sdk/"+program)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NODE_PATH=" + sdk, "DAYTONA_API_URL=" + s.URL(), "DAYTONA_API_KEY=" + s.NewAccount(nil).Key}
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil || !strings.HasSuffix(string(out), last+"\n") {
		t.Fatal(err)
	}
}

func TestVendorSDK(t *testing.T) { runSDK(t, serve(t), "check.js", "ok delete") }

// TestVendorSDKOnFaults shows that an emulated fault is what the vendor's own client takes for one.
func TestVendorSDKOnFaults(t *testing.T) {
	s := serve(t)
	for _, test := range []struct {
		n        int
		fault    front.Fault
		want     string
		requests int
	}{
		{1, front.Fault{Status: 429, Message: "slower"}, "DaytonaRateLimitError 429 slower", 1},
		{1, front.Fault{Status: 500, Message: "broken"}, "DaytonaInternalServerError 500 broken", 1},
		{1, front.Fault{Status: 503, Message: "later"}, "DaytonaServiceUnavailableError 503 later", 1},
		{1, front.Fault{Cut: true}, "DaytonaNotFoundError 404 Sandbox with ID or name box not found", 2},
	} {
		const get = "GET /sandbox/{}"
		before := s.Requests(get)
		s.Fail(get, test.n, test.fault)
		runSDK(t, s, "faults.js", test.want)
		if n := s.Requests(get) - before; n != test.requests {
			t.Errorf("%+v: %d requests", test.fault, n)
		}
	}
}
