package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// Path is where the protocol is spoken over HTTP, HealthPath says that the server lives, MetricsPath has numbers.
	Path        = "/mcp"
	HealthPath  = "/healthz"
	MetricsPath = "/metrics"

	// MinToken is how long a token has to be: nobody guesses 32 characters.
	MinToken = 32

	// clientIdle is how long a client over HTTP may be silent before its sessions are closed.
	clientIdle = 8 * time.Hour
	// bodyBytes is how long the body of one request may be, and bodyWait how long it may take to come.
	bodyBytes = 16 << 20
	bodyWait  = time.Minute
	// headerWait and headerBytes are the same for headers; connIdle is how long a connection without requests is kept.
	headerWait  = 10 * time.Second
	headerBytes = 64 << 10
	connIdle    = 2 * time.Minute
	// writeWait is how long a client may take to read writeBytes of an answer.
	writeWait  = 30 * time.Second
	writeBytes = 64 << 10
)

// HTTPOptions says who may speak to the server over HTTP.
type HTTPOptions struct {
	// Token has to be sent with each request, as "Authorization: Bearer TOKEN". At least MinToken characters.
	Token string
	// Hosts are names (without a port) by which the server may be called, besides localhost and numeric addresses: with any
	// other one in its Host header a request is refused, since a web page can give an address any name.
	Hosts []string
	// Origins are the web pages ("https://host:port") whose scripts may call it. Nil is none: a request with an Origin header comes from
	// a browser.
	Origins []string
	// Metrics, where not nil, answers at MetricsPath those who send the token.
	Metrics http.Handler
	// Idle is how long a client may be silent before its sessions are closed; 0 is 8 hours.
	Idle time.Duration
}

// Handler gives the HTTP side: the protocol at Path, and HealthPath, which needs no token. Each client has sessions of its own,
// under an id that nobody guesses.
func (s *Server) Handler(opts HTTPOptions) (http.Handler, error) {
	if len(opts.Token) < MinToken {
		return nil, failure(driver.KindConfig, "make one: openssl rand -hex 32", "the token has %d characters, and needs %d", len(opts.Token), MinToken)
	}
	if s.opts.Session != "" {
		return nil, failure(driver.KindConfig, "leave --session out, or use stdio", "the session %s would be one for all clients, who must not see each other's", s.opts.Session)
	}
	for _, origin := range opts.Origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
			return nil, failure(driver.KindConfig, "write https://host or https://host:port", "%q is no origin", origin)
		}
	}
	if opts.Idle == 0 {
		opts.Idle = clientIdle
	}
	streams := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp }, &mcp.StreamableHTTPOptions{
		Logger: s.log, SessionTimeout: opts.Idle, MaxRequestBodyBytes: bodyBytes,
		DisableLocalhostProtection: true, // checked here, for every address
	})
	want := sha256.Sum256([]byte(opts.Token))
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		if got := sha256.Sum256([]byte(token)); subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return nil, fmt.Errorf("%w: send the server's own as Authorization: Bearer TOKEN", auth.ErrInvalidToken)
		}
		return &auth.TokenInfo{}, nil
	}
	protect := auth.RequireBearerToken(verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	mux := http.NewServeMux()
	mux.Handle(Path, challenge(protect(s.leaving(whole(s.unread(streams))))))
	if opts.Metrics != nil {
		mux.Handle("GET "+MetricsPath, challenge(protect(s.unread(opts.Metrics))))
	}
	mux.HandleFunc("GET "+HealthPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, "ok\n")
	})
	return opts.called(mux), nil
}

// HTTPServer gives a server for a handler with the limits that one needs whose answers may take hours.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerWait, IdleTimeout: connIdle, MaxHeaderBytes: headerBytes}
}

// called refuses requests that did not mean this server, and those of web pages that were not allowed.
func (o HTTPOptions) called(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !o.knows(r.Host) {
			http.Error(w, fmt.Sprintf("the host %.100q is not this server's: start it with --allow-host", r.Host), http.StatusForbidden)
			return
		}
		if origin := r.Header.Get("Origin"); origin != "" {
			if !slices.Contains(o.Origins, origin) {
				http.Error(w, fmt.Sprintf("the origin %.100q is not allowed: start the server with --allow-origin", origin), http.StatusForbidden)
				return
			}
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
			h.Add("Vary", "Origin")
			if r.Method == http.MethodOptions {
				h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
				h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Accept, Mcp-Session-Id, Mcp-Protocol-Version, Last-Event-ID")
				w.WriteHeader(http.StatusNoContent)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// knows tells whether a Host header names this server.
func (o HTTPOptions) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || net.ParseIP(host) != nil {
		return true
	}
	return slices.ContainsFunc(o.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// leaving interrupts what a client runs that says that it leaves: its connection is closed only when all its calls have ended.
func (s *Server) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("Mcp-Session-Id"); r.Method == http.MethodDelete && id != "" {
			for _, c := range s.clientsOf(id) {
				c.close()
			}
		}
		next.ServeHTTP(w, r)
	})
}

// clientsOf is the client of a connection, by its id.
func (s *Server) clientsOf(id string) []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*client
	for ss, c := range s.clients {
		if ss.ID() == id {
			found = append(found, c)
		}
	}
	return found
}

// challenge says what is wanted where the token is missing.
func challenge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		next.ServeHTTP(w, r)
	})
}

// unread gives up a connection whose client does not read: a write to it would never return, nor what waits for that.
func (s *Server) unread(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := &boundWriter{ResponseWriter: w, control: http.NewResponseController(w), ending: s.ctx}
		// What is left in buffers is written behind the handler.
		defer func() { _ = b.control.SetWriteDeadline(time.Now().Add(writeWait)) }()
		next.ServeHTTP(b, r)
	})
}

// boundWriter is an answer of which no part may take longer than writeWait to be read, and lastWrite when the server ends.
type boundWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	ending  context.Context
}

// Unwrap is for http.ResponseController.
func (b *boundWriter) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *boundWriter) Write(p []byte) (n int, err error) {
	for done := false; !done && err == nil; done = n == len(p) {
		var part int
		b.within(func() { part, err = b.ResponseWriter.Write(p[n:min(len(p), n+writeBytes)]) })
		n += part
	}
	return n, err
}

// FlushError is for http.ResponseController.
func (b *boundWriter) FlushError() (err error) {
	b.within(func() { err = b.control.Flush() })
	return err
}

// within does something under the deadline. A writer that knows none is one whose owner looks after that.
func (b *boundWriter) within(do func()) {
	_ = b.control.SetWriteDeadline(time.Now().Add(writeWait))
	shortened := make(chan struct{})
	stop := context.AfterFunc(b.ending, func() {
		defer close(shortened)
		_ = b.control.SetWriteDeadline(time.Now().Add(lastWrite))
	})
	do()
	if !stop() {
		<-shortened
	}
	_ = b.control.SetWriteDeadline(time.Time{})
}

// whole reads a request's body, within its limits, before anybody works on it.
func whole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			deadline := http.NewResponseController(w)
			_ = deadline.SetReadDeadline(time.Now().Add(bodyWait))
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyBytes))
			_ = deadline.SetReadDeadline(time.Time{})
			if _, long := errors.AsType[*http.MaxBytesError](err); long {
				http.Error(w, fmt.Sprintf("the request has more than %d bytes", bodyBytes), http.StatusRequestEntityTooLarge)
				return
			}
			if err != nil {
				http.Error(w, "the request did not come whole", http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(w, r)
	})
}
