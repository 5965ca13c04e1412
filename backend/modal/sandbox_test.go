//go:build linux

package modal_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/modal"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/modal"
)

// long bounds what takes no time on a machine that is not busy.
const long = 2 * time.Minute

// own is an emulator of a test's own, for faults, with a home.
func own(t *testing.T) *account {
	t.Helper()
	e, err := emulator.New(emulator.Options{Dir: t.TempDir()})
	if err != nil {
		need(t, err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return newAccount(t, e)
}

// open opens a sandbox as a program does.
func (a *account) open(t *testing.T, settings map[string]string, opts elsewhere.SandboxOptions) (*elsewhere.Sandbox, error) {
	t.Helper()
	cfg, err := a.config(settings)
	if err != nil {
		t.Fatal(err)
	}
	opts.Environ = a.environ
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	sb, err := elsewhere.OpenSandbox(ctx, cfg, &opts)
	if err == nil {
		t.Cleanup(func() { closeIt(t, sb) })
	}
	return sb, err
}

func (a *account) mustOpen(t *testing.T, settings map[string]string) *elsewhere.Sandbox {
	t.Helper()
	sb, err := a.open(t, settings, elsewhere.SandboxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func closeIt(t *testing.T, sb *elsewhere.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), long)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		t.Error(err)
	}
}

// try runs a command in a new session.
func try(t *testing.T, sb *elsewhere.Sandbox, command string, opts *elsewhere.RunOptions) (*elsewhere.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx)
	return s.Run(ctx, command, opts)
}

// run runs a command that has to print out.
func run(t *testing.T, sb *elsewhere.Sandbox, command, out string) *elsewhere.Result {
	t.Helper()
	res, err := try(t, sb, command, nil)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	if string(res.Output) != out || res.ExitCode != 0 {
		t.Fatalf("%s: %q, %d, %q", command, res.Output, res.ExitCode, res.Notices)
	}
	return res
}

// eventually waits for something.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(long); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func said(res *elsewhere.Result, word string) bool {
	return strings.Contains(strings.Join(res.Notices, "\n"), word)
}

// table reads Hermes' file.
func (a *account) table(t *testing.T) map[string]string {
	t.Helper()
	table := map[string]string{}
	text, err := os.ReadFile(filepath.Join(a.home, "modal_snapshots.json"))
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return table
}

