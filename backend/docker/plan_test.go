package docker

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// settings are the settings of a test, by key, as on the command line.
type settings map[string]string

// opening is an opening with these settings: an own HERMES_HOME and caller's home, and the process's PATH.
func opening(t testing.TB, set settings, environ ...string) driver.OpenRequest {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hermes := filepath.Join(home, ".hermes")
	project := filepath.Join(home, "project")
	for _, dir := range []string{hermes, project} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := append([]string{"HOME=" + home, "HERMES_HOME=" + hermes, "PATH=" + os.Getenv("PATH")}, environ...)
	flags := maps.Clone(set)
	if flags == nil {
		flags = settings{}
	}
	flags["backend"] = "docker"
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{local.Backend(), Backend()}, Flags: flags, Environ: env, Home: hermes, Dir: project})
	if err != nil {
		t.Fatal(err)
	}
	return driver.OpenRequest{
		Config: cfg, Task: "default", Environ: env, Dir: project, Logger: slog.New(slog.DiscardHandler),
		Identity: driver.Identity{ID: owner.NewID(), Profile: "default", Home: hermes, Owner: owner.NewID()},
	}
}

// anEngine is an engine that has everything.
func anEngine() system.Info {
	return system.Info{
		Driver: "overlay2", DriverStatus: [][2]string{{"Backing Filesystem", "extfs"}}, MemoryLimit: true, SwapLimit: true, CPUCfsQuota: true,
		PidsLimit: true, CgroupVersion: "2", CgroupDriver: "systemd", InitBinary: "docker-init", NCPU: 4, Architecture: "x86_64", OSType: "linux",
	}
}

// anImage is one whose settings are these.
func anImage(c dockerspec.DockerOCIImageConfig) *client.ImageInspectResult {
	image := &client.ImageInspectResult{}
	image.ID, image.Os, image.Architecture, image.Config = "sha256:0", "linux", "amd64", &c
	return image
}

// planned makes a plan as makePlan does, of an engine that is only described.
func planned(t testing.TB, req driver.OpenRequest, info system.Info, image *client.ImageInspectResult) (*planner, error) {
	t.Helper()
	b := newPlanner(req, image)
	b.info, b.engineHost, b.local = info, "unix:///var/run/docker.sock", true
	err := b.readArgs()
	if err == nil {
		err = b.chooseAccount(t.Context(), nil, image)
	}
	for _, step := range b.steps() {
		if err == nil {
			err = step()
		}
	}
	return b, err
}

