package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPathsBelowAreThoseThatARuleKeeps(t *testing.T) {
	ctx := testContext()
	for _, c := range []struct {
		dir   string
		write bool
		has   string // "" is none at all
		not   string
	}{
		{"/home/ann/project", true, "", ""},
		{"/home/ann/project", false, "", ""},
		{"/home/ann", false, "/home/ann/.ssh", "/home/ann/.bashrc"},
		{"/home/ann", true, "/home/ann/.bashrc", "/home/ann/.ssh/known_hosts*"},
		{"/home/ann", false, "/home/ann/.hermes/auth.json", ""},
		{"/home/ann/.hermes", true, "/home/ann/.hermes/elsewhere/output", ""},
		{"/home/ann/.hermes", false, "/home/ann/.hermes/.env*", "/home/ann/.hermes/elsewhere/output"},
		{"/home/ann/.hermes/profiles/x", false, "/home/ann/.hermes/profiles/x/.env*", ""},
		{"/home/ann/.config", true, "/home/ann/.config/systemd/user", "/home/ann/.config/systemd"},
		{"/home/ann/.config/systemd/user", true, "", ""},
		{"/home/bob", false, "/home/bob/.ssh", ""},
		{"/home", false, "/home/*/.ssh", ""},
		{"/", true, "/etc", ""},
		{"/", false, "/data/private", ""},
		{"/data", false, "/data/private", ""},
		{"/data/private", false, "", ""},
		{"/usr", true, "", ""},
		{"/usr/local/bin", true, "", ""},
		{"/etc", false, "/etc/shadow*", "/etc/passwd*"},
	} {
		got := PathsBelow(c.dir, c.write, ctx)
		if c.has == "" && len(got) > 0 || c.has != "" && !slices.Contains(got, c.has) || slices.Contains(got, c.not) {
			t.Errorf("%s, writing %v: %q", c.dir, c.write, got)
		}
		for _, p := range got {
			if d := CheckPath(p, c.write, ctx); d.Action == Allow {
				t.Errorf("%s, writing %v: %s is free", c.dir, c.write, p)
			}
		}
	}
	ctx.User = []UserRule{{Rule: "write-startup", Action: Allow}}
	if got := PathsBelow("/home/ann/.config/systemd", true, ctx); len(got) > 0 {
		t.Errorf("a rule that is allowed keeps %q", got)
	}
}

func TestAllPathsAreOneDecision(t *testing.T) {
	ctx := testContext()
	d := CheckPaths([]string{"/home/ann/x", "/home/ann/.profile", "/home/ann/.bashrc", "~/.bashrc"}, false, true, ctx)
	if d.Action != Ask || len(d.Findings) != 2 || d.Findings[0].Command != "write /home/ann/.bashrc" || d.Findings[1].Command != "write /home/ann/.profile" {
		t.Errorf("got %+v", d)
	}
	store := NewStore("")
	ctx.Answers = store
	if err := store.Remember(d, Session); err != nil {
		t.Fatal(err)
	}
	if d := CheckPaths([]string{"/home/ann/.profile", "/home/ann/.bashrc"}, false, true, ctx); d.Action != Allow {
		t.Errorf("what was agreed to: %+v", d)
	}
	if d := CheckPaths([]string{"/home/ann/.profile", "/home/ann/.zshrc", "/home/ann/.ssh/id_x"}, false, true, ctx); d.Action != Block || d.Rule != "write-credentials" || len(d.Findings) != 2 {
		t.Errorf("got %+v", d)
	}
	if d := CheckPaths([]string{"/home/ann/.config/fish", "/home/ann/.config/fish/a"}, false, true, ctx); len(d.Findings) != 2 {
		t.Errorf("an answer for a directory is one for what is in it: %+v", d)
	}
	if d := CheckPaths([]string{"/home/ann/x"}, true, true, ctx); d.Action != Ask || d.Rule != "too-complex" || d.Findings[0].Fixed {
		t.Errorf("of too many: %+v", d)
	}
	ctx.User = []UserRule{{Rule: "too-complex", Action: Allow}}
	if d := CheckPaths([]string{"/home/ann/x"}, true, true, ctx); d.Action != Allow {
		t.Errorf("of too many, which is allowed: %+v", d)
	}
}

func TestOfManyFindingsNoneIsLost(t *testing.T) {
	ctx := testContext()
	var homes []string
	for i := range maxFindings + 8 {
		homes = append(homes, fmt.Sprintf("/home/u%02d/.bashrc", i))
	}
	d := CheckPaths(homes[:maxFindings-1], false, true, ctx)
	if d.Action != Ask || len(d.Findings) != maxFindings-1 || d.Rule != "write-startup" {
		t.Errorf("%d findings, the first by %s", len(d.Findings), d.Rule)
	}
	d = CheckPaths(homes, false, true, ctx)
	if len(d.Findings) != maxFindings || !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Rule == "too-complex" }) {
		t.Errorf("%d findings, and none says that there are more", len(d.Findings))
	}
	d = CheckPaths(append(homes, "/home/z/.ssh/id_x"), false, true, ctx)
	if d.Action != Block || d.Rule != "write-credentials" {
		t.Errorf("the one that blocks is lost: %s", d)
	}

	var pushes strings.Builder
	for i := range maxFindings - 1 {
		fmt.Fprintf(&pushes, "git push -f origin b%d; ", i)
	}
	d = check(t, pushes.String(), ctx, Ask)
	if len(d.Findings) != maxFindings-1 || d.Rule != "force-push" {
		t.Errorf("%d findings, the first by %s", len(d.Findings), d.Rule)
	}
	d = check(t, pushes.String()+"git push -f origin more", ctx, Ask)
	if !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Rule == "too-complex" }) {
		t.Errorf("%d findings, and none says that there are more", len(d.Findings))
	}
	if d = check(t, pushes.String()+"git push -f origin more; rm -rf /", ctx, Block); d.Rule != "delete-system" {
		t.Errorf("blocked by %s", d.Rule)
	}
}
