//go:build unix

package config_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
)

// asOrdinaryUser runs the calling test as nobody where it runs as root, whom no file mode stops. It returns true in the
// process in which the test is to go on. dir is then a directory of that user's own.
func asOrdinaryUser(t *testing.T) (dir string, goOn bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		if dir := os.Getenv("ELSEWHERE_TEST_DIR"); dir != "" {
			return dir, true
		}
		return t.TempDir(), true
	}
	const nobody = 65534
	// The test binary and the directory have to be reachable for nobody, which a go build cache need not be.
	dir, err := os.MkdirTemp("", "elsewhere-config")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil && runtime.GOOS != "linux" {
		t.Skip("root cannot become another user here")
	}
	if err := os.WriteFile(binary, data, 0o755); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(work, 0o700), os.Chown(work, nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(binary, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "ELSEWHERE_TEST_DIR="+work, "TMPDIR="+work, "GOCOVERDIR="+work)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	t.Logf("as nobody:\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return "", false
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	user, goOn := asOrdinaryUser(t)
	if !goOn {
		return
	}
	for _, name := range []string{"config.yaml", ".env"} {
		home := filepath.Join(user, name+"-home")
		file := filepath.Join(home, name)
		write(t, file, "terminal: {backend: docker}\n")
		if err := os.Chmod(file, 0); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(config.Options{Backends: backends(false), Environ: []string{"HERMES_HOME=" + home}, Dir: user})
		wantError(t, err, file, "permission denied", "readable")
	}
	closed := filepath.Join(user, "closed")
	write(t, filepath.Join(closed, "home", "config.yaml"), "")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, 0o700)
	_, err := config.Load(config.Options{Backends: backends(false), Environ: []string{"HERMES_HOME=" + closed + "/home"}, Dir: user})
	wantError(t, err, "HERMES_HOME", "permission denied")
}

func TestSetNeedsAWritableHome(t *testing.T) {
	user, goOn := asOrdinaryUser(t)
	if !goOn {
		return
	}
	home := filepath.Join(user, "home")
	write(t, filepath.Join(home, "config.yaml"), "a: b\n")
	if err := os.Chmod(home, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(home, 0o700)
	_, err := config.Set(config.Options{Backends: backends(false), Environ: []string{"HERMES_HOME=" + home}}, "cwd", "/")
	wantError(t, err, "config.yaml", "permission denied")
}
