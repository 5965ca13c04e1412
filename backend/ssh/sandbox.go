package ssh

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// sandbox is the account as one process uses it.
type sandbox struct {
	d     *destination
	conns connections
	info  driver.Info
	dirs  []string // made again by each bash where they are gone
	files *files   // nil where none are synchronised
	log   *slog.Logger

	mu     sync.Mutex
	remove []string    // state files to remove
	timer  *time.Timer // until they are removed
	closed bool
	tidy   sync.WaitGroup
}

const (
	// removeDelay is how long state files wait to be removed together.
	removeDelay = time.Second
	// tidyWait bounds what is done there behind calls.
	tidyWait = 20 * time.Second
	// closeWait bounds the last bash, which removes the private directory.
	closeWait = 10 * time.Second
)

func (s *sandbox) Info() driver.Info { return s.info }

func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.isClosed() {
		return nil, errClosed
	}
	return s.bash(ctx, spec)
}

func (s *sandbox) bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	line, err := commandLine(spec.Args, spec.Env, s.dirs)
	if err != nil {
		return nil, err
	}
	return s.conns.start(ctx, request{command: line, env: s.d.sends, agent: s.d.agent}, spec.Spare)
}

// BashPTY starts a bash on a terminal that the server makes. When the connection goes, the server hangs it up.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if s.isClosed() {
		return nil, errClosed
	}
	line, err := commandLine(spec.Args, spec.Env, s.dirs)
	if err != nil {
		return nil, err
	}
	p, err := s.conns.start(ctx, request{command: line, env: s.d.sends, agent: s.d.agent, pty: &ptySize{rows, cols}}, spec.Spare)
	if err != nil {
		return nil, err
	}
	return terminalChannel{p.(*channel)}, nil // direct refuses it
}

// Alive asks for a bash there that does nothing. An account is never lost: a connection that went is made anew, and what was
// removed there is made again, so an error means that the machine does not answer.
func (s *sandbox) Alive(ctx context.Context) error {
	if s.isClosed() {
		return errClosed
	}
	_, err := s.script(ctx, "answer", false)
	if err != nil && classify(err) == driver.KindLost {
		return failure(driver.KindUnavailable, "%w", err)
	}
	return err
}

func (s *sandbox) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close brings back what commands changed in the files that may come back, removes the private directory there and gives the
// connections up, which other processes may go on using. Where the machine does not answer the directory stays, and goes when
// the next process opens the account.
func (s *sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	left := s.remove
	s.remove = nil
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if s.files != nil {
		// A setting says how long this may take, and what comes behind it has a time of its own.
		ctx = context.WithoutCancel(ctx)
		s.files.pull(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	var kept []string
	for _, file := range left {
		if !within(s.info.PrivateDir, file) {
			kept = append(kept, file)
		}
	}
	if _, err := s.script(ctx, removeText(kept, []string{s.info.PrivateDir}), false); err != nil {
		s.log.Warn("temporary files stay on the machine until the next process opens it", "destination", s.d.name(), "dir", s.info.PrivateDir, "error", err)
	}
	s.tidy.Wait()
	return s.conns.close()
}

// removeText is a script that removes files and directories.
func removeText(files, dirs []string) string {
	var b strings.Builder
	remove := func(how string, paths []string) {
		for len(paths) > 0 {
			n := min(len(paths), 100)
			b.WriteString("rm " + how + " --")
			for _, p := range paths[:n] {
				b.WriteString(" " + bashscript.Quote(p))
			}
			b.WriteString(" 2>&1\n")
			paths = paths[n:]
		}
	}
	b.WriteString("out=$(\n")
	remove("-f", files)
	remove("-rf", dirs)
	b.WriteString(":\n)\nanswer \"$out\"\n")
	return b.String()
}

func (s *sandbox) removeTree(ctx context.Context, dir string) error {
	r, err := s.script(ctx, removeText(nil, []string{dir}), false)
	if err == nil && r.at(0) != "" {
		err = fmt.Errorf("removing %s: %s", dir, oneLine(r.at(0)))
	}
	return err
}

// within tells whether file is a file in dir.
func within(dir, file string) bool {
	return dir != "" && path.Dir(path.Clean(file)) == path.Clean(dir)
}

// RemoveState notes state files that are removed together a moment later, so that no call waits for it.
func (s *sandbox) RemoveState(_ context.Context, paths []string) error {
	for _, file := range paths {
		if !within(s.info.StateDir, file) && !within(s.info.PrivateDir, file) {
			return failure(driver.KindDenied, "%s is not in a state directory of this sandbox", file)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil // what is kept goes with a later process, the rest has gone
	}
	s.remove = append(s.remove, paths...)
	s.removeLater()
	return nil
}

// removeLater sets the timer. s.mu is held.
func (s *sandbox) removeLater() {
	if s.timer != nil || len(s.remove) == 0 {
		return
	}
	s.timer = time.AfterFunc(removeDelay, func() {
		s.mu.Lock()
		s.timer = nil
		files := s.remove
		s.remove = nil
		if s.closed || len(files) == 0 {
			s.remove = files
			s.mu.Unlock()
			return
		}
		s.tidy.Add(1)
		s.mu.Unlock()
		defer s.tidy.Done()
		s.removeNow(files)
	})
}

// removeNow removes files where a session is free for it; else they wait for the next time.
func (s *sandbox) removeNow(files []string) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyWait)
	defer cancel()
	r, err := s.script(ctx, removeText(files, nil), true)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.remove = append(files, s.remove...)
		if !s.closed {
			s.removeLater()
		}
		return
	}
	if r.at(0) != "" {
		s.log.Debug("state files were not removed", "error", r.at(0))
	}
}

