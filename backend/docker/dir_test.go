package docker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestD11APathOfThisMachineIsNotUsedInTheContainer(t *testing.T) {
	in := insides{
		home: "/root", fallback: "/root", caller: "/srv/homes/me",
		targets: []string{"/root", "/workspace", "/data"},
		mounts:  []shared{{"/home/me/src", "/data"}, {`C:\Work`, "/work"}},
		isDir:   func(name string) bool { return strings.HasPrefix(name, "/home/me") },
	}
	for cwd, want := range map[string]string{
		"": "/root", ".": "/root", "~": "/root", "~/a b": "/root/a b",
		"/root/x": "/root/x", "/workspace": "/workspace", "/opt/app/": "/opt/app", "/data/../etc": "/etc", "/": "/", "/tmp": "/tmp",
		"/home/other": "/home/other", "/homes": "/homes",
		"/home/me/src": "/data", "/home/me/src/deep": "/data/deep", `C:\Work\x`: "/work/x", "c:/work/x": "/work/x",
		// Replaced:
		`D:\proj`: "!", "D:/proj": "!", "d:": "!", `\\server\share`: "!", "//server/share": "!", "/Users/me/p": "!", "./x": "!", "..": "!", "sub": "!",
		"/home/me/other": "!", "/srv/homes/me": "!", "/srv/homes/me/x": "!", "~someone": "!", "/mnt/c/x": "!", "/Volumes/x": "!", `C:\Workshop`: "!",
	} {
		dir, notice := in.startDir(cwd)
		if want == "!" {
			if dir != "/root" || !strings.Contains(notice, "/root is used") {
				t.Errorf("%q: %q, told %q", cwd, dir, notice)
			}
		} else if dir != want || notice != "" {
			t.Errorf("%q: %q, told %q; want %q", cwd, dir, notice, want)
		}
	}
}

func TestD11OneWarningInThePlan(t *testing.T) {
	for _, cwd := range []string{`D:\proj`, "/Users/me/p"} {
		b := mustPlan(t, opening(t, settings{"cwd": cwd}))
		if b.p.dir != "/root" || len(b.p.notices) != 1 || !b.p.told(cwd[:2]) {
			t.Errorf("%s: %s %q", cwd, b.p.dir, b.p.notices)
		}
	}
	if b := mustPlan(t, opening(t, settings{"cwd": "."})); b.p.dir != "/root" || len(b.p.notices) != 0 {
		t.Errorf(".: %s %q", b.p.dir, b.p.notices)
	}
}

