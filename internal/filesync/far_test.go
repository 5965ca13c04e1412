//go:build unix

package filesync

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// bashHere is this machine as the far side: each bash is a real one, with PATH in front of the caller's.
type bashHere struct {
	path string // in front of PATH
	only bool   // nothing behind it

	mu    sync.Mutex
	calls int
	// cut, where not 0, ends the bash when this many bytes were written to its stdin.
	cut int64
}

type bashProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	err    io.ReadCloser
	done   chan struct{}
	status driver.ExitStatus
}

func (b *bashHere) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *bashHere) Bash(_ context.Context, spec driver.BashSpec) (driver.Process, error) {
	b.mu.Lock()
	b.calls++
	cut := b.cut
	b.mu.Unlock()
	cmd := exec.Command("bash", spec.Args...)
	path := os.Getenv("PATH")
	if b.only {
		path = b.path
	} else if b.path != "" {
		path = b.path + ":" + path
	}
	cmd.Env = append(append(os.Environ(), "PATH="+path), spec.Env...)
	p := &bashProcess{cmd: cmd, done: make(chan struct{})}
	// Pipes of our own: Wait must not close what is still read.
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			panic(err)
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
	p.in, p.out, p.err = inW, outR, errR
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for _, f := range []*os.File{inR, outW, errW} {
		_ = f.Close()
	}
	if cut > 0 {
		p.in = &cutWriter{WriteCloser: inW, p: p, left: cut}
	}
	go func() {
		_ = cmd.Wait()
		p.status = driver.ExitStatus{Code: cmd.ProcessState.ExitCode()}
		close(p.done)
	}()
	return p, nil
}

// cutWriter is a link that breaks: both directions, in the middle of a write.
type cutWriter struct {
	io.WriteCloser
	p    *bashProcess
	left int64
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n := min(int64(len(b)), w.left)
	k, err := w.WriteCloser.Write(b[:n])
	w.left -= int64(k)
	if err == nil && w.left == 0 {
		_ = w.p.out.Close()
		_ = w.WriteCloser.Close()
		err = io.ErrClosedPipe
	}
	return k, err
}

func (p *bashProcess) Stdin() io.WriteCloser { return p.in }
func (p *bashProcess) Stdout() io.ReadCloser { return p.out }
func (p *bashProcess) Stderr() io.ReadCloser { return p.err }
func (p *bashProcess) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-p.done:
		return p.status, nil
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}
func (p *bashProcess) Kill(context.Context) error { return p.cmd.Process.Kill() }

// tree describes what is below a directory: "mode type content" by name.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String() + " "
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += string(data)
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(p)
			text += "-> " + target
		}
		all[rel] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// oddNames are names that have hurt somebody.
var oddNames = []string{
	"plain", "with space", " leading", "trailing ", "-rf", "--help", "a; touch pwned #", "$(touch pwned)", "new\nline", "unit\x1fsep", "unit\x1f5",
	"\n", "back\\slash", "back\\nslash", "tab\there", "quote\"'", "*", "?", "[a]", "~", "..x", "x..", "...", "invalid\xff\xfeutf8", "ünïcödé",
	"pipe|bar", "a|b|c//", "cr\rhere", "%s%n", "@file", "{a,b}", "!x", strings.Repeat("n", 250), "d/-x", "d/new\nline", "d/in\\x/y", "empty",
}

func writeOdd(t *testing.T, dir string) {
	t.Helper()
	for _, name := range oddNames {
		content := "content of " + name
		if name == "empty" {
			content = ""
		}
		write(t, filepath.Join(dir, name), content)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// flavours are the programs that a far side may have.
func flavours(t *testing.T) map[string]*bashHere {
	all := map[string]*bashHere{"gnu": {}}
	if p, err := exec.LookPath("bsdtar"); err == nil {
		dir := t.TempDir()
		if err := os.Symlink(p, filepath.Join(dir, "tar")); err != nil {
			t.Fatal(err)
		}
		all["bsdtar"] = &bashHere{path: dir}
	} else {
		t.Log("no bsdtar")
	}
	if p, err := exec.LookPath("busybox"); err == nil {
		dir := t.TempDir()
		out, err := exec.Command(p, "--list").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			if name != "sh" && name != "bash" && name != "ash" {
				_ = os.Symlink(p, filepath.Join(dir, name))
			}
		}
		bash, _ := exec.LookPath("bash")
		_ = os.Symlink(bash, filepath.Join(dir, "bash"))
		all["busybox"] = &bashHere{path: dir, only: true}
	} else {
		t.Log("no busybox")
	}
	return all
}

func TestCopyThereAndBack(t *testing.T) {
	for name, remote := range flavours(t) {
		t.Run(name, func(t *testing.T) {
			src, there, back := filepath.Join(t.TempDir(), "src"), t.TempDir(), t.TempDir()
			writeOdd(t, src)
			for _, dir := range []string{"hollow", "closed"} {
				if err := os.MkdirAll(filepath.Join(src, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			write(t, filepath.Join(src, "closed/inside"), "x")
			write(t, filepath.Join(src, "tool"), "#!/bin/sh\n")
			write(t, filepath.Join(src, "medium"), strings.Repeat("m", 3<<20))
			write(t, filepath.Join(src, "big"), strings.Repeat("0123456789abcdef", 20<<16))
			for p, mode := range map[string]os.FileMode{"closed": 0o555, "tool": 0o755, "plain": 0o600, "empty": 0o400} {
				if err := os.Chmod(filepath.Join(src, p), mode); err != nil {
					t.Fatal(err)
				}
			}
			for _, target := range []string{"plain", "/etc/passwd", "../../out", "new\nline\n", "bad\xff"} {
				if err := os.Symlink(target, filepath.Join(src, "link to "+strings.ReplaceAll(target, "/", "_"))); err != nil {
					t.Fatal(err)
				}
			}
			want := tree(t, src)
			c := &Copy{Remote: remote, Near: src, Far: there + "/made/on the way/dst", ID: "me"}
			done, err := c.To(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(done.Skipped) > 0 || done.Files != len(want)+1 {
				t.Errorf("skipped %v, %d files, want %d", done.Skipped, done.Files, len(want)+1)
			}
			if diff := cmp.Diff(want, tree(t, c.Far)); diff != "" {
				t.Errorf("there (-want +got):\n%s", diff)
			}
			if left := names(t, filepath.Dir(c.Far)); !slices.Equal(left, []string{"dst"}) {
				t.Errorf("left beside it: %q", left)
			}
			c.Near = back
			if done, err = c.From(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(done.Skipped) > 0 {
				t.Errorf("skipped %v", done.Skipped)
			}
			if diff := cmp.Diff(want, tree(t, filepath.Join(back, "dst"))); diff != "" {
				t.Errorf("back (-want +got):\n%s", diff)
			}
			if left := names(t, back); !slices.Equal(left, []string{"dst"}) {
				t.Errorf("left beside it: %q", left)
			}
			// Once more over what is there.
			if done, err = c.From(t.Context()); err != nil || len(done.Skipped) > 0 {
				t.Fatal(done, err)
			}
			c.Near = src
			c.Far += "/.."
			if done, err = c.To(t.Context()); err != nil || len(done.Skipped) > 0 {
				t.Fatal(done, err)
			}
		})
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
