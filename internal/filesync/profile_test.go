//go:build unix

package filesync

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// homes is a Hermes home here and a home on the far side.
type homes struct {
	t           *testing.T
	hermes, far string
	remote      *bashHere
	mappings    []Mapping
	clock       time.Time
	id          string
}

func newHomes(t *testing.T) *homes {
	h := &homes{t: t, hermes: t.TempDir(), far: t.TempDir(), remote: &bashHere{}, clock: time.Now(), id: "me"}
	h.mappings = []Mapping{
		{filepath.Join(h.hermes, "skills"), ".hermes/skills", Skill},
		{filepath.Join(h.hermes, "cache/images"), ".hermes/cache/images", Cache},
		{filepath.Join(h.hermes, "token.json"), ".hermes/credentials/token.json", Credential},
		{filepath.Join(h.hermes, "not there"), ".hermes/cache/not there", Cache},
	}
	h.write("skills/a/SKILL.md", "skill a")
	h.write("skills/b/run.sh", "#!/bin/sh\n")
	h.write("cache/images/1.png", "image 1")
	h.write("token.json", "secret")
	must(t, os.Chmod(h.here("token.json"), 0o600))
	must(t, os.Chmod(h.here("skills/b/run.sh"), 0o755))
	return h
}

func (h *homes) here(name string) string       { return filepath.Join(h.hermes, name) }
func (h *homes) there(name string) string      { return filepath.Join(h.far, ".hermes", name) }
func (h *homes) write(name, content string)    { write(h.t, h.here(name), content) }
func (h *homes) writeFar(name, content string) { write(h.t, h.there(name), content) }
func (h *homes) later()                        { h.clock = h.clock.Add(time.Minute) }

// process is a new process: nothing is in memory.
func (h *homes) process(change ...func(*ProfileOptions)) *Profile {
	o := ProfileOptions{
		Remote: h.remote, Home: h.far, FarState: filepath.Join(h.far, ".hermes/elsewhere/state of "+h.id), HermesHome: h.hermes, Place: "test", ID: h.id,
		SyncBack: "cache", MaxBytes: 1 << 30,
	}
	for _, f := range change {
		f(&o)
	}
	p := NewProfile(o)
	p.now = func() time.Time { return h.clock }
	return p
}

func (h *homes) push(p *Profile) (notices []string) {
	h.t.Helper()
	h.later()
	notices, err := p.Push(h.t.Context(), h.mappings)
	if err != nil {
		h.t.Fatal(err)
	}
	return notices
}

// same fails where a far file differs from the one here.
func (h *homes) same(here, there string) {
	h.t.Helper()
	a, err := os.ReadFile(h.here(here))
	if err != nil {
		h.t.Fatal(err)
	}
	if b, err := os.ReadFile(h.there(there)); err != nil || string(a) != string(b) {
		h.t.Errorf("%s is %q there (%v), and %q here", there, b, err, a)
	}
}

func (h *homes) farIs(there, want string) {
	h.t.Helper()
	if b, err := os.ReadFile(h.there(there)); err != nil || string(b) != want {
		h.t.Errorf("%s is %q there (%v), want %q", there, b, err, want)
	}
}

func (h *homes) hereIs(name, want string) {
	h.t.Helper()
	b, err := os.ReadFile(h.here(name))
	if want == "" && errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil || string(b) != want {
		h.t.Errorf("%s is %q here (%v), want %q", name, b, err, want)
	}
}

