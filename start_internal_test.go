package elsewhere

import (
	"io"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
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

// endedBash is a bash of which nothing is left.
type endedBash struct{ driver.Process }

func (endedBash) Stdin() io.WriteCloser { return noStream{} }
func (endedBash) Stdout() io.ReadCloser { return noStream{} }
func (endedBash) Stderr() io.ReadCloser { return noStream{} }

type noStream struct{}

func (noStream) Read([]byte) (int, error)  { return 0, io.EOF }
func (noStream) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (noStream) Close() error              { return nil }

// A file that was found unusable stays given up when the shell ends that wrote it and was ready then.
func TestAWaitingShellThatEndsBringsNoBootTextBack(t *testing.T) {
	closed := make(chan struct{})
	close(closed)
	at := &place{sb: &Sandbox{}}
	sh := &shell{sb: at.sb, at: at, proc: endedBash{}, ready: closed, exited: closed, released: true, out: &stream{r: noStream{}}, errs: &stream{r: noStream{}}}
	sh.loading.Boot, sh.readyReport.Fields = "boot-1", []string{"1", "", "", ""}
	pool := aheadPool{shells: []*shell{sh}}
	pool.dropStale(&Session{})
	at.sb.goroutines.Wait()
	if len(pool.shells) != 0 {
		t.Error("it is still waiting")
	}
	if at.boot.file != "" {
		t.Errorf("the file %s is used again", at.boot.file)
	}
	if !at.sb.readied().IsZero() {
		t.Error("its end is taken for an answer")
	}
}
