package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// terminalGroup: programs on a pseudo-terminal (SPEC 7.6).
func terminalGroup() group {
	return group{name: "terminal", needs: []Need{NeedTerminal}, cases: []testCase{
		{name: "a command has a terminal of the size and type that were asked for, and its exit code is the result's", run: func(t *test) {
			s := t.session()
			p := s.terminal(`[[ -t 0 && -t 1 && -t 2 ]] && : </dev/tty && echo "all $TERM"; stty size; exit 7`,
				&elsewhere.TerminalOptions{Rows: 31, Cols: 97, Term: "vt100"})
			p.ends(7, elsewhere.Exited)
			p.shows("all vt100\r\n31 97\r\n")
		}},
		{name: "a new size reaches the program", run: func(t *test) {
			s := t.session()
			p := s.terminal(`trap 'stty size' WINCH; echo ready; while :; do sleep 0.1; done`, nil)
			p.await("ready")
			if err := p.Resize(t.ctx(), 40, 132); err != nil {
				t.Fatal(err)
			}
			p.await("40 132")
		}},
		{name: "a command starts with the session's state and leaves its own", run: func(t *test) {
			s := t.session()
			s.run(`export A=before; f() { echo "f $A"; }; cd /tmp`).code(0)
			p := s.terminal(`f; pwd; export A=after B='two words'; cd /; hide=1`, &elsewhere.TerminalOptions{Env: map[string]string{"ONCE": "1"}})
			p.ends(0, elsewhere.Exited)
			p.shows("f before\r\n/tmp\r\n")
			s.want(`f; pwd; echo "<$B><${hide-}><${ONCE-}>"`, "f after\n/\n<two words><><>\n")
		}},
		{name: "an interactive bash starts with the session's state and leaves its own", run: func(t *test) {
			s := t.session()
			s.run(`export A=before; f() { echo "f-$A"; }; alias ali='echo aliased'; cd /tmp`).code(0)
			p := s.terminal("", nil)
			p.types("f; ali; pwd; echo $-\n")
			p.await("f-before\r\naliased\r\n/tmp\r\n")
			p.types("export A=after; g() { echo gee; }; cd /usr; umask 027\n")
			p.types("exit 5\n")
			p.ends(5, elsewhere.Exited)
			s.want(`f; g; pwd; umask; [[ $- == *i* ]] || echo plain`, "f-after\ngee\n/usr\n0027\nplain\n")
		}},
		{name: "the keys of a terminal interrupt, stop and quit what is in front", run: func(t *test) {
			s := t.session()
			p := s.terminal("", nil)
			quitIgnored := strings.Contains(string(s.run(`while read -r k v; do [[ $k != SigIgn: ]] || echo "ignored $((16#$v & 4))"; done </proc/$$/status`).Output), "ignored 4")
			p.types("PS1='[''ok] '\n")
			p.await("[ok] ")
			p.types("bash -c 'echo a\"\"sleep; exec sleep 1000'\n")
			p.await("asleep")
			p.types("\x03")
			p.types("echo int-$?\n")
			p.await("int-130")
			p.types("bash -c 'echo b\"\"sleep; exec sleep 1000'\n")
			p.await("bsleep")
			p.types("\x1a")
			p.await("Stopped")
			p.types("kill -KILL %1; bash -c 'echo c\"\"sleep; exec sleep 1000'\n")
			p.await("csleep")
			if quitIgnored {
				p.types("\x03exit 0\n") // as what started the engine had it
				p.ends(0, elsewhere.Exited)
				return
			}
			p.types("\x1c")
			p.types("echo quit-$?; exit 0\n")
			p.await("quit-131")
			p.ends(0, elsewhere.Exited)
		}},
		{name: "bytes go through as they are both ways once the program has made the terminal raw", run: func(t *test) {
			s := t.session()
			p := s.terminal(`stty raw -echo; echo ready; head -c 256 | od -An -v -tx1 | tr -d ' \n'; printf '\x1b[?1049h\x1b[200~\x00\xff\x1b[?1049l'; echo; echo end`, nil)
			p.await("ready")
			all := make([]byte, 256)
			var want strings.Builder
			for i := range all {
				all[i] = byte(i)
				want.WriteString(string("0123456789abcdef"[i>>4]) + string("0123456789abcdef"[i&15]))
			}
			p.types(string(all))
			p.ends(0, elsewhere.Exited)
			p.shows(want.String())
			p.shows("\x1b[?1049h\x1b[200~\x00\xff\x1b[?1049l")
		}},
		{name: "a hidden answer is not shown", run: func(t *test) {
			s := t.session()
			p := s.terminal(`read -r -s -p 'password: ' x; echo; echo "${#x} characters"`, nil)
			p.await("password: ")
			p.types("secret\n")
			p.ends(0, elsewhere.Exited)
			p.shows("6 characters")
			if strings.Contains(p.all(), "secret") {
				t.Errorf("it was shown: %q", p.all())
			}
		}},
		{name: "closing it ends all that runs there, and the state that an interactive bash leaves is kept", run: func(t *test) {
			s := t.session()
			p := s.terminal("", nil)
			live := s.beater()
			p.types(live("front") + " & export LEFT=yes; echo s''et; wait\n")
			p.await("set")
			procs := s.alive("front")
			p.closes()
			s.gone(procs, 0)
			s.want(`echo "<$LEFT>"`, "<yes>\n")
		}},
		{name: "what is pasted and what is shown at once arrive whole", run: func(t *test) {
			s := t.session()
			var numbers bytes.Buffer
			for i := range 30000 {
				fmt.Fprintf(&numbers, "%d\n", i)
			}
			p := s.terminal(`stty raw -echo; echo ready; head -c `+strconv.Itoa(numbers.Len())+` >@D/pasted; cat @D/pasted @D/pasted; echo end`, nil)
			p.await("ready")
			p.types("\x1b[200~")
			p.types(numbers.String()[6:])
			p.await("end\n")
			want := "\x1b[200~" + numbers.String()[6:]
			if got := p.all(); !strings.Contains(got, want+want+"end\n") {
				t.Errorf("%d bytes were shown of which %d were pasted, and not those that were", len(got), numbers.Len())
			}
		}},
		{name: "a terminal whose sandbox vanishes ends as lost", needs: []Need{NeedLose}, slow: true, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			p := s.terminal(`echo ready; exec sleep 1000`, nil)
			p.await("ready")
			b.lose()
			ctx, cancel := context.WithTimeout(context.Background(), terminalWait)
			defer cancel()
			if res, err := p.Wait(ctx); err == nil {
				t.Errorf("it ended by %s with %d", res.Cause, res.ExitCode)
			} else {
				t.wantKind(err, elsewhere.ErrLost, "a terminal whose sandbox vanished")
			}
			s.run(`echo fine`).out("fine\n")
		}},
		{name: "a host process killed by KILL leaves nothing on its terminal", needs: []Need{NeedHostChildren, NeedProc}, slow: true, run: func(t *test) {
			b := t.place(boxSpec{})
			look := &session{t: t, b: b}
			live := look.beater()
			h := b.host(childJob{
				Terminal: live("front") + " & setsid " + live("setsid") + " & (" + live("deaf", "deaf") + " &); wait",
				Await:    []string{look.d() + "/front.beat", look.d() + "/setsid.beat", look.d() + "/deaf.beat"},
			})
			procs := look.alive("front", "setsid", "deaf")
			h.kill()
			if t.r.h.OrphansEndOnOpen {
				b.open()
				b.session("").want(`echo fine`, "fine\n")
			}
			look.gone(procs, max(t.r.h.OrphanGrace, grace))
		}},
		{name: "a timeout ends all that runs there", run: func(t *test) {
			s := t.session()
			live := s.beater()
			p := s.terminal(`trap '' HUP; `+live("deaf")+` & echo begun; wait`, &elsewhere.TerminalOptions{Timeout: 3 * time.Second})
			p.ends(124, elsewhere.TimedOut)
			s.silent("deaf")
		}, slow: true},
	}}
}

