package docker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

const (
	// dialWait bounds one connection, and pingWait the first answer: an engine that is there answers in milliseconds.
	dialWait = 5 * time.Second
	pingWait = 5 * time.Second
	// keepAlive finds a dead network: a TCP connection is asked that often.
	keepAlive = 15 * time.Second
	// oldestAPI is that of Docker 20.10, with which this package was tried.
	oldestAPI = "1.41"
)

// engine is a connection to a Docker or Podman engine.
type engine struct {
	*client.Client
	at   endpoint
	host string // the machine that it runs on

	dialer func(ctx context.Context, network, address string) (net.Conn, error) // nil is the client's own

	mu      sync.Mutex
	dialErr error // of the last connection; the client's own errors hide it
}

// connect finds the engine that the environment names and asks it for an answer. Close gives it up.
func connect(ctx context.Context, environ []string) (*engine, error) {
	vars := newVariables(environ)
	at, err := findEndpoint(vars)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(at, vars, environ)
	if err != nil {
		return nil, err
	}
	if err := e.ping(ctx); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

func newEngine(at endpoint, vars variables, environ []string) (*engine, error) {
	e := &engine{at: at, host: hostOf(at.host)}
	var opts []client.Opt
	if at.tls != nil {
		config, err := at.tls.config()
		if err != nil {
			return nil, failure(driver.KindConfig, "the certificates for the docker engine at %s: %w; see DOCKER_CERT_PATH", at, err)
		}
		transport := &http.Transport{MaxIdleConns: 6, IdleConnTimeout: 30 * time.Second, TLSClientConfig: config}
		opts = append(opts, client.WithHTTPClient(&http.Client{Transport: transport, CheckRedirect: client.CheckRedirect}))
	}
	host := at.host
	scheme, rest, _ := strings.Cut(host, "://")
	plain := &net.Dialer{Timeout: dialWait, KeepAlive: keepAlive}
	switch scheme {
	case "unix":
		e.dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return plain.DialContext(ctx, "unix", rest) }
	case "tcp":
		e.dialer = func(ctx context.Context, _, address string) (net.Conn, error) {
			return plain.DialContext(ctx, "tcp", address)
		}
	case "ssh":
		target, err := parseSSH(host)
		if err != nil {
			return nil, failure(driver.KindConfig, "%s: %w", at, err)
		}
		e.dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSSH(ctx, target, environ) }
		host = "http://docker.over.ssh"
	}
	opts = append(opts, client.WithHost(host), client.WithAPIVersion(vars["DOCKER_API_VERSION"]))
	if e.dialer != nil {
		opts = append(opts, client.WithDialContext(e.dial))
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, failure(driver.KindConfig, "the docker engine at %s: %w", at, err)
	}
	e.Client = c
	return e, nil
}

// dial remembers why a connection failed.
func (e *engine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := e.dialer(ctx, network, address)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dialErr = err
	return conn, err
}

func (e *engine) lastDial() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dialErr
}

// config reads the certificates; those that are not there are not used.
func (t *tlsFiles) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.skipVerify} //nolint:gosec // where the user asks for it
	if t.dir == "" {
		return config, nil
	}
	authority, err := os.ReadFile(filepath.Join(t.dir, "ca.pem"))
	switch {
	case err == nil:
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf("%s holds no certificate", filepath.Join(t.dir, "ca.pem"))
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(filepath.Join(t.dir, "cert.pem"), filepath.Join(t.dir, "key.pem"))
	switch {
	case err == nil:
		config.Certificates = []tls.Certificate{cert}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return config, nil
}

// here tells whether the engine is on this machine: then its connections end with the processes that have them.
func (e *engine) here() bool {
	return strings.HasPrefix(e.at.host, "unix://") || strings.HasPrefix(e.at.host, "npipe://")
}

// hostOf is the machine on which an engine with this address runs, as people name it.
func hostOf(host string) string {
	if u, err := url.Parse(host); err == nil && u.Hostname() != "" && u.Scheme != "unix" && u.Scheme != "npipe" {
		return u.Hostname()
	}
	name, _ := os.Hostname()
	return name
}

// ping asks for an answer and agrees on the version of the API.
func (e *engine) ping(ctx context.Context) error {
	pctx, cancel := context.WithTimeout(ctx, pingWait)
	defer cancel()
	answer, err := e.Ping(pctx, client.PingOptions{NegotiateAPIVersion: true})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case answer.APIVersion != "" && olderAPI(answer.APIVersion):
		return failure(driver.KindUnsupported, "the docker engine at %s speaks API %s, and elsewhere needs %s (Docker 20.10) or later; update the engine", e.at, answer.APIVersion, oldestAPI)
	case err != nil:
		return e.unreachable(err)
	}
	return nil
}

