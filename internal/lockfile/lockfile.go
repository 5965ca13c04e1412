// Package lockfile says whether a lock counts that was taken on a file which its holders may remove.
//
// A lock is on a file and not on its name. Whoever opens the file, and gets the lock when the holder before has removed it, holds
// a lock that nobody else will ever meet, while the next one makes a file of the same name and locks that. So where a lock file
// is ever removed, and its name may be used again, a lock counts only when it has been looked at behind the locking.
package lockfile

import (
	"os"

	"github.com/gofrs/flock"
)

// Current tells whether the file that lock holds is the one that others find by its name. Call it while it is locked.
func Current(lock *flock.Flock) bool {
	held, err := lock.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(lock.Path())
	return err == nil && os.SameFile(held, named)
}
