package ssh

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// A server opens so many sessions on a connection (MaxSessions) and refuses the rest. A master whose relayed channel is refused
// dies as soon as the one who asked hangs up (OpenSSH 9.2: "chan_send_close2: no remote_id"), with all that others have on
// it. So nothing is asked for that may be refused. How many sessions a server gives is found out once a day, on a connection
// that is thrown away; and who wants a session takes a slot, a lock beside the master's socket that is held by one process at
// a time and freed by the kernel when that dies.
//
// The ssh program must not run a session of its own over such a master: OpenSSH 9.2 then takes the number of one for that of
// another ("oclose packet referred to nonexistent channel").
//
// A server frees a session a moment after both sides have closed it. So the slot of one that was closed is not used again before
// the server has answered something that was asked later, or settleTime has passed.

// slot is the right to one session of a master's connection.
type slot struct {
	lock *flock.Flock
	file string
}

func slotFile(socket string, i int) string { return fmt.Sprintf("%s.s%d", socket, i) }

const (
	// mostSessions is how many sessions of a connection are used at most, however many the server gives.
	mostSessions = 24
	// sessionsAge is how long the number is believed: servers are configured anew.
	sessionsAge = 24 * time.Hour
	// settleTime is how long a server that is well takes at most to free a session that was closed.
	settleTime = 500 * time.Millisecond
)

func (d *destination) sessionsFile(dir string) string { return filepath.Join(dir, d.id+".sessions") }

// sessions is how many sessions the server gives on a connection, 0 where that is not known.
func (d *destination) sessions(dir string) int {
	file := d.sessionsFile(dir)
	st, err := os.Stat(file)
	if err != nil || time.Since(st.ModTime()) > sessionsAge {
		return 0
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// learner begins the names of the sockets that learnSessions uses; it is as long as the id.
func (d *destination) learner() string { return learnerOf(d.id) }

func learnerOf(id string) string { return "l" + id[1:] }

// learnSessions finds it out, with a connection that nobody else uses. It opens sessions in which nothing is started.
func (d *destination) learnSessions(ctx context.Context, dir string) error {
	m, err := newMaster(ctx, d, dir, d.learner())
	if err != nil {
		return err
	}
	defer func() {
		killProcess(m.pid)
		_ = m.control.Close()
		_ = m.lock.Close()
		removeMaster(m.socket)
	}()
	ctx, cancel := context.WithTimeout(ctx, d.silence()+attachWait)
	defer cancel()
	n, err := countSessions(ctx, m.socket)
	if err != nil {
		return fmt.Errorf("finding out how many sessions %s gives on a connection: %w", d.name(), err)
	}
	file := d.sessionsFile(dir)
	temp := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := errors.Join(os.WriteFile(temp, fmt.Appendf(nil, "%d\n", n), 0o600), os.Rename(temp, file)); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return nil
}

// countSessions asks for all sessions at once and counts the answers.
func countSessions(ctx context.Context, socket string) (given int, err error) {
	conn, release, err := dialMaster(ctx, socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer release()
	c := &channel{conn: conn}
	if _, err := conn.ask(muxProxy, muxIsProxy); err != nil {
		return 0, err
	}
	for i := range uint32(mostSessions) {
		if err := c.sendPacket(msgOpen, text("session"), u32(i), u32(ourWindow), u32(ourPacket)); err != nil {
			return 0, err
		}
	}
	for answers := 0; answers < mostSessions; {
		kind, _, err := c.receivePacket()
		switch {
		case err != nil:
			return 0, errors.Join(ctx.Err(), err)
		case kind == msgOpenConfirm:
			given++
			answers++
		case kind == msgOpenFailure:
			answers++
		}
	}
	if given == 0 {
		return 0, errors.New("it refuses every session (MaxSessions 0)")
	}
	return given, nil
}

// takeSlot takes the right to one session of m, or says errRefused.
func (m *master) takeSlot(d *destination) (*slot, error) {
	for i := range d.sessions(filepath.Dir(m.socket)) {
		s, err := lockSlot(slotFile(m.socket, i))
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, errRefused
}

// lockSlot takes a slot, or gives nil where another holds it or its last session may not have ended.
func lockSlot(file string) (*slot, error) {
	lock := flock.New(file, flock.SetPermissions(0o600))
	_, missing := os.Stat(file)
	ok, err := lock.TryLock()
	if err != nil || !ok {
		_ = lock.Close()
		return nil, err
	}
	st, err := os.Stat(file)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	// What a killed process had there may take the grace of its watchdog to end.
	age, left := time.Since(st.ModTime()), st.Size() > 0
	if missing == nil && (age < settleTime || left && age < killedTime) {
		_ = lock.Close()
		return nil, nil
	}
	return &slot{lock: lock, file: file}, nil
}

// killedTime is after how long a session is taken for ended whose process was killed.
const killedTime = 30 * time.Second

// begin says that a session is about to be opened in the slot.
func (s *slot) begin() error { return os.WriteFile(s.file, []byte("1"), 0o600) }

// ended frees the slot of a session that was closed, a moment later. clean says that the server has closed it too; else the
// connection is gone, or nobody knows.
func (m *master) ended(s *slot, clean bool) {
	if !clean {
		now := time.Now()
		_ = os.Chtimes(s.file, now, now)
		_ = s.lock.Close()
		return
	}
	_ = os.Truncate(s.file, 0)
	m.mu.Lock()
	m.closing = append(m.closing, s)
	m.mu.Unlock()
}

// settle frees slots of which the server has nothing left. It tells whether there were any.
func (m *master) settle(slots []*slot) bool {
	m.mu.Lock()
	var free []*slot
	m.closing = slices.DeleteFunc(m.closing, func(s *slot) bool {
		settled := slices.Contains(slots, s)
		if settled {
			free = append(free, s)
		}
		return settled
	})
	m.mu.Unlock()
	for _, s := range free {
		_ = os.Chtimes(s.file, time.Time{}, time.Unix(1, 0))
		_ = s.lock.Close()
	}
	return len(free) > 0
}

func (m *master) closingNow() []*slot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.closing)
}
