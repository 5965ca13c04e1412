package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/filesync"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// SkippedFile is a file that a transfer left as it was, and why.
type SkippedFile = filesync.Skip

// TransferProgress is how far a transfer is, in files and bytes.
type TransferProgress = filesync.Progress

// TransferOptions says how files are copied. Nil is everything, silently.
type TransferOptions struct {
	// Exclude leaves out what these patterns match, in the syntax of .gitignore.
	Exclude []string
	// Progress is called as a transfer goes on, from one goroutine, often. May be nil.
	Progress func(TransferProgress)

	exact bool // the destination is a name, never a directory to put something into
}

// Transfer is what a copy did.
type Transfer struct {
	Files   int           // files, links and directories that were written
	Bytes   int64         // of the files
	Skipped []SkippedFile // what could not be transferred; the rest was
	Resumed bool          // an earlier copy that was cut went on
}

func uploading(src, dst string, opts *TransferOptions) transfer {
	t := transfer{op: "upload", name: dst, write: true, near: src}
	if opts != nil {
		t.exclude = opts.Exclude
	}
	return t
}

func downloading(src string, opts *TransferOptions) transfer {
	t := transfer{op: "download", name: src, whole: true}
	if opts != nil {
		t.exclude = opts.Exclude
	}
	return t
}

// SyncOptions says what is synchronised.
type SyncOptions struct {
	// Local is a directory of this machine, Remote one of the sandbox (relative to its home).
	Local, Remote string
	// FromSandbox makes the sandbox's directory the source. Else this machine's is.
	FromSandbox bool

	Exclude   []string // patterns in the syntax of .gitignore; what they match is left alone on both sides
	GitIgnore bool     // the .gitignore files of the source count too
	Delete    bool     // remove what is gone at the source, as far as an earlier sync wrote it
	Force     bool     // the source wins every conflict, and with Delete nothing else stays
	DryRun    bool     // change nothing
	Progress  func(TransferProgress)
}

// Synced is what a sync did, or with DryRun would do. Paths are relative, with slashes; any bytes.
type Synced = filesync.Synced

// Upload copies a file or a tree of this machine into the sandbox, as docker cp does: into a directory that is there, else
// to the name given, whose parents are made. A source that ends in /. stands for what is in it. A relative dst starts at
// the sandbox's home. Nothing is ever half written: each file is renamed to its place when all have arrived. An upload that
// was cut goes on from there when it is repeated.
//
// Where commands are checked (Guarded), so are the paths that are written, and by Download and ReadFile read: ErrDenied.
func (sb *Sandbox) Upload(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	if err := sb.permitPath(ctx, nil, uploading(src, dst, opts)); err != nil {
		return nil, err
	}
	return sb.upload(ctx, src, dst, opts)
}

func (sb *Sandbox) upload(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	c, done := sb.copying(src, dst, opts)
	defer done()
	copied, err := c.To(ctx)
	return transferOf(copied), sb.transferError(err, "upload", dst)
}

// Download copies a file or a tree of the sandbox to this machine, in the same way. Nothing is written outside of dst,
// whatever the sandbox sends; set-user-id bits and devices do not come along.
func (sb *Sandbox) Download(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	if err := sb.permitPath(ctx, nil, downloading(src, opts)); err != nil {
		return nil, err
	}
	return sb.download(ctx, src, dst, opts)
}

func (sb *Sandbox) download(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	c, done := sb.copying(dst, src, opts)
	defer done()
	copied, err := c.From(ctx)
	return transferOf(copied), sb.transferError(err, "download", src)
}

// ReadFile reads a file of the sandbox. One of more than DefaultMaxOutput bytes is an error: Download takes any size.
func (sb *Sandbox) ReadFile(ctx context.Context, name string) ([]byte, error) {
	if err := sb.permitPath(ctx, nil, transfer{op: "read", name: name}); err != nil {
		return nil, err
	}
	return sb.readFile(ctx, name)
}

