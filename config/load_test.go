package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestTheStrongestLayerWins(t *testing.T) {
	w := world{
		yaml:   "terminal:\n  log_level: info\n",
		dotenv: "TERMINAL_LOG_LEVEL=error\n",
	}
	steps := []struct {
		name, want, origin string
		change             func()
	}{
		{"the default when nothing sets it", "warn", "default", func() { w.yaml, w.dotenv = "", "" }},
		{"the .env file over the default", "error", "TERMINAL_LOG_LEVEL in ~/.hermes/.env:1", func() { w.dotenv = "TERMINAL_LOG_LEVEL=error\n" }},
		{"config.yaml over the .env file", "info", "~/.hermes/config.yaml:2", func() { w.yaml = "terminal:\n  log_level: info\n" }},
		{"the environment over config.yaml", "debug", "TERMINAL_LOG_LEVEL", func() { w.env = []string{"TERMINAL_LOG_LEVEL=debug"} }},
		{"the command line over the environment", "off", "--set terminal.log_level", func() { w.flags = map[string]string{"terminal.log_level": "off"} }},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			cfg := w.mustLoad(t)
			if got := cfg.String("log_level"); got != step.want {
				t.Errorf("got %q, want %q", got, step.want)
			}
			if got := cfg.Origin("log_level"); got != step.origin {
				t.Errorf("origin is %q, want %q", got, step.origin)
			}
		})
	}
	v, err := w.mustLoad(t).Explain("terminal.log_level")
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Source{{"TERMINAL_LOG_LEVEL", "debug"}, {"~/.hermes/config.yaml:2", "info"}, {"TERMINAL_LOG_LEVEL in ~/.hermes/.env:1", "error"}}
	if !reflect.DeepEqual(v.Hidden, want) {
		t.Errorf("hidden is %v, want %v", v.Hidden, want)
	}
}

