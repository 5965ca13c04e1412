//go:build linux

// Package daytona emulates Daytona: the API by which sandboxes are made, stopped and found, and the toolbox that runs in each of
// them. It speaks the protocol that the vendor's SDK and docs show; what had to be guessed is in test/cloud/README.md. Sandboxes are
// machines of package machine: their files, processes and terminals are real.
//
// A Server has accounts, each with a key and sandboxes of its own. Faults are made on demand (Fail, Cut, Lapse, SetLatency), and
// requests are counted by kind.
package daytona

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// Tree is the testbed's tree of Debian, on which sandboxes start.
const Tree = "/var/cache/elsewhere-testbed/rootfs"

// Server is one emulated service on 127.0.0.1. Its methods may be called at the same time.
type Server struct {
	host   *machine.Host
	dir    string
	http   *http.Server
	addr   string
	ctx    context.Context // done at Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu        sync.Mutex
	accounts  map[string]*Account // by key
	snapshots map[string]machine.Image
	faults    []*fault
	counts    map[string]int
	latency   time.Duration
	slow      time.Duration
	old       bool
	cut       float64
	random    *rand.Rand
	streams   map[*stream]struct{}
	bodies    bytes.Buffer
	next      int
}

// Account is one customer.
type Account struct {
	Key string
	// Files are put into the home directory of each sandbox that is made, by their relative names.
	Files map[string]string
	// MaxDisk is how many GiB all its sandboxes may have; 0 is no limit.
	MaxDisk int

	sandboxes map[string]*sandbox // by id
}

// New starts a service whose sandboxes start on tree.
func New(tree string) (*Server, error) {
	keepDescriptors()
	dir, err := os.MkdirTemp("", "elsewhere-daytona-")
	if err != nil {
		return nil, err
	}
	host, err := machine.NewHost(dir, tree)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		_ = host.Close()
		return nil, err
	}
	s := &Server{
		host: host, dir: dir, addr: listener.Addr().String(), accounts: map[string]*Account{}, counts: map[string]int{},
		snapshots: map[string]machine.Image{}, streams: map[*stream]struct{}{}, random: rand.New(rand.NewPCG(1, 1)),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{Handler: s.routes()}
	go func() { _ = s.http.Serve(listener) }()
	return s, nil
}

// keepDescriptors keeps from sandboxes what this process has inherited beside its standard streams.
func keepDescriptors() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Close ends the service with all sandboxes.
func (s *Server) Close() error {
	s.cancel()
	err := s.http.Close()
	s.CutStreams()
	s.mu.Lock()
	var all []*sandbox
	for _, a := range s.accounts {
		for _, b := range a.sandboxes {
			all = append(all, b)
		}
	}
	s.mu.Unlock()
	for _, b := range all {
		b.endProcesses()
	}
	s.work.Wait()
	return errors.Join(err, s.host.Close())
}

// URL is the API's address, as DAYTONA_API_URL has it.
func (s *Server) URL() string { return "http://" + s.addr + "/api" }

// NewAccount makes an account with a key of its own. The fields of a may be set; nil is none.
func (s *Server) NewAccount(a *Account) *Account {
	if a == nil {
		a = &Account{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	a.Key = fmt.Sprintf("dtn_emulated_%d", s.next)
	a.sandboxes = map[string]*sandbox{}
	s.accounts[a.Key] = a
	return a
}

// Fault is what happens to a request instead of its answer.
type Fault struct {
	Status     int    // 429, 500 ...
	Message    string // of the error
	RetryAfter string // the header, "" for none
	Hang       bool   // no answer until the client goes
	Cut        bool   // the connection is cut
	// After does what was asked before it answers with the fault: the client cannot know.
	After bool
}

type fault struct {
	Fault
	kind string
	left int
}

// Fail lets the next n requests of a kind fail. A kind is the method and the path with {} for what varies ("POST /sandbox/{}/start",
// "POST /toolbox/{}/process/execute"), or its beginning.
func (s *Server) Fail(kind string, n int, f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault{f, kind, n})
}

// SetLatency adds to each round trip.
func (s *Server) SetLatency(d time.Duration) { s.mu.Lock(); s.latency = d; s.mu.Unlock() }

// SetSlow makes sandboxes take so much longer to start.
func (s *Server) SetSlow(d time.Duration) { s.mu.Lock(); s.slow = d; s.mu.Unlock() }

// SetOld leaves out what older daemons do not have: opening a terminal by one request.
func (s *Server) SetOld(old bool) { s.mu.Lock(); s.old = old; s.mu.Unlock() }

// SetCut cuts this part of all connections somewhere, and terminals behind this part of what is typed, chosen with a fixed seed.
func (s *Server) SetCut(part float64, seed uint64) {
	s.mu.Lock()
	s.cut, s.random = part, rand.New(rand.NewPCG(seed, seed))
	s.mu.Unlock()
}

// Requests gives how many requests came of the kinds that begin so; "cut" is how many connections SetCut has cut.
func (s *Server) Requests(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, count := range s.counts {
		if strings.HasPrefix(k, kind) && (k != "cut" || kind == "cut") {
			n += count
		}
	}
	return n
}

// Bodies is all that came in requests so far, but for files and terminals, addresses and headers included.
func (s *Server) Bodies() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies.String()
}