func TestX08AHomeDirectoryIsNeverMountedAsTheWorkspace(t *testing.T) {
	homes := []string{"/srv/people/me", "/srv/people/me/.hermes", "", "relative"}
	for _, dir := range []string{
		"/", "/root", "/home", "/home/me", "/Users/me", "/Users", "C:/Users/me", "/etc", "/etc/ssh", "/usr", "/proc/1", "/dev/shm", "/var", "/run/user/1000",
		"/srv/people/me", "/srv/people", "/srv", "/srv/people/me/.hermes", "/var/run/x", "/boot", "/mnt",
	} {
		if mountable(dir, homes) == nil {
			t.Errorf("%s is mounted", dir)
		}
	}
	for _, dir := range []string{"/home/me/project", "/root/project", "/srv/people/me/project", "/srv/other", "/opt/app", "/usr/src/app", "/srv/people/me2", "/tmp/x", "/data"} {
		if err := mountable(dir, homes); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestX08TheCallersDirectoryIsMountedOnlyWhenAskedAndSafe(t *testing.T) {
	on := settings{"docker_mount_cwd_to_workspace": "true"}
	req := opening(t, on)
	home := environment(req.Environ)["HOME"]
	b := mustPlan(t, req)
	if m, ok := b.p.mountOn("/workspace"); !ok || m.Source != req.Dir || m.ReadOnly || b.p.dir != "/workspace" || len(b.p.dataDirs) != 1 {
		t.Errorf("%+v %+v", m, b.p)
	}
	if b := mustPlan(t, opening(t, nil)); slices.ContainsFunc(b.p.host.Mounts, func(m mount.Mount) bool { return m.Source == b.req.Dir }) {
		t.Error("mounted unasked")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{home, filepath.Dir(home), "/", req.Identity.Home, link, "/etc", "/root", "", filepath.Join(home, "missing")} {
		req := req
		req.Dir = dir
		_, err := planned(t, req, anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
		wantKind(t, err, driver.KindConfig, "docker_mount_cwd_to_workspace")
	}

	// A directory of this machine in the setting cwd counts, one of the container does not.
	other := t.TempDir()
	b = mustPlan(t, opening(t, settings{"docker_mount_cwd_to_workspace": "true", "cwd": other}))
	if m, _ := b.p.mountOn("/workspace"); m.Source != other || b.p.dir != "/workspace" || len(b.p.notices) > 0 {
		t.Errorf("%+v %q %q", m, b.p.dir, b.p.notices)
	}
	b = mustPlan(t, opening(t, settings{"docker_mount_cwd_to_workspace": "true", "cwd": "/workspace/sub"}))
	if m, _ := b.p.mountOn("/workspace"); m.Source != b.req.Dir || b.p.dir != "/workspace/sub" {
		t.Errorf("%+v %q", m, b.p.dir)
	}
	_, err := planned(t, opening(t, settings{"docker_mount_cwd_to_workspace": "true", "docker_volumes": "vol:/workspace"}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
	wantKind(t, err, driver.KindConfig, "docker_volumes entry 1")
}

func TestHomesOfPeopleAreToldFromThoseOfServices(t *testing.T) {
	mine := t.TempDir()
	passwd := filepath.Join(t.TempDir(), "passwd")
	text := "root:x:0:0::/root:/bin/bash\ndaemon:x:1:1::/usr:/usr/sbin/nologin\nme:x:1000:1000::" + mine + ":/bin/bash\nold:x:1001:1::/nowhere:/bin/sh\nx\n"
	if err := os.WriteFile(passwd, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	homes := userHomes(passwd)
	if !slices.Contains(homes, mine) || slices.Contains(homes, "/usr") || slices.Contains(homes, "/nowhere") {
		t.Errorf("%q", homes)
	}
	if homes := userHomes(filepath.Join(mine, "missing")); homes != nil {
		t.Errorf("%q", homes)
	}
}

func TestVariablesReachCallsAndNeverTheContainer(t *testing.T) {
	req := opening(t, settings{
		"docker_env":         `{"A": "1", "BOTH": "env", "GH_TOKEN": "x", "no-name": "x"}`,
		"docker_forward_env": "BOTH,FILE,EMPTY,MISSING,SUDO_PASSWORD,GITHUB_TOKEN, SPACED ",
		"docker_extra_args":  "-e,ARG=2,--env,FROM_CALLER",
		"env_passthrough":    "MISTRAL_API_KEY,TELEGRAM_BOT_TOKEN,NOT_THERE",
	}, "BOTH=forward", "EMPTY=", "SUDO_PASSWORD=p", "FROM_CALLER=3", "MISTRAL_API_KEY=m", "TELEGRAM_BOT_TOKEN=t", "UNNAMED=u", "SPACED=s",
		"GITHUB_TOKEN=g", "_HERMES_FORCE_GITHUB_TOKEN=forced", "_HERMES_FORCE_SUDO_PASSWORD=p")
	env := "FILE=from file\nexport EMPTY='also from file'\nBOTH=file\nUNASKED=x\n"
	if err := os.WriteFile(filepath.Join(req.Identity.Home, ".env"), []byte(env), 0o600); err != nil {
		t.Fatal(err)
	}
	b := mustPlan(t, req)
	want := map[string]string{
		"A": "1", "BOTH": "forward", "FILE": "from file", "EMPTY": "also from file", "ARG": "2", "FROM_CALLER": "3", "MISTRAL_API_KEY": "m", "SPACED": "s",
		"GITHUB_TOKEN": "forced", "GH_TOKEN": "x",
	}
	for name, value := range want {
		if b.p.callEnv[name] != value {
			t.Errorf("%s is %q, want %q", name, b.p.callEnv[name], value)
		}
	}
	if len(b.p.callEnv) != len(want) {
		t.Errorf("%q", b.p.callEnv)
	}
	for _, text := range []string{"no-name", "MISSING is set neither", "SUDO_PASSWORD is never", "TELEGRAM_BOT_TOKEN is never"} {
		if !b.p.told(text) {
			t.Errorf("no notice says %q: %q", text, b.p.notices)
		}
	}
	if b.p.told("NOT_THERE") {
		t.Errorf("%q", b.p.notices)
	}
	if !slices.Equal(b.p.config.Env, []string{"HOME=/root"}) {
		t.Errorf("%q", b.p.config.Env)
	}
}

func TestX04KeysOfTheAgentDoNotReachAContainerUnasked(t *testing.T) {
	b := mustPlan(t, opening(t, nil, "OPENAI_API_KEY=x", "OPENAI_BASE_URL=x", "AWS_SECRET_ACCESS_KEY=x"))
	if len(b.p.callEnv) != 0 || !slices.Equal(b.p.config.Env, []string{"HOME=/root"}) {
		t.Errorf("%q %q", b.p.callEnv, b.p.config.Env)
	}
	if _, err := os.Stat(b.p.staging); !errors.Is(err, os.ErrNotExist) && b.p.staging != "" {
		t.Error(err)
	}
}

func TestAMountThatReachesIntoTheMachineIsTold(t *testing.T) {
	here := t.TempDir()
	for volume, told := range map[string]string{
		"/run:/s:ro":              "socket",
		"/:/h:ro":                 "socket",
		"/proc:/hp:ro":            "reach into this machine",
		"/sys/kernel:/k:ro":       "reach into this machine",
		"/etc:/e":                 "can be written to",
		"/etc:/e:ro":              "",
		here + ":/mine":           "",
		"/etc/hostname:/name:ro":  "",
		"a-volume:/var/lib/thing": "",
	} {
		b := mustPlan(t, opening(t, settings{"docker_volumes": `["` + volume + `"]`}))
		if told == "" && (b.p.told("socket") || b.p.told("reach into") || b.p.told("can be written to")) || told != "" && !b.p.told(told) {
			t.Errorf("%s: want %q in %q", volume, told, b.p.notices)
		}
	}
	mount := mustPlan(t, opening(t, settings{"docker_extra_args": `["--mount=type=bind,src=/,dst=/h,readonly"]`}))
	if !mount.p.told("socket") {
		t.Errorf("--mount: %q", mount.p.notices)
	}
	if _, err := parseExtraArgs([]string{"--ulimit=locks=5:5"}, "/", false); err == nil || !strings.Contains(err.Error(), "locks") {
		t.Errorf("the limit that marks a call's processes: %v", err)
	}
}
