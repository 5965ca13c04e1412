// Package cloudbox is what the backends share whose sandboxes are a cloud's: what is looked for in one and how, whose leftovers are
// there, and the files of HERMES_HOME in it.
package cloudbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/hostpath"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// IdentityHash stands for an identity and its profile in paths and labels.
func IdentityHash(id driver.Identity) string {
	sum := sha256.Sum256([]byte(id.ID + "\x00" + id.Profile))
	return hex.EncodeToString(sum[:6])
}

// StartDir is what a sandbox is asked for as the directory of a new session; hermes is what Hermes takes for its backend's default, which means
// the sandbox's own. A path that can only be this machine's is replaced by that too, with a notice.
func StartDir(req driver.OpenRequest, hermes string) (dir, notice string) {
	setting := req.Config.String("cwd")
	if hostpath.Only(setting) {
		return "", fmt.Sprintf("terminal.cwd (%s) is a path of this machine; sessions start in the home directory of the sandbox", setting)
	}
	if setting == hermes {
		return "", ""
	}
	if home := req.Identity.Home; home != "" {
		own := path.Join(home, "home") // Hermes gives its subprocesses a home below its own
		if setting == own || strings.HasPrefix(setting, own+"/") {
			return "~" + strings.TrimPrefix(setting, own), ""
		}
	}
	return setting, ""
}

// DeadOwners tells of processes of this home and machine whether they are dead; self is this one.
func DeadOwners(home, self string, log *slog.Logger) func(id string) bool {
	dead := map[string]bool{}
	ids, err := owner.Dead(home)
	if err != nil {
		log.Debug("not every owner can be asked for", "error", err)
	}
	for _, id := range ids {
		dead[id] = true
	}
	return func(id string) bool { return id != self && (dead[id] || !owner.Known(home, id)) }
}

// DeadDirs are those of the leftovers whose process is dead.
func (a *Surroundings) DeadDirs(dead func(id string) bool) (dirs []string) {
	for _, dir := range a.Leftovers {
		f := strings.Split(path.Base(dir), "-") // elsewhere-TAG-OWNER-RANDOM
		if len(f) == 4 && dir != a.Private && dead(f[2]) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

const (
	// reapEvery is how often openings reap at most, among all processes of one home, and reapWait bounds one reaping.
	reapEvery = time.Hour
	reapWait  = 2 * time.Minute
)

// Reap lets a keeper reap, unless a process of this home did so within the hour, and says what went.
func Reap(ctx context.Context, home, backend string, keeper driver.Keeper, log *slog.Logger) {
	if !takeTurn(home, backend, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reapWait)
	defer cancel()
	removed, err := keeper.Reap(ctx)
	if err != nil && ctx.Err() == nil {
		log.Debug("not every orphaned sandbox was removed", "error", err)
	}
	for _, task := range removed {
		log.Info("an orphaned sandbox was removed", "task", task)
	}
}

// takeTurn tells whether the last reaping of this home by this backend is long enough ago, and notes this one.
func takeTurn(home, backend string, now time.Time) bool {
	file := filepath.Join(home, "elsewhere", backend+"-reaped")
	if st, err := os.Stat(file); err == nil && now.Sub(st.ModTime()) < reapEvery && !st.ModTime().After(now.Add(reapEvery)) {
		return false
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false
	}
	return os.WriteFile(file, nil, 0o600) == nil && os.Chtimes(file, now, now) == nil
}
