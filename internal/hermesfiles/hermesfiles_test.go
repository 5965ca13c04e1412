package hermesfiles

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Skip("this machine makes no symbolic links:", err)
	}
}

// home is a HERMES_HOME without links on the way to it.
func home(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOnlySkillsAndCachesThatExistAreMounted(t *testing.T) {
	home := home(t)
	put(t, filepath.Join(home, "skills", "a", "SKILL.md"), "x")
	put(t, filepath.Join(home, "cache", "documents", "d"), "x")
	put(t, filepath.Join(home, "document_cache", "old"), "x")
	put(t, filepath.Join(home, "image_cache", "old"), "x")
	put(t, filepath.Join(home, "attachments"), "a file")
	put(t, filepath.Join(home, ".env"), "x")
	mounts, notices := Mounts(home)
	want := []Mount{
		{filepath.Join(home, "skills"), "skills", true, Skills},
		{filepath.Join(home, "cache", "documents"), "cache/documents", true, Cache},
		{filepath.Join(home, "image_cache"), "cache/images", true, Cache},
	}
	if !slices.Equal(mounts, want) {
		t.Errorf("%+v", mounts)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "attachments") || !strings.Contains(notices[0], "not a directory") {
		t.Errorf("%q", notices)
	}
	if mounts, notices := Mounts(""); mounts != nil || notices != nil {
		t.Errorf("without a home: %v %q", mounts, notices)
	}
}

func TestADirectoryThatHoldsTheHomeIsNotMounted(t *testing.T) {
	home := filepath.Join(home(t), ".hermes")
	put(t, filepath.Join(home, ".env"), "x")
	link(t, "..", filepath.Join(home, "skills"))
	link(t, ".", filepath.Join(home, "images"))
	if mounts, notices := Mounts(home); len(mounts) != 0 || len(notices) != 2 {
		t.Errorf("%+v %q", mounts, notices)
	}
	mine := t.TempDir()
	if err := os.Remove(filepath.Join(home, "skills")); err != nil {
		t.Fatal(err)
	}
	link(t, mine, filepath.Join(home, "skills"))
	resolved, _ := filepath.EvalSymlinks(mine)
	if mounts, _ := Mounts(home); len(mounts) != 1 || mounts[0].Source != resolved {
		t.Errorf("skills kept elsewhere: %+v", mounts)
	}
}

func TestNamesOfCredentialFiles(t *testing.T) {
	for name, want := range map[string]string{
		"token.json": "token.json", " a/b.json ": "a/b.json", "a/../b": "b", "./x": "x", `a\b`: "a/b", ".envrc": ".envrc", "elsewhere.json": "elsewhere.json",
	} {
		if got, err := Clean(name); got != want || err != nil {
			t.Errorf("%q: %q %v", name, got, err)
		}
	}
	for _, name := range []string{
		"", " ", "/etc/passwd", "~/x", "C:/x", `C:\x`, "..", "../x", "a/../../x", ".", "a\x00b",
		".env", ".ENV", "a/../.env", "auth.json", "Auth.JSON", "config.yaml", "mcp-tokens/x", "MCP-Tokens/x", "elsewhere/identity", "proxy/ca.key", ".env.", "proxy ",
	} {
		if got, err := Clean(name); err == nil {
			t.Errorf("%q is accepted, as %q", name, got)
		}
	}
}

func TestALinkIsFollowedOnlyInsideTheHome(t *testing.T) {
	home := home(t)
	outside := filepath.Join(t.TempDir(), "secret")
	put(t, outside, "x")
	put(t, filepath.Join(home, ".env"), "x")
	put(t, filepath.Join(home, "mcp-tokens", "x"), "x")
	put(t, filepath.Join(home, "real.json"), "x")
	link(t, outside, filepath.Join(home, "out.json"))
	link(t, ".env", filepath.Join(home, "env.json"))
	link(t, "mcp-tokens", filepath.Join(home, "tokens"))
	link(t, "real.json", filepath.Join(home, "good.json"))
	for _, name := range []string{"out.json", "env.json", "tokens/x"} {
		if got, err := Resolve(home, name); err == nil {
			t.Errorf("%s leads to %s", name, got)
		}
	}
	if got, err := Resolve(home, "good.json"); got != filepath.Join(home, "real.json") || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func staged(t *testing.T, s *Staging) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.WalkDir(s.Dir(), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(s.Dir(), name)
		got[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func refresh(t *testing.T, s *Staging, want map[string]string, notices ...string) {
	t.Helper()
	got, err := s.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range notices {
		if i >= len(got) || !strings.Contains(got[i], text) {
			t.Errorf("notices %q, want %q", got, notices)
		}
	}
	if len(got) != len(notices) {
		t.Errorf("notices %q, want %q", got, notices)
	}
	if have := staged(t, s); len(have) != len(want) {
		t.Errorf("staged %q, want %q", have, want)
	} else {
		for name, text := range want {
			if have[name] != text {
				t.Errorf("staged %q, want %q", have, want)
			}
		}
	}
}

func TestStagedFilesFollowTheirSources(t *testing.T) {
	home := home(t)
	one, two := filepath.Join(home, "one.json"), filepath.Join(home, "deep", "two.json")
	put(t, one, "1")
	s, notices := NewStaging(home, "box", []string{"one.json", "deep/two.json", "one.json", "../x", ".env"}, []string{"skills"})
	if len(notices) != 2 || !slices.Equal(s.Files(), []string{"deep/two.json", "one.json"}) {
		t.Fatalf("%q %q", s.Files(), notices)
	}
	refresh(t, s, map[string]string{"one.json": "1"}, "deep/two.json")
	refresh(t, s, map[string]string{"one.json": "1"}) // said once
	put(t, two, "2")
	refresh(t, s, map[string]string{"one.json": "1", "deep/two.json": "2"})
	before, err := os.Stat(one)
	if err != nil {
		t.Fatal(err)
	}
	put(t, one, "3") // same size; its time is set back, its inode is the same
	if err := os.Chtimes(one, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	refresh(t, s, map[string]string{"one.json": "3", "deep/two.json": "2"})
	put(t, one+".new", "4")
	if err := os.Rename(one+".new", one); err != nil {
		t.Fatal(err)
	}
	refresh(t, s, map[string]string{"one.json": "4", "deep/two.json": "2"})
	if err := os.Remove(one); err != nil {
		t.Fatal(err)
	}
	refresh(t, s, map[string]string{"deep/two.json": "2"}, "one.json")
	put(t, one, "5")
	refresh(t, s, map[string]string{"one.json": "5", "deep/two.json": "2"})

	// Another process with other settings.
	other, _ := NewStaging(home, "box", []string{"one.json"}, nil)
	refresh(t, other, map[string]string{"one.json": "5"})

	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(home, "elsewhere", "staging", "box")); !os.IsNotExist(err) {
		t.Errorf("after Remove: %v", err)
	}
	refresh(t, s, map[string]string{"one.json": "5", "deep/two.json": "2"})
}

func TestAFileThatIsRetargetedToASecretIsTakenAway(t *testing.T) {
	home := home(t)
	put(t, filepath.Join(home, "good"), "fine")
	put(t, filepath.Join(home, ".env"), "SECRET=1")
	name := filepath.Join(home, "cred")
	link(t, "good", name)
	s, _ := NewStaging(home, "box", []string{"cred"}, nil)
	refresh(t, s, map[string]string{"cred": "fine"})
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	link(t, ".env", name)
	refresh(t, s, nil, "never handed")
}

func TestWhatIsNoFileIsToldAndStopsNoOther(t *testing.T) {
	home := home(t)
	put(t, filepath.Join(home, "dir", "x"), "")
	put(t, filepath.Join(home, "good"), "fine")
	put(t, filepath.Join(home, "huge"), "")
	if err := os.Truncate(filepath.Join(home, "huge"), maxCredential+1); err != nil {
		t.Fatal(err)
	}
	s, _ := NewStaging(home, "box", []string{"dir", "good", "huge"}, nil)
	refresh(t, s, map[string]string{"good": "fine"}, "regular", "MiB")
}

func TestOthersOnTheMachineCannotReadWhatIsStaged(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permission bits say nothing here")
	}
	home := home(t)
	put(t, filepath.Join(home, "deep", "cred"), "x")
	s, _ := NewStaging(home, "box", []string{"deep/cred"}, []string{"cache/documents"})
	refresh(t, s, map[string]string{"deep/cred": "x"})
	for name, want := range map[string]fs.FileMode{
		filepath.Dir(s.Dir()): 0o700, s.Dir(): 0o755, filepath.Join(s.Dir(), "deep"): 0o755, filepath.Join(s.Dir(), "deep", "cred"): 0o644,
		filepath.Join(s.Dir(), "cache"): 0o755, filepath.Join(s.Dir(), "cache", "documents"): 0o755,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info, err, want)
		}
	}
}

func TestAnUnchangedFileIsNotReadAgain(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files are read each time here")
	}
	home := home(t)
	name := filepath.Join(home, "cred")
	put(t, name, "x")
	s, _ := NewStaging(home, "box", []string{"cred"}, nil)
	refresh(t, s, map[string]string{"cred": "x"})
	// As if it had been looked at long after its last change.
	last := s.seen["cred"]
	if unchanged(last, last.info) {
		t.Error("a file that was just written is trusted")
	}
	last.at = last.at.Add(time.Hour)
	s.seen["cred"] = last
	if !unchanged(last, last.info) {
		t.Error("a file that was left alone is not trusted")
	}
	put(t, filepath.Join(s.Dir(), "cred"), "y")
	refresh(t, s, map[string]string{"cred": "y"}) // had it been read, it would have been copied
	if err := os.Remove(filepath.Join(s.Dir(), "cred")); err != nil {
		t.Fatal(err)
	}
	refresh(t, s, map[string]string{"cred": "x"})
}
