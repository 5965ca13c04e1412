package output

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWindowKeepsHeadAndTail(t *testing.T) {
	for _, tc := range []struct {
		name       string
		limit      int64
		writes     []string
		head, tail string
		truncated  bool
	}{
		{"nothing written is nothing kept", 10, nil, "", "", false},
		{"less than the head's share stays in the head", 10, []string{"abc"}, "abc", "", false},
		{"exactly the limit is kept whole", 10, []string{"abcd", "efghij"}, "abcd", "efghij", false},
		{"one byte more leaves out the first of the middle", 10, []string{"abcdefghijk"}, "abcd", "fghijk", true},
		{"many small writes turn the ring", 10, strings.Split("abcdefghijklmnopqrstuvwxyz", ""), "abcd", "uvwxyz", true},
		{"a write longer than the ring replaces it", 10, []string{"abcdef", "ghijklmnopqrstuvwxyz"}, "abcd", "uvwxyz", true},
		{"a write across the ring's end is kept in order", 10, []string{"abcdefghijkl", "mnop", "qrst"}, "abcd", "opqrst", true},
		{"empty writes change nothing", 10, []string{"", "abc", ""}, "abc", "", false},
		{"a limit of one byte is all tail", 1, []string{"abc"}, "", "c", true},
		{"a limit of two bytes is all tail too", 2, []string{"abc"}, "", "bc", true},
		{"a limit of zero keeps nothing and lacks nothing", 0, []string{"abc"}, "", "", false},
		{"a negative limit keeps nothing", -1, []string{"abc"}, "", "", false},
		{"the cut splits no character of the head", 10, []string{"abcé", "0123456789"}, "abc", "456789", true},
		{"the cut splits no character of the tail", 10, []string{"abcdefghi", "é01234"}, "abcd", "01234", true},
		{"without a cut invalid bytes stay where they are", 10, []string{"abc\xc3\xc3\xff"}, "abc\xc3", "\xc3\xff", false},
		{"what begins no character is not taken for a split one", 10, []string{"abc\xff0123456789"}, "abc\xff", "456789", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := NewWindow(Options{Limit: tc.limit})
			defer w.Close()
			var total int64
			for _, s := range tc.writes {
				if n, err := io.WriteString(w, s); n != len(s) || err != nil {
					t.Fatalf("Write returned %d, %v", n, err)
				}
				total += int64(len(s))
			}
			type kept struct {
				Head, Tail, Bytes string
				Total             int64
				Truncated         bool
			}
			want := kept{tc.head, tc.tail, tc.head + tc.tail, total, tc.truncated}
			got := kept{string(w.Head()), string(w.Tail()), string(w.Bytes()), w.Total(), w.Truncated()}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if w.File() != "" || w.Err() != nil {
				t.Errorf("file %q, error %v", w.File(), w.Err())
			}
		})
	}
}

func TestWindowSpills(t *testing.T) {
	all := make([]byte, 256*3)
	for i := range all {
		all[i] = byte(i)
	}
	for _, tc := range []struct {
		name     string
		limit    int64
		max      int64
		chunk    int
		wantFile []byte
		capped   bool
	}{
		{"output that fits makes no file", 768, 0, 7, nil, false},
		{"output that overflows is in the file from its first byte", 100, 0, 7, all, false},
		{"one write that overflows is in the file whole", 100, 0, 768, all, false},
		{"a file at its limit ends there and says so", 100, 300, 7, all[:300], true},
		{"a file limit below the window's cuts what was held", 100, 10, 7, all[:10], true},
		{"a file that just fits its limit is not capped", 100, 768, 7, all, false},
		{"a window that keeps nothing spills nothing", 0, 0, 7, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "elsewhere", "output")
			w := NewWindow(Options{Limit: tc.limit, SpillDir: dir, SpillMax: tc.max, Name: "call/1 é"})
			for rest := all; len(rest) > 0; {
				n := min(tc.chunk, len(rest))
				w.Write(rest[:n])
				rest = rest[n:]
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatalf("second Close: %v", err)
			}
			if w.Total() != int64(len(all)) || w.FileCapped() != tc.capped {
				t.Errorf("total %d, capped %v", w.Total(), w.FileCapped())
			}
			if tc.wantFile == nil {
				if _, err := os.Lstat(dir); w.File() != "" || err == nil {
					t.Errorf("file %q, directory exists %v", w.File(), err == nil)
				}
				return
			}
			got, err := os.ReadFile(w.File())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, tc.wantFile) {
				t.Errorf("file has %d bytes, want %d; or other ones", len(got), len(tc.wantFile))
			}
			wantMode(t, w.File(), 0o600)
			wantMode(t, dir, 0o700)
			if base := filepath.Base(w.File()); !strings.HasPrefix(base, "out-call_1__-") {
				t.Errorf("file name %q", base)
			}
		})
	}
}

