//go:build linux

package vercel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// workDir is where commands run that name no directory.
const workDir = "/vercel/sandbox"

// sandbox is a named one of an account's. One session after the other runs it.
type sandbox struct {
	s       *Server
	account *Account
	body    createBody

	mu      sync.Mutex // of what follows, and held while a session is begun
	created time.Time
	updated time.Time
	current *session
	latest  *snapshot // what the next session starts on; nil is what the sandbox was made of
	stored  []*snapshot
	base    machine.Image
	gone    bool
}

type createBody struct {
	ProjectID  string            `json:"projectId"`
	Name       string            `json:"name"`
	Timeout    int64             `json:"timeout"` // ms
	Runtime    string            `json:"runtime"`
	Image      string            `json:"image"`
	Persistent *bool             `json:"persistent"`
	Env        map[string]string `json:"env"`
	Tags       map[string]string `json:"tags"`
	Policy     json.RawMessage   `json:"networkPolicy"`
	Expiration int64             `json:"snapshotExpiration"` // ms
	Ports      []int             `json:"ports"`
	Resources  struct {
		VCPUs int `json:"vcpus"`
	} `json:"resources"`
	Source *struct {
		Type       string `json:"type"`
		SnapshotID string `json:"snapshotId"`
	} `json:"source"`
	Keep *keepLast `json:"keepLastSnapshots"`
}

type keepLast struct {
	Count         int   `json:"count"`
	Expiration    int64 `json:"expiration"`
	DeleteEvicted bool  `json:"deleteEvicted"`
}

// snapshot is the files of a session at its end.
type snapshot struct {
	id, session, sandbox string
	image                machine.Image
	created              time.Time
	expires              time.Time // zero is never
	status               string
}

const (
	defaultTimeout = 5 * time.Minute
	longestTimeout = 24 * time.Hour
	maxTags        = 5
	maxTagBytes    = 256
	maxVCPUs       = 32
)

func (b *sandbox) persistent() bool { return b.body.Persistent == nil || *b.body.Persistent }

func (s *Server) sandboxRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/v2/sandboxes", s.create)
	mux.HandleFunc("POST /api/v3/sandboxes", s.create)
	mux.HandleFunc("GET /api/v2/sandboxes", s.list)
	mux.HandleFunc("GET /api/v2/sandboxes/{name}", s.onSandbox(s.get))
	mux.HandleFunc("PATCH /api/v2/sandboxes/{name}", s.onSandbox(s.update))
	mux.HandleFunc("DELETE /api/v2/sandboxes/{name}", s.onSandbox(func(w http.ResponseWriter, r *http.Request, b *sandbox) {
		b.destroy(r.URL.Query().Get("deleteOrphanSnapshots") == "true")
		answer(w, 200, map[string]any{"sandbox": b.view()})
	}))
	mux.HandleFunc("GET /api/v2/sandboxes/snapshots", s.listSnapshots)
	mux.HandleFunc("GET /api/v2/sandboxes/snapshots/{id}", s.onSnapshot(func(w http.ResponseWriter, p *snapshot) {
		answer(w, 200, map[string]any{"snapshot": s.viewSnapshot(p)})
	}))
	mux.HandleFunc("DELETE /api/v2/sandboxes/snapshots/{id}", s.onSnapshot(func(w http.ResponseWriter, p *snapshot) {
		s.mu.Lock()
		p.status = "deleted"
		s.mu.Unlock()
		answer(w, 200, map[string]any{"snapshot": s.viewSnapshot(p)})
	}))
}

func (s *Server) onSandbox(do func(http.ResponseWriter, *http.Request, *sandbox)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := s.account(w, r)
		if a == nil {
			return
		}
		s.mu.Lock()
		b := a.sandboxes[r.PathValue("name")]
		s.mu.Unlock()
		if b == nil {
			fail(w, http.StatusNotFound, "not_found", "Sandbox not found")
			return
		}
		do(w, r, b)
	}
}

