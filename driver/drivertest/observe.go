package drivertest

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"time"
)

// ObserveHere runs an observer's program on this machine with this environment alone: for backends whose place is this
// machine, and for harnesses that reach theirs by a program (`docker exec`, `ssh`).
func ObserveHere(ctx context.Context, environ []string, stdin []byte, argv ...string) (Observed, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environ
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.WaitDelay = time.Second // a child may hold the streams
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	e := cmd.Run()
	o := Observed{Stdout: out.Bytes(), Stderr: err.Bytes(), Code: cmd.ProcessState.ExitCode()}
	if ws := cmd.ProcessState; ws != nil && ws.ExitCode() < 0 {
		o.Code = signalCode(ws)
	}
	if exit, ok := errors.AsType[*exec.ExitError](e); ok && exit != nil || errors.Is(e, exec.ErrWaitDelay) {
		return o, ctx.Err()
	}
	return o, e
}
