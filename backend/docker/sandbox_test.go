package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

const testImage = "elsewhere-test/debian"

// world is an HERMES_HOME whose containers go with the test.
type world struct {
	t       testing.TB
	eng     *client.Client
	home    string
	environ []string
	owner   string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	eng, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	if _, err := eng.Ping(t.Context(), client.PingOptions{}); err != nil {
		t.Skipf("no docker engine answers (%v): test/testbed/docker.sh starts one", err)
	}
	if _, err := eng.ImageInspect(t.Context(), testImage); err != nil {
		t.Skipf("there is no image %s (%v): test/testbed/docker.sh makes it", testImage, err)
	}
	base := t.TempDir()
	w := &world{t: t, eng: eng, home: filepath.Join(base, "hermes")}
	w.environ = []string{"HOME=" + base, "PATH=" + os.Getenv("PATH"), "HERMES_HOME=" + w.home}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		w.environ = append(w.environ, "DOCKER_HOST="+host)
	}
	if err := os.MkdirAll(w.home, 0o700); err != nil {
		t.Fatal(err)
	}
	lease, err := owner.Acquire(w.home)
	if err != nil {
		t.Fatal(err)
	}
	w.owner = lease.ID
	t.Cleanup(func() {
		for _, c := range w.containers() {
			w.removeContainer(c)
		}
		_ = lease.Release()
	})
	return w
}

// in gives the same world to a subtest.
func (w *world) in(t testing.TB) *world {
	other := *w
	other.t = t
	return &other
}

// request is what package elsewhere would ask; settings are pairs of key and value.
func (w *world) request(task string, settings ...string) driver.OpenRequest {
	w.t.Helper()
	flags := map[string]string{"backend": "docker", "docker_image": testImage}
	for i := 0; i+1 < len(settings); i += 2 {
		flags[settings[i]] = settings[i+1]
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{Backend()}, Flags: flags, Environ: w.environ, Home: w.home})
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := owner.Identity(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	machine, _ := os.Hostname()
	return driver.OpenRequest{
		Config: cfg, Task: task, Environ: w.environ, Logger: slog.New(slog.DiscardHandler),
		Identity: driver.Identity{ID: id, Profile: "default", Machine: machine, UID: fmt.Sprint(os.Getuid()), Home: w.home, Owner: w.owner},
	}
}

func (w *world) open(req driver.OpenRequest) *sandbox {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	sb, err := open(ctx, req)
	if err != nil {
		w.t.Fatal(err)
	}
	s := sb.(*sandbox)
	w.t.Cleanup(func() { w.close(s) })
	return s
}

func (w *world) close(s *sandbox) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		w.t.Errorf("closing: %v", err)
	}
}

// refused opens what has to be refused, and leaves nothing open.
func (w *world) refused(req driver.OpenRequest, kind driver.Kind, words ...string) {
	w.t.Helper()
	sb, err := open(w.t.Context(), req)
	if err == nil {
		_ = sb.Close(w.t.Context())
		w.t.Fatalf("it was opened; wanted is an error that speaks of %q", words)
	}
	if classify(err) != kind || strings.Contains(err.Error(), "\n") {
		w.t.Errorf("kind %s, want %s: %v", classify(err), kind, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			w.t.Errorf("it does not speak of %q: %v", word, err)
		}
	}
}

// containers are the ids of all containers of this home's identity.
func (w *world) containers() []string {
	w.t.Helper()
	id, err := owner.Identity(w.home)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := w.eng.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelIdentity+"="+id)})
	if err != nil {
		w.t.Fatal(err)
	}
	ids := make([]string, 0, len(list.Items))
	for _, c := range list.Items {
		ids = append(ids, c.ID)
	}
	return ids
}

func (w *world) removeContainer(id string) {
	w.t.Helper()
	_, err := w.eng.ContainerRemove(context.Background(), id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) {
		w.t.Error(err)
	}
}

// output runs bash text and gives its stdout, trimmed.
func output(t testing.TB, s *sandbox, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := s.run(ctx, script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return strings.TrimSpace(out)
}

// bash starts a bash that is ended with the test.
func bash(t testing.TB, s *sandbox, script string) driver.Process {
	t.Helper()
	p, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"--noprofile", "--norc", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.(*process).closeAll() })
	return p
}

// ended waits for a bash's end, not for ever.
func ended(t testing.TB, p driver.Process) (driver.ExitStatus, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status, err := p.Wait(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the bash has not ended after a minute")
	}
	return status, err
}

// eventually looks again and again, for at most half a minute.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

// proxy is a socket before the engine's whose connections can be cut.
type proxy struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T) (*proxy, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "proxy") // a socket's name is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "docker.sock")
	x := &proxy{}
	if x.l, err = net.Listen("unix", socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.l.Close(); x.cut() })
	to := strings.TrimPrefix(client.DefaultDockerHost, "unix://")
	if host, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		to = host
	}
	go func() {
		for {
			from, err := x.l.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("unix", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			x.mu.Lock()
			x.conns = append(x.conns, from, conn)
			x.mu.Unlock()
			pass := func(a, b net.Conn) { _, _ = io.Copy(a, b); _ = a.(*net.UnixConn).CloseWrite() }
			go pass(from, conn)
			go pass(conn, from)
		}
	}()
	return x, "unix://" + socket
}

// cut closes all connections.
func (x *proxy) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		_ = c.Close()
	}
	x.conns = nil
}

// allBytes is every byte, NUL first.
func allBytes() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

func sameBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %d bytes, want %d", what, len(got), len(want))
	}
}
