//go:build linux

package daytona

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

const exitControl = "X-Daytona-Pty-Exit-Control"

// terminal is a login shell on a terminal. Any number of clients may be attached.
type terminal struct {
	id      string
	process *machine.Process
	input   chan []byte
	killed  chan struct{}
	once    sync.Once

	mu      sync.Mutex
	clients map[*stream]struct{}
	size    machine.Size
	created time.Time
	cwd     string
	envs    map[string]string
}

// stream is one client's connection. What it does not take in time is its end, as at the service.
type stream struct {
	conn   *websocket.Conn
	out    chan []byte
	ctx    context.Context
	cancel context.CancelFunc
	exit   bool // the client wants to be told of the end
	closed sync.Once
}

// Cut cuts the connection.
func (c *stream) Cut() { c.closed.Do(func() { c.cancel(); _ = c.conn.CloseNow() }) }

func (c *stream) close(code websocket.StatusCode, reason string) {
	c.closed.Do(func() {
		_ = c.conn.Close(code, reason)
		c.cancel()
	})
}

type ptyRequest struct {
	ID        string            `json:"id"`
	Cwd       string            `json:"cwd"`
	Envs      map[string]string `json:"envs"`
	Cols      int               `json:"cols"`
	Rows      int               `json:"rows"`
	LazyStart bool              `json:"lazyStart"`
}

