//go:build unix

package main

import (
	"encoding/json"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
)

// started is how a client's settings say that the server is started.
type started struct {
	Type    string
	Command string
	Args    []string
}

// serversOf is where each kind of settings names its servers.
type serversOf struct {
	MCPServers     map[string]started `json:"mcpServers"`
	Servers        map[string]started `json:"servers"`
	ContextServers map[string]started `json:"context_servers"`
	Snake          map[string]started `toml:"mcp_servers" yaml:"mcp_servers" json:"-"`
}

// TestWhatIsPrintedForAClientStartsTheServer reads what --print-config prints with the parser that the client has, and starts the
// server as it says.
func TestWhatIsPrintedForAClientStartsTheServer(t *testing.T) {
	const awkward = `shell_init_files=["~/a \"quoted\" <file> ü"]`
	want := []string{"mcp", "-b", "local", "--task", "agent", "--session", "dev", "--set", awkward}
	fromJSON := func(text string, v *serversOf) error { return json.Unmarshal([]byte(text), v) }
	for client, parse := range map[string]func(string, *serversOf) error{
		"claude-code": func(text string, v *serversOf) error {
			_, text, _ = strings.Cut(text, "\n\n")
			return fromJSON(text, v)
		},
		"claude-desktop": fromJSON, "cursor": fromJSON, "gemini": fromJSON, "vscode": fromJSON, "windsurf": fromJSON, "zed": fromJSON,
		"codex":  func(text string, v *serversOf) error { return toml.Unmarshal([]byte(text), v) },
		"hermes": func(text string, v *serversOf) error { return yaml.Unmarshal([]byte(text), v) },
	} {
		t.Run(client, func(t *testing.T) {
			printed := newProgram(t, append(append([]string{}, want...), "--print-config", client)...)
			out, err := printed.Output()
			if err != nil {
				t.Fatal(err, printed.stderr.String())
			}
			var v serversOf
			if err := parse(string(out), &v); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			section := map[string]map[string]started{"vscode": v.Servers, "zed": v.ContextServers, "codex": v.Snake, "hermes": v.Snake}[client]
			if section == nil {
				section = v.MCPServers
			}
			how := section["elsewhere"]
			if !reflect.DeepEqual(how.Args, want) {
				t.Fatalf("%q in %s", how.Args, out)
			}
			if client == "vscode" && how.Type != "stdio" {
				t.Errorf("the type is %q", how.Type)
			}
			if client == "claude-code" {
				line, _, _ := strings.Cut(string(out), "\n")
				words := strings.TrimPrefix(line, "claude mcp add elsewhere -- ")
				if got, err := exec.Command("bash", "-c", `printf '%s\n' `+words).Output(); err != nil || string(got) != strings.Join(append([]string{how.Command}, want...), "\n")+"\n" {
					t.Errorf("%q, %v", got, err)
				}
			}
			server := newProgram(t)
			server.Path, server.Args, server.Env = how.Command, append([]string{how.Command}, how.Args...), printed.Env
			a := startPiped(t, server)
			tools, err := a.ListTools(a.ctx, &mcp.ListToolsParams{})
			if err != nil || len(tools.Tools) != 4 {
				t.Errorf("%v %v", tools, err)
			}
			_ = a.stdin.Close()
			if err := server.Wait(); err != nil {
				t.Errorf("%v %s", err, server.stderr.String())
			}
		})
	}
	printed := newProgram(t, "mcp", "-b", "daytona", "--set", "terminal.daytona_api_key=dtn-unseen", "--print-config", "cursor")
	printed.Stderr = nil
	out, err := printed.CombinedOutput()
	if status, ok := err.(*exec.ExitError); !ok || status.ExitCode() != exitOwn {
		t.Errorf("a secret is taken: %v", err)
	}
	if text := string(out); strings.Contains(text, "unseen") || !strings.Contains(text, "DAYTONA_API_KEY") || !strings.Contains(text, ".env") {
		t.Errorf("%s", text)
	}
	if len(clientNames()) != 9 {
		t.Errorf("there are clients without a parser here: %v", clientNames())
	}
}
