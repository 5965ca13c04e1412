//go:build linux

package journey

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// patience is how long what has to come may take, also on a machine that is busy.
const patience = 2 * time.Minute

// session is the named session in which the agent works.
const session = "work"

// agent is a client that has started the server as a child, and what that tells it.
type agent struct {
	*mcp.ClientSession
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error

	mu     sync.Mutex
	told   strings.Builder // progress
	stderr bytes.Buffer
}

// serve starts the server and connects to it.
func (p *place) serve() *agent {
	p.t.Helper()
	a := &agent{t: p.t, cmd: p.command("--log-level", "error", "mcp", "-b", p.backend, "--session", session), ended: make(chan error, 1)}
	in, err := a.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	a.stdin, a.cmd.Stderr = in, &a.stderr
	if err := a.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = a.cmd.Process.Kill() })
	options := &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.told.WriteString(req.Params.Message)
	}}
	client := mcp.NewClient(&mcp.Implementation{Name: "journey", Version: "1"}, options)
	a.ClientSession, err = client.Connect(p.t.Context(), &mcp.IOTransport{Reader: out, Writer: in}, nil)
	if err != nil {
		p.t.Fatal(err, a.stderr.String())
	}
	return a
}

// end waits until the server has ended.
func (a *agent) end() error {
	go func() { a.ended <- a.cmd.Wait() }()
	select {
	case err := <-a.ended:
		return err
	case <-time.After(patience):
		a.t.Fatal("the server has not ended")
		return nil
	}
}

// reply is what a tool answered.
type reply struct {
	text   string // for a model
	out    map[string]any
	failed bool
}

func (r reply) str(key string) string { s, _ := r.out[key].(string); return s }

func (r reply) code() any { return r.out["exit_code"] }

// job is the job that the answer is about.
func (r reply) job() map[string]any { job, _ := r.out["job"].(map[string]any); return job }

// call calls a tool. Its text is what a model reads.
func (a *agent) call(tool string, arguments map[string]any) reply {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	r, err := a.try(ctx, tool, arguments)
	if err != nil {
		a.t.Fatalf("%s %v: %v %s", tool, arguments, err, a.stderr.String())
	}
	return r
}

func (a *agent) try(ctx context.Context, tool string, arguments map[string]any) (reply, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	params.SetProgressToken("live")
	res, err := a.CallTool(ctx, params)
	if err != nil {
		return reply{}, err
	}
	r := reply{failed: res.IsError}
	for _, content := range res.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			r.text += text.Text
		}
	}
	data, _ := json.Marshal(res.StructuredContent)
	_ = json.Unmarshal(data, &r.out)
	given, _ := json.Marshal(arguments)
	a.t.Logf("%s %s\n%s", tool, given, r.text)
	return r, nil
}

// has calls a tool, which has to succeed.
func (a *agent) has(tool string, arguments map[string]any) reply {
	a.t.Helper()
	r := a.call(tool, arguments)
	if r.failed {
		a.t.Fatalf("%s %v: %s", tool, arguments, r.text)
	}
	return r
}

// runs runs a command, which has to succeed, and gives its output.
func (a *agent) runs(command string) string {
	a.t.Helper()
	r := a.has("terminal", map[string]any{"command": command})
	if r.code() != 0.0 {
		a.t.Fatalf("%s: %s", command, r.text)
	}
	return r.str("output")
}

// starts starts a job that prints its mark first, and gives its id and the mark.
func (a *agent) starts(command string) (id, mark string) {
	a.t.Helper()
	r := a.has("terminal", map[string]any{"command": "echo mark=$ELSEWHERE_CALL; " + command, "background": true})
	id, _ = r.job()["job_id"].(string)
	if id == "" || r.job()["state"] != "running" || !strings.Contains(r.text, id) {
		a.t.Fatalf("no job was started: %s", r.text)
	}
	return id, a.prints(id, "mark=")
}

// prints polls a job until it has printed a word with this beginning, and gives its rest.
func (a *agent) prints(id, beginning string) string {
	a.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		a.has("process", map[string]any{"action": "poll", "job_id": id, "timeout": 5})
		if word := after(a.has("process", map[string]any{"action": "log", "job_id": id, "offset": 0}).str("output"), beginning); word != "" {
			return word
		}
	}
	a.t.Fatalf("job %s never printed %s", id, beginning)
	return ""
}

// after is the word that follows a text, as soon as another character ends it.
func after(text, beginning string) string {
	if _, rest, ok := strings.Cut(text, beginning); ok {
		if i := strings.IndexAny(rest, " \n"); i > 0 {
			return rest[:i]
		}
	}
	return ""
}

// underway starts a command that never ends, and gives its mark when it runs with a child that never ends. cancel cancels the request
// and gives what came of it.
func (a *agent) underway() (mark string, cancel func() error) {
	a.t.Helper()
	a.mu.Lock()
	a.told.Reset()
	a.mu.Unlock()
	ctx, stop := context.WithCancel(a.t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := a.try(ctx, "terminal", map[string]any{"command": "trap '' INT HUP; echo mark=$ELSEWHERE_CALL; sleep 1000 | sleep 1000"})
		answered <- err
	}()
	for end := time.Now().Add(patience); mark == ""; time.Sleep(20 * time.Millisecond) {
		a.mu.Lock()
		mark = after(a.told.String(), "mark=")
		a.mu.Unlock()
		select {
		case err := <-answered:
			a.t.Fatalf("it ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			a.t.Fatalf("it never said that it runs: %q %s", a.told.String(), a.stderr.String())
		}
	}
	await(a.t, "its children run", func() []string {
		if n := len(marked(mark)); n < 2 {
			return []string{"too few"}
		}
		return nil
	})
	return mark, func() error {
		stop()
		return <-answered
	}
}

// marked are the processes of a call or a job.
func marked(mark string) []string {
	return alive(func(text string) bool { return text == "ELSEWHERE_CALL="+mark })
}

// await waits until nothing is left.
func await(t *testing.T, what string, left func() []string) {
	t.Helper()
	var last []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if last = left(); len(last) == 0 {
			return
		}
	}
	t.Errorf("%s: %s", what, strings.Join(last, "\n"))
}
