//go:build linux

package daytona

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// workDir is where the daemon runs.
const workDir = "/root"

// env is the environment of what the daemon starts.
func (b *sandbox) env(more map[string]string) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DAYTONA_SANDBOX_ID=" + b.id, "DAYTONA_SANDBOX_USER=root",
	}
	for _, m := range []map[string]string{b.body.Env, more} {
		for k, v := range m {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func (b *sandbox) touch() {
	b.mu.Lock()
	b.used = time.Now()
	b.mu.Unlock()
}

// onToolbox serves a path of the toolbox, which answers while the sandbox runs.
func (s *Server) onToolbox(mux *http.ServeMux) func(string, func(http.ResponseWriter, *http.Request, *sandbox)) {
	return func(pattern string, do func(http.ResponseWriter, *http.Request, *sandbox)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			a := s.account(w, r)
			if a == nil {
				return
			}
			b := s.find(a, r.PathValue("ref"))
			if b == nil {
				fail(w, r, http.StatusNotFound, "sandbox not found", "SANDBOX_NOT_FOUND")
				return
			}
			if s.State(b.id) != "started" {
				fail(w, r, http.StatusBadRequest, "bad request: failed to get runner info: Sandbox is not started", "SANDBOX_NOT_STARTED")
				return
			}
			b.touch()
			if !b.daemon.IsOpen() {
				_, _ = io.Copy(io.Discard, r.Body) // so that the client's going is seen
				b.daemon.Pass(r.Context())
				fail(w, r, http.StatusBadGateway, "bad gateway: the daemon does not answer")
				return
			}
			do(w, r, b)
		})
	}
}

func (s *Server) processRoutes(mux *http.ServeMux) {
	on := s.onToolbox(mux)
	s.ptyRoutes(on)
	s.sessionRoutes(on)
	on("POST /toolbox/{ref}/process/execute", s.execute)
	for path, dir := range map[string]string{"user-home-dir": "/root", "work-dir": workDir} {
		on("GET /toolbox/{ref}/"+path, func(w http.ResponseWriter, _ *http.Request, _ *sandbox) {
			answer(w, 200, map[string]string{"dir": dir})
		})
	}
	on("GET /toolbox/{ref}/version", func(w http.ResponseWriter, _ *http.Request, _ *sandbox) {
		answer(w, 200, map[string]string{"version": "0.218.0"})
	})
}

