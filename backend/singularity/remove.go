//go:build linux

package singularity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// removeTimeout bounds the removal of a tree that takes another process.
const removeTimeout = 2 * time.Minute

// removeTree removes a directory whatever it holds: directories without permissions, as overlays have them, and files of
// subordinate ids, which only a process with those ids may remove. One that is not there is no error.
func removeTree(ctx context.Context, dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			if st, serr := d.Info(); serr == nil && st.Mode().Perm()&0o700 != 0o700 {
				_ = os.Chmod(path, 0o700)
				if err != nil && path != dir {
					return nil // could not be read before; RemoveAll can now
				}
			}
		}
		return nil
	})
	if err = os.RemoveAll(dir); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	var said []string
	// Each maps the user's subordinate ids: util-linux with newuidmap, then podman or buildah where they are.
	for _, argv := range [][]string{
		{"unshare", "--map-root-user", "--map-auto", "--", "rm", "-rf", "--", dir},
		{"podman", "unshare", "rm", "-rf", "--", dir},
		{"buildah", "unshare", "rm", "-rf", "--", dir},
	} {
		path, lerr := exec.LookPath(argv[0])
		if lerr != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, argv[1:]...)
		cmd.Dir, cmd.WaitDelay = "/", time.Second
		out, rerr := cmd.CombinedOutput()
		if _, lerr := os.Lstat(dir); errors.Is(lerr, fs.ErrNotExist) {
			return nil
		}
		said = append(said, strings.TrimSpace(argv[0]+": "+strings.TrimSpace(firstLine(string(out)))+" "+fmt.Sprint(rerr)))
	}
	return fmt.Errorf("%s cannot be removed (%w; %s): it holds files of other user ids; `unshare --map-root-user --map-auto rm -rf %s` removes those of your own subordinate ids", dir, err, strings.Join(said, "; "), dir)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
