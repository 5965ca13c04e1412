package docker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

func TestABashInAContainer(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("exec"))

	t.Run("its streams are apart and byte for byte", func(t *testing.T) {
		p := bash(t, s, `cat; cat /proc/self/comm >&2`)
		text := bytes.Repeat(allBytes(), 4096) // 1 MiB
		go func() { _, _ = p.Stdin().Write(text); _ = p.Stdin().Close() }()
		var errs []byte
		var reading sync.WaitGroup
		reading.Go(func() { errs, _ = io.ReadAll(p.Stderr()) })
		out, err := io.ReadAll(p.Stdout())
		reading.Wait()
		if err != nil || string(errs) != "cat\n" {
			t.Errorf("%v, stderr %q", err, errs)
		}
		sameBytes(t, "stdout", out, text)
		if status, err := ended(t, p); err != nil || status != (driver.ExitStatus{}) {
			t.Errorf("%+v, %v", status, err)
		}
		if _, err := p.Stdin().Write([]byte("x")); err == nil {
			t.Error("a write to an ended bash is no error")
		}
	})

	t.Run("output goes on after the end of its input", func(t *testing.T) {
		p := bash(t, s, `read -r a; echo "$a"; read -r b || echo end; sleep 0.1; echo late`)
		_, _ = io.WriteString(p.Stdin(), "one\n")
		_ = p.Stdin().Close()
		if out, _ := io.ReadAll(p.Stdout()); string(out) != "one\nend\nlate\n" {
			t.Errorf("got %q", out)
		}
	})

	t.Run("its input stays open until it is closed", func(t *testing.T) {
		p := bash(t, s, `read -r a; echo "<$a>"; read -r b; echo "<$b>"`)
		out := bufio.NewReader(p.Stdout())
		for _, word := range []string{"x", "y"} {
			_, _ = io.WriteString(p.Stdin(), word+"\n")
			if line, err := out.ReadString('\n'); err != nil || line != "<"+word+">\n" {
				t.Errorf("got %q, %v", line, err)
			}
		}
	})

	t.Run("a stream that was closed does not hold up the other", func(t *testing.T) {
		p := bash(t, s, `head -c 3000000 /dev/zero >&2; echo end`)
		_ = p.Stderr().Close()
		if out, err := io.ReadAll(p.Stdout()); string(out) != "end\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})

	t.Run("its exit code, and a signal's name", func(t *testing.T) {
		for script, want := range map[string]driver.ExitStatus{
			`exit 0`:                           {},
			`exit 3`:                           {Code: 3},
			`exit 128`:                         {Code: 128},
			`kill -KILL $$`:                    {Code: 137, Signal: "KILL"},
			`kill -TERM $$`:                    {Code: 143, Signal: "TERM"},
			`kill -USR1 $$`:                    {Code: 138, Signal: "USR1"},
			`exit 255`:                         {Code: 255},
			`exec nosuch`:                      {Code: 127},
			`exec >&- 2>&-; sleep 0.3; exit 5`: {Code: 5},
			`exec bash -c 'exec >&- 2>&-; sleep 1; exit 6'`: {Code: 6},
		} {
			t.Run(script, func(t *testing.T) {
				p := bash(t, s, script)
				if status, err := ended(t, p); err != nil || status != want {
					t.Errorf("got %+v, %v; want %+v", status, err, want)
				}
			})
		}
	})

	t.Run("its end is noticed while nobody reads what it has printed", func(t *testing.T) {
		p := bash(t, s, `head -c 30000 /dev/zero; head -c 30000 /dev/zero >&2; exit 5`)
		if status, err := ended(t, p); err != nil || status.Code != 5 {
			t.Errorf("got %+v, %v", status, err)
		}
	})

	t.Run("its own end is noticed while a child holds its streams", func(t *testing.T) {
		p := bash(t, s, `sleep 1000 & echo $!; kill -KILL $$`)
		_ = p.Stdin().Close()
		line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSpace(line)
		if status, err := ended(t, p); err != nil || status.Signal != "KILL" {
			t.Errorf("got %+v, %v", status, err)
		}
		output(t, s, "kill -0 "+line+" && kill -KILL "+line) // it lived
	})

	t.Run("waiting can be given up and taken up again", func(t *testing.T) {
		p := bash(t, s, `read -r _; exit 4`)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Wait(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		var both sync.WaitGroup
		for range 3 {
			both.Go(func() {
				if status, err := ended(t, p); err != nil || status.Code != 4 {
					t.Errorf("got %+v, %v", status, err)
				}
			})
		}
		_, _ = io.WriteString(p.Stdin(), "\n")
		both.Wait()
		if status, err := p.Wait(gone); err != nil || status.Code != 4 {
			t.Errorf("an ended process has an end for a canceled caller too: %+v, %v", status, err)
		}
	})

	t.Run("Kill ends it and what it started, and nothing else", func(t *testing.T) {
		other := bash(t, s, `read -r _; echo alive`)
		p := bash(t, s, `trap '' TERM HUP; (trap '' TERM; exec setsid sleep 1000) & echo $!; while :; do read -r -t 1000 _ <> <(:); done`)
		line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		child := strings.TrimSpace(line)
		output(t, s, "kill -0 "+child) // it lives
		for range 2 {
			if err := p.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if status, err := ended(t, p); err != nil || status != (driver.ExitStatus{Code: 137, Signal: "KILL"}) {
			t.Errorf("got %+v, %v", status, err)
		}
		if err := p.Kill(t.Context()); err != nil {
			t.Errorf("killing an ended process: %v", err)
		}
		eventually(t, "the child is gone", func() bool { return output(t, s, "kill -0 "+child+" 2>/dev/null && echo there; :") == "" })
		_, _ = io.WriteString(other.Stdin(), "\n")
		if out, _ := io.ReadAll(other.Stdout()); string(out) != "alive\n" {
			t.Errorf("the other bash said %q", out)
		}
	})

	t.Run("it has the variables of its spec, the user's home and the directory /", func(t *testing.T) {
		p, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"-c", `echo "$A $B $HOME $PWD $0"`, "zero"}, Env: []string{"A=a b", "B="}})
		if err != nil {
			t.Fatal(err)
		}
		out, _ := io.ReadAll(p.Stdout())
		if want := fmt.Sprintf("a b  %s / zero\n", s.info.Home); string(out) != want {
			t.Errorf("got %q, want %q", out, want)
		}
		p.(*process).closeAll()
	})

	t.Run("a flood on both streams is whole", func(t *testing.T) {
		p := bash(t, s, `for i in {1..40}; do head -c 100000 /dev/zero; head -c 50000 /dev/zero >&2; done`)
		var n [2]int64
		var both sync.WaitGroup
		both.Go(func() { n[0], _ = io.Copy(io.Discard, p.Stdout()) })
		both.Go(func() { n[1], _ = io.Copy(io.Discard, p.Stderr()) })
		both.Wait()
		if n != [2]int64{4000000, 2000000} {
			t.Errorf("got %v bytes", n)
		}
	})

	t.Run("bash is found by what is said of it in /proc", func(t *testing.T) {
		// No exec has more rights than the container's user, and none has a terminal.
		if got := output(t, s, `while read -r name value; do [[ $name == CapEff: || $name == NoNewPrivs: ]] && echo "$name$value"; done </proc/self/status; [[ -t 0 || -t 1 ]] && echo tty; :`); strings.Contains(got, "tty") || !strings.Contains(got, "NoNewPrivs:1") {
			t.Errorf("got %q", got)
		}
	})
}

