//go:build linux

package daytona_test

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
	"github.com/elsewhere-sh/elsewhere/backend/daytona"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
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
	if account == nil || account.Key == "" {
		account = srv.NewAccount(account)
	}
	w.account = account
	w.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + w.home, "DAYTONA_API_KEY=" + account.Key, "DAYTONA_API_URL=" + srv.URL()}
	w.settings = map[string]string{"daytona_image": "debian:12"}
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
	flags := map[string]string{"backend": "daytona"}
	for key, value := range w.settings {
		flags[key] = value
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{daytona.Backend()}, Flags: flags, Environ: w.environ, Home: w.home})
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

func TestPersistentSandboxesAreStoppedAndStartedAgain(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, "dev"), `echo kept > ~/file; export A=1; cd /usr`, "")
	id := w.one()
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.await("the sandbox stops", func() bool { return w.srv.State(id) == "stopped" })
	if w.srv.Machine(id).Running() {
		t.Fatal("a stopped sandbox has processes")
	}
	made := w.srv.Requests("POST /sandbox")
	sb = w.open("web")
	r := w.want(w.session(sb, "dev"), `cat ~/file; echo $A; pwd`, "kept\n1\n/usr\n")
	if w.one() != id || w.srv.Requests("POST /sandbox") != made+1 { // the start
		t.Error("another sandbox was made")
	}
	if text := strings.Join(r.Notices, " "); strings.Contains(text, "was started again") {
		t.Errorf("nothing ran in it when elsewhere stopped it, and the result tells of that: %q", r.Notices)
	}

	// Where somebody else stopped it what ran in it is gone.
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	sb = w.open("web")
	w.want(w.session(sb, "dev"), `sleep 4321 >/dev/null 2>&1 & disown`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.srv.Lapse(id, "stopped")
	w.await("the sandbox stops", func() bool { return w.srv.State(id) == "stopped" })
	sb = w.open("web")
	r = w.want(w.session(sb, "dev"), `cat ~/file`, "kept\n")
	if text := strings.Join(r.Notices, " "); !strings.Contains(text, "was started again") {
		t.Errorf("the result does not say that what ran is gone: %q", r.Notices)
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
	if err := other.Close(w.ctx()); err != nil || w.one() != id {
		t.Errorf("a throw-away sandbox stays: %v", err)
	}
}

func TestASandboxThatTheServiceStoppedWakesOnTheNextCall(t *testing.T) {
	for _, to := range []string{"stopped", "archived"} {
		t.Run(to, func(t *testing.T) {
			w := newWorld(t)
			one := 1
			sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &one})
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Close(w.ctx())
			s := w.session(sb, "")
			w.want(s, `echo kept > ~/file`, "")
			w.srv.Lapse(w.one(), to)
			r, err := s.Run(w.ctx(), `cat ~/file`, nil)
			if err != nil { // the call that found it so
				if !errors.Is(err, elsewhere.ErrLost) {
					t.Fatal(err)
				}
				r, err = s.Run(w.ctx(), `cat ~/file`, nil)
			}
			if err != nil || string(r.Output) != "kept\n" || r.Recreated == "" {
				t.Fatalf("%+v, %v", r, err)
			}
		})
	}
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
	w.await("the sandbox stops", func() bool { return w.srv.State(w.one()) == "stopped" })
	w.srv.Lapse(w.one(), "destroyed") // in the dashboard, or by daytona_auto_delete_interval
	if r := next(); !strings.Contains(r.Recreated, "not by elsewhere: its files") {
		t.Errorf("after it was deleted: %q, %q", r.Recreated, r.Output)
	}
	if r := next(); r.Recreated != "" || string(r.Output) != "kept\n" {
		t.Errorf("said twice: %q, %q", r.Recreated, r.Output)
	}
	keeper, err := daytona.Backend().Keeper(w.ctx(), request(w.home, w.environ, "", w.settings))
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

