//go:build unix

package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere/backend/docker"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/mcpserver"
)

// patience is how long a test waits for what has to come, also on a machine that is busy.
const patience = 60 * time.Second

const token = "a-token-for-tests-that-is-long-enough"

// setup is a home, settings and a server over them.
type setup struct {
	t       *testing.T
	home    string // HOME; HERMES_HOME is home/hermes
	environ []string
	cfg     *config.Config
	server  *mcpserver.Server
}

// newSetup makes a server on local, or with what change says.
func newSetup(t *testing.T, flags map[string]string, change func(*mcpserver.Options)) *setup {
	t.Helper()
	u := &setup{t: t, home: t.TempDir()}
	if err := os.MkdirAll(u.home+"/tmp", 0o700); err != nil {
		t.Fatal(err)
	}
	u.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "HERMES_HOME=" + u.home + "/hermes", "TMPDIR=" + u.home + "/tmp"}
	all := map[string]string{"temp_dir": u.home + "/tmp", "cwd": u.home}
	for key, value := range flags {
		all[key] = value
	}
	var err error
	u.cfg, err = config.Load(config.Options{Backends: []driver.Backend{local.Backend(), docker.Backend()}, Environ: u.environ, Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	u.server = u.start(change)
	return u
}

// start makes another server over the same settings.
func (u *setup) start(change func(*mcpserver.Options)) *mcpserver.Server {
	u.t.Helper()
	opts := mcpserver.Options{Config: u.cfg, Environ: u.environ}
	if change != nil {
		change(&opts)
	}
	server, err := mcpserver.New(opts)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() {
		if err := server.Close(context.Background()); err != nil {
			u.t.Error(err)
		}
	})
	return server
}

// peer is a client, as the Go SDK has it, and what it was told.
type peer struct {
	*mcp.ClientSession
	t      *testing.T
	hangUp io.Closer // the client's end of the stream
	mu     sync.Mutex
	told   []string // progress
	news   chan struct{}
}

func (p *peer) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
		p.mu.Lock()
		p.told = append(p.told, req.Params.Message)
		p.mu.Unlock()
		select {
		case p.news <- struct{}{}:
		default:
		}
	}}
}

func newPeer(t *testing.T, transport mcp.Transport, change func(*mcp.ClientOptions)) *peer {
	t.Helper()
	p := &peer{t: t, news: make(chan struct{}, 1)}
	opts := p.options()
	if change != nil {
		change(opts)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts).Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.ClientSession = session
	t.Cleanup(func() { _ = session.Close() })
	return p
}

// overStreams connects a client to the server by a pair of pipes.
func (u *setup) overStreams(server *mcpserver.Server, change func(*mcp.ClientOptions)) *peer {
	u.t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), toServer, fromServer) }()
	p := newPeer(u.t, &mcp.IOTransport{Reader: toClient, Writer: fromClient}, change)
	p.hangUp = fromClient
	u.t.Cleanup(func() {
		_ = p.Close()
		select {
		case err := <-served:
			if err != nil {
				u.t.Error(err)
			}
		case <-time.After(patience):
			u.t.Error("the server still serves a client that has left")
		}
	})
	return p
}

// bearer sends the token.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func (u *setup) listen(server *mcpserver.Server) *httptest.Server {
	u.t.Helper()
	handler, err := server.Handler(mcpserver.HTTPOptions{Token: token})
	if err != nil {
		u.t.Fatal(err)
	}
	web := httptest.NewServer(handler)
	u.t.Cleanup(func() {
		_ = server.Close(context.Background()) // ends the streams that clients hold open
		web.CloseClientConnections()
		web.Close()
	})
	return web
}

// serve serves a handler and gives its address.
func serve(t *testing.T, u *setup, handler http.Handler) string {
	t.Helper()
	web := httptest.NewServer(handler)
	t.Cleanup(func() {
		_ = u.server.Close(context.Background())
		web.CloseClientConnections()
		web.Close()
	})
	return web.URL
}

func (u *setup) overHTTP(web *httptest.Server, change func(*mcp.ClientOptions)) *peer {
	u.t.Helper()
	return newPeer(u.t, &mcp.StreamableClientTransport{Endpoint: web.URL + mcpserver.Path, HTTPClient: &http.Client{Transport: bearer{token}}}, change)
}

