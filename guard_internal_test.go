//go:build unix

package elsewhere

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// An answer for this once is the call's that asked: no other one finds it.
func TestAnAnswerOnceIsKeptNowhere(t *testing.T) {
	who := &answers{store: policy.NewStore("")}
	at := policy.Context{Cwd: "/work", Home: "/home/ann", Answers: who}
	d := policy.Check(`rm -rf /data/x "$X"`, at)
	if d.Action != policy.Ask {
		t.Fatalf("got %+v", d)
	}
	for _, answer := range []PolicyAnswer{ApproveOnce, ApproveSession, ApproveAlways} {
		if notice := who.remember(d, answer); notice != "" && answer != ApproveAlways {
			t.Error(notice)
		}
		if again := policy.Check(`rm -rf /data/x "$X"`, at); again.Action != policy.Ask {
			t.Errorf("%s: another call takes the answer", answer)
		}
	}
	at.Answers = granted{who, d.Findings}
	if own := policy.Check(`rm -rf /data/x "$X"`, at); own.Action != policy.Allow {
		t.Errorf("its own call is denied: %+v", own)
	}
	if other := policy.Check(`rm -rf /data/y "$X"`, at); other.Action != policy.Ask {
		t.Errorf("it counts for another command: %+v", other)
	}
}

func TestATreeOfTooManyFilesIsAskedAbout(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &guard{base: policy.Context{Home: "/home/ann"}}
	for left, more := range map[int]bool{2: true, 3: false} {
		w := &targets{guard: g, write: true, left: left}
		w.add("", "/home/ann")
		if err := w.tree(transfer{name: "/home/ann", near: dir + "/.", write: true}); err != nil || w.more != more {
			t.Errorf("of %d: %v, %v", left, w.more, err)
		}
	}
}

func TestATreeIsNotWalkedWhereNoRuleAboutPathsHolds(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/b/c", "a/b/d", ".ssh/id", "e"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		blocked []string
		seen    int
	}{
		"none":                  {nil, 3},
		"one about other files": {[]string{"/srv"}, 3},
		"one about these":       {[]string{"/root/a/b"}, 6}, // all but what is in .ssh
	} {
		t.Run(name, func(t *testing.T) {
			// Nobody is there to be asked what the far side has.
			p := &place{guard: guard{base: policy.Context{Home: "/root", NetworkAlone: true, Blocked: c.blocked}}}
			w := &targets{guard: &p.guard, write: true, left: maxTargets}
			w.add("", "/root")
			if err := w.tree(transfer{name: "/root", near: dir + "/.", write: true}); err != nil || maxTargets-w.left != c.seen {
				t.Errorf("%d entries were looked at, want %d (%v)", maxTargets-w.left, c.seen, err)
			}
			if c.blocked == nil {
				if _, err := p.touched(t.Context(), transfer{name: "/root", whole: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// BenchmarkPermit is what the look at a small command costs a call on local.
func BenchmarkPermit(b *testing.B) {
	for name, enabled := range map[string]string{"checked": "true", "unchecked": "false"} {
		b.Run(name, func(b *testing.B) {
			cfg, err := config.Load(config.Options{
				Backends: []driver.Backend{local.Backend()}, Flags: map[string]string{"policy.enabled": enabled}, Home: b.TempDir(), Dir: b.TempDir(),
			})
			if err != nil {
				b.Fatal(err)
			}
			s, err := Open(b.Context(), cfg, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close(context.Background())
			if _, err := s.Run(b.Context(), "true", nil); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.permitCommand(b.Context(), "run", "cd src && go test ./... 2>&1 | tail -20", "", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
