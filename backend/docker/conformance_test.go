package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/backend/docker"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// The images of the testbed (test/testbed/docker.sh).
const (
	imageDebian   = "elsewhere-test/debian"
	imageBashOnly = "elsewhere-test/bash-only"
	imageUser     = "elsewhere-test/user" // runs as someone, at home in /home/someone
)

// closedDirectory is a case that root would pass vacuously.
const closedDirectory = "directory/a directory that cannot be entered any more is left like one that is gone"

func TestConformance(t *testing.T) {
	h := harness()
	h.Skip[closedDirectory] = "root may enter every directory; TestConformanceOfAnOrdinaryUser runs it"
	eng := testEngine(t)
	needImage(t, eng, imageDebian)
	if _, err := eng.ImageInspect(t.Context(), imageBashOnly); err != nil {
		h.Lacks[drivertest.NeedBashOnly] = "there is no image " + imageBashOnly + "; test/testbed/docker.sh makes it"
	}
	drivertest.Run(t, h)
}

// TestConformanceOfAnOrdinaryUser runs again, in an image that does not run as root, what rights matter to.
func TestConformanceOfAnOrdinaryUser(t *testing.T) {
	needImage(t, testEngine(t), imageUser)
	h := harness()
	h.Place = func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
		return placeOf(t, spec, imageUser, "/home/someone", "1000")
	}
	h.Only = []string{closedDirectory, "kill/*", "state files/*"}
	drivertest.Run(t, h)
}

// podmanSocket is that of the testbed's Podman (test/testbed/podman.sh).
const podmanSocket = "/run/elsewhere-testbed/podman.sock"

// TestConformanceOnPodman runs what an engine can do differently: state, an end, a sandbox that is lost. The whole suite runs with
// DOCKER_HOST=unix:///run/elsewhere-testbed/podman.sock; it takes Podman many times as long as Docker.
func TestConformanceOnPodman(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+podmanSocket)
	eng := testEngine(t)
	needImage(t, eng, imageDebian)
	h := harness()
	h.Parallel = 1
	h.Only = []string{
		"state/an exported variable reaches the next call",
		"kill/C20 a timeout returns what was printed, 124 and its cause, within the promise",
		"kill/other calls of the session, its background children and other sessions are untouched",
		"lost/a sandbox that vanished between calls is made again, and the next result says that earlier state is gone",
		"lost/a call whose sandbox vanishes under it fails as lost and is not run again",
		"terminal/an interactive bash starts with the session's state and leaves its own",
		"stdin/a command that does not read a big stdin ends all the same",
	}
	drivertest.Run(t, h)
}

func harness() *drivertest.Harness {
	none := 0 // a start takes an engine 100 ms of processor time
	return &drivertest.Harness{
		SharedAhead:   &none,
		Backend:       docker.Backend(),
		Place:         place,
		KeepsChildren: true,
		Parallel:      2,
		Lacks:         map[drivertest.Need]string{drivertest.NeedCallerEnv: "a container has an environment of its own"},
		Skip: map[string]string{
			"secrets/scrub_profile removes such names of the login files too": "scrub_profile is a setting of local: a container's login files are its image's",
		},
	}
}

