package daytona

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

func identityHash(id driver.Identity) string {
	sum := sha256.Sum256([]byte(id.ID + "\x00" + id.Profile))
	return hex.EncodeToString(sum[:6])
}

// hermesHome is what Hermes takes for the default of this backend, where the home directory is meant.
const hermesHome = "/home/daytona"

// startDir is what the sandbox is asked for as the directory of a new session. A path that can only be this machine's is
// replaced by the home directory there, with a warning.
func startDir(req driver.OpenRequest) (dir, notice string) {
	setting := req.Config.String("cwd")
	if drive := len(setting) > 1 && setting[1] == ':' && strings.ContainsRune("abcdefghijklmnopqrstuvwxyz", rune(setting[0]|0x20)); drive || strings.Contains(setting, "\\") {
		return "", fmt.Sprintf("terminal.cwd (%s) is a path of this machine; sessions start in the home directory of the sandbox", setting)
	}
	if setting == hermesHome {
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

// deadOwners tells of processes of this home and machine whether they are dead.
func (s *sandbox) deadOwners() func(id string) bool {
	home := s.req.Identity.Home
	dead := map[string]bool{}
	ids, err := owner.Dead(home)
	if err != nil {
		s.log.Debug("not every owner can be asked for", "error", err)
	}
	for _, id := range ids {
		dead[id] = true
	}
	return func(id string) bool { return id != s.owner && (dead[id] || !owner.Known(home, id)) }
}

// removeLeftovers removes, behind the opening, the private directories of this home's processes that are dead.
func (s *sandbox) removeLeftovers() {
	dead := s.deadOwners()
	var dirs []string
	for _, dir := range s.around.leftovers {
		f := strings.Split(path.Base(dir), "-") // elsewhere-TAG-OWNER-RANDOM
		if len(f) == 4 && dir != s.around.private && dead(f[2]) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return
	}
	s.behind(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, tidyWait)
		defer cancel()
		if _, _, err := s.api.execute(ctx, s.toolbox, bashLine(`rm -rf -- "$@"`, dirs...), tidyWait); err != nil && ctx.Err() == nil {
			s.log.Debug("what dead processes left was not removed", "error", err)
		}
	})
}
