//go:build unix

package elsewhere

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// stuck is a local sandbox in which nothing can be ended when that is wanted, and whose engine may be silent.
type stuck struct {
	driver.Sandbox
	mu     sync.Mutex
	deaf   bool  // no bash starts that would end something
	silent error // what Alive says
	asked  int   // Alive
	stops  int
	cut    int // how many watchdogs more are cut off before they are told anything
	full   int // how many bashes more that no call waits for are refused
	calls  []driver.Process
}

// refuse refuses the next n bashes that no call waits for, and gives how many were still to be refused.
func (s *stuck) refuse(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.full
	s.full = n
	return before
}

// cutOff is a bash that takes no byte, since the connection to it is gone.
type cutOff struct{ driver.Process }

func (cutOff) Stdin() io.WriteCloser { return cutOffStdin{} }

type cutOffStdin struct{}

func (cutOffStdin) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (cutOffStdin) Close() error              { return nil }

func (s *stuck) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec.Spare && s.full > 0 {
		s.full--
		return nil, errors.New("there is no room")
	}
	if s.deaf && len(spec.Env) == 0 {
		return nil, errors.New("nothing starts here")
	}
	p, err := s.Sandbox.Bash(ctx, spec)
	if err == nil && spec.Watchdog && s.cut > 0 {
		s.cut--
		return cutOff{p}, nil
	}
	if err == nil && len(spec.Env) > 0 {
		s.calls = append(s.calls, p)
	}
	return p, err
}

func (s *stuck) Alive(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.stops > 0 {
		return kinderr.New(driver.KindLost, "it is stopped")
	}
	return s.silent
}

func (s *stuck) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops++
	for _, p := range s.calls {
		_ = p.Kill(ctx)
	}
	return nil
}

func (s *stuck) set(deaf bool, silent error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf, s.silent = deaf, silent
}

func (s *stuck) seen() (asked, stops int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.stops
}

// openStuck opens a sandbox whose calls' ends are tried for shortly, with these settings (a key, its value ...).
func openStuck(t *testing.T, settings ...string) (sb *Sandbox, last func() *stuck) {
	t.Helper()
	var mu sync.Mutex
	var all []*stuck
	b := local.Backend()
	open := b.Open
	b.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		inner, err := open(ctx, req)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, &stuck{Sandbox: inner})
		return all[len(all)-1], nil
	}
	b.Classify = kinderr.Of
	base := t.TempDir()
	environ := testEnviron(base)
	flags := map[string]string{"backend": "local", "policy.enabled": "false"}
	for i := 0; i < len(settings); i += 2 {
		flags[settings[i]] = settings[i+1]
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{b}, Flags: flags, Environ: environ, Home: filepath.Join(base, "hermes")})
	if err != nil {
		t.Fatal(err)
	}
	none := 0
	sb, err = OpenSandbox(t.Context(), cfg, &SandboxOptions{Environ: environ, SpawnAhead: &none})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close(context.Background()) })
	sb.stopAfter = 300 * time.Millisecond
	return sb, func() *stuck {
		mu.Lock()
		defer mu.Unlock()
		return all[len(all)-1]
	}
}

