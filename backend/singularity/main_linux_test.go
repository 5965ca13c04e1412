package singularity

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// Where test/testbed/apptainer.sh puts what the tests need.
const (
	testbed  = "/var/cache/elsewhere-testbed/"
	testUser = "elsewhere-test"
)

// TestMain runs the tests as the ordinary user of the testbed where root was asked to run them, and then, as root, those
// that are named TestRoot: instances are made for ordinary users, and root passes every permission test.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || strings.Contains(strings.Join(os.Environ(), "\n"), "ELSEWHERE_DRIVERTEST_") {
		os.Exit(m.Run())
	}
	flag.Parse()
	code := 0
	if me, err := user.Lookup(testUser); err == nil && flag.Lookup("test.list").Value.String() == "" {
		if err := asUser(me); err != nil {
			fmt.Fprintln(os.Stderr, "as "+testUser+":", err)
			code = 1
		}
		_ = flag.Set("test.skip", "^(Test([^R]|R[^o])|Benchmark|Fuzz|Example)")
	}
	os.Exit(max(code, m.Run()))
}

// asUser runs this program again as a user, from a place where he may read it.
func asUser(me *user.User) error {
	dir, err := os.MkdirTemp("", "elsewhere-singularity-test-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	uid, _ := strconv.Atoi(me.Uid)
	gid, _ := strconv.Atoi(me.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return err
	}
	program := filepath.Join(dir, "singularity.test")
	if err := copyFile("/proc/self/exe", program); err != nil {
		return err
	}
	cmd := exec.Command(program, append(os.Args[1:], "-test.skip="+ordinarySkip())...)
	cmd.Dir = dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "GO") || strings.HasPrefix(entry, "PATH=") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+me.HomeDir, "USER="+me.Username, "LOGNAME="+me.Username, "LANG=C.UTF-8", "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return cmd.Run()
}

// ordinarySkip leaves out what is root's beside what was asked to be left out.
func ordinarySkip() string {
	if asked := flag.Lookup("test.skip").Value.String(); asked != "" {
		return asked + "|^TestRoot"
	}
	return "^TestRoot"
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// needEngine skips a test where there is no engine, or no ordinary user to run it as.
func needEngine(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("apptainer"); err != nil {
		t.Skip("no apptainer: test/testbed/up apptainer")
	}
	if _, err := os.Stat(testbed + "base.sif"); err != nil {
		t.Skip("no images: test/testbed/up apptainer")
	}
	if os.Geteuid() == 0 && !strings.HasPrefix(t.Name(), "TestRoot") {
		t.Skip("no user " + testUser + ": test/testbed/up apptainer")
	}
}

// where is a HERMES_HOME of a test's own, with what it takes to open sandboxes in it.
type where struct {
	t        testing.TB
	home     string
	environ  []string
	settings map[string]string
}

// newWhere makes one. All instances in it are removed with the test.
func newWhere(t testing.TB, settings ...string) *where {
	t.Helper()
	w := &where{t: t, home: filepath.Join(t.TempDir(), "hermes"), settings: map[string]string{"singularity_image": testbed + "base.sif"}}
	for i := 0; i+1 < len(settings); i += 2 {
		w.settings[settings[i]] = settings[i+1]
	}
	w.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "HERMES_HOME=" + w.home}
	t.Cleanup(w.removeAll)
	return w
}

func (w *where) identity() driver.Identity {
	w.t.Helper()
	id, err := owner.Identity(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	host, _ := os.Hostname()
	return driver.Identity{ID: id, Profile: "default", Machine: host, UID: strconv.Itoa(os.Getuid()), Home: w.home, Owner: owner.NewID()}
}

func (w *where) config() driver.Config {
	w.t.Helper()
	flags := map[string]string{"backend": name}
	for k, v := range w.settings {
		flags[k] = v
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{Backend()}, Flags: flags, Environ: w.environ, Home: w.home})
	if err != nil {
		w.t.Fatal(err)
	}
	return cfg
}

func (w *where) request() driver.OpenRequest {
	w.t.Helper()
	return driver.OpenRequest{Config: w.config(), Task: "default", Identity: w.identity(), Environ: w.environ, Dir: "/"}
}

// instance is the name of a task's instance, and dir where its data lies.
func (w *where) instance(task string) string { return kept.Name(w.identity(), "", task) }
func (w *where) dir(task string) string {
	return filepath.Join(w.home, "sandboxes", name, "elsewhere", w.instance(task))
}

func (w *where) keeper() driver.Keeper {
	w.t.Helper()
	k, err := Backend().Keeper(w.t.Context(), w.request())
	if err != nil {
		w.t.Fatal(err)
	}
	return k
}

func (w *where) removeAll() {
	if _, err := os.Stat(w.home); err != nil {
		return
	}
	ctx := context.Background()
	k, err := Backend().Keeper(ctx, w.request())
	if err != nil {
		w.t.Error(err)
		return
	}
	list, err := k.List(ctx)
	if err != nil {
		w.t.Error(err)
	}
	for _, sb := range list {
		if _, err := k.Remove(ctx, sb.ID, true); err != nil {
			w.t.Errorf("removing %s: %v", sb.ID, err)
		}
	}
}
