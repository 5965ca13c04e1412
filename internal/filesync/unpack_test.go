package filesync

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type member struct {
	name, link, content string
	kind                byte
	mode                int64
}

func archive(t testing.TB, members ...member) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if m.kind == 0 {
			m.kind = tar.TypeReg
		}
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.content)), Mode: m.mode | 0o600, Format: tar.FormatGNU}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpackIn unpacks into a directory beside which nothing may change, and fails if it does.
func unpackIn(t testing.TB, data []byte, links bool) (dir string, skipped map[string]string, err error) {
	base := t.TempDir()
	dir = filepath.Join(base, "a", "root")
	outside := filepath.Join(base, "a", "outside")
	for _, d := range []string{dir, outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": "../outside", "abs": outside, "file-out": "../outside/file", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, err := openStage(root)
	if err != nil {
		t.Fatal(err)
	}
	skipped = map[string]string{}
	u := &unpacker{
		root: root, stage: s.name, links: links, keepMode: true, max: 1 << 20,
		place: func(name string) (string, string) { return name, "" },
		skip:  func(name, why string) { skipped[name] = why },
	}
	err = u.unpack(t.Context(), bytes.NewReader(data))
	s.close()
	var found []string
	_ = filepath.WalkDir(base, func(p string, d os.DirEntry, err error) error {
		if p != dir && strings.HasPrefix(p, dir) {
			return nil
		}
		found = append(found, strings.TrimPrefix(p, base))
		return nil
	})
	if got := strings.Join(found, " "); got != " /a /a/outside /a/outside/file /a/root" {
		t.Fatalf("outside of the root: %s", got)
	}
	if b, rerr := os.ReadFile(filepath.Join(outside, "file")); rerr != nil || string(b) != "untouched" {
		t.Fatalf("outside of the root: %q %v", b, rerr)
	}
	return dir, skipped, err
}

var hostile = []member{
	{name: "../evil", content: "x"}, {name: "/evil", content: "x"}, {name: "a/../../evil", content: "x"}, {name: "..", kind: tar.TypeDir},
	{name: "out/evil", content: "x"}, {name: "abs/evil", content: "x"}, {name: "up/evil", content: "x"}, {name: "file-out/x", content: "x"},
	{name: "out/dir", kind: tar.TypeDir}, {name: "hard", kind: tar.TypeLink, link: "../outside/file"}, {name: "hard2", kind: tar.TypeLink, link: "out/file"},
	{name: "hard3", kind: tar.TypeLink, link: "/etc/passwd"}, {name: "dev", kind: tar.TypeChar}, {name: "block", kind: tar.TypeBlock}, {name: "fifo", kind: tar.TypeFifo},
	{name: ".elsewhere-sync-x/lock", content: "x"}, {name: "./", kind: tar.TypeDir}, {name: "link", kind: tar.TypeSymlink, link: "../outside"}, {name: "link/evil", content: "x"},
}

func TestUnpackStaysInside(t *testing.T) {
	for _, links := range []bool{true, false} {
		members := append(append([]member{}, hostile...), member{name: "good/x", content: "good", mode: 0o4755}, member{name: "file-out", content: "now a file"})
		dir, skipped, err := unpackIn(t, archive(t, members...), links)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "good/x")); err != nil || string(b) != "good" {
			t.Error(string(b), err)
		}
		if info, err := os.Stat(filepath.Join(dir, "good/x")); err != nil || info.Mode() != 0o755 {
			t.Error(info.Mode(), err)
		}
		if info, err := os.Lstat(filepath.Join(dir, "file-out")); err != nil || !info.Mode().IsRegular() {
			t.Error("a link was written through", err)
		}
		for _, m := range hostile[:len(hostile)-3] {
			name := strings.TrimSuffix(m.name, "/")
			if skipped[name] == "" {
				t.Errorf("%q was not refused: %v", m.name, skipped)
			}
		}
	}
}

// A directory has the time that it had, whatever came into it afterwards.
func TestUnpackGivesDirectoriesTheirTimes(t *testing.T) {
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	for _, h := range []*tar.Header{
		{Name: "a", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: old},
		{Name: "a/b", Typeflag: tar.TypeDir, Mode: 0o555, ModTime: old.Add(time.Hour)},
		{Name: "a/b/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1, ModTime: old.Add(2 * time.Hour)},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = w.Write([]byte("x"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir, skipped, err := unpackIn(t, data.Bytes(), false)
	if err != nil || len(skipped) > 0 {
		t.Fatal(err, skipped)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "a/b"), 0o700) })
	for i, name := range []string{"a", "a/b", "a/b/file"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if want := old.Add(time.Duration(i) * time.Hour); err != nil || !info.ModTime().Equal(want) {
			t.Errorf("%s: %v, want %v; %v", name, info.ModTime(), want, err)
		}
	}
}

func TestUnpackHasALimit(t *testing.T) {
	_, _, err := unpackIn(t, archive(t, member{name: "a", content: strings.Repeat("x", 700<<10)}, member{name: "b", content: strings.Repeat("x", 700<<10)}), false)
	if err == nil {
		t.Fatal("more than the limit was unpacked")
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(archive(f, hostile...), true)
	f.Add(archive(f, member{name: "a/b", content: "x"}, member{name: "l", kind: tar.TypeSymlink, link: "a"}, member{name: "l/b", content: "y"}), true)
	f.Add(append(archive(f, member{name: "one"}), archive(f, member{name: "two", kind: tar.TypeDir}, member{name: "h", kind: tar.TypeLink, link: "one"})...), false)
	f.Fuzz(func(t *testing.T, data []byte, links bool) {
		_, _, _ = unpackIn(t, data, links) // it fails where anything outside of the root changes
	})
}
