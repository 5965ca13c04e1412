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

// A shell that was ready and has ended, or that was dropped, does not make its boot text suspect: a new file for each of them would pile
// them up.
func TestOnlyAShellThatFailsGivesTheBootTextUp(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	for _, c := range []struct {
		what     string
		ready    chan struct{}
		released bool
		keeps    bool
	}{
		{"ready, and has ended", closed, true, true},
		{"dropped before it was ready", make(chan struct{}), true, true},
		{"ended before it was ready", make(chan struct{}), false, false},
	} {
		at := &place{sb: &Sandbox{}, boot: bootText{file: "boot-1"}}
		sh := &shell{at: at, bootFile: "boot-1", ready: c.ready, exited: closed, released: c.released}
		sh.readyReport.Fields = []string{"1", "", "", ""}
		sh.noteEnd()
		if kept := at.boot.file != ""; kept != c.keeps {
			t.Errorf("%s: the file is kept is %v, want %v", c.what, kept, c.keeps)
		}
	}
}
