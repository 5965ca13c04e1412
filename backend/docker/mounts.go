package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/moby/moby/api/types/mount"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/hermesfiles"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// claim says who mounts something on a target; two of the user's on one target are an error, and the user's beats ours.
func (b *planner) claim(target, who string) error {
	if below(target, stateRoot) {
		return failure(driver.KindConfig, "%s: %s is elsewhere's own directory; mount it somewhere else", who, target)
	}
	if below(target, "/proc") || target == "/sys" || target == "/dev" {
		return failure(driver.KindConfig, "%s: nothing can be mounted on %s, which is the kernel's own in every container; choose another target", who, target)
	}
	if other, ok := b.claims[target]; ok {
		return failure(driver.KindConfig, "%s: %s is mounted already by %s; drop one of the two", who, target, other)
	}
	b.claims[target] = who
	return nil
}

func (b *planner) claimed(target string) bool { _, ok := b.claims[target]; return ok }

// tmpfs mounts a tmpfs that is ours.
func (b *planner) tmpfs(target, options string) { b.p.host.Tmpfs[target] = options }

// bind mounts a directory of this machine that is ours; unlike a volume of the user's, one that is missing is an error of the
// engine and not made by it.
func (b *planner) bind(source, target string, readOnly bool) {
	b.p.host.Mounts = append(b.p.host.Mounts, mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly})
}

// isOurs notes that a mount is not the user's, who cannot be harmed through it.
func (b *planner) isOurs(source, target string) {
	if b.p.ours == nil {
		b.p.ours = map[string]string{}
	}
	b.p.ours[target] = source
}

// checkMounts refuses what would reach the engine as another path, and what Podman's interface for Docker takes apart at its commas:
// an engine would say so in words of its own.
func (b *planner) checkMounts() error {
	for _, m := range b.p.host.Mounts {
		if !utf8.ValidString(m.Source + m.Target) {
			return failure(driver.KindConfig, "%q cannot be mounted on %q: an engine takes no path that is not UTF-8; use another one (terminal.sandbox_dir is where the files of tasks are)", m.Source, m.Target)
		}
		if b.podman && strings.Contains(m.Source+m.Target, ",") {
			return failure(driver.KindConfig, "Podman cannot mount %s on %s: its interface for Docker takes no path with a comma; use another one (terminal.sandbox_dir is where the files of tasks are)", m.Source, m.Target)
		}
	}
	return nil
}

// setUserMounts takes docker_volumes and what docker_extra_args mounts.
func (b *planner) setUserMounts() error {
	key := "docker_volumes"
	for i, text := range b.cfg.Strings(key) {
		who := fmt.Sprintf("%s entry %d, %q (%s)", key, i+1, text, b.cfg.Origin(key))
		if strings.TrimSpace(text) == "" {
			return failure(driver.KindConfig, "%s: it is empty; write SOURCE:TARGET, or take it out", who)
		}
		v, err := parseVolume(text, b.env["HOME"])
		if err != nil {
			return failure(driver.KindConfig, "%s: %w", who, err)
		}
		if err := b.addVolume(v, who); err != nil {
			return err
		}
	}
	who := "docker_extra_args (" + b.cfg.Origin("docker_extra_args") + ")"
	for _, v := range b.args.volumes {
		if err := b.addVolume(v, who+": --volume "+v.bind()); err != nil {
			return err
		}
	}
	for _, m := range b.args.mounts {
		who := who + ": --mount on " + m.Target
		if err := b.claim(m.Target, who); err != nil {
			return err
		}
		if m.Type == mount.TypeBind {
			if err := b.addSource(m.Source, m.Target, m.ReadOnly, who); err != nil {
				return err
			}
		}
		b.p.host.Mounts = append(b.p.host.Mounts, m)
	}
	for target, options := range b.args.tmpfs {
		if err := b.claim(target, who+": --tmpfs "+target); err != nil {
			return err
		}
		b.tmpfs(target, options)
	}
	return nil
}

func (b *planner) addVolume(v volume, who string) error {
	if !utf8.ValidString(v.bind()) {
		return failure(driver.KindConfig, "%s: an engine takes no path that is not UTF-8; use another one", who)
	}
	if err := b.claim(v.target, who); err != nil {
		return err
	}
	if !v.named {
		if err := b.addSource(v.source, v.target, v.readOnly(), who); err != nil {
			return err
		}
	}
	b.p.host.Binds = append(b.p.host.Binds, v.bind())
	return nil
}

