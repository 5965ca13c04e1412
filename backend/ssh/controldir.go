package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
)

// maxSocket is how long the path of a control socket may be: the least that systems take is 104 bytes with the final NUL
// (macOS, BSD), of which ssh takes 17 for the name under which it binds first.
const maxSocket = 104 - 1 - 17

// socketName is as long as every name in the directory that ssh binds: ten digits, a dash and eight digits.
const socketName = "0123456789-01234567"

// controlDir makes the directory for control sockets, 0700 and this user's own: the first of the places whose path is short
// enough and free of characters that ssh would expand. A throw-away run has one of its own (temp), which goes on close.
func controlDir(home string, environ []string) (dir string, temp bool, err error) {
	if home == "" {
		return ownControlDir()
	}
	sum := sha256.Sum256([]byte(home))
	short := "elsewhere-ssh-" + hex.EncodeToString(sum[:4])
	places := []string{filepath.Join(home, "elsewhere", "ssh")}
	if run := value(environ, "XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		places = append(places, filepath.Join(run, short))
	}
	places = append(places, filepath.Join(os.TempDir(), short), filepath.Join("/tmp", short))
	var errs []error
	for _, place := range places {
		if err := usableFor(place); err != nil {
			errs = append(errs, err)
			continue
		}
		root, err := privatedir.Create(place)
		if err == nil {
			_ = root.Close()
			if err = ownedByUs(place); err == nil {
				return place, false, nil
			}
		}
		errs = append(errs, err)
	}
	dir, temp, err = ownControlDir()
	if err != nil {
		return "", false, fmt.Errorf("no place for ssh's control sockets: %w", errors.Join(append(errs, err)...))
	}
	return dir, temp, nil
}

func ownControlDir() (dir string, temp bool, err error) {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		if dir, err = os.MkdirTemp(parent, "elsewhere-ssh-"); err != nil { // of mode 0700
			continue
		}
		if err = usableFor(dir); err == nil {
			return dir, true, nil
		}
		_ = os.Remove(dir)
	}
	return "", false, err
}

func usableFor(dir string) error {
	if path := filepath.Join(dir, socketName); len(path) > maxSocket {
		return fmt.Errorf("the path %s is too long for a socket (%d bytes, at most %d)", path, len(path), maxSocket)
	}
	if strings.ContainsAny(dir, "%$*?[\"'\\~ \t\n") {
		return fmt.Errorf("the path %s holds characters that ssh would expand", dir)
	}
	return nil
}
