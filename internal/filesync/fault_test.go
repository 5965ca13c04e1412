//go:build unix

package filesync

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// small mounts a file system of this size; it is gone with the test.
func small(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	return dir
}

func TestAFullDiskThere(t *testing.T) {
	for name, flavour := range flavours(t) {
		t.Run(name, func(t *testing.T) {
			p, src, _ := pairHere(t, flavour, true)
			p.Far = small(t, "8m")
			write(t, filepath.Join(p.Far, "a"), "theirs")
			write(t, filepath.Join(src, "a"), "source")
			write(t, filepath.Join(src, "b"), noise(1, 6<<20))
			write(t, filepath.Join(src, "c"), noise(2, 6<<20))
			done, err := p.Sync(t.Context())
			if err == nil || !strings.Contains(err.Error(), "space") {
				t.Fatalf("%+v, %v", done, err)
			}
			for _, name := range []string{"b", "c"} {
				if info, err := os.Stat(filepath.Join(p.Far, name)); err == nil && info.Size() != 6<<20 {
					t.Errorf("%s is half written", name)
				}
			}
			must(t, os.Remove(filepath.Join(src, "c")))
			done, err = p.Sync(t.Context())
			if err != nil || len(done.Skipped) > 0 {
				t.Fatalf("%+v, %v", done, err)
			}
			if b, _ := os.ReadFile(filepath.Join(p.Far, "b")); string(b) != noise(1, 6<<20) {
				t.Error("b is not what was sent")
			}
			if got := names(t, p.Far); len(got) != 2 {
				t.Errorf("left: %q", got)
			}
		})
	}
}

func TestAFullDiskHere(t *testing.T) {
	p, src, _ := pairHere(t, &bashHere{}, false)
	p.Near = small(t, "4m")
	write(t, filepath.Join(src, "a"), noise(1, 6<<20))
	if done, err := p.Sync(t.Context()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := names(t, p.Near); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestAFileThatChangesWhileItIsSent(t *testing.T) {
	for _, size := range []int{100 << 10, 8 << 20, 40 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			if testing.Short() && size > 8<<20 {
				t.Skip("short: waits long")
			}
			p, src, dst := pairHere(t, &bashHere{}, true)
			write(t, filepath.Join(src, "steady"), "steady")
			file := filepath.Join(src, "new", "log") // its directory goes as a whole where it can
			write(t, file, noise(1, size))
			stop := make(chan struct{})
			var writer sync.WaitGroup
			writer.Go(func() {
				f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				for {
					select {
					case <-stop:
						return
					default:
						if _, err := f.WriteString("another line\n"); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
			done, err := p.Sync(t.Context())
			close(stop)
			writer.Wait()
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(filepath.Join(dst, "steady")); err != nil || string(b) != "steady" {
				t.Error(string(b), err)
			}
			// Either it was caught whole, or not at all and said.
			if b, err := os.ReadFile(filepath.Join(dst, "new", "log")); err == nil {
				if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), string(b)) || len(b) < size {
					t.Error("half of it was sent")
				}
			} else if len(done.Skipped) != 1 || done.Skipped[0].Path != "new/log" {
				t.Errorf("skipped: %v", done.Skipped)
			}
			if done := syncPair(t, p); len(done.Skipped) > 0 {
				t.Errorf("the next time: %v", done.Skipped)
			}
			if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
				t.Errorf("%.1000s", diff)
			}
		})
	}
}

func TestTwoProcessesSyncOnePair(t *testing.T) {
	p, src, dst := pairHere(t, &bashHere{}, true)
	for i := range 200 {
		write(t, filepath.Join(src, fmt.Sprint("d", i%7), fmt.Sprint(i)), fmt.Sprint("content ", i))
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			q := *p
			if done, err := q.Sync(t.Context()); err != nil || len(done.Conflicts)+len(done.Skipped) > 0 {
				t.Errorf("%+v %v", done, err)
			}
		})
	}
	all.Wait()
	if diff := cmp.Diff(tree(t, src), tree(t, dst)); diff != "" {
		t.Error(diff)
	}
}

