package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/lockfile"
	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
)

// maxSocket is how long the path of a control socket may be: the least that systems take is 104 bytes with the final NUL
// (macOS, BSD), of which ssh takes 17 for the name under which it binds first.
const maxSocket = 104 - 1 - 17

// socketName is as long as every name in the directory that ssh binds: ten digits, a dash and eight digits.
const socketName = "0123456789-01234567"

// controlDir is where the control sockets of a sandbox are, with the files that belong to them: all of their names begin with the
// destination's id.
type controlDir struct {
	path string
	// home is the HERMES_HOME of the sandbox; "" where nothing is kept, and then its files go on close.
	home string
	// shared says that other homes of this user have their files there too; alone, that nobody else has, and then it goes on close.
	shared, alone bool
}

// openControlDir makes it, 0700 and this user's own: the first of the places whose path is short enough and free of characters that ssh
// would expand.
func openControlDir(home string, environ []string) (controlDir, error) {
	var places []controlDir
	if home != "" {
		places = append(places, controlDir{path: filepath.Join(home, "elsewhere", "ssh"), home: home})
	}
	if run := value(environ, "XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		places = append(places, controlDir{path: filepath.Join(run, "elsewhere-ssh"), home: home, shared: true})
	}
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		places = append(places, controlDir{path: filepath.Join(parent, "elsewhere-ssh-"+strconv.Itoa(os.Geteuid())), home: home, shared: true})
	}
	var errs []error
	for _, place := range places {
		err := usableFor(place.path)
		if err == nil {
			err = makeOwn(place.path)
		}
		if err == nil {
			return place, nil
		}
		errs = append(errs, err)
	}
	// Somebody else may have made that in /tmp.
	dir, err := os.MkdirTemp("", "elsewhere-ssh-") // of mode 0700
	if err == nil {
		if err = usableFor(dir); err == nil {
			return controlDir{path: dir, alone: true}, nil
		}
		_ = os.Remove(dir)
	}
	return controlDir{}, fmt.Errorf("no place for ssh's control sockets: %w", errors.Join(append(errs, err)...))
}

// makeOwn makes a directory that is this user's alone.
func makeOwn(dir string) error {
	root, err := privatedir.Create(dir)
	if err != nil {
		return err
	}
	_ = root.Close()
	return ownedByUs(dir)
}

// forget removes the files of a throw-away sandbox when it has left.
func (c controlDir) forget(id string) {
	if c.home != "" {
		return
	}
	removeAll(c.path, id)
	if c.alone {
		_ = os.RemoveAll(c.path)
	}
}

// removeAll removes the files of a destination. Nobody may use them any more.
func removeAll(dir, id string) {
	for _, pattern := range []string{id + "-*", learnerOf(id) + "-*", id + ".sessions*", id + ".connect"} { // the lock goes last
		files, _ := filepath.Glob(filepath.Join(dir, pattern)) // a path without wildcards: see usableFor
		for _, file := range files {
			_ = os.Remove(file)
		}
	}
}

// staleAge is after how long without a new connection a destination's files are stale: long after sessionsAge.
const staleAge = 48 * time.Hour

// reap removes the files of destinations that nobody connects to any more: their home is gone, or they are stale. What a connection
// still uses stays.
func (c controlDir) reap(own string) {
	locks, _ := filepath.Glob(filepath.Join(c.path, "*.connect"))
	for _, file := range locks {
		id := strings.TrimSuffix(filepath.Base(file), ".connect")
		if id == own || !stale(file) {
			continue
		}
		lock := flock.New(file, flock.SetFlag(os.O_RDWR)) // without O_CREATE: it may be gone
		c.reapUnder(lock, id)
		_ = lock.Close()
	}
}

// reapUnder removes the files of a destination under its lock, which it takes. Where another process has removed the lock, or
// has used it since it was looked at, the files are whose who connects now.
func (c controlDir) reapUnder(lock *flock.Flock, id string) {
	if ok, err := lock.TryLock(); err != nil || !ok || !lockfile.Current(lock) || !stale(lock.Path()) {
		return
	}
	if !inUse(c.path, id) && !inUse(c.path, learnerOf(id)) {
		removeAll(c.path, id)
	}
}

// stale tells whether nobody will connect again under this lock, as far as can be told. It holds the home whose it is.
func stale(file string) bool {
	st, err := os.Stat(file)
	if err != nil {
		return false
	}
	if time.Since(st.ModTime()) > staleAge {
		return true
	}
	home, err := os.ReadFile(file)
	if err != nil || !filepath.IsAbs(string(home)) {
		return false
	}
	_, err = os.Stat(string(home))
	return errors.Is(err, fs.ErrNotExist)
}

// inUse clears away what ended masters of this name left, and tells whether there are others.
func inUse(dir, prefix string) bool {
	sweep(dir, prefix)
	for _, socket := range masters(dir, prefix) {
		if conn, err := net.DialTimeout("unix", socket, attachWait); err == nil {
			_ = conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			clearAway(socket)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, prefix+"-*.lock"))
	return err != nil || len(left) > 0
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
