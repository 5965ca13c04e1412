package vercel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

const (
	// dialWait bounds opening a terminal.
	dialWait = 30 * time.Second
)

// term is one terminal of a session, with the command that was started on it. The client's going is the command's hang-up.
type term struct {
	conn *websocket.Conn

	ctx    context.Context // done when it is closed
	cancel context.CancelFunc
	once   sync.Once

	mu     sync.Mutex
	status *driver.ExitStatus // how the command ended; nil where that was not said
}

// dial opens a terminal for a relay.
func (s *sandbox) dial(ctx context.Context, argv []string) (ptychannel.Conn, error) {
	t, err := s.dialTerminal(ctx, argv, []string{"TERM=dumb"}, 10, 1000)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// dialTerminal opens a terminal on which argv runs: the API gives an address and a ticket, and the first word there says what to run.
func (s *sandbox) dialTerminal(ctx context.Context, argv, env []string, rows, cols uint16) (*term, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	var ticket struct{ URL, Token string }
	// A terminal that nobody comes to runs nothing, so that this may be sent twice.
	err := s.api.ask(ctx, cloudhttp.Request{Method: http.MethodPost, Path: session(s.getRun().ID, "/interactive"), Body: struct{}{}, Into: &ticket, Repeat: true})
	if err != nil {
		return nil, err
	}
	conn, err := connectTo(ctx, ticket.URL+"?token="+url.QueryEscape(ticket.Token))
	if err != nil {
		return nil, err
	}
	start, _ := json.Marshal(map[string]any{ // of strings and numbers alone
		"type": "start", "command": argv[0], "args": argv[1:], "env": env, "cwd": "/", "cols": cols, "rows": rows,
	})
	if err := conn.Write(ctx, websocket.MessageText, start); err != nil {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("starting a command on a terminal: %w", err)
	}
	t := &term{conn: conn}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go cloudhttp.KeepWatch(t.ctx, t.conn)
	return t, nil
}

// connectTo makes the connection. The far end may not be ready yet: one that was refused is tried again.
func connectTo(ctx context.Context, address string) (*websocket.Conn, error) {
	if strings.HasPrefix(address, "http") {
		address = "ws" + strings.TrimPrefix(address, "http")
	}
	for pause := 100 * time.Millisecond; ; pause *= 2 {
		conn, res, err := websocket.Dial(ctx, address, nil)
		if err == nil {
			conn.SetReadLimit(1 << 20)
			return conn, nil
		}
		// The address is a secret, and stands in the error's text.
		if u := new(url.Error); errors.As(err, &u) {
			err = u.Err
		}
		err = fmt.Errorf("connecting to a terminal: %w", err)
		if res != nil {
			err = &cloudhttp.Error{Service: "Vercel", Method: http.MethodGet, Path: "a terminal", Status: res.StatusCode}
			switch res.StatusCode {
			case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			default:
				return nil, err
			}
		}
		if pause > 2*time.Second || sleep(ctx, pause) != nil {
			return nil, err
		}
	}
}

// Read gives what comes next from the terminal.
func (t *term) Read(ctx context.Context) ([]byte, error) {
	kind, p, err := t.conn.Read(ctx)
	if err != nil {
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return nil, io.EOF
		}
		return nil, err
	}
	if kind == websocket.MessageText {
		var word struct {
			Type string
			Code *int
		}
		if json.Unmarshal(p, &word) == nil && word.Type == "exit" {
			if word.Code != nil {
				t.mu.Lock()
				t.status = &driver.ExitStatus{Code: *word.Code, Signal: signame.Of(*word.Code - 128)}
				t.mu.Unlock()
			}
			return nil, io.EOF
		}
	}
	return p, nil
}

// Write types p.
func (t *term) Write(ctx context.Context, p []byte) error {
	return t.conn.Write(ctx, websocket.MessageBinary, p)
}

// Leave gives the connection up. The service has no other end of a terminal.
func (t *term) Leave() error { return t.Close() }

// Close gives the connection up, by which what runs on the terminal is hung up.
func (t *term) Close() error {
	t.once.Do(func() {
		t.cancel()
		_ = t.conn.CloseNow()
	})
	return nil
}
