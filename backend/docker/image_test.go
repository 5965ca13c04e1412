package docker

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestAFailedPullIsExplainedInOneLine(t *testing.T) {
	for _, c := range []struct {
		text string
		kind driver.Kind
		says string
	}{
		{"manifest for x:y not found: manifest unknown: manifest unknown", driver.KindConfig, "name and tag"},
		{"pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied", driver.KindConfig, "docker login ghcr.io"},
		{"unauthorized: authentication required", driver.KindConfig, "docker login ghcr.io"},
		{"Head \"https://x/v2/\": no basic auth credentials", driver.KindConfig, "docker login"},
		{"Get \"https://registry-1.docker.io/v2/\": dial tcp: lookup registry-1.docker.io: no such host", driver.KindUnavailable, "cannot reach the registry"},
		{"Get \"https://x/v2/\": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)", driver.KindUnavailable, "cannot reach"},
		{"dial tcp 127.0.0.1:1: connect: connection refused", driver.KindUnavailable, "cannot reach"},
		{"toomanyrequests: You have reached your pull rate limit", driver.KindUnavailable, "refuses more pulls"},
		{"no matching manifest for linux/riscv64 in the manifest list entries", driver.KindConfig, "other processors"},
		{"write /var/lib/docker/tmp/x: no space left on device", driver.KindUnavailable, "docker system prune"},
	} {
		err := explainPull(errors.New(c.text), "ghcr.io/x:y", "ghcr.io", nil)
		wantKind(t, err, c.kind, "image ghcr.io/x:y cannot be pulled", c.says, c.text)
		if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "%!") {
			t.Errorf("%q", err)
		}
	}
	err := explainPull(errors.New("unauthorized"), "x", "docker.io", errors.New("helper is locked"))
	wantKind(t, err, driver.KindConfig, "helper is locked")
}

func TestAnImageForAnotherProcessorIsRefused(t *testing.T) {
	no := func(string) bool { return false }
	for _, c := range []struct {
		image, os, engine, system string
		emulated, ok              bool
	}{
		{"amd64", "linux", "x86_64", "", false, true}, {"arm64", "linux", "aarch64", "", false, true}, {"386", "linux", "x86_64", "", false, true},
		{"arm", "linux", "aarch64", "", false, true}, {"", "linux", "x86_64", "", false, true}, {"amd64", "", "", "", false, true},
		{"arm64", "linux", "x86_64", "", false, false}, {"amd64", "linux", "aarch64", "", false, false},
		{"arm64", "linux", "x86_64", "", true, true}, {"amd64", "linux", "aarch64", "Docker Desktop", false, true},
		{"amd64", "windows", "x86_64", "", false, false}, {"amd64", "linux", "amd64", "", false, true},
	} {
		image := &client.ImageInspectResult{}
		image.Architecture, image.Os = c.image, c.os
		emulated := no
		if c.emulated {
			emulated = func(arch string) bool { return arch == c.image }
		}
		err := checkPlatform("x", image, system.Info{Architecture: c.engine, OSType: "linux", OperatingSystem: c.system}, emulated)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err != nil {
			wantKind(t, err, driver.KindConfig, "docker_image")
		}
	}
}

func TestProgressIsShortAndRare(t *testing.T) {
	var told []string
	now := time.Unix(1000, 0)
	p := newPullProgress("x", func(text string) { told = append(told, text) })
	p.now = func() time.Time { return now }
	layer := func(id, status string, current, total int64) {
		m := jsonstream.Message{ID: id, Status: status}
		if total > 0 {
			m.Progress = &jsonstream.Progress{Current: current, Total: total}
		}
		p.add(m)
	}
	layer("a", "Pulling fs layer", 0, 0)
	layer("a", "Downloading", 10, 100)
	layer("b", "Downloading", 0, 100) // too soon
	now = now.Add(499 * time.Millisecond)
	layer("b", "Downloading", 50, 100) // too soon
	now = now.Add(time.Millisecond)
	layer("b", "Downloading", 70, 100)
	now = now.Add(time.Second)
	layer("a", "Download complete", 0, 0)
	now = now.Add(time.Second)
	layer("b", "Pull complete", 0, 0)
	want := []string{"pulling x: 10 % of 100B", "pulling x: 40 % of 200B", "pulling x: 85 % of 200B", "pulling x: unpacking 200B"}
	if strings.Join(told, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", told)
	}
}

