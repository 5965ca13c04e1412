package local

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// forgetAfter is how long the lease of a dead owner is kept for whoever else has to clean up after it.
const forgetAfter = 7 * 24 * time.Hour

// removeLeftovers removes the private directories of owners that are dead. What a record names is removed only where it
// is a directory whose name we gave and whose owner is the user.
func removeLeftovers(id driver.Identity, log *slog.Logger) {
	dead, err := owner.Dead(id.Home)
	if err != nil {
		log.Debug("cannot look for dead owners", "err", err)
	}
	for _, dead := range dead {
		failed := false
		for _, dir := range owner.Recorded(id.Home, dead) {
			if !filepath.IsAbs(dir) || !strings.HasPrefix(filepath.Base(dir), privatePrefix+dead+"-") {
				continue
			}
			st, err := os.Lstat(dir)
			if err != nil || !st.IsDir() || !ownFile(st) {
				continue
			}
			if err := os.RemoveAll(dir); err != nil {
				failed = true
				log.Warn("cannot remove what a killed process left", "dir", dir, "err", err)
			}
		}
		if failed {
			continue
		}
		if err := errors.Join(owner.Removed(id.Home, dead), owner.ForgetOld(id.Home, dead, forgetAfter)); err != nil {
			log.Debug("cannot forget a dead owner", "err", err)
		}
	}
}