// TestABrokenConnectionIsLost cuts the connection under a bash that goes on running.
func TestABrokenConnectionIsLost(t *testing.T) {
	w := newWorld(t)
	x, host := newProxy(t)
	req := w.request("cut")
	req.Environ = append(append([]string{}, w.environ...), "DOCKER_HOST="+host)
	s := w.open(req)
	p := bash(t, s, `echo hi; read -r _`)
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "hi\n" {
		t.Fatalf("%q, %v", line, err)
	}
	x.cut()
	// What was cut at both ends cannot be told from an end of the streams; the bash's input is at its end, so it leaves.
	status, err := ended(t, p)
	if err == nil && status.Code != 1 || err != nil && classify(err) != driver.KindLost {
		t.Errorf("got %+v, %v", status, err)
	}
	if _, err := io.ReadAll(p.Stdout()); err != nil && classify(err) == "" {
		t.Error(err)
	}
	if err := s.Alive(t.Context()); err != nil {
		t.Errorf("the container is well, and the engine answers again: %v", err)
	}
}

func TestAnEngineThatIsGoneIsUnavailable(t *testing.T) {
	w := newWorld(t)
	x, host := newProxy(t)
	req := w.request("down")
	req.Environ = append(append([]string{}, w.environ...), "DOCKER_HOST="+host)
	s := w.open(req)
	p := bash(t, s, `echo hi; sleep 1000`)
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "hi\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = x.l.Close()
	x.cut()
	begin := time.Now()
	if _, err := ended(t, p); err == nil || classify(err) != driver.KindUnavailable && classify(err) != driver.KindLost {
		t.Errorf("got %v", err)
	}
	if d := time.Since(begin); d > engineBack+10*time.Second {
		t.Errorf("it took %v", d)
	}
	if err := s.Alive(t.Context()); classify(err) != driver.KindUnavailable {
		t.Errorf("alive: %v", err)
	}
	if _, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID()}); classify(err) != driver.KindUnavailable {
		t.Errorf("a bash: %v", err)
	}
}

