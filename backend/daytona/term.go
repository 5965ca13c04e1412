package daytona

import (
	"context"
	"encoding/base64"
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
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
	"github.com/elsewhere-sh/elsewhere/internal/signame"
)

const (
	// dialWait bounds opening a terminal.
	dialWait = 30 * time.Second
	// deleteWait bounds the request that ends a terminal.
	deleteWait = 15 * time.Second

	exitControl = "X-Daytona-Pty-Exit-Control"
	envsPrefix  = "X-Daytona-Pty-Envs~"
)

// terminalEnv is what a terminal's login shell gets: no start file of the user's is read, since that would run before anything of
// ours, and nothing is drawn.
var terminalEnv = map[string]string{"HOME": "/dev/null", "TERM": "dumb"}

// term is one terminal of the toolbox.
type term struct {
	box  *sandbox
	id   string
	conn *websocket.Conn

	ctx    context.Context // done when it is closed
	cancel context.CancelFunc
	once   sync.Once

	mu     sync.Mutex
	ended  bool               // the shell has ended: nothing is left to be deleted
	status *driver.ExitStatus // how; nil where the toolbox did not say
}

// terminalID names a terminal after its owner, so that what a dead one left can be told.
func (s *sandbox) terminalID() string {
	return terminalPrefix + owner.Tag(s.req.Identity.Home) + "-" + s.owner + "-" + owner.NewID()
}

const terminalPrefix = "elsewhere-"

// dialBash opens a terminal for a relay: its shell is given the command to read.
func (s *sandbox) dialBash(ctx context.Context, argv []string) (ptychannel.Conn, error) {
	line, err := ptychannel.Line(argv)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "%w", err)
	}
	// Few rows, so that zsh asks a new user nothing; many columns, so that no line is wrapped.
	t, err := s.dial(ctx, terminalEnv, 10, 1000)
	if err != nil {
		return nil, err
	}
	if err := t.Write(ctx, []byte(line+"\n")); err != nil {
		_ = t.Close()
		return nil, fmt.Errorf("typing into a terminal: %w", err)
	}
	return t, nil
}

// dial opens a terminal and waits until the toolbox says that it is connected.
func (s *sandbox) dial(ctx context.Context, env map[string]string, rows, cols int) (*term, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	t := &term{box: s, id: s.terminalID()}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	err := t.connect(ctx, env, rows, cols)
	if err == nil {
		err = t.greet(ctx)
	}
	if err != nil {
		_ = t.Close()
		return nil, err
	}
	go cloudhttp.KeepWatch(t.ctx, t.conn)
	return t, nil
}

// connect opens the terminal and its connection by one request, or by two where the daemon is older.
func (t *term) connect(ctx context.Context, env map[string]string, rows, cols int) error {
	q := url.Values{"id": {t.id}, "cwd": {"/"}, "rows": {fmt.Sprint(rows)}, "cols": {fmt.Sprint(cols)}}
	if !t.box.old.Load() {
		coded, _ := json.Marshal(env) // strings always marshal
		err := t.websocket(ctx, "/process/pty/create-connect?"+q.Encode(), envsPrefix+base64.RawURLEncoding.EncodeToString(coded), exitControl)
		if !errors.Is(err, errNoSuchPath) {
			return err
		}
		t.box.old.Store(true)
	}
	err := t.box.api.Do(ctx, cloudhttp.Request{
		Method: http.MethodPost, Path: t.box.toolbox + "/process/pty",
		Body: map[string]any{"id": t.id, "cwd": "/", "envs": env, "rows": rows, "cols": cols},
	})
	if err != nil {
		return err
	}
	return t.websocket(ctx, "/process/pty/"+t.id+"/connect", exitControl)
}

// errNoSuchPath says that the toolbox does not know a path.
var errNoSuchPath = errors.New("the toolbox does not know this path")

// websocket makes the connection. One that was refused before anything was done (429, 502, 503: the proxy's) is tried again.
func (t *term) websocket(ctx context.Context, path string, protocols ...string) error {
	for pause := 200 * time.Millisecond; ; pause *= 2 {
		address := "ws" + strings.TrimPrefix(t.box.toolbox, "http") + path
		conn, res, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: t.box.api.Header, Subprotocols: protocols})
		if err == nil {
			conn.SetReadLimit(1 << 20)
			t.conn = conn
			return nil
		}
		if res == nil {
			return err
		}
		text := ""
		if res.Body != nil {
			part, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
			text = string(part)
		}
		refused := &cloudhttp.Error{Service: "Daytona", Method: http.MethodGet, Path: "a terminal", Status: res.StatusCode, Message: message(text)}
		switch res.StatusCode {
		case http.StatusNotFound:
			if !strings.Contains(text, "sandbox") {
				return errNoSuchPath
			}
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable:
			if pause < 2*time.Second {
				select {
				case <-time.After(pause):
					continue
				case <-ctx.Done():
				}
			}
		}
		return refused
	}
}