func mustPlan(t testing.TB, req driver.OpenRequest) *planner {
	t.Helper()
	b, err := planned(t, req, anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (p *plan) featureState(name string) string {
	for _, f := range p.features {
		if f.Name == name {
			return string(f.State) + " " + f.Detail
		}
	}
	return "none"
}

func (p *plan) told(text string) bool {
	return slices.ContainsFunc(p.notices, func(n string) bool { return strings.Contains(n, text) })
}

func (p *plan) mountOn(target string) (mount.Mount, bool) {
	for _, m := range p.host.Mounts {
		if m.Target == target {
			return m, true
		}
	}
	return mount.Mount{}, false
}

// wantKind is about an error of this kind that holds all of the texts.
func wantKind(t testing.TB, err error, kind driver.Kind, texts ...string) {
	t.Helper()
	if kinderr.Of(err) != kind {
		t.Errorf("got %v, want a %s error", err, kind)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
	}
}

func TestADefaultContainerHasNoMoreThanItNeeds(t *testing.T) {
	b := mustPlan(t, opening(t, nil))
	h := b.p.host
	if got := strings.Join(h.CapDrop, " ") + "/" + strings.Join(h.CapAdd, " "); got != "ALL/CHOWN DAC_OVERRIDE FOWNER SETGID SETUID" {
		t.Error(got)
	}
	if !slices.Equal(h.SecurityOpt, []string{"no-new-privileges"}) || h.Privileged || h.ReadonlyRootfs || !*h.Init {
		t.Errorf("%+v", h)
	}
	if *h.PidsLimit != 2048 || h.NanoCPUs != 1e9 || h.Memory != 5120<<20 || h.MemorySwap != h.Memory || h.ShmSize != 1<<30 {
		t.Errorf("%+v", h.Resources)
	}
	want := map[string]string{
		"/tmp":     "rw,nosuid,nodev,exec,size=536870912,mode=1777",
		"/var/tmp": "rw,nosuid,nodev,noexec,size=268435456,mode=1777",
		"/run":     "rw,nosuid,nodev,noexec,size=67108864,mode=0755",
		stateRoot:  stateTmpfs,
	}
	if !maps.Equal(h.Tmpfs, want) {
		t.Errorf("%v", h.Tmpfs)
	}
	if b.p.home != "/root" || b.p.dir != "/root" || !b.p.data || !b.p.process {
		t.Errorf("%+v", b.p)
	}
	hermes := b.req.Identity.Home
	for target, name := range map[string]string{"/root": "home", "/workspace": "workspace"} {
		source := filepath.Join(hermes, "sandboxes", "docker", "default", name)
		if m, ok := b.p.mountOn(target); !ok || m.Source != source || m.ReadOnly || !slices.Contains(b.p.dataDirs, source) {
			t.Errorf("%s: %+v", target, m)
		}
	}
	if got := b.p.featureState("limit: disk"); !strings.HasPrefix(got, "unsupported the storage driver overlay2") || b.p.told("container_disk") {
		t.Errorf("disk: %s %q", got, b.p.notices)
	}
	if len(b.p.notices) != 0 {
		t.Errorf("%q", b.p.notices)
	}
}

func TestUsersAndTheirRights(t *testing.T) {
	for _, c := range []struct {
		image     string
		set       settings
		podman    bool
		rootless  bool
		user      string
		usernsKey string
		switches  bool
	}{
		{image: "", switches: true},
		{image: "root", switches: true},
		{image: "0:0", switches: true},
		{image: "", set: settings{"docker_run_as_host_user": "true"}, user: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())},
		{image: "", set: settings{"docker_run_as_host_user": "true"}, rootless: true, user: "0:0"},
		{image: "", set: settings{"docker_run_as_host_user": "true"}, rootless: true, podman: true, user: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), usernsKey: "keep-id"},
	} {
		req := opening(t, c.set)
		b := newPlanner(req, anImage(dockerspec.DockerOCIImageConfig{}))
		b.info, b.local, b.podman, b.rootless = anEngine(), true, c.podman, c.rootless
		b.args = &extraArgs{}
		b.user, b.hostUser, _ = chooseUser(req.Config, c.image, c.rootless, c.podman, os.Getuid(), os.Getgid())
		b.account = account{UID: number(strings.Split(or(b.user, "0"), ":")[0])}
		if b.user == "root" {
			b.account.UID = 0
		}
		b.setProcess()
		b.setSecurity()
		if got := slices.Contains(b.p.host.CapAdd, "SETUID"); got != c.switches || got != slices.Contains(b.p.host.CapAdd, "SETGID") {
			t.Errorf("%+v: %q", c, b.p.host.CapAdd)
		}
		if b.p.config.User != c.user || string(b.p.host.UsernsMode) != c.usernsKey {
			t.Errorf("%+v: user %q, %q", c, b.p.config.User, b.p.host.UsernsMode)
		}
	}
	if user, yes, notice := chooseUser(opening(t, settings{"docker_run_as_host_user": "true"}).Config, "x", false, false, -1, -1); user != "x" || yes || notice == "" {
		t.Errorf("where there are no user ids: %q %v %q", user, yes, notice)
	}
}

func TestPasswdIsLookedUpByNameAndId(t *testing.T) {
	const passwd = "root:x:0:0:root:/root:/bin/bash\nsomeone:x:1000:1001:,,,:/home/someone:/bin/bash\nnohome:x:7:7::/:/bin/sh\nbroken\n"
	for user, want := range map[string]account{
		"someone": {1000, 1001, "/home/someone"}, "1000": {1000, 1001, "/home/someone"}, "1000:5": {1000, 5, "/home/someone"},
		"nohome": {7, 7, ""}, "4242": {4242, 0, ""}, "4242:7": {4242, 7, ""}, "nobody": {-1, -1, ""},
	} {
		name, group, _ := strings.Cut(user, ":")
		if got := lookUp(passwd, name, group); got != want {
			t.Errorf("%s: %+v, want %+v", user, got, want)
		}
	}
}

