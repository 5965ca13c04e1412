package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere"
)

// dockerRig measures a container next to what any client of the engine does: ExecCreate, attach, and the exit code.
func dockerRig() rig {
	image := setting("BENCH_DOCKER_IMAGE", "elsewhere-test/debian")
	var engine *client.Client
	connect := func() (err error) {
		if engine == nil {
			engine, err = client.New(client.FromEnv)
		}
		return err
	}
	return rig{
		settings: []string{"TERMINAL_DOCKER_IMAGE=" + image},
		bare:     "engine exec bash -c true",
		run: func(ctx context.Context, sb *elsewhere.Sandbox, out io.Writer, command string) error {
			if err := connect(); err != nil {
				return err
			}
			return dockerExec(ctx, engine, sb.Info().SandboxID, out, command)
		},
		fresh: func(ctx context.Context) (func(), error) {
			if err := connect(); err != nil {
				return func() {}, err
			}
			return dockerRun(ctx, engine, image)
		},
		spaced: 0.03, bursts: 0.3, spacing: 400 * time.Millisecond, sessions: []int{1, 50},
	}
}

func dockerExec(ctx context.Context, engine *client.Client, id string, out io.Writer, command string) error {
	made, err := engine.ExecCreate(ctx, id, client.ExecCreateOptions{
		AttachStdout: true, AttachStderr: true, Cmd: []string{"bash", "-c", command},
	})
	if err != nil {
		return err
	}
	attached, err := engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := stdcopy.StdCopy(out, io.Discard, attached.Reader); err != nil {
		return err
	}
	status, err := engine.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err != nil {
		return err
	}
	if status.ExitCode != 0 {
		return fmt.Errorf("%s: exit code %d", command, status.ExitCode)
	}
	return nil
}

// dockerRun is `docker run -d IMAGE sleep infinity` and one exec.
func dockerRun(ctx context.Context, engine *client.Client, image string) (remove func(), err error) {
	init := true
	made, err := engine.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: image, Cmd: []string{"sleep", "infinity"}},
		HostConfig: &container.HostConfig{Init: &init},
	})
	if err != nil {
		return func() {}, err
	}
	remove = func() {
		_, _ = engine.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true})
	}
	_, err = engine.ContainerStart(ctx, made.ID, client.ContainerStartOptions{})
	return remove, errors.Join(err, dockerExec(ctx, engine, made.ID, io.Discard, "true"))
}