func TestASandboxIsStoppedOnlyWhileItsEngineAnswers(t *testing.T) {
	sb, last := openStuck(t)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	run := func(command string, limit time.Duration) *Result {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := s.Run(ctx, command, &RunOptions{Timeout: limit})
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return r
	}
	await := func(what string, so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	run(":", 0)

	// The way there is broken: nothing is stopped, and it goes well in the end.
	box := last()
	box.set(true, errors.New("nobody answers"))
	r := run("sleep 100", time.Second)
	if r.Cause != TimedOut || !strings.Contains(strings.Join(r.Notices, " "), "not confirmed") {
		t.Errorf("%+v", r)
	}
	before, _ := box.seen()
	await("the engine was asked again and again", func() bool { n, _ := box.seen(); return n >= before+3 })
	box.set(false, nil)
	await("it is told that all has ended", func() bool {
		return strings.Contains(strings.Join(run("echo fine", 0).Notices, " "), "have ended now")
	})
	if _, stops := box.seen(); stops != 0 {
		t.Fatalf("it was stopped %d times though nobody answered for it", stops)
	}

	// The engine answers, and nothing can be ended.
	box.set(true, nil)
	r = run("sleep 100", time.Second)
	await("it is stopped", func() bool { _, stops := box.seen(); return stops == 1 })
	if next := run("echo fine", 0); !strings.Contains(next.Recreated, r.CallID) || last() == box {
		t.Errorf("recreated is %q, the call was %s", next.Recreated, r.CallID)
	}
	if _, stops := last().seen(); stops != 0 {
		t.Error("the new one was stopped too")
	}
}

// What could not be confirmed long ago is no reason to stop a sandbox that is well.
func TestCloseAsksAgainBeforeItStopsASandbox(t *testing.T) {
	sb, last := openStuck(t)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), ":", nil); err != nil {
		t.Fatal(err)
	}
	p, id := sb.at(), bashscript.NewID()
	p.mu.Lock()
	p.unended = append(p.unended, unended{id, bashscript.Watch(bashscript.NewMark(s.mark), id, 0)})
	p.mu.Unlock()
	p.watch.abandon(t.Context()) // as one whose connection broke
	if err := sb.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, stops := last().seen(); stops != 0 {
		t.Error("the sandbox was stopped")
	}
}

// A stop that is under way is waited for: it needs what closing gives up.
func TestCloseWaitsForAStop(t *testing.T) {
	sb, _ := openStuck(t)
	p := sb.at()
	p.stopping <- struct{}{}
	p.lost.Store(true) // as stop does first
	closed := make(chan error, 1)
	go func() { closed <- sb.Close(context.WithoutCancel(t.Context())) }()
	select {
	case err := <-closed:
		t.Fatalf("it was closed meanwhile: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	<-p.stopping
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// A watchdog is told before anything is watched, so one whose connection goes meanwhile costs no call.
func TestAWatchdogThatIsCutOffIsStartedAgain(t *testing.T) {
	sb, last := openStuck(t)
	box := last()
	cut := func(n int) {
		box.mu.Lock()
		defer box.mu.Unlock()
		box.cut = n
	}
	for _, n := range []int{startTries, startTries + 1} {
		fails := n > startTries
		w := sb.at().watch
		w.mu.Lock()
		if w.proc != nil { // so that the next call starts one
			_ = w.proc.Kill(t.Context())
			w.proc = nil
		}
		w.mu.Unlock()
		cut(n)
		s, err := sb.Session(t.Context(), "")
		if err == nil {
			_, err = s.Run(t.Context(), ":", nil)
		}
		if fails != (err != nil) || fails && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("cut off %d times: %v", n, err)
		}
		cut(0)
	}
}

// The new sandbox has nothing of what the login files before had left in the old one.
func TestASandboxThatIsLostWhileLoginFilesAreReadCostsNoneOfThem(t *testing.T) {
	sb, last := openStuck(t, "auto_source_bashrc", "true")
	home := filepath.Dir(sb.home)
	for name, text := range map[string]string{
		".profile": "export ONE=1; exit", // which is a state of its own
		".bashrc":  ": >~/reading; until [[ -e ~/go ]]; do sleep 0.02; done; export TWO=2",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	type end struct {
		r   *Result
		err error
	}
	done := make(chan end, 1)
	go func() {
		s, err := sb.Session(t.Context(), "")
		if err != nil {
			done <- end{nil, err}
			return
		}
		r, err := s.Run(t.Context(), `echo "$ONE $TWO"`, nil)
		done <- end{r, err}
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(home, "reading")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the login file is not read")
		}
	}
	if err := errors.Join(last().Stop(t.Context()), os.WriteFile(filepath.Join(home, "go"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	got := <-done
	if got.err != nil || string(got.r.Output) != "1 2\n" || got.r.Recreated == "" {
		t.Errorf("%+v", got)
	}
}

// Starting another watchdog takes as long as the engine takes, and a call that ends has promised a time.
func TestNobodyWhoEndsWaitsForAWatchdogThatIsBeingStarted(t *testing.T) {
	sb, _ := openStuck(t)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), ":", nil); err != nil {
		t.Fatal(err)
	}
	w := sb.at().watch
	mark := bashscript.NewMark(s.mark)
	w.mu.Lock() // as who starts one
	w.calls[mark] = "x"
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.remove(mark)
		if w.removeFiles([]string{"/x"}) {
			t.Error("files were said to be removed by a watchdog that does not run yet")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("they wait")
	}
	w.mu.Unlock()
	<-done
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		_, there := w.calls[mark]
		w.mu.Unlock()
		if !there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it is watched for ever")
		}
	}
}

// A sandbox that hangs takes no byte: telling a waiting shell what to load must not hold up the session, and with it calls that end.
func TestAShellThatTakesNothingHoldsUpNoSession(t *testing.T) {
	sb, _ := openStuck(t)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "export A=1", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe() // nobody reads
	defer r.Close()
	sh := sb.at().newShell(s)
	sh.proc = mute{w}
	sh.out, sh.errs = &stream{r: sh.proc.Stdout()}, &stream{r: sh.proc.Stderr()}
	close(sh.eof)
	close(sh.ready)
	defer close(sh.exited)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.loadShell(sh, s.state)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the session waits for a shell that takes nothing")
	}
}

