package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// variables are the caller's environment by name; of a name that is there twice the last one counts.
type variables map[string]string

func newVariables(environ []string) variables {
	v := variables{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			v[name] = value
		}
	}
	return v
}

// endpoint is where an engine listens and how it is to be trusted.
type endpoint struct {
	context string // the docker context that it is from; "" where DOCKER_HOST or nothing names it
	host    string // "unix:///var/run/docker.sock", "tcp://box:2376", "ssh://me@box"
	tls     *tlsFiles
}

// tlsFiles says how a TCP connection is secured. Files that are not there are not used.
type tlsFiles struct {
	dir        string // holds ca.pem, cert.pem and key.pem
	skipVerify bool   // take any certificate of the engine's
}

// findEndpoint chooses as the docker program does: DOCKER_HOST, else the context that DOCKER_CONTEXT or the configuration
// file names, else the socket of this platform.
func findEndpoint(vars variables) (endpoint, error) {
	if host := vars["DOCKER_HOST"]; host != "" {
		return hostEndpoint(vars, host)
	}
	name, origin := vars["DOCKER_CONTEXT"], "DOCKER_CONTEXT"
	if name == "" {
		var err error
		origin = filepath.Join(configDir(vars), "config.json")
		if name, err = currentContext(origin); err != nil {
			return endpoint{}, err
		}
	}
	if name == "" || name == "default" {
		return endpoint{host: client.DefaultDockerHost}, nil
	}
	return contextEndpoint(configDir(vars), name, origin)
}

// hostEndpoint reads DOCKER_HOST with the variables that go with it.
func hostEndpoint(vars variables, host string) (endpoint, error) {
	e := endpoint{host: host}
	if !strings.Contains(host, "://") {
		e.host = "tcp://" + host
	}
	if vars["DOCKER_TLS_VERIFY"] != "" || vars["DOCKER_TLS"] != "" {
		dir := vars["DOCKER_CERT_PATH"]
		if dir == "" {
			dir = configDir(vars)
		}
		e.tls = &tlsFiles{dir: dir, skipVerify: vars["DOCKER_TLS_VERIFY"] == ""}
	}
	if err := e.check(); err != nil {
		return endpoint{}, failure(driver.KindConfig, "DOCKER_HOST is %q: %w", host, err)
	}
	return e, nil
}

// check refuses an address that cannot be reached, and completes a TCP one with docker's ports.
func (e *endpoint) check() error {
	scheme, rest, _ := strings.Cut(e.host, "://")
	switch scheme {
	case "unix", "npipe":
		if rest == "" {
			return errors.New("it names no socket")
		}
		e.tls = nil
	case "ssh":
		e.tls = nil
		_, err := parseSSH(e.host)
		return err
	case "tcp", "http", "https":
		u, err := url.Parse(e.host)
		if err != nil || u.Hostname() == "" {
			return errors.New("it names no host")
		}
		if scheme == "https" && e.tls == nil {
			e.tls = &tlsFiles{}
		}
		port := u.Port()
		if port == "" {
			port = "2375"
			if e.tls != nil {
				port = "2376"
			}
			u.Host += ":" + port
		}
		e.host = "tcp://" + u.Host + u.Path
	default:
		return errors.New("use unix://, tcp://, npipe:// or ssh://")
	}
	return nil
}

// configDir is where the docker program keeps its configuration: DOCKER_CONFIG or ~/.docker.
func configDir(vars variables) string {
	if dir := vars["DOCKER_CONFIG"]; dir != "" {
		return dir
	}
	home := vars["HOME"]
	if home == "" {
		home = vars["USERPROFILE"]
	}
	return filepath.Join(home, ".docker")
}

// currentContext reads the name of the context in use from the configuration file; "" where there is none.
func currentContext(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var config struct {
		CurrentContext string `json:"currentContext"`
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		return "", failure(driver.KindConfig, "docker's configuration file %s cannot be read: %w; set DOCKER_HOST to go without it", file, err)
	}
	return config.CurrentContext, nil
}

// contextEndpoint reads a docker context as `docker context create` wrote it.
func contextEndpoint(dir, name, origin string) (endpoint, error) {
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	file := filepath.Join(dir, "contexts", "meta", id, "meta.json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return endpoint{}, failure(driver.KindConfig, "there is no docker context %q, which %s names; see `docker context ls`", name, origin)
	}
	var meta struct {
		Endpoints map[string]struct {
			Host          string
			SkipTLSVerify bool
		}
	}
	if err == nil {
		err = json.Unmarshal(text, &meta)
	}
	if err != nil {
		return endpoint{}, failure(driver.KindConfig, "the docker context %q cannot be read from %s: %w", name, file, err)
	}
	end, ok := meta.Endpoints["docker"]
	if !ok {
		return endpoint{}, failure(driver.KindConfig, "the docker context %q names no docker engine; see `docker context inspect %s`", name, name)
	}
	e := endpoint{context: name, host: end.Host}
	if e.host == "" {
		e.host = client.DefaultDockerHost
	}
	certs := filepath.Join(dir, "contexts", "tls", id, "docker")
	if _, err := os.Stat(certs); err == nil || end.SkipTLSVerify {
		e.tls = &tlsFiles{dir: certs, skipVerify: end.SkipTLSVerify}
	}
	if err := e.check(); err != nil {
		return endpoint{}, failure(driver.KindConfig, "the docker context %q has the address %q: %w", name, end.Host, err)
	}
	return e, nil
}

// String is for people.
func (e endpoint) String() string {
	if e.context != "" {
		return e.host + " (docker context " + e.context + ")"
	}
	return e.host
}