// execute gives a command to a shell's stdin and answers when all is over.
func (s *Server) execute(w http.ResponseWriter, r *http.Request, b *sandbox) {
	var q struct {
		Command string
		Cwd     string
		Envs    map[string]string
		Timeout int
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Command == "" {
		fail(w, r, http.StatusBadRequest, "command is required")
		return
	}
	if q.Cwd == "" {
		q.Cwd = workDir
	}
	in, feed, err := os.Pipe()
	if err != nil {
		fail(w, r, http.StatusInternalServerError, err.Error())
		return
	}
	out, into, _ := os.Pipe()
	p, err := b.machine.StartCommand(machine.Command{Args: []string{"bash"}, Env: b.env(q.Envs), Dir: q.Cwd, Stdin: in, Stdout: into, Stderr: into})
	_, _ = in.Close(), into.Close()
	if err != nil {
		_, _ = feed.Close(), out.Close()
		answer(w, 200, map[string]any{"exitCode": -1, "result": ""})
		return
	}
	go func() {
		_, _ = io.WriteString(feed, q.Command+"\n")
		_ = feed.Close()
	}()
	text := make(chan []byte, 1)
	go func() {
		all, _ := io.ReadAll(out)
		_ = out.Close()
		text <- all
	}()
	var late <-chan time.Time
	if q.Timeout > 0 {
		late = time.After(time.Duration(q.Timeout) * time.Second)
	}
	select {
	case <-p.Done():
		code, _ := p.Wait()
		// A child in the background holds the answer up.
		select {
		case all := <-text:
			answer(w, 200, map[string]any{"exitCode": code, "result": string(all)})
		case <-s.Ctx.Done():
		}
	case <-late:
		_ = p.Signal(9, true)
		fail(w, r, http.StatusRequestTimeout, "command execution timeout", "PROCESS_EXECUTION_TIMEOUT")
	case <-s.Ctx.Done():
		_ = p.Signal(9, true)
	}
}

// session is a shell that sources one command after the other.
type session struct {
	id      string
	dir     string // in the machine
	root    string // the machine's, on the host
	process *machine.Process
	stdin   *os.File
	once    sync.Once

	mu       sync.Mutex
	commands int
}

func (x *session) kill() {
	x.once.Do(func() {
		_ = x.process.Signal(15, true)
		select {
		case <-x.process.Done():
		case <-time.After(5 * time.Second):
			_ = x.process.Signal(9, true)
		}
		_ = x.stdin.Close()
	})
}

// read reads a file of a command; nil where it is not there.
func (x *session) read(command, name string) []byte {
	text, _ := os.ReadFile(filepath.Join(x.root, x.dir, command, name))
	return text
}

func (x *session) exitCode(command string) (int, bool) {
	text := strings.TrimSpace(string(x.read(command, "code")))
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// lines is a log as the service keeps it: whole lines.
func lines(text []byte) string {
	s := strings.ReplaceAll(string(text), "\x00", "")
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

func (x *session) view(command string) map[string]any {
	out, errs := lines(x.read(command, "out")), lines(x.read(command, "err"))
	marked := ""
	for line := range strings.Lines(out) {
		marked += "\x01\x01\x01" + line
	}
	for line := range strings.Lines(errs) {
		marked += "\x02\x02\x02" + line
	}
	return map[string]any{"output": marked, "stdout": out, "stderr": errs}
}

func (s *Server) sessionRoutes(on func(string, func(http.ResponseWriter, *http.Request, *sandbox))) {
	on("POST /toolbox/{ref}/process/session", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		var q struct{ SessionID string }
		_ = json.NewDecoder(r.Body).Decode(&q)
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case q.SessionID == "" || q.SessionID == "entrypoint":
			fail(w, r, http.StatusBadRequest, "invalid session id")
		case b.sessions[q.SessionID] != nil:
			fail(w, r, http.StatusConflict, "session already exists")
		default:
			in, feed, _ := os.Pipe()
			p, err := b.machine.StartCommand(machine.Command{Args: []string{"bash"}, Env: b.env(nil), Dir: workDir, Stdin: in})
			_ = in.Close()
			if err != nil {
				_ = feed.Close()
				fail(w, r, http.StatusInternalServerError, err.Error())
				return
			}
			b.sessions[q.SessionID] = &session{id: q.SessionID, dir: "/tmp/.daytona/" + strconv.Itoa(len(b.sessions)) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), root: b.machine.Root(), process: p, stdin: feed}
			answer(w, http.StatusCreated, nil)
		}
	})
	on("GET /toolbox/{ref}/process/session", func(w http.ResponseWriter, _ *http.Request, b *sandbox) {
		b.mu.Lock()
		defer b.mu.Unlock()
		list := []any{}
		for _, x := range b.sessions {
			list = append(list, map[string]any{"sessionId": x.id, "commands": []any{}})
		}
		answer(w, 200, list)
	})
	with := func(pattern string, do func(http.ResponseWriter, *http.Request, *sandbox, *session)) {
		on(pattern, func(w http.ResponseWriter, r *http.Request, b *sandbox) {
			b.mu.Lock()
			x := b.sessions[r.PathValue("session")]
			b.mu.Unlock()
			if x == nil {
				fail(w, r, http.StatusNotFound, "session not found")
				return
			}
			do(w, r, b, x)
		})
	}
	with("DELETE /toolbox/{ref}/process/session/{session}", func(w http.ResponseWriter, _ *http.Request, b *sandbox, x *session) {
		b.mu.Lock()
		delete(b.sessions, x.id)
		b.mu.Unlock()
		x.kill()
		w.WriteHeader(http.StatusNoContent)
	})
	with("GET /toolbox/{ref}/process/session/{session}", func(w http.ResponseWriter, _ *http.Request, _ *sandbox, x *session) {
		answer(w, 200, map[string]any{"sessionId": x.id, "commands": []any{}})
	})
	with("POST /toolbox/{ref}/process/session/{session}/exec", s.sessionExec)
	with("GET /toolbox/{ref}/process/session/{session}/command/{command}", func(w http.ResponseWriter, r *http.Request, _ *sandbox, x *session) {
		info := map[string]any{"id": r.PathValue("command"), "command": string(x.read(r.PathValue("command"), "command"))}
		if code, ok := x.exitCode(r.PathValue("command")); ok {
			info["exitCode"] = code
		}
		answer(w, 200, info)
	})
	with("GET /toolbox/{ref}/process/session/{session}/command/{command}/logs", s.sessionLogs)
	with("POST /toolbox/{ref}/process/session/{session}/command/{command}/input", func(w http.ResponseWriter, r *http.Request, _ *sandbox, x *session) {
		command := r.PathValue("command")
		if _, over := x.exitCode(command); over {
			fail(w, r, http.StatusGone, "command already completed", "COMMAND_ALREADY_COMPLETED")
			return
		}
		var q struct{ Data string }
		_ = json.NewDecoder(r.Body).Decode(&q)
		if !strings.HasSuffix(q.Data, "\n") {
			q.Data += "\n"
		}
		in, err := os.OpenFile(filepath.Join(x.root, x.dir, command, "in"), os.O_RDWR, 0)
		if err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		defer in.Close()
		_, _ = io.WriteString(in, q.Data)
		w.WriteHeader(http.StatusNoContent)
	})
}

