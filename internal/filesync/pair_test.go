//go:build unix

package filesync

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// paths of skips.
func paths(skips []Skip) (all []string) {
	for _, s := range skips {
		all = append(all, s.Path)
	}
	slices.Sort(all)
	return all
}

// pairHere is a pair of two new directories.
func pairHere(t *testing.T, remote Remote, toFar bool) (p *Pair, src, dst string) {
	t.Helper()
	p = &Pair{Remote: remote, Near: t.TempDir(), Far: t.TempDir(), Books: t.TempDir(), Place: "test", ID: "me", ToFar: toFar}
	if toFar {
		return p, p.Near, p.Far
	}
	return p, p.Far, p.Near
}

func syncPair(t *testing.T, p *Pair) *Synced {
	t.Helper()
	done, err := p.Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// bothWays runs a test with each flavour of far side and in both directions.
func bothWays(t *testing.T, test func(t *testing.T, remote *bashHere, toFar bool)) {
	for name, remote := range flavours(t) {
		for _, toFar := range []bool{true, false} {
			direction := "to"
			if !toFar {
				direction = "from"
			}
			t.Run(direction+" "+name, func(t *testing.T) { test(t, &bashHere{path: remote.path, only: remote.only}, toFar) })
		}
	}
}

func TestSyncFollowsTheSource(t *testing.T) {
	bothWays(t, func(t *testing.T, remote *bashHere, toFar bool) {
		p, src, dst := pairHere(t, remote, toFar)
		writeOdd(t, src)
		if err := os.Symlink("plain", filepath.Join(src, "link")); err != nil {
			t.Fatal(err)
		}
		if done := syncPair(t, p); len(done.Conflicts)+len(done.Skipped) > 0 {
			t.Fatalf("conflicts %v, skipped %v", done.Conflicts, done.Skipped)
		}
		if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
			t.Fatalf("first (-source +destination):\n%s", diff)
		}
		calls := remote.count()
		if done := syncPair(t, p); len(done.Sent)+len(done.Conflicts)+len(done.Skipped) > 0 || done.Same != len(tree(t, src)) {
			t.Errorf("nothing changed, but: %+v", done)
		}
		if n := remote.count() - calls; n != 1 {
			t.Errorf("an unchanged tree took %d bashes", n)
		}
		// Every kind of change.
		write(t, filepath.Join(src, "plain"), "other")
		write(t, filepath.Join(src, "new/deep/er"), "new")
		must(t, os.Chmod(filepath.Join(src, "-rf"), 0o755))
		must(t, os.Remove(filepath.Join(src, "link")))
		must(t, os.Symlink("elsewhere", filepath.Join(src, "link")))
		must(t, os.Rename(filepath.Join(src, "new\nline"), filepath.Join(src, "moved")))
		done := syncPair(t, p)
		slices.Sort(done.Sent)
		if diff := cmp.Diff([]string{"-rf", "link", "moved", "new", "new/deep", "new/deep/er", "plain"}, done.Sent); diff != "" {
			t.Errorf("sent:\n%s", diff)
		}
		p.Delete = true
		if done := syncPair(t, p); !slices.Equal(done.Removed, []string{"new\nline"}) {
			t.Errorf("removed %q", done.Removed)
		}
		if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
			t.Errorf("then (-source +destination):\n%s", diff)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSyncNeverOverwritesWhatOthersWrote(t *testing.T) {
	bothWays(t, func(t *testing.T, remote *bashHere, toFar bool) {
		p, src, dst := pairHere(t, remote, toFar)
		for _, name := range []string{"a", "b", "gone", "gone and changed", "dir/x"} {
			write(t, filepath.Join(src, name), "source")
		}
		write(t, filepath.Join(dst, "b"), "theirs") // differs on the first sync
		write(t, filepath.Join(dst, "only there"), "theirs")
		if done := syncPair(t, p); !slices.Equal(paths(done.Conflicts), []string{"b"}) {
			t.Fatalf("%+v", done)
		}
		write(t, filepath.Join(dst, "a"), "theirs")
		write(t, filepath.Join(dst, "gone and changed"), "theirs")
		write(t, filepath.Join(dst, "dir/y"), "theirs")
		must(t, os.Remove(filepath.Join(src, "gone")))
		must(t, os.Remove(filepath.Join(src, "gone and changed")))
		must(t, os.RemoveAll(filepath.Join(src, "dir")))
		p.Delete = true
		p.DryRun = true
		before := tree(t, dst)
		dry := syncPair(t, p)
		if diff := cmp.Diff(before, tree(t, dst)); diff != "" {
			t.Errorf("a dry run changed:\n%s", diff)
		}
		p.DryRun = false
		done := syncPair(t, p)
		if diff := cmp.Diff([]string{"a", "b", "dir/y", "gone and changed", "only there"}, paths(done.Conflicts)); diff != "" {
			t.Errorf("conflicts:\n%s", diff)
		}
		slices.Sort(done.Removed)
		if diff := cmp.Diff([]string{"dir/x", "gone"}, done.Removed); diff != "" {
			t.Errorf("removed:\n%s", diff)
		}
		if diff := cmp.Diff(paths(done.Conflicts), paths(dry.Conflicts)); diff != "" {
			t.Errorf("the dry run saw:\n%s", diff)
		}
		for _, name := range []string{"a", "b", "dir/y", "gone and changed", "only there"} {
			if data, _ := os.ReadFile(filepath.Join(dst, name)); string(data) != "theirs" {
				t.Errorf("%s: %q", name, data)
			}
		}
		p.Force = true
		done = syncPair(t, p)
		if len(done.Conflicts)+len(done.Skipped) > 0 {
			t.Errorf("with force: %+v", done)
		}
		if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
			t.Errorf("with force (-source +destination):\n%s", diff)
		}
	})
}

func TestSyncOfOneKindInPlaceOfAnother(t *testing.T) {
	bothWays(t, func(t *testing.T, remote *bashHere, toFar bool) {
		p, src, dst := pairHere(t, remote, toFar)
		write(t, filepath.Join(src, "dir here/x"), "source")
		write(t, filepath.Join(dst, "dir here"), "theirs")
		write(t, filepath.Join(src, "file here"), "source")
		write(t, filepath.Join(dst, "file here/x"), "theirs")
		outside := t.TempDir()
		write(t, filepath.Join(src, "through/x"), "source")
		must(t, os.Symlink(outside, filepath.Join(dst, "through")))
		before := tree(t, dst)
		done := syncPair(t, p)
		if diff := cmp.Diff([]string{"dir here", "file here", "through"}, paths(done.Conflicts)); diff != "" {
			t.Errorf("conflicts:\n%s", diff)
		}
		if diff := cmp.Diff(before, tree(t, dst)); diff != "" {
			t.Errorf("changed:\n%s", diff)
		}
		p.Force = true
		if done = syncPair(t, p); len(done.Conflicts)+len(done.Skipped) > 0 {
			t.Errorf("with force: %+v", done)
		}
		if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
			t.Errorf("with force (-source +destination):\n%s", diff)
		}
		if left := names(t, outside); len(left) > 0 {
			t.Errorf("went through a link: %q", left)
		}
	})
}

func TestSyncLeavesOut(t *testing.T) {
	for _, toFar := range []bool{true, false} {
		t.Run(fmt.Sprintf("to the far side: %v", toFar), func(t *testing.T) {
			p, src, dst := pairHere(t, &bashHere{}, toFar)
			for name, content := range map[string]string{
				".gitignore": "*.log\nbuild/\n!keep.log\n/top\n", "a.log": "", "keep.log": "", "build/x": "", "src/build/y": "", "top": "", "src/top": "",
				"src/.gitignore": "# only here\nsecret\n", "src/secret": "", "secret": "", ".git/config": "", "src/main.go": "", "a/node_modules/m": "",
				"build/.gitignore": "!x\n",
			} {
				write(t, filepath.Join(src, name), content)
			}
			p.GitIgnore, p.Exclude = true, []string{"node_modules"}
			syncPair(t, p)
			want := []string{".gitignore", "a", "keep.log", "secret", "src", "src/.gitignore", "src/main.go", "src/top"}
			if diff := cmp.Diff(want, sortedKeys(tree(t, dst))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// What is left out is not removed either.
			write(t, filepath.Join(dst, "build/theirs"), "x")
			p.Delete, p.Force = true, true
			syncPair(t, p)
			if data, err := os.ReadFile(filepath.Join(dst, "build/theirs")); err != nil {
				t.Error(string(data), err)
			}
		})
	}
}

func TestASourceThatLeavesOutMoreThanCanBeRead(t *testing.T) {
	p, src, dst := pairHere(t, &bashHere{}, false)
	write(t, filepath.Join(src, ".gitignore"), strings.Repeat("secret\n", mostIgnored/7+1))
	write(t, filepath.Join(src, "secret"), "x")
	p.GitIgnore = true
	if done, err := p.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), ".gitignore") {
		t.Errorf("%+v, %v", done, err)
	}
	if got := names(t, dst); len(got) > 0 {
		t.Errorf("sent all the same: %q", got)
	}
}