// mute is a bash that takes nothing.
type mute struct{ in io.WriteCloser }

func (m mute) Stdin() io.WriteCloser                             { return m.in }
func (mute) Stdout() io.ReadCloser                               { return io.NopCloser(strings.NewReader("")) }
func (mute) Stderr() io.ReadCloser                               { return io.NopCloser(strings.NewReader("")) }
func (mute) Wait(ctx context.Context) (driver.ExitStatus, error) { return driver.ExitStatus{}, nil }
func (mute) Kill(ctx context.Context) error                      { return nil }

// A job that never began is not this process's: its sandbox may rest.
func TestAJobThatNeverBeganIsNotWatched(t *testing.T) {
	sb, _ := openStuck(t)
	s, err := sb.Session(t.Context(), "dev") // a throw-away one is watched itself
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sb.home = "" // nothing is kept: a job would be this process's
	if _, err := s.Start(ctx, "sleep 1000", nil); err == nil {
		t.Fatal("it was started")
	}
	if w := sb.at().watch; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.sessions) > 0 {
			t.Errorf("watched: %v", w.sessions)
		}
	}
}

// A shell that could not be started ahead, since the engine had no room for it, is there when it has, without another call.
func TestAShellThatCouldNotBeStartedAheadIsTriedForAgain(t *testing.T) {
	sb, last := openStuck(t)
	sb.ahead = 2
	last().refuse(1000)
	s, err := sb.Session(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), ":", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	await := func(what string, so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			s.mu.Lock()
			done := so()
			s.mu.Unlock()
			if done {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	await("some are still being started", func() bool { return len(s.ahead.coming) == 0 && s.ahead.failed > 0 })
	s.mu.Lock()
	if n := len(s.ahead.shells); n != 0 {
		t.Errorf("%d shells wait: this test shows nothing", n)
	}
	s.mu.Unlock()
	last().refuse(0)
	await("no two shells wait", func() bool { return len(s.ahead.shells) == 2 })
}

// stuckWriter takes nothing until it is let go.
type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) { <-w.free; return len(p), nil }

// A writer for stderr that takes nothing keeps neither the call's own limit nor the session's end.
func TestAStuckWriterOfStderrHoldsUpNoLimit(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"timeout", "cancel", "close"} {
		sb, _ := openStuck(t)
		s, err := sb.Session(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), ":", nil); err != nil {
			t.Fatal(err)
		}
		w := stuckWriter{make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		opts := &RunOptions{Split: true, Stderr: w}
		switch how {
		case "timeout":
			opts.Timeout = time.Second
		case "cancel":
			time.AfterFunc(time.Second, cancel)
		case "close":
			time.AfterFunc(time.Second, func() { _ = s.Close(context.Background()) })
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			r, err := s.Run(ctx, "echo x >&2", opts)
			if err != nil || r.Cause != Exited || r.ExitCode != 0 {
				t.Errorf("%s: %+v, %v", how, r, err)
			}
		}()
		select {
		case <-done:
		case <-time.After(statusWait - 3*time.Second):
			t.Errorf("%s: the call waits for the writer", how)
		}
		close(w.free)
		<-done
		cancel()
	}
}
