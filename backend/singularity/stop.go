//go:build linux

package singularity

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// stopPoll is how often it is looked whether an instance has ended.
const stopPoll = 20 * time.Millisecond

// stop ends an instance with all that runs in it, and waits until the engine has let go of its files. One that is gone is no
// error. Whoever calls it holds the right to make.
func stop(ctx context.Context, prog *program, rec *record) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	running, err := prog.list(ctx, rec.Name)
	if err != nil {
		return failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
	}
	found, there := running[rec.Name]
	if !there {
		return nil
	}
	begin := beginOf(found.PID)
	keeper := parentOf(found.PID) // of the instance's mounts
	keeperBegin := beginOf(keeper)
	_, err = prog.run(ctx, call{args: []string{"-s", "instance", "stop", "--timeout", "5", rec.Name}, timeout: stopTimeout})
	if begin != "" && beginOf(found.PID) == begin {
		// The first process of its namespace: the kernel ends all others with it.
		err = errors.Join(err, kill(found.PID, begin))
	} else {
		err = nil
	}
	for keeper > 1 && keeperBegin != "" && beginOf(keeper) == keeperBegin {
		select {
		case <-ctx.Done():
			return failure(driver.KindUnavailable, "the instance %s does not end: %w", rec.Name, errors.Join(err, ctx.Err()))
		case <-time.After(stopPoll):
		}
	}
	if begin != "" && beginOf(found.PID) == begin {
		return failure(driver.KindUnavailable, "the instance %s does not end: %w", rec.Name, err)
	}
	if err := letGo(ctx, prog, rec.Name); err != nil {
		return err
	}
	_ = os.Remove(found.OutLog)
	_ = os.Remove(found.ErrLog)
	return nil
}

// letGo waits until the engine lists the instance no longer: its processes may be gone while its overlay is still mounted,
// and until then its name is taken.
func letGo(ctx context.Context, prog *program, name string) error {
	for {
		running, err := prog.list(ctx, name)
		if err != nil {
			return failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
		}
		if _, there := running[name]; !there {
			return nil
		}
		select {
		case <-ctx.Done():
			return failure(driver.KindUnavailable, "the engine does not let go of the instance %s, which has ended: %w", name, ctx.Err())
		case <-time.After(stopPoll):
		}
	}
}

// kill ends a process if it is the one that began then.
func kill(pid int, begin string) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(fd)
	if beginOf(pid) != begin {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("pidfd_send_signal", err)
	}
	return nil
}

// destroy ends an instance and removes its record and state files; with data also its overlay, home and temporary files.
func destroy(ctx context.Context, prog *program, rec *record, file string, data bool) error {
	if err := stop(ctx, prog, rec); err != nil {
		return err
	}
	errs := []error{removeTree(ctx, rec.State)}
	if rec.Staging != "" {
		errs = append(errs, removeTree(ctx, rec.Staging))
	}
	if data {
		errs = append(errs, removeTree(ctx, rec.Dir))
		if st, err := os.Lstat(filepath.Dir(rec.Dir)); err == nil && st.IsDir() { // a link of the user's would go although it leads to files
			_ = os.Remove(filepath.Dir(rec.Dir)) // the last one
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