func TestAnInitThatIsMissingOrTheImagesOwn(t *testing.T) {
	info := anEngine()
	info.InitCommit.ID = "N/A"
	b, err := planned(t, opening(t, nil), info, anImage(dockerspec.DockerOCIImageConfig{}))
	if err != nil || *b.p.host.Init || !b.p.told("docker-init") || !strings.HasPrefix(b.p.featureState("init"), "degraded") {
		t.Errorf("no docker-init: %v %q", err, b.p.notices)
	}
	var c dockerspec.DockerOCIImageConfig
	c.Entrypoint = []string{"/init"}
	b, err = planned(t, opening(t, nil), anEngine(), anImage(c))
	if err != nil || *b.p.host.Init || len(b.p.config.Entrypoint) != 0 || b.p.config.Cmd[0] != "bash" || !strings.Contains(b.p.host.Tmpfs["/run"], ",exec,") {
		t.Errorf("an s6 image: %v %+v %v", err, b.p.config, b.p.host.Tmpfs)
	}
	b = mustPlan(t, opening(t, settings{"docker_snap_compat": "true"}))
	if *b.p.host.Init || len(b.p.host.SecurityOpt) != 0 || !b.p.told("docker_snap_compat") || len(b.p.host.CapDrop) != 1 {
		t.Errorf("snap: %+v %q", b.p.host, b.p.notices)
	}
}

func TestReadOnlyRootKeepsOnlyMountsWritable(t *testing.T) {
	b := mustPlan(t, opening(t, settings{"docker_read_only": "true"}))
	if !b.p.host.ReadonlyRootfs || !strings.Contains(b.p.host.Tmpfs["/tmp"], "noexec") || !b.p.told("installing packages") {
		t.Errorf("%v %q", b.p.host.Tmpfs, b.p.notices)
	}
	b = mustPlan(t, opening(t, settings{"docker_read_only": "true", "docker_tmp_exec": "true"}))
	if !strings.Contains(b.p.host.Tmpfs["/tmp"], ",exec,") {
		t.Errorf("asked for: %v", b.p.host.Tmpfs)
	}
}

