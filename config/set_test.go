package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
)

func TestSetChangesOneSettingAndNothingElse(t *testing.T) {
	const before = `# my settings

model:
    default: x   # the usual

terminal:
  # where it runs
  backend: "local"   # for now

  cwd: 'it''s here' # odd
  docker_env: {A: b}
  timeout:
  shell_init_files:
    - ~/.a   # first
    - ~/.b
other: [1,   2]
`
	cases := []struct {
		name, key, value string
		from, to         string // the change in the text
	}{
		{"a quoted text", "backend", "docker", `"local"   # for now`, `docker   # for now`},
		{"a single-quoted text", "cwd", "/x", `'it''s here' # odd`, `/x # odd`},
		{"a text that YAML would take for something else", "terminal.cwd", "no", `'it''s here'`, `"no"`},
		{"a new key", "audit", "off", "terminal:\n", "terminal:\n  audit: false\n"},
		{"a new key of a new group", "egress.enforce", "no", "other: [1,   2]\n", "other: [1,   2]\negress:\n  enforce: false\n"},
		{"a new entry", "backends.gpu.1.ssh_host", "10.0.0.1", "terminal:\n", "terminal:\n  backends:\n    gpu.1:\n      ssh_host: 10.0.0.1\n"},
		{"a list over a long one", "shell_init_files", "a,b", ":\n    - ~/.a   # first\n    - ~/.b\n", ": [a, b]\n"},
		{"a value where there was none", "timeout", "20", "timeout:", "timeout: 20"},
		{"a map in flow style", "docker_env", `{"B": "c: d"}`, "{A: b}", "{B: 'c: d'}"},
	}
	for _, c := range cases {
		for _, eol := range []string{"\n", "\r\n"} {
			t.Run(fmt.Sprintf("%s %q", c.name, eol), func(t *testing.T) {
				o := world{yaml: strings.ReplaceAll(before, "\n", eol)}.options(t)
				if _, err := config.Set(o, c.key, c.value); err != nil {
					t.Fatal(err)
				}
				got := read(t, filepath.Join(o.Dir, ".hermes", "config.yaml"))
				want := strings.ReplaceAll(strings.Replace(before, c.from, c.to, 1), "\n", eol)
				if got != want {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
				if _, err := config.Load(o); err != nil {
					t.Errorf("Load: %v", err)
				}
			})
		}
	}
}

func TestAFileThatMustBeWrittenAnewKeepsCommentsAndOrder(t *testing.T) {
	o := world{yaml: "# top\n\nz: 1 # z\nterminal: {audit: true,\n  cwd: x} # t\n# end\n"}.options(t)
	if _, err := config.Set(o, "log_level", "info"); err != nil {
		t.Fatal(err)
	}
	got := read(t, filepath.Join(o.Dir, ".hermes", "config.yaml"))
	at := 0
	for _, part := range []string{"# top", "z: 1", "# z", "log_level: info", "audit: true", "cwd: x", "# end"} {
		next := strings.Index(got[at:], part)
		if next < 0 {
			t.Fatalf("%q is lost or moved:\n%s", part, got)
		}
		at += next
	}
}

func TestWhatSetWritesLoadReads(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"cwd", "", "."}, {"cwd", "a: b # c", "a: b # c"}, {"cwd", "two\nlines", "two\nlines"}, {"cwd", "~x", "~x"}, {"cwd", "- a", "- a"},
		{"ssh_user", "null", "null"}, {"ssh_user", "0x10", "0x10"}, {"ssh_user", "ünï", "ünï"}, {"ssh_user", "*x", "*x"},
		{"env_passthrough", `["a b", "c,d", "true"]`, `["a b","c,d","true"]`}, {"env_passthrough", "", ""},
		{"docker_env", `{"A": "1", "B": "yes\nno"}`, `{"A":"1","B":"yes\nno"}`}, {"docker_env", "", ""},
		{"session_expiry", "off", "0"}, {"spawn_ahead_idle", "90s", "90s"}, {"audit", "ON", "true"}, {"backend", "docker", "docker"},
		{"daemon_term_grace_seconds", "1.50", "1.50"}, {"sync_back", "off", "off"}, {"container_memory", "2g", "2g"},
	} {
		for name, yaml := range map[string]string{
			"no file": "", "an empty map": "terminal: {}\n", "flow style": "terminal: {audit: true, cwd: x}\n", "null": "terminal:\n",
			"no last line end": "a: b", "an anchor": "terminal: &t\n  audit: true\nx: *t\n", "a BOM": "\ufeffterminal:\n  cwd: ü\n",
			"a block text": "terminal:\n  cwd: |\n    a\n    b\n  audit: true\n", "a document mark": "---\nterminal:\n    audit: on\n...\n",
		} {
			t.Run(name+" "+c.key+" "+c.value, func(t *testing.T) {
				o := world{yaml: yaml}.options(t)
				if _, err := config.Set(o, c.key, c.value); err != nil {
					t.Fatal(err)
				}
				cfg, err := config.Load(o)
				if err != nil {
					t.Fatal(err)
				}
				if got := cfg.String(c.key); got != c.want {
					t.Errorf("read %q, want %q; the file:\n%s", got, c.want, read(t, filepath.Join(cfg.Home(), "config.yaml")))
				}
			})
		}
	}
}