func TestValuesAreReadInTheFormOfTheirType(t *testing.T) {
	cfg := world{
		yaml: `terminal:
  auto_source_bashrc: "off"
  spawn_ahead: 3
  spawn_ahead_idle: 1m30s
  session_expiry: off
  daemon_term_grace_seconds: 0.5
  home_mode: isolated
  shell_init_files: [~/.one, "${MINE}/two"]
  env_passthrough:
    - A
    - B
  container_memory: 2g
  docker_env: {PORT: 80, ON: true, NOTHING: }
  docker_shm_size: ""
`,
		env: []string{"MINE=/mine", "TERMINAL_TEMP_DIR=tmp", "TERMINAL_DOCKER_VOLUMES=[\"/a:/b:ro,z\"]", "TERMINAL_DOCKER_FORWARD_ENV=X, Y"},
	}.mustLoad(t)
	check := func(what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	check("a switch", cfg.Bool("auto_source_bashrc"), false)
	check("a number", cfg.Int("spawn_ahead"), int64(3))
	check("a Go duration", cfg.Duration("spawn_ahead_idle"), 90*time.Second)
	check("off", cfg.Duration("session_expiry"), time.Duration(0))
	check("days", world{}.mustLoad(t).Duration("session_expiry"), 7*24*time.Hour)
	check("a fraction", cfg.Duration("daemon_term_grace_seconds"), 500*time.Millisecond)
	check("an older word", cfg.String("home_mode"), "profile")
	check("paths", cfg.Strings("shell_init_files"), []string{filepath.Dir(cfg.Home()) + "/.one", "/mine/two"})
	check("a list", cfg.Strings("env_passthrough"), []string{"A", "B"})
	check("megabytes", cfg.Bytes("container_memory"), int64(2<<30))
	check("a map", cfg.StringMap("docker_env"), map[string]string{"PORT": "80", "ON": "true", "NOTHING": ""})
	check("an empty size", cfg.Bytes("docker_shm_size"), int64(0))
	check("a relative path", cfg.String("temp_dir"), filepath.Join(filepath.Dir(cfg.Home()), "tmp"))
	check("JSON", cfg.Strings("docker_volumes"), []string{"/a:/b:ro,z"})
	check("commas", cfg.Strings("docker_forward_env"), []string{"X", "Y"})
}

func TestABadValueIsOneErrorThatNamesAll(t *testing.T) {
	cases := []struct {
		name string
		w    world
		want []string
	}{
		{"a word where seconds belong", world{env: []string{"TERMINAL_TIMEOUT=soon"}}, []string{"terminal.timeout", `"soon"`, "(TERMINAL_TIMEOUT)", "seconds", "unset"}},
		{"a negative duration", world{yaml: "terminal:\n  spawn_ahead_idle: -1\n"}, []string{"config.yaml:2", `"-1"`, "0 or more"}},
		{"no number at all", world{yaml: "terminal: {spawn_ahead_idle: .nan}"}, []string{`".nan"`}},
		{"NaN", world{flags: map[string]string{"spawn_ahead_idle": "NaN"}}, []string{"--set spawn_ahead_idle"}},
		{"infinity", world{flags: map[string]string{"spawn_ahead_idle": "Inf"}}, []string{"seconds"}},
		{"an overflow", world{flags: map[string]string{"spawn_ahead_idle": "1e300"}}, []string{"292 years"}},
		{"zero where there must be some", world{flags: map[string]string{"spawn_ahead_idle": "0"}}, []string{"more than 0"}},
		{"a word that is not in the list", world{dotenv: "\nTERMINAL_HOME_MODE=mine\n"}, []string{".env:2", "auto, real or profile"}},
		{"a switch that is neither", world{yaml: "terminal:\n  audit: maybe\n"}, []string{"true or false"}},
		{"a list where a switch belongs", world{yaml: "terminal:\n  audit: [true]\n"}, []string{"config.yaml:2", "a list", "true or false"}},
		{"a map where a list belongs", world{yaml: "terminal:\n  env_passthrough: {a: b}\n"}, []string{"a map", "a list of texts"}},
		{"a list in a list", world{yaml: "terminal:\n  env_passthrough: [[a]]\n"}, []string{"a list"}},
		{"bad JSON in a variable", world{env: []string{"TERMINAL_ENV=docker", "TERMINAL_DOCKER_EXTRA_ARGS=[1"}}, []string{"TERMINAL_DOCKER_EXTRA_ARGS", "JSON"}},
		{"a variable that is not set in a path", world{env: []string{"TERMINAL_TEMP_DIR=$NOWHERE/x"}}, []string{"$NOWHERE is not"}},
		{"an unknown backend", world{yaml: "terminal:\n  backend: dokcer\n"}, []string{`"dokcer"`, "config.yaml:2", "did you mean docker?", "singularity", "vercel"}},
		{"a backend that is a list", world{yaml: "terminal:\n  backend: [docker]\n"}, []string{"a list"}},
		{"an unknown key on the command line", world{flags: map[string]string{"docker_imgae": "x"}}, []string{"docker_imgae", "docker_image"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.w.load(t)
			wantError(t, err, c.want...)
		})
	}
}

func TestASecretIsNeverPrinted(t *testing.T) {
	const secret = "hunter2"
	w := world{env: []string{"TERMINAL_ENV=docker", "MODAL_TOKEN_SECRET=" + secret, `TERMINAL_DOCKER_ENV={"KEY":"` + secret + `"}`}, dotenv: "MODAL_TOKEN_SECRET=" + secret + "2\n"}
	cfg := w.mustLoad(t)
	if got := cfg.String("modal_token_secret"); got != secret {
		t.Errorf("the backend reads %q", got)
	}
	for _, v := range cfg.All() {
		if text := v.Value + v.Problem; strings.Contains(text, secret) {
			t.Errorf("%s shows %q", v.Key, text)
		}
		for _, h := range v.Hidden {
			if strings.Contains(h.Value, secret) {
				t.Errorf("%s shows hidden %q", v.Key, h.Value)
			}
		}
	}
	if v, _ := cfg.Explain("docker_env"); v.Value != "KEY=(secret)" {
		t.Errorf("docker_env shows %q", v.Value)
	}
	w.env[2] = `TERMINAL_DOCKER_ENV={"KEY":"` + secret
	_, err := w.load(t)
	wantError(t, err, "docker_env")
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error shows it: %v", err)
	}
}

