//go:build linux

package vercel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/vercel"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

// long bounds everything here: it is only reached when something hangs.
const long = 2 * time.Minute

// world is an account of the emulated service and an HERMES_HOME.
type world struct {
	t        *testing.T
	srv      *emulator.Server
	account  *emulator.Account
	home     string
	environ  []string
	settings map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, serve(t), nil)
}

func worldOf(t *testing.T, srv *emulator.Server, account *emulator.Account) *world {
	t.Helper()
	base := t.TempDir()
	w := &world{t: t, srv: srv, home: filepath.Join(base, "hermes")}
	if account == nil || account.Token == "" {
		account = srv.NewAccount(account)
	}
	w.account = account
	w.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + w.home, "VERCEL_TOKEN=" + account.Token, "VERCEL_TEAM_ID=" + account.Team, "VERCEL_PROJECT_ID=" + account.Project, "TERMINAL_VERCEL_API_URL=" + srv.URL()}
	w.settings = map[string]string{}
	if err := os.MkdirAll(w.home, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) config() *config.Config {
	w.t.Helper()
	flags := map[string]string{"backend": "vercel"}
	for key, value := range w.settings {
		flags[key] = value
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{vercel.Backend()}, Flags: flags, Environ: w.environ, Home: w.home})
	if err != nil {
		w.t.Fatal(err)
	}
	return cfg
}

func (w *world) tryOpen(options elsewhere.SandboxOptions) (*elsewhere.Sandbox, error) {
	options.Environ = w.environ
	return elsewhere.OpenSandbox(w.ctx(), w.config(), &options)
}

// open opens the sandbox of a task with no shell ahead.
func (w *world) open(task string) *elsewhere.Sandbox {
	w.t.Helper()
	none := 0
	sb, err := w.tryOpen(elsewhere.SandboxOptions{Task: task, SpawnAhead: &none})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = sb.Close(context.Background()) })
	return sb
}

// leave opens a sandbox and never closes it, as a process that is killed does.
func (w *world) leave(task string) driver.Sandbox {
	w.t.Helper()
	sb, err := vercel.Backend().Open(w.ctx(), request(w.home, w.environ, task, w.settings))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, lock := range glob(w.t, filepath.Join(w.home, "elsewhere", "sandboxes", "*.use")) {
		if err := os.Remove(lock); err != nil { // as if its holder had gone
			w.t.Fatal(err)
		}
	}
	return sb
}

func (w *world) session(sb *elsewhere.Sandbox, name string) *elsewhere.Session {
	w.t.Helper()
	s, err := sb.Session(w.ctx(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) run(s *elsewhere.Session, command string, options *elsewhere.RunOptions) *elsewhere.Result {
	w.t.Helper()
	r, err := s.Run(w.ctx(), command, options)
	if err != nil {
		w.t.Fatalf("%s: %v", command, err)
	}
	return r
}

func (w *world) want(s *elsewhere.Session, command, output string) *elsewhere.Result {
	w.t.Helper()
	r := w.run(s, command, nil)
	if string(r.Output) != output {
		w.t.Fatalf("%s: %q, want %q", command, r.Output, output)
	}
	return r
}

// await waits until f is so.
func (w *world) await(what string, f func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(long); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it did not come to pass that %s", what)
		}
	}
}

// ids are the account's sandboxes.
func (w *world) ids() []string { return w.srv.Sandboxes(w.account) }

// one is the account's only sandbox.
func (w *world) one() string {
	w.t.Helper()
	if len(w.ids()) != 1 {
		w.t.Fatalf("there are %d sandboxes", len(w.ids()))
	}
	return w.ids()[0]
}

// see runs a script in a sandbox beside everything that the service started there.
func (w *world) see(id, script string) string {
	w.t.Helper()
	o, err := observe(w.ctx(), w.srv.Machine(id), nil, "bash", "-c", script)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(o.Stdout)
}

