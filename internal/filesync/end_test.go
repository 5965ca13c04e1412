//go:build unix

package filesync

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// unreadHere is a far side whose bashes count as ended when all that they have printed was read, too, as some providers' do.
type unreadHere struct {
	bashHere
	gaveUp atomic.Int32 // how often nobody waited until then
}

type readFirst struct {
	driver.Process
	here *unreadHere
	once sync.Once
	read chan struct{} // closed at the end of its output
}

func (u *unreadHere) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	p, err := u.bashHere.Bash(ctx, spec)
	return &readFirst{Process: p, here: u, read: make(chan struct{})}, err
}

func (u *readFirst) Stdout() io.ReadCloser { return &watched{u.Process.Stdout(), u} }

func (u *readFirst) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-u.read:
	case <-ctx.Done():
		u.here.gaveUp.Add(1)
		return driver.ExitStatus{}, ctx.Err()
	}
	return u.Process.Wait(ctx)
}

type watched struct {
	io.ReadCloser
	u *readFirst
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if errors.Is(err, io.EOF) {
		w.u.once.Do(func() { close(w.u.read) })
	}
	return n, err
}

func TestWhatIsLeftIsReadBeforeTheEndIsWaitedFor(t *testing.T) {
	far := &unreadHere{}
	p, src, dst := pairHere(t, far, true)
	if err := os.WriteFile(filepath.Join(src, "file"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	syncPair(t, p)
	if text, err := os.ReadFile(filepath.Join(dst, "file")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if n := far.gaveUp.Load(); n > 0 {
		t.Errorf("%d bashes were waited for in vain", n)
	}
}
