// Package statescript lists and removes state files by bashes in the sandbox, where a driver has no shorter way to them.
//
// A bash there costs far more than a file. So what is to be removed waits for more and goes in batches, behind the calls, and what the
// opening of a sandbox sees of its state directory answers the first question for it.
package statescript

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

const (
	// Batch is how many files are removed by one bash at once, and removeDelay how long the first of them waits for more.
	Batch       = 32
	removeDelay = 2 * time.Second
	// removeWait bounds the removal of a batch.
	removeWait = time.Minute
)

// RemoveScript removes files; with -rf as its first argument also directories with all that is in them. Where an image has
// no rm, files are emptied.
const RemoveScript = `if type -P rm >/dev/null; then
	rm "$1" -- "${@:2}"
else
	shift
	for file; do [[ ! -f $file || -L $file ]] || : >|"$file"; done
fi 2>/dev/null
:`

// ListFunction defines list, which prints the path and the first line of each file below a directory, each ended by a NUL.
const ListFunction = `shopt -s nullglob dotglob globstar 2>/dev/null
list() {
	for file in "$1"/**; do
		[[ -f $file && ! -L $file ]] || continue
		line=
		IFS= read -r -n 256 line <"$file"
		printf '%s\0%s\0' "$file" "$line"
	done 2>/dev/null
	:
}`

// Read makes files of what list printed, cut at the NULs. Their times are not known.
func Read(fields []string) (files []driver.StateFile) {
	for i := 0; i+1 < len(fields); i += 2 {
		files = append(files, driver.StateFile{Path: fields[i], Head: fields[i+1]})
	}
	return files
}

// Options say whose state files they are.
type Options struct {
	// State and Private are the sandbox's directories for them.
	State, Private string
	// Found is what the opening saw in State.
	Found []driver.StateFile
	// Run runs a script by a bash in the sandbox and gives what it printed.
	Run func(ctx context.Context, script string, args ...string) (string, error)
	// Behind runs f behind the calls unless the sandbox is closed, and Closing is done when it is being closed.
	Behind  func(f func()) bool
	Closing context.Context
	// Failed is told why files were not removed, unless the sandbox is being closed.
	Failed func(error)
}

// Files are the state files of one sandbox. It is safe for concurrent use.
type Files struct {
	Options

	mu     sync.Mutex
	asked  bool     // Found was given
	remove []string // what goes with the next batch
	timer  *time.Timer
}

// New makes the Files of a sandbox that was opened.
func New(o Options) *Files { return &Files{Options: o} }

// RemoveState takes files for removal, which follows behind the calls: no call waits for it.
func (f *Files) RemoveState(_ context.Context, paths []string) error {
	var errs []error
	f.mu.Lock()
	for _, p := range paths {
		if f.holds(p) {
			f.remove = append(f.remove, p)
		} else {
			errs = append(errs, kinderr.New(driver.KindDenied, "%s is not in a state directory of this sandbox", p))
		}
	}
	full := len(f.remove) >= Batch
	if len(f.remove) > 0 && !full && f.timer == nil {
		f.timer = time.AfterFunc(removeDelay, func() {
			f.mu.Lock()
			f.timer = nil
			f.mu.Unlock()
			f.Behind(f.removeNow)
		})
	}
	f.mu.Unlock()
	if full {
		f.Behind(f.removeNow)
	}
	return errors.Join(errs...)
}

// holds tells whether a path is a file in the state or the private directory.
func (f *Files) holds(file string) bool {
	if path.Clean(file) != file || strings.ContainsRune(file, 0) {
		return false
	}
	return strings.HasPrefix(file, f.State+"/") || strings.HasPrefix(file, f.Private+"/")
}

func (f *Files) removeNow() {
	paths := f.Take()
	if len(paths) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(f.Closing, removeWait)
	defer cancel()
	if _, err := f.Run(ctx, RemoveScript, append([]string{"-f"}, paths...)...); err != nil && f.Closing.Err() == nil {
		f.Failed(err)
	}
}

// Take gives the files that wait for their removal to whoever removes them now.
func (f *Files) Take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	paths := f.remove
	f.remove = nil
	return paths
}

// Stop begins no further removal by itself.
func (f *Files) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.timer.Stop()
	}
}

// ListState lists the plain files below dir, which is the state or the private directory. The first question for the state directory is
// answered by what the opening saw.
func (f *Files) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	dir = path.Clean(dir)
	if dir != f.State && dir != f.Private && !f.holds(dir) {
		return nil, kinderr.New(driver.KindDenied, "%s is not a state directory of this sandbox", dir)
	}
	f.mu.Lock()
	known := dir == f.State && !f.asked
	f.asked = f.asked || known
	f.mu.Unlock()
	if known {
		return f.Found, nil
	}
	out, err := f.Run(ctx, ListFunction+"\nlist \"$1\"", dir)
	if err != nil {
		return nil, err
	}
	return Read(strings.Split(out, "\x00")), nil
}
