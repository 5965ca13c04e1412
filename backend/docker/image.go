package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// findImage gives the image, pulling it unless the engine has it. A container that is there needs none: where its image was
// deleted it goes on with the settings that were taken from that.
func (s *sandbox) findImage(ctx context.Context) (*client.ImageInspectResult, error) {
	name := s.req.Config.String("docker_image")
	if _, err := s.eng.ImageInspect(ctx, name); errdefs.IsNotFound(err) {
		c, err := s.eng.ContainerInspect(ctx, newPlanner(s.req, &client.ImageInspectResult{}).p.name, client.ContainerInspectOptions{})
		if err == nil && c.Container.Config != nil && s.ours(c.Container.Config.Labels) {
			s.bare = true
			return imageOf(ctx, s.eng.Client, c.Container), nil
		}
	}
	return ensureImage(ctx, s.eng.Client, s.req)
}

// imageOf gives what is known of the image that a container was made from, by the container where the engine has it no more.
func imageOf(ctx context.Context, eng *client.Client, c container.InspectResponse) *client.ImageInspectResult {
	if image, err := eng.ImageInspect(ctx, c.Image); err == nil {
		return &image
	}
	image := &client.ImageInspectResult{}
	image.ID = c.Image
	image.Config = &dockerspec.DockerOCIImageConfig{}
	image.Config.User, image.Config.Env, image.Config.Entrypoint = c.Config.User, c.Config.Env, c.Config.Entrypoint
	image.Config.Healthcheck = c.Config.Healthcheck
	return image
}

// needImage is for an opening that has to make a container after all: the image is pulled, and the plan made from it.
func (s *sandbox) needImage(ctx context.Context) error {
	if !s.bare {
		return nil
	}
	image, err := ensureImage(ctx, s.eng.Client, s.req)
	if err != nil {
		return err
	}
	s.bare = false
	said := s.plan.notices
	if err := s.planFrom(ctx, image); err != nil {
		return err
	}
	for _, notice := range said {
		if !slices.Contains(s.plan.notices, notice) {
			s.say(notice)
		}
	}
	return nil
}

// ensureImage pulls the image unless the engine has it, and inspects it. The pull has a timeout of its own, tells its progress
// to req.Progress, and uses the credentials that the docker client keeps. Whether the engine can run it is for makePlan to say.
func ensureImage(ctx context.Context, eng *client.Client, req driver.OpenRequest) (*client.ImageInspectResult, error) {
	name := req.Config.String("docker_image")
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return nil, noReference(req, name, err)
	}
	image, err := eng.ImageInspect(ctx, name)
	if err != nil && strings.Contains(err.Error(), "invalid reference format") { // engines are stricter: UPPER/x
		return nil, noReference(req, name, err)
	}
	if errdefs.IsNotFound(err) {
		if err := pullImage(ctx, eng, req, name, reference.Domain(named)); err != nil {
			return nil, err
		}
		image, err = eng.ImageInspect(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("inspecting image %s: %w", name, err)
	}
	return &image, nil
}

func noReference(req driver.OpenRequest, name string, err error) error {
	why := err.Error()
	if i := strings.Index(why, "invalid reference format"); i >= 0 {
		why = why[i:]
	}
	return failure(driver.KindConfig, "docker_image (%s) is %q, which names no image: %s; write [REGISTRY/]NAME[:TAG] in lower case, such as debian:12",
		req.Config.Origin("docker_image"), name, why)
}

// pullImage pulls an image and returns when it is whole.
func pullImage(ctx context.Context, eng *client.Client, req driver.OpenRequest, name, domain string) error {
	limit := req.Config.Duration("docker_pull_timeout")
	pull, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	progress := newPullProgress(name, req.Progress)
	progress.tell("pulling " + name)
	auth, authErr := registryAuth(pull, environment(req.Environ), domain)
	if authErr != nil {
		req.Logger.Warn("the registry's credentials cannot be read; pulling without", "registry", domain, "error", authErr)
	}
	err := runPull(pull, eng, name, auth, progress)
	switch {
	case err == nil:
		progress.tell("pulled " + name)
		return nil
	case ctx.Err() == nil && pull.Err() != nil:
		return failure(driver.KindTimeout, "pulling image %s took longer than %v (docker_pull_timeout); finished layers are kept, so another try goes on from there", name, limit)
	case errors.Is(ctx.Err(), context.Canceled):
		return failure(driver.KindCanceled, "pulling image %s was canceled: %w", name, ctx.Err())
	case ctx.Err() != nil:
		return failure(driver.KindTimeout, "pulling image %s: %w", name, ctx.Err())
	}
	return explainPull(err, name, domain, authErr)
}

func runPull(ctx context.Context, eng *client.Client, name string, auth registry.AuthConfig, progress *pullProgress) error {
	options := client.ImagePullOptions{}
	if auth != (registry.AuthConfig{}) {
		encoded, err := authconfig.Encode(auth)
		if err != nil {
			return err
		}
		options.RegistryAuth = encoded
	}
	stream, err := eng.ImagePull(ctx, name, options)
	if err != nil {
		return err
	}
	defer stream.Close()
	for message, err := range stream.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if message.Error != nil {
			return message.Error
		}
		progress.add(message)
	}
	return ctx.Err()
}