// reply is what a tool answered.
type reply struct {
	*mcp.CallToolResult
	text string
	out  map[string]any
}

func (r reply) number(key string) int {
	n, ok := r.out[key].(float64)
	if !ok {
		return -1
	}
	return int(n)
}

func (r reply) str(key string) string { s, _ := r.out[key].(string); return s }

func (r reply) job() map[string]any { j, _ := r.out["job"].(map[string]any); return j }

func (r reply) kind() string {
	e, _ := r.out["error"].(map[string]any)
	kind, _ := e["kind"].(string)
	return kind
}

type args = map[string]any

// try calls a tool.
func (p *peer) try(ctx context.Context, tool string, arguments args) (reply, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: arguments}
	res, err := p.CallTool(ctx, params)
	if err != nil {
		return reply{}, err
	}
	r := reply{CallToolResult: res}
	for _, c := range res.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			r.text += text.Text
		}
	}
	if res.StructuredContent != nil {
		data, _ := json.Marshal(res.StructuredContent)
		_ = json.Unmarshal(data, &r.out)
	}
	return r, nil
}

// call calls a tool, which has to succeed.
func (p *peer) call(tool string, arguments args) reply {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*patience)
	defer cancel()
	r, err := p.try(ctx, tool, arguments)
	if err != nil {
		p.t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	if r.IsError {
		p.t.Fatalf("%s %v: %s", tool, arguments, r.text)
	}
	return r
}

// run runs a command, which has to end with 0.
func (p *peer) run(command string) string {
	p.t.Helper()
	r := p.call("terminal", args{"command": command})
	if r.number("exit_code") != 0 {
		p.t.Fatalf("%s: %s", command, r.text)
	}
	return r.str("output")
}

// fails calls a tool, which has to fail with this kind.
func (p *peer) fails(kind, tool string, arguments args) reply {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	r, err := p.try(ctx, tool, arguments)
	if err != nil {
		p.t.Fatalf("%s %v: %v", tool, arguments, err)
	}
	if !r.IsError || r.kind() != kind {
		p.t.Fatalf("%s %v: want an error of kind %s, got %q %s", tool, arguments, kind, r.kind(), r.text)
	}
	return r
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in %q", part, text)
		}
	}
}

// eachTransport runs a test with a client over a pair of streams, and with one over HTTP.
func eachTransport(t *testing.T, test func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer)) {
	t.Run("streams", func(t *testing.T) {
		u := newSetup(t, nil, nil)
		test(t, u, func(change func(*mcp.ClientOptions)) *peer { return u.overStreams(u.server, change) })
	})
	t.Run("http", func(t *testing.T) {
		u := newSetup(t, nil, nil)
		web := u.listen(u.server)
		test(t, u, func(change func(*mcp.ClientOptions)) *peer { return u.overHTTP(web, change) })
	})
}

// waitFor waits until a file has content.
func waitFor(t *testing.T, file string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if data, err := os.ReadFile(file); err == nil && len(data) > 0 {
			return string(data)
		}
	}
	t.Fatalf("%s has not come", file)
	return ""
}

// stops waits until a file that grows has stopped growing.
func stops(t *testing.T, file string) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before := size()
		time.Sleep(time.Second) // twenty beats
		if size() == before {
			return
		}
	}
	t.Fatal("it still beats")
}

const beat = `while :; do printf . >>"$HOME/heart"; sleep 0.05; done`

func TestACommandsResultSaysAllOfIt(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		r := p.call("terminal", args{"command": "echo out; echo err >&2; cd /tmp; false"})
		if r.number("exit_code") != 1 || r.str("cause") != "exited" || r.str("output") != "out\nerr\n" || r.str("cwd") != "/tmp" || r.str("backend") != "local" {
			t.Errorf("%v", r.out)
		}
		contains(t, r.text, "out\nerr\n[", "\n[exit code 1; ", "cwd /tmp")
		if where, _ := r.out["where"].(map[string]any); where["host"] == "" {
			t.Errorf("it does not say where: %v", r.out)
		}
		r = p.call("terminal", args{"command": "pwd", "workdir": u.home})
		if r.str("output") != u.home+"\n" {
			t.Errorf("%v", r.out)
		}
		r = p.call("terminal", args{"command": "touch ran", "workdir": "/no/such"})
		if r.str("cause") != "directory" || r.number("exit_code") != 126 {
			t.Errorf("%v", r.out)
		}
	})
}