func (s *Server) sessionExec(w http.ResponseWriter, r *http.Request, _ *sandbox, x *session) {
	var q struct {
		Command         string
		RunAsync, Async bool
	}
	if json.NewDecoder(r.Body).Decode(&q) != nil || q.Command == "" {
		fail(w, r, http.StatusBadRequest, "command is required")
		return
	}
	async := q.RunAsync || q.Async
	x.mu.Lock()
	id := fmt.Sprintf("cmd-%d", x.commands)
	x.commands++
	dir := filepath.Join(x.root, x.dir, id)
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "command"), []byte(q.Command), 0o644)
	}
	at, in := x.dir+"/"+id, "/dev/null"
	if async {
		in = at + "/in"
	}
	if err == nil {
		_, err = fmt.Fprintf(x.stdin, "mkfifo %[1]s/in; exec 9<>%[1]s/in; . %[1]s/command <%[2]s >%[1]s/out 2>%[1]s/err; echo $? >%[1]s/code.new; mv %[1]s/code.new %[1]s/code; exec 9<&-\n", at, in)
	}
	x.mu.Unlock()
	if err != nil {
		fail(w, r, http.StatusInternalServerError, err.Error())
		return
	}
	if async {
		// Its stdin is open for whoever writes next.
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
			if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
				break
			}
		}
		answer(w, http.StatusAccepted, map[string]any{"cmdId": id})
		return
	}
	for {
		if code, ok := x.exitCode(id); ok {
			body := x.view(id)
			body["cmdId"], body["exitCode"] = id, code
			answer(w, 200, body)
			return
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-s.Ctx.Done():
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) sessionLogs(w http.ResponseWriter, r *http.Request, _ *sandbox, x *session) {
	command := r.PathValue("command")
	if r.URL.Query().Get("follow") != "true" {
		answer(w, 200, x.view(command))
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.Ctx)
	defer cancel()
	ctx = conn.CloseRead(ctx)
	sent := map[string]int{}
	for {
		_, over := x.exitCode(command)
		for name, mark := range map[string]string{"out": "\x01\x01\x01", "err": "\x02\x02\x02"} {
			text := x.read(command, name)
			if !over {
				text = text[:strings.LastIndexByte(string(text), '\n')+1]
			}
			all := lines(text)
			for line := range strings.Lines(all[sent[name]:]) {
				_ = conn.Write(ctx, websocket.MessageBinary, []byte(mark+line))
			}
			sent[name] = len(all)
		}
		if over {
			_ = conn.Close(websocket.StatusNormalClosure, "")
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}