// message is what an answer says.
func message(text string) string {
	var said struct{ Message string }
	if json.Unmarshal([]byte(text), &said) == nil && said.Message != "" {
		return said.Message
	}
	return strings.Join(strings.Fields(text), " ")
}

// control is a word of the toolbox's about a terminal.
type control struct {
	Type, Status, Error string
	ExitCode            *int
}

// greet waits for the word that the terminal is connected. Output that comes before it is the shell's alone.
func (t *term) greet(ctx context.Context) error {
	for {
		kind, p, err := t.conn.Read(ctx)
		if err != nil {
			return fmt.Errorf("opening a terminal: %w", err)
		}
		var said control
		if kind != websocket.MessageText || json.Unmarshal(p, &said) != nil || said.Type != "control" {
			continue
		}
		if said.Status == "connected" {
			return nil
		}
		return fmt.Errorf("the toolbox cannot open a terminal: %s", said.Error)
	}
}

// Read gives what comes next from the terminal.
func (t *term) Read(ctx context.Context) ([]byte, error) {
	for {
		kind, p, err := t.conn.Read(ctx)
		if err != nil {
			switch websocket.CloseStatus(err) {
			case websocket.StatusNormalClosure, websocket.StatusInternalError:
				var said control
				if closing := new(websocket.CloseError); errors.As(err, closing) {
					_ = json.Unmarshal([]byte(closing.Reason), &said) // what is no JSON tells nothing
				}
				t.noteEnd(said.ExitCode)
				return nil, io.EOF
			case websocket.StatusPolicyViolation:
				return nil, errors.New("the toolbox dropped a connection that was too slow")
			}
			return nil, err
		}
		if kind == websocket.MessageText {
			var said control
			if json.Unmarshal(p, &said) == nil && said.Type == "control" {
				if said.Status == "exited" {
					t.noteEnd(said.ExitCode)
				}
				continue
			}
		}
		return p, nil
	}
}

// noteEnd notes that the shell has ended, and how where that was said.
func (t *term) noteEnd(code *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	if code != nil {
		t.status = &driver.ExitStatus{Code: *code, Signal: signame.Of(*code - 128)}
	}
}

// Status is how the shell ended, where the toolbox said so.
func (t *term) Status() (driver.ExitStatus, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.status == nil {
		return driver.ExitStatus{}, false
	}
	return *t.status, true
}

// Write types p.
func (t *term) Write(ctx context.Context, p []byte) error {
	return t.conn.Write(ctx, websocket.MessageBinary, p)
}

// Leave gives the connection up.
func (t *term) Leave() error {
	t.once.Do(func() {
		t.cancel()
		_ = t.conn.CloseNow()
	})
	return nil
}

// Close gives the connection up and has the toolbox end the terminal where its shell has not ended.
func (t *term) Close() error {
	t.once.Do(func() {
		t.cancel()
		if t.conn != nil {
			_ = t.conn.CloseNow()
		}
		t.mu.Lock()
		ended := t.ended
		t.mu.Unlock()
		if ended {
			return
		}
		t.box.bashes.Behind(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, deleteWait)
			defer cancel()
			if err := t.box.api.deleteTerminal(ctx, t.box.toolbox, t.id); err != nil {
				t.box.log.Debug("a terminal was not ended", "id", t.id, "error", err)
			}
		})
	})
	return nil
}

func (a *api) deleteTerminal(ctx context.Context, toolbox, id string) error {
	err := a.Do(ctx, cloudhttp.Request{Method: http.MethodDelete, Path: toolbox + "/process/pty/" + id, Wait: 10 * time.Second})
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// removeDeadTerminals ends the terminals of this home's processes that are dead: what waits for their word then leaves.
func (s *sandbox) removeDeadTerminals(ctx context.Context) {
	var answer struct {
		Sessions []struct{ ID string } `json:"sessions"`
	}
	if err := s.api.Do(ctx, cloudhttp.Request{Method: http.MethodGet, Path: s.toolbox + "/process/pty", Into: &answer, Wait: 10 * time.Second}); err != nil {
		s.log.Debug("the terminals in the sandbox cannot be listed", "error", err)
		return
	}
	dead := s.deadOwners()
	for _, one := range answer.Sessions {
		f := strings.Split(strings.TrimPrefix(one.ID, terminalPrefix), "-")
		if !strings.HasPrefix(one.ID, terminalPrefix) || len(f) != 3 || f[0] != owner.Tag(s.req.Identity.Home) || !dead(f[1]) {
			continue
		}
		if err := s.api.deleteTerminal(ctx, s.toolbox, one.ID); err != nil {
			s.log.Debug("the terminal of a dead process was not ended", "id", one.ID, "error", err)
		}
	}
}