func TestStateGoesOnFromCallToCallAndNotToOtherSessions(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		p.run("export A=1; f() { echo f-$A; }; cd /tmp; exit 0")
		if got := p.run("f; pwd"); got != "f-1\n/tmp\n" {
			t.Errorf("%q", got)
		}
		r := p.call("terminal", args{"command": `echo "[$A]"; pwd`, "session": "other"})
		if r.str("output") != "[]\n"+u.home+"\n" {
			t.Errorf("another session has it: %v", r.out)
		}
		p.fails("config", "terminal", args{"command": "true", "session": "no name"})
		if other := connect(nil); other.run(`echo "[$A]"`) != "[]\n" {
			t.Error("another client has it")
		}
	})
}

func TestManyClientsAtOnceEachHaveTheirOwnState(t *testing.T) {
	u := newSetup(t, nil, nil)
	web := u.listen(u.server)
	var wg sync.WaitGroup
	for i := range 8 {
		p := u.overHTTP(web, nil)
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			mine := fmt.Sprintf("client %d", i)
			if _, err := p.try(ctx, "terminal", args{"command": "export ME='" + mine + "'"}); err != nil {
				t.Error(err)
				return
			}
			for range 3 {
				r, err := p.try(ctx, "terminal", args{"command": `printf %s "$ME"`})
				if err != nil || r.str("output") != mine {
					t.Errorf("%s sees %q, %v", mine, r.str("output"), err)
				}
			}
		})
	}
	wg.Wait()
	if n := u.server.Clients(); n != 8 {
		t.Errorf("%d clients", n)
	}
}

func TestOutputComesWhileTheCommandRuns(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		params := &mcp.CallToolParams{Name: "terminal", Arguments: args{"command": `echo first; until [[ -e $HOME/go ]]; do sleep 0.05; done; echo last`}}
		params.SetProgressToken("p1")
		ended := make(chan error, 1)
		go func() {
			_, err := p.CallTool(t.Context(), params)
			ended <- err
		}()
		select {
		case <-p.news:
		case err := <-ended:
			t.Fatalf("it ended before it said anything: %v", err)
		case <-time.After(patience):
			t.Fatal("nothing came")
		}
		p.mu.Lock()
		first := strings.Join(p.told, "")
		p.mu.Unlock()
		contains(t, first, "first")
		if err := os.WriteFile(u.home+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

func TestACancelledRequestEndsItsOwnCommandAlone(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		p.run("export KEPT=1")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = p.try(ctx, "terminal", args{"command": `setsid bash -c '` + beat + `' & wait`})
		}()
		other := make(chan string, 1)
		go func() {
			r, err := p.try(t.Context(), "terminal", args{"command": `until [[ -e $HOME/go ]]; do sleep 0.05; done; echo whole`, "session": "other"})
			if err != nil {
				t.Error(err)
			}
			other <- r.str("output")
		}()
		waitFor(t, u.home+"/heart")
		cancel()
		<-ended
		stops(t, u.home+"/heart")
		if err := os.WriteFile(u.home+"/go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := <-other; got != "whole\n" {
			t.Errorf("the other command: %q", got)
		}
		if got := p.run("echo $KEPT"); got != "1\n" {
			t.Errorf("the session is gone: %q", got)
		}
	})
}

func TestACommandsTreeEndsWithItsTimeoutAndAsJobWhereThatIsTooLong(t *testing.T) {
	u := newSetup(t, map[string]string{"max_foreground_timeout": "5", "timeout": "3"}, nil)
	p := u.overStreams(u.server, nil)
	r := p.call("terminal", args{"command": `setsid bash -c '` + beat + `' & wait`, "timeout": 1.5})
	if r.number("exit_code") != 124 || r.str("cause") != "timeout" {
		t.Errorf("%v", r.out)
	}
	contains(t, r.text, "background:true")
	stops(t, u.home+"/heart")

	r = p.call("terminal", args{"command": "echo begun; sleep 1000", "timeout": 3000})
	contains(t, r.text, "max_foreground_timeout", "Started background job")
	id, _ := r.job()["job_id"].(string)
	if id == "" || r.job()["state"] != "running" {
		t.Fatalf("%v", r.out)
	}
	if got := p.call("process", args{"action": "poll", "job_id": id, "timeout": 5}); got.str("output") != "begun\n" {
		t.Errorf("%v", got.out)
	}
	if got := p.call("process", args{"action": "kill", "job_id": id}); got.job()["state"] != "killed" {
		t.Errorf("%v", got.out)
	}
}

