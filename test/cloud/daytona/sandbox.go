//go:build linux

package daytona

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// sandbox is one of an account's.
type sandbox struct {
	s       *Server
	account *Account
	machine *machine.Machine
	id      string
	daemon  front.Gate // what goes through the toolbox

	mu       sync.Mutex
	halts    int // how often it has been stopped
	body     createBody
	state    string
	created  time.Time
	updated  time.Time
	used     time.Time
	terms    map[string]*terminal
	sessions map[string]*session
	gone     bool
}

type createBody struct {
	Name      string            `json:"name"`
	Snapshot  string            `json:"snapshot"`
	BuildInfo *buildInfo        `json:"buildInfo"`
	User      string            `json:"user"`
	Env       map[string]string `json:"env"`
	Labels    map[string]string `json:"labels"`
	Target    string            `json:"target"`
	CPU       int               `json:"cpu"`
	Memory    int               `json:"memory"`
	Disk      int               `json:"disk"`

	AutoStop    *int   `json:"autoStopInterval"`
	AutoArchive *int   `json:"autoArchiveInterval"`
	AutoDelete  *int   `json:"autoDeleteInterval"`
	BlockAll    bool   `json:"networkBlockAll"`
	Allow       string `json:"networkAllowList"`
}

type buildInfo struct {
	Dockerfile string `json:"dockerfileContent"`
}

