package vercel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
)

const service = "https://vercel.com/api"

// api is the service as one project sees it.
type api struct {
	cloudhttp.Client
	team, project string
}

// box is a sandbox as the API shows it: what of it is used here. Times are milliseconds.
type box struct {
	Name       string            `json:"name"`
	Persistent bool              `json:"persistent"`
	VCPUs      float64           `json:"vcpus"`
	Memory     float64           `json:"memory"` // MB
	Runtime    string            `json:"runtime"`
	Image      string            `json:"image"`
	Timeout    int64             `json:"timeout"`
	Status     string            `json:"status"`
	Session    string            `json:"currentSessionId"`
	Snapshot   string            `json:"currentSnapshotId"`
	Created    int64             `json:"createdAt"`
	Updated    int64             `json:"updatedAt"`
	Tags       map[string]string `json:"tags"`
}

// run is a session of a sandbox.
type run struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Cwd     string `json:"cwd"`
	Started int64  `json:"startedAt"`
	Created int64  `json:"createdAt"`
	Timeout int64  `json:"timeout"`
}

// ends is when the service ends the session; zero where it does not say.
func (r *run) ends() time.Time {
	begun := max(r.Started, r.Created)
	if begun == 0 || r.Timeout == 0 {
		return time.Time{}
	}
	return stamp(begun + r.Timeout)
}

// state is what most answers tell.
type state struct {
	Box     box  `json:"sandbox"`
	Run     run  `json:"session"`
	Resumed bool `json:"resumed"`
}

type source struct {
	Type     string `json:"type"`
	Snapshot string `json:"snapshotId"`
}

type keepLast struct {
	Count         int   `json:"count"`
	Expiration    int64 `json:"expiration"`
	DeleteEvicted bool  `json:"deleteEvicted"`
}

// creation is the body that makes a sandbox.
type creation struct {
	Project    string            `json:"projectId"`
	Name       string            `json:"name"`
	Timeout    int64             `json:"timeout"` // ms
	Resources  *resources        `json:"resources,omitempty"`
	Runtime    string            `json:"runtime,omitempty"`
	Image      string            `json:"image,omitempty"`
	Persistent bool              `json:"persistent"`
	Tags       map[string]string `json:"tags"`
	Source     *source           `json:"source,omitempty"`
	Keep       *keepLast         `json:"keepLastSnapshots,omitempty"`
}

type resources struct {
	VCPUs int64 `json:"vcpus"`
}

// connect reads who asks and where; nobody is contacted.
func connect(req driver.OpenRequest) (*api, error) {
	cfg := req.Config
	a := &api{team: cfg.String("vercel_team_id"), project: cfg.String("vercel_project_id")}
	token := cfg.String("vercel_token")
	var missing []string
	for _, one := range []struct{ value, name string }{{token, "VERCEL_TOKEN"}, {a.team, "VERCEL_TEAM_ID"}, {a.project, "VERCEL_PROJECT_ID"}} {
		if one.value == "" {
			missing = append(missing, one.name)
		}
	}
	oidc := cfg.String("vercel_oidc_token")
	switch {
	case len(missing) == 0:
	case oidc != "":
		var err error
		if a.team, a.project, err = claims(oidc); err != nil {
			return nil, failure(driver.KindConfig, "vercel_oidc_token (%s) cannot be used: %w; get a new one with `vercel env pull`", cfg.Origin("vercel_oidc_token"), err)
		}
		token = oidc
	case len(missing) == 3:
		return nil, failure(driver.KindConfig, "vercel needs to know who you are; set VERCEL_TOKEN (make one at https://vercel.com/account/settings/tokens), VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or VERCEL_OIDC_TOKEN")
	default:
		return nil, failure(driver.KindConfig, "VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID go together: %s; set all three", unset(missing))
	}
	for _, name := range []string{"vercel_token", "vercel_oidc_token", "vercel_team_id", "vercel_project_id"} {
		if err := cloudbox.CheckToken(cfg.String(name), cfg.Origin(name)); err != nil {
			return nil, err
		}
	}
	base := strings.TrimRight(cfg.String("vercel_api_url"), "/")
	if base == "" {
		base = service
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, failure(driver.KindConfig, "vercel_api_url (%s) is no address: it has to begin with https:// or http://", cfg.Origin("vercel_api_url"))
	}
	a.Client = cloudhttp.Client{Base: base, Service: "Vercel", Log: req.Logger, Header: http.Header{
		"Authorization": {"Bearer " + token}, "User-Agent": {"elsewhere"},
	}}
	return a, nil
}