func TestACommandRunsOnATerminalWhereThatIsAskedFor(t *testing.T) {
	u := newSetup(t, map[string]string{"max_foreground_timeout": "60"}, nil)
	p := u.overStreams(u.server, nil)
	show := `[[ -t 0 && -t 1 && -t 2 ]] && printf '\e[1mon a terminal\e[0m\n'; stty size; export LEFT=1; cd /tmp; exit 3`
	r := p.call("terminal", args{"command": show, "pty": true})
	if r.str("output") != "on a terminal\n24 80\n" || r.number("exit_code") != 3 || r.str("cwd") != "/tmp" {
		t.Errorf("%v", r.out)
	}
	r = p.call("terminal", args{"command": `stty size; echo "$LEFT"`, "pty": true, "rows": 50, "cols": 132})
	if r.str("output") != "50 132\n1\n" {
		t.Errorf("%v", r.out)
	}
	r = p.call("terminal", args{"command": `setsid bash -c '` + beat + `' & read -r x`, "pty": true, "timeout": 2})
	if r.number("exit_code") != 124 || r.str("cause") != "timeout" {
		t.Errorf("%v", r.out)
	}
	stops(t, u.home+"/heart")
	for _, c := range []struct {
		kind string
		args args
		says string
	}{
		{"config", args{"command": "touch ran", "rows": 10}, "no terminal"},
		{"config", args{"command": " ", "pty": true}, "the command is empty"},
	} {
		contains(t, p.fails(c.kind, "terminal", c.args).text, c.says)
	}
	if r := p.call("terminal", args{"command": "echo ~/ran*"}); r.str("output") != u.home+"/ran*\n" {
		t.Errorf("something was run: %v", r.out)
	}
}

func TestABackgroundJobIsTalkedToOnItsTerminal(t *testing.T) {
	u := newSetup(t, map[string]string{"max_foreground_timeout": "60"}, nil)
	p := u.overStreams(u.server, nil)
	shown := func(id, want string) {
		t.Helper()
		all := ""
		for deadline := time.Now().Add(time.Minute); all != want && time.Now().Before(deadline); {
			all += p.call("process", args{"action": "poll", "job_id": id, "timeout": 5}).str("output")
		}
		if all != want {
			t.Fatalf("shown was %q, want %q", all, want)
		}
	}
	r := p.call("terminal", args{"background": true, "pty": true, "rows": 50, "cols": 132,
		"command": `stty size; read -r x; echo "got $x"; stty -echo; printf 'a\e[3'; cat; printf '1mred\e[0m\n'; trap 'exit 9' INT; echo ready; sleep 1000`})
	id, _ := r.job()["job_id"].(string)
	if id == "" || r.job()["terminal"] != true {
		t.Fatalf("%v", r.out)
	}
	shown(id, "50 132\n")
	p.call("process", args{"action": "submit", "job_id": id, "data": "typed"})
	shown(id, "typed\ngot typed\na") // and ends in the middle of a colour
	p.call("process", args{"action": "close", "job_id": id})
	shown(id, "red\nready\n")
	p.call("process", args{"action": "write", "job_id": id, "data": "\x03"})
	if r = p.call("process", args{"action": "wait", "job_id": id, "timeout": 60}); r.job()["exit_code"] != 9.0 {
		t.Errorf("%v", r.out)
	}
	if r = p.call("process", args{"action": "log", "job_id": id, "offset": 0}); r.str("output") != "50 132\ntyped\ngot typed\nared\nready\n" {
		t.Errorf("%v", r.out)
	}

	r = p.call("terminal", args{"command": `tty >/dev/null && stty size; read -r x`, "pty": true, "timeout": 3000})
	contains(t, r.text, "max_foreground_timeout", "Started background job")
	id, _ = r.job()["job_id"].(string)
	shown(id, "24 80\n")
	if r = p.call("process", args{"action": "kill", "job_id": id}); r.job()["state"] != "killed" {
		t.Errorf("%v", r.out)
	}
}

