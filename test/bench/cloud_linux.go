package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
	"github.com/elsewhere-sh/elsewhere/test/cloud/modal"
	"github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

// cloudRigs are the backends whose services have an emulator.
func cloudRigs() map[string]rig {
	return map[string]rig{"modal": cloudRig(startModal), "daytona": cloudRig(startDaytona), "vercel": cloudRig(startVercel)}
}

// requests sends requests with a token.
type requests struct{ token string }

// send sends one and decodes the answer into into, which may be nil.
func (r requests) send(ctx context.Context, method, address string, body, into any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, &text)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, req.URL.Path, res.Status)
	}
	if read, ok := into.(func(io.Reader) error); ok {
		return read(res.Body)
	}
	if into == nil {
		into = new(any)
	}
	return json.NewDecoder(res.Body).Decode(into)
}

type vercelCloud struct {
	*vercel.Server
	requests
	account *vercel.Account
	session string // its address
}

func startVercel() (cloud, error) {
	s, err := vercel.New(vercel.Tree)
	if err != nil {
		return nil, err
	}
	a := s.NewAccount(nil)
	return &vercelCloud{Server: s, requests: requests{a.Token}, account: a}, nil
}

func (c *vercelCloud) settings() map[string]string {
	return map[string]string{"vercel_api_url": c.URL(), "vercel_token": c.account.Token, "vercel_team_id": c.account.Team, "vercel_project_id": c.account.Project}
}

func (c *vercelCloud) setLatency(d time.Duration) { c.SetLatency(d) }
func (c *vercelCloud) close() error               { return c.Close() }

func (c *vercelCloud) enter(ctx context.Context, id string) error {
	var found struct{ Session struct{ ID string } }
	q := url.Values{"teamId": {c.account.Team}, "projectId": {c.account.Project}}
	err := c.send(ctx, http.MethodGet, c.URL()+"/v2/sandboxes/"+id+"?"+q.Encode(), nil, &found)
	c.session = c.URL() + "/v2/sandboxes/sessions/" + found.Session.ID
	return err
}

func (c *vercelCloud) ask(ctx context.Context) error {
	return c.send(ctx, http.MethodGet, c.session+"?teamId="+c.account.Team, nil, nil)
}

func (c *vercelCloud) exec(ctx context.Context, out io.Writer, command string) error {
	body := map[string]any{"command": "bash", "args": []string{"-c", command}, "cwd": "/", "wait": true, "logs": true}
	return c.send(ctx, http.MethodPost, c.session+"/cmd?teamId="+c.account.Team, body, func(lines io.Reader) error {
		for d := json.NewDecoder(lines); ; {
			var line struct {
				Stream  string
				Data    string
				Command *struct{ ExitCode *int }
			}
			switch err := d.Decode(&line); {
			case err != nil:
				return err
			case line.Command != nil && line.Command.ExitCode != nil:
				if *line.Command.ExitCode != 0 {
					return fmt.Errorf("%s: exit code %d", command, *line.Command.ExitCode)
				}
				return nil
			case line.Stream == "stdout":
				if _, err := io.WriteString(out, line.Data); err != nil {
					return err
				}
			}
		}
	})
}

type daytonaCloud struct {
	*daytona.Server
	requests
	id string
}

func startDaytona() (cloud, error) {
	s, err := daytona.New(daytona.Tree)
	if err != nil {
		return nil, err
	}
	return &daytonaCloud{Server: s, requests: requests{s.NewAccount(nil).Key}}, nil
}

func (c *daytonaCloud) settings() map[string]string {
	return map[string]string{"daytona_api_url": c.URL(), "daytona_api_key": c.token}
}

func (c *daytonaCloud) setLatency(d time.Duration)               { c.SetLatency(d) }
func (c *daytonaCloud) close() error                             { return c.Close() }
func (c *daytonaCloud) enter(_ context.Context, id string) error { c.id = id; return nil }

func (c *daytonaCloud) ask(ctx context.Context) error {
	return c.send(ctx, http.MethodGet, c.URL()+"/sandbox/"+c.id, nil, nil)
}

func (c *daytonaCloud) exec(ctx context.Context, out io.Writer, command string) error {
	var answer struct {
		ExitCode int
		Result   string
	}
	toolbox := strings.TrimSuffix(c.URL(), "/api") + "/toolbox/" + c.id
	if err := c.send(ctx, http.MethodPost, toolbox+"/process/execute", map[string]any{"command": command, "cwd": "/"}, &answer); err != nil {
		return err
	}
	if answer.ExitCode != 0 {
		return fmt.Errorf("%s: exit code %d", command, answer.ExitCode)
	}
	_, err := io.WriteString(out, answer.Result)
	return err
}

type modalCloud struct {
	*modal.Emulator
	client *sdk.Client
	sb     *sdk.Sandbox
}

func startModal() (cloud, error) {
	e, err := modal.New(modal.Options{})
	if err != nil {
		return nil, err
	}
	c := &modalCloud{Emulator: e}
	// There is no other way to tell the SDK where to go.
	if err = os.Setenv(modalServer, e.URL()); err == nil {
		c.client, err = sdk.NewClientWithOptions(&sdk.ClientParams{TokenID: modal.DefaultToken.ID, TokenSecret: modal.DefaultToken.Secret})
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

const modalServer = "MODAL_SERVER_URL"

func (c *modalCloud) settings() map[string]string {
	return map[string]string{"modal_server_url": c.URL(), "modal_token_id": modal.DefaultToken.ID, "modal_token_secret": modal.DefaultToken.Secret}
}

func (c *modalCloud) setLatency(d time.Duration) { c.SetLatency(d) }

func (c *modalCloud) close() error {
	if c.client != nil {
		c.client.Close()
	}
	return errors.Join(os.Unsetenv(modalServer), c.Close())
}

func (c *modalCloud) enter(ctx context.Context, id string) (err error) {
	c.sb, err = c.client.Sandboxes.FromID(ctx, id, nil)
	return err
}

func (c *modalCloud) ask(ctx context.Context) error {
	_, err := c.sb.Poll(ctx, nil)
	return err
}

func (c *modalCloud) exec(ctx context.Context, out io.Writer, command string) error {
	p, err := c.sb.Exec(ctx, []string{"bash", "-c", command}, &sdk.SandboxExecParams{Workdir: "/"})
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, p.Stdout); err != nil {
		return err
	}
	code, err := p.Wait(ctx, nil)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s: exit code %d", command, code)
	}
	return err
}
