// Package mcpserver gives an agent its hands elsewhere: an MCP server whose tools run commands, look after background jobs
// and read and write files on the backends that it was started for, and on no others.
//
// A Server holds one sandbox for each of those backends, opened by the first call that needs it, and for each client that
// connects sessions of its own: what one client does to its shell (variables, functions, directory) no other one sees,
// although clients of one server share the sandbox, and with it files and jobs. Where a named session was asked for, its
// state outlives the server.
//
// The tools say in their results where a command ran and how it ended; a command that fails is a result, and only elsewhere's
// own failures are errors. Live output comes as progress notifications, a cancelled request interrupts its own command
// alone, and output that is too long for a model is kept in a file that the client can read as a resource.
//
// Serve speaks over a pair of streams, Handler over streamable HTTP.
package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

const (
	// closeWait bounds how long the end of a client or of the server waits for what ends with it.
	closeWait = 30 * time.Second
	// callsWait is how much of that a client's calls may take to end: a grace and a second, with room.
	callsWait = 20 * time.Second
	// lastWrite is how long one message to a client that does not read holds up the end of its connection.
	lastWrite = 5 * time.Second
)

// protocols are the versions that are spoken. The stateless ones after them have no connection that a session could belong
// to, and no way to ask the user in the midst of a call.
var protocols = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// Options says what a Server reaches. The zero Options but for Config is: the configured backend, the task "default",
// throw-away sessions.
type Options struct {
	// Config holds the settings. It must be given.
	Config *config.Config
	// Backends are the backends, or entries of terminal.backends, that clients can reach: the first is the default. Nil is
	// the one that Config chose.
	Backends []string
	// Task names the sandboxes; "" is elsewhere.DefaultTask.
	Task string
	// Session, where not "", is the named session in which clients work: its state outlives the server.
	Session string
	// Environ is the environment that commands start from; nil is os.Environ().
	Environ []string
	// ThrowAway says that nothing may outlive the server.
	ThrowAway bool
	// Version is told to clients; may be empty.
	Version string
	// TracerProvider and MeterProvider are for the calls in the sandboxes; nil is OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Logger is used for everything that is no result; nil discards.
	Logger *slog.Logger
}

// Server serves any number of clients. It must be closed. It is safe for concurrent use.
type Server struct {
	opts   Options
	log    *slog.Logger
	mcp    *mcp.Server
	places map[string]*place
	limits limits

	ctx    context.Context // done when the server is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	clients map[*mcp.ServerSession]*client
	ending  sync.WaitGroup // clients that are being closed
	closed  bool
}

// limits are what the agent's tool is bound by.
type limits struct {
	timeout, foreground time.Duration
	output              int // characters
	lines, lineLength   int // of a file
}

// New makes a server. Nothing is opened yet, but what cannot be meant is an error at once: *elsewhere.Error.
func New(opts Options) (*Server, error) {
	if opts.Config == nil {
		return nil, failure(driver.KindConfig, "load the settings first", "there are no settings")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Task == "" {
		opts.Task = elsewhere.DefaultTask
	}
	if len(opts.Backends) == 0 {
		opts.Backends = []string{opts.Config.Name()}
	}
	if opts.Session != "" && !safename.Plain(opts.Session) {
		return nil, failure(driver.KindConfig, "use letters, digits, dots, dashes and underscores", "%q is no name of a session", opts.Session)
	}
	s := &Server{opts: opts, log: opts.Logger, places: map[string]*place{}, clients: map[*mcp.ServerSession]*client{}}
	for _, name := range opts.Backends {
		view, back, err := opts.Config.Named(name)
		if err != nil {
			return nil, err
		}
		if s.places[name] == nil {
			s.places[name] = newPlace(s, name, view, back)
		}
	}
	first := s.places[opts.Backends[0]].cfg
	s.limits = limits{
		timeout: first.Duration("timeout"), foreground: first.Duration("max_foreground_timeout"),
		output: int(first.Int("tool_output.max_bytes")),
		lines:  int(first.Int("tool_output.max_lines")), lineLength: int(first.Int("tool_output.max_line_length")),
	}
	s.limits.timeout = min(s.limits.timeout, s.limits.foreground)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.build()
	return s, nil
}

// build makes the MCP server with its tools.
func (s *Server) build() {
	version := s.opts.Version
	if version == "" {
		version = "dev"
	}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "elsewhere", Title: "elsewhere: run commands somewhere else", Version: version}, &mcp.ServerOptions{
		Instructions: s.instructions(), Logger: s.log, SupportedProtocolVersions: protocols,
		Capabilities: &mcp.ServerCapabilities{},
	})
	s.addTerminal()
	s.addProcess()
	s.addFiles()
	s.addResources()
}