func TestABackgroundJobsWholeLife(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		p.run("export NAME=agent; cd /tmp")
		r := p.call("terminal", args{"command": `echo "in $PWD for $NAME"; while read -r l; do echo "got $l"; done; echo over; exit 3`, "background": true})
		id, _ := r.job()["job_id"].(string)
		contains(t, r.text, id)
		if got := p.call("process", args{"action": "poll", "job_id": id, "timeout": 30}); got.str("output") != "in /tmp for agent\n" {
			t.Fatalf("%v", got.out)
		}
		if got := p.call("process", args{"action": "poll", "job_id": id}); got.str("output") != "" {
			t.Errorf("twice: %v", got.out)
		}
		p.call("process", args{"action": "submit", "job_id": id, "data": "one"})
		p.call("process", args{"action": "write", "job_id": id, "data": "two\n"})
		p.call("process", args{"action": "close", "job_id": id})
		got := p.call("process", args{"action": "wait", "job_id": id, "timeout": 60})
		if got.str("output") != "got one\ngot two\nover\n" || got.job()["state"] != "exited" || got.job()["exit_code"] != 3.0 || got.out["end"] != true {
			t.Errorf("%v", got.out)
		}
		if got = p.call("process", args{"action": "log", "job_id": id, "offset": 3, "limit": 4}); got.str("output") != "/tmp" || got.number("next") != 7 {
			t.Errorf("%v", got.out)
		}
		if got = p.call("process", args{"action": "log", "job_id": id, "limit": 5}); got.str("output") != "over\n" {
			t.Errorf("%v", got.out)
		}
		if r := p.fails("config", "process", args{"action": "poll", "job_id": "jnone"}); !strings.Contains(r.text, "process action:list") || strings.Contains(r.text, "elsewhere job") {
			t.Errorf("the next step is the client's: %s", r.text)
		}
		got = p.call("process", args{"action": "list"})
		contains(t, got.text, id+" exited, exit code 3")
		p.fails("config", "process", args{"action": "submit", "job_id": id, "data": "x"})
		p.fails("config", "process", args{"action": "poll", "job_id": "jffff"})
		p.fails("config", "process", args{"action": "poll"})
	})
}

func TestAJobGoesOnWhenTheServerHasEndedAndIsFoundByTheNext(t *testing.T) {
	u := newSetup(t, nil, nil)
	p := u.overStreams(u.server, nil)
	id, _ := p.call("terminal", args{"command": "echo begun; read -r l; echo $l", "background": true}).job()["job_id"].(string)
	_ = p.Close()
	if err := u.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := u.overStreams(u.start(nil), nil)
	contains(t, again.call("process", args{"action": "list"}).text, id+" running")
	again.call("process", args{"action": "submit", "job_id": id, "data": "hello"})
	if got := again.call("process", args{"action": "wait", "job_id": id, "timeout": 60}); got.str("output") != "begun\nhello\n" {
		t.Errorf("%v", got.out)
	}
}

func TestANamedSessionsStateIsThereForTheNextServer(t *testing.T) {
	named := func(o *mcpserver.Options) { o.Session = "mine" }
	u := newSetup(t, nil, named)
	p := u.overStreams(u.server, nil)
	p.run("export A=1; cd /tmp")
	if r := p.call("terminal", args{"command": "export B=2", "session": "side"}); r.number("exit_code") != 0 {
		t.Fatal(r.text)
	}
	_ = p.Close()
	if err := u.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := u.overStreams(u.start(named), nil)
	if got := again.run(`echo "$A $B"; pwd`); got != "1 \n/tmp\n" {
		t.Errorf("%q", got)
	}
	if r := again.call("terminal", args{"command": `echo "$A $B"`, "session": "side"}); r.str("output") != " 2\n" {
		t.Errorf("%v", r.out)
	}
}

