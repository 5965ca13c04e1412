//go:build unix

package ssh

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// canShare says that this system's ssh has masters.
const canShare = true

// apart lets a program live in a session of its own, so that what a terminal sends to this process does not reach it.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// killProcess ends another process of this user at once.
func killProcess(pid int) {
	if pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ownedByUs refuses a directory that another user made.
func ownedByUs(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || int(sys.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is another user's", dir)
	}
	return nil
}
