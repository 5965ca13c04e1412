package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// testDockerConfig writes a configuration directory as the docker program does.
func testDockerConfig(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func contextID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

func TestTheEngineIsFoundAsTheDockerProgramFindsIt(t *testing.T) {
	dir := testDockerConfig(t, map[string]string{
		"config.json": `{"currentContext": "far", "auths": {}}`,
		"contexts/meta/" + contextID("far") + "/meta.json":           `{"Name":"far","Endpoints":{"docker":{"Host":"ssh://me@far:2222"}}}`,
		"contexts/meta/" + contextID("safe") + "/meta.json":          `{"Name":"safe","Endpoints":{"docker":{"Host":"tcp://safe:2376","SkipTLSVerify":false}}}`,
		"contexts/tls/" + contextID("safe") + "/docker/ca.pem":       "",
		"contexts/meta/" + contextID("trusting") + "/meta.json":      `{"Name":"trusting","Endpoints":{"docker":{"Host":"tcp://trusting","SkipTLSVerify":true}}}`,
		"contexts/meta/" + contextID("here") + "/meta.json":          `{"Name":"here","Endpoints":{"docker":{"Host":""}}}`,
		"contexts/meta/" + contextID("kubernetes") + "/meta.json":    `{"Name":"kubernetes","Endpoints":{"kubernetes":{}}}`,
		"contexts/meta/" + contextID("broken") + "/meta.json":        `{`,
		"contexts/meta/" + contextID("odd/../name") + "/meta.json":   `{"Name":"odd/../name","Endpoints":{"docker":{"Host":"unix:///odd.sock"}}}`,
		"contexts/meta/" + contextID("with password") + "/meta.json": `{"Endpoints":{"docker":{"Host":"ssh://me:secret@far"}}}`,
	})
	none := t.TempDir()
	config := "DOCKER_CONFIG=" + dir
	for _, c := range []struct {
		name    string
		environ []string
		host    string
		certs   string // relative to dir
		skip    bool
		err     string
	}{
		{name: "nothing is set", environ: []string{"HOME=" + none}, host: client.DefaultDockerHost},
		{name: "a home that has a context in use", environ: []string{"HOME=" + none, config}, host: "ssh://me@far:2222"},
		{name: "DOCKER_HOST beats every context", environ: []string{config, "DOCKER_CONTEXT=safe", "DOCKER_HOST=unix:///x.sock"}, host: "unix:///x.sock"},
		{name: "an empty DOCKER_HOST is none", environ: []string{config, "DOCKER_HOST="}, host: "ssh://me@far:2222"},
		{name: "DOCKER_CONTEXT beats the file", environ: []string{config, "DOCKER_CONTEXT=safe"}, host: "tcp://safe:2376", certs: "contexts/tls/" + contextID("safe") + "/docker"},
		{name: "the context default is the socket", environ: []string{config, "DOCKER_CONTEXT=default"}, host: client.DefaultDockerHost},
		{name: "a context without an address is the socket", environ: []string{config, "DOCKER_CONTEXT=here"}, host: client.DefaultDockerHost},
		{name: "a context that trusts every certificate", environ: []string{config, "DOCKER_CONTEXT=trusting"}, host: "tcp://trusting:2376", certs: "contexts/tls/" + contextID("trusting") + "/docker", skip: true},
		{name: "a context of any name", environ: []string{config, "DOCKER_CONTEXT=odd/../name"}, host: "unix:///odd.sock"},
		{name: "a context that is not there", environ: []string{config, "DOCKER_CONTEXT=nowhere"}, err: `no docker context "nowhere"`},
		{name: "a context of something else", environ: []string{config, "DOCKER_CONTEXT=kubernetes"}, err: "names no docker engine"},
		{name: "a broken context", environ: []string{config, "DOCKER_CONTEXT=broken"}, err: "cannot be read"},
		{name: "a password in an address", environ: []string{config, "DOCKER_CONTEXT=with password"}, err: "use a key"},
		{name: "a podman socket", environ: []string{"DOCKER_HOST=unix:///run/user/1000/podman/podman.sock"}, host: "unix:///run/user/1000/podman/podman.sock"},
		{name: "a bare host", environ: []string{"DOCKER_HOST=box:1234"}, host: "tcp://box:1234"},
		{name: "docker's own port", environ: []string{"DOCKER_HOST=tcp://box"}, host: "tcp://box:2375"},
		{name: "docker's own port with TLS", environ: []string{"DOCKER_HOST=tcp://box", "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + dir}, host: "tcp://box:2376", certs: "."},
		{name: "TLS without a check, certificates of the configuration", environ: []string{config, "DOCKER_HOST=tcp://box", "DOCKER_TLS=1"}, host: "tcp://box:2376", certs: ".", skip: true},
		{name: "TLS means nothing on a socket", environ: []string{"DOCKER_HOST=unix:///x", "DOCKER_TLS_VERIFY=1"}, host: "unix:///x"},
		{name: "IPv6", environ: []string{"DOCKER_HOST=tcp://[::1]:2375"}, host: "tcp://[::1]:2375"},
		{name: "a named pipe", environ: []string{"DOCKER_HOST=npipe:////./pipe/docker_engine"}, host: "npipe:////./pipe/docker_engine"},
		{name: "an unknown scheme", environ: []string{"DOCKER_HOST=ftp://box"}, err: "use unix://"},
		{name: "no host", environ: []string{"DOCKER_HOST=tcp://"}, err: "names no host"},
		{name: "an option for a host", environ: []string{"DOCKER_HOST=ssh://-oProxyCommand=x"}, err: "DOCKER_HOST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := findEndpoint(newVariables(c.environ))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || classify(err) != driver.KindConfig {
					t.Errorf("error is %v (%s), want %q", err, classify(err), c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			certs := ""
			if e.tls != nil {
				certs, _ = filepath.Rel(dir, e.tls.dir)
			}
			if e.host != c.host || certs != c.certs || (e.tls != nil && e.tls.skipVerify) != c.skip {
				t.Errorf("got %+v with certificates in %q, want %s with %q, unchecked %v", e, certs, c.host, c.certs, c.skip)
			}
		})
	}
}

func TestABrokenConfigurationOfDockerIsSaid(t *testing.T) {
	dir := testDockerConfig(t, map[string]string{"config.json": `{"currentContext": 3}`})
	_, err := findEndpoint(newVariables([]string{"DOCKER_CONFIG=" + dir}))
	if err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("got %v", err)
	}
}

func TestTheArgumentsOfSSHHoldWhatTheAddressSays(t *testing.T) {
	target, err := parseSSH("ssh://me@box:2222/run/user/1/it's.sock")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(target.args(), " ")
	if want := `-T -o BatchMode=yes -o ConnectTimeout=5 -l me -p 2222 -- box docker --host 'unix:///run/user/1/it'\''s.sock' system dial-stdio`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
