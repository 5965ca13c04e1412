package modal

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// removeBatch is how many state files are removed by one bash, and removeDelay how long the first of them waits for more.
	removeBatch = 32
	removeDelay = 2 * time.Second
)

// removeScript removes files; with -rf as its first argument also directories with all that is in them.
const removeScript = `rm "$1" -- "${@:2}" 2>/dev/null
:`

// RemoveState takes files for removal, which follows behind the calls: no call waits for it.
func (s *sandbox) RemoveState(_ context.Context, paths []string) error {
	var errs []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range paths {
		if !s.isState(p) {
			errs = append(errs, failure(driver.KindDenied, "%s is not in a state directory of this sandbox", p))
			continue
		}
		s.remove = append(s.remove, p)
	}
	switch {
	case s.live == nil || len(s.remove) == 0:
	case len(s.remove) >= removeBatch:
		s.work.Go(s.removeNow)
	case s.timer == nil:
		s.timer = time.AfterFunc(removeDelay, func() {
			s.mu.Lock()
			s.timer = nil
			s.mu.Unlock()
			s.behind(s.removeNow)
		})
	}
	return errors.Join(errs...)
}

// isState tells whether a path is a file in the state or the private directory.
func (s *sandbox) isState(file string) bool {
	if path.Clean(file) != file || strings.ContainsRune(file, 0) {
		return false
	}
	return strings.HasPrefix(file, s.info.StateDir+"/") || strings.HasPrefix(file, s.info.PrivateDir+"/")
}

// takeRemovals takes the files that are to be removed.
func (s *sandbox) takeRemovals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := s.remove
	s.remove = nil
	return paths
}

func (s *sandbox) removeNow() {
	paths := s.takeRemovals()
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if _, err := s.run(ctx, removeScript, append([]string{"-f"}, paths...)...); err != nil && ctx.Err() == nil {
		s.log.Debug("state files were not removed", "sandbox", s.info.SandboxID, "error", err)
	}
}

// listFunction prints the path and the first line of each file below a directory, each ended by a NUL.
const listFunction = `shopt -s nullglob dotglob globstar 2>/dev/null
list() {
	for file in "$1"/**; do
		[[ -f $file && ! -L $file ]] || continue
		line=
		IFS= read -r -n 256 line <"$file"
		printf '%s\0%s\0' "$file" "$line"
	done 2>/dev/null
	:
}`

// stateFiles reads what list printed.
func stateFiles(fields []string) (files []driver.StateFile) {
	for i := 0; i+1 < len(fields); i += 2 {
		files = append(files, driver.StateFile{Path: fields[i], Head: fields[i+1]})
	}
	return files
}

// ListState lists the plain files below dir, which is the state or the private directory. Their times are not known. The first one
// is answered by what the opening saw.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	dir = path.Clean(dir)
	if dir != s.info.StateDir && dir != s.info.PrivateDir && !s.isState(dir) {
		return nil, failure(driver.KindDenied, "%s is not a state directory of this sandbox", dir)
	}
	if found := s.found.Swap(nil); found != nil && dir == s.info.StateDir {
		return *found, nil
	}
	out, err := s.run(ctx, listFunction+"\nlist \"$1\"", dir)
	if err != nil {
		return nil, err
	}
	return stateFiles(strings.Split(out, "\x00")), nil
}
