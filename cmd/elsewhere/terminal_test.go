//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/elsewhere-sh/elsewhere"
)

// screen is what a program on a terminal has written so far.
type screen struct {
	t    *testing.T
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

// watch reads the terminal of a program.
func watch(t *testing.T, terminal *os.File) *screen {
	s := &screen{t: t, news: make(chan struct{}, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			select {
			case s.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until text is there.
func (s *screen) await(text string) {
	s.t.Helper()
	limit := time.After(promised)
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.news:
		case <-limit:
			s.t.Fatalf("%q is not in %q", text, s)
		}
	}
}

// withEngine gives a program the backends of an engine that has the sandboxes of these tasks, stopped, in the shed.
func withEngine(p *program, tasks ...string) engine {
	p.t.Helper()
	e := engine{p.t.TempDir(), "shed"}
	p.Env = append(p.Env, "ENGINE="+e.dir)
	for _, task := range tasks {
		r := e.newRecord(task)
		r.Detail.State = "stopped"
		if err := e.write(r); err != nil {
			p.t.Fatal(err)
		}
	}
	return e
}

func TestWhatIsThrownAwayIsAskedAboutOnATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		args   string
		answer string
		code   int
		gone   bool
		says   string
	}{
		{"prune, yes", "sandbox prune", "y\n", 0, true, "shed/old"},
		{"prune, YES", "sandbox prune", " YES \n", 0, true, "shed/old"},
		{"prune, no", "sandbox prune", "n\n", exitOwn, false, "not confirmed, nothing was changed"},
		{"prune, nothing", "sandbox prune", "\n", exitOwn, false, "not confirmed"},
		{"prune, another word", "sandbox prune", "yessir\n", exitOwn, false, "not confirmed"},
		{"prune, end of file", "sandbox prune", "\x04", exitOwn, false, "not confirmed"},
		{"prune, Ctrl-C", "sandbox prune", "\x03", 130, false, ""},
		{"reset, yes", "sandbox reset old", "y\n", 0, true, "a clean sandbox: shed-old"},
		{"reset, no", "sandbox reset old", "n\n", exitOwn, false, "not confirmed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, strings.Fields(c.args)...)
			e := withEngine(p, "old")
			old := e.newRecord("old")
			old.Detail.State = "stopped"
			old.Detail.FilesInside = strings.Contains(c.args, "reset") // prune passes such a one over
			if err := e.write(old); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(e.file("old"))
			if err != nil {
				t.Fatal(err)
			}
			terminal := p.onTerminal()
			s := watch(t, terminal)
			s.await("Go on? [y/N] ")
			if said := s.String(); !strings.Contains(said, "shed/old") || strings.Contains(said, "its files, which are nowhere else") != old.Detail.FilesInside {
				t.Errorf("it did not say first what goes: %q", said)
			}
			if now, err := os.ReadFile(e.file("old")); err != nil || !bytes.Equal(now, before) {
				t.Errorf("something was changed before the answer: %q, %v", now, err)
			}
			if _, err := terminal.WriteString(c.answer); err != nil {
				t.Fatal(err)
			}
			p.wantExit(c.code)
			s.await(c.says)
			if now, err := os.ReadFile(e.file("old")); bytes.Equal(now, before) == c.gone {
				t.Errorf("the sandbox afterwards: %q, %v", now, err)
			}
		})
	}
}

func TestASandboxThatIsUsedMeanwhileIsNotReset(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "sandbox", "reset", "old")
	e := withEngine(p, "old")
	terminal := p.onTerminal()
	s := watch(t, terminal)
	s.await("Go on? [y/N] ")
	r := e.newRecord("old")
	r.Detail.InUse = true
	if err := e.write(r); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.WriteString("y\n"); err != nil {
		t.Fatal(err)
	}
	p.wantExit(exitOwn)
	s.await("uses the sandbox shed/old")
	if got, err := e.read(e.file("old")); err != nil || !got.Detail.InUse {
		t.Errorf("the sandbox afterwards: %+v, %v", got, err)
	}
}

func TestASlowStepIsSaidOnOneLineOfATerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", "-b", "shed", "echo done")
	e := withEngine(p)
	pull := filepath.Join(e.dir, "shed.pull")
	say := func(text string) {
		f, err := os.OpenFile(pull, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	p.Env = append(p.Env, "TERM=xterm")
	say("pulling base: 10 %\n")
	terminal := p.onTerminal()
	s := watch(t, terminal)
	s.await("base: 10 %")
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	say(strings.Repeat("x", 300) + "\npulling \x1b[31mbase: 40 %\n")
	s.await("base: 40 %")
	if err := os.Remove(pull); err != nil {
		t.Fatal(err)
	}
	p.wantExit(0)
	s.await("done")
	got := s.String()
	if strings.ContainsAny(got, "\x1b") {
		t.Errorf("it commands the terminal: %q", got)
	}
	// Each text in place of the one before, and all wiped before the output begins.
	line, _, ended := strings.Cut(got, "\rdone\r\n")
	if !ended || strings.Contains(line, "\n") {
		t.Fatalf("not one line that is wiped: %q", got)
	}
	texts := strings.Split(strings.TrimPrefix(line, "\r"), "\r")
	for _, text := range texts {
		if len(text) > 39 {
			t.Errorf("%q is wider than the terminal", text)
		}
	}
	if first, last := strings.TrimRight(texts[0], " "), texts[len(texts)-1]; first != "pulling base: 10 %" || strings.TrimSpace(last) != "" {
		t.Errorf("from %q to %q", first, last)
	}
}

func TestASlowStepIsNotSaidIntoAPipe(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", "-b", "shed", "echo done")
	e := withEngine(p)
	pull := filepath.Join(e.dir, "shed.pull")
	if err := os.WriteFile(pull, []byte("pulling\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	p.Stdout = &stdout
	p.start()
	for begun := time.Now(); !e.has("told"); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > promised {
			t.Fatal("the engine was not asked")
		}
	}
	if err := os.Remove(pull); err != nil {
		t.Fatal(err)
	}
	p.wantExit(0)
	if strings.Contains(p.stderr.String(), "pulling") || stdout.String() != "done\n" {
		t.Errorf("stdout %q, stderr %q", stdout.String(), p.stderr.String())
	}
}

func TestNobodyWaitsLongerThanTheLimit(t *testing.T) {
	t.Parallel()
	deaf := make(chan struct{})
	t.Cleanup(func() { close(deaf) })
	_, err := within(t.Context(), time.Millisecond, func(context.Context) (int, error) {
		<-deaf
		return 1, nil
	})
	if !errors.Is(err, errNoAnswer) {
		t.Errorf("of what is deaf: %v", err)
	}
	own := &elsewhere.Error{Kind: "config", Op: "open", Err: errors.New("wrong")}
	if v, err := within(t.Context(), time.Hour, func(context.Context) (int, error) { return 7, own }); v != 7 || err != error(own) {
		t.Errorf("got %d, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := within(ctx, time.Hour, func(ctx context.Context) (int, error) {
		<-deaf
		return 0, nil
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
}

func TestAgesAreSaidInTheirGreatestUnit(t *testing.T) {
	for ago, want := range map[time.Duration]string{
		-time.Hour: "0s", 59 * time.Second: "59s", time.Minute: "1m", 90 * time.Minute: "1h", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		if got := age(time.Now().Add(-ago)); got != want {
			t.Errorf("%s: %s, want %s", ago, got, want)
		}
	}
	if got := age(time.Time{}); got != "" {
		t.Errorf("no time at all: %q", got)
	}
}