// testEngine is a client of the engine under test, or skips the test.
func testEngine(t testing.TB) *client.Client {
	t.Helper()
	c, err := client.New(client.FromEnv)
	if err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = c.Ping(ctx, client.PingOptions{})
	}
	if err != nil {
		t.Skipf("no docker engine answers (%v): test/testbed/docker.sh starts one", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func needImage(t testing.TB, eng *client.Client, image string) {
	t.Helper()
	if _, err := eng.ImageInspect(t.Context(), image); err != nil {
		t.Skipf("there is no image %s (%v): test/testbed/docker.sh makes it", image, err)
	}
}

// place is an HERMES_HOME of its own; its containers are made from the testbed's image and removed with the test.
func place(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
	if spec.BashOnly {
		return placeOf(t, spec, imageBashOnly, "/root", "0")
	}
	return placeOf(t, spec, imageDebian, "/root", "0")
}

// placeDir is a directory that goes with the test. Podman's interface for Docker mounts no path with a comma, which the names of some
// cases have.
func placeDir(t testing.TB) string {
	if !strings.Contains(os.Getenv("DOCKER_HOST"), "podman") {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp("", "elsewhere-docker-place-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// placeOf is place with another image, and with the user as whom the observer looks: root without capabilities sees less.
func placeOf(t testing.TB, spec drivertest.PlaceSpec, image, userHome, observer string) *drivertest.Place {
	eng := testEngine(t)
	base := placeDir(t)
	p := &drivertest.Place{
		HermesHome: filepath.Join(base, "hermes"),
		Settings:   map[string]string{"docker_image": image},
		Home:       userHome,
		Environ:    []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + filepath.Join(base, "hermes"), "TMPDIR=" + base},
	}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"} {
		if value := os.Getenv(name); value != "" {
			p.Environ = append(p.Environ, name+"="+value)
		}
	}
	p.Environ = append(p.Environ, spec.Environ...)
	home := filepath.Join(p.HermesHome, "sandboxes", "docker", "default", "home")
	for name, text := range spec.Profile {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(p.HermesHome, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := owner.Identity(p.HermesHome)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeContainers(t, eng, id) })
	p.Observe = func(ctx context.Context, where driver.Info, stdin []byte, argv ...string) (drivertest.Observed, error) {
		if where.SandboxID != "" {
			seen, err := observe(ctx, eng, where.SandboxID, observer, stdin, argv...)
			if !cerrdefs.IsNotFound(err) {
				return seen, err
			}
		}
		// Nothing is open yet, or the case has lost it.
		made, err := made(ctx, p)
		if err != nil {
			return drivertest.Observed{}, err
		}
		return observe(ctx, eng, made, observer, stdin, argv...)
	}
	p.Lose = func(ctx context.Context, where driver.Info) error {
		_, err := eng.ContainerRemove(ctx, where.SandboxID, client.ContainerRemoveOptions{Force: true})
		return err
	}
	p.Restart = func(ctx context.Context, where driver.Info) error {
		_, err := eng.ContainerRestart(ctx, where.SandboxID, client.ContainerRestartOptions{})
		return err
	}
	p.Crash = func(ctx context.Context, where driver.Info) error { return killContainer(ctx, eng, where.SandboxID) }
	return p
}

// made makes the container of a place in which nothing is open, and leaves it running.
func made(ctx context.Context, p *drivertest.Place) (id string, err error) {
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{docker.Backend()}, Flags: map[string]string{"backend": "docker", "docker_image": p.Settings["docker_image"]}, Environ: p.Environ, Home: p.HermesHome})
	if err != nil {
		return "", err
	}
	sb, err := docker.Backend().Open(ctx, request(cfg, p.HermesHome, p.Environ, "default"))
	if err != nil {
		return "", err
	}
	return sb.Info().SandboxID, sb.Close(ctx)
}

func request(cfg driver.Config, home string, environ []string, task string) driver.OpenRequest {
	id, _ := owner.Identity(home)
	machine, _ := os.Hostname()
	return driver.OpenRequest{
		Config: cfg, Task: task, Environ: environ,
		Identity: driver.Identity{ID: id, Profile: "default", Machine: machine, UID: fmt.Sprint(os.Getuid()), Home: home, Owner: owner.NewID()},
	}
}

// killContainer ends a container's first process around the engine, and waits until the engine knows.
func killContainer(ctx context.Context, eng *client.Client, id string) error {
	c, err := eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 && strings.HasPrefix(eng.DaemonHost(), "unix://") {
		var first *os.Process
		if first, err = os.FindProcess(c.Container.State.Pid); err == nil {
			err = first.Kill()
		}
	} else {
		_, err = eng.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	}
	for err == nil && c.Container.State.Running {
		time.Sleep(20 * time.Millisecond) // between two looks
		c, err = eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	}
	return err
}

// removeContainers removes all containers of an identity.
func removeContainers(t testing.TB, eng *client.Client, identity string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	list, err := eng.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "elsewhere.identity="+identity)})
	if err != nil {
		t.Error(err)
	}
	for _, c := range list.Items {
		if _, err := eng.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) {
			t.Error(err)
		}
	}
}