func TestWhatStillRunsKeepsTheSandboxOnClose(t *testing.T) {
	w := newWorld(t)
	sb := w.open("")
	w.want(w.session(sb, ""), `sleep 4321 >/dev/null 2>&1 &`, "")
	id := w.one()
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if left := w.see(id, `pgrep -fa "sleep [4]321"`); left == "" || w.srv.State(id) != "started" {
		t.Fatalf("the sandbox is %s, the child %q", w.srv.State(id), left)
	}
	w.await("the terminals are gone", func() bool {
		return w.see(id, `for d in /proc/[0-9]*; do tr "\0" " " <$d/cmdline; echo; done 2>/dev/null | grep -c "[r]elay"`) == "0\n"
	})
	sb = w.open("")
	w.want(w.session(sb, ""), `pkill -f "sleep [4]321"; echo $?`, "0\n")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.await("the sandbox stops", func() bool { return w.srv.State(id) == "stopped" })
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
	if w.srv.Requests("POST /sandbox/{}/stop") != 0 {
		t.Error("the sandbox was stopped")
	}
	r = w.run(s, `nosuchcmd-xyz`, nil)
	if r.ExitCode != 127 || !strings.Contains(string(r.Output), "command not found") {
		t.Errorf("an unknown command: %d %q", r.ExitCode, r.Output)
	}
}

func TestAnUnheededRequestIsRepeatedOnlyWhereThatDoesNoHarm(t *testing.T) {
	srv := serve(t)
	for _, c := range []struct {
		name, kind string
		fault      emulator.Fault
		n          int
		kindOfErr  error
		boxes      int
	}{
		{"429 with Retry-After", "POST /sandbox", emulator.Fault{Status: 429, RetryAfter: "1"}, 2, nil, 1},
		{"429 without", "POST /sandbox", emulator.Fault{Status: 429}, 1, nil, 1},
		{"500 to a question", "GET /sandbox", emulator.Fault{Status: 500}, 2, nil, 1},
		{"a cut before it is done", "POST /sandbox", emulator.Fault{Cut: true}, 1, nil, 1},
		{"a cut after it was done", "POST /sandbox", emulator.Fault{Cut: true, After: true}, 1, nil, 1},
		{"500 after it was done", "POST /sandbox", emulator.Fault{Status: 500, After: true}, 1, nil, 1},
		{"a terminal that is refused for a moment", "GET /toolbox/{}/process/pty/create-connect", emulator.Fault{Status: 503}, 1, nil, 1},
		{"the first look is cut", "POST /toolbox/{}/process/execute", emulator.Fault{Cut: true, After: true}, 1, nil, 1},
		{"the account is at its limit", "POST /sandbox", emulator.Fault{Status: 403, Message: "Total disk limit exceeded"}, 1, elsewhere.ErrUnavailable, 0},
		{"the first look is refused", "POST /toolbox/{}/process/execute", emulator.Fault{Status: 400, Message: "refused"}, 100, elsewhere.ErrConfig, 0}, // D05
		{"the request is wrong", "POST /sandbox", emulator.Fault{Status: 400, Message: "Invalid image"}, 1, elsewhere.ErrConfig, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, srv, nil)
			srv.Fail(c.kind, c.n, c.fault)
			none := 0
			sb, err := w.tryOpen(elsewhere.SandboxOptions{SpawnAhead: &none})
			if !errors.Is(err, c.kindOfErr) {
				t.Fatal(err)
			}
			if err == nil {
				defer sb.Close(w.ctx())
				w.want(w.session(sb, ""), `echo fine`, "fine\n")
			}
			if len(w.ids()) != c.boxes {
				t.Errorf("there are %d sandboxes", len(w.ids()))
			}
		})
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	srv := serve(t)
	w := worldOf(t, srv, &emulator.Account{MaxDisk: 9})
	w.settings["container_disk"] = "5GiB"
	w.open("first")
	_, err := w.tryOpen(elsewhere.SandboxOptions{Task: "second"})
	if !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), `task "first"`) || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a full account: %v", err)
	}
	w = worldOf(t, srv, nil)
	w.environ[3] = "DAYTONA_API_KEY=wrong"
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), "DAYTONA_API_KEY") {
		t.Errorf("a wrong key: %v", err)
	}
	w.environ[3] = "DAYTONA_API_KEY=good\n"
	asked := srv.Requests("")
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "DAYTONA_API_KEY has a line break") || srv.Requests("") != asked {
		t.Errorf("a key with a line break: %v", err)
	}
	w.environ[3] = "X="
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "DAYTONA_API_KEY") {
		t.Errorf("no key: %v", err)
	}
	w = worldOf(t, srv, nil)
	w.settings["daytona_create_mode"], w.settings["daytona_snapshot"] = "snapshot", "nosuch"
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "nosuch") || !strings.Contains(err.Error(), "config show -b daytona") {
		t.Errorf("an unknown snapshot: %v", err)
	}
	w = worldOf(t, srv, nil)
	srv.Fail("POST /sandbox", 100, emulator.Fault{Status: 500})
	if _, err := w.tryOpen(elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), "try again later") {
		t.Errorf("a service that fails: %v", err)
	}
	srv.Heal()
	if len(w.ids()) != 0 {
		t.Error("something was made")
	}
}