// pullFailure is a kind of failed pull, known by what engines and registries write.
type pullFailure struct {
	kind  driver.Kind
	says  []string // any of these, in lower case
	means string   // with the registry's domain for %s
}

func pullFailures() []pullFailure {
	return []pullFailure{
		{driver.KindUnavailable, []string{"no space left on device"}, "the engine's disk is full; free some of it (docker system df, docker system prune) and try again"},
		{driver.KindConfig, []string{"no matching manifest", "does not match the specified platform", "no match for platform"}, "the registry has it for other processors alone; choose another docker_image"},
		{driver.KindUnavailable, []string{"toomanyrequests", "too many requests", "rate limit"}, "the registry %[1]s refuses more pulls for now; log in (docker login %[1]s) or wait"},
		{driver.KindConfig, []string{
			"unauthorized", "authentication required", "no basic auth", "access denied", "access to the resource is denied", "denied:", "forbidden",
		}, "it does not exist, or the registry %[1]s does not let you have it; check docker_image, or log in: docker login %[1]s"},
		{driver.KindConfig, []string{"manifest unknown", "not found", "name unknown", "does not exist"}, "the registry %[1]s does not have it; check the name and tag in docker_image"},
		{driver.KindUnavailable, []string{
			"dial tcp", "no such host", "connection refused", "i/o timeout", "tls handshake", "server misbehaving", "network is unreachable",
			"request canceled while waiting", "eof", "connection reset", "x509", "http response to https",
		}, "the engine cannot reach the registry %[1]s; check its network, or load the image by hand (docker load) and try again"},
	}
}

// explainPull makes one line of a failed pull: what, why, and the next step.
func explainPull(err error, name, domain string, authErr error) error {
	if client.IsErrConnectionFailed(err) {
		return fmt.Errorf("pulling image %s: %w", name, err)
	}
	text := strings.ToLower(err.Error())
	for _, f := range pullFailures() {
		if !slices.ContainsFunc(f.says, func(s string) bool { return strings.Contains(text, s) }) {
			continue
		}
		means := f.means
		if strings.Contains(means, "%") {
			means = fmt.Sprintf(means, domain)
		}
		if authErr != nil {
			means += fmt.Sprintf(" (its credentials could not be read: %v)", authErr)
		}
		return failure(f.kind, "image %s cannot be pulled: %s: %w", name, means, err)
	}
	return failure(driver.KindUnavailable, "image %s cannot be pulled: %w; try: docker pull %s", name, err, name)
}

// progressEvery is how often progress is told at most.
const progressEvery = 500 * time.Millisecond

// pullProgress sums up the progress of an image's layers.
type pullProgress struct {
	name   string
	to     func(string)
	layers map[string]*jsonstream.Progress
	last   time.Time
	now    func() time.Time
}

func newPullProgress(name string, to func(string)) *pullProgress {
	return &pullProgress{name: name, to: to, layers: map[string]*jsonstream.Progress{}, now: time.Now}
}

func (p *pullProgress) tell(text string) {
	if p.to != nil {
		p.to(text)
	}
}

// add takes one message of the engine and tells where the whole is, unless that was told just now.
func (p *pullProgress) add(m jsonstream.Message) {
	switch m.Status {
	case "Downloading":
		if m.Progress != nil && m.ID != "" {
			p.layers[m.ID] = m.Progress
		}
	case "Download complete", "Extracting", "Pull complete":
		if layer := p.layers[m.ID]; layer != nil {
			layer.Current = layer.Total
		}
	default:
		return
	}
	now := p.now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	var current, total int64
	for _, layer := range p.layers {
		current += layer.Current
		total += layer.Total
	}
	if total <= 0 {
		return
	}
	p.last = now
	text := fmt.Sprintf("pulling %s: %d %% of %s", p.name, current*100/total, size(total))
	if current == total {
		text = fmt.Sprintf("pulling %s: unpacking %s", p.name, size(total))
	}
	p.tell(text)
}

// architectures are the names that kernels have for what images call otherwise.
var architectures = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i386": "386", "i686": "386",
}

// checkPlatform refuses an image for another system or processor, unless the engine runs those as well. Emulated tells whether
// this machine does (by binfmt_misc).
func checkPlatform(name string, image *client.ImageInspectResult, info system.Info, emulated func(arch string) bool) error {
	if os := image.Os; os != "" && info.OSType != "" && os != info.OSType {
		return failure(driver.KindConfig, "image %s is for %s and the engine runs %s; choose another docker_image", name, os, info.OSType)
	}
	has := info.Architecture
	if other, ok := architectures[has]; ok {
		has = other
	}
	want := image.Architecture
	switch {
	case want == "" || has == "" || want == has:
	case has == "amd64" && want == "386", has == "arm64" && want == "arm":
	case strings.Contains(info.OperatingSystem, "Docker Desktop"), emulated(want):
	default:
		return failure(driver.KindConfig, "image %s is for %s and the engine's processor is %s; choose another docker_image, or remove the image (docker image rm) so that the right one is pulled", name, want, has)
	}
	return nil
}

// emulated tells whether this machine's kernel starts an emulator for programs of another processor.
func emulated(arch string) bool {
	names := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "386": "i386"}
	data, err := os.ReadFile("/proc/sys/fs/binfmt_misc/qemu-" + or(names[arch], arch))
	return err == nil && strings.HasPrefix(string(data), "enabled")
}
