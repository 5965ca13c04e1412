//go:build linux

package vercel

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// session is one run of a sandbox.
type session struct {
	s       *Server
	box     *sandbox
	id      string
	machine *machine.Machine
	daemon  front.Gate // what goes on in it

	mu        sync.Mutex
	status    string
	requested time.Time
	started   time.Time
	timeout   time.Duration
	deadline  *time.Timer
	commands  map[string]*command
	terms     []*terminal
	stored    *snapshot     // at its end
	changed   chan struct{} // closed at the end of the change that goes on; nil for none
	ending    sync.Once
}

func (x *session) state() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.status
}

func (x *session) alive() bool {
	state := x.state()
	return state == "running" || state == "pending"
}

// awaitChange waits until the session neither starts nor ends.
func (x *session) awaitChange(ctx context.Context) {
	x.mu.Lock()
	wait := x.changed
	x.mu.Unlock()
	if wait == nil {
		return
	}
	select {
	case <-wait:
	case <-ctx.Done():
	}
}

// startBehind starts the machine; the session is pending meanwhile.
func (x *session) startBehind() {
	slow := x.s.Slow()
	done := make(chan struct{})
	x.changed = done
	start := func() {
		defer close(done)
		x.s.Pause(x.s.Ctx, slow)
		err := x.machine.Start()
		x.mu.Lock()
		defer x.mu.Unlock()
		x.changed = nil
		switch {
		case x.status != "pending":
			_ = x.machine.Stop()
		case err != nil:
			x.status = "failed"
		default:
			x.status, x.started = "running", time.Now()
			x.deadline = time.AfterFunc(x.timeout, func() { x.end(context.Background()) })
		}
	}
	if slow == 0 {
		start()
		return
	}
	x.s.Work.Go(start)
}

// halt ends all processes for good.
func (x *session) halt(status string) {
	x.mu.Lock()
	if x.deadline != nil {
		x.deadline.Stop()
	}
	x.status = status
	terms := x.terms
	x.mu.Unlock()
	for _, t := range terms {
		t.kill()
	}
	_ = x.machine.Stop()
	x.daemon.Open()
}

// Wedge makes what goes on in a sandbox's session hang until the session ends: nothing is started or ended in it and no byte goes
// through, though the API answers. The function that it returns tells whether the session has ended.
func (s *Server) Wedge(name string) (ended func() bool) {
	x := s.current(name)
	if x == nil {
		return func() bool { return true }
	}
	x.daemon.Shut()
	return func() bool { return !x.alive() }
}

// inside tells whether a request is for what goes on in a session.
func inside(r *http.Request) bool {
	return strings.Contains(r.URL.Path, "/cmd") || strings.Contains(r.URL.Path, "/fs/") || strings.HasSuffix(r.URL.Path, "/interactive")
}

// end ends the session as the service does: the files of a persistent sandbox are stored.
func (x *session) end(ctx context.Context) {
	x.ending.Do(func() {
		done := make(chan struct{})
		defer close(done)
		x.mu.Lock()
		if x.status != "running" && x.status != "pending" {
			x.mu.Unlock()
			return
		}
		x.changed = done
		x.mu.Unlock()
		x.halt("stopping")
		if x.box.persistent() {
			x.store(ctx, nil)
		}
		x.mu.Lock()
		x.status, x.changed = "stopped", nil
		x.mu.Unlock()
	})
}

func (x *session) store(ctx context.Context, expiration *int64) {
	p, err := x.box.store(context.WithoutCancel(ctx), x, expiration)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.stored = p
	}
}

func (x *session) view() map[string]any {
	x.mu.Lock()
	defer x.mu.Unlock()
	cpu := x.box.body.Resources.VCPUs
	v := map[string]any{
		"id": x.id, "memory": 2048 * cpu, "vcpus": cpu, "region": "iad1", "timeout": x.timeout.Milliseconds(), "status": x.status, "requestedAt": ms(x.requested),
		"createdAt": ms(x.requested), "updatedAt": ms(time.Now()), "cwd": workDir, "sandboxName": x.box.body.Name,
	}
	if !x.started.IsZero() {
		v["startedAt"] = ms(x.started)
	}
	return v
}