func (a *account) writeTable(t *testing.T, table map[string]string) {
	t.Helper()
	text, _ := json.Marshal(table)
	if err := os.WriteFile(filepath.Join(a.home, "modal_snapshots.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// ends is what a sandbox is not left running with.
var ends = map[string]string{"modal_keep_running": "false"}

func TestFilesAreStoredOnCloseAndComeBack(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, ends)
	run(t, sb, "mkdir /work; echo one > /work/f", "")
	closeIt(t, sb)
	if id := a.running(); id != "" {
		t.Errorf("%s still runs", id)
	}
	first := a.table(t)["direct:default"]
	if images := a.e.Images(); !slices.Equal(images, []string{first}) {
		t.Fatalf("stored are %q, remembered %q", images, first)
	}
	sb = a.mustOpen(t, ends)
	if res := run(t, sb, "cat /work/f; echo two > /work/f", "one\n"); !said(res, "they are as of 20") {
		t.Errorf("%q", res.Notices)
	}
	closeIt(t, sb)
	second := a.table(t)["direct:default"]
	if images := a.e.Images(); second == first || !slices.Equal(images, []string{second}) {
		t.Errorf("stored are %q, remembered %q, before %q", images, second, first)
	}
	// Nothing is stored anew where nothing ran.
	closeIt(t, a.mustOpen(t, ends))
	if again := a.table(t)["direct:default"]; again != second {
		t.Errorf("%q, before %q", again, second)
	}
}

func TestASandboxThatEndedBeforeAnythingWasStoredIsToldOf(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo one > /root/f", "")
	if err := a.e.Lose(sb.Info().SandboxID); err != nil {
		t.Fatal(err)
	}
	closeIt(t, sb)
	sb = a.mustOpen(t, nil)
	if res, err := try(t, sb, "cat /root/f 2>&1; echo two > /root/f", nil); err != nil || !strings.Contains(res.Recreated, "ended before its files were stored") {
		t.Errorf("%+v, %v", res, err)
	}
	closeIt(t, sb)
	id := sb.Info().SandboxID
	if err := a.e.Lose(id); err != nil {
		t.Fatal(err)
	}
	sb = a.mustOpen(t, nil)
	if res := run(t, sb, "cat /root/f", "two\n"); res.Recreated != "" || !said(res, "as of") {
		t.Errorf("what was stored came back: recreated %q, notices %q", res.Recreated, res.Notices)
	}
}

// One process that has done nothing in a sandbox says nothing of what another one did there.
func TestASandboxThatAnotherProcessUsedIsToldOfWhenItEnded(t *testing.T) {
	a := own(t)
	keep := map[string]string{"modal_keep_running": "true"}
	idle := a.mustOpen(t, keep)
	busy := a.mustOpen(t, keep)
	run(t, busy, "echo one > /root/f", "")
	closeIt(t, idle)
	if err := a.e.Lose(busy.Info().SandboxID); err != nil {
		t.Fatal(err)
	}
	closeIt(t, busy)
	if res, err := try(t, a.mustOpen(t, keep), "true", nil); err != nil || !strings.Contains(res.Recreated, "ended before its files were stored") {
		t.Errorf("%+v, %v", res, err)
	}
}

// A sandbox in which nothing ran has lost nothing when it ends.
func TestTheEndOfASandboxThatNobodyUsedIsNotToldOf(t *testing.T) {
	a := own(t)
	keep := map[string]string{"modal_keep_running": "true"}
	sb := a.mustOpen(t, keep)
	closeIt(t, sb)
	if err := a.e.Lose(sb.Info().SandboxID); err != nil {
		t.Fatal(err)
	}
	if res := run(t, a.mustOpen(t, keep), "true", ""); res.Recreated != "" {
		t.Errorf("%q", res.Recreated)
	}
}

func TestWhatHermesStoredIsUsedAndNeverRemoved(t *testing.T) {
	a := own(t)
	image, err := a.e.MakeImage(map[string]string{"/work/f": "of Hermes\n"})
	if err != nil {
		t.Fatal(err)
	}
	a.writeTable(t, map[string]string{"default": image, "direct:other": "im-other"})
	sb := a.mustOpen(t, ends)
	if res := run(t, sb, "cat /work/f", "of Hermes\n"); !said(res, "Hermes") {
		t.Errorf("%q", res.Notices)
	}
	closeIt(t, sb)
	table := a.table(t)
	if _, old := table["default"]; old || table["direct:other"] != "im-other" || table["direct:default"] == image || table["direct:default"] == "" {
		t.Errorf("%q", table)
	}
	if a.e.Counts()["ImageDelete"] != 0 {
		t.Error("Hermes' image was removed")
	}
}

func TestOnlyADefiniteNotFoundForgetsStoredFiles(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, ends)
	run(t, sb, "echo kept > /root/f", "")
	closeIt(t, sb)
	id := a.table(t)["direct:default"]
	for name, fault := range map[string]emulator.Fault{
		"unavailable":       {Method: "ImageFromId", Code: codes.Unavailable, Times: 4},
		"wrong credentials": {Method: "ImageFromId", Code: codes.Unauthenticated},
		"refused":           {Method: "ImageFromId", Code: codes.PermissionDenied},
	} {
		a.e.Inject(fault)
		if _, err := a.open(t, ends, elsewhere.SandboxOptions{}); err == nil {
			t.Errorf("%s: a sandbox was opened", name)
		}
		a.e.Heal()
		if now := a.table(t)["direct:default"]; now != id {
			t.Errorf("%s: the record is %q", name, now)
		}
	}
	sb = a.mustOpen(t, ends)
	run(t, sb, "cat /root/f", "kept\n")
	closeIt(t, sb)
	a.e.ExpireImage(a.table(t)["direct:default"])
	sb = a.mustOpen(t, ends)
	if res := run(t, sb, "ls /root/f 2>/dev/null || echo gone", "gone\n"); !said(res, "not there any more") {
		t.Errorf("%q", res.Notices)
	}
	if left := a.table(t); len(left) != 0 {
		t.Errorf("remembered is %q", left)
	}
}

// TestARecordThatCannotBeReadIsNotTakenForEmpty has a directory in a file's place, which also root cannot read.
func TestARecordThatCannotBeReadIsNotTakenForEmpty(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, ends)
	run(t, sb, "echo kept > /root/f", "")
	closeIt(t, sb)
	for _, name := range []string{"modal_snapshots.json", "elsewhere/modal.json"} {
		file := filepath.Join(a.home, name)
		if err := os.Rename(file, file+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		if sb, err := a.open(t, ends, elsewhere.SandboxOptions{}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				closeIt(t, sb)
			}
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".away", file); err != nil {
			t.Fatal(err)
		}
	}
	run(t, a.mustOpen(t, ends), "cat /root/f", "kept\n")
}

