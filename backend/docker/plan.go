package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

// plan is all that is asked of the engine for one container, and what is to be told about it.
type plan struct {
	name string // the container's

	config  *container.Config
	host    *container.HostConfig
	network *network.NetworkingConfig

	// settings are what the container is known again by; they become labels with the rest of config.Labels.
	settings kept.Settings

	// data says that files outlive the container, process that the container outlives this process.
	data, process bool
	// dataDirs are directories on this machine that hold its files. They are made, with mode 0700 parents, before the
	// container is (makeDataDirs).
	dataDirs []string

	home string // the home directory inside; "" is what the image's user has
	dir  string // where a new session starts

	callEnv map[string]string // see driver.Info.CallEnv

	// refresh brings what is mounted from this machine up to date (credential files); nil where there is nothing. It is
	// called before the container is made and before each call.
	refresh func(ctx context.Context) (notices []string, err error)

	features []driver.Feature
	notices  []string

	// asked are the settings of the user's that the engine may mean when it refuses the container, for people; hidden are
	// directories of the image, where its programs are, that a mount of the user's hides.
	asked, hidden []string

	// ours are the mounts that are not the user's: what is mounted, by target. socket says that one of the user's leads to the
	// engine's socket.
	ours   map[string]string
	socket bool

	// volumes are volumes of an engine on another machine that hold its files, in place of dataDirs.
	volumes []string
	// staging is a directory on this machine that goes with the container; "" for none.
	staging string
	// dataUID and dataGID are whom dataDirs are for; -1 is not known.
	dataUID, dataGID int
}

// stateRoot is where the tmpfs for state files is mounted in every container.
const stateRoot = "/run/elsewhere"

// foreignHome is the home of a user that the image does not know.
const foreignHome = "/home/elsewhere"

// planner turns settings into a plan, one subject at a time.
type planner struct {
	cfg driver.Config
	req driver.OpenRequest
	env map[string]string // the caller's environment

	info       system.Info
	engineHost string
	podman     bool
	rootless   bool
	local      bool // the engine runs on this machine and sees its files

	entrypoint []string // the image's
	imageEnv   map[string]string
	s6         bool
	health     bool   // the image checks its health
	user       string // as which the container runs; "" is root
	hostUser   bool   // it is the caller
	account    account

	args   *extraArgs
	claims map[string]string // who mounts what, by target
	weak   []string          // what weakens the isolation
	inside insides
	p      *plan
}

func (b *planner) notice(text string) { b.p.notices = append(b.p.notices, text) }

func (b *planner) weaken(text string) {
	b.weak = append(b.weak, text)
	b.notice(text)
}

func (b *planner) feature(name string, state driver.FeatureState, detail string) {
	b.p.features = append(b.p.features, driver.Feature{Name: name, State: state, Detail: detail})
}