// unset says that one or two variables are not set.
func unset(names []string) string {
	if len(names) == 1 {
		return names[0] + " is not set"
	}
	return strings.Join(names, " and ") + " are not set"
}

// claims are what a token says of itself; the service checks it.
func claims(token string) (team, project string, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", "", errors.New("it is no token of that kind")
	}
	var said struct {
		Owner   string `json:"owner_id"`
		Project string `json:"project_id"`
		Expires int64  `json:"exp"`
	}
	text, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil || json.Unmarshal(text, &said) != nil || said.Owner == "" || said.Project == "" {
		return "", "", errors.New("it names no team and no project")
	}
	if said.Expires > 0 && time.Now().After(time.Unix(said.Expires, 0)) {
		return "", "", fmt.Errorf("it expired at %s", time.Unix(said.Expires, 0).Format(time.DateTime))
	}
	return said.Owner, said.Project, nil
}

// ask sends a request of the project's.
func (a *api) ask(ctx context.Context, q cloudhttp.Request) error {
	if q.Query == nil {
		q.Query = url.Values{}
	}
	q.Query.Set("teamId", a.team)
	return a.Do(ctx, q)
}

func (a *api) named(name string, more ...string) cloudhttp.Request {
	q := url.Values{"projectId": {a.project}}
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return cloudhttp.Request{Path: "/v2/sandboxes/" + url.PathEscape(name), Query: q, Wait: time.Minute}
}

// get finds a sandbox; resume has its next session begun where none runs.
func (a *api) get(ctx context.Context, name string, resume bool) (*state, error) {
	q := a.named(name, "resume", strconv.FormatBool(resume))
	st := &state{}
	q.Method, q.Into = http.MethodGet, st
	if resume {
		q.Wait = 3 * time.Minute
	}
	return st, a.ask(ctx, q)
}

// create makes a sandbox. It is not sent twice where it may have been done.
func (a *api) create(ctx context.Context, c creation) (*state, error) {
	path := "/v3/sandboxes"
	if c.Runtime != "" {
		path = "/v2/sandboxes"
	}
	c.Project = a.project
	st := &state{}
	return st, a.ask(ctx, cloudhttp.Request{Method: http.MethodPost, Path: path, Body: c, Into: st, Wait: 3 * time.Minute})
}