func TestAFailedSnapshotKeepsTheLastOneAndTheSandbox(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, ends)
	run(t, sb, "echo one > /root/f", "")
	closeIt(t, sb)
	id := a.table(t)["direct:default"]
	sb = a.mustOpen(t, ends)
	run(t, sb, "echo two > /root/f", "")
	a.e.Inject(emulator.Fault{Method: "TaskSnapshotFilesystem", Code: codes.ResourceExhausted, Times: 2})
	if err := sb.Close(t.Context()); err == nil {
		t.Error("nothing says that the files are not stored")
	}
	if now := a.table(t)["direct:default"]; now != id || a.running() == "" {
		t.Errorf("remembered is %q, running %q", now, a.running())
	}
	sb = a.mustOpen(t, ends)
	run(t, sb, "cat /root/f", "two\n")
	a.e.Inject(emulator.Fault{Method: "TaskSnapshotFilesystem", Code: codes.Aborted}) // once is tried again
	closeIt(t, sb)
	if now := a.table(t)["direct:default"]; now == id {
		t.Error("nothing was stored")
	}
}

func TestFilesAreStoredBeforeTheLifetimeEnds(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"modal_lifetime": "20", "container_idle_timeout": "0"})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	// It runs until the end: the snapshot is taken under it.
	_, err = s.Run(ctx, "echo before > /root/f; sleep 1000", nil)
	if !errors.Is(err, elsewhere.ErrLost) || !strings.Contains(err.Error(), "lifetime") {
		t.Errorf("a command whose sandbox has ended: %v", err)
	}
	if res := run(t, sb, "cat /root/f", "before\n"); !said(res, "as of") && res.Recreated == "" {
		t.Errorf("%q, recreated %q", res.Notices, res.Recreated)
	}
}

func TestAnIdleProcessKeepsNoSandboxAwake(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"container_idle_timeout": "4", "spawn_ahead_idle": "1"})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	if _, err := s.Run(ctx, "echo kept > /root/f; export A=1", nil); err != nil {
		t.Fatal(err)
	}
	id := sb.Info().SandboxID
	eventually(t, "the service takes the sandbox for idle", func() bool {
		for _, one := range a.sandboxes() {
			if one.ID == id && !one.Running {
				return one.Status == pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT
			}
		}
		return false
	})
	res, err := s.Run(ctx, "cat /root/f", nil)
	if errors.Is(err, elsewhere.ErrLost) {
		res, err = s.Run(ctx, "cat /root/f", nil)
	}
	if err != nil || string(res.Output) != "kept\n" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestASandboxThatRunsIsFoundAgain(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, "(setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > /root/pid)", "")
	id := sb.Info().SandboxID
	closeIt(t, sb)
	sb = a.mustOpen(t, nil)
	if sb.Info().SandboxID != id || a.e.Counts()["SandboxCreateV2"] != 1 {
		t.Errorf("it is %s, before %s", sb.Info().SandboxID, id)
	}
	run(t, sb, "kill -0 $(cat /root/pid) && echo alive", "alive\n")
}

func TestATimeoutLeavesTheSandboxAlone(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo before > /root/f", "")
	res, err := try(t, sb, "sleep 1000", &elsewhere.RunOptions{Timeout: 2 * time.Second})
	if err != nil || res.Cause != elsewhere.TimedOut || res.ExitCode != 124 {
		t.Fatalf("%+v, %v", res, err)
	}
	run(t, sb, "cat /root/f", "before\n")
	if len(a.sandboxes()) != 1 || a.running() == "" {
		t.Errorf("%+v", a.sandboxes())
	}
}

