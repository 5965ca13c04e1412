package docker

import (
	"io"
	"sync"
)

// streamBytes is how much of a stream is kept for a reader who is late, as the kernel does for a pipe. Behind it the engine
// waits, and with it the other stream, which comes by the same connection.
const streamBytes = 64 << 10

// outStream is one of a bash's two output streams: the connection's reader puts in, one reader takes out. What comes after
// it was closed is thrown away.
type outStream struct {
	onClose func()

	mu      sync.Mutex
	changed sync.Cond
	buffer  []byte // what was not read yet
	end     error  // set when nothing more comes: io.EOF or what broke
	closed  bool
	full    bool // a put waits
}

func newOutStream(onClose func()) *outStream {
	s := &outStream{onClose: onClose}
	s.changed.L = &s.mu
	return s
}

// put appends b, waiting while the buffer is full.
func (s *outStream) put(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 && !s.closed {
		room := streamBytes - len(s.buffer)
		if room == 0 {
			s.full = true
			s.changed.Wait()
			s.full = false
			continue
		}
		n := min(room, len(b))
		s.buffer = append(s.buffer, b[:n]...)
		b = b[n:]
		s.changed.Broadcast()
	}
}

// finish says that nothing more comes.
func (s *outStream) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = err
	s.changed.Broadcast()
}

// held tells whether a put waits for the reader.
func (s *outStream) held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// Read gives what has come, and waits where that is nothing.
func (s *outStream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buffer) == 0 && s.end == nil && !s.closed {
		s.changed.Wait()
	}
	switch {
	case s.closed:
		return 0, io.ErrClosedPipe
	case len(s.buffer) == 0:
		return 0, s.end
	}
	n := copy(p, s.buffer)
	s.buffer = append(s.buffer[:0], s.buffer[n:]...)
	s.changed.Broadcast()
	return n, nil
}

// Close ends reading; a second one does nothing.
func (s *outStream) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed, s.buffer = true, nil
	s.changed.Broadcast()
	s.mu.Unlock()
	if !closed {
		s.onClose()
	}
	return nil
}
