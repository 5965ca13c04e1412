package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
)

func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"terminal:\n  backend: local\n", "terminal: {backends: {a: {backend: ssh}}}", "terminal: &a\n  <<: *a\n", "- a", "a: &x [*x]", "\ufeff\r\n",
		"terminal:\n  cwd: |\n    a\n", "x: &x {cwd: 1}\nterminal:\n  <<: [*x, *x]\n", "terminal:\n\tx: y", "terminal: {cwd: 'a' , audit: !!str on}", "---\n...\n",
	} {
		f.Add(seed)
	}
	dir := f.TempDir()
	file := filepath.Join(dir, "config.yaml")
	o := config.Options{Backends: backends(true), Environ: []string{"HERMES_HOME=" + dir}, Dir: dir}
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var own *config.Error
		cfg, err := config.Load(o)
		if err != nil {
			if !errors.As(err, &own) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("not one line of ours: %q", err)
			}
		} else {
			cfg.Warnings()
			cfg.All()
		}
		if _, setErr := config.Set(o, "cwd", "/written"); setErr != nil {
			if !errors.As(setErr, &own) {
				t.Fatalf("not ours: %v", setErr)
			}
			return
		}
		after, afterErr := config.Load(o)
		if err == nil && (afterErr != nil || after.String("cwd") != "/written") {
			t.Fatalf("after Set: %v", afterErr)
		}
	})
}
