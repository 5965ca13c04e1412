// Package daytona runs commands in a sandbox of Daytona, the hosted service or a server of one's own.
//
// The API finds, makes, starts and stops sandboxes (api.go, lifecycle.go); a toolbox in each of them runs what is asked for. Its
// commands have no stdin and its logs are no bytes, so a bash is run over two of its terminals (package ptychannel, term.go).
// A sandbox that persists is stopped on Close and started again by the next opening, with its files; another one is deleted.
package daytona

import (
	"context"
	"errors"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// Backend returns the backend "daytona".
func Backend() driver.Backend {
	return driver.Backend{
		Name:      "daytona",
		Summary:   "In a sandbox of Daytona, hosted or your own: the service is the boundary.",
		Settings:  Settings,
		Open:      open,
		Keeper:    openKeeper,
		Type:      (*sandbox)(nil),
		Available: available,
		Classify:  classify,
	}
}

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	return driver.KindUnavailable
}

// available asks who the key belongs to, without making anything.
func available(ctx context.Context, req driver.OpenRequest) error {
	a, err := connect(req)
	if err != nil {
		return err
	}
	_, err = a.list(ctx, map[string]string{labelAgent: agent, labelIdentity: req.Identity.ID}, 1)
	return err
}

// explain makes an error that says what was tried and what to do.
func (a *api) explain(what string, err error) error {
	if err == nil || kinderr.Of(err) != "" {
		return err
	}
	switch status := cloudhttp.StatusOf(err); {
	case status == 401, status == 403 && !quota(err):
		return failure(driver.KindUnavailable, "%s: the key is not accepted: check daytona_api_key (DAYTONA_API_KEY) and daytona_api_url (%s): %w", what, a.base, err)
	case quota(err):
		return failure(driver.KindUnavailable, "%s: the account's limit is reached: %w", what, err)
	case status == 404:
		return failure(driver.KindLost, "%s: %w", what, err)
	case status == 400, status == 422:
		return failure(driver.KindConfig, "%s: the service refuses it: %w; `elsewhere config show -b daytona` has what it was asked for", what, err)
	case status == 429:
		return failure(driver.KindUnavailable, "%s: the service takes no more requests for now; try again later: %w", what, err)
	case status != 0:
		return failure(driver.KindUnavailable, "%s: the service has failed; try again later: %w", what, err)
	}
	return failure(driver.KindUnavailable, "%s: %s does not answer; check the network and daytona_api_url (DAYTONA_API_URL): %w", what, a.base, err)
}

// quota tells whether an error is of a limit that the account has reached, by what the service says: a request's path has names in it.
func quota(err error) bool {
	e, ok := errors.AsType[*cloudhttp.Error](err)
	if !ok {
		return false
	}
	text := strings.ToLower(e.Code + " " + e.Message)
	return strings.Contains(text, "limit exceeded") || strings.Contains(text, "quota")
}