func TestWindowOutlivesItsDisk(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
	}{
		{"a directory that is a symbolic link is not used", func(t *testing.T, dir string) {
			if err := os.Symlink(t.TempDir(), dir); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory that is a file is not used", func(t *testing.T, dir string) {
			if err := os.WriteFile(dir, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "output")
			tc.prepare(t, dir)
			w := NewWindow(Options{Limit: 10, SpillDir: dir})
			for range 10 {
				if n, err := w.Write([]byte("abcdefgh")); n != 8 || err != nil {
					t.Fatalf("Write returned %d, %v", n, err)
				}
			}
			if w.Err() == nil || w.Close() == nil {
				t.Error("the error was lost")
			}
			if w.File() != "" {
				t.Errorf("file %q", w.File())
			}
			if got := string(w.Bytes()); got != "abcdcdefgh" {
				t.Errorf("kept %q", got)
			}
		})
	}

	t.Run("an error while writing ends the file and is told once", func(t *testing.T) {
		w := NewWindow(Options{Limit: 10, SpillDir: t.TempDir()})
		io.WriteString(w, "0123456789a")
		_ = w.file.Close() // the disk is gone
		io.WriteString(w, "bcdef")
		first := w.Err()
		if first == nil {
			t.Fatal("the error was lost")
		}
		io.WriteString(w, "ghi")
		if err := w.Close(); err != first {
			t.Errorf("error became %v", err)
		}
		if got := string(w.Bytes()); got != "0123defghi" {
			t.Errorf("kept %q", got)
		}
		if got, _ := os.ReadFile(w.File()); string(got) != "0123456789a" {
			t.Errorf("file has %q", got)
		}
	})

	t.Run("writes after Close are kept and not spilled", func(t *testing.T) {
		w := NewWindow(Options{Limit: 10, SpillDir: t.TempDir()})
		io.WriteString(w, "0123456789a")
		w.Close()
		io.WriteString(w, "bcdef")
		if err := w.Err(); err != nil {
			t.Error(err)
		}
		if got := string(w.Bytes()); got != "0123abcdef" || w.Total() != 16 {
			t.Errorf("kept %q of %d", got, w.Total())
		}
		if got, _ := os.ReadFile(w.File()); string(got) != "0123456789a" {
			t.Errorf("file has %q", got)
		}
	})
}

func TestWindowIsSafeForConcurrentUse(t *testing.T) {
	w := NewWindow(Options{Limit: 1000, SpillDir: t.TempDir()})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range 200 {
				fmt.Fprintf(w, "line %d\n", i)
			}
		})
		group.Go(func() {
			for range 50 {
				_, _, _, _ = w.Bytes(), w.Head(), w.Tail(), w.Total()
				_, _, _, _ = w.Truncated(), w.File(), w.FileCapped(), w.Err()
			}
		})
	}
	group.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(w.File())
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(got)) != w.Total() || bytes.Count(got, []byte("\n")) != 800 {
		t.Errorf("file has %d of %d bytes", len(got), w.Total())
	}
	if !bytes.HasSuffix(got, w.Tail()) || !bytes.HasPrefix(got, w.Head()) {
		t.Error("file and memory disagree")
	}
}