// addSource checks what a bind of the user's mounts, and notes what it means.
func (b *planner) addSource(source, target string, readOnly bool, who string) error {
	b.inside.mounts = append(b.inside.mounts, shared{source, target})
	if !b.local {
		return nil
	}
	resolved, err := filepath.EvalSymlinks(source)
	if errors.Is(err, fs.ErrNotExist) {
		return failure(driver.KindConfig, "%s: %s does not exist on this machine; make it first (the engine would make an empty directory that belongs to root)", who, source)
	}
	if err != nil {
		return failure(driver.KindConfig, "%s: %w", who, err)
	}
	socket := func(s string) bool { return s != "" && below(s, resolved) }
	switch name := path.Base(filepath.ToSlash(resolved)); {
	case slices.Contains(engineSockets, name), socket(resolve(strings.TrimPrefix(b.engineHost, "unix://"))), slices.ContainsFunc(socketPlaces, socket):
		// Read-only is no help: connecting is not writing.
		b.p.socket = true
		b.weaken("the engine's socket can be reached through " + target + " (" + source + "): what runs in there can do anything on the engine's machine")
	case slices.ContainsFunc(machinePlaces, func(dir string) bool { return below(resolved, dir) }), b.info.DockerRootDir != "" && below(resolved, b.info.DockerRootDir):
		b.weaken(source + " is mounted on " + target + ": through it what runs in there can reach into this machine")
	case slices.Contains(systemPlaces, resolved) && !readOnly:
		b.weaken(source + " of this machine is mounted on " + target + " and can be written to")
	}
	return nil
}

// engineSockets are the names of sockets through which a container is master of the engine's machine, and socketPlaces where
// they mostly are.
var (
	engineSockets = []string{"docker.sock", "podman.sock", "containerd.sock", "crio.sock"}
	socketPlaces  = []string{"/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"}
)

// machinePlaces are the kernel's settings and the machine's devices, whatever is mounted of them; systemPlaces are dangerous
// when they can be written to.
var (
	machinePlaces = []string{"/proc", "/sys", "/dev"}
	systemPlaces  = []string{"/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/root", "/var", "/var/lib", "/opt"}
)

// resolve follows the links of a path that may not be there.
func resolve(file string) string {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		return real
	}
	return file
}

// setData mounts home and workspace: directories that are kept, or tmpfs. What the user mounts there is left as it is.
func (b *planner) setData() error {
	if b.cfg.Bool("docker_mount_cwd_to_workspace") {
		dir, err := callerDir(b.cfg, b.req, b.account.Home)
		if err != nil {
			return err
		}
		if err := b.claim(workspace, "docker_mount_cwd_to_workspace"); err != nil {
			return err
		}
		b.bind(dir, workspace, false)
		b.inside.mounts = append(b.inside.mounts, shared{dir, workspace})
		b.inside.fallback = workspace
		b.p.settings["docker_mount_cwd_to_workspace"] = dir
	}
	switch {
	case !b.p.data:
		b.setTmpfsData()
		if b.req.ThrowAway && b.cfg.Bool("container_persistent") {
			b.feature("data", driver.Active, "kept for each task; this container is thrown away, with its files")
		} else {
			b.p.features = append(b.p.features, notKept)
		}
	case !b.local:
		b.setVolumeData()
	default:
		b.setKeptData()
	}
	return nil
}

// own are the places of the container that hold its user's files, by what they are called where they are kept.
func (b *planner) own() []shared {
	var free []shared
	for _, place := range []shared{{"home", b.account.Home}, {"workspace", workspace}} {
		if !b.claimed(place.target) {
			free = append(free, place)
		}
	}
	return free
}

func (b *planner) setTmpfsData() {
	uid, gid := b.account.UID, b.account.GID
	if !b.claimed(workspace) {
		b.tmpfs(workspace, b.tmpfsOptions("workspace", uid, gid))
	}
	for _, target := range []string{"/home", "/root"} {
		if !b.claimed(target) && target != b.account.Home && (target == "/home" || b.account.root()) {
			b.tmpfs(target, b.tmpfsOptions("home", -1, -1))
		}
	}
	if !b.claimed(b.account.Home) {
		b.tmpfs(b.account.Home, b.tmpfsOptions("home", uid, gid))
	}
}

