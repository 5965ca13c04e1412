//go:build linux

package ssh_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// TestControlFilesDoNotGather: homes whose paths are too long for a socket share one directory, in which nothing stays of those that
// are gone, of destinations that nobody uses any more and of runs that keep nothing.
func TestControlFilesDoNotGather(t *testing.T) {
	port(t, "main")
	temp, err := os.MkdirTemp("/tmp", "sshtest-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(temp)) })
	t.Setenv("TMPDIR", temp)
	dir := filepath.Join(temp, "elsewhere-ssh-"+strconv.Itoa(os.Getuid()))
	// The locks are named by destination and home.
	locks := func() []string {
		t.Helper()
		dirs, err := filepath.Glob(temp + "/elsewhere-ssh*")
		if must(t, err); len(dirs) != 1 || dirs[0] != dir {
			t.Errorf("directories: %q", dirs)
		}
		files, err := filepath.Glob(dir + "/*.connect")
		must(t, err)
		return files
	}
	b := newBench(t, "main", "dash")
	long := func(name string) {
		b.home = filepath.Join(t.TempDir(), name+strings.Repeat("x", 60))
		b.environ = append(b.environ, "HERMES_HOME="+b.home)
	}
	use := func(sb *elsewhere.Sandbox) { b.want(b.session(sb), `echo fine`, "fine\n") }
	once := func(opts *elsewhere.SandboxOptions) {
		t.Helper()
		opts.Environ = b.environ
		sb, err := elsewhere.OpenSandbox(t.Context(), b.config(), opts)
		must(t, err)
		use(sb)
		must(t, sb.Close(t.Context()))
	}
	long("first")
	once(&elsewhere.SandboxOptions{})
	first, home := locks(), b.home
	long("second")
	used := b.open()
	use(used)
	both := locks()
	if len(first) != 1 || len(both) != 2 {
		t.Fatalf("of two homes: %q, %q", first, both)
	}
	second := slices.DeleteFunc(slices.Clone(both), func(file string) bool { return file == first[0] })

	once(&elsewhere.SandboxOptions{ThrowAway: true})
	if now := locks(); !slices.Equal(now, both) {
		t.Errorf("after a run that keeps nothing: %q, was %q", now, both)
	}

	must(t, os.RemoveAll(home))
	for _, file := range second { // old, but its connection is in use
		old := time.Now().Add(-100 * time.Hour)
		must(t, os.Chtimes(file, old, old))
	}
	long("third")
	once(&elsewhere.SandboxOptions{})
	third := locks()
	if len(third) != 2 || slices.Contains(third, first[0]) || !slices.Contains(third, second[0]) {
		t.Errorf("after one home has gone: %q, was %q", third, both)
	}
	use(used)
	must(t, used.Close(t.Context()))
	long("fourth")
	once(&elsewhere.SandboxOptions{})
	if now := locks(); len(now) != 2 || slices.Contains(now, second[0]) {
		t.Errorf("after nobody has connected for long: %q, was %q", now, third)
	}
	left, err := filepath.Glob(dir + "/" + strings.TrimSuffix(filepath.Base(second[0]), ".connect") + "*")
	if must(t, err); len(left) > 0 {
		t.Errorf("left of it: %q", left)
	}
}
