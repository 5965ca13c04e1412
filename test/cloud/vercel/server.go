//go:build linux

// Package vercel emulates Vercel Sandbox: the API by which sandboxes are made, resumed, stopped and found, the commands and files of
// their sessions, snapshots, and interactive terminals. It speaks the protocol that the vendor's SDK and command line show; what had
// to be guessed is in test/cloud/README.md. Sessions are machines of package machine: their files, processes and terminals are real.
//
// A Server has accounts, each with a token, a team and a project of its own. Faults are made on demand (Fail, SetCut, Lapse, Expire, Wedge,
// SetLatency), and requests are counted by kind.
package vercel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
)

// Tree is the testbed's tree of Debian, on which sandboxes start.
const Tree = front.Tree

// Fault is what happens to a request instead of its answer.
type Fault = front.Fault

// Server is one emulated service on 127.0.0.1. Its methods may be called at the same time.
type Server struct {
	*front.Front

	mu       sync.Mutex
	accounts map[string]*Account // by token
	tickets  map[string]*ticket
	next     int
}

// Account is one customer: a project of a team.
type Account struct {
	Token, Team, Project string
	// OIDC is a short-lived token that names the team and the project.
	OIDC string
	// Files are put into the home directory of each sandbox that is made, by their relative names.
	Files map[string]string
	// MaxVCPUs is how many virtual CPUs all its running sandboxes may have; 0 is no limit.
	MaxVCPUs int

	sandboxes map[string]*sandbox // by name
	sessions  map[string]*session
	snapshots map[string]*snapshot
}

// words are the parts of paths that are no names.
const words = "v2 v3 sandboxes sessions snapshots cmd logs kill fs read write mkdir interactive stop extend-timeout network-policy snapshot health"

// New starts a service whose sandboxes start on tree.
func New(tree string) (*Server, error) {
	f, err := front.New(front.Options{
		Name: "vercel", Tree: tree, Words: words, Terminal: func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/terminal/") },
		Error: func(w http.ResponseWriter, _ *http.Request, status int, message string) {
			fail(w, status, codeOf(status), message)
		},
	})
	if err != nil {
		return nil, err
	}
	s := &Server{Front: f, accounts: map[string]*Account{}, tickets: map[string]*ticket{}}
	return s, f.Serve(s.routes())
}

// Close ends the service with all sandboxes.
func (s *Server) Close() error {
	return s.Shut(func() {
		s.mu.Lock()
		var all []*session
		for _, a := range s.accounts {
			for _, x := range a.sessions {
				all = append(all, x)
			}
		}
		s.mu.Unlock()
		for _, x := range all {
			x.halt("stopped")
		}
	})
}

// NewAccount makes an account with a token of its own. The fields of a may be set; nil is none.
func (s *Server) NewAccount(a *Account) *Account {
	if a == nil {
		a = &Account{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	a.Token, a.Team, a.Project = fmt.Sprintf("vca_emulated_%d", s.next), fmt.Sprintf("team_%d", s.next), fmt.Sprintf("prj_%d", s.next)
	claims, _ := json.Marshal(map[string]any{"owner_id": a.Team, "project_id": a.Project, "exp": time.Now().Add(12 * time.Hour).Unix()})
	part := base64.RawURLEncoding.EncodeToString
	a.OIDC = part([]byte(`{"alg":"none"}`)) + "." + part(claims) + "." + part([]byte("emulated"))
	a.sandboxes, a.sessions, a.snapshots = map[string]*sandbox{}, map[string]*session{}, map[string]*snapshot{}
	s.accounts[a.Token], s.accounts[a.OIDC] = a, a
	return a
}

func codeOf(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "rate_limited"
	case http.StatusNotFound:
		return "not_found"
	}
	return strings.ToLower(strings.ReplaceAll(http.StatusText(status), " ", "_"))
}

// fail answers with an error in the service's form.
func fail(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]any{"error": map[string]string{"code": code, "message": message}})
}

func answer(w http.ResponseWriter, status int, body any) { front.Answer(w, status, body) }

func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	s.sandboxRoutes(api)
	s.sessionRoutes(api)
	s.commandRoutes(api)
	s.fileRoutes(api)
	s.terminalRoutes(api)
	return api
}

// account finds who asks, or answers.
func (s *Server) account(w http.ResponseWriter, r *http.Request) *Account {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	a := s.accounts[token]
	s.mu.Unlock()
	q := r.URL.Query()
	project := q.Get("projectId") + q.Get("project")
	switch {
	case a == nil:
		fail(w, http.StatusForbidden, "forbidden", "Not authorized")
	case q.Get("teamId") != a.Team:
		fail(w, http.StatusForbidden, "forbidden", "Not authorized: Trying to access resource under scope \""+q.Get("teamId")+"\".")
	case project != "" && project != a.Project:
		fail(w, http.StatusNotFound, "not_found", "Project not found")
	default:
		return a
	}
	return nil
}