func TestLongOutputIsCutForAModelAndWholeInAResource(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		for _, count := range []int{8000, 200000} { // shorter and longer than what is kept in memory
			r := p.call("terminal", args{"command": fmt.Sprintf("seq 1 %d", count)})
			var whole strings.Builder
			for i := 1; i <= count; i++ {
				fmt.Fprintln(&whole, i)
			}
			if count == 8000 {
				if r.out["truncated"] != false || r.str("output") != whole.String() {
					t.Errorf("it fits and was cut: %v", r.out["truncated"])
				}
				r = p.call("terminal", args{"command": fmt.Sprintf("seq 1 %d; printf %%0.sx {1..20000}", count)})
				whole.WriteString(strings.Repeat("x", 20000))
			}
			shown := r.str("output")
			if r.out["truncated"] != true || len(shown) > 50200 || len(shown) < 49000 || !strings.HasPrefix(shown, "1\n2\n") || !strings.HasSuffix(whole.String(), shown[len(shown)-1000:]) {
				t.Fatalf("%d characters: %.200s", len(shown), shown)
			}
			contains(t, shown, "OUTPUT TRUNCATED")
			if n := r.number("output_bytes"); n != whole.Len() {
				t.Errorf("%d bytes, want %d", n, whole.Len())
			}
			var got strings.Builder
			for at := 0; ; {
				res, err := p.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: fmt.Sprintf("%s?offset=%d&limit=700000", r.str("output_uri"), at)})
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString(res.Contents[0].Text)
				next, _ := res.Contents[0].Meta["next"].(float64)
				at = int(next)
				if res.Contents[0].Meta["end"] == true {
					break
				}
			}
			if got.String() != whole.String() {
				t.Errorf("the resource has %d bytes, want %d", got.Len(), whole.Len())
			}
			if log := p.call("process", args{"action": "log", "job_id": r.str("output_id"), "offset": 2, "limit": 4}); log.str("output") != "2\n3\n" {
				t.Errorf("%v", log.out)
			}
			if _, err := connect(nil).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: r.str("output_uri")}); err == nil {
				t.Error("another client can read it")
			}
		}
	})
}

func TestFilesAreReadAndWrittenWhereCommandsRun(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		p := connect(nil)
		p.run("mkdir dir && cd dir")
		content := "#!/bin/bash\necho \"hé $0\"\n\ttab 'quote' \\ $HOME\n"
		r := p.call("write_file", args{"path": "sub/run.sh", "content": content, "mode": "0755"})
		if r.out["created"] != true || r.number("bytes") != len(content) {
			t.Errorf("%v", r.out)
		}
		if r = p.call("read_file", args{"path": "sub/run.sh"}); r.str("content") != content || r.text != content || r.number("total_lines") != 3 {
			t.Errorf("%q %v", r.text, r.out)
		}
		// Replaced, it is still a program; through a link, the link stays.
		p.run("ln -s sub/run.sh link")
		if r = p.call("write_file", args{"path": "link", "content": "#!/bin/bash\necho two\n"}); r.out["created"] != false || r.str("mode") != "0755" {
			t.Errorf("%v", r.out)
		}
		if got := p.run("./sub/run.sh; readlink link"); got != "two\nsub/run.sh\n" {
			t.Errorf("%q", got)
		}
		p.call("write_file", args{"path": "~/in home", "content": ""})
		if info, err := os.Stat(filepath.Join(u.home, "in home")); err != nil || info.Size() != 0 || info.Mode() != 0o644 {
			t.Error(err, info)
		}
		p.run("seq 1 5000 >numbers; head -c 3000 /dev/zero | tr '\\0' y >wide; head -c 100 /dev/zero >zeros")
		r = p.call("read_file", args{"path": "numbers"})
		if r.number("lines") != 2000 || r.number("total_lines") != 5000 || r.out["truncated"] != true {
			t.Errorf("%v", r.out)
		}
		contains(t, r.text, "offset 2001")
		if r = p.call("read_file", args{"path": "numbers", "offset": 4999, "limit": 10}); r.str("content") != "4999\n5000\n" {
			t.Errorf("%v", r.out)
		}
		if r = p.call("read_file", args{"path": "wide"}); !strings.HasPrefix(r.str("content"), strings.Repeat("y", 2000)+"... [1000 ") {
			t.Errorf("%v", r.out)
		}
		p.fails("unsupported", "read_file", args{"path": "zeros"})
		p.fails("config", "read_file", args{"path": "missing"})
		p.fails("config", "write_file", args{"path": u.home + "/dir", "content": "x"})
		p.fails("config", "write_file", args{"path": "f", "content": "x", "mode": "rwx"})
	})
}

