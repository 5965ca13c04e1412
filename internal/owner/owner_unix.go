//go:build unix

package owner

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

func userID() string { return strconv.Itoa(os.Geteuid()) }

// ownDir refuses a directory that another user could have laid there or could write to.
func ownDir(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !st.IsDir() || !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of this user alone", dir)
	}
	return nil
}
