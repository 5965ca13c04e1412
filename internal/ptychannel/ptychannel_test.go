//go:build linux

package ptychannel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// wait bounds everything here: it is only reached when something hangs.
const wait = 60 * time.Second

// localConn is a terminal of this machine behind a reader that drops who does not keep up, as providers' do.
type localConn struct {
	tty   *os.File
	cmd   *exec.Cmd
	out   chan []byte
	slow  chan struct{}
	once  sync.Once
	delay time.Duration
}

// dialShell opens an interactive login shell and types the line, before the shell can be ready.
func dialShell(shell string, delay time.Duration) Dial {
	return func(_ context.Context, argv []string) (Conn, error) {
		line, err := Line(argv)
		if err != nil {
			return nil, err
		}
		c, err := startLocal(exec.Command(shell, "-i", "-l"), delay)
		if err != nil {
			return nil, err
		}
		_, err = c.tty.WriteString(line + "\n")
		return c, err
	}
}

// dialCommand runs the command itself on a terminal.
func dialCommand(_ context.Context, argv []string) (Conn, error) {
	return startLocal(exec.Command(argv[0], argv[1:]...), 0)
}

func startLocal(cmd *exec.Cmd, delay time.Duration) (*localConn, error) {
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOME=/dev/null", "TERM=dumb")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 10, Cols: 1000})
	if err != nil {
		return nil, err
	}
	c := &localConn{tty: tty, cmd: cmd, out: make(chan []byte, 256), slow: make(chan struct{}), delay: delay}
	go func() {
		defer close(c.out)
		for {
			buffer := make([]byte, 32<<10)
			n, err := tty.Read(buffer)
			if n > 0 {
				select {
				case c.out <- buffer[:n]:
				default:
					close(c.slow)
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return c, nil
}

func (c *localConn) Read(ctx context.Context) ([]byte, error) {
	if c.delay > 0 {
		time.Sleep(c.delay)
	}
	select {
	case p, ok := <-c.out:
		if !ok {
			select {
			case <-c.slow:
				return nil, errors.New("slow consumer")
			default:
			}
			return nil, io.EOF
		}
		return p, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *localConn) Write(_ context.Context, p []byte) error {
	if len(p) > MaxWrite {
		return fmt.Errorf("%d bytes at once", len(p))
	}
	_, err := c.tty.Write(p)
	return err
}

func (c *localConn) Leave() error { return c.Close() }

func (c *localConn) Close() error {
	c.once.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.tty.Close()
		_ = c.cmd.Wait()
	})
	return nil
}

// startOn starts a bash on a pool of its own, which goes with the test.
func startOn(t *testing.T, ctx context.Context, dial Dial, spec Spec) (*Process, error) {
	pool := NewPool(dial)
	p, err := pool.Start(ctx, spec)
	t.Cleanup(func() {
		pool.Close()
		if p != nil {
			<-p.ctx.Done()
		}
	})
	return p, err
}

func start(t *testing.T, dial Dial, script string, env ...string) *Process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	p, err := startOn(t, ctx, dial, Spec{Args: []string{"--noprofile", "--norc", "-c", script}, Env: env, Home: "/root", Name: "here"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _ = p.Stdin().Close(), p.Stdout().Close(), p.Stderr().Close()
		_ = p.Kill(context.Background())
		<-p.done
	})
	return p
}

// result reads a process to its end.
func result(t *testing.T, p *Process) (out, errs []byte, code int, signal string) {
	t.Helper()
	var both sync.WaitGroup
	both.Go(func() { out, _ = io.ReadAll(p.Stdout()) })
	both.Go(func() { errs, _ = io.ReadAll(p.Stderr()) })
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	status, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	both.Wait()
	return out, errs, status.Code, status.Signal
}

func eachDial(t *testing.T, test func(t *testing.T, dial Dial)) {
	t.Run("a typed line", func(t *testing.T) { test(t, dialShell("bash", 0)) })
	t.Run("a command", func(t *testing.T) { test(t, dialCommand) })
	t.Run("a typed line in sh", func(t *testing.T) { test(t, dialShell("sh", 0)) })
}

func TestStreamsStatusAndEnvironment(t *testing.T) {
	eachDial(t, func(t *testing.T, dial Dial) {
		p := start(t, dial, `printf "%s,%s,%s" "$A" "$HOME" "$PWD"; echo oops >&2; cat; exit 7`, "A=1 b")
		_, _ = io.WriteString(p.Stdin(), "from stdin")
		_ = p.Stdin().Close()
		out, errs, code, _ := result(t, p)
		if string(out) != "1 b,/root,/from stdin" || string(errs) != "oops\n" || code != 7 {
			t.Errorf("%q %q %d", out, errs, code)
		}
	})
}

func TestTheBashHasNoTerminal(t *testing.T) {
	eachDial(t, func(t *testing.T, dial Dial) {
		p := start(t, dial, `for fd in 0 1 2; do [[ -t $fd ]] && echo $fd; done; (stty sane </dev/tty) 2>/dev/null && echo controlling; for f in /proc/$$/fd/*; do x=$(readlink $f); [[ $x == /dev/p* || $x == /dev/t* ]] && echo "$f $x"; done; trap -p; kill -INT $$; echo lives`)
		_ = p.Stdin().Close()
		out, _, code, signal := result(t, p)
		if len(out) != 0 || code != 130 || signal != "INT" {
			t.Errorf("%q %d %s", out, code, signal)
		}
	})
}

// noise holds all byte values, and what would be taken for the relay's words.
func noise(size int) []byte {
	b := make([]byte, 0, size+300)
	for i := 0; len(b) < size; i++ {
		for v := range 256 {
			b = append(b, byte(v))
		}
		b = append(b, "\x1e\x1e\x03\x04\x11\x13\x1a\x1c\x7f\xff\r\n\r"[:i%14]...)
	}
	return b[:size]
}

func TestEveryByteArrivesBothWays(t *testing.T) {
	sent := noise(5 << 20)
	p := start(t, dialShell("bash", 0), `tee >(cat >&2)`)
	go func() {
		_, _ = p.Stdin().Write(sent)
		_ = p.Stdin().Close()
	}()
	out, errs, code, _ := result(t, p)
	if code != 0 || !bytes.Equal(out, sent) || !bytes.Equal(errs, sent) {
		at := 0
		for at < min(len(errs), len(sent)) && errs[at] == sent[at] {
			at++
		}
		t.Errorf("code %d, %d and %d bytes of %d came back, stderr differs at %d: %.300q", code, len(out), len(errs), len(sent), at, errs[min(at, len(errs)):])
	}
}

func TestAReaderThatIsSlowIsWaitedFor(t *testing.T) {
	p := start(t, dialShell("bash", 5*time.Millisecond), `i=0; while ((i++ < 3000)); do echo $i; done; head -c 2000000 /dev/zero`)
	_ = p.Stdin().Close()
	h := sha256.New()
	for i := range 3000 {
		fmt.Fprintln(h, i+1)
	}
	h.Write(make([]byte, 2000000))
	out, _, code, _ := result(t, p)
	if got := sha256.Sum256(out); code != 0 || !bytes.Equal(got[:], h.Sum(nil)) {
		t.Errorf("code %d, %d bytes", code, len(out))
	}
}

func TestKillEndsTheBash(t *testing.T) {
	p := start(t, dialShell("bash", 0), `trap "" TERM INT HUP; echo up; while :; do sleep 1; done`)
	buffer := make([]byte, 3)
	if _, err := io.ReadFull(p.Stdout(), buffer); err != nil {
		t.Fatal(err)
	}
	// Stdin that nobody reads stands in nobody's way.
	full := make(chan error, 1)
	go func() { _, err := p.Stdin().Write(make([]byte, 4<<20)); full <- err }()
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, code, signal := result(t, p)
	if code != 137 || signal != "KILL" {
		t.Errorf("%d %s", code, signal)
	}
	if err := <-full; err == nil {
		t.Error("a write to a bash that ended is no error")
	}
}

func TestAChildOutlivesItsBashAndItsChannel(t *testing.T) {
	file := t.TempDir() + "/pid"
	p := start(t, dialShell("bash", 0), `(trap "" HUP; echo $BASHPID >`+file+`; while :; do echo beat || exit; read -t 0.1 <> <(:); done) & wait -n -p x 2>/dev/null & exit 3`)
	_ = p.Stdin().Close()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if status, err := p.Wait(ctx); err != nil || status.Code != 3 {
		t.Fatal(status, err)
	}
	buffer := make([]byte, 5)
	if _, err := io.ReadFull(p.Stdout(), buffer); err != nil || string(buffer) != "beat\n" {
		t.Fatalf("%q %v", buffer, err)
	}
	_ = p.Stdout().Close()
	_ = p.Stderr().Close()
	select {
	case <-p.ctx.Done(): // the relays have left
	case <-time.After(wait):
		t.Fatal("the relays do not leave")
	}
	text, _ := os.ReadFile(file)
	var pid int
	_, _ = fmt.Sscan(string(text), &pid)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	// It goes on writing: its processor time grows, or it has slept at least twice more.
	io1 := written(t, pid)
	for deadline := time.Now().Add(wait); written(t, pid) < io1+20; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the child writes no more")
		}
	}
}