func TestPushSendsChangeAlone(t *testing.T) {
	h := newHomes(t)
	p := h.process()
	if n := h.push(p); len(n) > 0 {
		t.Errorf("notices: %q", n)
	}
	h.same("skills/a/SKILL.md", "skills/a/SKILL.md")
	h.same("cache/images/1.png", "cache/images/1.png")
	h.same("token.json", "credentials/token.json")
	if info, err := os.Stat(h.there("credentials/token.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if info, err := os.Stat(h.there("skills/b/run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Error(info.Mode(), err)
	}
	calls := h.remote.count()
	h.push(p)
	if n := h.remote.count() - calls; n != 0 {
		t.Errorf("nothing changed, but %d bashes", n)
	}
	// Another process: one look at the far side.
	calls = h.remote.count()
	h.push(h.process())
	if n := h.remote.count() - calls; n != 1 {
		t.Errorf("a cold start took %d bashes", n)
	}
	// The same size and mtime, another content.
	info, _ := os.Stat(h.here("skills/a/SKILL.md"))
	h.write("skills/a/SKILL.md", "SKILL A")
	must(t, os.Chtimes(h.here("skills/a/SKILL.md"), info.ModTime(), info.ModTime()))
	must(t, os.Remove(h.here("skills/b/run.sh")))
	p = h.process()
	h.push(p)
	h.farIs("skills/a/SKILL.md", "SKILL A")
	if _, err := os.Stat(h.there("skills/b/run.sh")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a removed file is still there", err)
	}
	// Permissions alone.
	must(t, os.Chmod(h.here("skills/a/SKILL.md"), 0o700))
	h.push(p)
	if info, err := os.Stat(h.there("skills/a/SKILL.md")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
}

func TestPushIsThrottled(t *testing.T) {
	h := newHomes(t)
	p := h.process()
	h.push(p)
	h.write("skills/a/SKILL.md", "changed")
	h.clock = h.clock.Add(4 * time.Second)
	if _, err := p.Push(t.Context(), h.mappings); err != nil {
		t.Fatal(err)
	}
	h.farIs("skills/a/SKILL.md", "skill a")
	p.o.Force = true
	if _, err := p.Push(t.Context(), h.mappings); err != nil {
		t.Fatal(err)
	}
	h.farIs("skills/a/SKILL.md", "changed")
}

// N03
func TestAFailedPushIsTriedAgainAtOnce(t *testing.T) {
	h := newHomes(t)
	p := h.process()
	h.remote.cut = 15 << 10 // in the middle of the archive
	if _, err := p.Push(t.Context(), h.mappings); err == nil {
		t.Fatal("it did not fail")
	}
	if _, err := os.Stat(h.there("skills/a/SKILL.md")); err == nil {
		t.Fatal("half of it is there")
	}
	h.remote.cut = 0
	if _, err := p.Push(t.Context(), h.mappings); err != nil {
		t.Fatal(err)
	}
	h.same("skills/a/SKILL.md", "skills/a/SKILL.md")
}

// N02
func TestABadFileDoesNotStopTheRest(t *testing.T) {
	h := newHomes(t)
	l, err := net.Listen("unix", h.here("skills/a/sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	must(t, syscall.Mkfifo(h.here("skills/a/fifo"), 0o600))
	h.writeFar("skills/b", "a file in place of a directory")
	p := h.process()
	notices := h.push(p)
	h.same("skills/a/SKILL.md", "skills/a/SKILL.md")
	h.farIs("skills/b", "a file in place of a directory")
	if len(notices) != 1 || !strings.Contains(notices[0], "skills/b") {
		t.Errorf("notices: %q", notices)
	}
	if again := h.push(p); len(again) > 0 {
		t.Errorf("said again: %q", again)
	}
	calls := h.remote.count()
	h.push(p)
	if n := h.remote.count() - calls; n != 0 {
		t.Errorf("a file in the way costs %d bashes each time", n)
	}
	must(t, os.Remove(h.there("skills/b")))
	h.push(h.process())
	h.same("skills/b/run.sh", "skills/b/run.sh")
}

func TestPushNeverTouchesWhatIsNotOurs(t *testing.T) {
	h := newHomes(t)
	h.writeFar("skills/a/SKILL.md", "a skill of the far Hermes")
	h.writeFar("skills/mine/SKILL.md", "another")
	h.writeFar("cache/images/1.png", "image 1") // the same by chance
	p := h.process()
	notices := h.push(p)
	h.farIs("skills/a/SKILL.md", "a skill of the far Hermes")
	if len(notices) != 1 || !strings.Contains(notices[0], "skills/a/SKILL.md") {
		t.Errorf("notices: %q", notices)
	}
	// Neither what others changed after we sent it, warm and cold.
	h.writeFar("skills/b/run.sh", "edited there")
	h.write("skills/b/run.sh", "edited here")
	h.push(p)
	h.farIs("skills/b/run.sh", "edited there")
	h.write("skills/b/run.sh", "edited here again")
	h.push(h.process())
	h.farIs("skills/b/run.sh", "edited there")
	// Nor is it removed.
	must(t, os.RemoveAll(h.here("skills")))
	must(t, os.RemoveAll(h.here("cache/images")))
	h.push(h.process())
	h.farIs("skills/b/run.sh", "edited there")
	h.farIs("skills/mine/SKILL.md", "another")
	h.farIs("cache/images/1.png", "image 1")
}

func TestTwoControllers(t *testing.T) {
	a := newHomes(t)
	b := newHomes(t)
	b.far, b.id = a.far, "other"
	a.write("skills/of a/x", "a")
	b.write("skills/of b/x", "b")
	a.write("skills/both/x", "of a")
	b.write("skills/both/x", "of b")
	for range 2 {
		a.push(a.process())
		b.push(b.process())
	}
	a.farIs("skills/of a/x", "a")
	a.farIs("skills/of b/x", "b")
	a.farIs("skills/both/x", "of a")
	must(t, os.RemoveAll(b.here("skills")))
	b.push(b.process())
	a.farIs("skills/of a/x", "a")
	a.farIs("skills/both/x", "of a")
	if _, err := os.Stat(a.there("skills/of b/x")); err == nil {
		t.Error("b's own file is still there")
	}
}

func TestAHomeThatIsThereAndHereIsLeftAlone(t *testing.T) {
	h := newHomes(t)
	must(t, os.Symlink(h.hermes, filepath.Join(h.far, ".hermes")))
	before := tree(t, h.here("skills"))
	p := h.process()
	h.push(p)
	h.write("skills/a/SKILL.md", "changed")
	calls := h.remote.count()
	h.push(p)
	if n := h.remote.count() - calls; n != 0 {
		t.Errorf("%d bashes", n)
	}
	must(t, os.WriteFile(h.here("skills/a/SKILL.md"), []byte("skill a"), 0o644))
	if diff := cmp.Diff(before, tree(t, h.here("skills"))); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(h.here("credentials")); err == nil {
		t.Error("something was copied")
	}
	if done, err := p.Pull(t.Context()); err != nil || len(done.Changed) > 0 {
		t.Error(done, err)
	}
}

func TestPullBringsBackCaches(t *testing.T) {
	for _, mode := range []string{"cache", "all", "off"} {
		t.Run(mode, func(t *testing.T) {
			h := newHomes(t)
			h.write("cache/images/conflict", "sent")
			h.write("cache/images/deleted", "sent")
			h.mappings = append(h.mappings, Mapping{h.here("inner.json"), ".hermes/cache/images/inner.json", Credential})
			h.write("inner.json", "secret")
			p := h.process(func(o *ProfileOptions) { o.SyncBack = mode; o.MaxBytes = 1 << 20 })
			h.push(p)
			h.writeFar("cache/images/1.png", "edited there")
			h.writeFar("cache/images/new/2.png", "made there")
			must(t, os.Chmod(h.there("cache/images/new/2.png"), 0o777))
			h.writeFar("cache/images/conflict", "edited there")
			h.write("cache/images/conflict", "edited here")
			h.writeFar("cache/images/deleted", "edited there")
			must(t, os.Remove(h.here("cache/images/deleted")))
			h.writeFar("cache/images/too big", strings.Repeat("x", 2<<20))
			h.writeFar("cache/images/inner.json", "bad")
			h.writeFar("credentials/token.json", "bad")
			h.writeFar("credentials/other.json", "bad")
			h.writeFar("skills/a/SKILL.md", "edited there")
			must(t, os.Symlink("/etc/passwd", h.there("cache/images/link")))
			must(t, os.Symlink("/etc", h.there("cache/images/etc")))
			must(t, syscall.Mkfifo(h.there("cache/images/fifo"), 0o600))
			done, err := p.Pull(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"cache/images/1.png": "image 1", "cache/images/new/2.png": "", "skills/a/SKILL.md": "skill a"}
			if mode != "off" {
				want["cache/images/1.png"], want["cache/images/new/2.png"] = "edited there", "made there"
			}
			if mode == "all" {
				want["skills/a/SKILL.md"] = "edited there"
			}
			for name, content := range want {
				h.hereIs(name, content)
			}
			h.hereIs("cache/images/conflict", "edited here")
			for _, name := range []string{"cache/images/deleted", "cache/images/too big", "cache/images/link", "cache/images/etc", "cache/images/fifo", "other.json"} {
				h.hereIs(name, "")
			}
			h.hereIs("token.json", "secret")
			h.hereIs("inner.json", "secret")
			if _, err := os.Lstat(h.here("cache/images/inner.json")); err == nil {
				t.Error("a credential came back by another way")
			}
			if mode == "off" {
				return
			}
			if info, err := os.Stat(h.here("cache/images/new/2.png")); err != nil || info.Mode().Perm()&0o111 != 0 {
				t.Error(info.Mode(), err)
			}
			if text := strings.Join(done.Notices, "\n"); !strings.Contains(text, "conflict") || !strings.Contains(text, "too big") {
				t.Errorf("notices: %q", done.Notices)
			}
			if !slices.Contains(done.Changed, h.here("cache/images/1.png")) {
				t.Errorf("changed: %q", done.Changed)
			}
			for _, name := range names(t, h.here("cache/images")) {
				if isTemporary(name) {
					t.Errorf("left: %s", name)
				}
			}
			// What came back is known to be the same: another process sends none of it.
			before := tree(t, h.there("cache/images/new"))
			h.push(h.process())
			if diff := cmp.Diff(before, tree(t, h.there("cache/images/new"))); diff != "" {
				t.Errorf("sent again:\n%s", diff)
			}
		})
	}
}

// N05
func TestWhatADeadProcessLeftGoes(t *testing.T) {
	h := newHomes(t)
	dir := h.here("cache/images")
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	living, err := openStage(root)
	must(t, err)
	defer living.close()
	dead, err := openStage(root)
	must(t, err)
	write(t, filepath.Join(dir, dead.name, "1"), "half")
	must(t, dead.lock.Close())
	h.push(h.process())
	if got := names(t, dir); !slices.Equal(got, []string{living.name, "1.png"}) {
		t.Errorf("%q", got)
	}
}

// The other process had opened the lock before this one had it, and removed the stage in the next moment.
func TestAStageThatWasRemovedWhileItWasLockedIsNotUsed(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	must(t, err)
	defer root.Close()
	s, err := openStage(root)
	must(t, err)
	defer s.close()
	must(t, s.take())
	must(t, root.RemoveAll(s.name))
	if s.take() == nil {
		t.Error("it is used")
	}
}

func TestAReadOnlyFarHomeIsAnErrorThatSaysSo(t *testing.T) {
	h := newHomes(t)
	h.far = "/proc/sys" // nobody writes there
	p := h.process()
	_, err := p.Push(t.Context(), h.mappings)
	if err == nil || !strings.Contains(err.Error(), "/proc/sys") {
		t.Fatal(err)
	}
}

func TestNobodyIsAskedWhereThereIsNothingToSend(t *testing.T) {
	h := newHomes(t)
	must(t, os.RemoveAll(h.hermes))
	must(t, os.Mkdir(h.hermes, 0o700))
	p := h.process()
	if !p.Due() {
		t.Error("the first push is not due")
	}
	h.push(p)
	if n := h.remote.count(); n != 0 {
		t.Errorf("%d bashes were started", n)
	}
	if p.Due() {
		t.Error("the next push is due at once")
	}
	h.later()
	if !p.Due() {
		t.Error("a minute later it is not due")
	}
	h.write("skills/a/SKILL.md", "skill a")
	h.push(p)
	h.same("skills/a/SKILL.md", "skills/a/SKILL.md")
	// What was sent goes when all of it is gone, also when another process sees that first.
	must(t, os.RemoveAll(h.here("skills")))
	h.push(h.process())
	if _, err := os.Stat(h.there("skills/a/SKILL.md")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