func TestSandboxesOfOthersAreLeftAlone(t *testing.T) {
	srv := serve(t)
	a := worldOf(t, srv, nil)
	sa := a.open("web")
	a.want(a.session(sa, ""), `echo mine > ~/file`, "")
	b := worldOf(t, srv, a.account) // another home, the same account
	sb := b.open("web")
	b.want(b.session(sb, ""), `cat ~/file 2>/dev/null; echo $?`, "1\n")
	if len(a.ids()) != 2 {
		t.Errorf("there are %d sandboxes", len(a.ids()))
	}
	keeper, err := daytona.Backend().Keeper(t.Context(), request(b.home, b.environ, "", b.settings))
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	list, err := keeper.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Task != "web" || list[0].State != driver.StateRunning || !list[0].InUse || !list[0].Persistent || list[0].Image != "debian:12" {
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
		if _, err := keeper.Remove(t.Context(), id, true); err == nil || srv.State(id) != "started" {
			t.Error("another's sandbox was removed")
		}
	}
	detail, err := keeper.Inspect(t.Context(), mine)
	if err != nil || len(detail.Features) == 0 {
		t.Errorf("%+v %v", detail, err)
	}
	if err := keeper.Stop(t.Context(), mine); err != nil || srv.State(mine) != "stopped" {
		t.Errorf("stop: %v, %s", err, srv.State(mine))
	}
	if err := keeper.Stop(t.Context(), mine); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if removed, err := keeper.Remove(t.Context(), mine, true); err != nil || len(removed) != 1 || srv.State(mine) != "" {
		t.Errorf("remove: %v %v", removed, err)
	}
	if removed, err := keeper.Remove(t.Context(), mine, true); err != nil || len(removed) != 0 {
		t.Errorf("a second remove: %v %v", removed, err)
	}
}

