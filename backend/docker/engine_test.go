package docker

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// answering is a server that answers as an engine of this API does to a ping.
func answering(t *testing.T, secure bool, api string) (address, certs string) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", api) })
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = nil
	certs = t.TempDir()
	if secure {
		s.StartTLS()
		block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		if err := os.WriteFile(filepath.Join(certs, "ca.pem"), block, 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return "tcp://" + strings.TrimPrefix(strings.TrimPrefix(s.URL, "http://"), "https://"), certs
}

func TestAnEngineThatCannotBeUsedIsExplained(t *testing.T) {
	none := t.TempDir()
	dead := filepath.Join(none, "dead.sock")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	plain, _ := answering(t, false, "1.44")
	old, _ := answering(t, false, "1.40")
	ancient, _ := answering(t, false, "1.24")
	secure, certs := answering(t, true, "1.44")
	for _, c := range []struct {
		name    string
		environ []string
		kind    driver.Kind
		words   []string // none: it can be used
	}{
		{"no socket", []string{"DOCKER_HOST=unix://" + none + "/none.sock"}, driver.KindUnavailable, []string{"no docker engine answers", "none.sock", "DOCKER_HOST"}},
		{"a socket that nobody listens on", []string{"DOCKER_HOST=unix://" + dead}, driver.KindUnavailable, []string{"no docker engine answers", "refused"}},
		{"a port that nobody listens on", []string{"DOCKER_HOST=tcp://127.0.0.1:1"}, driver.KindUnavailable, []string{"no docker engine answers", "127.0.0.1:1"}},
		{"a host that does not exist", []string{"DOCKER_HOST=tcp://host.invalid:1"}, driver.KindUnavailable, []string{"host.invalid"}},
		{"an engine without TLS", []string{"DOCKER_HOST=" + plain}, "", nil},
		{"an engine with TLS", []string{"DOCKER_HOST=" + secure, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + certs}, "", nil},
		{"TLS that is not checked", []string{"DOCKER_HOST=" + secure, "DOCKER_TLS=1", "DOCKER_CERT_PATH=" + none}, "", nil},
		{"a certificate that is not trusted", []string{"DOCKER_HOST=" + secure, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + none}, driver.KindUnavailable, []string{"no trusted connection", "DOCKER_CERT_PATH"}},
		{"TLS with an engine that has none", []string{"DOCKER_HOST=" + plain, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + certs}, driver.KindUnavailable, []string{"speaks no TLS"}},
		{"no TLS with an engine that wants it", []string{"DOCKER_HOST=" + secure}, driver.KindUnavailable, []string{"wants TLS", "DOCKER_TLS_VERIFY=1"}},
		{"an engine that is too old", []string{"DOCKER_HOST=" + old}, driver.KindUnsupported, []string{"1.40", "1.41"}},
		{"an engine that is far too old", []string{"DOCKER_HOST=" + ancient}, driver.KindUnsupported, []string{"1.24", "1.41"}},
		{"an ssh that cannot connect", []string{"DOCKER_HOST=ssh://nobody@127.0.0.1:1", "PATH=" + os.Getenv("PATH"), "HOME=" + none}, driver.KindUnavailable, []string{"ssh", "127.0.0.1"}},
		{"no ssh", []string{"DOCKER_HOST=ssh://box", "PATH=" + none}, driver.KindUnavailable, []string{"no ssh on PATH"}},
		{"a version that is no version", []string{"DOCKER_HOST=" + plain, "DOCKER_API_VERSION=new"}, driver.KindConfig, []string{"new"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "ssh that") {
				if _, err := exec.LookPath("ssh"); err != nil {
					t.Skip("no ssh program on this machine")
				}
			}
			begin := time.Now()
			eng, err := connect(t.Context(), c.environ)
			if d := time.Since(begin); d > pingWait+dialWait+10*time.Second {
				t.Errorf("took %v", d)
			}
			if eng != nil {
				_ = eng.Close()
			}
			if c.words == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("it can be used")
			}
			if classify(err) != c.kind || strings.Contains(err.Error(), "\n") {
				t.Errorf("kind %s: %v", classify(err), err)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("it does not speak of %q: %v", w, err)
				}
			}
		})
	}
}

func TestAnEngineThatSaysNothingIsGivenUp(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "silent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	begin := time.Now()
	_, err = connect(t.Context(), []string{"DOCKER_HOST=unix://" + l.Addr().String()})
	if err == nil || classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "does not answer within") {
		t.Errorf("got %v", err)
	}
	if d := time.Since(begin); d > pingWait+10*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestASocketWithoutPermissionNamesTheGroup(t *testing.T) {
	e := &engine{at: endpoint{host: "unix:///var/run/docker.sock"}}
	e.dialErr = &net.OpError{Op: "dial", Net: "unix", Err: &os.SyscallError{Syscall: "connect", Err: fs.ErrPermission}}
	err := e.unreachable(fmt.Errorf("hidden"))
	if classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "group docker") {
		t.Errorf("got %v", err)
	}
}

func TestCertificatesThatCannotBeReadAreSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := connect(t.Context(), []string{"DOCKER_HOST=tcp://127.0.0.1:1", "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + dir})
	if err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "ca.pem") {
		t.Errorf("got %v", err)
	}
}

// TestTheConnectionOfAnExecIsSecuredToo: an exec's connection is made apart from those of requests.
func TestTheConnectionOfAnExecIsSecuredToo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e, err := newEngine(endpoint{host: "tcp://" + l.Addr().String(), tls: &tlsFiles{skipVerify: true}}, variables{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	first := make(chan byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var b [1]byte
		_, _ = conn.Read(b[:])
		first <- b[0]
	}()
	conn, err := e.Dialer()(t.Context())
	if err == nil {
		_ = conn.Close()
		t.Error("a connection was made without a handshake")
	}
	if b := <-first; b != 22 { // a TLS record of the handshake
		t.Errorf("the first byte is %d, not TLS (%v)", b, tls.VersionName(tls.VersionTLS12))
	}
}
