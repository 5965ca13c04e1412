//go:build unix

package elsewhere_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// put writes files below the base.
func (w *watched) put(files ...string) {
	w.t.Helper()
	for _, name := range files {
		file := filepath.Join(w.base, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *watched) link(target, name string) {
	w.t.Helper()
	if err := os.Symlink(filepath.Join(w.base, target), filepath.Join(w.base, name)); err != nil {
		w.t.Fatal(err)
	}
}

func excluding(patterns ...string) *elsewhere.TransferOptions {
	return &elsewhere.TransferOptions{Exclude: patterns}
}

func TestATreeIsLookedAtWhereverItGoes(t *testing.T) {
	w := newWatched(t, map[string]string{"policy.blocked_paths": `["~/taxes/old"]`}, nil)
	w.put("own/config.yaml", "own/notes", "unit/systemd/user/x.service", "unit/a", "tax/old/2001", "tax/new", "many/deep/link/config.yaml", "many/deep/a")
	for _, d := range []string{"home/.config", "home/taxes"} {
		if err := os.Mkdir(filepath.Join(w.base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.link("own", "ownlink")
	w.link("hermes", "work/deep") // where many/deep goes
	sb := w.Sandbox
	for _, c := range []struct {
		src, dst, rule string
	}{
		{"own/.", "hermes", "write-own-config"},
		{"own", "hermes/elsewhere", "write-own-config"},
		{"unit/.", "home/.config", "write-startup"},
		{"unit/systemd", "home/.config", "write-startup"},
		{"tax/.", "home/taxes", "blocked-path"},
		{"tax/old", "home/taxes", "blocked-path"},
		{"ownlink/.", "hermes", "write-own-config"},
	} {
		_, err := sb.Upload(t.Context(), w.base+"/"+c.src, w.base+"/"+c.dst, nil)
		wantDenied(t, err, c.rule)
	}
	for _, c := range []struct {
		src, dst, rule string
	}{
		{"own", "hermes", "write-own-config"},
		{"ownlink", "hermes", "write-own-config"},
		{"unit", "home/.config", "write-startup"},
		{"tax", "home/taxes", "blocked-path"},
	} {
		_, err := sb.Sync(t.Context(), elsewhere.SyncOptions{Local: w.base + "/" + c.src, Remote: w.base + "/" + c.dst})
		wantDenied(t, err, c.rule)
	}
	// A directory of the destination that is a link is what it leads to.
	w.put("many/deep/elsewhere/policy.json")
	_, err := sb.Upload(t.Context(), w.base+"/many/.", w.base+"/work", nil)
	wantDenied(t, err, "write-own-config")
	// The name of .. is that of the directory.
	t.Chdir(filepath.Join(w.base, "unit/systemd/user"))
	_, err = sb.Upload(t.Context(), "..", w.base+"/home/.config", nil)
	wantDenied(t, err, "write-startup")
	if w.there("hermes/config.yaml") || w.there("hermes/elsewhere/policy.json") || w.there("home/.config/systemd") || w.there("home/taxes/old") {
		t.Error("something was written")
	}
	if w.questions(); t.Failed() {
		return
	}

	// What is left out is not looked at, and what is nowhere protected asks nobody.
	for _, copied := range []func() error{
		func() error {
			_, err := sb.Upload(t.Context(), w.base+"/own/.", w.base+"/hermes", excluding("config.yaml"))
			return err
		},
		func() error { _, err := sb.Upload(t.Context(), w.base+"/own", w.base+"/work", nil); return err },
		func() error {
			_, err := sb.Sync(t.Context(), elsewhere.SyncOptions{Local: w.base + "/unit", Remote: w.base + "/home/.config", Exclude: []string{"systemd/"}})
			return err
		},
	} {
		if err := copied(); err != nil {
			t.Error(err)
		}
	}
	if q := w.questions(); len(q) > 0 || w.there("hermes/config.yaml") || !w.there("hermes/notes") || !w.there("work/own/config.yaml") || !w.there("home/.config/a") {
		t.Errorf("asked %+v", q)
	}
}

func TestASyncThatDeletesIsLookedAtForWhatItDeletes(t *testing.T) {
	for name, here := range map[string]bool{"here": true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, nil, func(info *driver.Info) { info.Exposure.Here = here })
			w.put("src/a", "home/.ssh/id_x", "home/.netrc", "home/b")
			sync := elsewhere.SyncOptions{Local: w.base + "/src", Remote: w.base + "/home", Delete: true, Force: true}
			_, err := w.Sync(t.Context(), sync)
			wantDenied(t, err, "write-credentials")
			sync.Exclude = []string{".ssh"}
			_, err = w.Sync(t.Context(), sync)
			wantDenied(t, err, "write-credentials")
			if !w.there("home/b") || w.there("home/a") {
				t.Error("it was synchronised")
			}
			sync.Exclude = []string{".ssh", ".netrc"}
			if _, err = w.Sync(t.Context(), sync); err != nil || len(w.questions()) > 0 || w.there("home/b") || !w.there("home/a") || !w.there("home/.netrc") {
				t.Errorf("what is left out is looked at: %v", err)
			}
			// With force a directory gives way to a file.
			w.put("other/.ssh-old", "other/.config", "home/.config/gh/hosts.yml")
			_, err = w.Sync(t.Context(), elsewhere.SyncOptions{Local: w.base + "/other", Remote: w.base + "/home", Force: true})
			wantDenied(t, err, "write-credentials")
			if !w.there("home/.config/gh/hosts.yml") {
				t.Error("it gave way")
			}
		})
	}
}

func TestATreeIsReadOnlyAsFarAsAllOfItMayBe(t *testing.T) {
	for name, here := range map[string]bool{"here": true, "elsewhere": false} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, nil, func(info *driver.Info) { info.Exposure.Here = here })
			w.put("home/.ssh/id_x", "home/notes", "work/a/b", "work/.env")
			rule := "read-credentials"
			if !here { // HERMES_HOME is below the home there
				w.put("home/.hermes/.env")
				rule = "read-own-secrets"
			} else {
				w.put("hermes/.env")
				_, err := w.Download(t.Context(), w.base+"/hermes", w.base+"/stolen", nil)
				wantDenied(t, err, "read-own-secrets")
				w.link("home", "work/homelink")
				_, err = w.Download(t.Context(), "../work/homelink/.", w.base+"/stolen", nil)
				wantDenied(t, err, rule)
			}
			for _, dir := range []string{"~", w.base + "/home/.", w.base} {
				_, err := w.Download(t.Context(), dir, w.base+"/stolen", excluding("hermes"))
				wantDenied(t, err, rule)
			}
			_, err := w.Sync(t.Context(), elsewhere.SyncOptions{Local: w.base + "/stolen", Remote: "~", FromSandbox: true})
			wantDenied(t, err, rule)
			if w.there("stolen") {
				t.Fatal("it was read")
			}
			w.questions()
			if _, err := w.Download(t.Context(), w.base+"/work", w.base+"/copy", nil); err != nil {
				t.Error(err)
			}
			if _, err := w.Download(t.Context(), "~", w.base+"/notes", excluding(".ssh", ".hermes")); err != nil {
				t.Error(err)
			}
			if q := w.questions(); len(q) > 0 || !w.there("copy/a/b") || !w.there("notes/notes") || w.there("notes/.ssh") {
				t.Errorf("asked %+v", q)
			}
		})
	}
}