func (s *Server) onSnapshot(do func(http.ResponseWriter, *snapshot)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := s.account(w, r)
		if a == nil {
			return
		}
		s.mu.Lock()
		p := a.snapshots[r.PathValue("id")]
		s.mu.Unlock()
		if p == nil {
			fail(w, http.StatusNotFound, "not_found", "Snapshot not found")
			return
		}
		do(w, p)
	}
}

// usable finds a snapshot that sessions can start on.
func (s *Server) usable(p *snapshot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p != nil && p.status == "created" && (p.expires.IsZero() || time.Now().Before(p.expires))
}

func (body *createBody) wrong(a *Account) string {
	switch {
	case body.ProjectID != a.Project:
		return "Invalid projectId"
	case len(body.Tags) > maxTags:
		return fmt.Sprintf("at most %d tags", maxTags)
	case body.Timeout != 0 && (body.Timeout < 1000 || body.Timeout > longestTimeout.Milliseconds()):
		return "Invalid timeout"
	case body.Resources.VCPUs < 0 || body.Resources.VCPUs > maxVCPUs || body.Resources.VCPUs > 1 && body.Resources.VCPUs%2 != 0:
		return "Invalid resources.vcpus"
	case strings.Contains(body.Image+body.Runtime, "no-such"):
		return "Invalid image or runtime"
	case body.Source != nil && body.Source.Type == "snapshot" && body.Runtime != "":
		return "runtime cannot be set with a snapshot source"
	case body.Keep != nil && (body.Keep.Count < 1 || body.Keep.Count > 10):
		return "Invalid keepLastSnapshots.count"
	}
	for k, v := range body.Tags {
		if len(k) > maxTagBytes || len(v) > maxTagBytes || strings.Contains(k, ":") {
			return "Invalid tag " + k
		}
	}
	return ""
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	a := s.account(w, r)
	if a == nil {
		return
	}
	var body createBody
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	if wrong := body.wrong(a); wrong != "" {
		fail(w, http.StatusBadRequest, "bad_request", wrong)
		return
	}
	b := &sandbox{s: s, account: a, created: time.Now(), updated: time.Now(), base: s.Host.Base()}
	if body.Source != nil && body.Source.Type == "snapshot" {
		s.mu.Lock()
		from := a.snapshots[body.Source.SnapshotID]
		s.mu.Unlock()
		if !s.usable(from) {
			fail(w, http.StatusGone, "snapshot_not_found", "Snapshot not found or expired")
			return
		}
		b.base = from.image
	}
	if body.Resources.VCPUs == 0 {
		body.Resources.VCPUs = 2
	}
	if body.Timeout == 0 {
		body.Timeout = defaultTimeout.Milliseconds()
	}
	s.mu.Lock()
	s.next++
	if body.Name == "" {
		body.Name = fmt.Sprintf("sandbox-%d", s.next)
	}
	b.body = body
	taken := a.sandboxes[body.Name] != nil
	if !taken {
		a.sandboxes[body.Name] = b
	}
	s.mu.Unlock()
	if taken {
		fail(w, http.StatusConflict, "conflict", "A sandbox with this name already exists")
		return
	}
	b.mu.Lock()
	status, code, message := b.begin(true)
	b.mu.Unlock()
	if status != 0 {
		b.destroy(true)
		fail(w, status, code, message)
		return
	}
	answer(w, 200, b.whole(false))
}

