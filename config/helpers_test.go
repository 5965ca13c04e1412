package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// world is what a user has: files in HERMES_HOME, variables, and flags.
type world struct {
	yaml, dotenv string
	env          []string
	flags        map[string]string
	built        bool // every backend can be opened
}

// backends are elsewhere's own; with built, each can be opened, as if all were finished.
func backends(built bool) []driver.Backend {
	list := all.Backends()
	for i := range list {
		list[i].Open = nil
		if built {
			list[i].Open = func(context.Context, driver.OpenRequest) (driver.Sandbox, error) { return nil, errors.ErrUnsupported }
		}
	}
	return list
}

// options makes the world's files.
func (w world) options(t *testing.T) config.Options {
	t.Helper()
	user := t.TempDir()
	home := filepath.Join(user, ".hermes")
	for name, text := range map[string]string{"config.yaml": w.yaml, ".env": w.dotenv} {
		if text != "" {
			write(t, filepath.Join(home, name), text)
		}
	}
	return config.Options{Backends: backends(w.built), Flags: w.flags, Environ: append([]string{"HOME=" + user}, w.env...), Dir: user}
}

func (w world) load(t *testing.T) (*config.Config, error) {
	t.Helper()
	return config.Load(w.options(t))
}

func (w world) mustLoad(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := w.load(t)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return cfg
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantError checks that err is a one-line *config.Error whose text has all parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	var own *config.Error
	if !errors.As(err, &own) {
		t.Fatalf("got %v, want a *config.Error", err)
	}
	if own.Kind == "" || own.Hint == "" {
		t.Errorf("%#v lacks a kind or hint", own)
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("%q is not one line", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func wantWarning(t *testing.T, cfg *config.Config, parts ...string) {
	t.Helper()
	for _, w := range cfg.Warnings() {
		found := true
		for _, part := range parts {
			found = found && strings.Contains(w, part)
		}
		if found {
			return
		}
	}
	t.Errorf("no warning of %q says %q", cfg.Warnings(), parts)
}
