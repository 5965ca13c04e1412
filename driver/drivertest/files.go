package drivertest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// fileGroup: files go in and out (SPEC 3.7), through nothing but bashes in the place.
func fileGroup() group {
	return group{name: "files", cases: []testCase{
		{name: "a copied tree is the same on the other side, whatever its names, permissions, links and holes", run: copiedTree},
		{name: "a copy of a file takes the place of another one whole, and makes the directories on its way", run: func(t *test) {
			b := t.shared()
			dir, here := b.scratch(), t.TempDir()
			for _, text := range []string{"one", "", "another one, longer"} {
				writeHere(t, filepath.Join(here, "file"), text, 0o640)
				upload(t, b, filepath.Join(here, "file"), dir+"/made/on the way/file")
				if got := b.observe("cat " + quote(dir+"/made/on the way/file")); got != text {
					t.Errorf("%q arrived, want %q", got, text)
				}
			}
			if err := b.sb.WriteFile(t.ctx(), dir+"/made/note", []byte("note\x00\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			data, err := b.sb.ReadFile(t.ctx(), dir+"/made/note")
			if err != nil || string(data) != "note\x00\n" {
				t.Errorf("%q, %v", data, err)
			}
			if left := b.observe("ls -A " + quote(dir)); left != "made\n" {
				t.Errorf("left beside it: %q", left)
			}
		}},
		{name: "a sync sends what changed alone, and removes what an earlier one sent", run: syncedChange},
		{name: "a sync leaves alone what it did not write, until the source is to win", run: syncConflict},
		{name: "a copy of 64 MB that was cut goes on where it was", big: true, run: resumedCopy},
	}}
}

func writeHere(t *test, file, text string, perm os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), perm); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, perm); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

func upload(t *test, b *box, src, dst string) *elsewhere.Transfer {
	t.Helper()
	done, err := b.sb.Upload(t.ctx(), src, dst, nil)
	if err != nil || len(done.Skipped) > 0 {
		t.Fatalf("copying %s to %s: %+v, %v", src, dst, done, err)
	}
	return done
}

// fileNames are names that a shell, tar or a line might take for something else.
var fileNames = []string{
	"plain", "with blank", " ", "-n", "--help", "it's", `quo"te`, `back\slash`, `\n`, "new\nline", "tab\t", "$(touch x)", "`id`", "*", "[a]", "été", "\xff\xfe", "{a,b}", "~", "#x", "a|b", "%s", ".hidden",
	strings.Repeat("n", 200),
}

func copiedTree(t *test) {
	b := t.shared()
	dir, here := b.scratch(), t.TempDir()
	src := filepath.Join(here, "src")
	for i, name := range fileNames {
		writeHere(t, filepath.Join(src, name, name), strings.Repeat(name, i), 0o644)
	}
	writeHere(t, filepath.Join(src, "run"), "#!/bin/sh\n", 0o755)
	writeHere(t, filepath.Join(src, "private"), "", 0o600)
	for _, one := range []error{
		os.Mkdir(filepath.Join(src, "empty"), 0o700), os.Symlink("run", filepath.Join(src, "link")), os.Symlink("no\nwhere", filepath.Join(src, "dangling")),
		os.WriteFile(filepath.Join(src, "hole"), []byte("x"), 0o644), os.Truncate(filepath.Join(src, "hole"), 8<<20),
	} {
		if one != nil {
			t.Fatal(one)
		}
	}
	upload(t, b, src, dir+"/there")
	if out := b.observe("cd " + quote(dir+"/there") + ` && stat -c '%a %F' run private empty link && readlink link dangling && (($(stat -c %b hole) < 1000)) && echo sparse`); out != "755 regular file\n600 regular empty file\n700 directory\n777 symbolic link\nrun\nno\nwhere\nsparse\n" {
		t.Errorf("there: %q", out)
	}
	back := filepath.Join(here, "back")
	done, err := b.sb.Download(t.ctx(), dir+"/there", back, nil)
	if err != nil || len(done.Skipped) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	sameTree(t, back, src)
}

// sameTree fails where two trees of this machine differ.
func sameTree(t *test, got, want string) {
	t.Helper()
	list := func(root string) map[string]string {
		all := map[string]string{}
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			what := info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				var data []byte
				data, err = os.ReadFile(path)
				what += info.ModTime().Truncate(time.Second).UTC().String() + sha256sum(data)
			case info.Mode()&os.ModeSymlink != 0:
				var target string
				target, err = os.Readlink(path)
				what = "link " + target
			}
			rel, _ := filepath.Rel(root, path)
			all[rel] = what
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	is, should := list(got), list(want)
	for name, what := range should {
		if is[name] != what {
			t.Errorf("%q: %q, want %q", name, is[name], what)
		}
	}
	for name := range is {
		if _, ok := should[name]; !ok {
			t.Errorf("%q is too much", name)
		}
	}
}

func syncOnce(t *test, b *box, o elsewhere.SyncOptions) *elsewhere.Synced {
	t.Helper()
	done, err := b.sb.Sync(t.ctx(), o)
	if err != nil || len(done.Skipped) > 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	return done
}