func TestNoBackendBesidesThoseOfTheStartIsReached(t *testing.T) {
	// A server for a container alone: nothing names another place.
	u := newSetup(t, map[string]string{"backend": "docker"}, func(o *mcpserver.Options) { o.Backends = []string{"docker"} })
	p := u.overStreams(u.server, nil)
	for _, tool := range []string{"terminal", "process", "read_file", "write_file"} {
		arguments := args{"command": "touch " + u.home + "/escaped", "action": "list", "path": u.home + "/escaped", "content": "x", "backend": "local"}
		for key := range arguments {
			if wanted := map[string]string{"terminal": "command backend", "process": "action backend", "read_file": "path backend", "write_file": "path content backend"}; !strings.Contains(wanted[tool], key) {
				delete(arguments, key)
			}
		}
		r, err := p.try(t.Context(), tool, arguments)
		if err == nil && !r.IsError {
			t.Errorf("%s took the parameter: %s", tool, r.text)
		}
	}
	tools, err := p.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 4 {
		t.Fatal(err, tools)
	}
	for _, tool := range tools.Tools {
		schema, _ := json.Marshal(tool.InputSchema)
		if strings.Contains(string(schema), "backend") {
			t.Errorf("%s has the parameter: %s", tool.Name, schema)
		}
	}
	// One for two: the parameter takes those and no others.
	two := u.start(func(o *mcpserver.Options) { o.Backends = []string{"docker", "local"} })
	both := u.overStreams(two, nil)
	if r := both.call("terminal", args{"command": "echo here", "backend": "local"}); r.str("output") != "here\n" || r.str("backend") != "local" {
		t.Errorf("%v", r.out)
	}
	for _, other := range []string{"ssh", "LOCAL", "local/x", " local"} {
		if r, err := both.try(t.Context(), "terminal", args{"command": "touch " + u.home + "/escaped", "backend": other}); err == nil && !r.IsError {
			t.Errorf("%q was taken: %s", other, r.text)
		}
	}
	if _, err := os.Stat(u.home + "/escaped"); err == nil {
		t.Error("a command ran on this machine")
	}
}

func TestAModelIsToldWhereItsCommandsRun(t *testing.T) {
	u := newSetup(t, nil, nil)
	p := u.overStreams(u.server, nil)
	contains(t, p.InitializeResult().Instructions, "local (task default)", "What persists", "background:true")
	tools, err := p.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		a := tool.Annotations
		switch tool.Name {
		case "terminal", "process":
			if a.ReadOnlyHint || a.IdempotentHint || a.DestructiveHint == nil || !*a.DestructiveHint {
				t.Errorf("%s: %+v", tool.Name, a)
			}
		case "read_file":
			if !a.ReadOnlyHint {
				t.Errorf("%s: %+v", tool.Name, a)
			}
		case "write_file":
			if a.ReadOnlyHint || !a.IdempotentHint || !*a.DestructiveHint {
				t.Errorf("%s: %+v", tool.Name, a)
			}
		}
		if tool.OutputSchema == nil || len(tool.Description) < 40 {
			t.Errorf("%s has no schema or description", tool.Name)
		}
	}
}

func TestACommandEndsWithItsClient(t *testing.T) {
	t.Run("streams", func(t *testing.T) {
		u := newSetup(t, nil, nil)
		p := u.overStreams(u.server, nil)
		go func() { _, _ = p.try(t.Context(), "terminal", args{"command": beat}) }()
		waitFor(t, u.home+"/heart")
		_ = p.hangUp.Close()
		stops(t, u.home+"/heart")
	})
	t.Run("http", func(t *testing.T) {
		u := newSetup(t, nil, nil)
		web := u.listen(u.server)
		p := u.overHTTP(web, nil)
		go func() { _, _ = p.try(t.Context(), "terminal", args{"command": beat}) }()
		waitFor(t, u.home+"/heart")
		// The SDK's own Close would wait for the call.
		if status, body, _ := request(t, web.URL, func(r *http.Request) {
			r.Method, r.Body, r.ContentLength = http.MethodDelete, http.NoBody, 0
			r.Header.Set("Mcp-Session-Id", p.ID())
		}); status != http.StatusNoContent {
			t.Fatal(status, body)
		}
		stops(t, u.home+"/heart")
	})
}