// begin starts a session. b.mu is held.
func (b *sandbox) begin(first bool) (status int, code, message string) {
	used := b.body.Resources.VCPUs
	for _, other := range b.s.sessionsOf(b.account) {
		if other.alive() {
			used += other.box.body.Resources.VCPUs
		}
	}
	if limit := b.account.MaxVCPUs; limit > 0 && used > limit {
		return http.StatusPaymentRequired, "sandbox_limit_exceeded", fmt.Sprintf("Concurrent sandbox vCPU limit of %d reached", limit)
	}
	image := b.base
	if b.latest != nil {
		if !b.s.usable(b.latest) {
			return http.StatusGone, "snapshot_not_found", "Snapshot not found or expired"
		}
		image = b.latest.image
	}
	m, err := b.s.Host.New(image, "sandbox")
	if err != nil {
		return http.StatusInternalServerError, "internal", err.Error()
	}
	b.s.mu.Lock()
	b.s.next++
	x := &session{
		s: b.s, box: b, id: fmt.Sprintf("sbx_%06d", b.s.next), machine: m, status: "pending", requested: time.Now(),
		timeout: time.Duration(b.body.Timeout) * time.Millisecond, commands: map[string]*command{},
	}
	b.account.sessions[x.id] = x
	b.s.mu.Unlock()
	if first {
		if err := x.seed(); err != nil {
			return http.StatusInternalServerError, "internal", err.Error()
		}
	}
	if old := b.current; old != nil {
		_ = old.machine.Remove() // what it leaves is in its snapshot
	}
	b.current, b.updated = x, time.Now()
	x.startBehind()
	return 0, "", ""
}

