//go:build linux

package modal_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/modal"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/modal"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness())
}

// childVar is set where the suite plays another host process, which opens what the first one made.
const childVar = "ELSEWHERE_DRIVERTEST_CHILD"

func harness() *drivertest.Harness {
	return &drivertest.Harness{
		Backend:          modal.Backend(),
		Place:            place,
		KeepsChildren:    true,
		OrphansEndOnOpen: true,
		Lacks: map[drivertest.Need]string{
			drivertest.NeedCallerEnv: "a sandbox has an environment of its own",
			drivertest.NeedBashOnly:  "the directories for state are made by mkdir",
		},
		Skip: map[string]string{
			"directory/a directory that cannot be entered any more is left like one that is gone": "commands run as root in a Modal sandbox, who may enter every directory",
			"secrets/scrub_profile removes such names of the login files too":                     "scrub_profile is a setting of local: login files are the image's here",
		},
	}
}

// shared is the emulator of all tests of this binary that need none of their own.
var shared struct {
	once sync.Once
	e    *emulator.Emulator
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.e != nil {
		if err := shared.e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func sharedEmulator(t testing.TB) *emulator.Emulator {
	t.Helper()
	shared.once.Do(func() { shared.e, shared.err = emulator.New(emulator.Options{}) })
	if shared.err != nil {
		need(t, shared.err)
	}
	return shared.e
}

// need skips a test whose emulator cannot run here; in CI that is a failure.
func need(t testing.TB, err error) {
	if os.Getenv("REQUIRE_ALL") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// account is a HERMES_HOME of its own with what it takes to reach an emulator.
type account struct {
	e        *emulator.Emulator
	home     string
	environ  []string
	settings map[string]string
}

func newAccount(t testing.TB, e *emulator.Emulator) *account {
	base := t.TempDir()
	a := &account{e: e, home: filepath.Join(base, "hermes"), settings: map[string]string{
		"modal_server_url": e.URL(), "modal_token_id": emulator.DefaultToken.ID, "modal_token_secret": emulator.DefaultToken.Secret,
	}}
	a.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + a.home, "TMPDIR=" + base}
	if err := os.MkdirAll(a.home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, sb := range a.sandboxes() {
			if sb.Running {
				if err := e.Lose(sb.ID); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return a
}

// sandboxes are those of this home, oldest first.
func (a *account) sandboxes() []emulator.Sandbox {
	id, _ := owner.Identity(a.home)
	var own []emulator.Sandbox
	for _, sb := range a.e.Sandboxes() {
		if sb.Tags["elsewhere-identity"] == id {
			own = append(own, sb)
		}
	}
	return own
}

// running is the newest that runs, or "".
func (a *account) running() string {
	id := ""
	for _, sb := range a.sandboxes() {
		if sb.Running {
			id = sb.ID
		}
	}
	return id
}

func (a *account) config(settings map[string]string) (*config.Config, error) {
	flags := map[string]string{"backend": "modal"}
	for _, set := range []map[string]string{a.settings, settings} {
		for key, value := range set {
			flags[key] = value
		}
	}
	return config.Load(config.Options{Backends: []driver.Backend{modal.Backend()}, Flags: flags, Environ: a.environ, Home: a.home})
}

func (a *account) request(settings map[string]string, task string) (driver.OpenRequest, error) {
	cfg, err := a.config(settings)
	if err != nil {
		return driver.OpenRequest{}, err
	}
	id, err := owner.Identity(a.home)
	if err != nil {
		return driver.OpenRequest{}, err
	}
	machine, _ := os.Hostname()
	return driver.OpenRequest{
		Config: cfg, Task: task, Environ: a.environ,
		Identity: driver.Identity{ID: id, Profile: "default", Machine: machine, UID: fmt.Sprint(os.Getuid()), Home: a.home, Owner: owner.NewID()},
	}, nil
}

// observe runs a program in a sandbox around the API; where the one that is meant does not run, in the one of the task "default", which it
// makes.
func (a *account) observe(ctx context.Context, id string, stdin []byte, argv ...string) (drivertest.Observed, error) {
	runs := false
	for _, sb := range a.e.Sandboxes() {
		runs = runs || sb.ID == id && sb.Running
	}
	if !runs {
		if id = a.running(); id == "" {
			req, err := a.request(nil, "default")
			if err != nil {
				return drivertest.Observed{}, err
			}
			sb, err := modal.Backend().Open(ctx, req)
			if err != nil {
				return drivertest.Observed{}, err
			}
			id = sb.Info().SandboxID
			if err := sb.Close(ctx); err != nil {
				return drivertest.Observed{}, err
			}
		}
	}
	o, err := a.e.Observe(ctx, id, stdin, argv...)
	return drivertest.Observed(o), err
}

func place(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
	return placeAt(t, sharedEmulator(t), spec)
}

func placeAt(t testing.TB, e *emulator.Emulator, spec drivertest.PlaceSpec) *drivertest.Place {
	a := newAccount(t, e)
	a.environ = append(a.environ, spec.Environ...)
	if len(spec.Profile) > 0 {
		files := map[string]string{}
		for name, text := range spec.Profile {
			files[path.Join("/root", name)] = text
		}
		image, err := e.MakeImage(files)
		if err != nil {
			t.Fatal(err)
		}
		a.settings["modal_image"] = image
	}
	return &drivertest.Place{
		HermesHome: a.home, Environ: a.environ, Settings: a.settings, Home: "/root",
		Observe: func(ctx context.Context, where driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
			return a.observe(ctx, where.SandboxID, stdin, argv...)
		},
		Lose:  func(_ context.Context, where driver.Info) error { return e.Lose(where.SandboxID) },
		Crash: func(_ context.Context, where driver.Info) error { return e.Lose(where.SandboxID) },
		Idle:  func(_ context.Context, where driver.Info) error { return e.EndIdle(where.SandboxID) },
		Wedge: func(_ context.Context, where driver.Info) (func() bool, error) { return e.Wedge(where.SandboxID) },
	}
}