func TestTheBackendAloneDecidesWhichKeysMatter(t *testing.T) {
	w := world{yaml: "terminal:\n  docker_image: left-over\n  docker_volumes: 7\n", env: []string{"TERMINAL_SSH_PORT=many", "TERMINAL_DOCKER_ENV={"}, built: true}
	cfg := w.mustLoad(t)
	if cfg.Name() != "local" {
		t.Errorf("docker keys chose %q", cfg.Name())
	}
	if got := cfg.Int("ssh_port"); got != 22 || cfg.IsSet("ssh_port") {
		t.Errorf("a bad value of another backend reads as %d", got)
	}
	if v, _ := cfg.Explain("ssh_port"); v.Problem == "" || v.Used {
		t.Errorf("explain says %+v", v)
	}
	_, _, err := cfg.Named("ssh")
	wantError(t, err, "terminal.ssh_port", "TERMINAL_SSH_PORT", "many")

	// F06: nor does a hint that this is a container, a CI or a far machine.
	hints := []string{"container=docker", "KUBERNETES_SERVICE_HOST=10.0.0.1", "SSH_CONNECTION=a 1 b 2", "CI=true", "REMOTE_CONTAINERS=true", "TERMINAL_ENV=docker"}
	if got := (world{env: hints, built: true}).mustLoad(t).Name(); got != "docker" {
		t.Errorf("a hint made %q of docker", got)
	}
}

func TestWarnings(t *testing.T) {
	cases := []struct {
		name string
		w    world
		want []string
	}{
		{"an unknown key names the nearest", world{yaml: "terminal:\n  docker_imagee: x\n"}, []string{"config.yaml:2", "docker_imagee", "docker_image"}},
		{"an older name", world{yaml: "terminal:\n  env_type: local\n"}, []string{"terminal.env_type", "terminal.backend"}},
		{"two origins that disagree", world{dotenv: "TERMINAL_ENV=docker", yaml: "terminal:\n  backend: local\n"}, []string{"docker", "local", ".env:1", "config.yaml:2", "wins"}},
		{"a setting that is not built", world{env: []string{"TERMINAL_DISK_WARNING_GB=5"}}, []string{"terminal.disk_warning_gb", "not built"}},
		{"a line of .env that is none", world{dotenv: "A=b\nwhat is this\n"}, []string{".env:2"}},
		{"a typo in a variable", world{env: []string{"TERMINAL_EVN=docker"}}, []string{"TERMINAL_EVN", "TERMINAL_ENV"}},
		{"a flat key", world{yaml: "terminal.backend: docker\n"}, []string{"terminal.backend"}},
		{"a setting at the top level", world{yaml: "docker_image: x\n"}, []string{"docker_image", "terminal:"}},
		{"a typo of terminal", world{yaml: "termnial:\n  backend: docker\n"}, []string{"termnial"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { wantWarning(t, c.w.mustLoad(t), c.want...) })
	}
}

func TestAUsualHermesHomeGivesNoWarning(t *testing.T) {
	cfg := world{
		yaml: `model: {default: x}
terminal:
  backend: local
  modal_mode: auto
  cwd: .
  timeout: 180
  daemon_term_grace_seconds: 2
  env_passthrough: []
  home_mode: auto
  shell_init_files: []
  auto_source_bashrc: true
  docker_image: nikolaik/python-nodejs:python3.11-nodejs20
  docker_forward_env: []
  docker_env: []
  ssh_host: null
  container_cpu: 1
  container_memory: 5120
  container_persistent: true
  persistent_shell: true
  lifetime_seconds: 300
web:
  backend: ''
proxy:
  enabled: false
  fail_on_uncovered_providers: true
`,
		dotenv: "OPENROUTER_API_KEY=x\nTERMINAL_TIMEOUT=180\n",
		env:    []string{"TERMINAL_EMULATOR=JediTerm", "TERMINAL_SSH_KEY="},
		built:  true,
	}.mustLoad(t)
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
}

func TestAnEnvFileThatOthersCanReadIsAWarning(t *testing.T) {
	o := world{dotenv: "A=b"}.options(t)
	file := filepath.Join(o.Dir, ".hermes", ".env")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	wantWarning(t, cfg, "~/.hermes/.env", "0644", "chmod 600")
}

func TestEnvFileIsDataAndStaysOutOfTheEnvironment(t *testing.T) {
	cfg := world{dotenv: "export TERMINAL_TEMP_DIR=\"/$(touch x)\"\n"}.mustLoad(t)
	if _, there := os.LookupEnv("TERMINAL_TEMP_DIR"); there {
		t.Error("the variable is in the process environment")
	}
	if got := cfg.Origin("temp_dir"); !strings.Contains(got, ".env:1") {
		t.Errorf("temp_dir comes from %q", got)
	}
}

func TestHomes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	write(t, file, "")
	load := func(env ...string) (*config.Config, error) {
		return config.Load(config.Options{Backends: backends(false), Environ: env, Dir: dir})
	}
	for _, c := range []struct {
		name, want string
		env        []string
	}{
		{"neither HOME nor HERMES_HOME", "", []string{}},
		{"HOME alone", dir + "/.hermes", []string{"HOME=" + dir}},
		{"a relative HERMES_HOME is made absolute", dir + "/sub", []string{"HERMES_HOME=sub"}},
		{"a HERMES_HOME with ~", "/u/h", []string{"HERMES_HOME=~/h", "HOME=/u"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(c.env...)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Home() != c.want {
				t.Errorf("home is %q, want %q", cfg.Home(), c.want)
			}
		})
	}
	_, err := load("HERMES_HOME=" + file)
	wantError(t, err, "HERMES_HOME", "a file, not a directory", "set HERMES_HOME")
}

