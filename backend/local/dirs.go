package local

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

func isDir(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

// startDir gives the directory in which a new session starts: the setting where it names one, which then has to be there:
// a command in another directory than the one that was configured may do harm. Else it is the caller's; where that is gone,
// its nearest ancestor, and the notice says so.
func startDir(setting, caller, home string) (dir, notice string, err error) {
	if caller == "" {
		caller, err = os.Getwd()
		if err != nil {
			notice = "the caller's own directory is gone"
		}
	}
	setting = toNative(setting)
	switch {
	case setting == "" || setting == ".":
		dir = caller
	case filepath.IsAbs(setting):
		dir = filepath.Clean(setting)
	default:
		dir = filepath.Join(caller, setting)
		// "proj" while in /src/proj means the directory that one is in (NousResearch/hermes-agent#26783).
		if !isDir(dir) && endsWith(caller, filepath.Clean(setting)) {
			dir = caller
		}
	}
	if dir == "" {
		dir = home
	}
	if dir == "" {
		dir = "/"
	}
	if named := setting != "" && setting != "."; named && !enterable(dir) {
		return "", "", failure(driver.KindConfig, "terminal.cwd names the directory %s, which cannot be entered; name one that exists, or leave it out", dir)
	}
	usable := dir
	for !enterable(usable) {
		parent := filepath.Dir(usable)
		if parent == usable {
			usable = os.TempDir()
			break
		}
		usable = parent
	}
	if usable != dir {
		notice = fmt.Sprintf("the directory %s cannot be entered", dir)
	}
	if notice != "" {
		notice += "; starting in " + usable
	}
	return usable, notice, nil
}

// endsWith tells whether the last elements of dir are those of tail.
func endsWith(dir, tail string) bool {
	sep := string(filepath.Separator)
	return tail != "" && strings.HasSuffix(sep+strings.Trim(dir, sep), sep+strings.Trim(tail, sep))
}

// privatePrefix begins the name of a private directory; the owner's lease and a random part follow.
const privatePrefix = "elsewhere-"

// makeDirs makes the state directory and the private one. A home that cannot be written to is no failure: state is then
// kept for this process alone.
func (s *sandbox) makeDirs(req driver.OpenRequest, vars *environment) error {
	home := req.Identity.Home
	priv, err := makePrivate(tempDirs(req.Config.String("temp_dir"), vars, home), req.Identity.Owner)
	if err != nil {
		return failure(driver.KindUnavailable, "no temporary directory can be written to: %w; free some space or set terminal.temp_dir (TERMINAL_TEMP_DIR) to a directory of your own", err)
	}
	if s.held, err = os.OpenRoot(priv); err != nil {
		_ = os.Remove(priv)
		return failure(driver.KindUnavailable, "the temporary directory cannot be opened: %w", err)
	}
	s.priv = priv
	s.state = priv
	if id := req.Identity.Owner; id != "" {
		// So that the next process finds it, should this one be killed.
		if err := owner.Record(home, id, priv); err != nil {
			s.log.Debug("the private directory is not recorded", "dir", priv, "err", err)
		}
	}
	if home == "" || req.ThrowAway {
		return nil
	}
	state := filepath.Join(home, "elsewhere", "state")
	err = os.MkdirAll(state, 0o700)
	if err == nil {
		err = private(state)
	}
	if err != nil {
		s.info.Notices = append(s.info.Notices, fmt.Sprintf("%s cannot be written to (%v): sessions are not kept beyond this process", filepath.Dir(state), reason(err)))
		return nil
	}
	s.state = state
	return nil
}

// keepDirs makes the directories again that a command has removed (rm -rf "$TMPDIR"/*): without them no later call could be
// made ready. Where that fails, the bash that finds no directory says so.
func (s *sandbox) keepDirs() {
	s.dirs.Lock()
	defer s.dirs.Unlock()
	if s.closed.Load() {
		return
	}
	if remade(s.priv) {
		if held, err := os.OpenRoot(s.priv); err == nil {
			_ = s.held.Close()
			s.held = held
		}
	}
	if s.state != s.priv {
		remade(s.state)
	}
}

// remade makes dir where it is gone. Mkdir, not MkdirAll: a name that exists, be it a link that somebody laid, is not taken.
func remade(dir string) bool {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return os.MkdirAll(filepath.Dir(dir), 0o700) == nil && os.Mkdir(dir, 0o700) == nil
}

// reason is the part of a file error that is not the path.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// tempDirs gives the places for the private directory, best first: the setting, the caller's temp directory, and then memory
// where the system has a place for it: a state file is written line by line, which costs a disk dearly. Hermes' own cache
// comes before the system's temp directory because /tmp is often a small tmpfs.
func tempDirs(setting string, vars *environment, home string) []string {
	var dirs []string
	for _, dir := range []string{toNative(setting), vars.get("TMPDIR"), vars.get("TMP"), vars.get("TEMP"), memoryDir()} {
		if filepath.IsAbs(dir) && isDir(dir) {
			dirs = append(dirs, filepath.Clean(dir))
		}
	}
	if home != "" {
		dirs = append(dirs, filepath.Join(home, "cache", "terminal"))
	}
	return append(dirs, os.TempDir())
}

// makePrivate makes a directory of mode 0700 with a new name in the first of dirs where that works.
func makePrivate(dirs []string, owner string) (string, error) {
	var errs []error
	for _, parent := range dirs {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			errs = append(errs, err)
			continue
		}
		var random [8]byte
		_, _ = rand.Read(random[:])
		dir := filepath.Join(parent, privatePrefix+owner+"-"+hex.EncodeToString(random[:]))
		// Mkdir, not MkdirAll: a name that exists, be it a link that somebody laid, is an error.
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			if err = private(dir); err == nil {
				return dir, nil
			}
			_ = os.Remove(dir)
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}
