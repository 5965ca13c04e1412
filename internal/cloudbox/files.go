package cloudbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/filesync"
)

// sendWait bounds how long a call waits for its files. What arrived by then stays there, and the next call goes on with it.
const sendWait = 10 * time.Minute

// Files keeps the skills, caches and credential files of HERMES_HOME in a sandbox's ~/.hermes. The book of what was sent lies in
// the sandbox's state directory, so that one which is started or restored with its files is not sent everything again. It is safe for
// concurrent use.
type Files struct {
	name        string // of the sandbox
	home        string // HERMES_HOME
	credentials []string
	force       bool
	backWait    time.Duration
	profile     *filesync.Profile
	log         *slog.Logger

	turn     chan struct{} // holds one while somebody sends; what follows is the holder's
	attempts atomic.Int64  // may be read by others too
	said     map[string]bool
	failed   string // the last failure; "" after a success
}

// FilesOptions say what is kept where.
type FilesOptions struct {
	// Bash starts the bashes of a transfer, also while the sandbox is being closed.
	Bash     func(ctx context.Context, spec driver.BashSpec) (driver.Process, error)
	Config   driver.Config
	Identity driver.Identity
	// Name says in notices where the files are ("the sandbox"), and Place what the book here is kept for.
	Name, Place string
	// Home is the home directory in the sandbox, and State a directory there that persists, of this identity and profile alone.
	Home, State string
	Log         *slog.Logger
}

type remote func(ctx context.Context, spec driver.BashSpec) (driver.Process, error)

func (r remote) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	return r(ctx, spec)
}

// NewFiles makes a Files. Nothing is sent yet.
func NewFiles(o FilesOptions) *Files {
	cfg, id := o.Config, o.Identity
	f := &Files{
		name: o.Name, home: id.Home, force: cfg.Bool("force_file_sync"), backWait: cfg.Duration("sync_back_timeout"), log: o.Log,
		turn: make(chan struct{}, 1), said: map[string]bool{}, credentials: cfg.Strings("credential_files"),
	}
	f.profile = filesync.NewProfile(filesync.ProfileOptions{
		Remote: remote(o.Bash), Home: o.Home, FarState: o.State, HermesHome: id.Home, Place: o.Place, ID: id.ID + "\x00" + id.Profile,
		SyncBack: cfg.String("sync_back"), MaxBytes: cfg.Bytes("sync_back_max_bytes"), Force: f.force, Logger: o.Log,
	})
	return f
}

// FilesOf makes the Files of a sandbox of this name; nil where nothing is synchronised: for a run that leaves nothing behind, without a
// HERMES_HOME, and where nothing can be kept there, since what came from us could not be told from what did not.
func FilesOf(req driver.OpenRequest, a *Surroundings, name string, bash func(context.Context, driver.BashSpec) (driver.Process, error)) (f *Files, notice string) {
	cfg, id := req.Config, req.Identity
	if id.Home == "" || req.ThrowAway {
		return nil, ""
	}
	if a.State == a.Private {
		if anyFiles(cfg, id) {
			notice = "skills, caches and credential files of HERMES_HOME are not sent: what was sent cannot be remembered on " + name
		}
		return nil, notice
	}
	return NewFiles(FilesOptions{
		Bash: bash, Config: cfg, Identity: id, Name: name, Place: name, Home: a.Home, State: a.State, Log: req.Logger,
	}), ""
}

// anyFiles tells whether there is anything to send.
func anyFiles(cfg driver.Config, id driver.Identity) bool {
	mappings, _ := filesync.HomeMappings(id.Home, cfg.Strings("credential_files"))
	return len(mappings) > 0
}

// Push sends what differs. A call that waited for another one's attempt has had its own.
func (f *Files) Push(ctx context.Context) (notices []string) {
	before := f.attempts.Load()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return nil
	}
	if !f.force && f.attempts.Load() != before || !f.profile.Due() {
		return nil
	}
	mappings, left := filesync.HomeMappings(f.home, f.credentials)
	now := map[string]bool{}
	for _, text := range left {
		if now[text] = true; !f.said[text] {
			notices = append(notices, text)
		}
	}
	f.said = now
	sctx, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	said, err := f.profile.Push(sctx, mappings)
	f.attempts.Add(1)
	notices = append(notices, said...)
	switch {
	case err == nil:
		f.failed = ""
	case ctx.Err() != nil: // nobody waits for it any more
	default:
		f.log.Warn("the files of HERMES_HOME were not sent", "sandbox", f.name, "error", err)
		if text := err.Error(); text != f.failed {
			f.failed = text
			notices = append(notices, fmt.Sprintf("skills, caches and credential files of HERMES_HOME were not sent to %s: %s; the next call tries again", f.name, text))
		}
	}
	return notices
}

// Pull brings back what may come back and says what changed here.
func (f *Files) Pull(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.backWait)
	defer cancel()
	done, err := f.profile.Pull(ctx)
	if done != nil && len(done.Changed) > 0 {
		f.log.Warn("files were changed by commands and came back", "from", f.name, "files", done.Changed)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		err = fmt.Errorf("it took longer than terminal.sync_back_timeout (%v)", f.backWait)
	}
	if err != nil {
		f.log.Warn("what commands changed in caches did not come back", "from", f.name, "error", err)
	}
}
