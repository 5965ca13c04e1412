package docker_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// privateEngine is a dockerd that a test may stop, kill and fill up: nobody else uses it. It lives in namespaces of its own for
// mounts, network and processes, with its data in memory, so that nothing of it outlives the test, nor the test's process.
type privateEngine struct {
	*client.Client
	t      testing.TB
	dir    string // on this machine: the socket, the logs, and within the namespace the data
	holder *exec.Cmd
	daemon *exec.Cmd
	ended  chan struct{} // closed when daemon has ended
}

const (
	// engineWait bounds the start and the end of a dockerd, which takes a second or less on a machine that is idle.
	engineWait = 90 * time.Second
	// insideRun is where a private engine has what it needs while it runs: in a /run of its own.
	insideRun = "/run/elsewhere-engine"
)

var privateEngines atomic.Int64

// newPrivateEngine starts a dockerd whose disk has this size ("64m"), with the testbed's image of bash alone.
func newPrivateEngine(t testing.TB, disk string) *privateEngine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start an engine of its own")
	}
	for _, program := range []string{"dockerd", "unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s on PATH: test/testbed/docker.sh installs it", program)
		}
	}
	shared := testEngine(t)
	needImage(t, shared, imageBashOnly)
	dir, err := os.MkdirTemp("", "ew") // a socket's name is short
	if err != nil {
		t.Fatal(err)
	}
	e := &privateEngine{t: t, dir: dir}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e.hold(disk)
	if e.Client, err = client.New(client.WithHost(e.host())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Client.Close() })
	e.start()
	e.load(shared, imageBashOnly)
	return e
}

func (e *privateEngine) host() string { return "unix://" + filepath.Join(e.dir, "docker.sock") }

// cgroup is the parent of its containers' control groups, which no namespace hides.
func (e *privateEngine) cgroup() string { return "elsewhere-test-" + filepath.Base(e.dir) }

// hold makes the namespaces. Their first process is a bash, which reaps, and leaves when its input ends: then the kernel ends
// everything that was started in them.
func (e *privateEngine) hold(disk string) {
	e.t.Helper()
	const script = `mount -t tmpfs tmpfs /run && mkdir "$1" && mount -t tmpfs -o "size=$2" tmpfs "$1" && echo ready; read -r _`
	e.holder = exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
		"bash", "-c", script, "bash", filepath.Join(e.dir, "data"), disk)
	in, err := e.holder.StdinPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	out, err := e.holder.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	var said bytes.Buffer
	e.holder.Stderr = &said
	if err := e.holder.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		_ = in.Close()
		kill := time.AfterFunc(engineWait, func() { _ = e.holder.Process.Kill() })
		_ = e.holder.Wait()
		kill.Stop()
		e.removeCgroups()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		e.t.Skipf("no namespaces for an engine of its own (%v): %s", err, said.String())
	}
}

// inside is a command in the engine's namespaces.
func (e *privateEngine) inside(argv ...string) *exec.Cmd {
	ns := fmt.Sprintf("/proc/%d/ns/", e.holder.Process.Pid)
	return exec.Command("nsenter", append([]string{"--mount=" + ns + "mnt", "--net=" + ns + "net", "--pid=" + ns + "pid_for_children"}, argv...)...)
}

// start starts the dockerd and waits until it answers.
func (e *privateEngine) start() {
	e.t.Helper()
	log, err := os.Create(filepath.Join(e.dir, fmt.Sprintf("dockerd-%d.log", privateEngines.Add(1))))
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	e.daemon = e.inside("dockerd", "--data-root", filepath.Join(e.dir, "data"), "--exec-root", insideRun, "--pidfile", insideRun+".pid",
		"-H", e.host(), "--storage-driver", "overlay2", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--userland-proxy=false", "--cgroup-parent", "/"+e.cgroup(), "--exec-opt", "native.cgroupdriver=cgroupfs", "--log-level", "warn")
	e.daemon.Stdout, e.daemon.Stderr = log, log
	if err := e.daemon.Start(); err != nil {
		e.t.Fatal(err)
	}
	daemon, ended := e.daemon, make(chan struct{})
	e.ended = ended
	go func() { _ = daemon.Wait(); close(ended) }()
	for deadline := time.Now().Add(engineWait); ; {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := e.Ping(ctx, client.PingOptions{})
		cancel()
		if err == nil {
			return
		}
		gone := false
		select {
		case <-ended:
			gone = true
		case <-time.After(20 * time.Millisecond): // between two tries
		}
		if gone || time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			e.t.Fatalf("a dockerd of the test's own does not answer (%v): %s", err, text)
		}
	}
}

