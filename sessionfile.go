package elsewhere

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
	"github.com/gofrs/flock"
)

// lockWait bounds the wait for another process that switches the same session to a new version, which takes a moment.
const lockWait = 10 * time.Second

// sessionFile is a named session on disk: HERMES_HOME/elsewhere/sessions/BACKEND/TASK/NAME.json says which state file is
// current. It is replaced as a whole, under a lock that covers only the switch, never a command.
type sessionFile struct {
	path string
	data sessionData
	seen os.FileInfo // the file that data was read from or written to
}

type sessionData struct {
	Schema  int       `json:"schema"`
	Backend string    `json:"backend"`
	Task    string    `json:"task"`
	Name    string    `json:"name"`
	ID      string    `json:"id"`
	Mark    uint32    `json:"mark"`
	State   string    `json:"state"` // "" before the first call has ended
	Old     []string  `json:"old,omitempty"`
	Dir     string    `json:"dir"`
	DirB64  string    `json:"dir_b64,omitempty"` // where Dir is not UTF-8
	Start   string    `json:"start,omitempty"`   // where it began, where that is UTF-8
	Agreed  []agreed  `json:"agreed,omitempty"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used"`
}

// Cwd is the session's directory, byte for byte.
func (d *sessionData) Cwd() string {
	if raw, err := base64.StdEncoding.DecodeString(d.DirB64); err == nil && len(raw) > 0 {
		return string(raw)
	}
	return d.Dir
}

func (d *sessionData) setCwd(dir string) {
	d.Dir, d.DirB64 = dir, ""
	if !utf8.ValidString(dir) {
		d.DirB64 = base64.StdEncoding.EncodeToString([]byte(dir))
	}
}

func sessionsDir(home string) string { return filepath.Join(home, "elsewhere", "sessions") }

func sessionPath(home, backend, task, name string) string {
	return filepath.Join(sessionsDir(home), safename.Of(backend), safename.Of(task), safename.Of(name)+".json")
}

// openNamed reads or makes the file of the session's name.
func (s *Session) openNamed() error {
	sb := s.sb
	if sb.home == "" || sb.at().info.StateDir == sb.at().info.PrivateDir {
		err, hint := error(errText("there is no HERMES_HOME to keep it in")), "set HOME or HERMES_HOME, or run without a session"
		if sb.home != "" {
			dir := filepath.Join(sb.home, "elsewhere", "state")
			err = fmt.Errorf("it cannot be kept in %s: %w", dir, cannotKeep(dir))
			hint = "make room there or make it writable for you, set HERMES_HOME to a directory that is, or run without a session"
		}
		return wrap(err, driver.KindConfig, "session", sb.backend, s.name, hint)
	}
	f := &sessionFile{path: sessionPath(sb.home, sb.backend, sb.task, s.name)}
	hint := "check the rights of " + filepath.Dir(f.path) + " and the space on its disk"
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return wrap(err, driver.KindConfig, "session", sb.backend, s.name, hint)
	}
	s.file = f
	var expired sessionData
	err := f.locked(func() error {
		if err := f.read(); !errors.Is(err, fs.ErrNotExist) && (err != nil || !f.expired(sb.cfg.Duration("session_expiry"))) {
			return err
		}
		expired = f.data
		now := time.Now().UTC()
		f.data = sessionData{
			Schema: 1, Backend: sb.backend, Task: sb.task, Name: s.name,
			ID: bashscript.NewID(), Mark: bashscript.NewSessionMark(), Created: now, Used: now,
		}
		f.data.setCwd(sb.at().info.Dir)
		if f.data.DirB64 == "" {
			f.data.Start = f.data.Dir
		}
		return f.write()
	})
	var corrupt *corruptError
	if errors.As(err, &corrupt) {
		hint = "look at the file, or start anew with " + sb.suggest("session rm", s.name)
	}
	if err != nil {
		return wrap(err, driver.KindConfig, "session", sb.backend, s.name, hint)
	}
	if expired.ID != "" {
		// It ended by itself, with all that belonged to it.
		sb.behind(func() { sb.removeSession(context.Background(), &expired) })
	}
	s.id, s.mark = f.data.ID, f.data.Mark
	s.start = cmp.Or(f.data.Start, s.start)
	s.state, s.cwd = stateRef{path: f.data.State}, f.data.Cwd()
	return nil
}

// corruptError says that a session file does not hold what it should.
type corruptError struct{ path string }

func (e *corruptError) Error() string { return "the session file " + e.path + " is corrupt" }

// cannotKeep finds out why nothing can be kept in dir.
func cannotKeep(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".try.*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	_ = f.Close()
	_ = os.Remove(f.Name())
	if err == nil {
		err = errText("it could not be written to when the sandbox was opened")
	}
	return err
}

func (f *sessionFile) expired(after time.Duration) bool {
	return after > 0 && time.Since(f.data.Used) > after
}

// locked runs f while no other process switches this session.
func (f *sessionFile) locked(do func() error) error {
	lock := flock.New(f.path+".lock", flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	if _, err := lock.TryLockContext(ctx, 5*time.Millisecond); err != nil {
		return fmt.Errorf("the lock %s cannot be taken: %w", lock.Path(), err)
	}
	defer lock.Close() //nolint:errcheck // closing frees the lock; there is nothing to lose
	return do()
}

func (f *sessionFile) read() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	// Of the same file: the path may name the next version by now.
	info, err := file.Stat()
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	var data sessionData
	if err := json.Unmarshal(raw, &data); err != nil || data.Schema != 1 || data.ID == "" {
		return &corruptError{f.path}
	}
	f.data, f.seen = data, info
	return nil
}

func (f *sessionFile) write() error {
	raw, err := json.MarshalIndent(f.data, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.path, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	f.seen, err = os.Stat(f.path)
	return err
}

// reload reads the file where another process has replaced it. One that is gone (session rm) is made again by the next
// switch.
func (f *sessionFile) reload() (changed bool, err error) {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, wrap(err, driver.KindConfig, "session", "", f.path, "")
	case f.seen != nil && os.SameFile(info, f.seen) && info.ModTime().Equal(f.seen.ModTime()):
		return false, nil
	}
	if err := f.read(); err != nil {
		return false, wrap(err, driver.KindConfig, "session", "", f.path, "")
	}
	return true, nil
}

// switchTo makes state ("" keeps what is there) and dir current on disk and returns the state files that are superseded for long enough. The last
// ones stay, for a reader of another process that is about to load one.
func (f *sessionFile) switchTo(state, dir string) (superseded []string, err error) {
	err = f.locked(func() error {
		if err := f.read(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if state == "" {
			state = f.data.State
		}
		if state == f.data.State && dir == f.data.Cwd() && time.Since(f.data.Used) < time.Minute {
			return nil
		}
		if state != f.data.State && f.data.State != "" {
			f.data.Old = append(f.data.Old, f.data.State)
		}
		if n := len(f.data.Old) - keptVersions; n > 0 {
			superseded, f.data.Old = f.data.Old[:n], f.data.Old[n:]
		}
		f.data.State, f.data.Used = state, time.Now().UTC()
		f.data.setCwd(dir)
		return f.write()
	})
	return superseded, err
}
