//go:build linux

package front

import (
	"context"
	"time"
)

// Begin takes a stream in and says what befalls it: half of a round trip each way, and after how many pieces it is cut (-1 for never). End
// says that it is over.
func (f *Front) Begin(s Stream) (half time.Duration, cutAfter int) {
	f.mu.Lock()
	f.streams[s] = struct{}{}
	f.mu.Unlock()
	return f.StreamFaults()
}

// End is described at Begin.
func (f *Front) End(s Stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.streams, s)
}

// StreamFaults says what befalls a new stream, as Begin does.
func (f *Front) StreamFaults() (half time.Duration, cutAfter int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	cutAfter = -1
	if f.cut > 0 && f.random.Float64() < f.cut {
		cutAfter = f.random.IntN(8)
	}
	return f.latency / 2, cutAfter
}

// CutNow tells whether what has come by a stream is to be the last of its connection, and counts that.
func (f *Front) CutNow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	cut := f.cut > 0 && f.random.Float64() < f.cut
	if cut {
		f.counts["cut"]++
	}
	return cut
}

// CountCut counts a stream that was cut.
func (f *Front) CountCut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts["cut"]++
}

// CutStreams cuts all terminals' connections.
func (f *Front) CutStreams() {
	f.mu.Lock()
	all := make([]Stream, 0, len(f.streams))
	for s := range f.streams {
		all = append(all, s)
	}
	f.mu.Unlock()
	for _, s := range all {
		s.Cut()
	}
}

// Delayed passes on what comes by in, each piece d later, and its end; where ctx is done it ends.
func Delayed(ctx context.Context, in <-chan []byte, d time.Duration) <-chan []byte {
	if d <= 0 {
		return in
	}
	type timed struct {
		p  []byte
		at time.Time
	}
	queue, out := make(chan timed, 4096), make(chan []byte)
	go func() {
		defer close(queue)
		for {
			select {
			case p, more := <-in:
				if !more {
					return
				}
				select {
				case queue <- timed{p, time.Now().Add(d)}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer close(out)
		for t := range queue {
			select {
			case <-time.After(time.Until(t.at)):
			case <-ctx.Done():
				return
			}
			select {
			case out <- t.p:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
