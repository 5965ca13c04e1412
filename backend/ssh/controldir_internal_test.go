//go:build unix

package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// TestOnlyWhoHoldsTheLockThatCountsReaps: of three processes one has opened the stale lock, the next has reaped under it and the third
// connects under a lock of its own by the time that the first has it.
func TestOnlyWhoHoldsTheLockThatCountsReaps(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	old := time.Now().Add(-2 * staleAge)
	write := func(file, home string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(home), 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		meanwhile func(file string)
		reaped    bool
	}{
		"nobody came in between": {func(string) {}, true},
		"another lock, whose home is gone too": {func(file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			write(file, gone, old)
		}, false},
		"the same lock, which somebody has connected under": {func(file string) { write(file, t.TempDir(), time.Now()) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := controlDir{path: t.TempDir()}
			file, sessions := filepath.Join(dir.path, "0123456789.connect"), filepath.Join(dir.path, "0123456789.sessions")
			write(file, gone, old)
			write(sessions, "10", old)
			lock := flock.New(file, flock.SetFlag(os.O_RDWR))
			defer lock.Close()
			if ok, err := lock.TryRLock(); !ok || err != nil { // opens it, as TryLock does before it asks
				t.Fatal(ok, err)
			}
			c.meanwhile(file)
			dir.reapUnder(lock, "0123456789")
			if _, err := os.Stat(sessions); errors.Is(err, os.ErrNotExist) != c.reaped {
				t.Errorf("the files are reaped: %v, want %v", !c.reaped, c.reaped)
			}
		})
	}
}
