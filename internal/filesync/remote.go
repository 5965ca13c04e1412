package filesync

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// Remote starts a bash on the far side. A driver.Sandbox is one.
type Remote interface {
	Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error)
}

//go:embed far.sh
var farSource string

// boot is the command line of every bash here: it reads the script up to a NUL and runs it.
const boot = `LC_ALL=C IFS= read -r -d "" ELSEWHERE_SYNC && eval "$ELSEWHERE_SYNC"`

const (
	helloWait = 2 * time.Minute // for a bash to start and to say what it has
	endWait   = 10 * time.Second
	// stderrKept is how much of the far side's complaints is kept for an error's text, in bytes.
	stderrKept = 4 << 10
)

// ErrUnsupported says that the far side lacks a program that the transfer needs.
var ErrUnsupported = errors.New("the far side lacks a program")

// conversation is a bash on the far side that runs far.sh. end must be called.
type conversation struct {
	process driver.Process
	in      io.WriteCloser
	out     *bufio.Reader
	tools   map[string]bool
	stop    func() bool // gives up ending the bash with the context
	errs    tail
	drained chan struct{}
}

// converse starts op with its arguments, which are data: any bytes but NUL. It waits until the far side has said what
// programs it has; those in need have to be among them.
func converse(ctx context.Context, remote Remote, need []string, op string, args ...string) (*conversation, error) {
	id := owner.NewID()
	process, err := remote.Bash(ctx, driver.BashSpec{ID: id, Args: []string{"-c", boot}, Env: []string{"ELSEWHERE_CALL=" + id}})
	if err != nil {
		return nil, err
	}
	c := &conversation{process: process, in: process.Stdin(), out: bufio.NewReaderSize(process.Stdout(), 64<<10), drained: make(chan struct{})}
	c.stop = context.AfterFunc(ctx, func() { c.kill() })
	go func() {
		defer close(c.drained)
		_, _ = io.Copy(&c.errs, process.Stderr())
	}()
	if c.in == nil {
		c.end(ctx)
		return nil, fmt.Errorf("%w: its bash has no standard input", ErrUnsupported)
	}
	err = c.greet(ctx, need, append([]string{farSource, owner.NewID(), op}, args...))
	if err != nil {
		err = c.why(ctx, err)
		c.end(ctx)
		return nil, err
	}
	return c, nil
}

// greet sends script, token and arguments and reads up to the answer to them.
func (c *conversation) greet(ctx context.Context, need, fields []string) error {
	for _, field := range fields[1:] {
		if strings.ContainsRune(field, 0) {
			return errors.New("a name with a NUL byte")
		}
	}
	timer := time.AfterFunc(helloWait, c.kill)
	defer timer.Stop()
	if _, err := io.WriteString(c.in, strings.Join(fields, "\x00")+"\x00"); err != nil {
		return err
	}
	token := fields[1]
	for { // a profile may have printed before
		line, err := c.line()
		if err != nil {
			return err
		}
		rest, ok := strings.CutPrefix(line, token)
		if !ok {
			continue
		}
		c.tools = map[string]bool{}
		for _, tool := range strings.Fields(rest) {
			c.tools[tool] = true
		}
		break
	}
	for _, tool := range need {
		if !c.tools[tool] {
			return fmt.Errorf("%w: %s", ErrUnsupported, missing[tool])
		}
	}
	return ctx.Err()
}

// missing says what to install.
var missing = map[string]string{
	"tar":   "install tar there",
	"find":  "install find (findutils) there",
	"xargs": "install xargs (findutils) there",
	"stat":  "install stat (coreutils) there",
	"hash":  "install sha256sum (coreutils), shasum or openssl there",
}

// line reads one line, without its end, of at most 1 MiB.
func (c *conversation) line() (string, error) {
	var b strings.Builder
	for {
		part, err := c.out.ReadSlice('\n')
		b.Write(part)
		switch {
		case err == nil:
			return strings.TrimSuffix(b.String(), "\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		case b.Len() > 1<<20:
			return "", errors.New("the far side answers with a line that does not end")
		}
	}
}

// answer reads one line that must begin with word, and returns the rest of it.
func (c *conversation) answer(word string) (string, error) {
	line, err := c.line()
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(line, "failed "); ok {
		return "", errors.New(rest)
	}
	rest, ok := strings.CutPrefix(line, word)
	if !ok {
		return "", fmt.Errorf("the far side answers %.80q", line)
	}
	return strings.TrimPrefix(rest, " "), nil
}

// feed writes NUL-ended names and closes the input, behind the caller, who reads what comes back meanwhile.
func (c *conversation) feed(names iter.Seq[string]) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w := bufio.NewWriterSize(c.in, 64<<10)
		for name := range names {
			_, _ = w.WriteString(name)
			_ = w.WriteByte(0)
		}
		_ = w.Flush()
		_ = c.in.Close()
	}()
	return func() { <-done }
}

// why adds to err what the far side complained of and, where the context ended it, says so.
func (c *conversation) why(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) && !brokenPipe(err) {
		if said := c.errs.text(); said != "" {
			return fmt.Errorf("%w (%s)", err, said)
		}
		return err
	}
	// The transfer broke; what the far side said last is the reason, if it said anything.
	c.settle()
	if lost := c.lost(); lost != nil {
		return fmt.Errorf("the transfer broke: %w", lost)
	}
	if said := c.errs.text(); said != "" {
		return fmt.Errorf("the far side ended: %s: %w", said, err)
	}
	return fmt.Errorf("the far side ended before it was done: %w", err)
}

// lost says why nobody knows how the bash ended; nil where it is known, or not yet.
func (c *conversation) lost() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.process.Wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// settle waits a moment for the last words.
func (c *conversation) settle() {
	select {
	case <-c.drained:
	case <-time.After(time.Second):
	}
}

func (c *conversation) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	_ = c.process.Kill(ctx)
	if c.in != nil {
		_ = c.in.Close()
	}
	_ = c.process.Stdout().Close()
	_ = c.process.Stderr().Close()
}

// end closes the conversation and waits for the bash, which it ends where it does not leave.
func (c *conversation) end(ctx context.Context) {
	c.stop()
	if c.in != nil {
		_ = c.in.Close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	if c.tools == nil { // it never began
		c.kill()
	}
	// Some backends take a bash for ended only when what it has printed was read.
	go func() { _, _ = io.Copy(io.Discard, c.process.Stdout()) }()
	if _, err := c.process.Wait(ctx); err != nil || c.tools != nil {
		c.kill()
	}
	<-c.drained
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > stderrKept {
		t.b = append(t.b[:0], t.b[len(t.b)-stderrKept:]...)
	}
	return len(p), nil
}

// lines gives what was written, by lines.
func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	for line := range strings.Lines(string(t.b)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// text gives the last lines as one.
func (t *tail) text() string {
	lines := t.lines()
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
