package docker

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// firstProcess is what the container's first process runs: it lasts until TERM, in any image that has bash. Under an init it
// becomes a sleep where there is one, since that is the smaller process; the number is as long as any sleep takes. Without an
// init bash stays: as process 1 it reaps, and its trap makes it end on TERM, which process 1 otherwise ignores. It waits by
// reading from a pipe that it holds both ends of.
const firstProcess = `trap 'exit 0' TERM INT
if [ $$ -ne 1 ] && type -P sleep >/dev/null; then trap - TERM INT; exec sleep 2147483647; fi
exec 9<> <(:)
while :; do read -r -u 9; done`

// s6Inits are the entrypoints of images that bring an init of their own, which has to be process 1.
var s6Inits = []string{"/init", "/package/admin/s6-overlay/command/init"}

// isS6 tells whether an image's entrypoint is such an init.
func isS6(entrypoint []string) bool {
	return len(entrypoint) > 0 && slices.Contains(s6Inits, entrypoint[0])
}

// baseCaps are the capabilities that come back after all were dropped: without them root in the container could not unpack
// an archive or install a package. switchCaps are for an init that drops its rights.
var (
	baseCaps   = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER"}
	switchCaps = []string{"SETGID", "SETUID"}
)

// setProcess sets the first process, its init and its user.
func (b *planner) setProcess() {
	config, host := b.p.config, b.p.host
	run := []string{"bash", "-p", "-c", firstProcess}
	config.WorkingDir = "/"
	if b.health {
		config.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}} // the image's own asks after a program that is not run
	}
	snap := b.cfg.Bool("docker_snap_compat")
	init := false
	switch {
	case b.s6:
		config.Cmd = run
		b.feature("init", driver.Active, "the image's own ("+b.entrypoint[0]+")")
	case snap:
		b.feature("init", driver.Unsupported, "switched off by docker_snap_compat; bash reaps")
	case !b.hasInit():
		b.feature("init", driver.Degraded, "the engine has no docker-init; bash reaps")
		b.notice("the engine has no docker-init: bash is the container's first process; install it (package tini or docker-init) and make the container again")
	default:
		init = true
		b.feature("init", driver.Active, "the engine's")
	}
	host.Init = &init
	if !b.s6 {
		// An image may stop by another signal, which bash does not take.
		config.Entrypoint, config.StopSignal = run, "SIGTERM"
	}
	// What holds of a throw-away container says nothing of what the settings do for a task.
	b.p.features = append(b.p.features, processFeature(b.cfg.Bool("docker_persist_across_processes")))
	b.setUser()
}

// hasInit tells whether the engine can run an init. Podman names none and brings catatonit.
func (b *planner) hasInit() bool {
	return b.podman || b.info.InitBinary != "" && b.info.InitCommit.ID != "N/A"
}

// setUser runs the container as the caller where docker_run_as_host_user says so.
func (b *planner) setUser() {
	user := b.user
	switch {
	case b.hostUser && b.rootless && b.podman:
		b.p.host.UsernsMode = "keep-id"
		b.p.config.User = user
	case b.hostUser:
		b.p.config.User = user
	}
	detail := "the image's: " + or(user, "root")
	if b.hostUser {
		detail = "yours: " + user
	}
	if b.account.root() && b.rootless {
		detail += "; root in there is you outside (rootless engine)"
	}
	b.feature("user", driver.Active, detail)
}

// chooseUser gives the user that the container runs as: the caller, or what the image says. Yes tells that it is the caller.
func chooseUser(cfg driver.Config, image string, rootless, podman bool, uid, gid int) (user string, yes bool, notice string) {
	if !cfg.Bool("docker_run_as_host_user") {
		return image, false, ""
	}
	if uid < 0 {
		return image, false, "docker_run_as_host_user has no effect on " + runtime.GOOS + ": there are no user ids to run as"
	}
	if rootless && !podman {
		// There, root inside is the caller outside, and any other id is nobody's.
		return "0:0", true, ""
	}
	return strconv.Itoa(uid) + ":" + strconv.Itoa(gid), true, ""
}

