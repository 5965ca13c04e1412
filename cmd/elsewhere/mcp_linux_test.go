package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAClientThatDoesNotReadDoesNotHoldUpTheServersEnd has a client that floods itself with a call's output, reads none of it and
// leaves.
func TestAClientThatDoesNotReadDoesNotHoldUpTheServersEnd(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "mcp", "-b", "local")
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	p.Stdout = w
	p.start()
	w.Close()
	say := func(text string) {
		if _, err := io.WriteString(in, text+"\n"); err != nil {
			t.Fatal(err, p.stderr.String())
		}
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Fatal(line, err, p.stderr.String())
	}
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"terminal","arguments":{"command":%s},"_meta":{"progressToken":"p"}}}`,
		jsonText(beating+"yes")))
	p.wantBeating()
	// It is full when nothing is added any more, although there is something to say several times in a second.
	held, since := 0, time.Now()
	for end := time.Now().Add(mcpWait); held == 0 || time.Since(since) < 2*time.Second; time.Sleep(10 * time.Millisecond) {
		now, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if now != held {
			held, since = now, time.Now()
		}
		if time.Now().After(end) {
			t.Fatal("nothing was written", p.stderr.String())
		}
	}
	in.Close()
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("%v %s", err, p.stderr.String())
		}
	case <-time.After(40 * time.Second):
		t.Fatal("the server has not ended")
	}
	p.wantStopped()
}
