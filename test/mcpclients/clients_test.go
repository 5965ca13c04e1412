//go:build linux

package mcpclients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// modules is where the testbed puts the clients (test/testbed/mcp.sh).
	modules = "/var/cache/elsewhere-testbed/mcp-sdk/node_modules"
	// patience is how long a client may take for all that it does, also on a machine that is busy.
	patience = 5 * time.Minute
)

// setup is the built program, and a home for it.
type setup struct {
	t         *testing.T
	elsewhere string
	home      string
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	if _, err := os.Stat(modules); err != nil {
		missing(t, "the MCP clients are not there: test/testbed/up mcp installs them")
	}
	s := &setup{t: t, elsewhere: filepath.Join(t.TempDir(), "elsewhere"), home: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.elsewhere, "github.com/elsewhere-sh/elsewhere/cmd/elsewhere")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_ALL") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// command makes a command in the home.
func (s *setup) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.home, "NODE_PATH=" + modules, "ELSEWHERE=" + s.elsewhere}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// check runs the script of the SDK for JavaScript, with more variables.
func (s *setup) check(env ...string) {
	s.t.Helper()
	script, err := filepath.Abs("sdk/check.js")
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, "node", script)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	if s.t.Logf("%s", out); err != nil || !strings.HasSuffix(string(out), "ok end\n") {
		s.t.Fatalf("it did not come to its end: %v", err)
	}
}

func TestTheJavaScriptSDK(t *testing.T) {
	newSetup(t).check()
}

func TestTheJavaScriptSDKOverHTTP(t *testing.T) {
	s := newSetup(t)
	const token = "a-token-for-tests-that-is-long-enough"
	server := s.command(context.Background(), s.elsewhere, "mcp", "-b", "local", "--http", "127.0.0.1:0")
	server.Env = append(server.Env, "ELSEWHERE_MCP_TOKEN="+token)
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait() // for WaitDelay at most: its output is a pipe
	})
	serving := regexp.MustCompile(`serving (http://\S+)`)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if found := serving.FindStringSubmatch(lines.Text()); found != nil {
			s.check("ELSEWHERE_URL="+found[1], "ELSEWHERE_TOKEN="+token)
			return
		}
	}
	t.Fatal("it does not serve")
}

// inspect calls the server once, as the inspector's users do in scripts.
func (s *setup) inspect(args ...string) map[string]any {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	words := append([]string{filepath.Join(modules, ".bin", "mcp-inspector"), "--cli", s.elsewhere, "mcp", "-b", "local"}, args...)
	cmd := s.command(ctx, "node", words...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, stderr.String())
	}
	var answer map[string]any
	if err := json.Unmarshal(stdout.Bytes(), &answer); err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, stdout.String())
	}
	return answer
}

// tool calls a tool by the inspector.
func (s *setup) tool(name string, args ...string) map[string]any {
	s.t.Helper()
	words := []string{"--method", "tools/call", "--tool-name", name}
	for _, arg := range args {
		words = append(words, "--tool-arg", arg)
	}
	answer := s.inspect(words...)
	out, ok := answer["structuredContent"].(map[string]any)
	if !ok || answer["isError"] == true {
		s.t.Fatalf("%s %v: %v", name, args, answer)
	}
	return out
}

func TestTheInspector(t *testing.T) {
	s := newSetup(t)
	var names []string
	tools, _ := s.inspect("--method", "tools/list")["tools"].([]any)
	for _, tool := range tools {
		name, _ := tool.(map[string]any)["name"].(string)
		names = append(names, name)
	}
	if got := strings.Join(names, " "); got != "process read_file terminal write_file" {
		t.Errorf("%s", got)
	}
	if out := s.tool("terminal", "command=cd /tmp; echo here; exit 4"); out["output"] != "here\n" || out["exit_code"] != 4.0 || out["cwd"] != "/tmp" {
		t.Errorf("%v", out)
	}
	// Each call is a server of its own: a job and a file outlive it.
	s.tool("write_file", "path="+s.home+"/file", "content=written")
	if out := s.tool("read_file", "path="+s.home+"/file"); !strings.Contains(jsonText(out), "written") {
		t.Errorf("%v", out)
	}
	job, _ := s.tool("terminal", "command=echo up; read -r line; echo got $line", "background=true")["job"].(map[string]any)
	id, _ := job["job_id"].(string)
	s.tool("process", "action=submit", "job_id="+id, "data=there")
	if out := s.tool("process", "action=wait", "job_id="+id, "timeout=60"); out["output"] != "up\ngot there\n" {
		t.Errorf("%v", out)
	}
}

func jsonText(v any) string {
	data, _ := json.Marshal(v) // of what was JSON
	return string(data)
}