func TestADeadOwnersSandboxLapsesAndIsReaped(t *testing.T) {
	w := newWorld(t)
	w.settings["container_persistent"] = "false"
	// A process that dies leaves what Open left: nothing is closed.
	if _, err := daytona.Backend().Open(w.ctx(), request(w.home, w.environ, "web", w.settings)); err != nil {
		t.Fatal(err)
	}
	id := w.one()
	if stop, remove := w.srv.Intervals(id); stop <= 0 || remove != 0 {
		t.Errorf("auto-stop after %d minutes, auto-delete after %d: a dead process's sandbox is paid for", stop, remove)
	}
	keeper, err := daytona.Backend().Keeper(t.Context(), request(w.home, w.environ, "", w.settings))
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

// leave opens a sandbox and never closes it, as a process that is killed does.
func (w *world) leave(task string) {
	w.t.Helper()
	if _, err := daytona.Backend().Open(w.ctx(), request(w.home, w.environ, task, w.settings)); err != nil {
		w.t.Fatal(err)
	}
	for _, lock := range glob(w.t, filepath.Join(w.home, "elsewhere", "sandboxes", "*.use")) {
		if err := os.Remove(lock); err != nil { // as if its holder had gone
			w.t.Fatal(err)
		}
	}
}

func TestWhatIsKeptIsNotDeletedByARunThatKeepsNothing(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > ~/file`, "")
	refused := func() {
		t.Helper()
		w.settings["container_persistent"] = "false"
		none := 0
		other, err := w.tryOpen(elsewhere.SandboxOptions{Task: "web", SpawnAhead: &none})
		if err == nil {
			_ = other.Close(w.ctx())
		}
		if !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "container_persistent") {
			t.Errorf("%v", err)
		}
		w.settings["container_persistent"] = "true"
	}
	refused() // while it is used
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	refused() // while it is stopped
	w.leave("web")
	refused() // while it runs
	w.want(w.session(w.open("web"), ""), `cat ~/file`, "kept\n")

	// One that keeps nothing is not used for what is to be kept.
	w.settings["container_persistent"] = "false"
	w.leave("other")
	w.settings["container_persistent"] = "true"
	sb = w.open("other")
	w.want(w.session(sb, ""), `echo kept > ~/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	w.want(w.session(w.open("other"), ""), `cat ~/file`, "kept\n")
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}

func TestACutConnectionIsNoLoginFilesDoing(t *testing.T) {
	srv := serve(t)
	w := worldOf(t, srv, srv.NewAccount(&emulator.Account{Files: map[string]string{
		".bash_profile": "echo >>~/reading; until [[ -e ~/go ]]; do sleep 0.1; done; export FROM_PROFILE=yes",
	}}))
	sb := w.open("web")
	type end struct {
		r   *elsewhere.Result
		err error
	}
	done := make(chan end, 1)
	go func() {
		s, err := sb.Session(w.ctx(), "dev")
		if err != nil {
			done <- end{nil, err}
			return
		}
		r, err := s.Run(w.ctx(), `echo "$FROM_PROFILE"`, nil)
		done <- end{r, err}
	}()
	w.await("the login file is read", func() bool { return w.see(w.one(), "cat ~/reading 2>/dev/null") != "" })
	srv.CutStreams()
	w.see(w.one(), "touch ~/go")
	got := <-done
	if got.err != nil || string(got.r.Output) != "yes\n" || strings.Contains(strings.Join(got.r.Notices, " "), "left out") {
		t.Errorf("%+v", got)
	}
}

func TestTheShortestGraceIsLivedWith(t *testing.T) {
	w := newWorld(t)
	w.settings["orphan_grace"] = "1ns"
	sb := w.open("web")
	s := w.session(sb, "")
	w.want(s, `echo one`, "one\n")
	w.want(s, `echo two`, "two\n")
}

func TestAnotherNetworkNeverCostsTheFilesThatAreKept(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > ~/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	id := w.one()
	w.settings["daytona_network_block_all"] = "true"
	other, err := w.tryOpen(elsewhere.SandboxOptions{Task: "web"})
	if err == nil {
		_ = other.Close(w.ctx())
	}
	if !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), `network (made with "open", now "none")`) || !strings.Contains(err.Error(), "sandbox reset") {
		t.Errorf("%v", err)
	}
	if w.one() != id {
		t.Error("it was made again")
	}
	delete(w.settings, "daytona_network_block_all")
	w.want(w.session(w.open("web"), ""), `cat ~/file`, "kept\n")
}