func TestSyncOfAFile(t *testing.T) {
	for _, toFar := range []bool{true, false} {
		p, _, _ := pairHere(t, &bashHere{}, toFar)
		for _, end := range []*string{&p.Near, &p.Far} {
			dir := *end
			*end = filepath.Join(dir, "file")
			write(t, *end, "x")
			done, err := p.Sync(t.Context())
			if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "elsewhere cp") {
				t.Errorf("to far: %v: %+v, %v", toFar, done, err)
			}
			*end = dir
		}
	}
}

func sortedKeys(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// noise is text that does not compress.
func noise(seed, size int) string {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return string(b)
}

func TestSyncIsCutAndGoesOn(t *testing.T) {
	for name, flavour := range flavours(t) {
		t.Run(name, func(t *testing.T) {
			remote := &bashHere{path: flavour.path, only: flavour.only}
			p, src, dst := pairHere(t, remote, true)
			for i := range 40 {
				write(t, filepath.Join(src, "dir", string(rune('A'+i))), noise(i, 256<<10))
			}
			write(t, filepath.Join(src, "zbig"), noise(99, 40<<20))
			for _, cut := range []int64{5 << 20, 20 << 20, 20 << 20} {
				remote.cut = cut
				if done, err := p.Sync(t.Context()); err == nil {
					t.Fatalf("cut, but: %+v", done)
				}
				if left := tree(t, dst); slices.ContainsFunc(sortedKeys(left), func(name string) bool { return !isTemporary(name) }) {
					t.Fatalf("half written: %q", sortedKeys(left))
				}
			}
			remote.cut = 25 << 20 // half of all: only what has not arrived fits
			done := syncPair(t, p)
			if !done.Resumed || len(done.Skipped)+len(done.Conflicts) > 0 {
				t.Errorf("%+v", done)
			}
			if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
				t.Errorf("(-source +destination):\n%.2000s", diff)
			}
		})
	}
}
