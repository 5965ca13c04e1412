package elsewhere

import (
	"testing"
	"time"
)

// Of many bashes that are asked for at once, the last may take as long as the others need, but not for ever.
func TestABashMayTakeLongWhileOthersBecomeReady(t *testing.T) {
	for _, c := range []struct {
		what                  string
		waited, readied, left time.Duration
	}{
		{"nothing answers", startWait, 2 * startWait, 0},
		{"nothing has ever answered", startWait, time.Since(time.Time{}), 0},
		{"another answered a moment ago", startWait, time.Second, startWait - time.Second},
		{"the last answer is long ago", 3 * startWait, startWait, 0},
		{"others answer without end", startWaitMost - time.Second, 0, time.Second},
		{"others answer, and it never does", startWaitMost, 0, 0},
	} {
		if left := startLeft(c.waited, c.readied); left != c.left {
			t.Errorf("%s: %v are left, want %v", c.what, left, c.left)
		}
	}
}
