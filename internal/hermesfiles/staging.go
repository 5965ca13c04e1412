package hermesfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// settled is how long a file must have been left alone before its stat alone proves that it did not change.
const settled = 2 * time.Second

// Staging is a directory that holds current copies of the credential files of one sandbox. A mounted file would stay what it
// was when it was mounted; a file that is replaced in a mounted directory is seen inside. So the directory is what is
// mounted, and Refresh keeps it up to date.
//
// It lies in HERMES_HOME/elsewhere/staging/NAME, of mode 0700, so that nobody else on the machine reads it; the directory in
// there, which is mounted, can be read by whatever user the sandbox has. It is safe for concurrent use, also by several
// processes.
type Staging struct {
	home  string
	outer string   // what keeps others out
	dir   string   // what is mounted
	files []string // clean names, sorted
	dirs  []string // that have to be there, since something is mounted on them

	mu    sync.Mutex
	made  bool
	seen  map[string]seen
	tells map[string]string // what was said of a file last
}

// seen is what a file was when it was copied.
type seen struct {
	info  fs.FileInfo
	stamp stamp
	at    time.Time
}

// NewStaging describes the staging directory of the sandbox with this name; it makes nothing yet. Files are the names of
// terminal.credential_files; what cannot be handed out at all is left out with a notice. Dirs are directories, relative to
// it, that other things are mounted on.
func NewStaging(home, name string, files, dirs []string) (*Staging, []string) {
	outer := filepath.Join(home, "elsewhere", "staging", safename.Of(name))
	s := &Staging{home: home, outer: outer, dir: filepath.Join(outer, "files"), dirs: dirs, seen: map[string]seen{}, tells: map[string]string{}}
	var notices []string
	for _, file := range files {
		clean, err := Clean(file)
		if err != nil {
			notices = append(notices, fmt.Sprintf("credential file %q is left out: %v", file, err))
			continue
		}
		s.files = append(s.files, clean)
	}
	slices.Sort(s.files)
	s.files = slices.Compact(s.files)
	return s, notices
}

// Files are the clean names of the files, sorted.
func (s *Staging) Files() []string { return slices.Clone(s.files) }

// Dir is the directory to mount, read-only. It is there after the first Refresh.
func (s *Staging) Dir() string { return s.dir }

// Remove removes the directory with its copies. The next Refresh makes it again.
func (s *Staging) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = false
	clear(s.seen)
	return os.RemoveAll(s.outer)
}

// Refresh brings the copies up to date. It costs two stats for each file that did not change. What is wrong with one file is
// a notice, said once, and stops no other; that file is not in the sandbox then. The error is for the directory itself.
func (s *Staging) Refresh(ctx context.Context) (notices []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(s.dir); err != nil || !s.made {
		if err := s.make(); err != nil {
			return nil, fmt.Errorf("the directory for credential files cannot be made: %w; make HERMES_HOME writable or empty terminal.credential_files", err)
		}
	}
	for _, file := range s.files {
		if err := ctx.Err(); err != nil {
			return notices, err
		}
		if text := s.copy(file); text != s.tells[file] {
			s.tells[file] = text
			if text != "" {
				notices = append(notices, text)
			}
		}
	}
	return notices, nil
}

// make makes the directories and removes what other settings left in them.
func (s *Staging) make() error {
	if err := os.MkdirAll(s.outer, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(s.outer, 0o700); err != nil {
		return err
	}
	clear(s.seen)
	for _, dir := range append([]string{"."}, s.dirs...) {
		if err := s.makeDir(dir); err != nil {
			return err
		}
	}
	s.made = true
	return filepath.WalkDir(s.dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(s.dir, name)
		if err == nil && !slices.Contains(s.files, filepath.ToSlash(rel)) {
			err = remove(name)
		}
		return err
	})
}

// makeDir makes a directory below the mounted one that everybody can enter, whatever the umask is.
func (s *Staging) makeDir(rel string) error {
	dir := filepath.Join(s.dir, filepath.FromSlash(rel))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for {
		if err := os.Chmod(dir, 0o755); err != nil || dir == s.dir {
			return err
		}
		dir = filepath.Dir(dir)
	}
}

// copy brings one file up to date and says what is wrong with it, or "".
func (s *Staging) copy(file string) string {
	target := filepath.Join(s.dir, filepath.FromSlash(file))
	gone := func(format string, args ...any) string {
		delete(s.seen, file)
		text := fmt.Sprintf("credential file %s is not in the sandbox: %s", file, fmt.Sprintf(format, args...))
		if err := remove(target); err != nil {
			text += fmt.Sprintf("; its copy cannot be removed: %v", err)
		}
		return text
	}
	now := time.Now()
	source, info, err := Credential(s.home, file)
	if err != nil {
		return gone("%v", err)
	}
	if last, ok := s.seen[file]; ok && unchanged(last, info) && there(target) {
		return ""
	}
	data, err := read(source, info)
	if err != nil {
		return gone("%v", err)
	}
	if err := s.write(file, target, data); err != nil {
		return gone("%v", err)
	}
	s.seen[file] = seen{info: info, stamp: stampOf(info), at: now}
	return ""
}

// unchanged tells whether a file is surely what it was. One that was changed shortly before it was looked at may have been
// changed again within the same tick of its file system's clock.
func unchanged(last seen, info fs.FileInfo) bool {
	return os.SameFile(last.info, info) && last.info.Size() == info.Size() && last.info.ModTime().Equal(info.ModTime()) &&
		last.stamp.known && last.stamp == stampOf(info) && last.at.Sub(last.info.ModTime()) > settled && last.at.Sub(last.stamp.changed()) > settled
}

func there(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// read reads a file that is still the one that was looked at.
func read(name string, looked fs.FileInfo) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(info, looked) {
		return nil, errors.New("it was replaced while it was read")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err == nil && len(data) > maxCredential {
		err = fmt.Errorf("it is larger than %d MiB", maxCredential>>20)
	}
	return data, err
}

// write puts a copy in place at once: whoever reads it has the old one or the new one.
func (s *Staging) write(file, target string, data []byte) error {
	if have, err := os.ReadFile(target); err == nil && bytes.Equal(have, data) {
		return nil
	}
	if err := s.makeDir(filepath.ToSlash(filepath.Dir(filepath.FromSlash(file)))); err != nil {
		return err
	}
	temp, err := os.CreateTemp(s.outer, "new-")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name()) // gone already when all went well
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), target)
}

func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