// makePlan turns the settings into a plan. It makes nothing that stays.
func makePlan(ctx context.Context, eng *client.Client, req driver.OpenRequest, image *client.ImageInspectResult) (*plan, error) {
	b := newPlanner(req, image)
	if err := b.askEngine(ctx, eng); err != nil {
		return nil, err
	}
	if err := checkPlatform(b.p.config.Image, image, b.info, emulated); err != nil {
		return nil, err
	}
	if err := b.readArgs(); err != nil {
		return nil, err
	}
	if err := b.chooseAccount(ctx, eng, image); err != nil {
		return nil, err
	}
	for _, step := range b.steps() {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := b.checkNamed(ctx, eng); err != nil {
		return nil, err
	}
	return b.p, nil
}

// checkNamed asks for what docker_extra_args names on the engine's machine and the engine would miss only when it starts the
// container.
func (b *planner) checkNamed(ctx context.Context, eng *client.Client) error {
	bad := func(format string, args ...any) error {
		return failure(driver.KindConfig, "docker_extra_args (%s): %s", b.cfg.Origin("docker_extra_args"), fmt.Sprintf(format, args...))
	}
	if name := b.args.network; name != "" && !slices.Contains([]string{"none", "host", "bridge", "default"}, name) && !(b.podman && slices.Contains([]string{"slirp4netns", "pasta", "private"}, name)) {
		if _, err := eng.NetworkInspect(ctx, name, client.NetworkInspectOptions{}); cerrdefs.IsNotFound(err) {
			return bad("--network %s: the engine has no such network; make it (docker network create %s), or name another (docker network ls)", name, name)
		}
	}
	if name := b.args.runtime; name != "" && len(b.info.Runtimes) > 0 {
		if _, ok := b.info.Runtimes[name]; !ok && !b.podman {
			return bad("--runtime %s: the engine has no such runtime; it has %s", name, strings.Join(slices.Sorted(maps.Keys(b.info.Runtimes)), ", "))
		}
	}
	for _, d := range b.args.devices {
		if _, err := os.Stat(d.PathOnHost); b.local && errors.Is(err, fs.ErrNotExist) {
			return bad("--device %s: there is no such device on this machine; see ls /dev", d.PathOnHost)
		}
		if below(d.PathInContainer, "/proc") || below(d.PathInContainer, "/sys") {
			return bad("--device %s: no device can be made at %s in a container; choose a name in /dev", d.PathOnHost, d.PathInContainer)
		}
	}
	return nil
}

// asked names the settings of the user's that the engine may mean when it refuses the container.
func (b *planner) asked() []string {
	var named []string
	for _, key := range append(slices.Clone(sizesInMemory), "docker_volumes", "docker_extra_args", "docker_mount_cwd_to_workspace", "docker_run_as_host_user",
		"docker_pids_limit", "container_cpu", "container_disk", "docker_read_only", "docker_tmp_mode", "docker_var_tmp_mode", "docker_run_mode",
		"docker_workspace_mode", "docker_home_mode") {
		if b.cfg.IsSet(key) {
			named = append(named, key+" ("+b.cfg.Origin(key)+")")
		}
	}
	return named
}

// steps fill the plan once engine, arguments and account are known, without asking anybody.
func (b *planner) steps() []func() error {
	return []func() error{
		b.setUserMounts, b.setData, b.setLimits, b.setNetwork,
		func() error {
			b.setHermesFiles()
			b.setTmpfs()
			b.setProcess()
			b.setSecurity()
			b.setExtras()
			b.setDir()
			b.setEnv()
			b.setSettings()
			b.p.asked, b.p.hidden = b.asked(), b.hiding()
			slices.SortStableFunc(b.p.features, func(x, y driver.Feature) int { return strings.Compare(x.Name, y.Name) })
			return b.checkMounts()
		},
	}
}

func newPlanner(req driver.OpenRequest, image *client.ImageInspectResult) *planner {
	cfg := req.Config
	b := &planner{cfg: cfg, req: req, env: environment(req.Environ), claims: map[string]string{}}
	if image.Config != nil {
		b.entrypoint, b.user = image.Config.Entrypoint, image.Config.User
		b.imageEnv = environment(image.Config.Env)
		b.health = image.Config.Healthcheck != nil
	}
	b.s6 = isS6(b.entrypoint)
	key := cfg.String("docker_shared_container_key")
	id := req.Identity
	if req.ThrowAway {
		// Never the one that is kept for the task.
		id.ID, key = id.ID+"\x00"+id.Owner, ""
	}
	b.p = &plan{
		name:     kept.Name(id, key, req.Task),
		config:   &container.Config{Image: cfg.String("docker_image"), Labels: map[string]string{}},
		host:     &container.HostConfig{Tmpfs: map[string]string{}},
		settings: kept.Settings{},
		data:     cfg.Bool("container_persistent") && !req.ThrowAway,
		process:  cfg.Bool("docker_persist_across_processes") && !req.ThrowAway,
	}
	if b.p.data && id.Home == "" && cfg.String("sandbox_dir") == "" {
		b.p.data = false
		b.notice("files are not kept beyond the container: there is no HERMES_HOME to keep them in")
	}
	return b
}

// askEngine finds out what the engine is and has.
func (b *planner) askEngine(ctx context.Context, eng *client.Client) error {
	info, err := eng.Info(ctx, client.InfoOptions{})
	if err != nil {
		return fmt.Errorf("asking the engine what it has: %w", err)
	}
	version, err := eng.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return fmt.Errorf("asking the engine its version: %w", err)
	}
	b.info, b.engineHost = info.Info, eng.DaemonHost()
	b.podman = slices.ContainsFunc(version.Components, func(c system.ComponentVersion) bool { return strings.Contains(c.Name, "Podman") })
	b.rootless = slices.ContainsFunc(info.Info.SecurityOptions, func(s string) bool { return strings.Contains(s, "name=rootless") })
	b.local = strings.HasPrefix(b.engineHost, "unix://") || strings.HasPrefix(b.engineHost, "npipe://")
	return nil
}

