package ssh

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

// files keeps the skills, caches and credential files of HERMES_HOME in the account's ~/.hermes.
type files struct {
	name        string // of the account
	home        string // HERMES_HOME
	credentials []string
	force       bool
	backWait    time.Duration
	profile     *filesync.Profile
	log         *slog.Logger

	say      func(string) // says how far a transfer is; nil for nobody
	began    time.Time    // the transfer that goes on
	lastSaid time.Time

	turn     chan struct{} // holds one while somebody sends; what follows is the holder's
	attempts atomic.Int64  // may be read by others too
	said     map[string]bool
	failed   string // the last failure; "" after a success
}

// overAccount starts the bashes of a transfer, also while the sandbox is being closed.
type overAccount struct{ s *sandbox }

func (o overAccount) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	return o.s.bash(ctx, spec)
}

// newFiles is nil where nothing is synchronised: for a run that leaves nothing behind, without a HERMES_HOME, where the
// settings say so, and where nothing can be kept there, since what came from us could not be told from what did not.
func newFiles(s *sandbox, req driver.OpenRequest, a *account) (f *files, notice string) {
	cfg, id := req.Config, req.Identity
	if id.Home == "" || req.ThrowAway || !cfg.Bool("ssh_file_sync") {
		return nil, ""
	}
	f = &files{
		name: s.d.name(), home: id.Home, force: cfg.Bool("force_file_sync"), backWait: cfg.Duration("sync_back_timeout"), log: s.log,
		say: req.Progress, turn: make(chan struct{}, 1), said: map[string]bool{},
	}
	f.credentials = cfg.Strings("credential_files")
	if a.state == "" {
		if mappings, _ := filesync.HomeMappings(f.home, f.credentials); len(mappings) > 0 {
			notice = "skills, caches and credential files of HERMES_HOME are not sent: what was sent cannot be remembered on " + f.name
		}
		return nil, notice
	}
	f.profile = filesync.NewProfile(filesync.ProfileOptions{
		// A profile has a state directory of its own there, and so a book of its own.
		Remote: overAccount{s}, Home: a.home, FarState: a.state, HermesHome: id.Home, Place: f.name, ID: id.ID + "\x00" + id.Profile,
		SyncBack: cfg.String("sync_back"), MaxBytes: cfg.Bytes("sync_back_max_bytes"), Force: f.force, Logger: s.log,
		Progress: f.show,
	})
	return f, ""
}

// Prepare brings the files of HERMES_HOME there up to date. Where that fails the result of the call says so, and the next one
// tries again.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.files == nil || s.isClosed() {
		return nil, nil
	}
	return s.files.push(ctx), nil
}

// push sends what differs. A call that waited for another one's attempt has had its own.
func (f *files) push(ctx context.Context) (notices []string) {
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
	f.began, f.lastSaid = time.Now(), time.Time{}
	said, err := f.profile.Push(sctx, mappings)
	f.attempts.Add(1)
	notices = append(notices, said...)
	switch {
	case err == nil:
		f.failed = ""
	case ctx.Err() != nil: // nobody waits for it any more
	default:
		f.log.Warn("the files of HERMES_HOME were not sent", "destination", f.name, "error", err)
		if text := err.Error(); text != f.failed {
			f.failed = text
			notices = append(notices, fmt.Sprintf("skills, caches and credential files of HERMES_HOME were not sent to %s: %s; the next call tries again", f.name, text))
		}
	}
	return notices
}

// What is over in a moment is not worth a text: a transfer of this many bytes is told of at once, a smaller one when it takes that
// long; then so often.
const (
	worthTelling = 1 << 20
	longTransfer = 500 * time.Millisecond
	sayEvery     = 100 * time.Millisecond
)

// show says how far a transfer is. What comes back when the sandbox is closed is not waited for by a call, and not told of.
func (f *files) show(p filesync.Progress) {
	now := time.Now()
	switch {
	case f.say == nil || f.began.IsZero() || now.Sub(f.lastSaid) < sayEvery:
		return
	case p.AllBytes < worthTelling && now.Sub(f.began) < longTransfer:
		return
	}
	f.lastSaid = now
	const mib = 1 << 20
	f.say(fmt.Sprintf("sending skills, caches and credential files to %s: %.1f of %.1f MiB, %d of %d files",
		f.name, float64(p.Bytes)/mib, float64(p.AllBytes)/mib, p.Files, p.AllFiles))
}

// pull brings back what may come back and says what changed here.
func (f *files) pull(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.backWait)
	defer cancel()
	f.began = time.Time{}
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
