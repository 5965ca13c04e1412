package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSettingsPageIsWhatTheTableSays(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	want, err := settingsPage()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "settings.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/settings.md is stale; run: go run ./internal/gendocs")
	}
}

func TestThePolicyPageIsWhatTheTablesSay(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != policyPage() {
		t.Error("docs/policy.md is stale; run: go run ./internal/gendocs")
	}
}

func TestTheSurvivalPageIsWhatTheTablesSay(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "survival.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != survivalPage() {
		t.Error("docs/survival.md is stale; run: go run ./internal/gendocs")
	}
}