func sameList(t *test, what string, got []string, want ...string) {
	t.Helper()
	got = slices.Sorted(slices.Values(got))
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func syncedChange(t *test) {
	b := t.shared()
	src, o := t.TempDir(), elsewhere.SyncOptions{Remote: b.scratch() + "/to", Delete: true}
	o.Local = src
	for _, name := range []string{"a", "b", "sub/c", "sub/odd\n'name"} {
		writeHere(t, filepath.Join(src, name), name, 0o644)
	}
	syncOnce(t, b, o)
	if done := syncOnce(t, b, o); len(done.Sent)+len(done.Removed) > 0 || done.Same < 4 {
		t.Errorf("nothing changed: %+v", done)
	}
	writeHere(t, filepath.Join(src, "b"), "B", 0o644) // of the same length
	writeHere(t, filepath.Join(src, "new"), "new", 0o644)
	if err := os.Remove(filepath.Join(src, "sub/c")); err != nil {
		t.Fatal(err)
	}
	dry := o
	dry.DryRun = true
	done := syncOnce(t, b, dry)
	sameList(t, "to be sent", done.Sent, "b", "new")
	sameList(t, "to be removed", done.Removed, "sub/c")
	if out := b.observe("cd " + quote(o.Remote) + " && cat b && ls"); out != "ba\nb\nsub\n" {
		t.Errorf("after a dry run: %q", out)
	}
	done = syncOnce(t, b, o)
	sameList(t, "sent", done.Sent, "b", "new")
	sameList(t, "removed", done.Removed, "sub/c")
	if out := b.observe("cd " + quote(o.Remote) + " && cat a b new && ls -A . && ls -A sub | wc -l"); out != "aBnewa\nb\nnew\nsub\n2\n" {
		t.Errorf("there: %q", out)
	}
	back := elsewhere.SyncOptions{Local: filepath.Join(t.TempDir(), "back"), Remote: o.Remote, FromSandbox: true}
	syncOnce(t, b, back)
	sameTree(t, back.Local, src)
}

func syncConflict(t *test) {
	b := t.shared()
	src, dir := t.TempDir(), b.scratch()
	o := elsewhere.SyncOptions{Local: src, Remote: dir, Delete: true}
	b.observe("cd " + quote(dir) + " && umask 0 && printf theirs >first && printf 'their own' >alone")
	for _, name := range []string{"first", "second", "third"} {
		writeHere(t, filepath.Join(src, name), "ours", 0o666)
	}
	conflicts := func(done *elsewhere.Synced) (names []string) {
		for _, c := range done.Conflicts {
			names = append(names, c.Path)
		}
		return names
	}
	done := syncOnce(t, b, o)
	sameList(t, "sent", done.Sent, "second", "third")
	sameList(t, "conflicts", conflicts(done), "alone", "first")
	b.observe("cd " + quote(dir) + " && printf edit >second && printf edit >third")
	writeHere(t, filepath.Join(src, "second"), "ours 2", 0o666)
	if err := os.Remove(filepath.Join(src, "third")); err != nil {
		t.Fatal(err)
	}
	done = syncOnce(t, b, o)
	sameList(t, "conflicts", conflicts(done), "alone", "first", "second", "third")
	if out := b.observe("cd " + quote(dir) + " && cat first second third alone"); out != "theirseditedittheir own" {
		t.Errorf("there: %q", out)
	}
	o.Force = true
	done = syncOnce(t, b, o)
	sameList(t, "conflicts", conflicts(done))
	if out := b.observe("cd " + quote(dir) + " && cat first second && ls -A"); out != "oursours 2first\nsecond\n" {
		t.Errorf("by force: %q", out)
	}
}

func resumedCopy(t *test) {
	b := t.shared()
	dir, file := b.scratch(), filepath.Join(t.TempDir(), "large")
	data := make([]byte, 64<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	writeHere(t, file, string(data), 0o644)
	ctx, cut := context.WithCancel(t.ctx())
	defer cut()
	_, err := b.sb.Upload(ctx, file, dir+"/large", &elsewhere.TransferOptions{Progress: func(p elsewhere.TransferProgress) {
		if p.Bytes > p.AllBytes*3/4 {
			cut()
		}
	}})
	if err == nil {
		t.Fatal("it was not cut: the case proves nothing")
	}
	if out := b.observe("ls " + quote(dir)); out != "" {
		t.Errorf("after the cut there is %q", out)
	}
	if done := upload(t, b, file, dir+"/large"); !done.Resumed {
		t.Errorf("it began anew: %+v", done)
	}
	if out := b.observe("cd " + quote(dir) + " && sha256sum <large && ls -A"); out != sha256sum(data)+"  -\nlarge\n" {
		t.Errorf("there: %q", out)
	}
	back := filepath.Join(t.TempDir(), "back")
	if _, err := b.sb.Download(t.ctx(), dir+"/large", back, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(back); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what came back is another file (%d bytes, %v)", len(got), err)
	}
}