// open starts a terminal.
func (b *sandbox) open(q ptyRequest) (*terminal, int, error) {
	if q.ID == "" {
		return nil, http.StatusBadRequest, errors.New("session ID is required")
	}
	if q.Cols > 1000 || q.Rows > 1000 {
		return nil, http.StatusBadRequest, errors.New("invalid value for cols or rows - must be less than 1000")
	}
	if q.Cols == 0 {
		q.Cols = 80
	}
	if q.Rows == 0 {
		q.Rows = 24
	}
	if q.Cwd == "" {
		q.Cwd = workDir
	}
	envs := map[string]string{"TERM": "xterm-256color"}
	for k, v := range q.Envs {
		envs[k] = v
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.terms[q.ID] != nil {
		return nil, http.StatusConflict, fmt.Errorf("PTY session with ID '%s' already exists", q.ID)
	}
	t := &terminal{
		id: q.ID, clients: map[*stream]struct{}{}, input: make(chan []byte, 1024), killed: make(chan struct{}),
		size: machine.Size{Cols: q.Cols, Rows: q.Rows}, created: time.Now(), cwd: q.Cwd, envs: envs,
	}
	p, err := b.machine.StartCommand(machine.Command{Args: []string{"bash", "-i", "-l"}, Env: b.env(envs), Dir: q.Cwd, Terminal: &t.size})
	if err != nil {
		return nil, http.StatusInternalServerError, err
	}
	t.process = p
	b.terms[q.ID] = t
	b.s.Work.Go(t.readOutput)
	b.s.Work.Go(t.writeInput)
	b.s.Work.Go(func() { b.reap(t) })
	return t, 0, nil
}

// readOutput passes the terminal's output on to whoever is attached; a client whose queue is full is dropped.
func (t *terminal) readOutput() {
	buffer := make([]byte, 32<<10)
	for {
		n, err := t.process.Terminal.Read(buffer)
		if n > 0 {
			piece := append([]byte(nil), buffer[:n]...)
			t.mu.Lock()
			for c := range t.clients {
				select {
				case c.out <- piece:
				default:
					go c.close(websocket.StatusPolicyViolation, "slow consumer")
				}
			}
			t.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

func (t *terminal) writeInput() {
	for {
		select {
		case p := <-t.input:
			if _, err := t.process.Terminal.Write(p); err != nil {
				return
			}
		case <-t.killed:
			return
		}
	}
}

// reap tells the clients how the shell ended.
func (b *sandbox) reap(t *terminal) {
	code, _ := t.process.Wait()
	b.mu.Lock()
	if b.terms[t.id] == t {
		delete(b.terms, t.id)
	}
	b.mu.Unlock()
	t.once.Do(func() { close(t.killed) })
	// What the terminal still holds may come too late, as at the service, where the two race.
	t.closeClients(code)
	_ = t.process.Terminal.Close()
}

func (t *terminal) closeClients(code int) {
	closing, reason := websocket.StatusNormalClosure, ""
	if code != 0 {
		closing, reason = websocket.StatusInternalError, "non-zero exit"
	}
	if code > 128 {
		reason = fmt.Sprintf("signal %d", code-128)
	}
	end := map[string]any{"exitCode": code}
	if reason != "" {
		end["exitReason"] = reason
	}
	text, _ := json.Marshal(end)
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.clients {
		go func() {
			if c.exit {
				word := map[string]any{"type": "control", "status": "exited", "exitCode": code}
				if reason != "" {
					word["exitReason"] = reason
				}
				said, _ := json.Marshal(word)
				c.send(websocket.MessageText, said)
			}
			c.close(closing, string(text))
		}()
	}
}

func (c *stream) send(kind websocket.MessageType, p []byte) {
	ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
	defer cancel()
	_ = c.conn.Write(ctx, kind, p)
}

// kill ends the shell by KILL, and the terminal with it: whoever else is on it gets HUP.
func (t *terminal) kill() {
	t.once.Do(func() { close(t.killed) })
	_ = t.process.Signal(9, false)
}

// attach serves one client until it goes or the terminal ends.
func (b *sandbox) attach(w http.ResponseWriter, r *http.Request, t *terminal, wrong error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{exitControl}, InsecureSkipVerify: true})
	if err != nil {
		return
	}
	conn.SetReadLimit(64 << 10)
	c := &stream{conn: conn, out: make(chan []byte, 256), exit: strings.Contains(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), exitControl)}
	c.ctx, c.cancel = context.WithCancel(b.s.Ctx)
	defer c.Cut()
	if wrong != nil {
		said, _ := json.Marshal(map[string]string{"type": "control", "status": "error", "error": "Failed to connect to PTY session: " + wrong.Error()})
		c.send(websocket.MessageText, said)
		c.close(websocket.StatusInternalError, "")
		return
	}
	half, cutAfter := b.s.Begin(c)
	t.mu.Lock()
	t.clients[c] = struct{}{}
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.clients, c)
		t.mu.Unlock()
		b.s.End(c)
	}()
	c.send(websocket.MessageText, []byte(`{"type":"control","status":"connected"}`))
	out := front.Delayed(c.ctx, c.out, half)
	b.s.Work.Go(func() {
		for n := 0; ; n++ {
			select {
			case p, more := <-out:
				if !more {
					return
				}
				if n == cutAfter {
					b.s.CountCut()
					c.Cut()
				}
				if b.daemon.Pass(c.ctx) {
					c.send(websocket.MessageBinary, p)
				}
			case <-c.ctx.Done():
				return
			}
		}
	})
	in := make(chan []byte, 1024)
	late := front.Delayed(c.ctx, in, half)
	b.s.Work.Go(func() {
		for {
			select {
			case p, more := <-late:
				if !more {
					return
				}
				b.daemon.Pass(c.ctx)
				select {
				case t.input <- p:
				case <-t.killed:
				}
			case <-c.ctx.Done():
				return
			}
		}
	})
	for {
		_, p, err := conn.Read(c.ctx)
		if err != nil || b.s.CutNow() {
			// What came before is the terminal's, also when the client has gone.
			for deadline := time.Now().Add(time.Second); half == 0 && len(in) > 0 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			return
		}
		b.touch()
		select {
		case in <- p:
		case <-t.killed:
		}
	}
}

