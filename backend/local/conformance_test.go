//go:build unix

package local_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

func TestConformance(t *testing.T) {
	h := harness()
	if os.Geteuid() == 0 {
		h.Skip[closedDirectory] = "root may enter every directory; TestConformanceOfAnOrdinaryUser runs it"
	}
	drivertest.Run(t, h)
}

// closedDirectory is a case that root would pass vacuously.
const closedDirectory = "directory/a directory that cannot be entered any more is left like one that is gone"

func harness() *drivertest.Harness {
	h := &drivertest.Harness{
		Backend: local.Backend(),
		Place:   place,
		Lacks: map[drivertest.Need]string{
			drivertest.NeedLose: "this machine cannot vanish while the test runs on it",
		},
		Skip: map[string]string{
			"X05": "local is no boundary: a command may read the processes of its own user (docs/security.md)",
		},
	}
	if os.Geteuid() != 0 {
		h.Lacks[drivertest.NeedBashOnly] = "a chroot needs root"
	}
	return h
}

// place is a home and an HERMES_HOME of its own on this machine; commands and the observer are this user's.
func place(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
	if spec.BashOnly {
		return drivertest.BashOnly(t, spec)
	}
	base := t.TempDir()
	p := &drivertest.Place{HermesHome: filepath.Join(base, "hermes"), Home: filepath.Join(base, "home")}
	for name, text := range spec.Profile {
		file := filepath.Join(p.Home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	temp := filepath.Join(base, "tmp")
	for _, d := range []string{p.Home, temp} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The caller's environment as it is here, with the place's own home; a later entry of a name beats an earlier one.
	caller := map[string]string{}
	for _, entry := range slices.Concat(os.Environ(), []string{"HOME=" + p.Home, "HERMES_HOME=" + p.HermesHome, "TMPDIR=" + temp}, spec.Environ) {
		if name, value, ok := strings.Cut(entry, "="); ok {
			caller[name] = value
		}
	}
	for name := range maps.Keys(caller) {
		if strings.HasPrefix(name, "TERMINAL_") {
			continue // what a developer has set for himself
		}
		p.Environ = append(p.Environ, name+"="+caller[name])
	}
	observer := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Home, "LANG=" + os.Getenv("LANG")}
	p.Observe = func(ctx context.Context, _ driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
		return drivertest.ObserveHere(ctx, observer, stdin, argv...)
	}
	return p
}
