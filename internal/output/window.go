package output

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
)

const (
	// DefaultLimit is how many bytes of output a result keeps: 64 MiB.
	DefaultLimit = 64 << 20
	// DefaultSpillMax is how long a spill file gets: 100 MiB.
	DefaultSpillMax = 100 << 20
	// DefaultMaxAge is how long spill files are kept: 7 days.
	DefaultMaxAge = 7 * 24 * time.Hour

	headPercent = 40      // of a window that had to leave something out; the rest is its tail
	firstGrowth = 4 << 10 // the first allocation of a buffer, in bytes
	maxNameLen  = 96      // of Options.Name in a file's name, in bytes
)

// Options says what a Window keeps.
type Options struct {
	// Limit is how many bytes are kept in memory. Zero or less keeps nothing: such a window only counts, and spills
	// nothing. See DefaultLimit.
	Limit int64
	// SpillDir is the directory for the whole stream of a window that overflows: elsewhere's own, made with mode 0700
	// where it does not exist. "" is no spill.
	SpillDir string
	// SpillMax is how many bytes the spill file gets at most; 0 is DefaultSpillMax.
	SpillMax int64
	// Name becomes part of the spill file's name, in its safe characters: the call's id, the stream.
	Name string
}

// Window is an io.Writer that keeps the head and the tail of what is written to it. Write never fails; apart from that
// of the spill file it does no I/O. All methods may be called at any time from any goroutine; those that read do not
// wait for a Write that a slow disk holds up.
//
// Memory grows with the output, to Limit at most. The zero Window only counts.
type Window struct {
	spillDir string
	spillMax int64
	name     string
	headCap  int
	tailCap  int

	writing sync.Mutex // held by Write as a whole: guards the order of the stream and `out`
	out     *os.File   // nil before the first overflow and after the file has ended

	mu      sync.Mutex // guards what is below; never held during I/O
	total   int64
	head    []byte
	tail    []byte // a ring once it has tailCap bytes
	next    int    // where in a full ring the oldest byte is, and the next one goes
	closed  bool
	path    string
	file    *os.File // the open spill file, for Close
	capped  bool
	spilled int64
	tried   bool
	err     error
}

// NewWindow returns a window. Close ends its spill file.
func NewWindow(o Options) *Window {
	w := &Window{spillDir: o.SpillDir, spillMax: o.SpillMax, name: o.Name}
	if w.spillMax <= 0 {
		w.spillMax = DefaultSpillMax
	}
	if limit := max(o.Limit, 0); limit > 0 {
		w.headCap = int(limit / 100 * headPercent)
		w.headCap += int(limit % 100 * headPercent / 100)
		w.tailCap = int(limit) - w.headCap
	}
	return w
}

// Write keeps p and returns its length and nil, always.
func (w *Window) Write(p []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()

	// Only Write changes the buffers, so it may read them without the lock.
	limit := int64(w.headCap + w.tailCap)
	overflows := limit > 0 && w.total+int64(len(p)) > limit
	if overflows && w.spillDir != "" && !w.tried {
		w.tried = true
		w.startSpill() // before keep: the ring still holds every byte
	}
	w.keep(p)
	w.spill(p)
	return len(p), nil
}

// keep counts p and puts it into the buffers.
func (w *Window) keep(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += int64(len(p))
	if n := min(w.headCap-len(w.head), len(p)); n > 0 {
		w.head = grow(w.head, n, w.headCap)
		w.head = append(w.head, p[:n]...)
		p = p[n:]
	}
	if w.tailCap == 0 || len(p) == 0 {
		return
	}
	if n := min(w.tailCap-len(w.tail), len(p)); n > 0 {
		w.tail = grow(w.tail, n, w.tailCap)
		w.tail = append(w.tail, p[:n]...)
		p = p[n:]
	}
	if len(p) >= w.tailCap { // nothing of the ring survives
		copy(w.tail, p[len(p)-w.tailCap:])
		w.next = 0
		return
	}
	n := copy(w.tail[w.next:], p)
	w.next += n
	if n < len(p) {
		w.next = copy(w.tail, p[n:])
	}
	if w.next == w.tailCap {
		w.next = 0
	}
}

// grow makes room for n more bytes by doubling, never beyond limit.
func grow(b []byte, n, limit int) []byte {
	if len(b)+n <= cap(b) {
		return b
	}
	bigger := make([]byte, len(b), min(max(2*cap(b), len(b)+n, firstGrowth), limit))
	copy(bigger, b)
	return bigger
}

// startSpill makes the file and writes to it what the window holds, which is everything so far.
func (w *Window) startSpill() {
	w.mu.Lock()
	closed := w.closed
	w.mu.Unlock()
	if closed {
		return
	}
	file, path, err := createSpill(w.spillDir, w.name)
	if err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	w.path, w.file = path, file
	if w.closed { // by a Close that came while the disk was slow
		w.file = nil
		w.mu.Unlock()
		_ = file.Close()
		return
	}
	w.mu.Unlock()
	w.out = file
	w.spill(w.head)
	w.spill(w.tail)
}