func TestSparseFilesStaySparse(t *testing.T) {
	for name, remote := range flavours(t) {
		t.Run(name, func(t *testing.T) {
			size := int64(64 << 20)
			if name == "gnu" && !testing.Short() {
				size = 2 << 30
			}
			src, dst := filepath.Join(t.TempDir(), "sparse"), t.TempDir()
			f, err := os.Create(src)
			must(t, err)
			must(t, f.Truncate(size))
			for at, text := range map[int64]string{0: "head", size / 2: "middle", size - 4: "tail"} {
				_, err := f.WriteAt([]byte(text), at)
				must(t, err)
			}
			must(t, f.Close())
			before := heap()
			c := &Copy{Remote: remote, Near: src, Far: dst + "/there", ID: "me"}
			if done, err := c.To(t.Context()); err != nil || len(done.Skipped) > 0 {
				t.Fatal(done, err)
			}
			c.Near = dst + "/back"
			if done, err := c.From(t.Context()); err != nil || len(done.Skipped) > 0 {
				t.Fatal(done, err)
			}
			if grown := heap() - before; grown > 64<<20 {
				t.Errorf("the heap grew by %d MiB", grown>>20)
			}
			want := hashOf(t, src)
			for _, name := range []string{"there", "back"} {
				info, err := os.Stat(filepath.Join(dst, name))
				if err != nil || info.Size() != size {
					t.Fatal(info, err)
				}
				if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 20<<20 {
					t.Errorf("%s takes %d MiB", name, used>>20)
				}
				if hashOf(t, filepath.Join(dst, name)) != want {
					t.Errorf("%s has another content", name)
				}
			}
		})
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys)
}

func hashOf(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	token, _, err := newNearItem(path, info).token()
	must(t, err)
	return token
}

func TestManySmallFiles(t *testing.T) {
	count := 20000
	if testing.Short() {
		count = 2000
	}
	p, src, dst := pairHere(t, &bashHere{}, true)
	for i := range count {
		dir := filepath.Join(src, fmt.Sprint("dir", i%100))
		if i < 100 {
			must(t, os.Mkdir(dir, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), fmt.Appendf(nil, "content of %d", i), 0o644))
	}
	step := func(what string, sent int) {
		t.Helper()
		began := time.Now()
		done := syncPair(t, p)
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
		if len(done.Skipped)+len(done.Conflicts) > 0 || len(done.Sent) != sent {
			t.Fatalf("%s: %d sent, want %d; skipped %.3v, conflicts %.3v", what, len(done.Sent), sent, done.Skipped, done.Conflicts)
		}
	}
	step("first", count+100)
	step("unchanged", 0)
	for i := range count / 100 {
		must(t, os.WriteFile(filepath.Join(src, fmt.Sprint("dir", i%100), fmt.Sprint("file", i)), []byte("changed"), 0o644))
	}
	step("1 % changed", count/100)
	if a, b := tree(t, src), tree(t, dst); !cmp.Equal(a, b) {
		t.Error("the trees differ")
	}
}

func TestWithoutTarItSaysSo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"bash", "stat", "sha256sum", "xargs", "mkdir", "rm"} {
		path, err := exec.LookPath(name)
		must(t, err)
		must(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	src := filepath.Join(t.TempDir(), "x")
	write(t, src, "x")
	c := &Copy{Remote: &bashHere{path: dir, only: true}, Near: src, Far: t.TempDir() + "/x", ID: "me"}
	if _, err := c.To(t.Context()); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "tar") {
		t.Fatal(err)
	}
}

// TestBig: a file of 2 GiB without holes, in little memory.
func TestBig(t *testing.T) {
	if testing.Short() {
		t.Skip("short: moves 2 GiB")
	}
	const size = 2<<30 + 12345
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	f, err := os.Create(src)
	must(t, err)
	sent := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sent), rand.NewChaCha8([32]byte{1}), size)
	must(t, errors.Join(err, f.Close()))
	want := fileToken(sent.Sum(nil))
	before := heap()
	c := &Copy{Remote: &bashHere{}, Near: src, Far: dir + "/there", ID: "me"}
	if done, err := c.To(t.Context()); err != nil || len(done.Skipped) > 0 || done.Bytes != size {
		t.Fatal(done, err)
	}
	if hashOf(t, filepath.Join(dir, "there")) != want {
		t.Error("what is there is not what was sent")
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}
