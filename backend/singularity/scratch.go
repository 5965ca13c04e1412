//go:build linux

package singularity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// scratchRoot is the directory where clusters have their fast disk.
const scratchRoot = "/scratch"

// scratchDir gives the directory for overlays, homes and built images: scratch_dir, sandbox_dir/singularity, the user's
// place below /scratch where that can be written to, HERMES_HOME/sandboxes/singularity; without a home, a directory of the
// user's own below the system's temp directory. It exists afterwards, with mode 0700 where it was made. A configured one
// that cannot be used is an error: data would lie where nobody looks for it.
func scratchDir(cfg driver.Config, hermesHome, user, root string) (string, error) {
	if dir := cfg.String("scratch_dir"); dir != "" {
		return configured("scratch_dir", dir)
	}
	if dir := cfg.String("sandbox_dir"); dir != "" {
		return configured("sandbox_dir", filepath.Join(dir, name))
	}
	if st, err := os.Stat(root); err == nil && st.IsDir() && unix.Access(root, unix.W_OK|unix.X_OK) == nil {
		dir := filepath.Join(root, user, "hermes-agent")
		if usable(dir) == nil {
			return dir, nil
		}
	} else if dir := filepath.Join(root, user); unix.Access(dir, unix.W_OK|unix.X_OK) == nil {
		// Where /scratch itself belongs to root, each user often has a directory there.
		if dir = filepath.Join(dir, "hermes-agent"); usable(dir) == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), "elsewhere-singularity-"+strconv.Itoa(os.Geteuid()))
	if hermesHome != "" {
		dir = filepath.Join(hermesHome, "sandboxes", name)
	}
	if err := usable(dir); err != nil {
		return "", failure(driver.KindUnavailable, "%s cannot be used (%w): set terminal.scratch_dir (TERMINAL_SCRATCH_DIR) to a directory with room", dir, err)
	}
	return dir, nil
}

func configured(key, dir string) (string, error) {
	if err := usable(dir); err != nil {
		return "", failure(driver.KindConfig, "terminal.%s: %s cannot be used: %w; choose a directory with room that you may write to", key, dir, err)
	}
	return dir, nil
}

// usable makes the directory where it is not there and tells whether it can be written to. One in everybody's temp
// directory that is another's is refused.
func usable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if strings.ContainsRune(dir, ':') {
		return errors.New("the engine takes no overlay whose path holds a colon")
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if filepath.Dir(dir) == filepath.Clean(os.TempDir()) && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to the user %d", st.Uid)
	}
	return nil
}
