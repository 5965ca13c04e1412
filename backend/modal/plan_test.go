package modal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// planned is what is asked of the service with these settings.
func planned(t *testing.T, settings map[string]string, environ ...string) (*plan, error) {
	t.Helper()
	home := t.TempDir()
	flags := map[string]string{"backend": "modal"}
	for key, value := range settings {
		flags[key] = value
	}
	environ = append([]string{"HOME=" + home}, environ...)
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{Backend()}, Flags: flags, Environ: environ, Home: home})
	if err != nil {
		return nil, err
	}
	return makePlan(driver.OpenRequest{Config: cfg, Task: "a task", Environ: environ, Identity: driver.Identity{ID: strings.Repeat("a", 32), Profile: "default", Home: home, Owner: strings.Repeat("b", 32)}})
}

func TestAServiceThatIsSilentIsNamed(t *testing.T) {
	a := &account{server: "https://modal.example"}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	err := a.explain(late, "asking for the app x", errors.New("rpc error"))
	if text := err.Error(); !strings.Contains(text, "asking for the app x") || !strings.Contains(text, "https://modal.example does not answer in time") || classify(err) != driver.KindTimeout {
		t.Errorf("%v (%s)", err, classify(err))
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.explain(given, "asking", errors.New("rpc error")); strings.Contains(err.Error(), "in time") || classify(err) != driver.KindCanceled {
		t.Errorf("%v (%s)", err, classify(err))
	}
}

func TestWhatSettingsBecome(t *testing.T) {
	p, err := planned(t, map[string]string{"container_cpu": "1.5", "container_memory": "1500k", "modal_gpu": "A100-80GB:2", "modal_lifetime": "90.2", "container_idle_timeout": "7", "modal_network": "false", "modal_snapshot_ttl": "off"})
	if err != nil {
		t.Fatal(err)
	}
	if q := p.params; q.CPU != 1.5 || q.MemoryMiB != 2 || q.GPU != "A100-80GB:2" || q.Timeout != 91*time.Second || q.IdleTimeout != 7*time.Second || !q.BlockNetwork || p.ttl != 0 {
		t.Errorf("%+v, ttl %v", q, p.ttl)
	}
	p, err = planned(t, map[string]string{"container_cpu": "0", "container_memory": "0", "container_idle_timeout": "7200"})
	if err != nil {
		t.Fatal(err)
	}
	if q := p.params; q.CPU != 0 || q.MemoryMiB != 0 || q.GPU != "" || q.Timeout != time.Hour || q.IdleTimeout != 0 || q.BlockNetwork {
		t.Errorf("%+v", q)
	}
	if len(p.name) > 64 || strings.Trim(p.name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		t.Errorf("the name %q is none at Modal", p.name)
	}
	for name, value := range p.params.Tags {
		if len(name) > 63 || len(value) > 63 {
			t.Errorf("the tag %s=%s is long", name, value)
		}
	}
}

func TestWhatModalCannotDoIsSaidBeforeAnythingIsMade(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		want     string
	}{
		{map[string]string{"modal_lifetime": "25h"}, "24 hours"},
		{map[string]string{"modal_lifetime": "0"}, "more than 0"},
		{map[string]string{"container_cpu": "0.0001"}, "thousandths"},
		{map[string]string{"modal_gpu": "two T4"}, "modal_gpu"},
		{map[string]string{"modal_image": " "}, "name an image"},
	} {
		if _, err := planned(t, c.settings); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.settings, err)
		}
	}
	p, err := planned(t, map[string]string{"container_disk": "1000"})
	if err != nil || !strings.Contains(strings.Join(p.notices, " "), "container_disk") {
		t.Errorf("%v, notices %q", err, p.notices)
	}
}

func TestWhereASessionStarts(t *testing.T) {
	home := t.TempDir()
	for _, c := range []struct {
		cwd, dir string
		told     bool
	}{
		{"", "", false}, {".", "", false}, {"~", "", false}, {"~/work", "~/work", false}, {"/workspace", "/workspace", false}, {"/srv/../tmp", "/tmp", false},
		{`C:\Users\me`, "", true}, {"c:/x", "", true}, {"//server/share", "", true}, {"/Users/me", "", true}, {"relative", "", true}, {home, "", true},
	} {
		dir, notice := startDir(c.cwd, driver.OpenRequest{Environ: []string{"HOME=" + home}})
		if dir != c.dir || (notice != "") != c.told {
			t.Errorf("%q: %q, %q", c.cwd, dir, notice)
		}
	}
}

func TestCredentials(t *testing.T) {
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "modal.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	both := write("[one]\ntoken_id = 'ak-1'\ntoken_secret = 'as-1'\n[two]\ntoken_id = 'ak-2'\ntoken_secret = 'as-2'\nserver_url = 'https://two.example'\nactive = true\n")
	for _, c := range []struct {
		name         string
		settings     map[string]string
		server, from string
		fails        string
	}{
		{name: "none", fails: "no credentials"},
		{name: "half", settings: map[string]string{"modal_token_id": "ak-x"}, fails: "MODAL_TOKEN_SECRET"},
		{name: "the other half", settings: map[string]string{"modal_token_secret": "as-x"}, fails: "MODAL_TOKEN_ID"},
		{name: "the active profile", settings: map[string]string{"modal_config_path": both}, server: "https://two.example", from: "profile two"},
		{name: "a named profile", settings: map[string]string{"modal_config_path": both, "modal_profile": "one"}, server: defaultServer, from: "profile one"},
		{name: "a profile that is not there", settings: map[string]string{"modal_config_path": both, "modal_profile": "three"}, fails: `"three"`},
		{name: "settings beat the file", settings: map[string]string{"modal_config_path": both, "modal_token_id": "ak-x", "modal_token_secret": "as-x", "modal_server_url": "http://x.example"}, server: "http://x.example", from: "--set"},
		{name: "half from each", settings: map[string]string{"modal_config_path": both, "modal_token_id": "ak-x"}, server: "https://two.example", from: "the secret from"},
		{name: "a broken file", settings: map[string]string{"modal_config_path": write("[")}, fails: "cannot be read"},
		{name: "an address that is none", settings: map[string]string{"modal_config_path": both, "modal_server_url": "modal.example"}, fails: "https://"},
		{name: "managed", settings: map[string]string{"modal_mode": "managed"}, fails: "gateway"},
	} {
		home := t.TempDir()
		flags := map[string]string{"backend": "modal"}
		for key, value := range c.settings {
			flags[key] = value
		}
		environ := []string{"HOME=" + home}
		cfg, err := config.Load(config.Options{Backends: []driver.Backend{Backend()}, Flags: flags, Environ: environ, Home: home})
		if err != nil {
			t.Fatal(err)
		}
		a, err := connect(driver.OpenRequest{Config: cfg, Environ: environ})
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "as-") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if a.server != c.server || !strings.Contains(a.from, c.from) {
			t.Errorf("%s: %s from %q", c.name, a.server, a.from)
		}
		a.close()
	}
}