// backends are the names that clients can reach, in their order and each once.
func (s *Server) backends() []string {
	var names []string
	for _, name := range s.opts.Backends {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// instructions tell a model, once, where its commands run and what persists.
func (s *Server) instructions() string {
	var b strings.Builder
	b.WriteString("Commands and file tools of this server do not run where you run. They run here:\n")
	for i, name := range s.backends() {
		p := s.places[name]
		fmt.Fprintf(&b, "- %s (task %s): %s.", name, s.opts.Task, strings.TrimSuffix(p.back.Summary, "."))
		if i == 0 && len(s.places) > 1 {
			b.WriteString(" The default; choose another one with the parameter backend.")
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, `
What persists: directory, exported variables, functions, aliases and umask go from one terminal call to the next (in the same session); each call is a new bash, so other shell options, unexported variables and jobs do not. Files stay as long as the sandbox does.
%s
Long work: a foreground command is ended after its timeout (default %s, at most %s). Start servers, watchers and anything longer with terminal background:true, and follow it with the tool process. A child that a foreground command puts into the background with & has no log that you can read.
Output that is too long is cut in the middle; the result names an id with which process action:log reads the rest.`,
		s.persistence(), s.limits.timeout, s.limits.foreground)
	return b.String()
}

func (s *Server) persistence() string {
	if s.opts.Session != "" {
		return "This server keeps the session " + s.opts.Session + ": its shell state is there again when the server is started again. Background jobs and files outlive the server too."
	}
	return "When this connection ends, shell state is gone; background jobs and files in the sandbox outlive it."
}

// place gives the backend that a client named; "" is the default. Any other than those of the server's start is denied.
func (s *Server) place(name string) (*place, error) {
	if name == "" {
		name = s.opts.Backends[0]
	}
	if p := s.places[name]; p != nil {
		return p, nil
	}
	return nil, failure(driver.KindDenied, "use "+strings.Join(s.backends(), " or "), "this server does not reach the backend %q", name)
}

// client gives what belongs to a connection; the first call on it makes it.
func (s *Server) client(ss *mcp.ServerSession) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, failure(driver.KindUnavailable, "start it again", "the server is ending")
	}
	if c := s.clients[ss]; c != nil {
		return c, nil
	}
	c := newClient(s, ss)
	s.clients[ss] = c
	s.ending.Go(func() {
		_ = ss.Wait()
		s.forget(ss)
		c.close()
	})
	return c, nil
}

func (s *Server) forget(ss *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, ss)
}

// Clients is how many clients have called a tool and are still connected.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// Close interrupts the commands that run, closes sessions and gives the sandboxes up, as their settings say; jobs go on. It
// waits for that until ctx is done and not for ever. A second Close does nothing.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	s.cancel()
	s.closeClients(ctx)
	var all sync.WaitGroup
	errs := make([]error, len(s.places))
	for i, name := range s.backends() {
		all.Go(func() { errs[i] = s.places[name].close(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// closeClients closes the connections, at once, and waits for the end of their clients until ctx is done: one whose client does not read
// may have an answer on its way for ever.
func (s *Server) closeClients(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		var all sync.WaitGroup
		for ss := range s.mcp.Sessions() {
			all.Go(func() { _ = ss.Close() })
		}
		all.Wait()
		s.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		s.log.Warn("a client's connection has not ended in time")
	}
}

// outputDir is where output goes that is too long for a result; "" is nowhere.
func (s *Server) outputDir() string {
	home := s.opts.Config.Home()
	if home == "" || s.opts.ThrowAway {
		return ""
	}
	return filepath.Join(home, "elsewhere", "output")
}

// failure is an error of this server's own.
func failure(kind driver.Kind, hint, format string, args ...any) error {
	return &elsewhere.Error{Kind: kind, Op: "mcp", Hint: hint, Err: fmt.Errorf(format, args...)}
}