func (sb *Sandbox) readFile(ctx context.Context, name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "elsewhere-read-")
	if err != nil {
		return nil, sb.transferError(err, "read", name)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "file")
	done, err := sb.download(ctx, name, file, &TransferOptions{exact: true})
	if err != nil {
		return nil, err
	}
	if len(done.Skipped) > 0 {
		return nil, sb.transferError(errText(done.Skipped[0].Why), "read", name)
	}
	switch info, err := os.Stat(file); {
	case err != nil:
		return nil, sb.transferError(err, "read", name)
	case !info.Mode().IsRegular():
		return nil, wrap(errText("it is a directory"), driver.KindConfig, "read", sb.backend, name, "name a file")
	case info.Size() > DefaultMaxOutput:
		return nil, wrap(fmt.Errorf("it has %d bytes", info.Size()), driver.KindConfig, "read", sb.backend, name, "use Download for a file of this size")
	}
	data, err := os.ReadFile(file)
	return data, sb.transferError(err, "read", name)
}

// WriteFile makes data the content of a file in the sandbox, with this mode. Its parents are made. A reader sees the old
// content or the new, never a part.
func (sb *Sandbox) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	if err := sb.permitPath(ctx, nil, transfer{op: "write", name: name, write: true}); err != nil {
		return err
	}
	return sb.writeFile(ctx, name, data, perm)
}

func (sb *Sandbox) writeFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	dir, err := os.MkdirTemp("", "elsewhere-write-")
	if err != nil {
		return sb.transferError(err, "write", name)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return sb.transferError(err, "write", name)
	}
	if err := os.Chmod(file, perm.Perm()); err != nil {
		return sb.transferError(err, "write", name)
	}
	done, err := sb.upload(ctx, file, name, &TransferOptions{exact: true})
	if err == nil && len(done.Skipped) > 0 {
		err = sb.transferError(errText(done.Skipped[0].Why), "write", name)
	}
	return err
}

// Sync makes a directory like another one. A file of the destination that was changed since the last sync of this pair, or
// that differs at the first one, is left as it is and listed (Synced.Conflicts), unless Force says otherwise.
func (sb *Sandbox) Sync(ctx context.Context, o SyncOptions) (*Synced, error) {
	t := transfer{op: "sync", name: o.Remote, exclude: o.Exclude}
	if t.whole = o.FromSandbox; !t.whole {
		t.write, t.near, t.exact = true, o.Local, true
		t.force, t.delete, t.gitIgnore = o.Force, o.Delete, o.GitIgnore
	}
	if err := sb.permitPath(ctx, nil, t); err != nil {
		return nil, err
	}
	pair := &filesync.Pair{
		Remote: sb.at().drv, Far: sb.farPath(o.Remote), ToFar: !o.FromSandbox, Place: sb.farPlace(),
		Exclude: o.Exclude, GitIgnore: o.GitIgnore, Delete: o.Delete, Force: o.Force, DryRun: o.DryRun, Progress: o.Progress,
	}
	near, err := filepath.Abs(o.Local)
	if err == nil {
		pair.Near = near
		pair.Books, pair.ID, err = sb.syncBooks()
	}
	if err != nil {
		return nil, sb.transferError(err, "sync", o.Local)
	}
	done, err := pair.Sync(ctx)
	return done, sb.transferError(err, "sync", o.Remote)
}

// Upload is Sandbox.Upload, but a relative dst starts at the session's directory; so it is with the others below. What was agreed to
// for the session counts for them.
func (s *Session) Upload(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	dst = s.path(ctx, dst)
	if err := s.sb.permitPath(ctx, s, uploading(src, dst, opts)); err != nil {
		return nil, err
	}
	return s.sb.upload(ctx, src, dst, opts)
}

// Download is Sandbox.Download from the session's directory.
func (s *Session) Download(ctx context.Context, src, dst string, opts *TransferOptions) (*Transfer, error) {
	src = s.path(ctx, src)
	if err := s.sb.permitPath(ctx, s, downloading(src, opts)); err != nil {
		return nil, err
	}
	return s.sb.download(ctx, src, dst, opts)
}

