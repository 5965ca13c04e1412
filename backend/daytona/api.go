package daytona

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
)

const (
	hosted = "https://app.daytona.io/api"
	// sdkVersion is the version of the vendor's SDK whose protocol is spoken here; the daemon goes by it.
	sdkVersion = "0.218.0"
)

// api is the service as one account sees it.
type api struct {
	cloudhttp.Client
	base   string
	hosted bool
}

// box is a sandbox as the API shows it: what of it is used here.
type box struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Snapshot    string            `json:"snapshot"`
	User        string            `json:"user"`
	Labels      map[string]string `json:"labels"`
	Target      string            `json:"target"`
	CPU         float64           `json:"cpu"`
	Memory      float64           `json:"memory"` // GiB
	Disk        float64           `json:"disk"`   // GiB
	State       string            `json:"state"`
	ErrorReason string            `json:"errorReason"`
	Build       *build            `json:"buildInfo"`
	AutoStop    float64           `json:"autoStopInterval"` // minutes
	BlockAll    bool              `json:"networkBlockAll"`
	Allow       string            `json:"networkAllowList"`
	Created     string            `json:"createdAt"`
	Updated     string            `json:"updatedAt"`
	Toolbox     string            `json:"toolboxProxyUrl"`
}

type build struct {
	Dockerfile string `json:"dockerfileContent"`
}

// creation is the body that makes a sandbox.
type creation struct {
	Name        string            `json:"name"`
	Snapshot    string            `json:"snapshot,omitempty"`
	Build       *build            `json:"buildInfo,omitempty"`
	Labels      map[string]string `json:"labels"`
	Target      string            `json:"target,omitempty"`
	CPU         int64             `json:"cpu,omitempty"`
	Memory      int64             `json:"memory,omitempty"`
	Disk        int64             `json:"disk,omitempty"`
	AutoStop    int64             `json:"autoStopInterval"`
	AutoArchive int64             `json:"autoArchiveInterval"`
	AutoDelete  int64             `json:"autoDeleteInterval"`
	BlockAll    bool              `json:"networkBlockAll,omitempty"`
	Allow       string            `json:"networkAllowList,omitempty"`
}

// connect reads who asks and where; nobody is contacted.
func connect(req driver.OpenRequest) (*api, error) {
	cfg := req.Config
	key, jwt, organization := cfg.String("daytona_api_key"), cfg.String("daytona_jwt_token"), cfg.String("daytona_organization_id")
	switch {
	case key == "" && jwt == "":
		return nil, failure(driver.KindConfig, "daytona needs a key: set DAYTONA_API_KEY (make one at https://app.daytona.io/dashboard/keys), or DAYTONA_JWT_TOKEN and DAYTONA_ORGANIZATION_ID")
	case key == "" && organization == "":
		return nil, failure(driver.KindConfig, "DAYTONA_JWT_TOKEN needs the organization beside it: set DAYTONA_ORGANIZATION_ID")
	}
	for _, name := range []string{"daytona_api_key", "daytona_jwt_token", "daytona_organization_id"} {
		if err := cloudbox.CheckToken(cfg.String(name), cfg.Origin(name)); err != nil {
			return nil, err
		}
	}
	base, err := address(cfg.String("daytona_api_url"))
	if err != nil {
		return nil, failure(driver.KindConfig, "daytona_api_url (%s): %w", cfg.Origin("daytona_api_url"), err)
	}
	a := &api{base: base, hosted: base == hosted}
	a.Client = cloudhttp.Client{Base: base, Service: "Daytona", Log: req.Logger, Header: http.Header{
		"X-Daytona-Source": {"elsewhere"}, "X-Daytona-Sdk-Version": {sdkVersion},
	}}
	if key != "" {
		a.Header.Set("Authorization", "Bearer "+key)
	} else {
		a.Header.Set("Authorization", "Bearer "+jwt)
		a.Header.Set("X-Daytona-Organization-ID", organization)
	}
	return a, nil
}

// address is the API's, from what a user wrote: a server's own name will do.
func address(setting string) (string, error) {
	setting = strings.TrimRight(strings.TrimSpace(setting), "/")
	if setting == "" {
		return hosted, nil
	}
	u, err := url.Parse(setting)
	if err != nil {
		return "", err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", failure(driver.KindConfig, "%q is no address: it has to begin with https:// or http://", setting)
	}
	if u.Path == "" {
		setting += "/api"
	}
	return setting, nil
}

func (a *api) get(ctx context.Context, ref string) (*box, error) {
	b := &box{}
	return b, a.Do(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/sandbox/" + url.PathEscape(ref), Into: b})
}

// create makes a sandbox. It may be sent twice: the name is there once.
func (a *api) create(ctx context.Context, c creation) (*box, error) {
	b := &box{}
	return b, a.Do(ctx, cloudhttp.Request{Method: http.MethodPost, Path: "/sandbox", Body: c, Into: b, Wait: 2 * time.Minute})
}

// change asks for a change of state: start, stop, archive. Asking twice does no harm.
func (a *api) change(ctx context.Context, id, what string) error {
	return a.Do(ctx, cloudhttp.Request{Method: http.MethodPost, Path: "/sandbox/" + id + "/" + what, Repeat: true, Wait: time.Minute})
}

func (a *api) remove(ctx context.Context, id string) error {
	err := a.Do(ctx, cloudhttp.Request{Method: http.MethodDelete, Path: "/sandbox/" + id, Wait: time.Minute})
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// list gives the sandboxes that have these labels, at most so many; 0 is all.
func (a *api) list(ctx context.Context, labels map[string]string, most int) ([]box, error) {
	text, _ := json.Marshal(labels) // strings always marshal
	var all []box
	limit, cursor := 100, ""
	if most > 0 {
		limit = min(limit, most)
	}
	for {
		q := url.Values{"labels": {string(text)}, "limit": {strconv.Itoa(limit)}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		var page struct {
			Items []box   `json:"items"`
			Next  *string `json:"nextCursor"`
		}
		if err := a.Do(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/sandbox", Query: q, Into: &page}); err != nil {
			return nil, a.explain("listing sandboxes", err)
		}
		all = append(all, page.Items...)
		if page.Next == nil || *page.Next == "" || *page.Next == cursor || most > 0 && len(all) >= most {
			return all, nil
		}
		cursor = *page.Next
	}
}

// toolbox gives the address of a sandbox's toolbox.
func (a *api) toolbox(ctx context.Context, b *box) (string, error) {
	base := b.Toolbox
	if base == "" {
		var answer struct{ URL string }
		if err := a.Do(ctx, cloudhttp.Request{Method: http.MethodGet, Path: "/sandbox/" + b.ID + "/toolbox-proxy-url", Into: &answer}); err != nil {
			return "", err
		}
		base = answer.URL
	}
	return strings.TrimRight(base, "/") + "/" + b.ID, nil
}

// execute runs a script of ours that does no harm when it runs twice, by a bash, and gives what it printed.
func (a *api) execute(ctx context.Context, toolbox, script string, wait time.Duration) (text string, code int, err error) {
	var answer struct {
		Code   int    `json:"exitCode"`
		Result string `json:"result"`
	}
	err = a.Do(ctx, cloudhttp.Request{
		Method: http.MethodPost, Path: toolbox + "/process/execute", Into: &answer, Repeat: true, Wait: wait,
		Body: map[string]any{"command": script, "cwd": "/", "timeout": int(wait / time.Second)},
	})
	return answer.Result, answer.Code, err
}

// stamp reads one of the API's times.
func stamp(text string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, text)
	return t
}