func TestATimeoutEndsTheCommandAndNotTheSandbox(t *testing.T) {
	w := newWorld(t)
	sb := w.open("")
	s, other := w.session(sb, ""), w.session(sb, "")
	w.want(s, `echo kept > /tmp/file; (setsid sleep 4321 >/dev/null 2>&1 &)`, "")
	if left := w.see(w.one(), `pgrep -fa "sleep [14][23]"; ps axf`); !strings.Contains(left, "4321") {
		t.Fatalf("the child that was left is not there:\n%s", left)
	}
	done := make(chan *elsewhere.Result, 1)
	go func() {
		r, _ := other.Run(w.ctx(), `until [[ -e /tmp/go ]]; do sleep 0.05; done; echo whole`, nil)
		done <- r
	}()
	r := w.run(s, `echo half; (trap "" TERM; exec sleep 1234) & sleep 1234`, &elsewhere.RunOptions{Timeout: 2 * time.Second})
	if r.ExitCode != 124 || r.Cause != elsewhere.TimedOut || string(r.Output) != "half\n" || len(r.Survivors) > 0 {
		t.Errorf("%+v", r)
	}
	if left := w.see(w.one(), `pgrep -fa "sleep [14][23]" | sort`); strings.Contains(left, "1234") || !strings.Contains(left, "4321") {
		t.Errorf("there are still:\n%s", left)
	}
	w.want(s, `cat /tmp/file; : > /tmp/go`, "kept\n")
	if r := <-done; r == nil || string(r.Output) != "whole\n" {
		t.Errorf("another call was disturbed: %+v", r)
	}
	if w.srv.Requests("POST /v2/sandboxes/sessions/{}/stop") != 0 {
		t.Error("the sandbox was stopped")
	}
	r = w.run(s, `nosuchcmd-xyz`, nil)
	if r.ExitCode != 127 || !strings.Contains(string(r.Output), "command not found") {
		t.Errorf("an unknown command: %d %q", r.ExitCode, r.Output)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}

func TestFilesOfHermesAreThereAndAreNotSentAgain(t *testing.T) {
	w := newWorld(t)
	names := []string{"plain", "a; touch pwned #", "-rf", "new\nline", "empty", "with space"}
	for _, name := range names {
		dir := filepath.Join(w.home, "skills", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "of " + name
		if name == "empty" {
			text = ""
		}
		if err := os.WriteFile(filepath.Join(dir, "SKILL.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sb := w.open("")
	s := w.session(sb, "")
	w.want(s, `cd ~/.hermes/skills; for d in *; do [[ -s $d/SKILL.md ]] && printf "%s|" "$(<"$d/SKILL.md")"; done; ls -d ~/pwned /pwned pwned 2>/dev/null; ln plain/SKILL.md /root/link`,
		"of -rf|of a; touch pwned #|of new\nline|of plain|of with space|")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.home, "skills", "with space", "SKILL.md"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb = w.open("")
	w.want(w.session(sb, ""), `cd ~/.hermes/skills; cat "with space/SKILL.md"; [[ plain/SKILL.md -ef /root/link ]] && echo same`, "newsame\n")
}

func TestACallOnAWaitingShellCostsNoRequest(t *testing.T) {
	w := newWorld(t)
	one := 1
	sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(w.ctx())
	s := w.session(sb, "")
	w.want(s, `echo first`, "first\n")
	waits := func() bool { // a shell that was started by the text that the first one wrote
		return w.see(w.one(), `grep -las "BASH_EXECUTION_STRING=exit" /proc/[0-9]*/cmdline`) != ""
	}
	w.want(s, `echo second`, "second\n")
	w.await("a shell waits", waits)
	w.want(s, `echo third`, "third\n")
	w.await("a shell waits", waits)
	before := w.srv.Requests("")
	for range 3 {
		w.want(s, `echo again`, "again\n")
		w.await("the next shell waits", waits)
	}
	if n := w.srv.Requests("") - before; n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestACutStreamLosesTheCallAndRunsNothingTwice(t *testing.T) {
	w := newWorld(t)
	sb := w.open("")
	s := w.session(sb, "")
	w.want(s, `:`, "")
	failed := make(chan error, 1)
	go func() {
		_, err := s.Run(w.ctx(), `echo ran >> /tmp/ran; sleep 7654; :`, nil)
		failed <- err
	}()
	running := func() bool { return w.see(w.one(), `pgrep -f "sleep [7]654"`) != "" }
	w.await("the command runs", running)
	w.srv.CutStreams()
	if err := <-failed; !errors.Is(err, elsewhere.ErrLost) {
		t.Errorf("%v", err)
	}
	w.want(s, `cat /tmp/ran; echo fine`, "ran\nfine\n")
	w.await("what was cut off is ended", func() bool { return !running() })
}

// TestSoak makes calls while one in a hundred connections is cut: nothing hangs, nothing runs twice.
func TestSoak(t *testing.T) {
	w := newWorld(t)
	one := 1
	sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(w.ctx())
	s := w.session(sb, "")
	w.want(s, `:`, "")
	w.srv.SetCut(0.01, 7)
	failed := 0
	calls := 100
	if drivertest.Long() {
		calls = 300
	}
	for i := range calls {
		r, err := s.Run(w.ctx(), fmt.Sprintf(`echo %d >> /root/ran; echo %d`, i, i), nil)
		switch {
		case err == nil && string(r.Output) != fmt.Sprintln(i):
			t.Errorf("call %d gave %q", i, r.Output)
		case err != nil && (errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, elsewhere.ErrLost) && !errors.Is(err, elsewhere.ErrUnavailable)):
			t.Errorf("call %d: %v", i, err)
		case err != nil:
			failed++
		}
	}
	w.srv.SetCut(0, 0)
	ran := strings.Fields(w.see(w.one(), `sort -n /root/ran | uniq -d; echo; wc -l < /root/ran`))
	if len(ran) != 1 {
		t.Errorf("ran twice: %v", ran)
	}
	if w.srv.Requests("cut") == 0 {
		t.Error("nothing was cut: the test proves nothing")
	}
	t.Logf("%d of %d calls failed, %v ran, %d connections were cut", failed, calls, ran, w.srv.Requests("cut"))
}

func TestPersistentSandboxesAreStoredAndStartedAgain(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, "dev"), `echo kept > ~/file; export A=1; cd /usr; sleep 4321 & disown; kill $!; while kill -0 $!; do :; done 2>/dev/null`, "")
	name := w.one()
	for range 4 { // more often than states are kept
		if err := sb.Close(w.ctx()); err != nil {
			t.Fatal(err)
		}
		if w.srv.State(name) != "stopped" || w.srv.Machine(name).Running() {
			t.Fatalf("the sandbox is %s", w.srv.State(name))
		}
		sb = w.open("web")
		r := w.want(w.session(sb, "dev"), `cat ~/file; echo $A; pwd`, "kept\n1\n/usr\n")
		if text := strings.Join(r.Notices, " "); !strings.Contains(text, "was started again") || !strings.Contains(text, "as they were stored at 20") {
			t.Errorf("the result does not say what is gone, and from when the files are: %q", r.Notices)
		}
	}
	if n := len(w.srv.Snapshots(w.account)); n != 2 || w.one() != name {
		t.Errorf("%d snapshots are kept", n)
	}

	// What is stored is told to Hermes.
	text, err := os.ReadFile(filepath.Join(w.home, "vercel_sandbox_snapshots.json"))
	ids := w.srv.Snapshots(w.account)
	if err != nil || !strings.Contains(string(text), fmt.Sprintf(`"web": %q`, ids[len(ids)-1])) {
		t.Errorf("%s %v", text, err)
	}

	// Another task has another one, and one that is not kept goes.
	none := 0
	other, err := w.tryOpen(elsewhere.SandboxOptions{Task: "other", ThrowAway: true, SpawnAhead: &none})
	if err != nil {
		t.Fatal(err)
	}
	if len(w.ids()) != 2 {
		t.Errorf("there are %d sandboxes", len(w.ids()))
	}
	if err := other.Close(w.ctx()); err != nil || w.one() != name {
		t.Errorf("a throw-away sandbox stays: %v", err)
	}
}

func TestARunThatKeepsNothingDeletesNothingThatIsKept(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > /root/file`, "")
	refused := func(word string) {
		t.Helper()
		w.settings["container_persistent"] = "false"
		none := 0
		other, err := w.tryOpen(elsewhere.SandboxOptions{Task: "web", SpawnAhead: &none})
		if err == nil {
			_ = other.Close(w.ctx())
		}
		if !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "container_persistent") || !strings.Contains(err.Error(), word) {
			t.Errorf("%v", err)
		}
		w.settings["container_persistent"] = "true"
	}
	refused("another process uses it")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	refused("it is kept, with its files")
	w.leave("web") // it runs
	refused("it is kept, with its files")
	w.want(w.session(w.open("web"), ""), `cat /root/file`, "kept\n")
}

func TestARunThatKeepsItsFilesUsesNoSandboxThatKeepsNone(t *testing.T) {
	w := newWorld(t)
	w.settings["container_persistent"] = "false"
	w.leave("web")
	w.settings["container_persistent"] = "true"
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > /root/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.want(w.session(w.open("web"), ""), `cat /root/file`, "kept\n")
}

func TestWhatHermesHasStoredIsStartedFrom(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo of-hermes > /root/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	id := w.srv.Snapshots(w.account)[0]
	record := filepath.Join(w.home, "vercel_sandbox_snapshots.json")
	for _, c := range []struct{ stored, output, notice string }{{id, "of-hermes\n0\n", "starts with the files"}, {"snap_nosuch", "1\n", "have expired"}} {
		task := "task-" + c.stored
		if err := os.WriteFile(record, fmt.Appendf(nil, `{"other": "snap_x", %q: %q}`, task, c.stored), 0o600); err != nil {
			t.Fatal(err)
		}
		sb := w.open(task)
		r := w.want(w.session(sb, ""), `cat /root/file 2>/dev/null; echo $?`, c.output)
		if !strings.Contains(strings.Join(r.Notices, " "), c.notice) {
			t.Errorf("%q", r.Notices)
		}
		text, _ := os.ReadFile(record)
		if !strings.Contains(string(text), "snap_x") || strings.Contains(string(text), task) != (c.stored == id) {
			t.Errorf("the record is %s", text)
		}
	}
	// A failure that is no word about the files forgets nothing.
	if err := os.WriteFile(record, fmt.Appendf(nil, `{"late": %q}`, id), 0o600); err != nil {
		t.Fatal(err)
	}
	w.srv.Fail("POST /v3/sandboxes", 1, emulator.Fault{Status: 403})
	if _, err := w.tryOpen(elsewhere.SandboxOptions{Task: "late"}); err == nil {
		t.Error("a refusal is no error")
	}
	if text, _ := os.ReadFile(record); !strings.Contains(string(text), id) {
		t.Errorf("a failure made us forget what is stored: %s", text)
	}
}

// TestTheSandboxOfAnotherBackendIsAnother has a process use the sandbox that docker has for the same task, whose name is the same.
func TestTheSandboxOfAnotherBackendIsAnother(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	name := w.one()
	other, err := kept.Open(w.home, name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	done, err := other.Make(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := other.Use(); err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if state := w.srv.State(name); state != "stopped" {
		t.Errorf("after the close it is %s", state)
	}
	w.open("web") // nobody makes or removes this one
}

func TestASandboxThatWasDeletedBetweenTwoProcessesIsToldOf(t *testing.T) {
	w := newWorld(t)
	next := func() *elsewhere.Result {
		t.Helper()
		sb := w.open("web")
		r := w.run(w.session(sb, ""), `cat ~/file 2>&1; echo kept > ~/file`, nil)
		if err := sb.Close(w.ctx()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := next(); r.Recreated != "" {
		t.Errorf("the first one: %q", r.Recreated)
	}
	w.srv.Destroy(w.one())
	if r := next(); !strings.Contains(r.Recreated, "not by elsewhere: what ran in it is gone, and so are its files") {
		t.Errorf("after it was deleted: %q, %q", r.Recreated, r.Output)
	}
	if r := next(); r.Recreated != "" || string(r.Output) != "kept\n" {
		t.Errorf("said twice: %q, %q", r.Recreated, r.Output)
	}
	keeper, err := vercel.Backend().Keeper(w.ctx(), request(w.home, w.environ, "", w.settings))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Remove(w.ctx(), w.one(), true); err != nil {
		t.Fatal(err)
	}
	if r := next(); r.Recreated != "" {
		t.Errorf("after elsewhere removed it: %q", r.Recreated)
	}
}

func TestASandboxWhoseTimeIsOverStartsAgainOnTheNextCall(t *testing.T) {
	for how, end := range map[string]func(*world){
		"its time was over": func(w *world) { w.srv.Lapse(w.one()) },
		"it was aborted":    func(w *world) { w.srv.Abort(w.one()) },
		"its files expired": func(w *world) { w.srv.Lapse(w.one()); w.srv.Expire(w.one()) },
	} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			one := 1
			sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one})
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close(w.ctx())
			s := w.session(sb, "")
			w.want(s, `echo kept > /root/file`, "")
			end(w)
			r, err := s.Run(w.ctx(), `cat /root/file 2>/dev/null; :`, nil)
			if err != nil { // the call that found it so
				if !errors.Is(err, elsewhere.ErrLost) {
					t.Fatal(err)
				}
				r, err = s.Run(w.ctx(), `cat /root/file 2>/dev/null; :`, nil)
			}
			want, word := "kept\n", "was started again"
			switch how {
			case "its files expired":
				want, word = "", "have expired"
			case "it was aborted": // before anything was stored
				want, word = "", "since it had aborted"
			}
			if err != nil || string(r.Output) != want || r.Recreated == "" {
				t.Fatalf("%+v, %v", r, err)
			}
			if said := strings.Join(r.Notices, " ") + r.Recreated; !strings.Contains(said, word) {
				t.Errorf("%q", said)
			}
		})
	}
}

func TestASandboxIsExtendedWhileACommandRunsAndNotWhenItIsIdle(t *testing.T) {
	w := newWorld(t)
	w.settings["vercel_lifetime"] = "60" // which the service would end in a minute
	sb := w.open("")
	s := w.session(sb, "")
	w.want(s, `:`, "")
	name := w.one()
	_, before := w.srv.Size(name)
	if before != time.Minute {
		t.Fatalf("it lasts %v", before)
	}
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(w.ctx(), `until [[ -e /tmp/go ]]; do sleep 0.2; done`, nil)
		done <- err
	}()
	w.await("the session is extended", func() bool { _, now := w.srv.Size(name); return now > before })
	w.see(name, `: > /tmp/go`)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAnUnheededRequestIsRepeatedOnlyWhereThatDoesNoHarm(t *testing.T) {
	srv := serve(t)
	const create = "POST /v2/sandboxes"
	for _, c := range []struct {
		name, kind string
		fault      emulator.Fault
		n          int
		err        error
	}{
		{"429 with Retry-After", create, emulator.Fault{Status: 429, RetryAfter: "1"}, 2, nil},
		{"429 without", create, emulator.Fault{Status: 429}, 1, nil},
		{"500 to a question", "GET /v2/sandboxes/{}", emulator.Fault{Status: 500}, 2, nil},
		{"made, and no answer", create, emulator.Fault{Cut: true, After: true}, 1, nil},
		{"not made, and no answer", create, emulator.Fault{Cut: true}, 1, nil},
		{"no answer to our command", "POST /v2/sandboxes/sessions/{}/cmd", emulator.Fault{Cut: true}, 1, nil},
		{"429 for an hour", create, emulator.Fault{Status: 429, RetryAfter: "3600"}, 1, elsewhere.ErrUnavailable},
		{"no room", create, emulator.Fault{Status: 402, Message: "limit reached"}, 1, elsewhere.ErrUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, srv, nil)
			srv.Fail(c.kind, c.n, c.fault)
			sb, err := w.tryOpen(elsewhere.SandboxOptions{})
			if c.err != nil {
				if !errors.Is(err, c.err) || len(w.ids()) != 0 {
					t.Errorf("%v, %d sandboxes", err, len(w.ids()))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.want(w.session(sb, ""), `echo fine`, "fine\n")
			if err := sb.Close(w.ctx()); err != nil || len(w.ids()) != 1 {
				t.Errorf("%v, %d sandboxes", err, len(w.ids()))
			}
		})
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	srv := serve(t)
	w := worldOf(t, srv, &emulator.Account{MaxVCPUs: 2})
	w.settings["container_cpu"] = "2"
	w.open("first")
	if _, err := w.tryOpen(elsewhere.SandboxOptions{Task: "second"}); !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), `task "first"`) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a full account: %v", err)
	}
	good := worldOf(t, srv, nil)
	for _, c := range []struct {
		name    string
		environ []string
		kind    error
		word    string
	}{
		{"a wrong project", []string{"VERCEL_TOKEN=" + good.account.Token, "VERCEL_TEAM_ID=" + good.account.Team, "VERCEL_PROJECT_ID=p"}, elsewhere.ErrConfig, "check VERCEL_PROJECT_ID"},
		{"a wrong token", []string{"VERCEL_TOKEN=wrong", "VERCEL_TEAM_ID=t", "VERCEL_PROJECT_ID=p"}, elsewhere.ErrUnavailable, "VERCEL_TOKEN"},
		{"a token of two lines", []string{"VERCEL_TOKEN=a\nb", "VERCEL_TEAM_ID=t", "VERCEL_PROJECT_ID=p"}, elsewhere.ErrConfig, "VERCEL_TOKEN has a line break"},
		{"nobody", nil, elsewhere.ErrConfig, "VERCEL_OIDC_TOKEN"},
		{"a part", []string{"VERCEL_TOKEN=x"}, elsewhere.ErrConfig, "VERCEL_TEAM_ID and VERCEL_PROJECT_ID are not set"},
		{"no OIDC token", []string{"VERCEL_OIDC_TOKEN=x"}, elsewhere.ErrConfig, "vercel env pull"},
		{"an OIDC token", []string{"VERCEL_OIDC_TOKEN=" + good.account.OIDC}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, srv, nil)
			w.environ = append([]string{w.environ[0], w.environ[1], w.environ[2], w.environ[len(w.environ)-1]}, c.environ...)
			sb, err := w.tryOpen(elsewhere.SandboxOptions{})
			if c.kind == nil {
				if err != nil {
					t.Fatal(err)
				}
				_ = sb.Close(w.ctx())
				return
			}
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%v", err)
			}
		})
	}
	for _, c := range []struct{ key, value, word string }{
		{"container_disk", "1024", "container_disk (--set container_disk)"}, {"container_cpu", "33", "container_cpu is 33 (--set container_cpu)"},
		{"container_memory", "70000", "container_memory is 70000 MiB (--set container_memory)"}, {"vercel_lifetime", "5", "1m0s to 24h0m0s"}, {"vercel_image", "no-such", "config show -b vercel"},
	} {
		w := worldOf(t, srv, nil)
		w.settings[c.key] = c.value
		if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), c.word) || len(w.ids()) != 0 {
			t.Errorf("%s: %v", c.key, err)
		}
	}
	w = worldOf(t, srv, nil)
	w.settings["vercel_api_url"] = "http://127.0.0.1:1"
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), "check the network and vercel_api_url") {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestSizesAreVirtualCPUs(t *testing.T) {
	srv := serve(t)
	for _, c := range []struct {
		cpu, memory string
		want        int
	}{{"", "", 1}, {"1.5", "", 2}, {"3", "", 4}, {"1", "5120", 4}, {"0", "", 2}} {
		w := worldOf(t, srv, nil)
		if c.cpu != "" {
			w.settings["container_cpu"] = c.cpu
		}
		if c.memory != "" {
			w.settings["container_memory"] = c.memory
		}
		w.open("")
		if n, _ := srv.Size(w.one()); n != c.want {
			t.Errorf("%+v: %d", c, n)
		}
	}
}

func TestSandboxesOfOthersAreLeftAlone(t *testing.T) {
	srv := serve(t)
	a := worldOf(t, srv, nil)
	a.open("web")
	b := worldOf(t, srv, a.account) // another home, the same project
	b.open("web")
	if len(a.ids()) != 2 {
		t.Errorf("there are %d sandboxes", len(a.ids()))
	}
	keeper, err := vercel.Backend().Keeper(t.Context(), request(b.home, b.environ, "", b.settings))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	list, err := keeper.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Task != "web" || list[0].State != driver.StateRunning || !list[0].InUse || !list[0].Persistent {
		t.Fatalf("%+v %v", list, err)
	}
	mine := list[0].ID
	for _, id := range a.ids() {
		if id == mine {
			continue
		}
		if err := keeper.Stop(t.Context(), id); err == nil {
			t.Error("another's sandbox was stopped")
		}
		if _, err := keeper.Remove(t.Context(), id, true); err == nil || srv.State(id) != "running" {
			t.Error("another's sandbox was removed")
		}
	}
	if detail, err := keeper.Inspect(t.Context(), mine); err != nil || len(detail.Features) == 0 {
		t.Errorf("%+v %v", detail, err)
	}
	for range 2 {
		if err := keeper.Stop(t.Context(), mine); err != nil || srv.State(mine) != "stopped" {
			t.Errorf("stop: %v, %s", err, srv.State(mine))
		}
	}
	for want := 1; want >= 0; want-- {
		if removed, err := keeper.Remove(t.Context(), mine, true); err != nil || len(removed) != want || srv.State(mine) != "" {
			t.Errorf("remove: %v %v", removed, err)
		}
	}
	if len(srv.Snapshots(a.account)) != 0 {
		t.Error("what was stored of a removed sandbox stays")
	}
}

func TestADeadOwnersSandboxLapsesAndIsReaped(t *testing.T) {
	w := newWorld(t)
	w.settings["container_persistent"] = "false"
	// A process that dies leaves what Open left: nothing is closed.
	if _, err := vercel.Backend().Open(w.ctx(), request(w.home, w.environ, "web", w.settings)); err != nil {
		t.Fatal(err)
	}
	if _, life := w.srv.Size(w.one()); life > 15*time.Minute {
		t.Errorf("a dead process's sandbox runs for %v", life)
	}
	keeper, err := vercel.Backend().Keeper(t.Context(), request(w.home, w.environ, "", w.settings))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	// While its lock is held its owner lives.
	if gone, err := keeper.Reap(t.Context()); err != nil || len(gone) != 0 {
		t.Fatalf("a living owner's sandbox was reaped: %v %v", gone, err)
	}
	for _, lock := range glob(t, filepath.Join(w.home, "elsewhere", "sandboxes", "*.use")) {
		if err := os.Remove(lock); err != nil { // as if its holder had gone
			t.Fatal(err)
		}
	}
	if gone, err := keeper.Reap(t.Context()); err != nil || len(gone) != 1 || gone[0] != "web" || len(w.ids()) != 0 {
		t.Errorf("%v %v, %d are left", gone, err, len(w.ids()))
	}
}

func TestTheResultSaysWhenTheFilesWereStored(t *testing.T) {
	w := newWorld(t)
	if err := w.open("web").Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	stored := w.srv.Snapshots(w.account)
	if len(stored) != 1 {
		t.Fatalf("%v is stored", stored)
	}
	at := w.srv.StoredAt(w.account, stored[0])
	w.await("the second is over", func() bool { return time.Now().Unix() > at.Unix() })
	sb := w.open("web")
	w.run(w.session(sb, ""), "echo lost > ~/file", nil)
	w.srv.Abort(w.one()) // with nothing stored
	_ = sb.Close(w.ctx())
	r := w.want(w.session(w.open("web"), ""), `ls ~/file 2>/dev/null`, "")
	if text := strings.Join(r.Notices, " "); !strings.Contains(text, "as they were stored at "+at.Format(time.DateTime)+", since it had aborted") {
		t.Errorf("stored at %v: %q", at.Format(time.DateTime), r.Notices)
	}
}

func TestPruningLeavesWhatHoldsItsFiles(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > ~/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	all, err := elsewhere.OpenSandboxes(w.ctx(), w.config(), "vercel", &elsewhere.SandboxOptions{Environ: w.environ})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	if removed, err := all.Prune(w.ctx()); err != nil || len(removed) != 0 {
		t.Errorf("%v %v", removed, err)
	}
	w.want(w.session(w.open("web"), ""), `cat ~/file`, "kept\n")
}

func TestAnOpeningThatFailsLeavesNothingAwake(t *testing.T) {
	w := newWorld(t)
	if err := w.open("web").Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	name := w.one()
	stopped := func() bool { return w.srv.State(name) == "stopped" }
	w.await("it has stopped", stopped)
	sessions := w.srv.Requests("POST /v2/sandboxes/sessions/{}/stop")
	w.settings["cwd"] = "/nowhere"
	if _, err := w.tryOpen(elsewhere.SandboxOptions{Task: "web"}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
	w.await("it has stopped again", stopped)
	if w.srv.Requests("POST /v2/sandboxes/sessions/{}/stop") != sessions+1 {
		t.Error("it was not stopped by a request: this test shows nothing")
	}
}

// With a bash waiting, a call is a message to its terminal.
func TestASpacedCallWaitsForNoRequest(t *testing.T) {
	w := newWorld(t)
	one := 1
	sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(w.ctx())
	s := w.session(sb, "")
	for range 3 {
		w.want(s, `:`, "")
	}
	if err := s.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	last, since := w.srv.Requests(""), time.Now()
	w.await("a bash waits, and nothing goes on", func() bool {
		if now := w.srv.Requests(""); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	w.srv.Fail("", 1000, emulator.Fault{Hang: true})
	begin := time.Now()
	w.want(s, `echo hi`, "hi\n")
	if took := time.Since(begin); took > 20*time.Second { // a request that hangs is given up after 30 s, or later
		t.Errorf("the call waited for a request: %v", took)
	}
	w.srv.Heal()
}

func TestForwardedSecretsReachTheCommandAlone(t *testing.T) {
	w := newWorld(t)
	const secret = "s3cret-of-the-caller"
	w.environ = append(w.environ, "MY_TOKEN="+secret)
	if err := os.WriteFile(filepath.Join(w.home, "config.yaml"), []byte("terminal:\n  env_passthrough: [MY_TOKEN]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	one := 1
	log, err := os.Create(filepath.Join(w.home, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	s := w.session(sb, "dev")
	w.want(s, `echo ${#MY_TOKEN}; export OTHER=1; echo found-by-test > /root/file`, fmt.Sprintln(len(secret)))
	if err := s.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if found := w.see(w.one(), `x="[s]3cret-of-the-caller"; grep -las $x /proc/[0-9]*/cmdline /proc/[0-9]*/environ; grep -rlas $x /root /tmp /var/tmp /run`); found != "" {
		t.Errorf("the secret is in %s", found)
	}
	if body := w.srv.Bodies(); strings.Contains(body, secret) || !strings.Contains(body, "elsewhere-task") {
		t.Error("the secret is in a request to the service, or no request was seen")
	}
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	id := w.srv.Snapshots(w.account)[0]
	if has, err := w.srv.Holds(w.account, id, "found-by-test"); err != nil || !has {
		t.Errorf("the snapshot is not looked into: %v", err)
	}
	if has, err := w.srv.Holds(w.account, id, secret); err != nil || has {
		t.Errorf("the secret is in what was stored: %v", err)
	}
	if found, _ := exec.Command("grep", "-rlaF", secret, w.home).Output(); len(found) > 0 {
		t.Errorf("the secret is in files of this machine, of which one is the log: %s", found)
	}
}

func TestASlowServiceIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.srv.SetSlow(2 * time.Second)
	w.srv.SetLatency(50 * time.Millisecond)
	sb := w.open("")
	r := w.run(w.session(sb, ""), `tr a b; echo err >&2; exit 3`, &elsewhere.RunOptions{Stdin: bytes.NewReader(bytes.Repeat([]byte("a\x00\n"), 100000)), Split: true})
	if !bytes.Equal(r.Stdout, bytes.Repeat([]byte("b\x00\n"), 100000)) || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		t.Errorf("%d bytes, %q, %d", len(r.Stdout), r.Stderr, r.ExitCode)
	}
}