// terminal is a program on a terminal whose output is kept.
type terminal struct {
	*elsewhere.Terminal
	t      *test
	mu     sync.Mutex
	out    bytes.Buffer
	update chan struct{} // gets one when something came
	eof    chan struct{}
}

func (s *session) terminal(command string, opts *elsewhere.TerminalOptions) *terminal {
	s.t.Helper()
	far, err := s.Shell(context.Background(), s.fill(command), opts)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &terminal{Terminal: far, t: s.t, update: make(chan struct{}, 1), eof: make(chan struct{})}
	go func() {
		defer close(p.eof)
		buffer := make([]byte, 4096)
		for {
			n, err := far.Read(buffer)
			p.mu.Lock()
			p.out.Write(buffer[:n])
			p.mu.Unlock()
			select {
			case p.update <- struct{}{}:
			default:
			}
			if err != nil {
				if err != io.EOF && err != io.ErrClosedPipe {
					s.t.Errorf("reading the terminal: %v", err)
				}
				return
			}
		}
	}()
	s.t.Cleanup(p.closes)
	return p
}

// closes closes it and waits until nothing more is read.
func (p *terminal) closes() {
	_ = p.Close()
	<-p.eof
}

func (p *terminal) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *terminal) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatalf("typing %q: %v; shown: %q", text, err, p.all())
	}
}

// await waits until text is shown.
func (p *terminal) await(text string) {
	p.t.Helper()
	late := time.After(terminalWait)
	for !strings.Contains(p.all(), text) {
		select {
		case <-p.update:
		case <-p.eof:
			if !strings.Contains(p.all(), text) {
				p.t.Fatalf("it ended without %q; shown: %q", text, p.all())
			}
		case <-late:
			p.t.Fatalf("no %q; shown: %q", text, p.all())
		}
	}
}

// ends waits for the end and compares it.
func (p *terminal) ends(code int, cause elsewhere.Cause) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), terminalWait)
	defer cancel()
	res, err := p.Wait(ctx)
	if err != nil {
		p.t.Fatalf("%v; shown: %q", err, p.all())
	}
	<-p.eof
	if res.ExitCode != code || res.Cause != cause {
		p.t.Errorf("ended with %d (%s), want %d (%s); shown: %q", res.ExitCode, res.Cause, code, cause, p.all())
	}
}

func (p *terminal) shows(text string) {
	p.t.Helper()
	if !strings.Contains(p.all(), text) {
		p.t.Errorf("no %q in %q", text, p.all())
	}
}

// terminalWait bounds the wait for anything on a terminal.
const terminalWait = 60 * time.Second