// sessionsOf are an account's.
func (s *Server) sessionsOf(a *Account) []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*session, 0, len(a.sessions))
	for _, x := range a.sessions {
		all = append(all, x)
	}
	return all
}

// onSession serves what is asked of a session, running says that it has to run.
func (s *Server) onSession(running bool, do func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := s.account(w, r)
		if a == nil {
			return
		}
		s.mu.Lock()
		x := a.sessions[r.PathValue("id")]
		s.mu.Unlock()
		if x == nil {
			fail(w, http.StatusNotFound, "not_found", "Sandbox not found")
			return
		}
		if running {
			if x.state() == "pending" {
				x.awaitChange(r.Context())
			}
			switch state := x.state(); state {
			case "running":
			case "stopping", "snapshotting":
				fail(w, http.StatusUnprocessableEntity, "sandbox_"+state, "Sandbox is "+state)
				return
			default:
				fail(w, http.StatusGone, "sandbox_stopped", "Sandbox has stopped execution and is no longer available")
				return
			}
		}
		if inside(r) && !x.daemon.IsOpen() {
			_, _ = io.Copy(io.Discard, r.Body) // so that the client's going is seen
			x.daemon.Pass(r.Context())
			fail(w, http.StatusGone, "sandbox_stopped", "Sandbox has stopped execution and is no longer available")
			return
		}
		do(w, r, x)
	}
}

func (s *Server) sessionRoutes(mux *http.ServeMux) {
	on := func(pattern string, running bool, do func(http.ResponseWriter, *http.Request, *session)) {
		mux.HandleFunc(pattern, s.onSession(running, do))
	}
	mux.HandleFunc("GET /api/v2/sandboxes/sessions", func(w http.ResponseWriter, r *http.Request) {
		a := s.account(w, r)
		if a == nil {
			return
		}
		views := []any{}
		for _, x := range s.sessionsOf(a) {
			if name := r.URL.Query().Get("name"); name == "" || name == x.box.body.Name {
				views = append(views, x.view())
			}
		}
		answer(w, 200, map[string]any{"sessions": views, "pagination": map[string]any{"count": len(views), "next": nil}})
	})
	on("GET /api/v2/sandboxes/sessions/{id}", false, func(w http.ResponseWriter, _ *http.Request, x *session) {
		answer(w, 200, map[string]any{"session": x.view(), "routes": []any{}})
	})
	on("POST /api/v2/sandboxes/sessions/{id}/stop", false, func(w http.ResponseWriter, r *http.Request, x *session) {
		x.end(r.Context())
		v := map[string]any{"session": x.view(), "sandbox": x.box.view()}
		x.mu.Lock()
		stored := x.stored
		x.mu.Unlock()
		if stored != nil {
			v["snapshot"] = s.viewSnapshot(stored)
		}
		answer(w, 200, v)
	})
	on("POST /api/v2/sandboxes/sessions/{id}/extend-timeout", true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var q struct{ Duration int64 }
		_ = json.NewDecoder(r.Body).Decode(&q)
		x.mu.Lock()
		after := x.timeout + time.Duration(q.Duration)*time.Millisecond
		fits := q.Duration > 0 && after <= longestTimeout
		if fits {
			x.timeout = after
			x.deadline.Reset(time.Until(x.started.Add(after)))
		}
		x.mu.Unlock()
		if !fits {
			fail(w, http.StatusBadRequest, "bad_request", "Invalid duration")
			return
		}
		answer(w, 200, map[string]any{"session": x.view()})
	})
	on("POST /api/v2/sandboxes/sessions/{id}/network-policy", true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var policy json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&policy)
		x.box.mu.Lock()
		x.box.body.Policy = policy
		x.box.mu.Unlock()
		v := x.view()
		v["networkPolicy"] = x.box.policy()
		answer(w, 200, map[string]any{"session": v})
	})
	on("POST /api/v2/sandboxes/sessions/{id}/snapshot", true, func(w http.ResponseWriter, r *http.Request, x *session) {
		var q struct{ Expiration *int64 }
		_ = json.NewDecoder(r.Body).Decode(&q)
		x.halt("snapshotting")
		x.store(r.Context(), q.Expiration)
		x.mu.Lock()
		x.status = "stopped"
		stored := x.stored
		x.mu.Unlock()
		if stored == nil {
			fail(w, http.StatusInternalServerError, "internal", "no snapshot")
			return
		}
		answer(w, http.StatusCreated, map[string]any{"snapshot": s.viewSnapshot(stored), "session": x.view()})
	})
}

