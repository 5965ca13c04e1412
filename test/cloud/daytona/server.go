//go:build linux

// Package daytona emulates Daytona: the API by which sandboxes are made, stopped and found, and the toolbox that runs in each of
// them. It speaks the protocol that the vendor's SDK and docs show; what had to be guessed is in test/cloud/README.md. Sandboxes are
// machines of package machine: their files, processes and terminals are real.
//
// A Server has accounts, each with a key and sandboxes of its own. Faults are made on demand (Fail, Cut, Lapse, Wedge, SetLatency), and
// requests are counted by kind.
package daytona

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// Tree is the testbed's tree of Debian, on which sandboxes start.
const Tree = front.Tree

// Fault is what happens to a request instead of its answer.
type Fault = front.Fault

// Server is one emulated service on 127.0.0.1. Its methods may be called at the same time.
type Server struct {
	*front.Front

	mu        sync.Mutex
	accounts  map[string]*Account // by key
	snapshots map[string]machine.Image
	old       bool
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

// words are the parts of paths that are no names.
const words = `sandbox start stop archive labels toolbox process execute session exec command logs input pty create-connect connect resize
	files bulk-upload bulk-download download upload-v2 snapshots snapshot config user-home-dir work-dir version toolbox-proxy-url autostop
	last-activity info folder`

// New starts a service whose sandboxes start on tree.
func New(tree string) (*Server, error) {
	f, err := front.New(front.Options{
		Name: "daytona", Tree: tree, Words: words, Terminal: func(r *http.Request) bool { return strings.Contains(r.URL.Path, "connect") },
		Error: func(w http.ResponseWriter, r *http.Request, status int, message string) { fail(w, r, status, message) },
	})
	if err != nil {
		return nil, err
	}
	s := &Server{Front: f, accounts: map[string]*Account{}, snapshots: map[string]machine.Image{}}
	return s, f.Serve(s.routes())
}

// Close ends the service with all sandboxes.
func (s *Server) Close() error {
	return s.Shut(func() {
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
	})
}

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

// SetOld leaves out what older daemons do not have: opening a terminal by one request.
func (s *Server) SetOld(old bool) { s.mu.Lock(); s.old = old; s.mu.Unlock() }

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

func answer(w http.ResponseWriter, status int, body any) { front.Answer(w, status, body) }

func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	s.sandboxRoutes(api)
	s.processRoutes(api)
	s.fileRoutes(api)
	api.HandleFunc("GET /api/config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"proxyToolboxUrl": s.toolbox(), "defaultSnapshot": "default"})
	})
	return api
}

func (s *Server) toolbox() string { return "http://" + s.Addr + "/toolbox" }

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