func TestTmpfsByTheirSettings(t *testing.T) {
	b := mustPlan(t, opening(t, settings{
		"docker_tmp_size": "2g", "docker_tmp_mode": "700", "docker_tmp_exec": "false", "docker_var_tmp_exec": "true", "docker_run_size": "0",
		"container_persistent": "false", "docker_home_size": "1m", "docker_workspace_exec": "false",
	}))
	for target, want := range map[string]string{
		"/tmp":       "rw,nosuid,nodev,noexec,size=2147483648,mode=700",
		"/var/tmp":   "rw,nosuid,nodev,exec,size=268435456,mode=1777",
		"/run":       "rw,nosuid,nodev,noexec,mode=0755",
		"/root":      "rw,nosuid,nodev,exec,size=1048576,mode=0755",
		"/home":      "rw,nosuid,nodev,exec,size=1048576,mode=0755",
		"/workspace": "rw,nosuid,nodev,noexec,size=10737418240,mode=0755",
	} {
		if got := b.p.host.Tmpfs[target]; got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if b.p.data || len(b.p.dataDirs) != 0 || len(b.p.host.Mounts) != 0 {
		t.Errorf("%+v", b.p)
	}
	b = newPlanner(opening(t, nil), anImage(dockerspec.DockerOCIImageConfig{}))
	if got := b.tmpfsOptions("home", 1000, 100); !strings.Contains(got, "uid=1000,gid=100") {
		t.Error(got)
	}
	b.args, b.account = &extraArgs{}, account{UID: 1000}
	b.setSecurity()
	if got := strings.Join(b.p.host.CapAdd, " "); got != "CHOWN DAC_OVERRIDE FOWNER" {
		t.Error(got)
	}
	b.p.host.CapAdd, b.podman = nil, true
	b.setSecurity()
	if len(b.p.host.CapAdd) != 0 {
		t.Errorf("Podman gives an ordinary user %q", b.p.host.CapAdd)
	}
	if !strings.HasSuffix(b.tmpfsOptions("home", 1000, 100), "exec,size=1073741824,U,mode=0755") {
		t.Error(b.tmpfsOptions("home", 1000, 100))
	}
}

func TestWhatIsThrownAwayIsNeverTheKeptOne(t *testing.T) {
	req := opening(t, settings{"docker_shared_container_key": "team"})
	kept := mustPlan(t, req).p
	req.ThrowAway = true
	away := mustPlan(t, req).p
	if away.name == kept.name || away.data || away.process || len(away.dataDirs) > 0 {
		t.Errorf("%+v", away)
	}
	req.Identity.Owner = owner.NewID()
	if mustPlan(t, req).p.name == away.name {
		t.Error("two processes share a throw-away container")
	}
}

func TestAThrowAwayContainerTellsOfTheSettingsOfTasks(t *testing.T) {
	req := opening(t, nil)
	req.ThrowAway, req.Identity.Home = true, ""
	p := mustPlan(t, req).p
	if got := p.featureState("data"); !strings.HasPrefix(got, "active kept for each task") || p.data {
		t.Errorf("data: %s", got)
	}
	if got := p.featureState("processes"); !strings.HasPrefix(got, "active") || p.process {
		t.Errorf("processes: %s", got)
	}
	req = opening(t, settings{"container_persistent": "false", "docker_persist_across_processes": "false"})
	req.ThrowAway = true
	p = mustPlan(t, req).p
	if got := p.featureState("data") + p.featureState("processes"); !strings.Contains(got, "container_persistent is off") || !strings.Contains(got, "docker_persist_across_processes is off") {
		t.Errorf("both off: %s", got)
	}
}

func TestHermesFindsTheSameFiles(t *testing.T) {
	for _, c := range []struct{ task, profile, shared, want string }{
		{"default", "default", "", "default"},
		{"default", "", "", "default"},
		{"build", "default", "", "build"},
		{"default", "work", "", "profile_work-"},
		{"default", "work", "team", "shared_team-"},
		{"a/b", "default", "", "a_b-"},
	} {
		req := driver.OpenRequest{Task: c.task, Identity: driver.Identity{Profile: c.profile}}
		if got := dataName(req, c.shared); !strings.HasPrefix(got, c.want) || c.want[len(c.want)-1] != '-' && got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	req := opening(t, settings{"sandbox_dir": "/data/boxes"})
	if dirs := mustPlan(t, req).p.dataDirs; !slices.Equal(dirs, []string{"/data/boxes/docker/default/home", "/data/boxes/docker/default/workspace"}) {
		t.Errorf("%q", dirs)
	}
}

func TestDataOfAnEngineElsewhereIsInItsVolumes(t *testing.T) {
	req := opening(t, nil)
	b := newPlanner(req, anImage(dockerspec.DockerOCIImageConfig{}))
	b.info, b.engineHost = anEngine(), "tcp://10.0.0.1:2376"
	if err := errors.Join(b.readArgs(), b.chooseAccount(t.Context(), nil, nil)); err != nil {
		t.Fatal(err)
	}
	for _, step := range b.steps() {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	m, _ := b.p.mountOn("/root")
	if m.Type != mount.TypeVolume || m.Source != b.p.name+"-home" || len(b.p.dataDirs) != 0 || len(b.p.volumes) != 2 || !b.p.told("another machine") {
		t.Errorf("%+v %+v", m, b.p)
	}
}

func TestX09NoNetworkIsNoRouteAtAll(t *testing.T) {
	b := mustPlan(t, opening(t, settings{"docker_network": "false"}))
	if b.p.host.NetworkMode != "none" || b.p.settings["network"] != "none" {
		t.Errorf("%s", b.p.host.NetworkMode)
	}
	b = mustPlan(t, opening(t, settings{"docker_network": "false", "docker_extra_args": "--network,none"}))
	if b.p.host.NetworkMode != "none" {
		t.Errorf("%s", b.p.host.NetworkMode)
	}
	for _, args := range []string{"--network,bridge", "--net=host", "-p,80:80"} {
		_, err := planned(t, opening(t, settings{"docker_network": "false", "docker_extra_args": args}), anEngine(), anImage(dockerspec.DockerOCIImageConfig{}))
		wantKind(t, err, driver.KindConfig, "docker_extra_args")
	}
	b = mustPlan(t, opening(t, settings{"docker_extra_args": "--network,host"}))
	if !strings.HasPrefix(b.p.featureState("network"), "degraded") || !b.p.told("network of the engine's machine") {
		t.Errorf("%q", b.p.notices)
	}
}

func TestEqualSettingsAreKnownAgainAndSecretsAreNotAmongThem(t *testing.T) {
	set := settings{
		"docker_env": `{"TOK": "s3cret"}`, "docker_extra_args": "-e,KEY=s3cret,--label,a=b", "docker_volumes": "vol:/data",
		"docker_forward_env": "FWD", "docker_tmp_mode": "1777", "docker_tmp_size": "512m",
	}
	req := opening(t, set, "FWD=s3cret")
	one, two := mustPlan(t, req).p, mustPlan(t, req).p
	if one.settings.Fingerprint() != two.settings.Fingerprint() || len(one.settings) < 20 {
		t.Errorf("%v\n%v", one.settings, two.settings)
	}
	if strings.Contains(one.settings.String(), "s3cret") || strings.Contains(fmt.Sprintf("%+v%+v", one.config, one.host), "s3cret") {
		t.Errorf("a secret: %s", one.settings)
	}
	if one.callEnv["TOK"] != "s3cret" || one.callEnv["KEY"] != "s3cret" || one.callEnv["FWD"] != "s3cret" {
		t.Errorf("%q", one.callEnv)
	}
	for key, value := range map[string]string{
		"docker_image": "other", "docker_volumes": "vol:/other", "container_memory": "100", "docker_network": "false", "docker_pids_limit": "90",
		"docker_extra_args": "--label,a=c", "docker_read_only": "true", "docker_home_size": "5m", "container_persistent": "false",
	} {
		changed := maps.Clone(set)
		changed[key] = value
		other := opening(t, changed, "FWD=s3cret")
		other.Identity = req.Identity
		if diff := mustPlan(t, other).p.settings.Diff(one.settings); !slices.Contains(diff, key) {
			t.Errorf("%s changed: %q", key, diff)
		}
	}
	changed := maps.Clone(set)
	changed["docker_env"] = `{"TOK": "changed"}`
	other := opening(t, changed, "FWD=changed")
	other.Identity = req.Identity
	if diff := mustPlan(t, other).p.settings.Diff(one.settings); len(diff) > 0 {
		t.Errorf("values of variables changed: %q", diff)
	}
}

func TestSkillsCachesAndCredentialsAreMountedReadOnly(t *testing.T) {
	req := opening(t, settings{"credential_files": "cred.json,.env,gone.json"})
	hermes := req.Identity.Home
	for _, name := range []string{"skills/x/SKILL.md", "cache/web/page", "cred.json", ".env"} {
		file := filepath.Join(hermes, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("A=1\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	b := mustPlan(t, req)
	for target, source := range map[string]string{
		"/root/.hermes": filepath.Join(b.p.staging, "files"), "/root/.hermes/skills": filepath.Join(hermes, "skills"),
		"/root/.hermes/cache/web": filepath.Join(hermes, "cache", "web"),
	} {
		if m, ok := b.p.mountOn(target); !ok || m.Source != source || !m.ReadOnly {
			t.Errorf("%s: %+v", target, m)
		}
	}
	if !strings.HasPrefix(b.p.staging, filepath.Join(hermes, "elsewhere", "staging", "elsewhere-")) || !b.p.told(".env") {
		t.Errorf("%s %q", b.p.staging, b.p.notices)
	}
	notices, err := b.p.refresh(t.Context())
	if err != nil || len(notices) != 1 || !strings.Contains(notices[0], "gone.json") {
		t.Errorf("%q %v", notices, err)
	}
	for _, dir := range []string{"skills", "cache/web"} {
		if !isDir(filepath.Join(b.p.staging, "files", dir)) {
			t.Errorf("nothing to mount %s on", dir)
		}
	}

	if b.p.told("cannot be read") {
		t.Errorf("root reads everything: %q", b.p.notices)
	}
	b.account.UID = os.Getuid() + 1
	b.setHermesFiles()
	if !b.p.told("skills cannot be read by the container's user") || !b.p.told("cache/web cannot") {
		t.Errorf("%q", b.p.notices)
	}

	b = mustPlan(t, opening(t, settings{"credential_files": "cred.json", "docker_skip_profile_mounts": "true"}))
	if b.p.refresh != nil || b.p.staging != "" {
		t.Error("docker_skip_profile_mounts mounts credential files")
	}
}

func TestTheContainersUserCanWriteToNewDataDirectories(t *testing.T) {
	for uid, mode := range map[int]os.FileMode{os.Getuid(): 0o700, 0: 0o700, -1: 0o777} {
		root := filepath.Join(t.TempDir(), "parent")
		p := &plan{dataUID: uid, dataDirs: []string{filepath.Join(root, "a", "home"), filepath.Join(root, "a", "workspace")}}
		for range 2 {
			if err := p.makeDataDirs(); err != nil {
				t.Fatal(err)
			}
		}
		for dir, want := range map[string]os.FileMode{root: 0o700, p.dataDirs[0]: mode, p.dataDirs[1]: mode} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
				t.Errorf("uid %d: %s is %v (%v), want %v", uid, dir, info.Mode(), err, want)
			}
		}
	}
	p := &plan{dataDirs: []string{filepath.Join(os.DevNull, "x")}}
	if err := p.makeDataDirs(); err == nil || !strings.Contains(err.Error(), "sandbox_dir") {
		t.Error(err)
	}
}
