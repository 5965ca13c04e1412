package config_test

import (
	"slices"
	"strings"
	"testing"
)

const namedYAML = `terminal:
  ssh_port: 2222
  ssh_user: top
  ssh_connect_timeout: 7
  backends:
    gpu1: {backend: ssh, ssh_host: gpu1.lan, ssh_port: 22}
    box: {backend: docker, docker_image: mine}
    sif: {backend: apptainer}
    none: {ssh_host: x}
    odd: {backend: gpu1}
    bad: {backend: ssh, ssh_host: "-oProxyCommand=x"}
`

func TestANamedEntryWinsAndTheRestFillsOnlyWhatItLeavesOpen(t *testing.T) {
	w := world{yaml: namedYAML, env: []string{"TERMINAL_SSH_HOST=other", "TERMINAL_SSH_PORT=99", "TERMINAL_SSH_KEY=/key", "TERMINAL_DOCKER_IMAGE=other"}}
	view, b, err := w.mustLoad(t).Named("gpu1")
	if err != nil {
		t.Fatal(err)
	}
	if b.Name != "ssh" || view.Name() != "gpu1" || view.String("backend") != "ssh" {
		t.Errorf("got backend %q, name %q, backend setting %q", b.Name, view.Name(), view.String("backend"))
	}
	for key, want := range map[string]string{
		"ssh_host": "gpu1.lan", "ssh_port": "22", "ssh_connect_timeout": "7",
		"ssh_user": "", "ssh_key": "", // never from a variable or a top-level key
	} {
		if got := view.String(key); got != want {
			t.Errorf("%s is %q, want %q (from %s)", key, got, want, view.Origin(key))
		}
	}
	if got := view.Origin("ssh_host"); got != "~/.hermes/config.yaml:6" {
		t.Errorf("the origin is %q", got)
	}
	if sif, b, err := view.Named("sif"); err != nil || b.Name != "singularity" || sif.Name() != "sif" {
		t.Errorf("an alias in an entry: %q, %v", b.Name, err)
	}
}

func TestTheCommandLineBeatsANamedEntry(t *testing.T) {
	cfg := world{yaml: namedYAML, flags: map[string]string{"ssh_host": "here", "ssh_port": "5", "backend": "gpu1"}}.mustLoad(t)
	view, b, err := cfg.Named("")
	if err != nil || b.Name != "ssh" {
		t.Fatal(b.Name, err)
	}
	if got := view.String("ssh_host") + ":" + view.String("ssh_port"); got != "here:5" {
		t.Errorf("got %s", got)
	}
	if got := view.String("backend"); got != "ssh" {
		t.Errorf("backend is %q", got)
	}
}

func TestTheBackendSettingMayHoldANamedEntry(t *testing.T) {
	cfg := world{yaml: namedYAML, env: []string{"TERMINAL_ENV=box"}}.mustLoad(t)
	if got := cfg.Name() + " " + cfg.String("docker_image"); got != "box mine" {
		t.Errorf("got %q", got)
	}
}

func TestNamesThatNameNothingAreErrors(t *testing.T) {
	cfg := world{yaml: namedYAML}.mustLoad(t)
	cases := []struct {
		name string
		want []string
	}{
		{"gpu2", []string{`"gpu2"`, "did you mean gpu1?", "local, docker", "box"}},
		{"none", []string{"terminal.backends.none", "names no backend", "config.yaml:9"}},
		{"odd", []string{"terminal.backends.odd.backend", `"gpu1"`, "local, docker"}},
		{"bad", []string{"terminal.ssh_host", "config.yaml:11", "dash"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := cfg.Named(c.name)
			wantError(t, err, c.want...)
		})
	}
	if got := cfg.Names(); !slices.Contains(got, "gpu1") || got[0] != "local" {
		t.Errorf("names are %v", got)
	}
	if b, err := cfg.Backend("apptainer"); err != nil || b.Name != "singularity" {
		t.Errorf("an alias: %q, %v", b.Name, err)
	}
	if view, b, err := cfg.Named("vercel_sandbox"); err != nil || b.Name != "vercel" || view.Name() != "vercel" {
		t.Errorf("an alias: %q, %v", b.Name, err)
	}
	if view, _, err := cfg.Named("docker"); err != nil || view.String("backend") != "docker" || view.Origin("backend") != "chosen by name" {
		t.Errorf("a backend by name: %v", err)
	}
}

func TestEntriesWithImpossibleNamesAreErrors(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"the name of a backend":    {"{docker: {backend: ssh}}", "that of a backend"},
		"an alias of a backend":    {"{apptainer: {backend: ssh}}", "that of a backend"},
		"a name with a space":      {"{'a b': {backend: ssh}}", "not allowed"},
		"a name that is too long":  {"{" + strings.Repeat("a", 64) + ": {backend: ssh}}", "not allowed"},
		"a name with a dash first": {"{-a: {backend: ssh}}", "not allowed"},
		"an entry that is a list":  {"{a: [ssh]}", "a list"},
		"a list of entries":        {"[a, b]", "a list"},
		"the same name twice":      {"{a: {backend: ssh}, a: {backend: docker}}", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := world{yaml: "terminal:\n  backends: " + c.yaml + "\n"}.load(t)
			wantError(t, err, c.want, "config.yaml:2")
		})
	}
}

func TestAnUnknownKeyOfAnEntryIsAWarning(t *testing.T) {
	cfg := world{yaml: "terminal:\n  backends:\n    a: {backend: ssh, ssh_hots: x}\n"}.mustLoad(t)
	wantWarning(t, cfg, "terminal.backends.a.ssh_hots", "ssh_host")
}