func TestSetRefusesWhatLoadWouldRefuse(t *testing.T) {
	cases := []struct {
		name, yaml, key, value string
		want                   []string
	}{
		{"a bad value", "", "audit", "maybe", []string{"terminal.audit", `"maybe"`, "true or false", "nothing was written"}},
		{"an unknown key", "", "docker_imgae", "x", []string{"docker_image"}},
		{"an entry of a map", "", "policy.rules.force-push", "allow", []string{"policy.rules is one", `policy.rules '{"force-push":"VALUE"}'`}},
		{"an unknown backend", "", "backend", "gpu1", []string{`"gpu1"`, "local"}},
		{"an unknown key of an entry", "", "backends.a.nothing", "x", []string{"no such setting"}},
		{"an entry with a backend's name", "", "backends.docker.ssh_host", "x", []string{`"docker"`}},
		{"an entry of an entry", "terminal: {backends: {a: {backend: ssh}}}", "backends.b.backend", "a", []string{`"a"`}},
		{"all entries at once", "", "backends", "x", []string{"backends.NAME.KEY"}},
		{"a bad file", "terminal: [\n", "audit", "on", []string{"not YAML"}},
		{"a list where terminal belongs", "terminal: []\n", "audit", "on", []string{"config.yaml:1"}},
		{"a map that is shared", "x: &x {audit: true}\nterminal: *x\n", "audit", "off", []string{"config.yaml:2", "no map of its own"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := world{yaml: c.yaml}.options(t)
			_, err := config.Set(o, c.key, c.value)
			wantError(t, err, c.want...)
			if got, _ := os.ReadFile(filepath.Join(o.Dir, ".hermes", "config.yaml")); string(got) != c.yaml {
				t.Errorf("the file is %q", got)
			}
		})
	}
	_, err := config.Set(config.Options{Backends: backends(false), Environ: []string{}}, "audit", "on")
	wantError(t, err, "no HERMES_HOME")
	o := world{yaml: "terminal: {backends: {gpu1: {backend: ssh}}}"}.options(t)
	if _, err := config.Set(o, "backend", "gpu1"); err != nil {
		t.Errorf("an entry of the file: %v", err)
	}
}

func TestSetMakesPrivateFilesAndKeepsModesAndLinks(t *testing.T) {
	o := world{}.options(t)
	home := filepath.Join(o.Dir, ".hermes")
	file := filepath.Join(home, "config.yaml")
	if _, err := config.Set(o, "audit", "on"); err != nil {
		t.Fatal(err)
	}
	mode := func(name string) os.FileMode {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if mode(home) != 0o700 || mode(file) != 0o600 {
		t.Errorf("modes are %o and %o", mode(home), mode(file))
	}
	for name, text := range map[string]string{"a link": "a: b\n", "a link to nothing yet": ""} {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "real.yaml")
			if text != "" {
				write(t, target, text)
				if err := os.Chmod(target, 0o640); err != nil {
					t.Fatal(err)
				}
			}
			os.Remove(file)
			if err := os.Symlink(target, file); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Set(o, "audit", "off"); err != nil {
				t.Fatal(err)
			}
			if to, err := os.Readlink(file); err != nil || to != target {
				t.Errorf("config.yaml is no link any more: %v", err)
			}
			if got, want := read(t, target), text+"terminal:\n  audit: false\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if want := map[bool]os.FileMode{true: 0o640, false: 0o600}[text != ""]; mode(target) != want {
				t.Errorf("mode is %o, want %o", mode(target), want)
			}
		})
	}
}

func TestTwoWritersLoseNoEdit(t *testing.T) {
	o := world{yaml: "# kept\n"}.options(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := config.Set(o, fmt.Sprintf("backends.b%d.backend", i), "ssh"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	cfg, err := config.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(cfg.Names()) - len(cfg.Backends()); got != 20 {
		t.Errorf("%d of 20 edits are there:\n%s", got, read(t, filepath.Join(cfg.Home(), "config.yaml")))
	}
	left, _ := filepath.Glob(filepath.Join(cfg.Home(), ".config.yaml.*"))
	if len(left) > 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSetSaysWhatKeepsTheValueFromMattering(t *testing.T) {
	o := world{env: []string{"TERMINAL_CWD=/x"}}.options(t)
	for key, want := range map[string]string{"cwd": "TERMINAL_CWD", "modal_token_secret": ".env", "disk_warning_gb": "not built"} {
		warnings, err := config.Set(o, key, "5")
		if err != nil || !strings.Contains(strings.Join(warnings, "\n"), want) {
			t.Errorf("%s: %q, %v", key, warnings, err)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
