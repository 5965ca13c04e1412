//go:build linux

package cloud_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// TestAnEmulatorThatIsStartedByHand does what README.md tells people: start the emulator, export what it prints, run a command.
func TestAnEmulatorThatIsStartedByHand(t *testing.T) {
	for _, name := range []string{"modal", "daytona", "vercel"} {
		t.Run("backend="+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			base := t.TempDir()
			program := filepath.Join(base, "emulator")
			if out, err := exec.CommandContext(ctx, "go", "build", "-o", program, "./"+name+"/cmd").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			printed := start(t, program, "-latency", "1ms")
			exports, ok := strings.CutPrefix(strings.TrimSpace(printed), "export ")
			if !ok {
				t.Fatalf("it printed %q", printed)
			}
			for _, one := range strings.Fields(exports) {
				if variable, _, _ := strings.Cut(one, "="); !reads(name, variable) { // else the service itself would be asked
					t.Fatalf("%s is no setting of %s", variable, name)
				}
			}
			home := filepath.Join(base, "hermes")
			environ := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + home}, strings.Fields(exports)...)
			cfg, err := config.Load(config.Options{Backends: all.Backends(), Flags: map[string]string{"backend": name}, Environ: environ, Home: home})
			if err != nil {
				t.Fatal(err)
			}
			s, err := elsewhere.Open(ctx, cfg, &elsewhere.SandboxOptions{Environ: environ, ThrowAway: true})
			if err != nil {
				t.Fatalf("with %s: %v", exports, err)
			}
			defer s.Close(ctx)
			if res, err := s.Run(ctx, "echo ok", nil); err != nil || string(res.Output) != "ok\n" {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// reads tells whether a backend has a setting with this variable.
func reads(backend, variable string) bool {
	for _, b := range all.Backends() {
		if b.Name == backend {
			return slices.ContainsFunc(b.Settings, func(row driver.Setting) bool { return row.Env == variable })
		}
	}
	return false
}

// start starts an emulator, which ends with the test, and gives the line that it prints first.
func start(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		if os.Getenv("REQUIRE_ALL") == "" && strings.Contains(said.String(), "machines") {
			t.Skip(said.String())
		}
		t.Fatalf("%v: %s", err, said.String())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		go func() { _, _ = io.Copy(io.Discard, out) }()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, said.String())
		}
	})
	return line
}