// ListState lists the plain files in dir, which is the state or the private directory.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	if dir = path.Clean(dir); dir != s.info.StateDir && dir != s.info.PrivateDir {
		return nil, failure(driver.KindDenied, "%s is not a state directory of this sandbox", dir)
	}
	r, err := s.script(ctx, "dir="+bashscript.Quote(dir)+listText, false)
	if err != nil {
		return nil, err
	}
	var files []driver.StateFile
	for i := 0; i+2 < len(r); i += 3 {
		f := driver.StateFile{Path: r[i], Head: r[i+1][:min(len(r[i+1]), 256)]}
		if at, err := strconv.ParseInt(strings.TrimSpace(r[i+2]), 10, 64); err == nil {
			f.ModTime = time.Unix(at, 0)
		}
		files = append(files, f)
	}
	return files, nil
}

// listText answers for each file its path, its first line and when it was written. One call of stat tells for all (GNU's, else
// BSD's).
const listText = `
LC_ALL=C
files=() all=()
for f in "$dir"/*; do [[ ! -f $f || -L $f || ! -r $f ]] || files+=("$f"); done
if ((${#files[@]})); then
	times=($(stat -c %Y -- "${files[@]}" 2>/dev/null || stat -f %m -- "${files[@]}" 2>/dev/null))
	[[ ${#times[@]} == "${#files[@]}" ]] || times=()
	for i in "${!files[@]}"; do
		line=
		IFS= read -r -n 256 line <"${files[i]}" 2>/dev/null
		all+=("${files[i]}" "$line" "${times[i]-}")
	done
fi
answer "${all[@]}"
`

// removeLeftovers removes, behind the opening, the private directories of this home's processes that are dead.
func (s *sandbox) removeLeftovers(id driver.Identity, a *account) {
	dead := map[string]bool{}
	ids, _ := owner.Dead(id.Home)
	for _, one := range ids {
		dead[one] = true
	}
	var dirs []string
	for _, dir := range a.leftovers {
		f := strings.Split(path.Base(dir), "-") // elsewhere-TAG-OWNER-RANDOM
		if len(f) == 4 && f[2] != id.Owner && dir != a.private && (dead[f[2]] || !owner.Known(id.Home, f[2])) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return
	}
	s.tidy.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tidyWait)
		defer cancel()
		if _, err := s.script(ctx, removeText(nil, dirs), true); err != nil {
			s.log.Debug("what dead processes left was not removed", "error", err)
		}
	})
}