// olderAPI compares versions of the form MAJOR.MINOR.
func olderAPI(version string) bool {
	var major, minor, needMajor, needMinor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	_, _ = fmt.Sscanf(oldestAPI, "%d.%d", &needMajor, &needMinor)
	return major < needMajor || major == needMajor && minor < needMinor
}

// unreachable says why the engine gave no answer, and what to do about it.
func (e *engine) unreachable(err error) error {
	if dial := e.lastDial(); dial != nil {
		err = dial
	}
	text := err.Error()
	unverified := &tls.CertificateVerificationError{}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return failure(driver.KindUnavailable, "no permission to talk to the docker engine at %s: add your user to the group docker (sudo usermod -aG docker $USER, then log in again), or use a rootless engine", e.at)
	case errors.As(err, &unverified), strings.Contains(text, "x509:"), strings.Contains(text, "tls:"), strings.Contains(text, "handshake failure"), strings.Contains(text, "client authentication"):
		return failure(driver.KindUnavailable, "no trusted connection to the docker engine at %s: %s; see ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH", e.at, oneLine(text))
	case strings.Contains(text, "HTTP request to an HTTPS server"), strings.Contains(text, "TLS-enabled daemon without TLS"):
		return failure(driver.KindUnavailable, "the docker engine at %s wants TLS: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH", e.at)
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return failure(driver.KindUnavailable, "the docker engine at %s speaks no TLS: unset DOCKER_TLS_VERIFY, or give it the port that does", e.at)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), strings.Contains(text, "i/o timeout"):
		return failure(driver.KindUnavailable, "the docker engine at %s does not answer within %s: %s", e.at, pingWait, e.howToStart())
	default:
		return failure(driver.KindUnavailable, "no docker engine answers at %s (%s): %s", e.at, oneLine(text), e.howToStart())
	}
}

func (e *engine) howToStart() string {
	switch {
	case strings.HasPrefix(e.at.host, "ssh://"):
		return "try `ssh " + strings.TrimPrefix(e.at.host, "ssh://") + " docker version`"
	case e.at.host != client.DefaultDockerHost:
		return "see that it runs there and that DOCKER_HOST or the docker context is right"
	case runtime.GOOS == "linux":
		return "start it (sudo systemctl start docker), or set DOCKER_HOST to another one's address"
	default:
		return "start Docker Desktop, or set DOCKER_HOST to another engine's address"
	}
}

// explain makes an error of a request one with a kind: that the engine is down is said as by ping.
func (e *engine) explain(what string, err error) error {
	if err == nil || kinderr.Of(err) != "" {
		return err
	}
	if client.IsErrConnectionFailed(err) {
		return e.unreachable(err)
	}
	if strings.Contains(err.Error(), "no space left on device") {
		return failure(driver.KindUnavailable, "%s: %w; the disk of the docker engine at %s is full: free some of it (docker system df, docker system prune) and try again", what, trimmed{err}, e.at)
	}
	return failure(classify(err), "%s: %w", what, trimmed{err})
}

// trimmed is an error of the engine's without the client's preface.
type trimmed struct{ error }

func (t trimmed) Error() string {
	return oneLine(strings.TrimPrefix(t.error.Error(), "Error response from daemon: "))
}
func (t trimmed) Unwrap() error { return t.error }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
