package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"net/http"

	"github.com/moby/moby/client"
)

// ExecInspect is the client's. Podman tells the keys by which a terminal is given up as text where the client reads base64: then the answer
// is asked for again and read without them.
func (e *engine) ExecInspect(ctx context.Context, id string, options client.ExecInspectOptions) (client.ExecInspectResult, error) {
	result, err := e.Client.ExecInspect(ctx, id, options)
	if _, is := errors.AsType[base64.CorruptInputError](err); !is {
		return result, err
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return e.Dialer()(ctx) },
		DisableKeepAlives: true,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+client.DummyHost+"/v"+e.ClientVersion()+"/exec/"+id+"/json", nil)
	if err != nil {
		return client.ExecInspectResult{}, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return client.ExecInspectResult{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return client.ExecInspectResult{}, errors.New("the engine answers " + response.Status)
	}
	var answer struct {
		ID, ContainerID string
		Running         bool
		ExitCode, Pid   int
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return client.ExecInspectResult{ID: answer.ID, ContainerID: answer.ContainerID, Running: answer.Running, ExitCode: answer.ExitCode, PID: answer.Pid}, err
}