// setSecurity drops capabilities and new privileges. What docker_extra_args takes back was allowed and is told.
func (b *planner) setSecurity() {
	host := b.p.host
	host.CapDrop = []string{"ALL"}
	if b.account.root() || !b.podman {
		// Podman gives an ordinary user what is added; with Docker it is only what such a user's programs could ever have.
		host.CapAdd = slices.Clone(baseCaps)
	}
	if b.account.root() && !b.hostUser {
		host.CapAdd = append(host.CapAdd, switchCaps...)
	}
	for _, name := range b.args.capAdd {
		if !slices.Contains(host.CapAdd, name) {
			host.CapAdd = append(host.CapAdd, name)
		}
	}
	slices.Sort(host.CapAdd)
	host.Privileged = b.args.privileged
	switch {
	case b.args.privileged:
		b.feature("capabilities", driver.Unsupported, "all: privileged by docker_extra_args")
	case len(b.args.capAdd) > 0:
		b.feature("capabilities", driver.Degraded, strings.Join(host.CapAdd, ", "))
	default:
		b.feature("capabilities", driver.Active, "kept: "+or(strings.Join(host.CapAdd, ", "), "none"))
	}
	if b.cfg.Bool("docker_snap_compat") {
		b.feature("no-new-privileges", driver.Unsupported, "switched off by docker_snap_compat")
		b.notice("docker_snap_compat is on: the container has no init, and its programs may gain privileges (setuid)")
	} else {
		host.SecurityOpt = []string{"no-new-privileges"}
		b.feature("no-new-privileges", driver.Active, "")
	}
	host.SecurityOpt = append(host.SecurityOpt, b.args.security...)
	host.PidMode, host.IpcMode = container.PidMode(b.args.pid), container.IpcMode(b.args.ipc)
	if len(b.args.unsafe) > 0 {
		b.weaken("the container's isolation is weakened by docker_extra_args: " + strings.Join(b.args.unsafe, ", "))
	}
	if len(b.weak) > 0 {
		b.feature("isolation", driver.Degraded, strings.Join(b.weak, "; "))
	} else {
		b.feature("isolation", driver.Active, "a container of its own")
	}
	b.setRoot()
}

// setRoot makes the root file system read-only where docker_read_only says so.
func (b *planner) setRoot() {
	if !b.cfg.Bool("docker_read_only") {
		b.feature("root file system", driver.Active, "can be written to")
		return
	}
	b.p.host.ReadonlyRootfs = true
	b.feature("root file system", driver.Active, "read-only")
	b.notice("docker_read_only is on: only mounts and tmpfs can be written to, so installing packages in the container fails")
}

// tmpfsOptions are the options of the tmpfs whose size, mode and exec are settings (docker_NAME_size ...). Owner, where it is
// not -1, is the uid that it belongs to.
func (b *planner) tmpfsOptions(name string, owner, group int) string {
	exec := b.cfg.Bool("docker_" + name + "_exec")
	if name == "tmp" && b.cfg.Bool("docker_read_only") && !b.cfg.IsSet("docker_tmp_exec") {
		exec = false
	}
	if name == "run" && b.s6 {
		exec = true // its init puts programs there
	}
	mode := b.cfg.String("docker_" + name + "_mode")
	opts := []string{"rw", "nosuid", "nodev", "noexec"}
	if exec {
		opts[3] = "exec"
	}
	if n := b.cfg.Bytes("docker_" + name + "_size"); n > 0 {
		opts = append(opts, fmt.Sprintf("size=%d", n))
	}
	if owner > 0 {
		if b.podman {
			opts = append(opts, "U") // gives it to the container's user
		} else {
			opts = append(opts, fmt.Sprintf("uid=%d,gid=%d", owner, max(group, 0)))
		}
	}
	return strings.Join(append(opts, "mode="+mode), ",")
}

// stateTmpfs are the options of the tmpfs for state files. Whoever the container's user is makes directories of mode 0700 in
// it.
const stateTmpfs = "rw,nosuid,nodev,noexec,size=67108864,mode=1777"

// setTmpfs mounts the system's temporary directories where nothing else is mounted. Those for everybody belong to the
// container's user: where the image has the directory, runc up to 1.1 gives the tmpfs its mode and ignores what is asked for,
// so a /tmp that is 0755 in the image would be closed to an ordinary user.
func (b *planner) setTmpfs() {
	uid, gid := b.account.UID, b.account.GID
	for _, t := range []struct {
		target, name string
		uid, gid     int
	}{{"/tmp", "tmp", uid, gid}, {"/var/tmp", "var_tmp", uid, gid}, {"/run", "run", -1, -1}} {
		if !b.claimed(t.target) {
			b.tmpfs(t.target, b.tmpfsOptions(t.name, t.uid, t.gid))
		}
	}
	b.tmpfs(stateRoot, stateTmpfs)
}

func hostIDs() (uid, gid int) { return os.Getuid(), os.Getgid() }
