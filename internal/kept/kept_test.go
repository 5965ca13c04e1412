package kept

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

func TestEveryTaskIdentityAndProfileHasANameOfItsOwn(t *testing.T) {
	ids := []driver.Identity{{ID: "a", Profile: "default"}, {ID: "b", Profile: "default"}, {ID: "a", Profile: "work"}, {ID: "a\x00default", Profile: ""}}
	seen := map[string]bool{}
	for _, id := range ids {
		for _, task := range []string{"default", "Default", "a/b", "a-b", "", "\n"} {
			for _, key := range []string{"", "team"} {
				name := Name(id, key, task)
				if key == "" && seen[name] {
					t.Errorf("%+v %q: %s is another's name", id, task, name)
				}
				seen[name] = true
				if Name(id, key, task) != name {
					t.Errorf("%q has two names", task)
				}
			}
		}
	}
	if Name(ids[0], "team", "x") != Name(ids[1], "team", "x") {
		t.Error("a shared key does not give one name")
	}
}

func TestWhatBecomesOfASandboxWithOtherSettings(t *testing.T) {
	have := Settings{"docker_image": "a", "docker_network": "true"}
	image := Settings{"docker_image": "b", "docker_network": "true"}
	network := Settings{"docker_image": "a", "docker_network": "false"}
	both := Settings{"docker_image": "b", "docker_network": "false"}
	for _, c := range []struct {
		name              string
		want              Settings
		persistent, inUse bool
		action            Action
		diff              []string
	}{
		{"the same", have, true, true, Reuse, nil},
		{"another image, not kept", image, false, false, Replace, []string{"docker_image"}},
		{"another image, not kept, in use", image, false, true, Refuse, []string{"docker_image"}},
		{"another image, kept", image, true, false, Refuse, []string{"docker_image"}},
		{"no network any more, kept", network, true, false, Replace, []string{"docker_network"}},
		{"no network any more, kept, in use", network, true, true, Refuse, []string{"docker_network"}},
		{"both, kept", both, true, false, Refuse, []string{"docker_image", "docker_network"}},
	} {
		action, diff := Decide(Found{Settings: Parse(have.String()), Persistent: c.persistent, InUse: c.inUse}, c.want)
		if action != c.action || !slices.Equal(diff, c.diff) {
			t.Errorf("%s: %v %v, want %v %v", c.name, action, diff, c.action, c.diff)
		}
	}
	if Parse("{").Fingerprint() == have.Fingerprint() || len(Parse("nonsense")) != 0 {
		t.Error("broken settings match")
	}
	if keys := (Settings{"a": "1"}).Diff(Settings{"b": "1"}); !slices.Equal(keys, []string{"a", "b"}) {
		t.Errorf("keys that only one side has: %v", keys)
	}
}

func TestASandboxIsInUseWhileSomebodyHoldsIt(t *testing.T) {
	home := t.TempDir()
	open := func() *Lock {
		l, err := Open(home, "box", false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	a, b := open(), open()
	inUse := func(l *Lock) bool {
		done, err := l.Make(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		used, err := l.InUse()
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	if inUse(b) {
		t.Error("in use before anybody uses it")
	}
	if err := a.Use(); err != nil {
		t.Fatal(err)
	}
	if !inUse(b) {
		t.Error("not in use while a process uses it")
	}
	if err := b.Use(); err != nil {
		t.Errorf("a second user: %v", err)
	}
	_ = a.Close()
	_ = b.Close()
	if c := open(); inUse(c) {
		t.Error("in use after both are gone")
	}
}

func TestALockWhoseFilesGoWithTheSandboxStillKeepsOthersOut(t *testing.T) {
	home := t.TempDir()
	var inside, entered atomic.Int32
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 60 {
				l, err := Open(home, "box", false)
				if err != nil {
					t.Error(err)
					return
				}
				done, err := l.Make(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two have the right to make at once")
				}
				entered.Add(1)
				runtime.Gosched()
				inside.Add(-1)
				l.Discard()
				done()
				_ = l.Close()
			}
		})
	}
	workers.Wait()
	if entered.Load() != 8*60 {
		t.Errorf("%d got the right", entered.Load())
	}
}

func TestTheFilesOfALockGoUnlessSomebodyUsesTheSandbox(t *testing.T) {
	home := t.TempDir()
	files := func() int {
		found, err := filepath.Glob(filepath.Join(home, "elsewhere", "sandboxes", "box.*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	open := func() *Lock {
		l, err := Open(home, "box", false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	discard := func(l *Lock) {
		done, err := l.Make(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		l.Discard()
	}
	user, other := open(), open()
	if err := user.Use(); err != nil {
		t.Fatal(err)
	}
	if discard(other); files() != 2 {
		t.Errorf("%d files of a lock that is used", files())
	}
	_ = user.Close()
	if discard(other); files() != 0 {
		t.Errorf("%d files are left", files())
	}
	// One that was opened before goes on with the files that are made next.
	done, err := other.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := other.Use(); err != nil {
		t.Fatal(err)
	}
	third := open()
	if used, err := third.InUse(); err != nil || !used {
		t.Errorf("its use is not seen: %t, %v", used, err)
	}
}

func TestASandboxIsAddressedAsTheCommandLineTakesIt(t *testing.T) {
	for want, c := range map[string]struct{ profile, task string }{
		"docker/web":         {"default", "web"},
		"box/web":            {"default/box", "web"},
		"docker/elsewhere-x": {"default", "a b"},
	} {
		if got := Address("docker", driver.Identity{Profile: c.profile}, c.task, "elsewhere-x"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestARightThatCannotBeHadIsNobodysTimeout(t *testing.T) {
	home := t.TempDir()
	holder, err := Open(home, "box", false)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	done, err := holder.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	never := func(*Lock) error {
		t.Error("done without the right")
		return nil
	}
	err = With(t.Context(), home, "box", false, 20*time.Millisecond, never)
	if kinderr.Of(err) != driver.KindUnavailable || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("while another process makes it: %v (%q)", err, kinderr.Of(err))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err = With(ctx, home, "box", false, time.Hour, never); !errors.Is(err, context.DeadlineExceeded) || kinderr.Of(err) != "" {
		t.Errorf("when the caller's time is up: %v (%q)", err, kinderr.Of(err))
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err = With(gone, home, "box", false, time.Hour, never); !errors.Is(err, context.Canceled) || kinderr.Of(err) != "" {
		t.Errorf("when the caller gave up: %v (%q)", err, kinderr.Of(err))
	}
	t.Setenv("TMPDIR", filepath.Join(home, "elsewhere", "sandboxes", "box.make")) // a file
	t.Setenv("TMP", filepath.Join(home, "elsewhere", "sandboxes", "box.make"))
	if err = With(t.Context(), "", "box", false, time.Hour, never); kinderr.Of(err) != driver.KindUnavailable {
		t.Errorf("where there is no place for it: %v (%q)", err, kinderr.Of(err))
	}
	own := errors.New("own")
	if err = With(t.Context(), home, "other", false, time.Hour, func(*Lock) error { return own }); err != own {
		t.Errorf("what was done failed with %v", err)
	}
}