// ReadFile is Sandbox.ReadFile from the session's directory.
func (s *Session) ReadFile(ctx context.Context, name string) ([]byte, error) {
	name = s.path(ctx, name)
	if err := s.sb.permitPath(ctx, s, transfer{op: "read", name: name}); err != nil {
		return nil, err
	}
	return s.sb.readFile(ctx, name)
}

// WriteFile is Sandbox.WriteFile in the session's directory.
func (s *Session) WriteFile(ctx context.Context, name string, data []byte, perm fs.FileMode) error {
	if err := s.PermitWrite(ctx, name); err != nil {
		return err
	}
	return s.sb.writeFile(ctx, s.path(ctx, name), data, perm)
}

// PermitWrite asks for what WriteFile asks, and writes nothing: for a program that follows links before it writes. An answer for once
// is used up by it.
func (s *Session) PermitWrite(ctx context.Context, name string) error {
	return s.sb.permitPath(ctx, s, transfer{op: "write", name: s.path(ctx, name), write: true})
}

// path makes a relative path start at the session's directory, as the last call left it.
func (s *Session) path(ctx context.Context, name string) string {
	if path.IsAbs(name) || name == "~" || strings.HasPrefix(name, "~/") {
		return name
	}
	// A directory is the session's when the state of its call is written. A failure is a notice of the next result.
	_ = s.Flush(ctx)
	return joinKeeping(s.Cwd(), name)
}

// farPath makes a path of the sandbox absolute. A slash or /. at its end means something and stays.
func (sb *Sandbox) farPath(name string) string {
	if path.IsAbs(name) {
		return name
	}
	if name == "~" {
		name = ""
	}
	return joinKeeping(sb.at().info.Home, strings.TrimPrefix(name, "~/"))
}

func joinKeeping(dir, name string) string {
	if name == "" {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// farPlace tells one far side from another, in the books. A sandbox that was made again is the same place with other files.
func (sb *Sandbox) farPlace() string {
	info := sb.at().info
	return strings.Join([]string{sb.backend, sb.task, info.Host, info.User}, "\x00")
}

// syncBooks is where the books of transfers are, and who we are.
func (sb *Sandbox) syncBooks() (dir, id string, err error) {
	if sb.home == "" {
		return "", "", errors.New("there is no HERMES_HOME in which to remember what was synchronised")
	}
	id, err = owner.Identity(sb.home)
	return filepath.Join(sb.home, "elsewhere", "sync"), id, err
}

func (sb *Sandbox) copying(near, far string, opts *TransferOptions) (c *filesync.Copy, done func()) {
	if opts == nil {
		opts = &TransferOptions{}
	}
	c = &filesync.Copy{
		Remote: sb.at().drv, Near: near, Far: sb.farPath(far), Exclude: opts.Exclude, Exact: opts.exact, Progress: opts.Progress,
		ID: owner.NewID(), // nobody goes on with what nobody remembers
	}
	done = func() {}
	if dir, id, err := sb.syncBooks(); err == nil {
		if unlock, ok := filesync.LockCopy(dir, sb.farPlace(), near, far); ok {
			c.ID, done = id, unlock
		}
	}
	return c, done
}

func transferOf(c *filesync.Copied) *Transfer {
	if c == nil {
		return nil
	}
	return &Transfer{Files: c.Files, Bytes: c.Bytes, Skipped: c.Skipped, Resumed: c.Resumed}
}

// transferError says what kind of failure it was.
func (sb *Sandbox) transferError(err error, op, target string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, filesync.ErrUnsupported):
		return wrap(err, driver.KindUnsupported, op, sb.backend, target, "")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, filesync.ErrArgument):
		return wrap(err, driver.KindConfig, op, sb.backend, target, "check the paths and their permissions")
	}
	kind, hint := kindOf(sb.back, err), ""
	if kind == driver.KindLost {
		hint = "repeat it: what goes to the sandbox goes on from what has arrived"
	}
	return wrap(err, kind, op, sb.backend, target, hint)
}
