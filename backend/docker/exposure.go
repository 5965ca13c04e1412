package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// exposure asks the engine what of its machine is in the container.
func (s *sandbox) exposure(ctx context.Context) (driver.Exposure, error) {
	answer, err := s.eng.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
	if err != nil {
		return driver.Exposure{}, s.eng.explain("asking what is mounted in the container "+s.plan.name, err)
	}
	e := exposureOf(answer.Container, s.plan.ours, s.sharedKey() != "")
	e.EngineSocket = s.plan.socket
	return e, nil
}

// keptExposure is the same of a container as who made it noted it; nil of one with which nothing was noted.
func keptExposure(c container.InspectResponse) *driver.Exposure {
	var ours map[string]string
	if json.Unmarshal([]byte(c.Config.Labels[labelOurs]), &ours) != nil {
		return nil
	}
	e := exposureOf(c, ours, c.Config.Labels[labelShared] != "")
	e.EngineSocket = c.Config.Labels[labelSocket] == "true"
	return &e
}

// nameless is the name of a volume that the engine made for one container, which goes with it.
var nameless = regexp.MustCompile(`^[0-9a-f]{64}$`)

// exposureOf reads what the engine has in force. ours are mounts of elsewhere's own, by target; of a container that several
// share they are those of whoever made it, from elsewhere.
func exposureOf(c container.InspectResponse, ours map[string]string, sharing bool) driver.Exposure {
	var e driver.Exposure
	for _, m := range c.Mounts {
		source := m.Source
		if m.Type == mount.TypeVolume && m.Name != "" {
			source = m.Name
		}
		if m.Type == mount.TypeTmpfs {
			continue
		}
		own, is := ours[m.Destination]
		e.Mounts = append(e.Mounts, driver.Mount{
			Target: m.Destination, Source: source, Writable: m.RW,
			Ours: is && (sharing || own == source) || m.Type == mount.TypeVolume && nameless.MatchString(source),
		})
	}
	// The engine tells them in another order each time.
	slices.SortFunc(e.Mounts, func(a, b driver.Mount) int { return cmp.Compare(a.Target, b.Target) })
	h := c.HostConfig
	if h == nil {
		return e
	}
	for _, d := range h.Devices {
		e.Devices = append(e.Devices, d.PathOnHost)
	}
	if len(h.DeviceRequests) > 0 {
		e.Devices = append(e.Devices, "GPUs")
	}
	e.HostNetwork, e.HostPID, e.Privileged = h.NetworkMode.IsHost(), h.PidMode.IsHost(), h.Privileged
	return e
}
