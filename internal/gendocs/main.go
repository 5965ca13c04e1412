// Command gendocs writes the reference pages that come from tables: docs/settings.md,
// docs/policy.md and docs/survival.md. A test fails while they are stale.
//
//	go run ./internal/gendocs
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run .

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	page, err := settingsPage()
	if err != nil {
		return err
	}
	docs := filepath.Join(root, "docs")
	if err := os.MkdirAll(docs, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "settings.md"), []byte(page), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "policy.md"), []byte(policyPage()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "survival.md"), []byte(survivalPage()), 0o644)
}

// moduleRoot is the nearest directory above that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above the current directory")
		}
		dir = up
	}
}
