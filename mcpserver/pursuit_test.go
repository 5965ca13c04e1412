package mcpserver

import (
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

func TestAPursuitOfAnOutputThatGrowsAsFastAsItIsReadEnds(t *testing.T) {
	part := func(n int64, length int) elsewhere.JobOutput {
		return elsewhere.JobOutput{From: n * tailRead, Next: n*tailRead + int64(length), Data: make([]byte, length), Status: elsewhere.JobStatus{LogBytes: 4 * tailRead}}
	}
	var window pursuit
	for n := range int64(4) {
		// It begins behind what has rolled out of the window.
		if done := window.done(part(100+n, tailRead)); done != (n == 3) {
			t.Errorf("part %d of the four that the window holds: %v", n+1, done)
		}
	}
	var end pursuit
	if end.done(part(0, tailRead)) || !end.done(part(1, tailRead-1)) {
		t.Error("the end of the output is not the first part that is no whole one")
	}
	waits := pursuit{until: time.Now().Add(time.Hour)}
	if waits.done(part(0, tailRead)) || waits.done(part(0, 0)) || !waits.done(elsewhere.JobOutput{End: true}) {
		t.Error("it does not wait for the job's end")
	}
	if waits.until = time.Now(); !waits.done(part(0, 1)) {
		t.Error("it waits longer than it may, since something was printed")
	}
	slow := pursuit{began: time.Now().Add(-catchUp), first: 0}
	if !slow.done(part(1, tailRead)) {
		t.Error("a slow one goes on")
	}
}