// TestAContainerThatEndsUnderABashIsLost: what ends with its container is not taken for a program that was killed.
func TestAContainerThatEndsUnderABashIsLost(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, eng *client.Client, id string) error{
		"removed": func(ctx context.Context, eng *client.Client, id string) error {
			_, err := eng.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true})
			return err
		},
		"stopped": func(ctx context.Context, eng *client.Client, id string) error {
			_, err := eng.ContainerStop(ctx, id, client.ContainerStopOptions{})
			return err
		},
		"killed": func(ctx context.Context, eng *client.Client, id string) error {
			_, err := eng.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.open(w.request("ends"))
			p := bash(t, s, `echo hi; sleep 1000`)
			if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "hi\n" {
				t.Fatalf("%q, %v", line, err)
			}
			if err := end(t.Context(), w.eng, s.id); err != nil {
				t.Fatal(err)
			}
			if status, err := ended(t, p); classify(err) != driver.KindLost || err == nil {
				t.Errorf("got %+v, %v", status, err)
			}
			if err := s.Alive(t.Context()); err == nil || classify(err) != driver.KindLost {
				t.Errorf("alive: %v", err)
			}
			if _, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID()}); err == nil || classify(err) != driver.KindLost {
				t.Errorf("a bash: %v", err)
			}
			// This value is still open, and so another one can be.
			again := w.open(w.request("ends"))
			if got := output(t, again, `echo fine`); got != "fine" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestAnEngineThatLearnsLateOfAContainersEnd: it goes on saying that the container runs after its processes were killed.
