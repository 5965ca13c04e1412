package docker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/api/types/registry"
)

// helperTimeout bounds a credential helper, which may ask a person to unlock a keychain.
const helperTimeout = 30 * time.Second

// dockerConfig is what is read of the docker client's config.json.
type dockerConfig struct {
	Auths map[string]struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	} `json:"auths"`
	CredHelpers map[string]string `json:"credHelpers"`
	CredsStore  string            `json:"credsStore"`
}

// hub is what the docker client calls Docker's own registry in its settings.
const hub = "https://index.docker.io/v1/"

// registryAuth finds the user's credentials for a registry ("docker.io", "ghcr.io:443") as the docker client keeps them: in
// DOCKER_CONFIG/config.json, else ~/.docker/config.json, or with the credential helper that is named there. Without any it
// is empty.
func registryAuth(ctx context.Context, environ map[string]string, domain string) (registry.AuthConfig, error) {
	var none registry.AuthConfig
	dir := environ["DOCKER_CONFIG"]
	if dir == "" {
		home := environ["HOME"]
		if runtime.GOOS == "windows" {
			home = environ["USERPROFILE"]
		}
		if home == "" {
			return none, nil
		}
		dir = filepath.Join(home, ".docker")
	}
	file := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	var config dockerConfig
	if err := json.Unmarshal(data, &config); err != nil {
		return none, fmt.Errorf("%s: %w", file, err)
	}
	server := domain
	if domain == "docker.io" {
		server = hub
	}
	helper, ok := config.CredHelpers[server]
	if !ok {
		helper = config.CredsStore
	}
	if helper != "" {
		auth, err := askHelper(ctx, environ, helper, server)
		if err != nil || auth != none {
			return auth, err
		}
	}
	return config.find(file, server)
}

// find looks a server up among those whose credentials are in the file itself.
func (c *dockerConfig) find(file, server string) (registry.AuthConfig, error) {
	for key, entry := range c.Auths {
		if key != server && host(key) != host(server) {
			continue
		}
		auth := registry.AuthConfig{
			ServerAddress: server, Username: entry.Username, Password: entry.Password,
			IdentityToken: entry.IdentityToken, RegistryToken: entry.RegistryToken,
		}
		if entry.Auth != "" {
			text, err := base64.StdEncoding.DecodeString(entry.Auth)
			user, password, ok := strings.Cut(strings.TrimRight(string(text), "\x00"), ":")
			if err != nil || !ok {
				return registry.AuthConfig{}, fmt.Errorf("%s: the entry for %s is not base64 of USER:PASSWORD", file, key)
			}
			auth.Username, auth.Password = user, password
		}
		return auth, nil
	}
	return registry.AuthConfig{}, nil
}

// host is the registry's host and port in a key of config.json.
func host(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key, _, _ = strings.Cut(key, "/")
	return key
}

// notFound is what a helper answers that has nothing for a server.
const notFound = "credentials not found"

// askHelper runs docker-credential-NAME get.
func askHelper(ctx context.Context, environ map[string]string, name, server string) (registry.AuthConfig, error) {
	var none registry.AuthConfig
	program := "docker-credential-" + name
	if strings.ContainsAny(name, `/\`) {
		return none, fmt.Errorf("%q is not the name of a credential helper", name)
	}
	path, err := lookPath(program, environ["PATH"])
	if err != nil {
		return none, fmt.Errorf("the credential helper %s is not on PATH", program)
	}
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "get")
	cmd.WaitDelay = time.Second
	cmd.Stdin = strings.NewReader(server)
	for name, value := range environ {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		said := strings.TrimSpace(string(out) + " " + stderr.String())
		if strings.Contains(said, notFound) {
			return none, nil
		}
		return none, fmt.Errorf("the credential helper %s failed: %w: %s", program, err, said)
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out, &got); err != nil {
		return none, fmt.Errorf("the credential helper %s answered something else than JSON", program)
	}
	if got.Username == "<token>" {
		return registry.AuthConfig{ServerAddress: server, IdentityToken: got.Secret}, nil
	}
	return registry.AuthConfig{ServerAddress: server, Username: got.Username, Password: got.Secret}, nil
}
