package drivertest

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// lastLines is how much a box logs that is shown where its case fails, in bytes.
const lastLines = 8 << 10

// boxLog keeps the last of what a box has logged.
type boxLog struct {
	mu   sync.Mutex
	text []byte
}

func (l *boxLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if over := len(l.text) - lastLines; over > 0 {
		l.text = append(l.text[:0], l.text[over:]...)
	}
	return len(p), nil
}

// showIfFailed gives a log of which the last lines are shown where t fails.
func showIfFailed(t *testing.T) *slog.Logger {
	t.Helper()
	l := &boxLog{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.Failed() && len(bytes.TrimSpace(l.text)) > 0 {
			t.Logf("the sandbox's log ends with\n%s", l.text)
		}
	})
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