func (s *Server) ptyRoutes(on func(string, func(http.ResponseWriter, *http.Request, *sandbox))) {
	on("POST /toolbox/{ref}/process/pty", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		var q ptyRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			fail(w, r, http.StatusBadRequest, err.Error())
			return
		}
		if _, status, err := b.open(q); err != nil {
			fail(w, r, status, err.Error())
			return
		}
		answer(w, http.StatusCreated, map[string]string{"sessionId": q.ID})
	})
	on("GET /toolbox/{ref}/process/pty/create-connect", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		s.mu.Lock()
		old := s.old
		s.mu.Unlock()
		if old {
			http.NotFound(w, r)
			return
		}
		q := ptyRequest{ID: r.URL.Query().Get("id"), Cwd: r.URL.Query().Get("cwd"), Cols: front.Number(r, "cols", 80), Rows: front.Number(r, "rows", 24)}
		for _, protocol := range strings.FieldsFunc(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), func(c rune) bool { return c == ',' || c == ' ' }) {
			if coded, ok := strings.CutPrefix(protocol, "X-Daytona-Pty-Envs~"); ok {
				text, err := base64.RawURLEncoding.DecodeString(coded)
				if err != nil || json.Unmarshal(text, &q.Envs) != nil {
					fail(w, r, http.StatusBadRequest, "invalid environment")
					return
				}
			}
		}
		t, status, err := b.open(q)
		if err != nil && status != http.StatusInternalServerError {
			fail(w, r, status, err.Error())
			return
		}
		b.attach(w, r, t, err)
	})
	on("GET /toolbox/{ref}/process/pty/{id}/connect", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		t := b.term(r.PathValue("id"))
		var wrong error
		if t == nil {
			wrong = fmt.Errorf("PTY session %s not found", r.PathValue("id"))
		}
		b.attach(w, r, t, wrong)
	})
	on("GET /toolbox/{ref}/process/pty", func(w http.ResponseWriter, _ *http.Request, b *sandbox) {
		b.mu.Lock()
		list := []any{}
		for _, t := range b.terms {
			list = append(list, t.info())
		}
		b.mu.Unlock()
		answer(w, 200, map[string]any{"sessions": list})
	})
	withTerm := func(pattern string, do func(http.ResponseWriter, *http.Request, *terminal)) {
		on(pattern, func(w http.ResponseWriter, r *http.Request, b *sandbox) {
			t := b.term(r.PathValue("id"))
			if t == nil {
				fail(w, r, http.StatusNotFound, "PTY session not found")
				return
			}
			do(w, r, t)
		})
	}
	withTerm("GET /toolbox/{ref}/process/pty/{id}", func(w http.ResponseWriter, _ *http.Request, t *terminal) { answer(w, 200, t.info()) })
	withTerm("DELETE /toolbox/{ref}/process/pty/{id}", func(w http.ResponseWriter, _ *http.Request, t *terminal) {
		t.kill()
		answer(w, 200, map[string]string{"message": "PTY session deleted"})
	})
	withTerm("POST /toolbox/{ref}/process/pty/{id}/resize", func(w http.ResponseWriter, r *http.Request, t *terminal) {
		var q struct{ Cols, Rows int }
		if json.NewDecoder(r.Body).Decode(&q) != nil || q.Cols < 1 || q.Rows < 1 || q.Cols > 1000 || q.Rows > 1000 {
			fail(w, r, http.StatusBadRequest, "cols and rows must be between 1 and 1000")
			return
		}
		t.mu.Lock()
		t.size = machine.Size{Cols: q.Cols, Rows: q.Rows}
		t.mu.Unlock()
		if err := t.process.Resize(machine.Size{Cols: q.Cols, Rows: q.Rows}); err != nil {
			fail(w, r, http.StatusInternalServerError, err.Error())
			return
		}
		answer(w, 200, t.info())
	})
}

func (b *sandbox) term(id string) *terminal {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.terms[id]
}

func (t *terminal) info() map[string]any {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]any{
		"id": t.id, "cwd": t.cwd, "envs": t.envs, "cols": t.size.Cols, "rows": t.size.Rows, "active": true, "lazyStart": false,
		"createdAt": t.created.UTC().Format(time.RFC3339),
	}
}