func TestAnEngineThatLearnsLateOfAContainersEnd(t *testing.T) {
	w := newWorld(t)
	late := &lateEngine{}
	w.environ = append(w.environ, "DOCKER_HOST="+late.before(t, w.eng))
	s := w.open(w.request("late", "container_persistent", "false"))
	p := bash(t, s, `echo hi; sleep 1000`)
	if line, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil || line != "hi\n" {
		t.Fatalf("%q, %v", line, err)
	}
	late.from(t, w.eng, s.id, time.Second)
	if _, err := w.eng.ContainerKill(t.Context(), s.id, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	if status, err := ended(t, p); classify(err) != driver.KindLost || err == nil {
		t.Errorf("got %+v, %v", status, err)
	}
	if late.told.Load() == 0 {
		t.Error("nobody asked while it did not know: the test proves nothing")
	}
	// A command that is killed while the container goes on has just its own end.
	s = w.open(w.request("late", "container_persistent", "false"))
	if status, err := ended(t, bash(t, s, `kill -KILL $$`)); err != nil || status.Signal != "KILL" {
		t.Errorf("got %+v, %v", status, err)
	}
}

// lateEngine stands before a real one and, for a while, says of a container what was so before.
type lateEngine struct {
	mu    sync.Mutex
	path  string
	old   []byte
	until time.Time
	told  atomic.Int32
}

func (l *lateEngine) before(t *testing.T, eng *client.Client) (host string) {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return eng.Dialer()(ctx)
		}},
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		old, late := l.old, l.path != "" && strings.HasSuffix(r.URL.Path, l.path) && time.Now().Before(l.until)
		l.mu.Unlock()
		if late {
			l.told.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(old)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return "tcp://" + strings.TrimPrefix(server.URL, "http://")
}

// from keeps for so long what the engine says of the container now.
func (l *lateEngine) from(t *testing.T, eng *client.Client, id string, long time.Duration) {
	t.Helper()
	found, err := eng.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.old, l.until = "/containers/"+id+"/json", found.Raw, time.Now().Add(long)
}

const childTest = "ELSEWHERE_DOCKER_TEST_CHILD"

// TestTheInputOfABashEndsWithItsProcess: by that a watchdog learns that its process was killed; a child in the background that
// goes on printing lives on.
func TestTheInputOfABashEndsWithItsProcess(t *testing.T) {
	w := newWorld(t)
	if home := os.Getenv(childTest); home != "" {
		w.home = home
		s, err := open(t.Context(), w.request("watch"))
		if err != nil {
			t.Fatal(err)
		}
		p := bash(t, s.(*sandbox), `(exec 0</dev/null; while :; do echo noise; echo >>/tmp/beat; sleep 0.02; done) & echo $! >/tmp/child; read -r _; echo end >/tmp/eof; sleep 1000`)
		if _, err := bufio.NewReader(p.Stdout()).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		fmt.Println("child-ready")
		_, _ = io.Copy(io.Discard, p.Stdout())
		return
	}
	s := w.open(w.request("watch"))
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=false")
	cmd.Env = append(os.Environ(), childTest+"="+w.home, "TMPDIR="+t.TempDir()) // it is killed
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := false
	for lines := bufio.NewScanner(out); !ready && lines.Scan(); {
		ready = strings.Contains(lines.Text(), "child-ready")
	}
	if output(t, s, `[[ -e /tmp/eof ]] && echo ended; kill -0 $(</tmp/child) && echo lives`) != "lives" || !ready {
		t.Fatal("the child process did not come so far")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the bash saw the end of its input", func() bool { return output(t, s, `[[ -e /tmp/eof ]] && echo yes; :`) == "yes" })
	beats := func() string { return output(t, s, `wc -c </tmp/beat`) }
	for range 2 {
		before := beats()
		eventually(t, "the child goes on", func() bool { return beats() != before })
	}
	output(t, s, `kill -KILL $(</tmp/child)`)
}

func BenchmarkStart(b *testing.B) {
	w := newWorld(b)
	s := w.open(w.request("bench"))
	for b.Loop() {
		p := bash(b, s, `:`)
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWaiting is what this package adds to a call of a bash that waits: a write, and a read of the answer.
func BenchmarkWaiting(b *testing.B) {
	w := newWorld(b)
	s := w.open(w.request("bench"))
	p := bash(b, s, `while read -r x; do echo "$x"; done`)
	out := bufio.NewReader(p.Stdout())
	for b.Loop() {
		if _, err := io.WriteString(p.Stdin(), "x\n"); err != nil {
			b.Fatal(err)
		}
		if _, err := out.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
	}
}
