package docker

import (
	"context"
	"errors"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
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

// ensureImage pulls the image unless the engine has it, and inspects it.
func ensureImage(ctx context.Context, eng *client.Client, req driver.OpenRequest) (*client.ImageInspectResult, error) {
	return nil, errors.New("not built")
}

// makePlan turns the settings into a plan. It makes nothing.
func makePlan(ctx context.Context, eng *client.Client, req driver.OpenRequest, image *client.ImageInspectResult) (*plan, error) {
	return nil, errors.New("not built")
}
