package local

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

func toBash(path string) string   { return bashPath(path) }
func toNative(path string) string { return windowsPath(path) }

func adaptEnvironment(env *environment, bash string) { msysEnvironment(env, bash, isDir) }

// probeTime bounds the start of a bash and one program; a virus scanner's first look at them takes seconds.
const probeTime = 15 * time.Second

func findBash(ctx context.Context, vars *environment, setting string) (string, error) {
	isFile := func(file string) bool {
		st, err := os.Stat(file)
		return err == nil && st.Mode().IsRegular()
	}
	return findGitBash(setting, vars, isFile, func(file string) error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, file, "--noprofile", "--norc", "-c", "uname -s && exec true")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NO_WINDOW}
		cmd.WaitDelay = time.Second
		err := cmd.Run()
		return judgeProbe(stdout.String(), stderr.String(), err)
	})
}

func enterable(dir string) bool { return isDir(dir) }

// private has nothing to do: a directory in the user's profile is the user's own.
func private(dir string) error {
	_, err := os.Lstat(dir)
	return err
}

func ownFile(os.FileInfo) bool { return true }