// remove deletes a sandbox; one that is not there is no error. What is stored of it stays at the service unless that is to go too.
func (a *api) remove(ctx context.Context, name string, deleteOrphanSnapshots bool) error {
	q := a.named(name, "deleteOrphanSnapshots", strconv.FormatBool(deleteOrphanSnapshots))
	q.Method = http.MethodDelete
	err := a.ask(ctx, q)
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// list gives the own sandboxes of an identity and profile, at most so many; 0 is all. What the service answers is looked at again.
func (a *api) list(ctx context.Context, id driver.Identity, most int) ([]box, error) {
	var all []box
	limit, cursor := 50, ""
	if most > 0 {
		limit = min(limit, most)
	}
	whose := cloudbox.IdentityHash(id)
	for {
		q := url.Values{"project": {a.project}, "limit": {strconv.Itoa(limit)}, "tags": {tagIdentity + ":" + whose}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Sandboxes  []box
			Pagination struct{ Next *string }
		}
		if err := a.ask(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/v2/sandboxes", Query: q, Into: &page}); err != nil {
			return nil, a.explain("listing sandboxes", err)
		}
		for _, b := range page.Sandboxes {
			if b.Tags[tagIdentity] == whose {
				all = append(all, b)
			}
		}
		next := page.Pagination.Next
		if next == nil || *next == "" || *next == cursor || most > 0 && len(all) >= most {
			return all, nil
		}
		cursor = *next
	}
}

func session(id, what string) string { return "/v2/sandboxes/sessions/" + id + what }

func (a *api) look(ctx context.Context, id string) (*run, error) {
	var st state
	err := a.ask(ctx, cloudhttp.Request{Method: http.MethodGet, Path: session(id, ""), Into: &st})
	return &st.Run, err
}

// stop ends a session; its files are stored where the sandbox persists, as the snapshot whose id is given. One that has ended is no error.
func (a *api) stop(ctx context.Context, id string) (snapshot string, err error) {
	var answer struct{ Snapshot struct{ ID string } }
	err = a.ask(ctx, cloudhttp.Request{Method: http.MethodPost, Path: session(id, "/stop"), Into: &answer, Repeat: true, Wait: 2 * time.Minute})
	switch cloudhttp.StatusOf(err) {
	case http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity:
		return "", nil
	}
	return answer.Snapshot.ID, err
}

// store stops a session and gives the id of what is stored last of the sandbox then, "" where nothing is.
func (a *api) store(ctx context.Context, name, session string) (snapshot string, err error) {
	if snapshot, err = a.stop(ctx, session); err != nil || snapshot != "" {
		return snapshot, err
	}
	return a.newest(ctx, name) // it had ended, maybe by a request whose answer was lost
}

// newest gives the id of what is stored last of a sandbox, when no session of it is ending any more.
func (a *api) newest(ctx context.Context, name string) (snapshot string, err error) {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		st, err := a.get(ctx, name, false)
		if cloudhttp.StatusOf(err) == http.StatusNotFound {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		if status := st.Run.Status; status != "stopping" && status != "snapshotting" {
			return st.Box.Snapshot, nil
		}
		if err := sleep(ctx, pause); err != nil {
			return "", failure(driver.KindUnavailable, "the service is still storing the files of the sandbox %s (%s): ask for it again later: %w", name, st.Run.Status, err)
		}
	}
}

// storedAt tells when a snapshot was made.
func (a *api) storedAt(ctx context.Context, id string) (time.Time, error) {
	var answer struct {
		Snapshot struct {
			Created int64 `json:"createdAt"`
		}
	}
	err := a.ask(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/v2/sandboxes/snapshots/" + url.PathEscape(id), Into: &answer})
	if err == nil && answer.Snapshot.Created == 0 {
		err = errors.New("the service does not say when a snapshot was made")
	}
	return stamp(answer.Snapshot.Created), err
}

// before gives the id of what was stored of a sandbox before the snapshot that is gone, "" where there is nothing.
func (a *api) before(ctx context.Context, name, gone string) (snapshot string, err error) {
	var page struct {
		Snapshots []struct {
			ID, Status string
			Created    int64 `json:"createdAt"`
			Expires    int64 `json:"expiresAt"`
		}
	}
	q := url.Values{"project": {a.project}, "name": {name}}
	if err := a.ask(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/v2/sandboxes/snapshots", Query: q, Into: &page}); err != nil {
		return "", err
	}
	newest := int64(-1)
	for _, one := range page.Snapshots {
		if one.ID != gone && one.Status == "created" && one.Created > newest && (one.Expires == 0 || time.Now().Before(stamp(one.Expires))) {
			snapshot, newest = one.ID, one.Created
		}
	}
	return snapshot, nil
}

// extend lets a session run longer.
func (a *api) extend(ctx context.Context, id string, by time.Duration) (*run, error) {
	var st state
	err := a.ask(ctx, cloudhttp.Request{Method: http.MethodPost, Path: session(id, "/extend-timeout"), Body: map[string]int64{"duration": by.Milliseconds()}, Into: &st})
	return &st.Run, err
}

// execute runs a script of ours that does no harm when it runs twice, by a bash, and gives what it printed.
func (a *api) execute(ctx context.Context, id, script string, args []string, wait time.Duration) (text string, code int, err error) {
	argv := cloudbox.Argv(script, args...)
	body := map[string]any{"command": argv[0], "args": argv[1:], "cwd": "/", "wait": true, "logs": true, "timeout": wait.Milliseconds()}
	for try := 0; ; try++ {
		var lines []byte
		if err := a.ask(ctx, cloudhttp.Request{Method: http.MethodPost, Path: session(id, "/cmd"), Body: body, Into: &lines, Repeat: true, Wait: wait + 10*time.Second}); err != nil {
			return "", 0, err
		}
		text, code, err = readLines(lines)
		if err == nil || try == 2 || ctx.Err() != nil {
			return text, code, err
		}
	}
}

// readLines reads the answer to a command: what it printed and how it ended.
func readLines(lines []byte) (text string, code int, err error) {
	var out strings.Builder
	for decoder := json.NewDecoder(bytes.NewReader(lines)); decoder.More(); {
		var line struct {
			Stream  string
			Data    json.RawMessage
			Command *struct{ ExitCode *int }
		}
		if err := decoder.Decode(&line); err != nil {
			return "", 0, fmt.Errorf("the answer of Vercel to a command cannot be read: %w", err)
		}
		switch {
		case line.Command != nil && line.Command.ExitCode != nil:
			return out.String(), *line.Command.ExitCode, nil
		case line.Stream == "stdout":
			var part string
			_ = json.Unmarshal(line.Data, &part) // it is a string, or nothing is lost
			out.WriteString(part)
		case line.Stream == "error":
			return "", 0, fmt.Errorf("a command was cut off, Vercel says: %.200s", line.Data)
		}
	}
	return "", 0, errors.New("the answer of Vercel to a command ended early")
}

func stamp(ms int64) time.Time { return time.UnixMilli(ms) }
