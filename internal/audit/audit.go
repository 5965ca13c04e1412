// Package audit keeps one line of JSON for each call: what was run, where, who allowed it and how it ended.
//
// The file outlives every process that writes to it, and many write at once. Each record is one write to a file opened
// for appending, so records never mix. The file is rotated by renaming (audit.jsonl.1 is the newest, .3 the oldest)
// under a lock that only rotation takes: a process that still has the old file open writes its line there, where it is
// found as well, and opens the new one with its next record. So nobody waits for anybody and no line is lost.
//
// An audit that cannot be written must not stop work. Write reports a failing disk once, and again only after it has
// worked in between.
//
// Command text is redacted and cut; the directory has mode 0700 and the file 0600; a symbolic link in the file's place is
// refused.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/output"
	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
	"github.com/elsewhere-sh/elsewhere/internal/redact"
)

const (
	// DefaultMaxBytes is how long the file gets before it is rotated: 10 MiB.
	DefaultMaxBytes = 10 << 20
	// DefaultKeep is how many rotated files are kept.
	DefaultKeep = 3

	maxCommand = 4 << 10  // bytes of command text in a record
	maxRedact  = 64 << 10 // bytes that are searched for secrets before the cut, so that none is cut in two
	maxTail    = 1 << 10  // bytes before that cut that are not written
	maxField   = 1 << 10  // bytes of any other text
)

// Options says how a Log is kept. Nil, and the zero of each field, is the default.
type Options struct {
	// MaxBytes is how long the file gets before it is rotated; 0 is DefaultMaxBytes.
	MaxBytes int64
	// Keep is how many rotated files are kept; 0 is DefaultKeep.
	Keep int
	// Secrets are values that are masked in command text wherever they occur.
	Secrets []string
	// Now is the clock for records without a time; nil is time.Now.
	Now func() time.Time
}

// Where says where a command ran.
type Where struct {
	Host      string `json:"host"`
	SandboxID string `json:"sandbox_id"`
	User      string `json:"user"`
}

// Record is one call.
type Record struct {
	Time     time.Time // when the call ended; the zero is now
	ID       string    // the call's id
	Backend  string
	Where    Where
	Task     string
	Session  string        // "" for a throw-away session
	Policy   string        // the decision: "allow", "asked: yes", "denied: rule", "not checked"
	Cause    string        // as in a Result
	ExitCode *int          // nil where it is unknown
	Bytes    int64         // of output
	Duration time.Duration // written in milliseconds
	Command  string        // as it was run; Write redacts and cuts it
}

// line is a Record as it is written.
type line struct {
	Time       string `json:"time"`
	ID         string `json:"id"`
	Backend    string `json:"backend"`
	Where      Where  `json:"where"`
	Task       string `json:"task"`
	Session    string `json:"session,omitempty"`
	Policy     string `json:"policy"`
	Cause      string `json:"cause"`
	ExitCode   *int   `json:"exit_code"`
	Bytes      int64  `json:"bytes"`
	DurationMS int64  `json:"duration_ms"`
	Command    string `json:"command"`
	Cut        bool   `json:"command_cut,omitempty"` // Command is only the beginning
}

// Log is an audit file that is open for appending. A nil *Log is valid and does nothing. All methods are safe for
// concurrent use, in any number of processes.
type Log struct {
	dir     string
	name    string
	max     int64
	keep    int
	secrets []string
	now     func() time.Time

	mu      sync.Mutex
	root    *os.Root
	file    *os.File    // nil after one that could not be opened
	opened  fs.FileInfo // of file
	torn    bool        // the last write ended in the middle of a line
	failing bool        // the last write failed, which was reported
}

// Open opens the audit file at path, which it makes where it does not exist, its directory too. It fails where path is
// a symbolic link or anything else than a regular file. opts may be nil. The caller closes the Log.
func Open(path string, opts *Options) (*Log, error) {
	if opts == nil {
		opts = &Options{}
	}
	l := &Log{
		dir: filepath.Dir(path), name: filepath.Base(path), max: opts.MaxBytes, keep: opts.Keep, secrets: opts.Secrets,
		now: opts.Now,
	}
	if l.max <= 0 {
		l.max = DefaultMaxBytes
	}
	if l.keep <= 0 {
		l.keep = DefaultKeep
	}
	if l.now == nil {
		l.now = time.Now
	}
	root, err := privatedir.Create(l.dir)
	if err != nil {
		return nil, fmt.Errorf("audit file: %w", err)
	}
	l.root = root
	if err := l.open(); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("audit file: %w", err)
	}
	return l, nil
}