// seed makes the working directory and puts the account's files into the home directory, in place of what the tree has there.
func (x *session) seed() error {
	root, err := os.OpenRoot(x.machine.Root())
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(strings.TrimPrefix(workDir, "/"), 0o755); err != nil {
		return err
	}
	if x.box.body.Source != nil {
		return nil
	}
	for _, name := range []string{".profile", ".bashrc"} {
		if err := root.RemoveAll(filepath.Join("root", name)); err != nil {
			return err
		}
	}
	for name, text := range x.box.account.Files {
		file := path.Join("root", name)
		if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, b *sandbox) {
	resumed := false
	if r.URL.Query().Get("resume") == "true" {
		b.mu.Lock()
		x := b.current
		b.mu.Unlock()
		x.awaitChange(r.Context())
		b.mu.Lock()
		if !b.current.alive() {
			status, code, message := b.begin(b.latest == nil)
			if status != 0 {
				b.mu.Unlock()
				fail(w, status, code, message)
				return
			}
			resumed = true
		}
		b.mu.Unlock()
	}
	answer(w, 200, b.whole(resumed))
}

func (s *Server) update(w http.ResponseWriter, r *http.Request, b *sandbox) {
	var q struct {
		Tags    map[string]string `json:"tags"`
		Timeout int64             `json:"timeout"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	b.mu.Lock()
	if q.Tags != nil {
		b.body.Tags = q.Tags
	}
	if q.Timeout != 0 {
		b.body.Timeout = q.Timeout
	}
	b.updated = time.Now()
	b.mu.Unlock()
	answer(w, 200, map[string]any{"sandbox": b.view()})
}

// list pages by name.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	a := s.account(w, r)
	if a == nil {
		return
	}
	q := r.URL.Query()
	key, value, tagged := strings.Cut(q.Get("tags"), ":")
	limit := front.Number(r, "limit", 20)
	s.mu.Lock()
	var names []string
	for name, b := range a.sandboxes {
		if strings.HasPrefix(name, q.Get("namePrefix")) && name > q.Get("cursor") && (!tagged || b.body.Tags[key] == value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var next any
	if len(names) > limit {
		names, next = names[:limit], names[limit-1]
	}
	boxes := make([]*sandbox, len(names))
	for i, name := range names {
		boxes[i] = a.sandboxes[name]
	}
	s.mu.Unlock()
	views := make([]any, len(boxes))
	for i, b := range boxes {
		views[i] = b.view()
	}
	answer(w, 200, map[string]any{"sandboxes": views, "pagination": map[string]any{"count": len(views), "next": next}})
}

func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	a := s.account(w, r)
	if a == nil {
		return
	}
	s.mu.Lock()
	var found []*snapshot
	for _, p := range a.snapshots {
		if p.status == "created" && (r.URL.Query().Get("name") == "" || p.sandbox == r.URL.Query().Get("name")) {
			found = append(found, p)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(found, func(a, b *snapshot) int { return b.created.Compare(a.created) })
	views := make([]any, len(found))
	for i, p := range found {
		views[i] = s.viewSnapshot(p)
	}
	answer(w, 200, map[string]any{"snapshots": views, "pagination": map[string]any{"count": len(views), "next": nil}})
}

func ms(t time.Time) int64 { return t.UnixMilli() }

func (s *Server) viewSnapshot(p *snapshot) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := map[string]any{
		"id": p.id, "sourceSessionId": p.session, "region": "iad1", "status": p.status, "sizeBytes": p.image.Size(), "createdAt": ms(p.created), "updatedAt": ms(p.created),
	}
	if !p.expires.IsZero() {
		v["expiresAt"] = ms(p.expires)
	}
	return v
}

// view is a sandbox as the API shows it.
func (b *sandbox) view() map[string]any {
	b.mu.Lock()
	defer b.mu.Unlock()
	tags := b.body.Tags
	if tags == nil {
		tags = map[string]string{}
	}
	v := map[string]any{
		"name": b.body.Name, "persistent": b.persistent(), "region": "iad1", "vcpus": b.body.Resources.VCPUs, "memory": 2048 * b.body.Resources.VCPUs,
		"timeout": b.body.Timeout, "createdAt": ms(b.created), "updatedAt": ms(b.updated), "status": "stopped", "currentSessionId": "", "cwd": workDir, "tags": tags,
	}
	for name, text := range map[string]string{"runtime": b.body.Runtime, "image": b.body.Image} {
		if text != "" {
			v[name] = text
		}
	}
	if b.current != nil {
		v["currentSessionId"], v["status"] = b.current.id, b.current.state()
	}
	if b.latest != nil {
		v["currentSnapshotId"] = b.latest.id
	}
	if policy := b.policy(); policy != nil {
		v["networkPolicy"] = policy
	}
	return v
}

// policy is the network policy in the form of an answer.
func (b *sandbox) policy() any {
	var q struct {
		Mode    string
		Subnets struct{ Allow []string }
	}
	if b.body.Policy == nil || json.Unmarshal(b.body.Policy, &q) != nil {
		return nil
	}
	if q.Mode == "" {
		return map[string]any{"mode": "custom", "allowedCIDRs": q.Subnets.Allow}
	}
	return map[string]any{"mode": q.Mode}
}

// whole is the answer that tells of a sandbox and its session.
func (b *sandbox) whole(resumed bool) map[string]any {
	v := map[string]any{"sandbox": b.view(), "routes": []any{}}
	b.mu.Lock()
	x := b.current
	b.mu.Unlock()
	v["session"] = x.view()
	if resumed {
		v["resumed"] = true
	}
	return v
}

// store makes a snapshot of a session that has ended, and evicts older ones. b.mu must not be held.
func (b *sandbox) store(ctx context.Context, x *session, expiration *int64) (*snapshot, error) {
	image, err := x.machine.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.next++
	p := &snapshot{id: fmt.Sprintf("snap_%06d", b.s.next), session: x.id, sandbox: b.body.Name, image: image, created: time.Now(), status: "created"}
	after := b.body.Expiration
	if b.body.Keep != nil {
		after = b.body.Keep.Expiration
	}
	if expiration != nil {
		after = *expiration
	}
	if after > 0 {
		p.expires = p.created.Add(time.Duration(after) * time.Millisecond)
	}
	b.account.snapshots[p.id] = p
	b.stored = append(b.stored, p)
	if keep := b.body.Keep; keep != nil && keep.DeleteEvicted {
		for len(b.stored) > keep.Count {
			b.stored[0].status = "deleted"
			b.stored = b.stored[1:]
		}
	}
	b.latest = p
	return p, nil
}

func (b *sandbox) destroy(orphans bool) {
	b.mu.Lock()
	b.s.mu.Lock()
	if b.account.sandboxes[b.body.Name] == b {
		delete(b.account.sandboxes, b.body.Name)
	}
	if orphans {
		for _, p := range b.stored {
			p.status = "deleted"
		}
	}
	b.s.mu.Unlock()
	x := b.current
	b.gone = true
	b.mu.Unlock()
	if x != nil {
		x.halt("stopped")
		_ = x.machine.Remove()
	}
}