func (s *Server) sandboxRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/sandbox", s.create)
	mux.HandleFunc("GET /api/sandbox", s.list)
	on := func(pattern string, do func(w http.ResponseWriter, r *http.Request, b *sandbox)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if a := s.account(w, r); a != nil {
				if b := s.find(a, r.PathValue("ref")); b != nil {
					do(w, r, b)
				} else {
					fail(w, r, http.StatusNotFound, fmt.Sprintf("Sandbox with ID or name %s not found", r.PathValue("ref")))
				}
			}
		})
	}
	on("GET /api/sandbox/{ref}", func(w http.ResponseWriter, _ *http.Request, b *sandbox) { answer(w, 200, b.dto()) })
	on("DELETE /api/sandbox/{ref}", func(w http.ResponseWriter, _ *http.Request, b *sandbox) {
		b.destroy()
		answer(w, 200, b.dto())
	})
	on("POST /api/sandbox/{ref}/start", s.start)
	on("POST /api/sandbox/{ref}/stop", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		b.change(w, r, []string{"started"}, "stopping", "stopped", "Sandbox is not started", b.halt)
	})
	on("POST /api/sandbox/{ref}/archive", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		b.change(w, r, []string{"stopped"}, "archiving", "archived", "Sandbox is not stopped", nil)
	})
	on("POST /api/sandbox/{ref}/snapshot", s.snapshot)
	on("PUT /api/sandbox/{ref}/labels", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		var body struct {
			Labels map[string]string `json:"labels"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		b.mu.Lock()
		b.body.Labels = body.Labels
		b.mu.Unlock()
		answer(w, 200, b.dto())
	})
	on("POST /api/sandbox/{ref}/autostop/{minutes}", func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		n, _ := strconv.Atoi(r.PathValue("minutes"))
		b.mu.Lock()
		b.body.AutoStop = &n
		b.mu.Unlock()
		answer(w, 200, b.dto())
	})
	on("GET /api/sandbox/{ref}/toolbox-proxy-url", func(w http.ResponseWriter, _ *http.Request, _ *sandbox) {
		answer(w, 200, map[string]string{"url": s.toolbox()})
	})
	on("POST /api/sandbox/{ref}/last-activity", func(w http.ResponseWriter, _ *http.Request, _ *sandbox) { answer(w, 200, nil) })
}

// find finds an account's sandbox by id or name.
func (s *Server) find(a *Account, ref string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := a.sandboxes[ref]; b != nil {
		return b
	}
	for _, b := range a.sandboxes {
		if b.name() == ref {
			return b
		}
	}
	return nil
}

func (b *sandbox) name() string { return b.body.Name } // never changes

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	a := s.account(w, r)
	if a == nil {
		return
	}
	body := createBody{CPU: 1, Memory: 1, Disk: 3}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, r, http.StatusBadRequest, err.Error())
		return
	}
	if body.Snapshot != "" && body.BuildInfo != nil {
		fail(w, r, http.StatusBadRequest, "Cannot specify both a snapshot and a build")
		return
	}
	s.mu.Lock()
	image, known := s.snapshots[a.Key+"/"+body.Snapshot]
	if !known {
		image = s.Host.Base()
	}
	disk := 0
	for _, b := range a.sandboxes {
		disk += b.body.Disk
	}
	s.next++
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", s.next, s.next)
	s.mu.Unlock()
	switch {
	case body.Snapshot != "" && body.Snapshot != "default" && !known:
		fail(w, r, http.StatusBadRequest, fmt.Sprintf("Snapshot %s not found. Did you add it through the Daytona Dashboard?", body.Snapshot))
		return
	case a.MaxDisk > 0 && disk+body.Disk > a.MaxDisk:
		fail(w, r, http.StatusForbidden, fmt.Sprintf("Total disk limit exceeded. Maximum allowed: %dGiB.", a.MaxDisk))
		return
	}
	if body.Name == "" {
		body.Name = id
	}
	m, err := s.Host.New(image, "sandbox")
	if err != nil {
		fail(w, r, http.StatusInternalServerError, err.Error())
		return
	}
	now := time.Now()
	b := &sandbox{
		s: s, account: a, machine: m, id: id, body: body, state: "creating", created: now, updated: now, used: now,
		terms: map[string]*terminal{}, sessions: map[string]*session{},
	}
	s.mu.Lock()
	taken := false
	for _, other := range a.sandboxes {
		taken = taken || other.name() == body.Name
	}
	if !taken {
		a.sandboxes[id] = b
	}
	s.mu.Unlock()
	if taken {
		_ = m.Remove()
		fail(w, r, http.StatusConflict, fmt.Sprintf("Sandbox with name %s already exists", body.Name))
		return
	}
	if err := b.seed(); err != nil {
		b.destroy()
		fail(w, r, http.StatusInternalServerError, err.Error())
		return
	}
	b.startBehind()
	answer(w, 200, b.dto())
}

// seed puts the account's files into the home directory, in place of what the tree has there.
func (b *sandbox) seed() error {
	root, err := os.OpenRoot(b.machine.Root())
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{".profile", ".bashrc"} {
		if err := root.RemoveAll(filepath.Join("root", name)); err != nil {
			return err
		}
	}
	for name, text := range b.account.Files {
		file := filepath.Join("root", name)
		if err := root.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) start(w http.ResponseWriter, r *http.Request, b *sandbox) {
	b.mu.Lock()
	state := b.state
	switch state {
	case "stopped", "archived":
		b.state, b.updated = "starting", time.Now()
	case "started", "starting", "creating":
	default:
		b.mu.Unlock()
		fail(w, r, http.StatusConflict, "Sandbox state change in progress")
		return
	}
	b.mu.Unlock()
	if state == "stopped" || state == "archived" {
		b.startBehind()
	}
	answer(w, 200, b.dto())
}

// startBehind starts the machine, as the service does after it has answered.
func (b *sandbox) startBehind() {
	slow := b.s.Slow()
	b.s.Work.Go(func() {
		b.s.Pause(b.s.Ctx, slow)
		err := b.machine.Start()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.updated, b.used = time.Now(), time.Now()
		switch {
		case b.gone:
		case err != nil:
			b.state = "error"
		default:
			b.state = "started"
		}
	})
}

// change is a change of state that goes on behind the answer.
func (b *sandbox) change(w http.ResponseWriter, r *http.Request, from []string, by, to, wrong string, do func()) {
	b.mu.Lock()
	if !slices.Contains(from, b.state) {
		b.mu.Unlock()
		fail(w, r, http.StatusBadRequest, wrong)
		return
	}
	b.state, b.updated = by, time.Now()
	b.mu.Unlock()
	b.s.Work.Go(func() {
		if do != nil {
			do()
		}
		b.mu.Lock()
		b.state, b.updated = to, time.Now()
		ephemeral := to == "stopped" && b.body.AutoDelete != nil && *b.body.AutoDelete == 0
		b.mu.Unlock()
		if ephemeral {
			b.destroy()
		}
	})
	answer(w, 200, b.dto())
}

// halt ends all processes. What was on a file system in memory is gone.
func (b *sandbox) halt() {
	b.endProcesses()
	_ = b.machine.Stop()
	b.daemon.Open()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.halts++
}

// Wedge makes the toolbox of a sandbox hang until the sandbox is stopped: nothing is started or ended in it and no byte goes through,
// though the API answers. The function that it returns tells whether it has been stopped since.
func (s *Server) Wedge(id string) (stopped func() bool) {
	b := s.byID(id)
	if b == nil {
		return func() bool { return true }
	}
	halts := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.gone {
			return -1
		}
		return b.halts
	}
	before := halts()
	b.daemon.Shut()
	return func() bool { return halts() != before }
}

func (b *sandbox) endProcesses() {
	b.mu.Lock()
	terms := b.terms
	sessions := b.sessions
	b.terms, b.sessions = map[string]*terminal{}, map[string]*session{}
	b.mu.Unlock()
	for _, t := range terms {
		t.kill()
	}
	for _, s := range sessions {
		s.kill()
	}
}

func (b *sandbox) destroy() {
	b.mu.Lock()
	b.state, b.gone = "destroyed", true
	b.mu.Unlock()
	b.s.mu.Lock()
	delete(b.account.sandboxes, b.id)
	b.s.mu.Unlock()
	b.endProcesses()
	_ = b.machine.Remove()
	b.daemon.Open()
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request, b *sandbox) {
	var body struct{ Name string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	image, err := b.machine.Snapshot(r.Context())
	if err != nil || body.Name == "" {
		fail(w, r, http.StatusBadRequest, fmt.Sprintf("no snapshot: %v", err))
		return
	}
	s.mu.Lock()
	s.snapshots[b.account.Key+"/"+body.Name] = image
	s.mu.Unlock()
	answer(w, 200, b.dto())
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	a := s.account(w, r)
	if a == nil {
		return
	}
	wanted := map[string]string{}
	if text := r.URL.Query().Get("labels"); text != "" && json.Unmarshal([]byte(text), &wanted) != nil {
		fail(w, r, http.StatusBadRequest, "labels are no JSON object")
		return
	}
	s.mu.Lock()
	var all []*sandbox
	for _, b := range a.sandboxes {
		all = append(all, b)
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(x, y *sandbox) int { return strings.Compare(x.id, y.id) })
	items := []map[string]any{}
	skip, limit := front.Number(r, "cursor", 0), front.Number(r, "limit", 100)
	next := any(nil)
	for _, b := range all {
		b.mu.Lock()
		fits := true
		for k, v := range wanted {
			fits = fits && b.body.Labels[k] == v
		}
		b.mu.Unlock()
		switch {
		case !fits:
		case skip > 0:
			skip--
		case len(items) == limit:
			next = strconv.Itoa(front.Number(r, "cursor", 0) + limit)
		default:
			items = append(items, b.dto())
		}
	}
	answer(w, 200, map[string]any{"items": items, "nextCursor": next})
}

// dto is the sandbox as the API shows it.
func (b *sandbox) dto() map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	valued := func(p *int, otherwise int) int {
		if p == nil {
			return otherwise
		}
		return *p
	}
	stamp := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
	labels, env := b.body.Labels, b.body.Env
	if labels == nil {
		labels = map[string]string{}
	}
	if env == nil {
		env = map[string]string{}
	}
	dto := map[string]any{
		"id": b.id, "organizationId": b.account.Key, "name": b.body.Name, "snapshot": b.body.Snapshot, "user": "root", "env": env, "labels": labels,
		"public": false, "target": b.body.Target, "cpu": b.body.CPU, "gpu": 0, "memory": b.body.Memory, "disk": b.body.Disk, "state": b.state, "desiredState": b.state,
		"autoStopInterval": valued(b.body.AutoStop, 15), "autoArchiveInterval": valued(b.body.AutoArchive, 7*24*60), "autoDeleteInterval": valued(b.body.AutoDelete, -1),
		"volumes": []any{}, "createdAt": stamp(b.created), "updatedAt": stamp(b.updated), "lastActivityAt": stamp(b.used), "networkBlockAll": b.body.BlockAll,
		"networkAllowList": b.body.Allow, "sandboxClass": "container", "daemonVersion": "0.218.0", "runnerId": "emulated", "toolboxProxyUrl": b.s.toolbox(),
	}
	if b.body.BuildInfo != nil {
		dto["buildInfo"] = b.body.BuildInfo
	}
	return dto
}

// byID finds a sandbox of any account.
func (s *Server) byID(ref string) *sandbox {
	s.mu.Lock()
	accounts := make([]*Account, 0, len(s.accounts))
	for _, a := range s.accounts {
		accounts = append(accounts, a)
	}
	s.mu.Unlock()
	for _, a := range accounts {
		if b := s.find(a, ref); b != nil {
			return b
		}
	}
	return nil
}

// State is a sandbox's, by its id; "" where there is none.
func (s *Server) State(id string) string {
	b := s.byID(id)
	if b == nil {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// Machine is what a sandbox runs on, by its id; nil where there is none.
func (s *Server) Machine(id string) *machine.Machine {
	if b := s.byID(id); b != nil {
		return b.machine
	}
	return nil
}

// Lapse does what the service does when a sandbox's time is over: "stopped" (auto-stop), "archived" or "destroyed" (auto-delete).
func (s *Server) Lapse(id, to string) {
	b := s.byID(id)
	if b == nil {
		return
	}
	if to == "destroyed" {
		b.destroy()
		return
	}
	b.mu.Lock()
	b.state, b.updated = "stopping", time.Now()
	b.mu.Unlock()
	b.halt()
	b.mu.Lock()
	b.state, b.updated = to, time.Now()
	b.mu.Unlock()
}

// Sandboxes are the ids of an account's sandboxes, the oldest first.
func (s *Server) Sandboxes(a *Account) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id := range a.sandboxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Intervals are after how many minutes a sandbox is stopped and deleted; -1 is never deleted.
func (s *Server) Intervals(id string) (stop, remove int) {
	b := s.byID(id)
	if b == nil || b.body.AutoStop == nil || b.body.AutoDelete == nil {
		return 15, -1
	}
	return *b.body.AutoStop, *b.body.AutoDelete
}

// Size is what a sandbox was made with: CPUs, GiB of memory and of disk.
func (s *Server) Size(id string) (cpu, memory, disk int) {
	if b := s.byID(id); b != nil {
		return b.body.CPU, b.body.Memory, b.body.Disk
	}
	return 0, 0, 0
}