// byName finds a sandbox of any account.
func (s *Server) byName(name string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if b := a.sandboxes[name]; b != nil {
			return b
		}
	}
	return nil
}

func (s *Server) current(name string) *session {
	b := s.byName(name)
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current
}

// State is that of a sandbox's latest session; "" where there is no sandbox of this name.
func (s *Server) State(name string) string {
	if x := s.current(name); x != nil {
		return x.state()
	}
	return ""
}

// Machine is what a sandbox's latest session runs on; nil where there is none.
func (s *Server) Machine(name string) *machine.Machine {
	if x := s.current(name); x != nil {
		return x.machine
	}
	return nil
}

// Lapse does what the service does when a session's time is over, and waits until it is done.
func (s *Server) Lapse(name string) {
	if x := s.current(name); x != nil {
		x.end(context.Background())
		x.awaitChange(context.Background())
	}
}

// Resume begins a sandbox's next session where none runs, as a request of another client does.
func (s *Server) Resume(name string) {
	if b := s.byName(name); b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.current.alive() {
			b.begin(b.latest == nil)
		}
	}
}

// Abort ends a session without storing anything, as a failure of the service's machine does.
func (s *Server) Abort(name string) {
	if x := s.current(name); x != nil {
		x.halt("aborted")
	}
}

// Destroy deletes a sandbox with all that is stored of it.
func (s *Server) Destroy(name string) {
	if b := s.byName(name); b != nil {
		b.destroy(true)
	}
}

// Expire lets all snapshots of a sandbox expire.
func (s *Server) Expire(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		for _, p := range a.snapshots {
			if p.sandbox == name {
				p.expires = time.Now()
			}
		}
	}
}

// ExpireSnapshot lets one snapshot of an account expire.
func (s *Server) ExpireSnapshot(a *Account, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := a.snapshots[id]; p != nil {
		p.expires = time.Now()
	}
}

// Snapshots are the ids of those of an account that are there, the oldest first.
func (s *Server) Snapshots(a *Account) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, p := range a.snapshots {
		if p.status == "created" && (p.expires.IsZero() || time.Now().Before(p.expires)) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// StoredAt is when a snapshot was made; the zero time where there is none.
func (s *Server) StoredAt(a *Account, id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := a.snapshots[id]; p != nil {
		return p.created
	}
	return time.Time{}
}

// Holds tells whether a snapshot has text in it.
func (s *Server) Holds(a *Account, id, text string) (bool, error) {
	s.mu.Lock()
	p := a.snapshots[id]
	s.mu.Unlock()
	if p == nil {
		return false, nil
	}
	return p.image.Holds(text)
}

// Sandboxes are the names of an account's.
func (s *Server) Sandboxes(a *Account) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range a.sandboxes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Size is what a sandbox has: virtual CPUs, and how long its session may last.
func (s *Server) Size(name string) (vcpus int, timeout time.Duration) {
	x := s.current(name)
	if x == nil {
		return 0, 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.box.body.Resources.VCPUs, x.timeout
}
