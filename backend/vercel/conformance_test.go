//go:build linux

package vercel_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/backend/vercel"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

// closedDirectory is a case that root would pass vacuously.
const closedDirectory = "directory/a directory that cannot be entered any more is left like one that is gone"

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(t))
}

// TestConformanceAtADistance runs again, with 100 ms for each round trip, what waits for the far side in every way.
func TestConformanceAtADistance(t *testing.T) {
	var srv *emulator.Server
	if os.Getenv(childVar) == "" {
		srv = serve(t)
		srv.SetLatency(100 * time.Millisecond)
	}
	h := harnessOn(srv)
	h.Only = drivertest.AtADistance()
	h.Skip = nil
	drivertest.Run(t, h)
}

// childVar is set where the suite plays another host process, which opens what the first one made.
const childVar = "ELSEWHERE_DRIVERTEST_CHILD"

func harness(t *testing.T) *drivertest.Harness {
	var srv *emulator.Server
	if os.Getenv(childVar) == "" {
		srv = serve(t)
	}
	return harnessOn(srv)
}

func harnessOn(srv *emulator.Server) *drivertest.Harness {
	return &drivertest.Harness{
		Backend:          vercel.Backend(),
		Place:            func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place { return place(t, srv, spec) },
		KeepsChildren:    true,
		OrphansEndOnOpen: true,
		Lacks: map[drivertest.Need]string{
			drivertest.NeedCallerEnv: "a sandbox has an environment of its own",
			drivertest.NeedBashOnly:  "terminals are made raw by stty, and dd moves what goes through them",
		},
		Skip: map[string]string{
			closedDirectory: "root may enter every directory, and the emulated service runs everything as root",
			"secrets/scrub_profile removes such names of the login files too": "scrub_profile is a setting of local: a sandbox's login files are its image's",
		},
	}
}

func serve(t testing.TB) *emulator.Server {
	t.Helper()
	srv, err := emulator.New(emulator.Tree)
	if err != nil {
		if os.Getenv("REQUIRE_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// place is an HERMES_HOME of its own with an account of its own.
func place(t testing.TB, srv *emulator.Server, spec drivertest.PlaceSpec) *drivertest.Place {
	account := srv.NewAccount(&emulator.Account{Files: spec.Profile})
	base := t.TempDir()
	p := &drivertest.Place{
		HermesHome: filepath.Join(base, "hermes"),
		Settings:   map[string]string{"vercel_api_url": srv.URL(), "vercel_token": account.Token, "vercel_team_id": account.Team, "vercel_project_id": account.Project},
		Home:       "/root",
		Environ:    []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + filepath.Join(base, "hermes"), "TMPDIR=" + base},
	}
	p.Environ = append(p.Environ, spec.Environ...)
	if err := os.MkdirAll(p.HermesHome, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, id := range srv.Sandboxes(account) {
			srv.Destroy(id)
		}
	})
	p.Observe = func(ctx context.Context, where driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
		if srv.State(where.SandboxID) == "" {
			// Nothing is open yet, or the case has lost it.
			if len(srv.Sandboxes(account)) == 0 {
				if err := made(ctx, p); err != nil {
					return drivertest.Observed{}, err
				}
			}
			ids := srv.Sandboxes(account)
			where.SandboxID = ids[len(ids)-1]
		}
		for srv.State(where.SandboxID) == "stopping" && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
		// What is done in one that has ended has to be there in its next session.
		srv.Resume(where.SandboxID)
		return observe(ctx, srv.Machine(where.SandboxID), stdin, argv...)
	}
	p.Lose = func(_ context.Context, where driver.Info) error {
		srv.Destroy(where.SandboxID)
		return nil
	}
	p.Idle = func(_ context.Context, where driver.Info) error {
		srv.Lapse(where.SandboxID)
		return nil
	}
	p.Restart = func(_ context.Context, where driver.Info) error {
		srv.Lapse(where.SandboxID)
		srv.Resume(where.SandboxID)
		return nil
	}
	p.Crash = func(_ context.Context, where driver.Info) error {
		srv.Abort(where.SandboxID)
		return nil
	}
	p.Wedge = func(_ context.Context, where driver.Info) (func() bool, error) {
		return srv.Wedge(where.SandboxID), nil
	}
	return p
}

// made makes the sandbox of a place in which nothing is open.
func made(ctx context.Context, p *drivertest.Place) error {
	sb, err := vercel.Backend().Open(ctx, request(p.HermesHome, p.Environ, "default", p.Settings))
	if err != nil {
		return err
	}
	return sb.Close(ctx)
}

func request(home string, environ []string, task string, settings map[string]string) driver.OpenRequest {
	flags := map[string]string{"backend": "vercel"}
	for key, value := range settings {
		flags[key] = value
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{vercel.Backend()}, Flags: flags, Environ: environ, Home: home})
	if err != nil {
		panic(err)
	}
	id, _ := owner.Identity(home)
	machine, _ := os.Hostname()
	return driver.OpenRequest{
		Config: cfg, Task: task, Environ: environ,
		Identity: driver.Identity{ID: id, Profile: "default", Machine: machine, UID: fmt.Sprint(os.Getuid()), Home: home, Owner: owner.NewID()},
	}
}

// observe runs a program in a sandbox beside everything that the service started there.
func observe(ctx context.Context, m *machine.Machine, stdin []byte, argv ...string) (drivertest.Observed, error) {
	if err := m.Start(); err != nil { // one that was stopped stands still
		return drivertest.Observed{}, err
	}
	o, err := m.Observe(ctx, stdin, argv...)
	return drivertest.Observed(o), err
}