func TestOneQuestionCoversATransfer(t *testing.T) {
	w := newWatched(t, nil, nil)
	w.put("dots/.bashrc", "dots/.profile", "dots/other")
	s := openSession(t, w.Sandbox, "")
	w.answers(elsewhere.ApproveOnce)
	for _, c := range []struct {
		src, dst string
		want     []string
	}{
		{"dots/.bashrc", "~/.bashrc", []string{".bashrc"}},
		{"dots/.bashrc", "~", []string{".bashrc"}},
		{"dots/.", "~", []string{".bashrc", ".profile"}},
	} {
		for _, dot := range c.want {
			_ = os.Remove(filepath.Join(w.base, "home", dot))
		}
		if _, err := s.Upload(t.Context(), w.base+"/"+c.src, c.dst, nil); err != nil {
			t.Errorf("%s: %v", c.src, err)
		}
		q := w.questions()
		if len(q) != 1 {
			t.Fatalf("%s: asked %+v", c.src, q)
		}
		var found []string
		for _, f := range q[0].Findings {
			found = append(found, f.Where)
		}
		var want []string
		for _, dot := range c.want {
			want = append(want, "write "+w.base+"/home/"+dot)
			if !w.there("home/" + dot) {
				t.Errorf("%s: %s is not there", c.src, dot)
			}
		}
		if !slices.Equal(found, want) || !q[0].Lasts {
			t.Errorf("%s: asked about %q, want %q", c.src, found, want)
		}
	}
	w.answers(elsewhere.ApproveSession)
	for n := range 2 {
		if _, err := s.Upload(t.Context(), w.base+"/dots/.", "~", nil); err != nil {
			t.Error(err)
		}
		if q := w.questions(); len(q) != 1-n {
			t.Errorf("asked %+v", q)
		}
	}
	if _, err := s.Upload(t.Context(), w.base+"/dots/.bashrc", "~", nil); err != nil || len(w.questions()) > 0 {
		t.Errorf("what is part of it: %v", err)
	}
}