// stop ends the dockerd with a signal and waits until it is gone. After TERM it has stopped its containers itself.
func (e *privateEngine) stop(signal string) {
	e.t.Helper()
	if out, err := e.inside("bash", "-c", `kill -s "$0" "$(<`+insideRun+`.pid)"`, signal).CombinedOutput(); err != nil {
		e.t.Fatalf("the dockerd gets no %s: %v %s", signal, err, out)
	}
	select {
	case <-e.ended:
	case <-time.After(engineWait):
		e.t.Fatalf("the dockerd has not ended after %s", signal)
	}
}

// load copies an image from another engine.
func (e *privateEngine) load(from *client.Client, image string) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	archive, err := from.ImageSave(ctx, []string{image})
	if err != nil {
		e.t.Fatal(err)
	}
	defer archive.Close()
	loaded, err := e.ImageLoad(ctx, archive)
	if err != nil {
		e.t.Fatal(err)
	}
	defer loaded.Close()
	if _, err := io.Copy(io.Discard, loaded); err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.ImageInspect(ctx, image); err != nil {
		e.t.Fatal(err)
	}
}

// removeCgroups removes what containers leave behind whose engine was killed.
func (e *privateEngine) removeCgroups() {
	var left []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = nil
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			found, _ := filepath.Glob(pattern + e.cgroup())
			for _, root := range found {
				_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
					if err == nil && d.IsDir() {
						left = append(left, path)
					}
					return nil
				})
			}
		}
		slices.Reverse(left)
		left = slices.DeleteFunc(left, func(dir string) bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, fs.ErrNotExist)
		})
		if len(left) == 0 {
			return
		}
	}
	e.t.Errorf("control groups are left: %s", strings.Join(left, " "))
}

// registry starts a registry where this engine alone reaches it, and gives its address. What was pushed outlives stopRegistry.
func (e *privateEngine) registry() string {
	e.t.Helper()
	const address = "127.0.0.1:5000"
	if _, err := exec.LookPath("docker-registry"); err != nil {
		e.t.Skipf("there is no docker-registry on PATH (%v): test/testbed/docker.sh installs it", err)
	}
	settings := filepath.Join(e.dir, "registry.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: %s}\n", filepath.Join(e.dir, "registry"), address)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	if out, err := e.inside("bash", "-c", "ip link set lo up").CombinedOutput(); err != nil {
		e.t.Skipf("no network in a namespace (%v): %s", err, out)
	}
	// The shell in the namespace tells its pid there.
	cmd := e.inside("bash", "-c", `echo "$$" >`+insideRun+`-registry.pid; exec docker-registry serve "$0"`, settings)
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	for deadline := time.Now().Add(engineWait); ; time.Sleep(50 * time.Millisecond) { // between two tries
		if e.inside("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5000").Run() == nil {
			return address
		}
		if time.Now().After(deadline) {
			e.t.Fatal("a registry of the test's own does not answer")
		}
	}
}

func (e *privateEngine) stopRegistry() {
	e.t.Helper()
	if out, err := e.inside("bash", "-c", `kill -KILL "$(<`+insideRun+`-registry.pid)"`).CombinedOutput(); err != nil {
		e.t.Fatalf("%v: %s", err, out)
	}
	for deadline := time.Now().Add(engineWait); e.inside("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/5000").Run() == nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Fatal("the registry goes on")
		}
	}
}

// push gives an image another name, pushes it, and leaves only that name.
func (e *privateEngine) push(ctx context.Context, image, as string) {
	e.t.Helper()
	if _, err := e.ImageTag(ctx, client.ImageTagOptions{Source: image, Target: as}); err != nil {
		e.t.Fatal(err)
	}
	pushed, err := e.ImagePush(ctx, as, client.ImagePushOptions{RegistryAuth: "e30="})
	if err != nil {
		e.t.Fatal(err)
	}
	if err := pushed.Wait(ctx); err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.ImageRemove(ctx, image, client.ImageRemoveOptions{}); err != nil {
		e.t.Fatal(err)
	}
}