// keep notes what a request says.
func (s *Server) keep(r *http.Request) {
	var body []byte
	if r.ContentLength > 0 && r.ContentLength < 1<<20 {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bodies.Len() < 64<<20 {
		fmt.Fprintf(&s.bodies, "%s %s %v %s\n", r.Method, r.URL, r.Header, body)
	}
}

// CutStreams cuts all terminals' connections.
func (s *Server) CutStreams() {
	s.mu.Lock()
	all := make([]*stream, 0, len(s.streams))
	for c := range s.streams {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.cut()
	}
}

// kindOf names a request for counting and faults.
func kindOf(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api"), "/")
	words := map[string]bool{
		"": true, "sandbox": true, "start": true, "stop": true, "archive": true, "labels": true, "toolbox": true, "process": true, "execute": true, "session": true,
		"exec": true, "command": true, "logs": true, "input": true, "pty": true, "create-connect": true, "connect": true, "resize": true, "files": true,
		"bulk-upload": true, "bulk-download": true, "download": true, "upload-v2": true, "snapshots": true, "snapshot": true, "config": true, "user-home-dir": true, "work-dir": true,
		"version": true, "toolbox-proxy-url": true, "autostop": true, "last-activity": true, "info": true, "folder": true,
	}
	for i, part := range parts {
		if !words[part] {
			parts[i] = "{}"
		}
	}
	return r.Method + " " + strings.Join(parts, "/")
}

// ServeHTTP puts latency and faults before the routes.
func (s *Server) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := kindOf(r)
		s.mu.Lock()
		s.counts[kind]++
		latency := s.latency
		var hit *Fault
		for _, f := range s.faults {
			if f.left > 0 && strings.HasPrefix(kind, f.kind) {
				f.left--
				hit = &f.Fault
				break
			}
		}
		if hit == nil && s.cut > 0 && s.random.Float64() < s.cut && !strings.Contains(kind, "connect") {
			hit = &Fault{Cut: true, After: s.random.IntN(2) == 1}
			s.counts["cut"]++
		}
		s.mu.Unlock()
		s.keep(r)
		s.pause(r.Context(), latency)
		if hit == nil {
			next.ServeHTTP(w, r)
			return
		}
		if hit.After {
			next.ServeHTTP(discard{http.Header{}}, r)
		}
		hit.answer(w, r)
	})
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func (s *Server) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func (f *Fault) answer(w http.ResponseWriter, r *http.Request) {
	switch {
	case f.Hang:
		_, _ = io.Copy(io.Discard, r.Body) // so that the client's going is seen
		<-r.Context().Done()
	case f.Cut:
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	default:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		message := f.Message
		if message == "" {
			message = http.StatusText(f.Status)
		}
		fail(w, r, f.Status, message)
	}
}

// fail answers with an error in the service's form.
func fail(w http.ResponseWriter, r *http.Request, status int, message string, code ...string) {
	source, name := "DAYTONA_API", strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_"))
	if strings.HasPrefix(r.URL.Path, "/toolbox/") {
		source = "DAYTONA_DAEMON"
	}
	if len(code) > 0 {
		name = code[0]
	}
	answer(w, status, map[string]any{
		"statusCode": status, "message": message, "code": name, "source": source, "path": r.URL.Path, "method": r.Method,
		"timestamp": time.Now().UTC().Format(time.RFC3339),
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	s.sandboxRoutes(api)
	s.processRoutes(api)
	s.fileRoutes(api)
	api.HandleFunc("GET /api/config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"proxyToolboxUrl": s.toolbox(), "defaultSnapshot": "default"})
	})
	return s.before(api)
}

func (s *Server) toolbox() string { return "http://" + s.addr + "/toolbox" }

// account finds who asks, or answers.
func (s *Server) account(w http.ResponseWriter, r *http.Request) *Account {
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.accounts[key]; a != nil {
		return a
	}
	fail(w, r, http.StatusUnauthorized, "Invalid credentials")
	return nil
}

func number(r *http.Request, name string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
		return n
	}
	return otherwise
}
