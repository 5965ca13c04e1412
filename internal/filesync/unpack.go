package filesync

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// arrival is one member of an archive that was unpacked into the stage and is about to go to its place.
type arrival struct {
	name  string // below the root, with slashes
	token string
	mode  fs.FileMode
}

// unpacker puts what an archive holds below a root, and nothing anywhere else: names that lead out of it are refused, so
// are devices, and whatever would go through a link. A file is written to the stage first and then renamed.
type unpacker struct {
	root  *os.Root
	stage string // the name of a directory in the root
	// place says where a member goes, or why it is left out.
	place func(name string) (rel string, why string)
	// admit is asked before a member that has arrived goes to its place; a text is why not. Nil is yes.
	admit func(arrival) (why string)
	// keepMode makes files have the mode that they have in the archive; otherwise a file that is there keeps its own, a new
	// one has 0600, or 0700 for a directory.
	keepMode bool
	links    bool  // symbolic links are made; otherwise they are left out
	max      int64 // bytes of content in all; 0 is no limit
	moved    func(bytes int64)
	skip     func(name, why string)

	arrived map[string]string // name in the archive of each file: its place, for hard links to it
	tokens  map[string]string
	modes   map[string]fs.FileMode // of directories that were made
	times   map[string]time.Time   // of those that the stream names
	count   int
	written int64
}

// errTooMuch says that an archive holds more than it may.
var errTooMuch = errors.New("it holds more than the limit allows")

// unpack reads archives, one behind the other, until the stream ends. An error is the stream's or the stage's; what is
// wrong with one member is told to skip.
func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	u.arrived, u.tokens, u.modes = map[string]string{}, map[string]string{}, map[string]fs.FileMode{}
	u.times = map[string]time.Time{}
	defer u.setModes()
	buffered := bufio.NewReaderSize(r, 256<<10)
	for {
		more, err := nextArchive(buffered)
		if err != nil || !more {
			return err
		}
		archive := tar.NewReader(buffered)
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if err := u.member(h, archive); err != nil {
				return err
			}
		}
	}
}

// nextArchive skips the zeros between two archives.
func nextArchive(r *bufio.Reader) (bool, error) {
	for {
		block, err := r.Peek(512)
		if len(block) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return false, err
		}
		if len(bytes.Trim(block, "\x00")) > 0 {
			return true, nil
		}
		_, _ = r.Discard(len(block))
	}
}

// member unpacks one member.
func (u *unpacker) member(h *tar.Header, content io.Reader) error {
	name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
	if name == "" || name == "." {
		return nil
	}
	if !local(name) {
		u.skip(h.Name, "its name leads out of the directory")
		return nil
	}
	rel, why := u.place(name)
	if why == "" && (!local(rel) || isTemporary(rel)) {
		why = "its name cannot be used here"
	}
	if why != "" {
		u.skip(name, why)
		return nil
	}
	var err error
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeGNUSparse: //nolint:staticcheck // old archives
		err = u.file(name, rel, h, content)
	case tar.TypeDir:
		err = u.directory(rel, h)
	case tar.TypeSymlink:
		if !u.links {
			why = "links are not taken over"
		} else {
			err = u.link(name, rel, h)
		}
	case tar.TypeLink:
		err = u.hardLink(rel, h)
	default:
		why = "it is neither a file nor a directory nor a link"
	}
	var own *memberError
	if errors.As(err, &own) {
		why, err = own.Error(), nil
	}
	if why != "" {
		u.skip(rel, why)
	}
	return err
}

// memberError is wrong with one member alone.
type memberError struct{ error }

func memberErr(err error) error {
	if err == nil || errors.Is(err, errTooMuch) {
		return err
	}
	return &memberError{unwrapPath(err)}
}

// file writes a file to the stage, and from there to its place.
func (u *unpacker) file(name, rel string, h *tar.Header, content io.Reader) error {
	if h.Size < 0 || u.max > 0 && h.Size > u.max-u.written {
		return errTooMuch
	}
	staged, token, err := u.toStage(content)
	if err != nil {
		return err
	}
	mode := fs.FileMode(h.Mode).Perm()
	if err := u.settle(staged, rel, arrival{rel, token, mode}, h.ModTime); err != nil {
		_ = u.root.Remove(staged)
		return memberErr(err)
	}
	u.arrived[name] = rel
	return nil
}

