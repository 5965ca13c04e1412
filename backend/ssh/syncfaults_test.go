//go:build linux

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// project is a directory of this machine that is synchronised, with some of all sizes: 48 MiB that do not compress.
func project(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 24 {
		sub := filepath.Join(dir, fmt.Sprint("part", i%3))
		must(t, os.MkdirAll(sub, 0o755))
		must(t, os.WriteFile(filepath.Join(sub, fmt.Sprint("file", i)), []byte(noise(uint64(i), 1<<20)), 0o644))
	}
	must(t, os.WriteFile(filepath.Join(dir, "whole"), []byte(noise(30, 24<<20)), 0o644))
	return dir
}

// contents are the files below a directory, without those that are on their way.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if !strings.Contains(rel, ".elsewhere-sync-") {
			all[rel] = content(t, path)
		}
		return nil
	}))
	return all
}

func sameFiles(t testing.TB, what string, got, want map[string]string) {
	t.Helper()
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %s is not what was sent: %d bytes of %d", what, name, len(got[name]), len(text))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d files, want %d", what, len(got), len(want))
	}
}

// TestSyncFaults breaks the connection in the middle of a sync, in every way: it fails within the keepalive time, what is there is
// as it was, and the next one goes on from what arrived.
func TestSyncFaults(t *testing.T) {
	for _, f := range []struct {
		name string
		hurt func(b *bench, r *relay)
	}{
		{"the link is cut", func(_ *bench, r *relay) { r.cut() }},
		{"the link goes silent", func(_ *bench, r *relay) { r.stall() }},
		{"the server's half of the link is closed", func(_ *bench, r *relay) { r.halfClose() }},
		{"the master is killed", func(b *bench, _ *relay) { b.signal(syscall.SIGKILL) }},
		{"the master is stopped", func(b *bench, _ *relay) { b.signal(syscall.SIGSTOP) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			b := newBench(t, "main", "dash")
			r := newRelay(t, b.settings["ssh_port"])
			b.settings["ssh_port"] = r.port()
			b.a.write(t, "project/whole", "before")
			before := contents(t, filepath.Join(b.a.home, "project"))
			sb := b.open()
			src := project(t)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			var once sync.Once
			var hurt time.Time
			options := elsewhere.SyncOptions{Local: src, Remote: "project", Force: true, Progress: func(p elsewhere.TransferProgress) {
				if p.Bytes >= p.AllBytes/2 {
					once.Do(func() {
						f.hurt(b, r)
						hurt = time.Now()
					})
				}
			}}
			done, err := sb.Sync(ctx, options)
			if err == nil {
				t.Fatalf("a sync over a broken connection is said to be whole: %+v", done)
			}
			if d := time.Since(hurt); hurt.IsZero() || d > silence+allowance {
				t.Errorf("it was noticed after %v: %v", d, err)
			}
			if own, ok := errors.AsType[*elsewhere.Error](err); !ok || !errors.Is(err, elsewhere.ErrLost) || !strings.Contains(own.Hint, "repeat it") {
				t.Errorf("it does not say what happened, or what to do: %v", err)
			}
			t.Logf("after %v: %v", time.Since(hurt).Round(time.Millisecond), err)
			sameFiles(t, "after the break", contents(t, filepath.Join(b.a.home, "project")), before)
			options.Progress = nil
			done, err = sb.Sync(ctx, options)
			must(t, err)
			if len(done.Skipped)+len(done.Conflicts) > 0 || !done.Resumed {
				t.Errorf("resumed %v, skipped %v, conflicts %v", done.Resumed, done.Skipped, done.Conflicts)
			}
			sameFiles(t, "afterwards", contents(t, filepath.Join(b.a.home, "project")), contents(t, src))
			if left, _ := filepath.Glob(filepath.Join(b.a.home, "project", ".elsewhere-sync-*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestSyncOntoAFullDisk: nothing there is changed, and the error says what is the matter.
func TestSyncOntoAFullDisk(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.a.write(t, "small/whole", "before")
	dir := filepath.Join(b.a.home, "small")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m,mode=700,uid="+b.a.uid+",gid="+b.a.gid, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %s", out)
	}
	t.Cleanup(func() {
		b.a.EndAll()
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	b.a.write(t, "small/whole", "before")
	sb := b.open()
	src := project(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	options := elsewhere.SyncOptions{Local: src, Remote: "small", Force: true}
	if done, err := sb.Sync(ctx, options); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("%+v, %v", done, err)
	}
	sameFiles(t, "on the full disk", contents(t, dir), map[string]string{"whole": "before"})
	must(t, os.Remove(filepath.Join(src, "whole")))
	must(t, os.RemoveAll(filepath.Join(src, "part0")))
	must(t, os.RemoveAll(filepath.Join(src, "part1")))
	done, err := sb.Sync(ctx, options)
	must(t, err)
	if len(done.Skipped) > 0 {
		t.Errorf("skipped: %v", done.Skipped)
	}
	want := contents(t, src)
	want["whole"] = "before"
	sameFiles(t, "with room", contents(t, dir), want)
}

// TestSyncWithAnotherTar: BSD tar first on the PATH there, as on a Mac.
func TestSyncWithAnotherTar(t *testing.T) {
	bsdtar, err := exec.LookPath("bsdtar")
	if err != nil {
		t.Skip("no bsdtar here")
	}
	b := newBench(t, "main", "dash")
	b.a.write(t, "bin/tar", "#!/bin/sh\necho x >>"+b.a.home+"/tarred\nexec "+bsdtar+" \"$@\"\n")
	must(t, os.Chmod(filepath.Join(b.a.home, "bin/tar"), 0o700))
	b.a.option(t, `environment="PATH=`+b.a.home+`/bin:/usr/local/bin:/usr/bin:/bin"`)
	sb := b.open()
	src, back := project(t), t.TempDir()
	for _, name := range []string{"-rf", "new\nline", "quote's \"both\"", "unit\x1fseparator", "été"} {
		must(t, os.WriteFile(filepath.Join(src, "part1", name), []byte(name), 0o644))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	options := elsewhere.SyncOptions{Local: src, Remote: "project", Delete: true}
	for round := range 2 {
		done, err := sb.Sync(ctx, options)
		must(t, err)
		if len(done.Skipped)+len(done.Conflicts) > 0 {
			t.Errorf("skipped %v, conflicts %v", done.Skipped, done.Conflicts)
		}
		sameFiles(t, fmt.Sprint("round ", round), contents(t, filepath.Join(b.a.home, "project")), contents(t, src))
		if round == 0 {
			must(t, os.WriteFile(filepath.Join(src, "part1/été"), []byte("changed"), 0o644))
			must(t, os.Remove(filepath.Join(src, "part0/file0")))
			must(t, os.WriteFile(filepath.Join(src, "part2/file2"), []byte("changed too"), 0o644))
		}
	}
	if b.size("tarred") < 2 {
		t.Fatal("this tar was not used: the test proves nothing")
	}
	_, err = sb.Download(ctx, "project/.", back, nil)
	must(t, err)
	sameFiles(t, "back", contents(t, back), contents(t, filepath.Join(b.a.home, "project")))
}