// Write appends r. An error means that this record is lost; the records after it are tried again, but their failures are
// reported only after one has succeeded. After Close it returns os.ErrClosed.
func (l *Log) Write(r Record) error {
	if l == nil {
		return nil
	}
	text, err := l.encode(r)
	if err != nil {
		return fmt.Errorf("audit record: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.root == nil {
		return fmt.Errorf("audit file: %w", os.ErrClosed)
	}
	err = l.append(text)
	if err == nil {
		l.failing = false
		return nil
	}
	if l.failing {
		return nil
	}
	l.failing = true
	return fmt.Errorf("audit file: %w", err)
}

// Close closes the file. A second Close, and that of a nil Log, does nothing.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.root == nil {
		return nil
	}
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	err = errors.Join(err, l.root.Close())
	l.root, l.file = nil, nil
	return err
}

// encode returns r as a line.
func (l *Log) encode(r Record) ([]byte, error) {
	if r.Time.IsZero() {
		r.Time = l.now()
	}
	command, cut := r.Command, false
	if len(command) > maxRedact {
		command, cut = command[:maxRedact], true
	}
	command = redact.Text(redact.Values(command, l.secrets))
	if cut { // a secret that the cut made unrecognizable is at the end
		command = command[:max(0, len(command)-maxTail)]
	}
	if len(command) > maxCommand {
		command, cut = command[:maxCommand], true
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // `a && b` stays readable
	err := e.Encode(line{
		Time:    r.Time.UTC().Format(time.RFC3339Nano),
		ID:      field(r.ID),
		Backend: field(r.Backend),
		Where:   Where{field(r.Where.Host), field(r.Where.SandboxID), field(r.Where.User)},
		Task:    field(r.Task),
		Session: field(r.Session),
		Policy:  field(r.Policy),
		Cause:   field(r.Cause),

		ExitCode:   r.ExitCode,
		Bytes:      r.Bytes,
		DurationMS: r.Duration.Milliseconds(),
		Command:    output.Text([]byte(strings.TrimRight(command, "\n"))),
		Cut:        cut,
	})
	return b.Bytes(), err
}

// field bounds a text.
func field(s string) string { return output.Text([]byte(s[:min(len(s), maxField)])) }

// append writes one line to the file that is the audit file now.
func (l *Log) append(text []byte) error {
	if err := l.current(int64(len(text))); err != nil {
		return err
	}
	if l.torn { // end what a full disk left of the line before
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.file.Write(text) // one write: records of several processes do not mix
	switch {
	case err == nil:
		l.torn = false
	case n > 0:
		l.torn = true
	}
	return err
}

// current makes l.file the file that has the name now, and rotates it where size more bytes are too many.
func (l *Log) current(size int64) error {
	named, err := l.root.Lstat(l.name)
	if err != nil || l.file == nil || !os.SameFile(named, l.opened) {
		// Rotated or removed by somebody else.
		if err := l.open(); err != nil {
			return err
		}
		named = l.opened
	}
	if named.Size() == 0 || named.Size()+size <= l.max {
		return nil
	}
	// A failed rotation makes the file longer than it should be, which is better than no record.
	if rotated, err := l.rotate(size); err != nil || !rotated {
		return nil
	}
	return l.open()
}

// open opens the file by its name.
func (l *Log) open() error {
	file, err := privatedir.OpenFile(l.root, l.name, os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.opened, l.torn = file, info, false
	return nil
}

// rotate renames the files, unless another process is doing it or has done it just now. It reports whether the file's
// name is free for a new one.
func (l *Log) rotate(size int64) (bool, error) {
	lock := flock.New(filepath.Join(l.dir, l.name+".lock"), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err != nil || !locked {
		return false, err
	}
	defer lock.Close()
	named, err := l.root.Lstat(l.name)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if named.Size()+size <= l.max {
		return true, nil // a new one is there
	}
	for i := l.keep; i > 0; i-- {
		from := l.name
		if i > 1 {
			from += "." + strconv.Itoa(i-1)
		}
		err := l.root.Rename(from, l.name+"."+strconv.Itoa(i))
		if err != nil && !(i > 1 && errors.Is(err, fs.ErrNotExist)) {
			return false, err
		}
	}
	return true, nil
}