func (b *planner) readArgs() (err error) {
	const key = "docker_extra_args"
	b.args, err = parseExtraArgs(b.cfg.Strings(key), b.env["HOME"], b.cfg.Bool("docker_allow_unsafe_args"))
	if err != nil {
		return failure(driver.KindConfig, "%s (%s): %w", key, b.cfg.Origin(key), err)
	}
	return nil
}

// chooseAccount finds the user, its ids and its home.
func (b *planner) chooseAccount(ctx context.Context, eng *client.Client, image *client.ImageInspectResult) error {
	uid, gid := hostIDs()
	var notice string
	b.user, b.hostUser, notice = chooseUser(b.cfg, b.user, b.rootless, b.podman, uid, gid)
	if notice != "" {
		b.notice(notice)
	}
	found, err := findAccount(ctx, eng, image, b.user, b.req.Identity.Home)
	if err != nil {
		return err
	}
	if home := b.imageEnv["HOME"]; path.IsAbs(home) && path.Clean(home) != "/" && !b.hostUser {
		found.Home = path.Clean(home)
	}
	if found.Home == "" {
		found.Home = foreignHome
	}
	b.account = found
	// An engine would take "/" for a user that the image does not know.
	b.p.config.Env = []string{"HOME=" + found.Home}
	b.p.home, b.p.dataUID, b.p.dataGID = found.Home, found.UID, found.GID
	if found.root() && slices.ContainsFunc(b.info.SecurityOptions, func(s string) bool { return strings.Contains(s, "name=userns") }) {
		b.p.dataUID, b.p.dataGID = -1, -1 // root in there is somebody else out here
	}
	if b.rootless && !found.root() && !b.hostUser {
		b.p.dataUID, b.p.dataGID = -1, -1
	}
	b.inside = insides{
		home: found.Home, fallback: found.Home, caller: or(b.env["HOME"], b.env["USERPROFILE"]),
		isDir: func(name string) bool { return b.local && isDir(name) },
	}
	return nil
}

func (b *planner) setLimits() error {
	l, err := planLimits(b.cfg, b.info, storageLimit(b.info, b.podman, b.local))
	if err != nil {
		return err
	}
	host := b.p.host
	host.NanoCPUs, host.Memory = l.nanoCPUs, l.memory
	if l.memory > 0 && l.swap {
		host.MemorySwap = l.memory
	}
	if l.pids > 0 {
		host.PidsLimit = &l.pids
	}
	if l.disk > 0 {
		host.StorageOpt = map[string]string{"size": fmt.Sprint(l.disk)}
	}
	host.ShmSize = b.cfg.Bytes("docker_shm_size")
	if b.args.shm >= 0 {
		if b.cfg.IsSet("docker_shm_size") && host.ShmSize != b.args.shm {
			return failure(driver.KindConfig, "docker_shm_size (%s) and --shm-size in docker_extra_args (%s) contradict each other; drop one of the two",
				b.cfg.Origin("docker_shm_size"), b.cfg.Origin("docker_extra_args"))
		}
		host.ShmSize = b.args.shm
	}
	b.p.features = append(b.p.features, l.features...)
	b.p.notices = append(b.p.notices, l.notices...)
	return nil
}

func (b *planner) setNetwork() error {
	mode := b.args.network
	if !b.cfg.Bool("docker_network") {
		if mode != "" && mode != "none" {
			return failure(driver.KindConfig, "docker_network (%s) is off, and docker_extra_args (%s) has --network %s; drop one of the two",
				b.cfg.Origin("docker_network"), b.cfg.Origin("docker_extra_args"), mode)
		}
		mode = "none"
	}
	if mode == "none" && len(b.args.ports) > 0 {
		return failure(driver.KindConfig, "docker_extra_args (%s) publishes ports of a container that has no network", b.cfg.Origin("docker_extra_args"))
	}
	b.p.host.NetworkMode = container.NetworkMode(mode)
	b.p.features = append(b.p.features, networkFeature(mode))
	if mode == "host" {
		b.weaken("the container has the network of the engine's machine, by docker_extra_args")
	}
	return nil
}

