//go:build unix

package privatedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestCreate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		refused bool
	}{
		{"a missing directory is made with its parents", func(*testing.T, string) {}, false},
		{"a directory that others can read is made private", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Chmod(dir, 0o755))
		}, false},
		{"a directory with the sticky bit is refused and left as it is", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(dir, 0o755))
			must(t, os.Chmod(dir, 0o777|fs.ModeSticky))
		}, true},
		{"a symbolic link to a directory is refused", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
			must(t, os.Symlink(t.TempDir(), dir))
		}, true},
		{"a file is refused", func(t *testing.T, dir string) {
			must(t, os.MkdirAll(filepath.Dir(dir), 0o755))
			must(t, os.WriteFile(dir, nil, 0o600))
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home", "elsewhere")
			tc.prepare(t, dir)
			before, _ := os.Lstat(dir)
			root, err := Create(dir)
			if (err != nil) != tc.refused {
				t.Fatalf("Create: error %v, refused should be %v", err, tc.refused)
			}
			info, statErr := os.Lstat(dir)
			must(t, statErr)
			if err != nil {
				if info.Mode() != before.Mode() {
					t.Errorf("mode changed from %v to %v", before.Mode(), info.Mode())
				}
				return
			}
			defer root.Close()
			if info.Mode().Perm() != 0o700 {
				t.Errorf("mode is %v", info.Mode())
			}
		})
	}
}

func TestOpen(t *testing.T) {
	t.Run("a missing directory is reported as such", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("an existing directory keeps its mode", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o755))
		root, err := Open(dir)
		must(t, err)
		defer root.Close()
		if info, _ := os.Stat(dir); info.Mode().Perm() != 0o755 {
			t.Errorf("mode is %v", info.Mode())
		}
	})
}

func TestOpenFile(t *testing.T) {
	const flag = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, path string)
		refused bool
	}{
		{"a missing file is made", func(*testing.T, string) {}, false},
		{"a file that others can read is made private", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, nil, 0o644))
			must(t, os.Chmod(path, 0o644))
		}, false},
		{"a symbolic link inside the directory is refused", func(t *testing.T, path string) {
			must(t, os.WriteFile(path+".other", nil, 0o600))
			must(t, os.Symlink(filepath.Base(path)+".other", path))
		}, true},
		{"a symbolic link that leads nowhere is refused", func(t *testing.T, path string) {
			must(t, os.Symlink("nowhere", path))
		}, true},
		{"a pipe is refused at once", func(t *testing.T, path string) {
			must(t, syscall.Mkfifo(path, 0o600))
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			tc.prepare(t, path)
			root, err := Open(dir)
			must(t, err)
			defer root.Close()
			file, err := OpenFile(root, "f", flag)
			if tc.refused {
				if !errors.Is(err, ErrNotRegular) {
					t.Fatalf("error %v", err)
				}
				return
			}
			must(t, err)
			defer file.Close()
			if info, _ := file.Stat(); info.Mode().Perm() != 0o600 {
				t.Errorf("mode is %v", info.Mode())
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
