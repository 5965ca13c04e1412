// Package vercel runs commands in a sandbox of Vercel Sandbox.
//
// A sandbox has a name, and runs in sessions: the service stores its files when a session ends and starts the next one on them
// (api.go, lifecycle.go). The commands of the API have no stdin and text for output, so a bash is run over two of its
// interactive terminals (package ptychannel, term.go), and what is asked for beside the calls by commands.
package vercel

import (
	"context"
	"errors"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// Backend returns the backend "vercel".
func Backend() driver.Backend {
	return driver.Backend{
		Name:      "vercel",
		Aliases:   []string{"vercel_sandbox"},
		Summary:   "In a sandbox of the cloud service Vercel: the service is the boundary.",
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

// available asks whether the token is good, without making anything.
func available(ctx context.Context, req driver.OpenRequest) error {
	a, err := connect(req)
	if err != nil {
		return err
	}
	_, err = a.list(ctx, req.Identity, 1)
	return err
}

// codeOf is the API's own word for an error, "" where there is none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*cloudhttp.Error](err); ok {
		return e.Code
	}
	return ""
}

// expired says that the files that a sandbox was to start on are gone for good.
func expired(err error) bool { return codeOf(err) == "snapshot_not_found" }

// explain makes an error that says what was tried and what to do.
func (a *api) explain(what string, err error) error {
	if err == nil || kinderr.Of(err) != "" {
		return err
	}
	switch status := cloudhttp.StatusOf(err); {
	case quota(err):
		return failure(driver.KindUnavailable, "%s: the account's limit is reached: %w", what, err)
	case status == 401, status == 403:
		return failure(driver.KindUnavailable, "%s: the token is not accepted: check VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID, or get a new VERCEL_OIDC_TOKEN (vercel env pull): %w", what, err)
	case status == 404, status == 410:
		return failure(driver.KindLost, "%s: %w", what, err)
	case status == 400 && strings.Contains(strings.ToLower(err.Error()), "project"):
		return failure(driver.KindConfig, "%s: the service refuses it: %w; check VERCEL_PROJECT_ID", what, err)
	case status == 400:
		return failure(driver.KindConfig, "%s: the service refuses it: %w; `elsewhere config show -b vercel` has what it was asked for", what, err)
	case status == 429:
		return failure(driver.KindUnavailable, "%s: the service takes no more requests for now; try again later: %w", what, err)
	case status != 0:
		return failure(driver.KindUnavailable, "%s: the service has failed; try again later: %w", what, err)
	}
	check := "the network"
	if a.Base != service {
		check += " and vercel_api_url (TERMINAL_VERCEL_API_URL)"
	}
	return failure(driver.KindUnavailable, "%s: %s does not answer; check %s: %w", what, a.Base, check, err)
}

// quota tells whether an error is of a limit that the account has reached, by what the service says: a request's path has names in it.
func quota(err error) bool {
	e, ok := errors.AsType[*cloudhttp.Error](err)
	if !ok || e.Status == 429 {
		return false
	}
	text := strings.ToLower(e.Code + " " + e.Message)
	return e.Status == 402 || e.Status >= 400 && (strings.Contains(text, "limit_exceeded") || strings.Contains(text, "quota") || strings.Contains(text, "limit reached"))
}