// setKeptData binds directories of this machine. Hermes has them under the same names, so both find the same files.
func (b *planner) setKeptData() {
	root := b.cfg.String("sandbox_dir")
	if root == "" {
		root = filepath.Join(b.req.Identity.Home, "sandboxes")
	}
	dir := filepath.Join(root, "docker", dataName(b.req, b.cfg.String("docker_shared_container_key")))
	for _, place := range b.own() {
		source := filepath.Join(dir, place.source)
		b.bind(source, place.target, false)
		b.isOurs(source, place.target)
		b.p.dataDirs = append(b.p.dataDirs, source)
	}
	b.p.settings["data"] = dir
	if b.cfg.String("docker_shared_container_key") != "" && !b.req.ThrowAway {
		b.p.settings["data"] = "of whoever made it" // those who share it have homes of their own
	}
	b.p.features = append(b.p.features, keptIn(dir))
}

// dataName names the directory of a task's files as Hermes does: its default task is called after the shared key or the
// profile, where there is one.
func dataName(req driver.OpenRequest, sharedKey string) string {
	name := ""
	if sharedKey != "" {
		name = "shared:" + sharedKey
	} else if p := req.Identity.Profile; p != "" && p != "default" {
		name = "profile:" + p
	}
	switch {
	case name == "":
		name = req.Task
	case req.Task != "default":
		name += "/" + req.Task
	}
	return safename.Of(name)
}

// setVolumeData keeps the data in volumes of an engine that is on another machine.
func (b *planner) setVolumeData() {
	for _, place := range b.own() {
		name := b.p.name + "-" + place.source
		b.p.host.Mounts = append(b.p.host.Mounts, mount.Mount{Type: mount.TypeVolume, Source: name, Target: place.target})
		b.p.volumes = append(b.p.volumes, name)
		b.isOurs(name, place.target)
	}
	b.p.settings["data"] = "volumes"
	b.p.features = append(b.p.features, keptInVolumes(b.p.volumes))
}

// setHermesFiles mounts skills, caches and credential files below .hermes in the container's home.
func (b *planner) setHermesFiles() {
	home := b.req.Identity.Home
	names := b.cfg.Strings("credential_files")
	if home == "" || b.cfg.Bool("docker_skip_profile_mounts") {
		return
	}
	if !b.local {
		b.notice("the engine is on another machine: skills, caches and credential files of HERMES_HOME are not mounted")
		return
	}
	inside := path.Join(b.account.Home, ".hermes")
	mounts, notices := hermesfiles.Mounts(home)
	b.p.notices = append(b.p.notices, notices...)
	var on, places []string
	for _, m := range mounts {
		target := path.Join(inside, m.Target)
		if b.claimed(target) {
			continue
		}
		b.bind(m.Source, target, m.ReadOnly)
		if info, err := os.Stat(m.Source); err == nil && info.Mode().Perm()&0o005 != 0o005 && !b.reads() {
			b.notice(fmt.Sprintf("%s cannot be read by the container's user (%d); to let it: chmod -R o+rX %s", m.Target, b.account.UID, m.Source))
		}
		on = append(on, m.Target)
		places = append(places, m.Target+"="+m.Source)
	}
	b.p.settings["hermes_files"] = strings.Join(places, "\n")
	if len(names) == 0 || b.claimed(inside) {
		return
	}
	// A directory whose files are replaced is current inside, a file that is mounted is not; so .hermes is the staging
	// directory, with the rest mounted on it.
	staging, notices := hermesfiles.NewStaging(home, b.p.name, names, on)
	b.p.notices = append(b.p.notices, notices...)
	b.bind(staging.Dir(), inside, true)
	b.p.settings["credential_files"] = "staged"
	b.p.staging, b.p.refresh = filepath.Dir(staging.Dir()), staging.Refresh
}

// reads tells whether the container's user reads what only the caller may.
func (b *planner) reads() bool { return b.account.root() || b.account.UID == os.Getuid() }

// makeDataDirs makes the directories of this machine that hold the container's files: their parents for nobody else, they
// themselves for the container's user. One that is there is left as it is.
func (p *plan) makeDataDirs() error {
	for _, dir := range p.dataDirs {
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return fmt.Errorf("the directory for the sandbox's files cannot be made: %w; set sandbox_dir to one that can", err)
		}
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) && isDir(dir) {
			continue
		}
		if err == nil {
			err = p.giveData(dir)
		}
		if err != nil {
			return fmt.Errorf("the directory for the sandbox's files cannot be made: %w", err)
		}
	}
	return nil
}

// giveData lets the container's user write to a new directory. Its parents keep everybody else out.
func (p *plan) giveData(dir string) error {
	if p.dataUID == os.Getuid() || p.dataUID == 0 {
		return nil
	}
	if p.dataUID > 0 && os.Getuid() == 0 {
		return os.Chown(dir, p.dataUID, p.dataGID)
	}
	return os.Chmod(dir, 0o777)
}