// toStage writes content to a new file in the stage, with holes where it is zeros.
func (u *unpacker) toStage(content io.Reader) (staged, token string, err error) {
	u.count++
	staged = filepath.Join(u.stage, fmt.Sprint(u.count))
	f, err := u.root.OpenFile(staged, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", "", err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(hash, &holed{file: f, moved: u.moved, written: &u.written}), content)
	if err == nil {
		var at int64
		if at, err = f.Seek(0, io.SeekCurrent); err == nil {
			err = f.Truncate(at)
		}
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = u.root.Remove(staged)
	}
	return staged, fileToken(hash.Sum(nil)), err
}

// holed writes a file and leaves holes where blocks are zeros.
type holed struct {
	file    *os.File
	moved   func(int64)
	written *int64
}

var zeroBlock [holeBlock]byte

func (w *holed) Write(p []byte) (int, error) {
	*w.written += int64(len(p))
	if w.moved != nil {
		w.moved(int64(len(p)))
	}
	for rest := p; len(rest) > 0; {
		n, zero := stretch(rest)
		var err error
		if zero {
			_, err = w.file.Seek(int64(n), io.SeekCurrent)
		} else {
			_, err = w.file.Write(rest[:n])
		}
		if err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// stretch gives the length of what p begins with: whole blocks of zeros, or all up to such blocks.
func stretch(p []byte) (n int, zero bool) {
	isZero := func(at int) bool { return len(p)-at >= holeBlock && bytes.Equal(p[at:at+holeBlock], zeroBlock[:]) }
	zero = isZero(0)
	for n = holeBlock; n < len(p) && isZero(n) == zero && (!zero || len(p)-n >= holeBlock); {
		n += holeBlock
	}
	return min(n, len(p)), zero
}

// settle moves a staged file or link to its place.
func (u *unpacker) settle(staged, rel string, a arrival, mtime time.Time) error {
	if u.admit != nil {
		if why := u.admit(a); why != "" {
			return errors.New(why)
		}
	}
	native := filepath.FromSlash(rel)
	if err := u.parents(path.Dir(rel)); err != nil {
		return err
	}
	mode := a.mode
	there, err := u.root.Lstat(native)
	switch {
	case err == nil && there.IsDir():
		return errors.New("a directory is in its place")
	case u.keepMode:
	case err == nil && there.Mode().IsRegular():
		mode = there.Mode().Perm()
	default:
		mode = 0o600
	}
	if a.token[0] == 'f' {
		if err := u.root.Chmod(staged, mode); err != nil {
			return err
		}
		_ = u.root.Chtimes(staged, mtime, mtime)
	}
	if err := u.root.Rename(staged, native); err != nil {
		return err
	}
	u.tokens[rel] = a.token
	return nil
}

// parents makes the directories on the way to a place. None may be a link: it could lead to what the caller did not mean.
func (u *unpacker) parents(dir string) error {
	if dir == "." {
		return nil
	}
	native := filepath.FromSlash(dir)
	info, err := u.root.Lstat(native)
	switch {
	case err == nil && info.IsDir():
		if parent := path.Dir(dir); parent != "." {
			return u.parents(parent)
		}
		return nil
	case err == nil:
		return fmt.Errorf("%s is not a directory", dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := u.parents(path.Dir(dir)); err != nil {
		return err
	}
	if err := u.root.Mkdir(native, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if u.keepMode {
		u.modes[dir] = 0o755
	}
	return nil
}

func (u *unpacker) directory(rel string, h *tar.Header) error {
	native := filepath.FromSlash(rel)
	info, err := u.root.Lstat(native)
	made := err != nil || !info.IsDir()
	if made && u.admit != nil {
		if why := u.admit(arrival{rel, directory, 0}); why != "" {
			return memberErr(errors.New(why))
		}
		if err == nil { // what may give way is no directory: checked above
			if err := u.root.Remove(native); err != nil {
				return memberErr(err)
			}
		}
	}
	if err := u.parents(rel); err != nil {
		return memberErr(err)
	}
	if made && u.keepMode {
		u.modes[rel] = fs.FileMode(h.Mode).Perm()
		u.times[rel] = h.ModTime
	}
	u.tokens[rel] = directory
	return nil
}

// setModes gives the directories that were made their modes and times, now that all is in them.
func (u *unpacker) setModes() {
	for dir, mode := range u.modes {
		_ = u.root.Chmod(filepath.FromSlash(dir), mode|0o700)
	}
	for dir, mtime := range u.times {
		_ = u.root.Chtimes(filepath.FromSlash(dir), mtime, mtime)
	}
	for dir, mode := range u.modes {
		if mode&0o700 != 0o700 {
			defer func() { _ = u.root.Chmod(filepath.FromSlash(dir), mode) }()
		}
	}
}

func (u *unpacker) link(name, rel string, h *tar.Header) error {
	if strings.ContainsRune(h.Linkname, 0) || h.Linkname == "" {
		return memberErr(errors.New("its target cannot be used here"))
	}
	u.count++
	staged := filepath.Join(u.stage, fmt.Sprint(u.count))
	if err := u.root.Symlink(h.Linkname, staged); err != nil {
		return memberErr(err)
	}
	if err := u.settle(staged, rel, arrival{rel, linkToken(h.Linkname), 0o777}, h.ModTime); err != nil {
		_ = u.root.Remove(staged)
		return memberErr(err)
	}
	return nil
}

// hardLink makes a copy of a file that arrived before in the same stream; a link to anything else is refused.
func (u *unpacker) hardLink(rel string, h *tar.Header) error {
	first, ok := u.arrived[strings.TrimPrefix(h.Linkname, "./")]
	if !ok {
		return memberErr(errors.New("it is a hard link to what did not arrive"))
	}
	f, err := u.root.Open(filepath.FromSlash(first))
	if err != nil {
		return memberErr(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return memberErr(errors.New("it is a hard link to what is no file"))
	}
	if u.max > 0 && info.Size() > u.max-u.written {
		return errTooMuch
	}
	staged, token, err := u.toStage(f)
	if err != nil {
		return err
	}
	if err := u.settle(staged, rel, arrival{rel, token, fs.FileMode(h.Mode).Perm()}, h.ModTime); err != nil {
		_ = u.root.Remove(staged)
		return memberErr(err)
	}
	return nil
}