func TestForwardedSecretsReachTheCommandAlone(t *testing.T) {
	a := own(t)
	const secret = "a-secret-of-mine-31415"
	a.environ = append(a.environ, "MY_OWN_SECRET="+secret)
	a.e.WatchFor(secret)
	settings := map[string]string{"env_passthrough": "MY_OWN_SECRET", "modal_keep_running": "false"}
	sb := a.mustOpen(t, settings)
	run(t, sb, `echo "$MY_OWN_SECRET"; export MINE=1`, secret+"\n")
	run(t, sb, `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c '3141[5]'`+"\n:", "0\n")
	closeIt(t, sb)
	if methods := a.e.Watched(); len(methods) > 0 {
		t.Errorf("it was in requests of %q", methods)
	}
	held, err := a.e.ImageHas(a.table(t)["direct:default"], secret)
	if err != nil || held {
		t.Errorf("it is in the stored files: %v, %v", held, err)
	}
	if held, err = a.e.ImageHas(a.table(t)["direct:default"], "elsewhere"); err != nil || !held {
		t.Errorf("nothing of ours is in the stored files, so this proves nothing: %v", err)
	}
}

func TestFilesOfHermesHome(t *testing.T) {
	a := own(t)
	write := func(name, text string) {
		name = filepath.Join(a.home, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	write("skills/big", big)
	write("skills/a; touch pwned #", "odd")
	write("skills/-rf", "odder")
	write("skills/new\nline", "oddest")
	write("cred.json", "secret")
	write("cache/documents/d", "host")
	settings := map[string]string{"credential_files": "cred.json", "modal_keep_running": "false"}
	sb := a.mustOpen(t, settings)
	run(t, sb, `cd ~/.hermes && cat skills/a* skills/-rf skills/new* cred.json; wc -c < skills/big; ls; echo bad > cred.json; echo back > cache/documents/new`, "oddodderoddestsecret1048576\ncache\ncred.json\nskills\n")
	closeIt(t, sb)
	if text, err := os.ReadFile(filepath.Join(a.home, "cache/documents/new")); err != nil || string(text) != "back\n" {
		t.Errorf("what a command made in a cache: %q, %v", text, err)
	}
	if text, _ := os.ReadFile(filepath.Join(a.home, "cred.json")); string(text) != "secret" {
		t.Errorf("the credential file here is %q", text)
	}
	before := a.e.StdinBytes()
	sb = a.mustOpen(t, settings)
	run(t, sb, `wc -c < ~/.hermes/skills/big`, "1048576\n")
	if sent := a.e.StdinBytes() - before; sent > 512<<10 {
		t.Errorf("a restored sandbox was sent %d bytes", sent)
	}
}

func TestOtherSettings(t *testing.T) {
	a := own(t)
	image, err := a.e.MakeImage(nil)
	if err != nil {
		t.Fatal(err)
	}
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo kept > /root/f", "")
	closeIt(t, sb)
	other := map[string]string{"modal_image": image}
	if _, err := a.open(t, other, elsewhere.SandboxOptions{}); !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "modal_image") {
		t.Errorf("another image, while it runs: %v", err)
	}
	// No network any more: never lived with. Its files are kept.
	sb = a.mustOpen(t, map[string]string{"modal_network": "false"})
	if res := run(t, sb, "cat /root/f", "kept\n"); !said(res, "made again") {
		t.Errorf("%q", res.Notices)
	}
	all := a.sandboxes()
	if last := all[len(all)-1]; last.Definition.GetNetworkAccess().GetNetworkAccessType() != pb.NetworkAccess_BLOCKED || all[0].Running {
		t.Errorf("%v", last.Definition)
	}
}

func TestAGPUSandbox(t *testing.T) {
	a := own(t)
	settings := map[string]string{"modal_gpu": "T4"}
	sb := a.mustOpen(t, settings)
	run(t, sb, "cat; echo $((6 * 7))", "42\n")
	id := sb.Info().SandboxID
	closeIt(t, sb)
	if sb = a.mustOpen(t, settings); sb.Info().SandboxID != id {
		t.Error("it was not found again")
	}
	run(t, sb, "echo again", "again\n")
}

func TestWhatGoesWrongIsSaid(t *testing.T) {
	a := own(t)
	fails := func(name string, settings map[string]string, kind error, words ...string) {
		t.Helper()
		_, err := a.open(t, settings, elsewhere.SandboxOptions{})
		if !errors.Is(err, kind) {
			t.Errorf("%s: %v", name, err)
			return
		}
		for _, word := range words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v has no %q", name, err, word)
			}
		}
	}
	fails("wrong credentials", map[string]string{"modal_token_secret": "as-wrong"}, elsewhere.ErrUnavailable, "--set", "modal token new")
	fails("a secret of two lines", map[string]string{"modal_token_secret": "as-two\nlines"}, elsewhere.ErrConfig, "line break", "modal_token_secret")
	fails("an image that is not there", map[string]string{"modal_image": emulator.FailingTag}, elsewhere.ErrConfig, "manifest unknown", "check modal_image")
	fails("an id that is not there", map[string]string{"modal_image": "im-none"}, elsewhere.ErrConfig, "im-none")
	fails("nobody answers", map[string]string{"modal_server_url": "http://127.0.0.1:1"}, elsewhere.ErrUnavailable, "http://127.0.0.1:1")
	// D05: one that cannot be entered is not left running.
	a.e.Inject(emulator.Fault{Method: "TaskExecStart", Code: codes.PermissionDenied, Times: 100})
	fails("nothing can be run", nil, elsewhere.ErrUnavailable)
	if a.e.Heal(); a.e.Counts()["SandboxCreateV2"] == 0 || a.running() != "" {
		t.Errorf("%q is left running; %v", a.running(), a.e.Counts())
	}
	made := len(a.sandboxes())
	a.e.SetQuota(1)
	sb := a.mustOpen(t, nil)
	cfg, err := a.config(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := elsewhere.OpenSandbox(t.Context(), cfg, &elsewhere.SandboxOptions{Task: "second", Environ: a.environ}); !errors.Is(err, elsewhere.ErrUnavailable) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a quota that is full: %v", err)
	}
	a.e.SetQuota(0)
	// Asked to wait, it does.
	after := 300 * time.Millisecond
	a.e.Inject(emulator.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: &after, Times: 2})
	second, err := a.open(t, nil, elsewhere.SandboxOptions{Task: "second"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, second, "echo ok", "ok\n")
	run(t, sb, "echo ok", "ok\n")
	if n := len(a.sandboxes()) - made; n != 2 {
		t.Errorf("%d sandboxes", n)
	}
}

