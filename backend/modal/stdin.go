package modal

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// streamAhead is how much may be on its way before a Write waits, and chunk how much of it one request carries.
	streamAhead = 4 << 20
	chunk       = 2 << 20
)

// stdin is the write end of a bash's input. The SDK makes a request of every write, which has to be answered before the next; so
// that a stream does not cost a round trip for each of its pieces they are put together here, and a Write does not wait for the answer:
// a service that gives none must not hold up a call whose time is over. An error shows with the next Write, and in how the bash
// ends. Who sets a deadline wants to know that the service has what he writes, and waits for that.
type stdin struct {
	to io.WriteCloser

	mu      sync.Mutex
	changed *sync.Cond
	queue   []byte
	taken   int64 // bytes that were given to Write, and sent those that the service has
	sent    int64
	sending bool
	eof     bool // Close was called
	err     error
	expire  time.Time
}

func newStdin(to io.WriteCloser) *stdin {
	s := &stdin{to: to}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stdin) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.eof {
		return 0, os.ErrClosed
	}
	if s.err != nil {
		return 0, s.err
	}
	s.queue = append(s.queue, p...)
	s.taken += int64(len(p))
	upTo := s.taken
	if s.expire.IsZero() {
		upTo -= streamAhead
	}
	s.send()
	for s.sent < upTo && s.err == nil {
		if !s.expire.IsZero() && !time.Now().Before(s.expire) {
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	if s.err != nil {
		return 0, s.err
	}
	return len(p), nil
}

// send begins to send what waits. s.mu is held.
func (s *stdin) send() {
	if s.sending || s.err != nil {
		return
	}
	s.sending = true
	go func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.queue) > 0 && s.err == nil {
			n := min(len(s.queue), chunk)
			piece := s.queue[:n:n]
			s.queue = s.queue[n:]
			s.mu.Unlock()
			_, err := s.to.Write(piece)
			s.mu.Lock()
			if err != nil {
				s.fail(fmt.Errorf("write to the stdin of a bash: %w", err))
				break
			}
			s.sent += int64(n)
			s.changed.Broadcast()
		}
		if s.eof && s.err == nil {
			s.fail(os.ErrClosed)
			s.mu.Unlock()
			_ = s.to.Close() // of a bash that has ended, an error
			s.mu.Lock()
		}
		s.sending = false
		s.changed.Broadcast()
	}()
}

// fail ends all writes. s.mu is held.
func (s *stdin) fail(err error) {
	if s.err == nil {
		s.err, s.queue = err, nil
	}
	s.changed.Broadcast()
}

// Close ends the input behind what was written; it does not wait for that. A second Close does nothing.
func (s *stdin) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.eof {
		s.eof = true
		s.send()
	}
	return nil
}

// end says that the bash has ended.
func (s *stdin) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(fmt.Errorf("write to the stdin of a bash that ended: %w", io.ErrClosedPipe))
}

// SetWriteDeadline bounds writes that wait for the service.
func (s *stdin) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire = t
	s.changed.Broadcast()
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), s.changed.Broadcast)
	}
	return nil
}