// written is how many bytes a process has written.
func written(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatalf("the child is gone: %v", err)
	}
	_, after, _ := strings.Cut(string(text), "wchar: ")
	_, _ = fmt.Sscan(after, &n)
	return n
}

func TestStdinEndsWhenNobodySpeaksAnyMore(t *testing.T) {
	file := t.TempDir() + "/ended"
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	p, err := startOn(t, ctx, dialShell("bash", 0), Spec{Args: []string{"-c", "cat; echo ended >" + file}, Lease: 2 * time.Second, Name: "here"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(p.Stdin(), "a")
	buffer := make([]byte, 64)
	if n, err := p.Stdout().Read(buffer); err != nil || string(buffer[:n]) != "a" {
		t.Fatalf("%q %v", buffer[:n], err)
	}
	select {
	case <-p.done:
		t.Fatal("it ended while its owner lives")
	case <-time.After(4 * time.Second): // it speaks twice a second
	}
	p.mu.Lock()
	p.toA.waits = append(p.toA.waits, piece{data: make([]byte, MaxWrite+1)}) // which the terminal refuses: nothing more is sent
	p.changed.Broadcast()
	p.mu.Unlock()
	if _, err := p.Wait(ctx); err == nil {
		t.Error("a channel that is gone is an end like another")
	}
	for {
		if text, _ := os.ReadFile(file); string(text) == "ended\n" {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("stdin did not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTerminalsAreUsedAgain(t *testing.T) {
	var dialed atomic.Int32
	shell := dialShell("bash", 0)
	pool := NewPool(func(ctx context.Context, argv []string) (Conn, error) {
		dialed.Add(1)
		return shell(ctx, argv)
	})
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	temp := t.TempDir()
	for i := range meetings + 3 {
		p, err := pool.Start(ctx, Spec{Args: []string{"-c", `printf "%s." "$A" "$B"; cat; printf "err$A" >&2; exit $A`}, Env: []string{fmt.Sprintf("A=%d", i), "B=it's"}[:1+i%2], Temp: temp, Name: "here"})
		if err != nil {
			t.Fatal(err)
		}
		in := noise(i * 30000)
		_, _ = p.Stdin().Write(in) // of which the last one reads nothing
		if i%3 != 1 {
			_ = p.Stdin().Close()
		} else { // one that waits for more
			_, _ = io.ReadFull(p.Stdout(), make([]byte, 2))
			if err := p.Kill(ctx); err != nil {
				t.Fatal(err)
			}
		}
		out, errs, code, _ := result(t, p)
		b := []string{"", "it's"}[i%2]
		if i%3 != 1 && (string(out) != fmt.Sprintf("%d.%s.", i, b)+string(in) || string(errs) != fmt.Sprint("err", i) || code != i) || i%3 == 1 && code != 137 {
			t.Errorf("%d: %d bytes, %q, %d", i, len(out), errs, code)
		}
		<-p.Gone()
	}
	if n := dialed.Load(); n != 2 {
		t.Errorf("%d terminals were opened", n)
	}
	pool.Close()
	for deadline := time.Now().Add(wait); ; time.Sleep(5 * time.Millisecond) {
		left, err := os.ReadDir(temp)
		if err == nil && len(left) == 0 {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, and %d names are left", err, len(left))
		}
	}
}

func TestAShellThatRunsNothingIsExplained(t *testing.T) {
	dial := func(_ context.Context, _ []string) (Conn, error) {
		return startLocal(exec.Command("sh", "-c", "echo this account is closed; exit 1"), 0)
	}
	p := start(t, dial, "exit 0")
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if _, err := p.Wait(ctx); err == nil || !strings.Contains(err.Error(), "this account is closed") {
		t.Error(err)
	}
	if n, err := p.Stdin().Write([]byte("x")); err == nil {
		t.Error("wrote", n)
	}
}

func TestLineRefusesWhatAShellWouldChange(t *testing.T) {
	for _, word := range []string{"it's", "a\nb", "a\tb"} {
		if line, err := Line([]string{"echo", word}); err == nil {
			t.Errorf("%q: %s", word, line)
		}
	}
	for _, text := range []string{inputLine, outputLine} {
		if _, err := Line([]string{text}); err != nil {
			t.Error(err)
		}
	}
}

func TestMarksAreFoundHoweverTheyAreCut(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	text := "noise\x1e" + token + " r\na\x1eb\x1e0123\x1e" + token + " x 1\n\x1e\x1e" + token + " o\nend\x1e"
	for size := 1; size <= len(text); size++ {
		m := newMarks(token)
		var got strings.Builder
		data := func(p []byte) { got.Write(p) }
		word := func(f []string) { got.WriteString("[" + strings.Join(f, " ") + "]") }
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			m.feed([]byte(rest[:min(size, len(rest))]), data, word)
		}
		m.rest(data)
		if want := "[r]a\x1eb\x1e0123[x 1]\x1e[o]end\x1e"; got.String() != want || string(m.noise) != "noise" {
			t.Fatalf("in pieces of %d: %q, noise %q", size, got.String(), m.noise)
		}
	}
}

func TestTextGoesAsTextAndAllElseAsItIs(t *testing.T) {
	long := strings.Repeat("x", maxText+1)
	for _, c := range []struct{ data, head, sent string }{
		{"a\nb", "t 3", "a\nb"},
		{"a\n\xff\x00", "T 3", "a\n\xff"},
		{"\x00", "d 1", "\x00"},
		{"a\x00b", "d 3", "a\x00b"},
		{"a\x00\x00", "d 3", "a\x00\x00"},
		{long, "d 12289", long},
		{long[1:] + "\x00", "T 12288", long[1:]},
	} {
		if got, n := frame([]byte(c.data)); string(got) != c.head+"\n"+c.sent || n != len(c.data) {
			t.Errorf("%.20q is sent as %.30q, %d bytes", c.data, got, n)
		}
	}
}
