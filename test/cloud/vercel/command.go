//go:build linux

package vercel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// command is one that runs or ran in a session.
type command struct {
	id      string
	session *session
	q       commandRequest
	process *machine.Process
	started time.Time

	mu      sync.Mutex
	changed chan struct{} // closed and made anew when something comes
	log     []logLine
	open    int // streams that have not ended
	ended   bool
	code    int
	took    time.Duration
}

type commandRequest struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env"`
	Sudo    bool              `json:"sudo"`
	Timeout int64             `json:"timeout"` // ms
	Wait    bool              `json:"wait"`
	Logs    bool              `json:"logs"`
}

type logLine struct {
	Stream string `json:"stream"`
	Data   any    `json:"data"`
}

// drainWait is how long an end waits for output that a child in the background may hold.
const drainWait = 200 * time.Millisecond

// env is the environment of what is started in a session.
func (x *session) env(more map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	for _, m := range []map[string]string{x.box.body.Env, more} {
		for k, v := range m {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func (x *session) startCommand(q commandRequest) (*command, error) {
	if q.Cwd == "" {
		q.Cwd = workDir
	}
	if q.Args == nil {
		q.Args = []string{}
	}
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	errs, errEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p, err := x.machine.StartCommand(machine.Command{Args: append([]string{q.Command}, q.Args...), Env: x.env(q.Env), Dir: q.Cwd, Stdout: outEnd, Stderr: errEnd})
	_, _ = outEnd.Close(), errEnd.Close()
	if err != nil {
		_, _ = out.Close(), errs.Close()
		return nil, err
	}
	x.s.mu.Lock()
	x.s.next++
	c := &command{id: fmt.Sprintf("cmd_%06d", x.s.next), session: x, q: q, process: p, started: time.Now(), open: 2, changed: make(chan struct{})}
	x.s.mu.Unlock()
	x.mu.Lock()
	x.commands[c.id] = c
	x.mu.Unlock()
	go c.read("stdout", out)
	go c.read("stderr", errs)
	go c.reap()
	return c, nil
}

// read keeps a stream's text; no character is cut in two.
func (c *command) read(stream string, from *os.File) {
	defer from.Close()
	buffer, held := make([]byte, 32<<10), []byte(nil)
	for {
		n, err := from.Read(buffer)
		text := append(held, buffer[:n]...)
		cut := len(text)
		for back := 1; err == nil && back < utf8.UTFMax && back <= len(text); back++ {
			if last := text[len(text)-back:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRune(last) {
					cut = len(text) - back
				}
				break
			}
		}
		held = append([]byte(nil), text[cut:]...)
		c.mu.Lock()
		if cut > 0 {
			c.log = append(c.log, logLine{stream, string(text[:cut])})
		}
		if err != nil {
			c.open--
		}
		c.tell()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// tell wakes who waits. mu is held.
func (c *command) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// reap notes the end, after the output unless somebody else holds it.
func (c *command) reap() {
	if c.q.Timeout > 0 {
		late := time.AfterFunc(time.Duration(c.q.Timeout)*time.Millisecond, func() { _ = c.process.Signal(syscall.SIGKILL, true) })
		defer late.Stop()
	}
	code, _ := c.process.Wait()
	wait := time.NewTimer(drainWait)
	defer wait.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.open > 0 {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
			continue
		case <-wait.C:
		}
		c.mu.Lock()
		break
	}
	c.ended, c.code, c.took = true, code, time.Since(c.started)
	c.tell()
}

// view is the command as the API shows it. mu is held.
func (c *command) view() map[string]any {
	v := map[string]any{
		"id": c.id, "name": c.q.Command, "args": c.q.Args, "cwd": c.q.Cwd, "sessionId": c.session.id, "exitCode": nil, "startedAt": ms(c.started),
	}
	if c.ended {
		v["exitCode"], v["durationMs"] = c.code, c.took.Milliseconds()
	}
	return map[string]any{"command": v}
}

// stream writes the log from its beginning until the command has ended, and then its end where that is wanted.
func (c *command) stream(w http.ResponseWriter, r *http.Request, logs, frame bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flush := json.NewEncoder(w), http.NewResponseController(w)
	c.mu.Lock()
	defer c.mu.Unlock()
	write := func(v any) bool {
		c.mu.Unlock()
		err := lines.Encode(v)
		_ = flush.Flush()
		c.mu.Lock()
		return err == nil
	}
	if frame {
		v := c.view()
		v["command"].(map[string]any)["exitCode"] = nil
		if !write(v) {
			return
		}
	}
	_, cutAfter := c.session.s.StreamFaults()
	for at := 0; ; {
		for logs && at < len(c.log) {
			if at == cutAfter {
				c.session.s.CountCut()
				if conn, _, err := flush.Hijack(); err == nil {
					_ = conn.Close()
				}
				return
			}
			if !write(c.log[at]) {
				return
			}
			at++
		}
		if c.ended {
			if frame {
				if c.session.alive() {
					write(c.view())
				} else {
					write(logLine{"error", map[string]string{"code": "sandbox_stopped", "message": "Sandbox stopped"}})
				}
			}
			return
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		c.mu.Lock()
		if r.Context().Err() != nil {
			return
		}
	}
}

func (c *command) await(ctx context.Context) {
	for {
		c.mu.Lock()
		ended, changed := c.ended, c.changed
		c.mu.Unlock()
		if ended {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) commandRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v2/sandboxes/sessions/{id}/cmd", s.onSession(true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var q commandRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || q.Command == "" {
			fail(w, http.StatusBadRequest, "bad_request", "command is required")
			return
		}
		c, err := x.startCommand(q)
		if err != nil {
			fail(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
		if q.Wait {
			c.stream(w, r, q.Logs, true)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, 200, c.view())
	}))
	on := func(pattern string, do func(http.ResponseWriter, *http.Request, *command)) {
		mux.HandleFunc(pattern, s.onSession(false, func(w http.ResponseWriter, r *http.Request, x *session) {
			x.mu.Lock()
			c := x.commands[r.PathValue("cmd")]
			x.mu.Unlock()
			if c == nil {
				fail(w, http.StatusNotFound, "not_found", "Command not found")
				return
			}
			do(w, r, c)
		}))
	}
	on("GET /api/v2/sandboxes/sessions/{id}/cmd/{cmd}", func(w http.ResponseWriter, r *http.Request, c *command) {
		if r.URL.Query().Get("wait") == "true" {
			c.await(r.Context())
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, 200, c.view())
	})
	on("GET /api/v2/sandboxes/sessions/{id}/cmd/{cmd}/logs", func(w http.ResponseWriter, r *http.Request, c *command) { c.stream(w, r, true, false) })
	on("POST /api/v2/sandboxes/sessions/{id}/cmd/{cmd}/kill", func(w http.ResponseWriter, r *http.Request, c *command) {
		var q struct{ Signal int }
		if json.NewDecoder(r.Body).Decode(&q) != nil || q.Signal < 1 || q.Signal > 64 {
			fail(w, http.StatusBadRequest, "bad_request", "Invalid signal")
			return
		}
		_ = c.process.Signal(syscall.Signal(q.Signal), true)
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, 200, c.view())
	})
}
