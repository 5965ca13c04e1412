package modal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	"github.com/pelletier/go-toml/v2"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

const (
	// askWait bounds one question to the service; the SDK tries again within it.
	askWait = 30 * time.Second
	// throttleWait bounds how long the service may make a request wait.
	throttleWait = time.Minute
	// defaultServer is where the service is.
	defaultServer = "https://api.modal.com:443"
)

// account is a connection to the service with somebody's credentials.
type account struct {
	client  *sdk.Client
	server  string
	appName string
	from    string // where the credentials came from
	fix     string // what to do about wrong ones

	mu  sync.Mutex
	app *sdk.App
}

// profile is a table of the vendor's file of credentials.
type profile map[string]any

func (p profile) text(key string) string {
	text, _ := p[key].(string)
	return text
}

// connect makes a client; nothing is sent yet.
func connect(req driver.OpenRequest) (*account, error) {
	cfg := req.Config
	if cfg.String("modal_mode") == "managed" {
		return nil, failure(driver.KindUnsupported, "modal_mode is managed (%s): elsewhere has no gateway of a subscription; set it to direct and give credentials of your own", cfg.Origin("modal_mode"))
	}
	file, from, err := readProfile(cfg, req.Environ)
	if err != nil {
		return nil, err
	}
	a := &account{appName: cfg.String("modal_app"), server: first(cfg.String("modal_server_url"), file.text("server_url"), defaultServer)}
	params := &sdk.ClientParams{
		TokenID: first(cfg.String("modal_token_id"), file.text("token_id")), TokenSecret: first(cfg.String("modal_token_secret"), file.text("token_secret")),
		Environment: first(cfg.String("modal_environment"), file.text("environment")),
		Logger:      quiet(req.Logger), MaxThrottleWait: new(throttleWait),
	}
	if err := a.credentials(cfg, params, file, from); err != nil {
		return nil, err
	}
	if err := a.pointAt(params, file); err != nil {
		return nil, err
	}
	if a.client, err = sdk.NewClientWithOptions(params); err != nil {
		return nil, failure(driver.KindConfig, "%s", plainText(err))
	}
	return a, nil
}

// credentials says where they came from, and what is missing.
func (a *account) credentials(cfg driver.Config, params *sdk.ClientParams, file profile, from string) error {
	origin := func(key string, value string) string {
		switch {
		case value == "":
			return ""
		case cfg.String(key) != "":
			return cfg.Origin(key)
		default:
			return from
		}
	}
	id, secret := origin("modal_token_id", params.TokenID), origin("modal_token_secret", params.TokenSecret)
	a.fix = "make a token with `modal token new`, or at https://modal.com/settings/tokens, and set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
	switch {
	case id != "" && secret != "":
		if err := cmp.Or(cloudbox.CheckToken(params.TokenID, id), cloudbox.CheckToken(params.TokenSecret, secret)); err != nil {
			return err
		}
		a.from = id
		if id != secret {
			a.from = "the id from " + id + ", the secret from " + secret
		}
		return nil
	case id != "":
		return failure(driver.KindConfig, "the id of a Modal token is set (%s) and its secret is not: set MODAL_TOKEN_SECRET (terminal.modal_token_secret) too", id)
	case secret != "":
		return failure(driver.KindConfig, "the secret of a Modal token is set (%s) and its id is not: set MODAL_TOKEN_ID (terminal.modal_token_id) too", secret)
	case file.text("oauth_refresh_token") != "":
		a.from = from
		return nil
	default:
		return failure(driver.KindConfig, "there are no credentials for Modal, neither in the settings nor in %s: %s", from, a.fix)
	}
}

