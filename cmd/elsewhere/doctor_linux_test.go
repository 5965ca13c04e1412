//go:build linux

package main

import (
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
)

// TestD15DoctorAsksAnEngineThatIsReachedOverTCP: it looks for no socket file, and says what is amiss where nobody listens.
func TestD15DoctorAsksAnEngineThatIsReachedOverTCP(t *testing.T) {
	eng, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	socket, unix := strings.CutPrefix(eng.DaemonHost(), "unix://")
	if _, err := eng.Ping(t.Context(), client.PingOptions{}); err != nil || !unix {
		t.Skipf("no docker engine answers on a socket of this machine (%v): test/testbed/docker.sh starts one", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go relay(l, socket)
	p := &place{t: t, dir: t.TempDir(), env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "HERMES_HOME=" + t.TempDir() + "/hermes", "TERMINAL_ENV=docker", "TERMINAL_DOCKER_IMAGE=elsewhere-test/debian",
		"DOCKER_HOST=tcp://" + l.Addr().String(),
	}}
	if out, errs := p.wants(0, "doctor", "-b", "docker", "--set", "container_persistent=false"); !strings.Contains(out, "a command ran on host ") {
		t.Errorf("no command ran: %s%s", out, errs)
	}
	_ = l.Close()
	if out, _ := p.wants(1, "doctor", "-b", "docker"); !strings.Contains(out, l.Addr().String()) {
		t.Errorf("it does not name the address where nobody listens: %s", out)
	}
}

// relay joins each connection with one to a socket, until l is closed.
func relay(l net.Listener, socket string) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			defer far.Close()
			var both sync.WaitGroup
			join := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				if half, ok := to.(interface{ CloseWrite() error }); ok {
					_ = half.CloseWrite()
				}
			}
			both.Go(func() { join(near, far) })
			both.Go(func() { join(far, near) })
			both.Wait()
		}()
	}
}
