//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mcpWait is how long what has to come may take.
const mcpWait = 90 * time.Second

// agent is a client that started the server as a child.
type agent struct {
	*mcp.ClientSession
	*program
	ctx   context.Context
	stdin io.Closer
}

// startPiped starts the server as a child, on pipes of the test's own: the SDK's would end it in ways of its own.
func startPiped(t *testing.T, p *program) *agent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*mcpWait)
	t.Cleanup(cancel)
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &mcp.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		t.Fatal(err, p.stderr.String())
	}
	return &agent{session, p, ctx, in}
}

// call calls a tool, which has to succeed.
func (a *agent) call(tool string, arguments map[string]any) map[string]any {
	a.t.Helper()
	res, err := a.CallTool(a.ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.t.Fatalf("%s %v: %v %s", tool, arguments, err, a.stderr.String())
	}
	data, _ := json.Marshal(res.StructuredContent)
	if res.IsError {
		a.t.Fatalf("%s %v: %s", tool, arguments, data)
	}
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}

func (a *agent) run(command string) string {
	a.t.Helper()
	out := a.call("terminal", map[string]any{"command": command})
	if out["exit_code"] != 0.0 {
		a.t.Fatalf("%s: %v", command, out)
	}
	text, _ := out["output"].(string)
	return text
}

// awaitBeat waits until the heart of a program beats.
func awaitBeat(t *testing.T, heart string) {
	t.Helper()
	for deadline := time.Now().Add(mcpWait); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if info, err := os.Stat(heart); err == nil && info.Size() > 2 {
			return
		}
	}
	t.Fatal("it never beat")
}

func awaitStill(t *testing.T, heart string) {
	t.Helper()
	for deadline := time.Now().Add(mcpWait); time.Now().Before(deadline); {
		before, err := os.Stat(heart)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // twenty beats
		if after, err := os.Stat(heart); err == nil && after.Size() == before.Size() {
			return
		}
	}
	t.Fatal("it still beats")
}

func TestAnMCPServersEndLeavesJobsAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(*agent, *os.Process)
	}{
		{"closed input", func(a *agent, _ *os.Process) { _ = a.stdin.Close() }},
		{"TERM", func(_ *agent, p *os.Process) { _ = p.Signal(syscall.SIGTERM) }},
		{"KILL", func(_ *agent, p *os.Process) { _ = p.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProgram(t, "mcp", "-b", "local")
			a := startPiped(t, p)
			a.run("export GONE=1")
			job, _ := a.call("terminal", map[string]any{"command": "read -r l; echo got $l", "background": true})["job"].(map[string]any)
			go func() {
				_, _ = a.CallTool(a.ctx, &mcp.CallToolParams{Name: "terminal", Arguments: map[string]any{"command": beating + "wait"}})
			}()
			awaitBeat(t, p.heart)
			c.end(a, p.Process)
			ended := make(chan struct{})
			go func() { _ = p.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(mcpWait):
				t.Fatal("the server has not ended")
			}
			awaitStill(t, p.heart)

			// The next server goes on with what is there.
			next := newProgram(t, "mcp", "-b", "local")
			next.Env, next.Dir = p.Env, p.Dir
			b := startPiped(t, next)
			if got := b.run(`echo "[$GONE]"`); got != "[]\n" {
				t.Errorf("state outlived the server: %q", got)
			}
			b.call("process", map[string]any{"action": "submit", "job_id": job["job_id"], "data": "there"})
			out := b.call("process", map[string]any{"action": "wait", "job_id": job["job_id"], "timeout": 60})
			if out["output"] != "got there\n" {
				t.Errorf("%v", out)
			}
			_ = b.stdin.Close()
			if err := next.Wait(); err != nil {
				t.Errorf("the end of input is no failure: %v %s", err, next.stderr.String())
			}
		})
	}
}

func TestTheMCPServerOverHTTP(t *testing.T) {
	p := newProgram(t, "mcp", "-b", "local", "--http", "127.0.0.1:0")
	p.Stderr = nil
	r, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start()
	var said bytes.Buffer
	url := regexp.MustCompile(`serving (http://127\.0\.0\.1:\d+)/mcp`)
	buffer := make([]byte, 1024)
	for url.FindStringSubmatch(said.String()) == nil {
		n, err := r.Read(buffer)
		if err != nil {
			t.Fatal(err, said.String())
		}
		said.Write(buffer[:n])
	}
	address := url.FindStringSubmatch(said.String())[1]
	kept := filepath.Join(p.Dir, ".hermes", "elsewhere", "mcp-token")
	token, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(kept); info.Mode().Perm() != 0o600 || strings.Contains(said.String(), strings.TrimSpace(string(token))) {
		t.Errorf("the token is not private: %v %s", info.Mode(), said.String())
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: address + "/mcp", HTTPClient: &http.Client{Transport: withToken(strings.TrimSpace(string(token)))},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{session, p, t.Context(), nil}
	if got := a.run("echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	go func() {
		_, _ = a.CallTool(a.ctx, &mcp.CallToolParams{Name: "terminal", Arguments: map[string]any{"command": beating + "wait"}})
	}()
	awaitBeat(t, p.heart)
	_ = p.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-p.ended:
		if status, ok := err.(*exec.ExitError); !ok || status.ExitCode() != 128+int(syscall.SIGTERM) {
			t.Errorf("%v", err)
		}
	case <-time.After(mcpWait):
		t.Fatal("the server has not ended")
	}
	awaitStill(t, p.heart)
}

type withToken string

func (token withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}