func TestASettingThatIsNotBuiltAndConcernsPlaceRefusesToOpen(t *testing.T) {
	cases := []struct {
		name, backend string
		w             world
		want          string // "" is no error
	}{
		{"a network of docker on docker", "docker", world{yaml: "terminal: {container_network: x}"}, "terminal.container_network"},
		{"the same on local", "local", world{yaml: "terminal: {container_network: x}"}, ""},
		{"the same as the default", "docker", world{yaml: "terminal: {container_network: ''}"}, ""},
		{"a limit of docker on docker", "docker", world{yaml: "terminal: {container_memory: 100}"}, ""},
		{"a limit of local", "local", world{env: []string{"TERMINAL_LOCAL_MEMORY_MAX_MB=100"}}, "terminal.local_memory_max_mb"},
		{"egress anywhere", "local", world{yaml: "egress: {enabled: true}"}, "egress.enabled"},
		{"egress by Hermes' name", "ssh", world{yaml: "proxy: {enabled: true}"}, "egress.enabled"},
		{"nothing that concerns the place", "docker", world{yaml: "terminal: {docker_pull_timeout: 5}"}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.w.built = true
			cfg := c.w.mustLoad(t)
			_, b, err := cfg.Named(c.backend)
			if c.want == "" {
				if err != nil || b.Name != c.backend {
					t.Fatalf("got %q, %v", b.Name, err)
				}
				return
			}
			wantError(t, err, c.want)
			if kind := err.(*config.Error).Kind; kind != driver.KindUnsupported {
				t.Errorf("kind is %s", kind)
			}
		})
	}
	if !(world{yaml: "proxy: {enabled: yes}"}.mustLoad(t)).EgressEnabled() {
		t.Error("EgressEnabled is false")
	}
}

func TestTildeOfASandboxIsItsOwn(t *testing.T) {
	w := world{yaml: "terminal: {cwd: ~/work, ssh_host: h, ssh_user: u, shell_init_files: [$X/y]}", env: []string{"X=/x"}}
	cfg := w.mustLoad(t)
	if got, want := cfg.String("cwd"), filepath.Dir(cfg.Home())+"/work"; got != want {
		t.Errorf("local: %q, want %q", got, want)
	}
	remote, _, err := cfg.Named("ssh")
	if err != nil {
		t.Fatal(err)
	}
	if got := remote.String("cwd") + remote.Strings("shell_init_files")[0]; got != "~/work$X/y" {
		t.Errorf("ssh: %q", got)
	}
	for _, word := range []string{"auto", "cwd", "."} {
		if got := (world{env: []string{"TERMINAL_CWD=" + word}}).mustLoad(t).String("cwd"); got != "." {
			t.Errorf("%s reads as %q", word, got)
		}
	}
}

func TestAMistakenKeyOfTheProgramPanics(t *testing.T) {
	cfg := world{}.mustLoad(t)
	for name, read := range map[string]func(){
		"unknown": func() { cfg.String("nothing") },
		"alias":   func() { cfg.String("env_type") },
		"type":    func() { cfg.Bool("spawn_ahead") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			read()
		})
	}
}

func TestAConfigIsSafeForConcurrentUse(t *testing.T) {
	cfg := world{yaml: "terminal: {env_passthrough: [a], backends: {x: {backend: docker}}}"}.mustLoad(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			cfg.Strings("env_passthrough")[0] = "changed"
			_, _, _ = cfg.Named("x")
			cfg.All()
			cfg.Warnings()
		})
	}
	wg.Wait()
	if got := cfg.Strings("env_passthrough"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("a caller changed the list: %v", got)
	}
}
