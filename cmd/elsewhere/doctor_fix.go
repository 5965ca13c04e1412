package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// socketAge is how old a socket has to be to be taken for stale: a younger one may not be listened on yet.
const socketAge = time.Minute

// fix mends what is safe to mend: modes of what is the user's own, sockets that nobody listens on, and what dead processes left. It
// gives a check for each thing that it changed, or could not change.
func (a *app) fix(ctx context.Context, t target, home string) []check {
	if home == "" {
		return nil
	}
	own := filepath.Join(home, "elsewhere")
	checks := slices.Concat(
		fixMode(home, 0o022), fixMode(own, 0o077), fixMode(filepath.Join(home, ".env"), 0o077), fixMode(filepath.Join(own, "mcp-token"), 0o077),
		fixSockets(own),
	)
	return append(checks, a.fixLeftovers(ctx, t, home)...)
}

// fixMode takes from others what the mask says. A link is not followed: what it leads to is somebody else's decision.
func fixMode(path string, mask fs.FileMode) []check {
	info, err := os.Lstat(path)
	if err != nil || runtime.GOOS == "windows" || !info.IsDir() && !info.Mode().IsRegular() || info.Mode().Perm()&mask == 0 {
		return nil
	}
	to := info.Mode().Perm() &^ mask
	if err := os.Chmod(path, to); err != nil {
		return []check{notFixed("mode", err)}
	}
	return []check{{State: fixed, Name: "mode", Detail: fmt.Sprintf("%s had mode %04o and has %04o now", path, info.Mode().Perm(), to)}}
}

func notFixed(name string, err error) check {
	return check{State: warning, Name: name, Detail: "it could not be fixed: " + err.Error()}
}

// fixSockets removes sockets on which nobody listens any more.
func fixSockets(dir string) []check {
	var checks []check
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type() != fs.ModeSocket {
			return nil
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < socketAge || !refuses(path) {
			return nil
		}
		if err := os.Remove(path); err != nil {
			checks = append(checks, notFixed("socket", err))
			return nil
		}
		checks = append(checks, check{State: fixed, Name: "socket", Detail: "nobody listened on " + path + "; it is removed"})
		return nil
	})
	return checks
}

// refuses tells for certain that nobody listens on a socket.
func refuses(path string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// leftBehind are dead owners that recorded what they left.
func leftBehind(home string) ([]string, error) {
	dead, err := owner.Dead(home)
	// The lease of a dead owner stays for a while; what it recorded goes with what it left.
	return slices.DeleteFunc(dead, func(id string) bool { return len(owner.Recorded(home, id)) == 0 }), err
}

// fixLeftovers removes what dead processes recorded on this machine: opening local does, as the next run there would.
func (a *app) fixLeftovers(ctx context.Context, t target, home string) []check {
	const name = "leftovers"
	dead, _ := leftBehind(home)
	if len(dead) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	t.backend, t.task = "local", elsewhere.DefaultTask
	cfg, err := a.load(&t)
	if err != nil {
		return []check{notFixed(name, err)}
	}
	sandbox, err := a.open(ctx, cfg, t, false)
	if err != nil {
		return []check{notFixed(name, err)}
	}
	a.closing("sandbox", sandbox.Close)
	left, err := leftBehind(home)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d are left", len(left))
	}
	if err != nil {
		return []check{notFixed(name, err)}
	}
	return []check{{State: fixed, Name: name, Detail: fmt.Sprintf("what %d dead processes left is removed", len(dead))}}
}