// spill appends p to the file, if there is one, and ends the file at its limit or at the first error.
func (w *Window) spill(p []byte) {
	if w.out == nil || len(p) == 0 {
		return
	}
	room := w.spillMax - w.spilled
	cut := int64(len(p)) > room
	if cut {
		p = p[:room]
	}
	n, err := w.out.Write(p)
	w.spilled += int64(n)
	switch {
	case err != nil:
		w.endSpill(err)
	case cut:
		w.mu.Lock()
		w.capped = true
		w.mu.Unlock()
		w.endSpill(nil)
	}
}

// endSpill closes the file, before the stream ends.
func (w *Window) endSpill(err error) {
	w.out = nil
	w.mu.Lock()
	file, closed := w.file, w.closed
	w.file = nil
	w.mu.Unlock()
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	if err != nil && !(closed && errors.Is(err, fs.ErrClosed)) {
		w.fail(err)
	}
}

func (w *Window) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

// Total returns how many bytes were written.
func (w *Window) Total() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Truncated reports whether bytes had to be left out. It is false for a window that keeps nothing.
func (w *Window) Truncated() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.truncated()
}

func (w *Window) truncated() bool {
	limit := int64(w.headCap + w.tailCap)
	return limit > 0 && w.total > limit
}

// Bytes returns a copy of what is kept: everything where nothing was left out, else Head followed by Tail.
func (w *Window) Bytes() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	head, older, newer := w.parts()
	all := make([]byte, 0, len(head)+len(older)+len(newer))
	return append(append(append(all, head...), older...), newer...)
}

// Head returns a copy of the beginning: the first 40 % of the limit, less where there is less. Where something was left
// out after it, it does not end in the middle of a UTF-8 character.
func (w *Window) Head() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	head, _, _ := w.parts()
	return append([]byte{}, head...)
}

// Tail returns a copy of what is kept after Head: the last 60 % of the limit, less where there is less. Where something
// was left out before it, it does not begin in the middle of a UTF-8 character.
func (w *Window) Tail() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, older, newer := w.parts()
	return append(append(make([]byte, 0, len(older)+len(newer)), older...), newer...)
}

// parts returns what is kept in its order, without copying.
func (w *Window) parts() (head, older, newer []byte) {
	head, older, newer = w.head, w.tail[w.next:], w.tail[:w.next]
	if !w.truncated() {
		return head, older, newer
	}
	head = head[:len(head)-splitEnd(head)]
	// A character has at most three bytes after its first.
	for range utf8.UTFMax - 1 {
		switch {
		case len(older) > 0 && !utf8.RuneStart(older[0]):
			older = older[1:]
		case len(older) == 0 && len(newer) > 0 && !utf8.RuneStart(newer[0]):
			newer = newer[1:]
		default:
			return head, older, newer
		}
	}
	return head, older, newer
}

// File returns the path of the spill file, or "" where there is none. The file is complete after Close, unless
// FileCapped or Err say otherwise.
func (w *Window) File() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.path
}

// FileCapped reports whether the spill file ended at its limit and lacks what came after.
func (w *Window) FileCapped() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.capped
}

// Err returns the first error of the spill file, or nil. The file, if there is one, ends there.
func (w *Window) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the spill file and returns Err. What is kept stays readable; writes after it are kept and counted but no
// longer spilled. A second Close does nothing more.
func (w *Window) Close() error {
	w.mu.Lock()
	file := w.file
	w.file, w.closed = nil, true
	w.mu.Unlock()
	if file != nil {
		if err := file.Close(); err != nil {
			w.fail(err)
		}
	}
	return w.Err()
}

// spillName is what createSpill names files and what Clean takes for its own.
var spillName = regexp.MustCompile(`^out-[A-Za-z0-9._-]*-[0-9a-f]{16}\.log$`)

func createSpill(dir, name string) (*os.File, string, error) {
	root, err := privatedir.Create(dir)
	if err != nil {
		return nil, "", fmt.Errorf("output file: %w", err)
	}
	defer root.Close()
	unique := make([]byte, 8)
	_, _ = rand.Read(unique) // never fails
	file := "out-" + safeName(name) + "-" + hex.EncodeToString(unique) + ".log"
	f, err := root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("output file: %w", err)
	}
	return f, filepath.Join(dir, file), nil
}

// safeName keeps of name what every file system takes.
func safeName(name string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	return safe[:min(len(safe), maxNameLen)]
}

// Clean removes the spill files in dir that were last written more than maxAge before now, and returns how many. It
// touches nothing but regular files that carry a spill file's name, follows no symbolic link, and takes a missing
// directory for an empty one. A file that cannot be removed does not keep it from the others.
func Clean(dir string, maxAge time.Duration, now time.Time) (removed int, err error) {
	root, err := privatedir.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !spillName.MatchString(entry.Name()) {
			continue
		}
		info, infoErr := root.Lstat(entry.Name())
		if infoErr != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) <= maxAge {
			continue
		}
		if rmErr := root.Remove(entry.Name()); rmErr != nil {
			if !errors.Is(rmErr, fs.ErrNotExist) { // another process cleans too
				err = errors.Join(err, rmErr)
			}
			continue
		}
		removed++
	}
	return removed, err
}
