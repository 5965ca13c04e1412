// Package ptychannel runs a bash over terminals, where a provider has no other two-way channel: its stdin, stdout and stderr are
// byte for byte what they are on pipes.
//
// A bash has two terminals (a link), each with a relay of ours on the far side in raw mode (input.sh, output.sh): one brings stdin in frames, so
// that its end is a frame too, and takes stderr; the other takes stdout, and brings the word of how much of both has arrived, which
// must not stand behind stdin that nobody reads. Output goes through as it is (dd moves it), and what the relays themselves have to
// say stands in it behind a mark, random for each bash. The relays send at most some hundred KiB that were not asked for: providers
// drop a connection that does not keep up. The bash runs in a session of its own between pipes and has neither
// terminal, not as its controlling one either.
//
// The far side needs bash (4.4), stty, mkfifo, dd (with iflag=fullblock), cat, rm, sleep and setsid: coreutils and util-linux, or busybox. The
// relays are started by one line of text, which a login shell may be given to read (Line).
package ptychannel

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

//go:embed input.sh
var inputSource string

//go:embed output.sh
var outputSource string

//go:embed pump.sh
var pumpSource string

// MaxWrite is the most that is written to a Conn at once, in bytes.
const MaxWrite = 32 << 10

// Conn is the near end of a terminal. One goroutine reads and one writes; Close may be called by any, more than once.
type Conn interface {
	// Read gives what comes next; io.EOF, or any other error, says that nothing more does.
	Read(ctx context.Context) ([]byte, error)
	// Write sends at most MaxWrite bytes.
	Write(ctx context.Context, p []byte) error
	// Leave gives the connection up, and leaves alone what runs on the terminal.
	Leave() error
	// Close gives the connection up, and ends what runs on the terminal where it has not ended by itself. It does not wait for
	// that.
	Close() error
}

// Dial opens a terminal on which argv runs, or whose shell is given Line(argv) to read.
type Dial func(ctx context.Context, argv []string) (Conn, error)

// Spec says what to start.
type Spec struct {
	Args []string // bash's
	Env  []string // "K=V", added to the terminal's environment
	Home string   // HOME; "" is /
	// Temp is a directory in which the two relays meet; "" is /tmp. Names in it are there while terminals are.
	Temp string
	// Lease is how long the far side takes this process for alive without a word from it: then stdin ends. 0 is ten minutes.
	Lease time.Duration
	// StartWait bounds the time until the relays have answered; 0 is a minute.
	StartWait time.Duration
	// Kill ends the bash by other means than its channel, which is broken; nil where there are none.
	Kill func(ctx context.Context) error
	// Name says in errors where the bash runs ("the sandbox x").
	Name string
}

// Line is argv as a line of text for an interactive shell (bash, zsh, sh), which it replaces: without newline, and with a blank in front so that no
// history keeps it. An error says that a word cannot be typed.
func Line(argv []string) (string, error) {
	var b strings.Builder
	b.WriteString(" exec")
	for _, word := range argv {
		for _, c := range []byte(word) {
			if c < ' ' || c == 0x7f || c == '\'' {
				return "", fmt.Errorf("%.60q cannot be typed into a shell", word)
			}
		}
		b.WriteString(" '" + word + "'")
	}
	if b.Len() > MaxLine {
		return "", fmt.Errorf("a line of %d bytes cannot be typed into a shell", b.Len())
	}
	return b.String(), nil
}

// MaxLine is what a terminal takes as one line before a shell has changed its mode, with room to spare.
const MaxLine = 4000

var (
	pumpLine   = oneLine(pumpSource)
	inputLine  = pumpLine + "; " + oneLine(inputSource)
	outputLine = pumpLine + "; " + oneLine(outputSource)
)

// oneLine makes one line of a script that has no here-documents and no comments behind code.
func oneLine(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if b.Len() > 0 && !strings.HasSuffix(b.String(), " ") {
			b.WriteString("; ")
		}
		b.WriteString(line)
		for _, open := range []string{"do", "then", "{", "(", "in", ";;"} {
			if line == open || strings.HasSuffix(line, " "+open) || strings.HasSuffix(line, "(") {
				b.WriteByte(' ')
				break
			}
		}
	}
	return b.String()
}

// maxIdle is how many pairs of terminals a Pool keeps for the next bash, idleWait how long it keeps each, and maxOpening how many
// are opened at once: of many bashes at once most find terminals that have become free sooner than their own would have been opened.
const (
	maxIdle    = 4
	idleWait   = time.Minute
	maxOpening = 8
)

