//go:build linux

package vercel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// ticket lets one client open one terminal in a session.
type ticket struct {
	session *session
	token   string
}

// terminal is a command on a terminal of its own, with the one client that started it.
type terminal struct {
	process *machine.Process
}

// kill ends the command; whoever else is on the terminal gets HUP.
func (t *terminal) kill() { _ = t.process.Signal(syscall.SIGKILL, false) }

// stream is a client's connection.
type stream struct {
	conn   *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	closed sync.Once
}

// Cut cuts the connection.
func (c *stream) Cut() { c.closed.Do(func() { c.cancel(); _ = c.conn.CloseNow() }) }

func (c *stream) send(kind websocket.MessageType, p []byte) error {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	return c.conn.Write(ctx, kind, p)
}

func (s *Server) terminalRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v2/sandboxes/sessions/{id}/interactive", s.onSession(true, func(w http.ResponseWriter, _ *http.Request, x *session) {
		s.mu.Lock()
		s.next++
		id, t := fmt.Sprintf("%d", s.next), &ticket{x, fmt.Sprintf("ticket_%d", s.next)}
		s.tickets[id] = t
		s.mu.Unlock()
		answer(w, 200, map[string]string{"url": "ws://" + s.Addr + "/terminal/" + id, "token": t.token})
	}))
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /terminal/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		t := s.tickets[r.PathValue("id")]
		if t != nil && t.token == r.URL.Query().Get("token") {
			delete(s.tickets, r.PathValue("id"))
		}
		s.mu.Unlock()
		if t == nil || t.token != r.URL.Query().Get("token") || t.session.state() != "running" {
			fail(w, http.StatusUnauthorized, "unauthorized", "Invalid token")
			return
		}
		t.session.serve(w, r)
	})
}

type startWord struct {
	Type    string   `json:"type"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Cwd     string   `json:"cwd"`
	Cols    int      `json:"cols"`
	Rows    int      `json:"rows"`
}

// serve starts what the client asks for in its first word, and carries bytes until the command ends or the client goes, which is a
// hang-up.
func (x *session) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	conn.SetReadLimit(1 << 20)
	c := &stream{conn: conn}
	c.ctx, c.cancel = context.WithCancel(x.s.Ctx)
	defer c.Cut()
	var q startWord
	kind, p, err := conn.Read(c.ctx)
	if err != nil || kind != websocket.MessageText || json.Unmarshal(p, &q) != nil || q.Type != "start" {
		_ = conn.Close(websocket.StatusPolicyViolation, "expected start")
		return
	}
	process, err := x.startTerminal(q)
	if err != nil {
		_ = conn.Close(websocket.StatusInternalError, err.Error())
		return
	}
	half, cutAfter := x.s.Begin(c)
	defer x.s.End(c)
	output := make(chan []byte, 64)
	go func() {
		defer close(output)
		buffer := make([]byte, 32<<10)
		for {
			n, err := process.Terminal.Read(buffer)
			if n > 0 {
				select {
				case output <- append([]byte(nil), buffer[:n]...):
				case <-c.ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		late, n := front.Delayed(c.ctx, output, half), 0
		for p := range late {
			if n == cutAfter {
				x.s.CountCut()
				c.Cut()
				return
			}
			if !x.daemon.Pass(c.ctx) || c.send(websocket.MessageBinary, p) != nil {
				return
			}
			n++
		}
		if c.ctx.Err() != nil {
			return
		}
		code, _ := process.Wait()
		word, _ := json.Marshal(map[string]any{"type": "exit", "code": code})
		if c.send(websocket.MessageText, word) == nil {
			c.closed.Do(func() { _ = conn.Close(websocket.StatusNormalClosure, ""); c.cancel() })
		}
	}()
	x.take(c, process, half)
	c.Cut()
	_ = process.Terminal.Close() // hang up
	<-over
}

// take carries what the client types until it goes.
func (x *session) take(c *stream, process *machine.Process, half time.Duration) {
	in := make(chan []byte, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range front.Delayed(c.ctx, in, half) {
			x.daemon.Pass(c.ctx)
			if _, err := process.Terminal.Write(p); err != nil {
				return
			}
		}
	}()
	defer func() {
		close(in)
		select { // what came before is the command's, also when the client has gone
		case <-done:
		case <-time.After(time.Second):
		}
	}()
	for {
		kind, p, err := c.conn.Read(c.ctx)
		if err != nil || x.s.CutNow() {
			return
		}
		if kind == websocket.MessageText {
			var q startWord
			if json.Unmarshal(p, &q) == nil && q.Type == "resize" {
				_ = process.Resize(machine.Size{Cols: q.Cols, Rows: q.Rows})
				continue
			}
		}
		select {
		case in <- p:
		case <-done:
			return
		}
	}
}

func (x *session) startTerminal(q startWord) (*machine.Process, error) {
	if q.Cwd == "" {
		q.Cwd = workDir
	}
	argv := append([]string{q.Command}, q.Args...)
	if q.Command == "" {
		argv = append([]string{"bash"}, q.Args...)
	}
	size := machine.Size{Cols: max(q.Cols, 1), Rows: max(q.Rows, 1)}
	p, err := x.machine.StartCommand(machine.Command{Args: argv, Env: append(x.env(nil), q.Env...), Dir: q.Cwd, Terminal: &size})
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.terms = append(x.terms, &terminal{p})
	x.mu.Unlock()
	return p, nil
}