// setExtras sets what docker_extra_args asks for and nothing else decides.
func (b *planner) setExtras() {
	host, config, a := b.p.host, b.p.config, b.args
	maps.Copy(config.Labels, a.labels)
	config.Hostname, config.ExposedPorts = a.hostname, a.exposed
	host.DeviceRequests, host.Devices = a.gpus, a.devices
	host.ExtraHosts, host.DNS, host.Ulimits = a.hosts, a.dns, a.ulimits
	host.PortBindings, host.Runtime = a.ports, a.runtime
	for _, d := range a.devices {
		b.notice("the device " + d.PathOnHost + " of the engine's machine is in the container, by docker_extra_args")
	}
}

// hiding are the mounts of the user's that hide the image's programs and libraries.
func (b *planner) hiding() []string {
	var hidden []string
	for _, target := range slices.Sorted(maps.Keys(b.claims)) {
		if slices.Contains([]string{"/bin", "/lib", "/lib64", "/sbin", "/usr", "/usr/bin", "/usr/lib", "/usr/sbin"}, target) {
			hidden = append(hidden, target)
		}
	}
	return hidden
}

func (b *planner) setDir() {
	b.inside.targets = append(slices.Collect(maps.Keys(b.claims)), b.account.Home, workspace)
	dir, notice := b.inside.startDir(b.cfg.String("cwd"))
	b.p.dir = dir
	if notice != "" {
		b.notice(notice)
	}
}

func (b *planner) setEnv() {
	vars, notices := callVars(b.cfg, b.req, b.args)
	b.p.callEnv = vars
	b.p.notices = append(b.p.notices, notices...)
}

// What the container is known again by, besides what the steps above noted.
var (
	settingTexts = []string{"docker_image"}
	settingBools = []string{
		"docker_network", "docker_read_only", "docker_snap_compat", "docker_run_as_host_user", "docker_allow_unsafe_args",
		"docker_skip_profile_mounts", "docker_var_tmp_exec", "docker_run_exec", "docker_workspace_exec", "docker_home_exec",
	}
	settingSizes = []string{
		"container_memory", "container_disk", "docker_shm_size", "docker_tmp_size", "docker_var_tmp_size", "docker_run_size",
		"docker_workspace_size", "docker_home_size",
	}
	settingModes = []string{"docker_tmp_mode", "docker_var_tmp_mode", "docker_run_mode", "docker_workspace_mode", "docker_home_mode"}
)

// maxSetting is how long a value may be that is kept as it is; of a longer one its hash is.
const maxSetting = 200

// setSettings notes by what the container is known again. Values of variables are not among it: they reach each call anew.
func (b *planner) setSettings() {
	s, cfg := b.p.settings, b.cfg
	for _, key := range settingTexts {
		s[key] = cfg.String(key)
	}
	for _, key := range settingBools {
		s[key] = strconv.FormatBool(cfg.Bool(key))
	}
	for _, key := range settingSizes {
		s[key] = strconv.FormatInt(cfg.Bytes(key), 10)
	}
	for _, key := range settingModes {
		s[key] = strings.TrimLeft(cfg.String(key), "0")
	}
	s["container_cpu"] = strconv.FormatFloat(cfg.Float("container_cpu"), 'g', -1, 64)
	s["docker_pids_limit"] = strconv.FormatInt(cfg.Int("docker_pids_limit"), 10)
	s["docker_tmp_exec"] = strconv.FormatBool(!strings.Contains(b.tmpfsOptions("tmp", -1, -1), "noexec"))
	s["container_persistent"] = strconv.FormatBool(b.p.data)
	s["network"] = string(b.p.host.NetworkMode)
	if b.hostUser {
		s["docker_run_as_host_user"] = b.user
	}
	volumes := slices.Clone(b.p.host.Binds)
	slices.Sort(volumes)
	s["docker_volumes"] = strings.Join(volumes, "\n")
	s["docker_extra_args"] = strings.Join(b.args.canon, "\n")
	for key, value := range s {
		if len(value) > maxSetting {
			sum := sha256.Sum256([]byte(value))
			s[key] = "sha256:" + hex.EncodeToString(sum[:16])
		}
	}
}
