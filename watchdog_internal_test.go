package elsewhere

import (
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// Starting another watchdog takes as long as the engine takes, and a call that ends has promised a time.
func TestNobodyWhoEndsWaitsForAWatchdogThatIsBeingStarted(t *testing.T) {
	sb, _ := openStuck(t)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), ":", nil); err != nil {
		t.Fatal(err)
	}
	w := sb.at().watch
	mark := bashscript.NewMark(s.mark)
	w.mu.Lock() // as who starts one
	w.calls[mark] = "x"
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.remove(mark)
		if w.removeFiles([]string{"/x"}) {
			t.Error("files were said to be removed by a watchdog that does not run yet")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("they wait")
	}
	w.mu.Unlock()
	<-done
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		_, there := w.calls[mark]
		w.mu.Unlock()
		if !there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is watched for ever")
		}
	}
}
