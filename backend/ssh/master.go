package ssh

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// master is a connection to the destination: an ssh in the background that others share through its control socket. It
// outlives this process by ControlPersist. Its socket has a name of its own, so that one that was given up and comes back
// harms none. While this process uses it it holds a shared lock; who gets the exclusive one may end it.
type master struct {
	socket  string
	lock    *flock.Flock
	control *muxConn // open while the master is used: its end is the master's
	pid     int
	gone    chan struct{} // closed when it is of no use any more

	mu       sync.Mutex
	why      string
	answered time.Time
	closing  []*slot // see slots.go
}

// attachWait bounds how long a master that another process made may take to answer: it need not ask anybody.
const attachWait = 5 * time.Second

func lockFile(socket string) string { return socket + ".lock" }
func logFile(socket string) string  { return socket + ".log" }

// errDead says that a master found in the control directory is of no use.
var errDead = errors.New("no living master")

// attach takes up the master at socket. The lock is ours from then on; what is dead is cleared away unless another process is
// at it.
func attach(ctx context.Context, socket string) (*master, error) {
	lock := flock.New(lockFile(socket), flock.SetPermissions(0o600))
	if ok, err := lock.TryRLock(); err != nil || !ok {
		_ = lock.Close()
		return nil, errDead
	}
	wait, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	conn, release, err := dialMaster(wait, socket)
	if err == nil {
		var answer []byte
		if answer, err = conn.ask(muxAliveCheck, muxAlive); err == nil {
			release()
			return &master{socket: socket, lock: lock, control: conn, pid: int(first(answer)), gone: make(chan struct{}), answered: time.Now()}, nil
		}
		_ = conn.Close()
	}
	_ = lock.Close()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	clearAway(socket)
	return nil, errDead
}

// clearAway removes the files of a master that does not answer and that nobody uses. A lock that another process has removed before
// does no harm: the name is random and never used again, and the socket, without which nobody comes to use the master, goes before
// the lock.
func clearAway(socket string) {
	lock := flock.New(lockFile(socket), flock.SetPermissions(0o600))
	defer lock.Close()
	if ok, err := lock.TryLock(); err == nil && ok {
		removeMaster(socket)
	}
}

func removeMaster(socket string) {
	files, _ := filepath.Glob(socket + ".s*") // a name without wildcards: see usableFor
	for _, file := range append(files, socket, socket+".doomed", logFile(socket), lockFile(socket)) {
		_ = os.Remove(file)
	}
}

// newMaster connects. ctx bounds it beside the destination's own time limit; ssh's own words are in the error.
// The name of its socket begins with prefix; masters finds those with the destination's id.
func newMaster(ctx context.Context, d *destination, dir, prefix string) (*master, error) {
	var random [4]byte
	_, _ = rand.Read(random[:])
	socket := filepath.Join(dir, prefix+"-"+hex.EncodeToString(random[:]))
	if err := os.WriteFile(lockFile(socket), nil, 0o600); err != nil {
		return nil, failure(driver.KindUnavailable, "the directory for ssh's control sockets cannot be written to: %w", err)
	}
	lock := flock.New(lockFile(socket), flock.SetPermissions(0o600))
	defer lock.Close() // attach has taken its own by then
	if ok, err := lock.TryRLock(); err != nil || !ok {
		return nil, failure(driver.KindUnavailable, "the lock of a new connection cannot be had (%v): %s", err, lockFile(socket))
	}
	// Beyond ConnectTimeout, which ends with the server's first word, for the exchange of keys and a key that asks to be touched.
	limit := d.connectTimeout + 20*time.Second
	sctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(sctx, d.program, d.masterArgs(socket, logFile(socket))...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = d.environ, "/", time.Second
	apart(cmd)
	err := cmd.Run()
	if err == nil {
		var m *master
		if m, err = attach(ctx, socket); err == nil {
			return m, nil
		}
	}
	said, _ := os.ReadFile(logFile(socket))
	removeMaster(socket)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case sctx.Err() != nil:
		return nil, d.explain(string(said) + "\nConnection timed out after " + limit.String())
	case errors.Is(err, errDead):
		return nil, d.explain(string(said) + "\nthe connection was made and went at once")
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		return nil, failure(driver.KindUnavailable, "cannot start %s: %w", d.program, err)
	}
	return nil, d.explain(string(said))
}

// watch asks the master for a sign of life, as often as the master asks the server: one that is stopped or hangs is ended when
// it was silent for too long, and what used it with it. It returns when the master is gone.
func (m *master) watch(d *destination) {
	defer close(m.gone)
	stop := make(chan struct{})
	defer close(stop)
	go m.askOften(d, stop)
	for {
		if _, err := m.control.receive(); err != nil {
			m.note("the ssh master ended")
			return
		}
		m.mu.Lock()
		m.answered = time.Now()
		m.mu.Unlock()
	}
}

func (m *master) askOften(d *destination, stop <-chan struct{}) {
	ticks := time.NewTicker(d.keepalive)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
		m.mu.Lock()
		silent := time.Since(m.answered)
		m.mu.Unlock()
		_ = m.control.SetWriteDeadline(time.Now().Add(d.keepalive))
		err := m.control.send(u32(muxAliveCheck), u32(1))
		if silent > d.silence() || err != nil && !errors.Is(err, net.ErrClosed) {
			m.note(fmt.Sprintf("the ssh master (pid %d) did not answer for %v and was ended", m.pid, d.silence()))
			// The number is still its own: the connection to it is open.
			killProcess(m.pid)
			_ = os.Remove(m.socket)
			_ = m.control.Close()
			return
		}
	}
}

// note keeps the first reason why it is of no use, and what ssh itself said.
func (m *master) note(why string) {
	said, _ := os.ReadFile(logFile(m.socket))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why != "" {
		return
	}
	m.why = why
	if words := lastWords(string(said)); words != "" {
		m.why += "; ssh said: " + oneLine(words)
	}
}

// lostText says why a bash on it was lost.
func (m *master) lostText() string {
	m.note("the ssh master ended")
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.why
}

// leave gives the master up. Unless keep is set it is ended where nobody else uses it.
func (m *master) leave(keep bool) {
	for _, s := range m.closingNow() {
		_ = s.lock.Close()
	}
	_ = m.lock.Close()
	lock := flock.New(lockFile(m.socket), flock.SetPermissions(0o600))
	defer lock.Close()
	dead := false
	select {
	case <-m.gone:
		dead = true
	default:
	}
	if !keep || dead {
		if ok, err := lock.TryLock(); err == nil && ok {
			_ = m.control.SetWriteDeadline(time.Now().Add(time.Second))
			_ = m.control.send(u32(muxTerminate), u32(2))
			removeMaster(m.socket)
		}
	}
	_ = m.control.Close()
}

// sweep removes what ended masters of this name left: their sockets they remove themselves. Call it with the right to connect.
func sweep(dir, prefix string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, entry := range entries {
		name, isLock := strings.CutSuffix(entry.Name(), ".lock")
		if !isLock || !strings.HasPrefix(name, prefix+"-") {
			continue
		}
		socket := filepath.Join(dir, name)
		if _, err := os.Lstat(socket); errors.Is(err, fs.ErrNotExist) {
			clearAway(socket)
		}
	}
}

// masters lists the sockets of the destination's masters in dir, whoever made them.
func masters(dir, id string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var sockets []string
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, id+"-") && len(name) == len(socketName) && entry.Type()&fs.ModeSocket != 0 {
			sockets = append(sockets, filepath.Join(dir, name))
		}
	}
	return sockets
}