func TestPruningLeavesWhatHoldsItsFiles(t *testing.T) {
	w := newWorld(t)
	sb := w.open("web")
	w.want(w.session(sb, ""), `echo kept > ~/file`, "")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	id := w.one()
	w.await("it has stopped", func() bool { return w.srv.State(id) == "stopped" })
	all, err := elsewhere.OpenSandboxes(w.ctx(), w.config(), "daytona", &elsewhere.SandboxOptions{Environ: w.environ})
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
	id := w.one()
	stopped := func() bool { return w.srv.State(id) == "stopped" }
	w.await("it has stopped", stopped)
	w.settings["cwd"] = "/nowhere"
	if _, err := w.tryOpen(elsewhere.SandboxOptions{Task: "web"}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
	if w.srv.Requests("POST /sandbox/{}/start") != 1 {
		t.Error("it was not started: this test shows nothing")
	}
	w.await("it sleeps again", stopped)

	delete(w.settings, "cwd")
	w.srv.Fail("POST /toolbox", 1, emulator.Fault{Hang: true})
	ctx, cancel := context.WithCancel(w.ctx())
	asked := w.srv.Requests("POST /toolbox")
	opened := make(chan error, 1)
	go func() {
		_, err := elsewhere.OpenSandbox(ctx, w.config(), &elsewhere.SandboxOptions{Task: "web", Environ: w.environ})
		opened <- err
	}()
	w.await("it is looked at", func() bool { return w.srv.Requests("POST /toolbox") > asked })
	cancel()
	if err := <-opened; err == nil {
		t.Error("it was opened")
	}
	w.await("it sleeps again after an opening that was given up", stopped)
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
	defer sb.Close(w.ctx())
	s := w.session(sb, "dev")
	w.want(s, `echo ${#MY_TOKEN}; export OTHER=1`, fmt.Sprintln(len(secret)))
	if err := s.Flush(w.ctx()); err != nil {
		t.Fatal(err)
	}
	id := w.one()
	if found := w.see(id, `x="[s]3cret-of-the-caller"; grep -las $x /proc/[0-9]*/cmdline /proc/[0-9]*/environ; grep -rlas $x /root /tmp /var/tmp /run`); found != "" {
		t.Errorf("the secret is in %s", found)
	}
	if body := w.srv.Bodies(); strings.Contains(body, secret) || !strings.Contains(body, "elsewhere.identity") {
		t.Error("the secret is in a request to the service, or no request was seen")
	}
	if found, _ := exec.Command("grep", "-rlaF", secret, w.home).Output(); len(found) > 0 {
		t.Errorf("the secret is in files of this machine, of which one is the log: %s", found)
	}
}

func TestSizesAreConvertedAndCapped(t *testing.T) {
	w := newWorld(t)
	w.settings["container_cpu"], w.settings["container_memory"], w.settings["container_disk"] = "1.5", "1500", "51200"
	sb := w.open("")
	if cpu, memory, disk := w.srv.Size(w.one()); cpu != 2 || memory != 2 || disk != 50 {
		t.Errorf("%d CPUs, %d GiB, %d GiB on a server of one's own", cpu, memory, disk)
	}
	if r := w.run(w.session(sb, ""), `:`, nil); strings.Contains(strings.Join(r.Notices, " "), "hosted") {
		t.Errorf("a cap is told of that is not there: %q", r.Notices)
	}
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
	w.want(s, `cd ~/.hermes/skills; for d in *; do [[ -s $d/SKILL.md ]] && printf "%s|" "$(<"$d/SKILL.md")"; done; ls -d ~/pwned /pwned pwned 2>/dev/null; stat -c %Y.%i plain/SKILL.md > /root/stamp`,
		"of -rf|of a; touch pwned #|of new\nline|of plain|of with space|")
	if err := sb.Close(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.home, "skills", "with space", "SKILL.md"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	sb = w.open("")
	w.want(w.session(sb, ""), `cd ~/.hermes/skills; cat "with space/SKILL.md"; stat -c %Y.%i plain/SKILL.md | cmp - /root/stamp && echo same`, "newsame\n")
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

func TestAnOlderDaemonAndASlowStart(t *testing.T) {
	w := newWorld(t)
	w.srv.SetOld(true)
	w.srv.SetSlow(2 * time.Second)
	w.srv.SetLatency(50 * time.Millisecond)
	sb := w.open("")
	s := w.session(sb, "")
	w.want(s, `echo fine`, "fine\n")
	r := w.run(s, `tr a b; echo err >&2; exit 3`, &elsewhere.RunOptions{Stdin: bytes.NewReader(bytes.Repeat([]byte("a\x00\n"), 100000)), Split: true})
	if !bytes.Equal(r.Stdout, bytes.Repeat([]byte("b\x00\n"), 100000)) || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		t.Errorf("%d bytes, %q, %d", len(r.Stdout), r.Stderr, r.ExitCode)
	}
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
