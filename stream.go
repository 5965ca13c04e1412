package elsewhere

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stream reads one output stream of a bash to its end. While a child in the background holds the stream open there is no
// end; then emptied tells when all that was written before it was asked has been read.
type stream struct {
	r    io.Reader
	last atomic.Int64 // when something came last, in nanoseconds of the epoch; 0 for never

	mu      sync.Mutex
	waiting []chan struct{} // who asked what is there now
	ended   bool
}

// interruptible is what a stream has to be so that emptied works: a pipe of this system.
type interruptible interface {
	SetReadDeadline(time.Time) error
}

// read calls feed with what comes until the end, from one goroutine.
func (s *stream) read(feed func([]byte)) {
	buffer := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buffer)
	defer s.end()
	for {
		n, err := s.r.Read(*buffer)
		if n > 0 {
			s.last.Store(time.Now().UnixNano())
		}
		feed((*buffer)[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			asked := s.takeWaiting()
			err = readNow(s.r, *buffer, feed)
			for _, done := range asked {
				close(done)
			}
		}
		if err != nil {
			return
		}
	}
}

// emptied returns a channel that is closed when the reader has found the stream empty, or nil where a stream of this kind
// cannot be asked.
func (s *stream) emptied() <-chan struct{} {
	i, ok := s.r.(interruptible)
	if !ok || !canReadNow(s.r) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	done := make(chan struct{})
	if s.ended {
		close(done)
		return done
	}
	if i.SetReadDeadline(time.Unix(1, 0)) != nil {
		return nil
	}
	s.waiting = append(s.waiting, done)
	return done
}

func (s *stream) takeWaiting() []chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.waiting
	s.waiting = nil
	_ = s.r.(interruptible).SetReadDeadline(time.Time{}) // it was set a moment ago
	return asked
}

// end answers who asked while the stream came to its end.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, done := range s.waiting {
		close(done)
	}
	s.waiting = nil
}
