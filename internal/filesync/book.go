package filesync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
)

// entry is what the book knows of one path: what both sides had when they were last the same.
type entry struct {
	Token   string
	Mode    fs.FileMode // the source's
	Near    nearStat
	Far     string // stamp; "" where it is not known
	Found   bool   // it was there, the same, before the first transfer: it is not removed
	Pending string // a token that was on its way when a transfer broke: it is ours too
}

// ours tells whether a token is what an earlier transfer of ours put there.
func (e entry) ours(token string) bool {
	return token != "" && token != odd && token != unread && (token == e.Token || token == e.Pending)
}

// book is the memory of one pair of places. It is kept here and, as a generation and a list of names, on the far side: only
// where both have the same generation is it known that the book is about that place.
type book struct {
	Version    int
	Generation string
	Next       string // being written; the far side may have it already
	Files      map[string]entry

	path  string
	lock  *flock.Flock
	saved *book // what the file holds; nil is nothing
}

const bookVersion = 1

// lockWait is how long another process of this machine may use the same book before waiting for it is given up.
const lockWait = 10 * time.Minute

// key makes a file name of what tells one pair from another.
func key(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// openBook locks and reads a book. It must be closed. One that cannot be read is as good as none.
func openBook(ctx context.Context, dir, name string) (*book, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := &book{path: filepath.Join(dir, name+".book"), Files: map[string]entry{}}
	b.lock = flock.New(filepath.Join(dir, name+".lock"), flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if _, err := b.lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return nil, fmt.Errorf("another process is transferring the same files (%s): %w", b.lock.Path(), err)
	}
	data, err := os.ReadFile(b.path)
	if err != nil {
		return b, nil
	}
	var read book
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&read); err == nil && read.Version == bookVersion && read.Files != nil {
		b.Version, b.Generation, b.Next, b.Files = read.Version, read.Generation, read.Next, read.Files
		b.kept()
	}
	return b, nil
}

// kept notes that the file holds the book as it is now.
func (b *book) kept() {
	b.saved = &book{Version: b.Version, Generation: b.Generation, Next: b.Next, Files: maps.Clone(b.Files)}
}

// save writes the book, unless the file holds just that.
func (b *book) save() error {
	b.Version = bookVersion
	if s := b.saved; s != nil && s.Version == b.Version && s.Generation == b.Generation && s.Next == b.Next && maps.Equal(s.Files, b.Files) {
		return nil
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(b); err != nil {
		return err
	}
	if err := atomicfile.Write(b.path, data.Bytes(), 0o600); err != nil {
		return err
	}
	b.kept()
	return nil
}

func (b *book) close() { _ = b.lock.Close() }

// trusted tells whether a generation of the far side's is one that this book wrote.
func (b *book) trusted(generation string) bool {
	return generation != "" && (generation == b.Generation || generation == b.Next)
}

// disown keeps what is known of this side alone: what the far side has is not ours as far as we can tell.
func (b *book) disown() {
	for name, e := range b.Files {
		e.Far, e.Pending = "", ""
		b.Files[name] = e
	}
}

// farText is the far side's copy: the generation on a line, then NUL-ended names for xargs.
func (b *book) farText(generation string, more map[string]string, less []removal) []byte {
	names := map[string]bool{}
	for name := range b.Files {
		names[name] = true
	}
	for _, r := range less {
		delete(names, r.name)
	}
	for name := range more {
		names[name] = true
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	var text bytes.Buffer
	text.WriteString(generation + "\n")
	for _, name := range sorted {
		text.WriteString("./" + name + "\x00")
	}
	return text.Bytes()
}
