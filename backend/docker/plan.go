package docker

import (
	"context"
	"path/filepath"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
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
	// container is.
	dataDirs []string

	home string // the home directory inside; "" is what the image's user has
	dir  string // where a new session starts

	callEnv map[string]string // see driver.Info.CallEnv

	// refresh brings what is mounted from this machine up to date (credential files); nil where there is nothing. It is
	// called before the container is made and before each call.
	refresh func(ctx context.Context) (notices []string, err error)

	features []driver.Feature
	notices  []string
}

// stateRoot is where the tmpfs for state files is mounted in every container.
const stateRoot = "/run/elsewhere"

// mainScript is the container's main process: it waits for ever, by builtins where the image has no sleep.
const mainScript = `type -P sleep >/dev/null && exec sleep infinity
trap 'exit 0' TERM
exec 3<> <(:)
while :; do read -r -t 3600 -u 3; done`

// ensureImage inspects the image.
func ensureImage(ctx context.Context, eng *client.Client, req driver.OpenRequest) (*client.ImageInspectResult, error) {
	image, err := eng.ImageInspect(ctx, req.Config.String("docker_image"))
	return &image, err
}

// makePlan turns the settings into a plan. It makes nothing.
func makePlan(_ context.Context, _ *client.Client, req driver.OpenRequest, image *client.ImageInspectResult) (*plan, error) {
	cfg := req.Config
	init, pids := true, cfg.Int("docker_pids_limit")
	p := &plan{
		name:    kept.Name(req.Identity, cfg.String("docker_shared_container_key"), req.Task),
		process: cfg.Bool("docker_persist_across_processes"),
		data:    cfg.Bool("container_persistent") && !req.ThrowAway && req.Identity.Home != "",
		dir:     "/root",
		config: &container.Config{
			Image: cfg.String("docker_image"), Entrypoint: []string{"bash", "-c", mainScript}, Cmd: []string{}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		host: &container.HostConfig{
			Init: &init, CapDrop: []string{"ALL"}, CapAdd: []string{"DAC_OVERRIDE", "CHOWN", "FOWNER", "SETUID", "SETGID"},
			SecurityOpt: []string{"no-new-privileges"},
			Tmpfs:       map[string]string{stateRoot: "rw,nosuid,nodev,noexec,size=64m,mode=1777", "/tmp": "rw,nosuid,nodev,exec,size=512m,mode=1777"},
			Resources:   container.Resources{PidsLimit: &pids},
		},
		settings: kept.Settings{"docker_image": cfg.String("docker_image"), "docker_network": cfg.String("docker_network"), "docker_pids_limit": cfg.String("docker_pids_limit")},
	}
	if image.Config != nil && len(image.Config.Env) > 0 {
		p.config.Env = nil
	}
	if !cfg.Bool("docker_network") {
		p.host.NetworkMode = "none"
	}
	if p.data {
		base := cfg.String("sandbox_dir")
		if base == "" {
			base = filepath.Join(req.Identity.Home, "sandboxes")
		}
		home := filepath.Join(base, "docker", safename.Of(req.Task), "home")
		p.dataDirs = []string{home}
		p.host.Binds = []string{home + ":/root"}
	}
	return p, nil
}