// dockerHome is a home with this ~/.docker/config.json, and a PATH with these programs.
func dockerHome(t *testing.T, json string, programs map[string]string) map[string]string {
	t.Helper()
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := errors.Join(os.MkdirAll(filepath.Join(home, ".docker"), 0o700), os.Mkdir(bin, 0o700),
		os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(json), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"HOME": home, "PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH")}
}

func TestCredentialsOfTheDockerClientAreUsed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the helpers are shell scripts")
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("me:p:w"))
	helper := map[string]string{
		"docker-credential-good":    `read -r s; [ "$1" = get ] && echo "{\"ServerURL\":\"$s\",\"Username\":\"h\",\"Secret\":\"$s\"}"`,
		"docker-credential-token":   `echo '{"Username":"<token>","Secret":"t"}'`,
		"docker-credential-nothing": `echo 'credentials not found in native keychain'; exit 1`,
		"docker-credential-broken":  `echo 'locked' >&2; exit 1`,
		"docker-credential-noise":   `echo hello`,
	}
	for _, c := range []struct {
		name, json, domain string
		want               registry.AuthConfig
		err                string
	}{
		{"nothing", `{}`, "x.io", registry.AuthConfig{}, ""},
		{"auth", `{"auths": {"x.io": {"auth": "` + encoded + `"}}}`, "x.io", registry.AuthConfig{ServerAddress: "x.io", Username: "me", Password: "p:w"}, ""},
		{"auth by address", `{"auths": {"https://x.io:5000/v1/": {"auth": "` + encoded + `"}}}`, "x.io:5000", registry.AuthConfig{ServerAddress: "x.io:5000", Username: "me", Password: "p:w"}, ""},
		{"another port", `{"auths": {"x.io:5001": {"auth": "` + encoded + `"}}}`, "x.io", registry.AuthConfig{}, ""},
		{"Docker's own", `{"auths": {"https://index.docker.io/v1/": {"identitytoken": "t"}}}`, "docker.io", registry.AuthConfig{ServerAddress: hub, IdentityToken: "t"}, ""},
		{"store", `{"credsStore": "good"}`, "x.io", registry.AuthConfig{ServerAddress: "x.io", Username: "h", Password: "x.io"}, ""},
		{"store for Docker's own", `{"credsStore": "good"}`, "docker.io", registry.AuthConfig{ServerAddress: hub, Username: "h", Password: hub}, ""},
		{"helper before store", `{"credsStore": "broken", "credHelpers": {"x.io": "token"}}`, "x.io", registry.AuthConfig{ServerAddress: "x.io", IdentityToken: "t"}, ""},
		{"helper has nothing", `{"credsStore": "nothing", "auths": {"x.io": {"username": "u", "password": "p"}}}`, "x.io", registry.AuthConfig{ServerAddress: "x.io", Username: "u", Password: "p"}, ""},
		{"helper fails", `{"credsStore": "broken"}`, "x.io", registry.AuthConfig{}, "locked"},
		{"helper missing", `{"credsStore": "missing"}`, "x.io", registry.AuthConfig{}, "docker-credential-missing is not on PATH"},
		{"helper elsewhere", `{"credsStore": "../x"}`, "x.io", registry.AuthConfig{}, "not the name"},
		{"helper noise", `{"credsStore": "noise"}`, "x.io", registry.AuthConfig{}, "JSON"},
		{"broken file", `{`, "x.io", registry.AuthConfig{}, "config.json"},
		{"broken auth", `{"auths": {"x.io": {"auth": "!"}}}`, "x.io", registry.AuthConfig{}, "base64"},
	} {
		environ := dockerHome(t, c.json, helper)
		got, err := registryAuth(t.Context(), environ, c.domain)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v %v", c.name, got, err)
		}
	}
	environ := dockerHome(t, `{}`, nil)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "config.json"), []byte(`{"auths": {"x.io": {"auth": "`+encoded+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	environ["DOCKER_CONFIG"] = other
	if got, err := registryAuth(t.Context(), environ, "x.io"); got.Username != "me" || err != nil {
		t.Errorf("DOCKER_CONFIG: %+v %v", got, err)
	}
	if got, err := registryAuth(t.Context(), map[string]string{}, "x.io"); got != (registry.AuthConfig{}) || err != nil {
		t.Errorf("without a home: %+v %v", got, err)
	}
}

func TestACredentialHelperThatHangsIsGivenUp(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the helper is a shell script")
	}
	environ := dockerHome(t, `{"credsStore": "hangs"}`, map[string]string{"docker-credential-hangs": "exec sleep 60"})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := registryAuth(ctx, environ, "x.io"); err == nil {
		t.Error("it answered")
	}
}