func TestClean(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	old, young := now.Add(-8*24*time.Hour), now.Add(-6*24*time.Hour)
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "out-x-0123456789abcdef.log")
	write := func(path string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write(outside, old)
	write(filepath.Join(dir, "out-old-0123456789abcdef.log"), old)
	write(filepath.Join(dir, "out--0123456789abcdef.log"), old)
	write(filepath.Join(dir, "out-young-0123456789abcdef.log"), young)
	write(filepath.Join(dir, "out-mine.log"), old)
	write(filepath.Join(dir, "notes.txt"), old)
	if err := os.Symlink(outside, filepath.Join(dir, "out-link-0123456789abcdef.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "out-dir-0123456789abcdef.log"), 0o700); err != nil {
		t.Fatal(err)
	}

	removed, err := Clean(dir, DefaultMaxAge, now)
	if err != nil || removed != 2 {
		t.Fatalf("removed %d, error %v", removed, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{
		"notes.txt", "out-dir-0123456789abcdef.log", "out-link-0123456789abcdef.log", "out-mine.log",
		"out-young-0123456789abcdef.log",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}

	t.Run("a window's own file is found when it is old", func(t *testing.T) {
		dir := t.TempDir()
		w := NewWindow(Options{Limit: 1, SpillDir: dir, Name: strings.Repeat("../", 100)})
		io.WriteString(w, "abc")
		w.Close()
		if removed, err := Clean(dir, DefaultMaxAge, time.Now()); removed != 0 || err != nil {
			t.Fatalf("removed %d, error %v", removed, err)
		}
		if removed, err := Clean(dir, DefaultMaxAge, time.Now().Add(DefaultMaxAge+time.Hour)); removed != 1 || err != nil {
			t.Fatalf("removed %d, error %v", removed, err)
		}
	})
	t.Run("a missing directory is clean", func(t *testing.T) {
		if removed, err := Clean(filepath.Join(dir, "none"), 0, now); removed != 0 || err != nil {
			t.Fatalf("removed %d, error %v", removed, err)
		}
	})
	t.Run("a symbolic link to a directory is refused", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Dir(outside), link); err != nil {
			t.Fatal(err)
		}
		if removed, err := Clean(link, 0, now); removed != 0 || err == nil {
			t.Fatalf("removed %d, error %v", removed, err)
		}
	})
}

func FuzzWindow(f *testing.F) {
	f.Add([]byte("abcdefghijklmnop"), uint8(10), uint8(3))
	f.Add([]byte("é\xff\xc3"), uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, limit, chunk uint8) {
		w := NewWindow(Options{Limit: int64(limit)})
		for rest := data; len(rest) > 0; {
			n := min(int(chunk)+1, len(rest))
			w.Write(rest[:n])
			rest = rest[n:]
		}
		kept := w.Bytes()
		if held := cap(w.head) + cap(w.tail); held > int(limit) {
			t.Fatalf("%d bytes of memory for a limit of %d", held, limit)
		}
		switch {
		case limit == 0:
			if len(kept) != 0 || w.Truncated() {
				t.Fatal("a window without a limit kept something")
			}
		case len(data) <= int(limit):
			if !bytes.Equal(kept, data) || w.Truncated() {
				t.Fatal("what fits was changed")
			}
		default:
			if !w.Truncated() || len(kept) > int(limit) || len(kept) < int(limit)-6 {
				t.Fatalf("kept %d of limit %d", len(kept), limit)
			}
			if !bytes.HasPrefix(data, w.Head()) || !bytes.HasSuffix(data, w.Tail()) {
				t.Fatal("not head and tail")
			}
		}
	})
}

func BenchmarkWindow(b *testing.B) {
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 4096) // 64 KiB
	const chunks = 1 << 30 / (64 << 10)
	b.Run("memcpy of 1 GiB into 64 MiB", func(b *testing.B) {
		into := make([]byte, DefaultLimit)
		b.SetBytes(1 << 30)
		for b.Loop() {
			for i := range chunks {
				at := i * len(chunk) % DefaultLimit
				copy(into[at:], chunk)
			}
		}
	})
	b.Run("1 GiB without a file", func(b *testing.B) {
		b.SetBytes(1 << 30)
		for b.Loop() {
			w := NewWindow(Options{Limit: DefaultLimit})
			for range chunks {
				w.Write(chunk)
			}
			w.Close()
		}
	})
	b.Run("1 GiB with a file of 100 MiB", func(b *testing.B) {
		dir := b.TempDir()
		b.SetBytes(1 << 30)
		for b.Loop() {
			w := NewWindow(Options{Limit: DefaultLimit, SpillDir: dir})
			for range chunks {
				w.Write(chunk)
			}
			w.Close()
			os.Remove(w.File())
		}
	})
	b.Run("one line", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w := NewWindow(Options{Limit: DefaultLimit, SpillDir: "unused"})
			w.Write([]byte("hello\n"))
			w.Close()
		}
	})
}

func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != want {
		t.Errorf("%s has mode %v", filepath.Base(path), info.Mode().Perm())
	}
}