// Pool starts bashes on terminals of one sandbox, and keeps terminals whose bash has ended for the next one: a login shell is far
// dearer than a bash. It must be closed. It is safe for concurrent use.
type Pool struct {
	dial    Dial
	opening chan struct{} // holds one for each pair that is being opened
	freed   chan struct{} // gets one for each pair that has become free

	mu      sync.Mutex
	idle    []*link
	waiting int // bashes that wait for either
	closed  bool
}

// NewPool makes a Pool; nothing is opened yet.
func NewPool(dial Dial) *Pool {
	return &Pool{dial: dial, opening: make(chan struct{}, maxOpening), freed: make(chan struct{}, 64)}
}

// Start starts a bash. Where no terminals are free two are opened at once. It does not wait until the bash runs; what is written
// before that is kept, and one that does not come to run fails by Wait. ctx bounds the opening. What a pool starts differs in
// Args, Env, Kill and Name alone.
func (pool *Pool) Start(ctx context.Context, spec Spec) (*Process, error) {
	if spec.Temp == "" {
		spec.Temp = "/tmp"
	}
	if spec.Home == "" {
		spec.Home = "/"
	}
	if spec.StartWait == 0 {
		spec.StartWait = time.Minute
	}
	if spec.Lease == 0 {
		spec.Lease = 10 * time.Minute
	}
	pool.wait(1)
	defer pool.wait(-1)
	for {
		if p := pool.reuse(spec); p != nil {
			return p, nil
		}
		select {
		case <-pool.freed: // one may be there now
		case pool.opening <- struct{}{}:
			l, err := pool.open(ctx, spec)
			<-pool.opening
			if err != nil {
				return nil, err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.start(spec), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (pool *Pool) wait(n int) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.waiting += n
}

// reuse starts a bash on terminals that are free; nil where there are none.
func (pool *Pool) reuse(spec Spec) *Process {
	for {
		pool.mu.Lock()
		if len(pool.idle) == 0 {
			pool.mu.Unlock()
			return nil
		}
		l := pool.idle[len(pool.idle)-1]
		pool.idle = pool.idle[:len(pool.idle)-1]
		pool.mu.Unlock()
		l.mu.Lock()
		if l.ctx.Err() == nil && !l.quit {
			l.idle.Stop()
			p := l.start(spec)
			l.mu.Unlock()
			return p
		}
		l.mu.Unlock()
	}
}

// give takes terminals whose bash has ended; false says that they are not wanted.
func (pool *Pool) give(l *link) bool {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if pool.closed || len(pool.idle) >= maxIdle+pool.waiting {
		return false
	}
	pool.idle = append(pool.idle, l)
	select {
	case pool.freed <- struct{}{}:
	default:
	}
	return true
}

// forget drops terminals that are gone.
func (pool *Pool) forget(l *link) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.idle = slices.DeleteFunc(pool.idle, func(other *link) bool { return other == l })
}

// Close lets the terminals go that no bash uses, and those of the others when their bash has ended. A second Close does nothing.
func (pool *Pool) Close() {
	pool.mu.Lock()
	idle := pool.idle
	pool.idle, pool.closed = nil, true
	pool.mu.Unlock()
	for _, l := range idle {
		l.mu.Lock()
		l.giveUp()
		l.mu.Unlock()
	}
}

// open opens two terminals.
func (pool *Pool) open(ctx context.Context, spec Spec) (*link, error) {
	token := random()
	// In halves: the shell shows what it is given to read.
	tail := []string{"relay", token[:16], token[16:], spec.Home, strconv.Itoa(int(max(1, spec.Lease/time.Second)))}
	argv := func(script string) []string {
		return append([]string{"bash", "--noprofile", "--norc", "-p", "-c", script}, tail...)
	}
	type dialed struct {
		conn Conn
		err  error
	}
	other := make(chan dialed, 1)
	go func() {
		conn, err := pool.dial(ctx, argv(outputLine))
		other <- dialed{conn, err}
	}()
	a, err := pool.dial(ctx, argv(inputLine))
	b := <-other
	if err == nil {
		err = b.err
	}
	if err != nil {
		if a != nil {
			_ = a.Close()
		}
		if b.conn != nil {
			_ = b.conn.Close()
		}
		return nil, err
	}
	return newLink(pool, spec, token, a, b.conn), nil
}

// random is 32 hexadecimal digits.
func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func lost(spec Spec, why string) error {
	return kinderr.New(driver.KindLost, "the connection to a bash in %s was lost: %s", spec.Name, why)
}