func TestAThrowAwaySandboxGoes(t *testing.T) {
	a := own(t)
	sb, err := a.open(t, nil, elsewhere.SandboxOptions{ThrowAway: true})
	if err != nil {
		t.Fatal(err)
	}
	run(t, sb, "echo ok", "ok\n")
	closeIt(t, sb)
	for _, one := range a.e.Sandboxes() {
		if one.Running || one.Name != "" {
			t.Errorf("%+v", one)
		}
	}
	if len(a.table(t)) != 0 || len(a.e.Images()) != 0 {
		t.Error("its files are stored")
	}
}

// keeper is a keeper of the account's sandboxes, which is closed with the test.
func (a *account) keeper(t *testing.T) driver.Keeper {
	t.Helper()
	req, err := a.request(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := modal.Backend().Keeper(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keep.Close() })
	return keep
}

func TestKeeper(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo kept > /root/f", "")
	keep := a.keeper(t)
	one := func(state string, used bool) driver.SandboxInfo {
		t.Helper()
		list, err := keep.List(t.Context())
		if err != nil || len(list) != 1 || list[0].State != state || list[0].InUse != used || list[0].Task != "default" || !list[0].Persistent {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0]
	}
	one(driver.StateRunning, true)
	closeIt(t, sb)
	info := one(driver.StateRunning, false)
	if d, err := keep.Inspect(t.Context(), info.ID); err != nil || d.Task != "default" || len(d.Features) == 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if err := keep.Stop(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	info = one(driver.StateStopped, false)
	if id := a.running(); id != "" {
		t.Errorf("%s runs", id)
	}
	if _, err := keep.Remove(t.Context(), info.ID, false); err != nil || len(a.table(t)) != 1 {
		t.Errorf("%v, %q", err, a.table(t))
	}
	sb = a.mustOpen(t, nil)
	run(t, sb, "cat /root/f", "kept\n")
	closeIt(t, sb)
	info = one(driver.StateRunning, false)
	removed, err := keep.Remove(t.Context(), info.ID, true)
	if err != nil || len(removed) != 2 || len(a.table(t)) != 0 || a.running() != "" || len(a.e.Images()) != 0 {
		t.Errorf("%q, %v; remembered %q, stored %q", removed, err, a.table(t), a.e.Images())
	}
}

// TestAStopEndsNoSandboxWhoseFilesAreNotStored stops one whose files the service does not find, and one that has ended meanwhile.
func TestAStopEndsNoSandboxWhoseFilesAreNotStored(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo kept > /root/f", "")
	closeIt(t, sb)
	keep := a.keeper(t)
	list, err := keep.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	a.e.Inject(emulator.Fault{Method: "TaskSnapshotFilesystem", Code: codes.NotFound})
	if err := keep.Stop(t.Context(), list[0].ID); err == nil || a.running() == "" {
		t.Errorf("%v; %q runs", err, a.running())
	}
	a.e.Inject(emulator.Fault{Method: "TaskSnapshotFilesystem", Code: codes.NotFound})
	req, err := a.request(nil, "default")
	if err != nil {
		t.Fatal(err)
	}
	again, err := modal.Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.(driver.Stopper).Stop(t.Context()); err == nil || a.running() == "" {
		t.Errorf("%v; %q runs", err, a.running())
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}

	lock, err := kept.Open(a.home, "modal."+list[0].Name, false) // the sandbox's own
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	release, err := lock.Make(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := a.e.Counts()["SandboxTagsGetV2"]
	stopped := make(chan error, 1)
	go func() { stopped <- keep.Stop(t.Context(), list[0].ID) }()
	eventually(t, "it was found", func() bool { return a.e.Counts()["SandboxTagsGetV2"] > before })
	if err := a.e.EndLifetime(list[0].ID); err != nil {
		t.Fatal(err)
	}
	if len(stopped) > 0 {
		t.Fatal("the stop did not wait for who makes or removes the sandbox: this test shows nothing")
	}
	release()
	if err := <-stopped; err != nil {
		t.Errorf("it has ended meanwhile: %v", err)
	}
	run(t, a.mustOpen(t, nil), "cat /root/f", "kept\n")
}

func TestWhatIsKeptIsNotEndedByARunThatKeepsNothing(t *testing.T) {
	a := own(t)
	none := map[string]string{"container_persistent": "false"}
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo kept >/root/f", "")
	id := sb.Info().SandboxID
	refused := func() {
		t.Helper()
		other, err := a.open(t, none, elsewhere.SandboxOptions{})
		if err == nil {
			closeIt(t, other)
		}
		if !errors.Is(err, elsewhere.ErrConfig) || !strings.Contains(err.Error(), "container_persistent") || a.running() != id {
			t.Errorf("%v; %q runs", err, a.running())
		}
	}
	refused() // while it is used
	closeIt(t, sb)
	refused() // while it waits
	req, err := a.request(none, "default")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := modal.Backend().Keeper(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	if err := keep.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}

	// One that keeps nothing is not used for what is to be kept: it has none of the files.
	left, err := modal.Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	modal.Abandon(left)
	run(t, a.mustOpen(t, nil), "cat /root/f", "kept\n")
}

func TestTheReaperEndsWhatADeadOwnerLeft(t *testing.T) {
	a := own(t)
	// The owner of this request has no lease, so it counts as dead as soon as nobody holds the sandbox.
	req, err := a.request(map[string]string{"container_persistent": "false"}, "left")
	if err != nil {
		t.Fatal(err)
	}
	left, err := modal.Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	kept := a.mustOpen(t, nil)
	other, err := a.request(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	keep, err := modal.Backend().Keeper(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	if removed, err := keep.Reap(t.Context()); err != nil || len(removed) != 0 {
		t.Errorf("while it is used: %q, %v", removed, err)
	}
	modal.Abandon(left)
	if removed, err := keep.Reap(t.Context()); err != nil || !slices.Equal(removed, []string{"left"}) {
		t.Errorf("%q, %v", removed, err)
	}
	if a.running() != kept.Info().SandboxID {
		t.Error("another one was ended")
	}
}

// TestWhatHermesStoresMeanwhileIsKeptAndTold has Hermes write its record before and after the sandbox's files are stored.
func TestWhatHermesStoresMeanwhileIsKeptAndTold(t *testing.T) {
	a := own(t)
	hermes := func() string {
		t.Helper()
		image, err := a.e.MakeImage(map[string]string{"/work/f": "of Hermes\n"})
		if err != nil {
			t.Fatal(err)
		}
		a.writeTable(t, map[string]string{"direct:default": image})
		return image
	}
	// After: it goes on from what Hermes stored.
	sb := a.mustOpen(t, ends)
	run(t, sb, "mkdir -p /work; echo own > /work/f", "")
	closeIt(t, sb)
	first := hermes()
	sb = a.mustOpen(t, ends)
	run(t, sb, "cat /work/f; echo more >> /work/f", "of Hermes\n")
	closeIt(t, sb)
	if now := a.table(t)["direct:default"]; now == first || !slices.Contains(a.e.Images(), now) {
		t.Errorf("remembered is %q, Hermes' was %q", now, first)
	}

	// Before: neither loses anything, and it is told until the own files are given up.
	sb = a.mustOpen(t, ends)
	run(t, sb, "echo again >> /work/f", "")
	second := hermes()
	for _, text := range []string{"of Hermes\nmore\nagain\n", "of Hermes\nmore\nagain\nlast\n"} {
		closeIt(t, sb)
		if now := a.table(t)["direct:default"]; now != second {
			t.Fatalf("remembered is %q, Hermes' is %q", now, second)
		}
		sb = a.mustOpen(t, ends)
		if res := run(t, sb, "cat /work/f; echo last >> /work/f", text); !said(res, second) {
			t.Errorf("it is not told: %q", res.Notices)
		}
	}
	closeIt(t, sb)
	if len(a.e.Images()) != 1 {
		t.Errorf("stored are %q", a.e.Images())
	}
	keep := a.keeper(t)
	list, err := keep.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := keep.Remove(t.Context(), list[0].ID, true); err != nil || len(a.e.Images()) != 0 {
		t.Errorf("%v; stored are %q", err, a.e.Images())
	}
	if res := run(t, a.mustOpen(t, ends), "cat /work/f", "of Hermes\n"); said(res, second) {
		t.Errorf("%q", res.Notices)
	}
}

// TestOnlyTheWatchdogRests has a bash that is no call's in use while the watchdog is let go.
func TestOnlyTheWatchdogRests(t *testing.T) {
	a := own(t)
	req, err := a.request(map[string]string{"container_idle_timeout": "3"}, "default")
	if err != nil {
		t.Fatal(err)
	}
	sb, err := modal.Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close(t.Context())
	start := func(watchdog bool, script string) driver.Process {
		t.Helper()
		p, err := sb.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"--noprofile", "--norc", "-p", "-c", script}, Watchdog: watchdog})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	send := func(p driver.Process, text string) {
		t.Helper()
		if _, err := io.WriteString(p.Stdin(), text); err != nil {
			t.Fatal(err)
		}
	}
	await := func(p driver.Process) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		if st, err := p.Wait(ctx); err != nil || st.Code != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	// A question about a job, whose data is under way, and after it a bash that says when several looks were taken.
	question := start(false, "cat")
	send(question, "first ")
	await(start(false, "sleep 3"))
	send(question, "second")
	_ = question.Stdin().Close()
	if text, err := io.ReadAll(question.Stdout()); err != nil || string(text) != "first second" {
		t.Errorf("%q, %v", text, err)
	}
	await(question)
	watchdog := start(true, "cat")
	await(watchdog)
}

// TestAJobOfAProcessOutlivesIdleTime: a job that ends with its process goes on while that lives, however long nobody calls, and its end
// lets the sandbox rest.
func TestAJobOfAProcessOutlivesIdleTime(t *testing.T) {
	a := own(t)
	sb, err := a.open(t, map[string]string{"container_idle_timeout": "3", "spawn_ahead_idle": "1"}, elsewhere.SandboxOptions{ThrowAway: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	job, err := s.Start(ctx, `until [[ -e /tmp/stop ]]; do echo >> /tmp/beats; sleep 0.1; done`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := job.Status(ctx); err != nil || st.Owner != elsewhere.OwnerProcess {
		t.Fatalf("%+v, %v", st, err)
	}
	// In the sandbox's own time, in which it would have rested, and ended, several times.
	id := sb.Info().SandboxID
	eventually(t, "the job goes on", func() bool {
		o, err := a.e.Observe(ctx, id, nil, "sh", "-c", "wc -l < /tmp/beats")
		beats, _ := strconv.Atoi(strings.TrimSpace(string(o.Stdout)))
		return err == nil && beats > 80
	})
	a.write(t, id, "/tmp/stop", "")
	if st, err := job.Wait(ctx); err != nil || st.State != elsewhere.JobExited {
		t.Fatalf("%+v, %v", st, err)
	}
	eventually(t, "the service takes the sandbox for idle", func() bool {
		for _, one := range a.e.Sandboxes() {
			if one.ID == id && !one.Running {
				return one.Status == pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT
			}
		}
		return false
	})
}

// write has something in a sandbox write a file that no call of elsewhere's writes.
func (a *account) write(t *testing.T, id, file, text string) {
	t.Helper()
	o, err := a.e.Observe(t.Context(), id, []byte(text), "sh", "-c", `cat > "$1"`, "sh", file)
	if err != nil || o.Code != 0 {
		t.Fatalf("%+v, %v", o, err)
	}
}

// lose has a sandbox end with all that is not stored.
func (a *account) lose(t *testing.T, id string) {
	t.Helper()
	if a.running() == id {
		if err := a.e.Lose(id); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatAJobWroteIsStored has a job write when the process that started it is gone, and another one ask for it.
func TestWhatAJobWroteIsStored(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	id := sb.Info().SandboxID
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	job, err := s.Start(ctx, "until [ -e /root/go ]; do sleep 0.1; done; echo made > /root/f; echo said", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	closeIt(t, sb)
	a.write(t, id, "/root/go", "")

	sb = a.mustOpen(t, nil)
	again, err := sb.Job(ctx, job.ID())
	if err != nil {
		t.Fatal(err)
	}
	if st, err := again.Wait(ctx); err != nil || st.State != elsewhere.JobExited {
		t.Fatalf("%+v, %v", st, err)
	}
	closeIt(t, sb)
	a.lose(t, id)
	run(t, a.mustOpen(t, nil), "cat /root/f", "made\n")
}

// TestWhatAKilledProcessLeftIsStored ends a process by KILL in a sandbox that the next one ends.
func TestWhatAKilledProcessLeftIsStored(t *testing.T) {
	req := func(t *testing.T, a *account) driver.OpenRequest {
		t.Helper()
		req, err := a.request(ends, "default")
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	killed := func(t *testing.T, a *account) string {
		t.Helper()
		sb, err := modal.Backend().Open(t.Context(), req(t, a))
		if err != nil {
			t.Fatal(err)
		}
		id := sb.Info().SandboxID
		a.write(t, id, "/root/f", "left\n")
		modal.Abandon(sb)
		return id
	}
	t.Run("and the next one only opens it", func(t *testing.T) {
		a := own(t)
		id := killed(t, a)
		sb := a.mustOpen(t, ends)
		if sb.Info().SandboxID != id {
			t.Fatal("it was not found")
		}
		closeIt(t, sb)
		if a.running() != "" {
			t.Fatal("it was not ended")
		}
		run(t, a.mustOpen(t, ends), "cat /root/f", "left\n")
	})
	t.Run("and its maker has run nothing", func(t *testing.T) {
		a := own(t)
		sb := a.mustOpen(t, ends)
		if killed(t, a) != sb.Info().SandboxID {
			t.Fatal("it was not found")
		}
		closeIt(t, sb)
		if a.running() != "" {
			t.Fatal("it was not ended")
		}
		run(t, a.mustOpen(t, ends), "cat /root/f", "left\n")
	})
}

// TestACloseDuringASnapshotLosesNothing closes while the files of an idle sandbox are being stored, and something writes on.
func TestACloseDuringASnapshotLosesNothing(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"container_idle_timeout": "6", "spawn_ahead_idle": "1"})
	id := sb.Info().SandboxID
	a.e.Inject(emulator.Fault{Method: "TaskSnapshotFilesystem", After: true, Delay: 3 * time.Second}) // stored, and not told yet
	run(t, sb, "echo one > /root/f", "")
	eventually(t, "the files are being stored", func() bool { return len(a.e.Images()) == 1 })
	a.write(t, id, "/root/late", "two\n")
	closeIt(t, sb)
	a.lose(t, id)
	run(t, a.mustOpen(t, nil), "cat /root/f /root/late", "one\ntwo\n")
	if images := a.e.Images(); len(images) != 1 {
		t.Errorf("stored are %q", images)
	}
}
