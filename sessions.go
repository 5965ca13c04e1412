package elsewhere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// SessionInfo is a named session as it is on disk.
type SessionInfo struct {
	Backend string
	Task    string
	Name    string
	Cwd     string // byte for byte; "" where Err is not nil
	Created time.Time
	Used    time.Time
	// Err says that the session's file cannot be read; then Backend, Task and Name are taken from its path.
	Err error
}

// Sessions lists the named sessions that home (HERMES_HOME) holds, by backend, task and name. A home without any is no
// error.
func Sessions(home string) ([]SessionInfo, error) {
	var all []SessionInfo
	err := eachSession(home, func(file string, d *sessionData, err error) error {
		if err != nil {
			task := filepath.Dir(file)
			all = append(all, SessionInfo{
				Backend: filepath.Base(filepath.Dir(task)), Task: filepath.Base(task),
				Name: strings.TrimSuffix(filepath.Base(file), ".json"), Err: err,
			})
			return nil
		}
		all = append(all, SessionInfo{Backend: d.Backend, Task: d.Task, Name: d.Name, Cwd: d.Cwd(), Created: d.Created, Used: d.Used})
		return nil
	})
	if err != nil {
		return nil, wrap(err, driver.KindConfig, "session", "", sessionsDir(home), "check its rights")
	}
	slices.SortFunc(all, func(a, b SessionInfo) int {
		return cmp.Or(strings.Compare(a.Backend, b.Backend), strings.Compare(a.Task, b.Task), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// eachSession calls do for each named session that home holds, with its file and what that says, or with why it cannot be read. It
// ends with do's first error.
func eachSession(home string, do func(file string, d *sessionData, err error) error) error {
	return filepath.WalkDir(sessionsDir(home), func(file string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".json" {
			return err
		}
		f := &sessionFile{path: file}
		if err = f.read(); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return do(file, &f.data, err)
	})
}

// RemoveSession removes the named session of this sandbox: its state, its jobs (they are ended; what is known of them stays), and
// on backends where the session owns them the processes that its calls left running (TERM, the grace, KILL). Another process that runs a call in it then makes a new
// one. A session that is not there is an error with fs.ErrNotExist.
func (sb *Sandbox) RemoveSession(ctx context.Context, name string) error {
	f := &sessionFile{path: sessionPath(sb.home, sb.backend, sb.task, name)}
	if err := removeSessionFile(f, name); err != nil {
		return err
	}
	sb.removeSession(ctx, &f.data)
	return nil
}

// removeSession ends and removes what a session left that is gone.
func (sb *Sandbox) removeSession(ctx context.Context, d *sessionData) {
	if p := sb.at(); d.ID != "" && p.sessionOwnsChildren() {
		ctx, cancel := context.WithTimeout(ctx, sb.grace+time.Second)
		defer cancel()
		if left, confirmed := p.end(ctx, bashscript.WatchSession(d.Mark, d.ID)); len(left) > 0 || !confirmed {
			sb.log.Warn("not all processes of the session were ended", "session", d.Name, "left", left)
		}
	}
	sb.endJobsOf(ctx, d)
	for _, path := range append(d.Old, d.State) {
		if path != "" {
			sb.removeState(path)
		}
	}
}

// ForgetSession removes a named session whose sandbox cannot be opened any more: what home knows of it. Its state stays
// where the sandbox is. A session that is not there is an error with fs.ErrNotExist.
func ForgetSession(home, backend, task, name string) error {
	return removeSessionFile(&sessionFile{path: sessionPath(home, backend, task, name)}, name)
}

// removeSessionFile reads what a session's file says, if it can be read, and removes it. The lock file stays: another
// process may wait for it.
func removeSessionFile(f *sessionFile, name string) error {
	if _, err := os.Lstat(f.path); err != nil {
		return wrap(fmt.Errorf("there is no such session: %w", err), driver.KindConfig, "session", "", name, "`elsewhere session ls` lists them")
	}
	err := f.locked(func() error {
		_ = f.read() // one that is corrupt has to go too
		return os.Remove(f.path)
	})
	return wrap(err, driver.KindConfig, "session", "", name, "check the rights of "+filepath.Dir(f.path))
}
