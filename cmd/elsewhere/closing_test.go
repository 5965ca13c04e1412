//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// slowShed makes the program's engine one whose sandboxes take long to be closed, and gives its directory.
func (p *program) slowShed() engine {
	p.t.Helper()
	e := engine{p.t.TempDir(), "shed"}
	p.Env = append(p.Env, "ENGINE="+e.dir)
	if err := e.note("slow"); err != nil {
		p.t.Fatal(err)
	}
	return e
}

func (p *program) awaitNote(e engine, what string) {
	p.t.Helper()
	for end := time.Now().Add(mcpWait); !e.has(what); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s has not come; standard error: %s", what, p.stderr.String())
		}
	}
}

// serving are the ways in which a sandbox is open when a signal comes.
var serving = map[string]func(t *testing.T) (*program, engine){
	"run": func(t *testing.T) (*program, engine) {
		p := newProgram(t, "run", "-b", "shed", beating+"sleep 1000")
		e := p.slowShed()
		p.startReading()
		return p, e
	},
	"mcp": func(t *testing.T) (*program, engine) {
		p := newProgram(t, "mcp", "-b", "shed")
		e := p.slowShed()
		a := startPiped(t, p)
		go func() { p.ended <- p.Wait() }()
		a.run("true")
		return p, e
	},
	"mcp --http": func(t *testing.T) (*program, engine) {
		p := newProgram(t, "mcp", "-b", "shed", "--http", "127.0.0.1:0")
		e := p.slowShed()
		p.Env = append(p.Env, tokenVariable+"=0123456789012345678901234567890123456789")
		p.Stderr = nil
		r, err := p.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		p.start()
		line, err := bufio.NewReader(r).ReadString('\n')
		found := regexp.MustCompile(`serving (http://\S+)`).FindStringSubmatch(line)
		if err != nil || found == nil {
			t.Fatal(line, err)
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: found[1], HTTPClient: &http.Client{Transport: withToken("0123456789012345678901234567890123456789")},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		(&agent{session, p, t.Context(), nil}).run("true")
		return p, e
	},
}

// TestATermLeavesTheTimeToCloseTheSandbox: what is not stored then is lost.
func TestATermLeavesTheTimeToCloseTheSandbox(t *testing.T) {
	for name, start := range serving {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, e := start(t)
			p.signal(syscall.SIGTERM)
			p.awaitNote(e, "closing")
			select {
			case err := <-p.ended:
				t.Fatalf("it ended in the midst of that: %v", err)
			case <-time.After(lastWait + 2*time.Second):
			}
			if err := os.Remove(filepath.Join(e.dir, "shed.slow")); err != nil {
				t.Fatal(err)
			}
			p.wantExit(128 + int(syscall.SIGTERM))
			if !e.has("closed") {
				t.Error("it has not closed the sandbox")
			}
		})
	}
}

func TestASecondSignalEndsAlsoWhatCloses(t *testing.T) {
	for name, start := range serving {
		for _, second := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprint(name, " ", second), func(t *testing.T) {
				t.Parallel()
				p, e := start(t)
				p.signal(syscall.SIGTERM)
				p.awaitNote(e, "closing")
				time.Sleep(secondAfter)
				p.signal(second)
				p.wantExit(128 + int(second))
			})
		}
	}
}

func TestASignalThatIsSentTwiceAtOnceIsOne(t *testing.T) {
	in := &interruption{wait: time.Hour}
	defer func() { in.timer.Stop() }()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGHUP} {
		if in.take(sig) {
			t.Errorf("a %v ends it at once", sig)
		}
	}
	in.ending = in.ending.Add(-secondAfter)
	if in.take(syscall.SIGHUP) {
		t.Error("a terminal that closes hastens the end")
	}
	if !in.take(syscall.SIGTERM) || in.signal() != syscall.SIGTERM {
		t.Error("a second one does not end it")
	}
}
