package lockfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gofrs/flock"
)

func TestALockCountsWhileItsNameIsItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	lock := flock.New(file)
	defer lock.Close()
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if !Current(lock) {
		t.Error("a lock that was just taken does not count")
	}
	if err := os.Remove(file); err != nil {
		t.Skip("an open file cannot be removed here: ", err)
	}
	if Current(lock) {
		t.Error("a lock on a removed file counts")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if Current(lock) {
		t.Error("a lock on a removed file counts, since another one has its name")
	}
}