// readProfile reads the vendor's file of credentials. One that is not there is an empty profile.
func readProfile(cfg driver.Config, environ []string) (p profile, from string, err error) {
	from = cfg.String("modal_config_path")
	if from == "" {
		home := ""
		for _, entry := range environ {
			if value, ok := strings.CutPrefix(entry, "HOME="); ok {
				home = value
			}
		}
		if home == "" {
			home, _ = os.UserHomeDir()
		}
		if home == "" {
			return nil, "~/.modal.toml", nil
		}
		from = filepath.Join(home, ".modal.toml")
	}
	text, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, from, nil
	}
	var all map[string]profile
	if err == nil {
		err = toml.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, from, failure(driver.KindConfig, "Modal's file of credentials cannot be read: %s: %w", from, err)
	}
	name := cfg.String("modal_profile")
	if name == "" {
		for n, one := range all {
			if active, _ := one["active"].(bool); active && (name == "" || n < name) {
				name = n
			}
		}
		if name == "" {
			return nil, from, nil
		}
	}
	p, ok := all[name]
	if !ok {
		return nil, from, failure(driver.KindConfig, "there is no profile %q in %s (%s): name one of %s", name, from, cfg.Origin("modal_profile"), strings.Join(slices.Sorted(maps.Keys(all)), ", "))
	}
	return p, from + ", profile " + name, nil
}

// pointAt tells the SDK the profile and the server. It has no parameter for a server's address but the one that holds the contents
// of its file, whose type has no name outside: so the text is decoded into it. What stands in this process's own environment
// beats that in the SDK, and must not be another thing than the settings say.
func (a *account) pointAt(params *sdk.ClientParams, file profile) error {
	if u, err := url.Parse(a.server); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return failure(driver.KindConfig, "the address of Modal is %q: it has to begin with https:// or http:// (modal_server_url, or server_url in ~/.modal.toml)", a.server)
	}
	if own := os.Getenv("MODAL_SERVER_URL"); own != "" && own != a.server {
		return failure(driver.KindConfig, "MODAL_SERVER_URL of this process is %s and modal_server_url is %s: Modal's SDK would take the first; make them the same", own, a.server)
	}
	one := profile{}
	for key, value := range file {
		if strings.HasPrefix(key, "oauth_") && params.TokenID == "" || key == "image_builder_version" || key == "sandbox_v2" {
			one[key] = value
		}
	}
	one["server_url"], one["active"] = a.server, true
	text, err := toml.Marshal(map[string]profile{first(os.Getenv("MODAL_PROFILE"), "elsewhere"): one})
	if err == nil {
		params.Config, err = decoded(text, params.Config)
	}
	if err != nil {
		return failure(driver.KindConfig, "Modal's SDK does not take its settings: %w", err)
	}
	return nil
}

// decoded decodes a text into a new value of a type that need not have a name here.
func decoded[T any](text []byte, _ *T) (*T, error) {
	value := new(T)
	return value, toml.Unmarshal(text, value)
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// inApp gives the app; it is asked for once.
func (a *account) inApp(ctx context.Context) (*sdk.App, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.app != nil {
		return a.app, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	app, err := a.client.Apps.FromName(ctx, a.appName, &sdk.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		return nil, a.explain(ctx, "asking for the app "+a.appName, err)
	}
	a.app = app
	return app, nil
}

func (a *account) close() { a.client.Close() }

// available looks for credentials; nothing is sent.
func available(_ context.Context, req driver.OpenRequest) error {
	a, err := connect(req)
	if err != nil {
		return err
	}
	a.close()
	return nil
}

// quiet is a logger that passes on what the SDK says as details: what matters is said by us.
func quiet(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(details{log.Handler()})
}

type details struct{ slog.Handler }

func (d details) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d details) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d details) WithAttrs(attrs []slog.Attr) slog.Handler {
	return details{d.Handler.WithAttrs(attrs)}
}
func (d details) WithGroup(name string) slog.Handler { return details{d.Handler.WithGroup(name)} }

// host is for people: where commands run.
func (a *account) host() string {
	return "modal (" + strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(a.server, "https://"), "http://"), ":443") + ")"
}

var errAgain = fmt.Errorf("it changes all the time")