// observe runs a program in a container as a user. Where the engine is on this machine that takes no engine: entering the
// container's namespaces costs a fraction of an exec, and the suite looks thousands of times.
func observe(ctx context.Context, eng *client.Client, id, user string, stdin []byte, argv ...string) (drivertest.Observed, error) {
	nsenter, err := exec.LookPath("nsenter")
	if err != nil || os.Geteuid() != 0 || !strings.HasPrefix(eng.DaemonHost(), "unix://") {
		return observeByExec(ctx, eng, id, user, stdin, argv...)
	}
	c, err := eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if err != nil {
		return drivertest.Observed{}, err
	}
	if !c.Container.State.Running || c.Container.State.Pid == 0 {
		return drivertest.Observed{}, fmt.Errorf("the container %s does not run", id)
	}
	limits, err := lowerLimits(c.Container.State.Pid)
	if err != nil {
		return drivertest.Observed{}, err
	}
	enter := append(limits, nsenter, "--target", fmt.Sprint(c.Container.State.Pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--setuid", user, "--setgid", user, "--")
	return drivertest.ObserveHere(ctx, []string{"HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, stdin, append(enter, argv...)...)
}

// lowerLimits is the beginning of a command line whose program has the limits of a container's first process, where those are lower
// than the test's own.
func lowerLimits(pid int) ([]string, error) {
	var argv []string
	for name, flag := range map[string]string{"Max processes": "nproc", "Max open files": "nofile"} {
		theirs, err := limitOf(strconv.Itoa(pid), name)
		if err != nil {
			return nil, err
		}
		own, err := limitOf("self", name)
		if err != nil {
			return nil, err
		}
		if theirs.hard < own.hard {
			argv = append(argv, fmt.Sprintf("--%s=%d:%d", flag, theirs.soft, theirs.hard))
		}
	}
	if len(argv) == 0 {
		return nil, nil
	}
	return append([]string{"prlimit"}, argv...), nil
}

// limit is one of a process; unlimited is the highest number.
type limit struct{ soft, hard uint64 }

func limitOf(pid, name string) (l limit, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/limits")
	if err != nil {
		return l, err
	}
	_, rest, _ := strings.Cut(string(text), "\n"+name+" ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return l, fmt.Errorf("/proc/%s/limits says nothing of %q", pid, name)
	}
	for i, to := range []*uint64{&l.soft, &l.hard} {
		if *to = math.MaxUint64; fields[i] != "unlimited" {
			if *to, err = strconv.ParseUint(fields[i], 10, 64); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// observeByExec runs a program in a container as a user, with the engine's API alone.
func observeByExec(ctx context.Context, eng *client.Client, id, user string, stdin []byte, argv ...string) (drivertest.Observed, error) {
	made, err := eng.ExecCreate(ctx, id, client.ExecCreateOptions{User: user, AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: argv, WorkingDir: "/", Env: []string{"HOME=/root"}})
	if err != nil {
		return drivertest.Observed{}, err
	}
	attached, err := eng.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return drivertest.Observed{}, err
	}
	defer attached.Close()
	stop := context.AfterFunc(ctx, attached.Close)
	defer stop()
	go func() {
		_, _ = io.Copy(attached.Conn, bytes.NewReader(stdin))
		_ = attached.CloseWrite()
	}()
	var out, errs bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &errs, attached.Reader); err != nil {
		return drivertest.Observed{}, errors.Join(err, ctx.Err())
	}
	for {
		answer, err := eng.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
		if err != nil {
			return drivertest.Observed{}, err
		}
		if !answer.Running {
			if strings.HasPrefix(out.String(), "OCI runtime exec failed") {
				return drivertest.Observed{}, errors.New(out.String())
			}
			return drivertest.Observed{Stdout: out.Bytes(), Stderr: errs.Bytes(), Code: answer.ExitCode}, nil
		}
		time.Sleep(time.Millisecond) // between two looks
	}
}
