package singularity

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// open opens the sandbox of a task; it is closed with the test.
func (w *where) open(task string) *sandbox {
	w.t.Helper()
	sb, err := w.tryOpen(task)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := sb.Close(context.Background()); err != nil {
			w.t.Error(err)
		}
	})
	return sb
}

func (w *where) tryOpen(task string) (*sandbox, error) {
	w.t.Helper()
	req := w.request()
	req.Task = task
	sb, err := Backend().Open(w.t.Context(), req)
	if err != nil {
		return nil, err
	}
	return sb.(*sandbox), nil
}

// bash runs a script in a sandbox and gives what it prints on both streams.
func bash(t testing.TB, sb driver.Sandbox, script string, env ...string) string {
	t.Helper()
	p, err := sb.Bash(t.Context(), driver.BashSpec{ID: strings.Repeat("ab", 16), Args: []string{"--noprofile", "--norc", "-c", "exec 2>&1\n" + script}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Stdin().Close()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	complaints, _ := io.ReadAll(p.Stderr())
	if _, err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeStreams(p)
	return string(out) + string(complaints)
}

func closeStreams(p driver.Process) {
	_ = p.Stdin().Close()
	_ = p.Stdout().Close()
	_ = p.Stderr().Close()
}

func feature(info driver.Info, name string) driver.Feature {
	for _, f := range info.Features {
		if f.Name == name {
			return f
		}
	}
	return driver.Feature{}
}

func said(notices []string, words ...string) bool {
	return slices.ContainsFunc(notices, func(n string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(n, word) })
	})
}

// planted are names of every family of internal/scrub, and some that nobody blocks: inside, none of them has any business.
var planted = strings.Fields(`OPENAI_API_KEY OPENAI_BASE_URL ANTHROPIC_TOKEN GOOGLE_APPLICATION_CREDENTIALS TELEGRAM_BOT_TOKEN
	DISCORD_HOME_CHANNEL SLACK_APP_TOKEN EMAIL_PASSWORD GH_TOKEN GITHUB_TOKEN GITHUB_APP_PRIVATE_KEY_PATH MODAL_TOKEN_SECRET
	DAYTONA_API_KEY VERCEL_OIDC_TOKEN GATEWAY_RELAY_A_SECRET AUXILIARY_VISION_API_KEY AWS_BEARER_TOKEN_BEDROCK HF_TOKEN
	OP_SERVICE_ACCOUNT_TOKEN BWS_ACCESS_TOKEN SUDO_PASSWORD HERMES_SESSION_KEY AWS_SECRET_ACCESS_KEY CLAUDE_CODE_OAUTH_TOKEN
	VIRTUAL_ENV MY_VARIABLE HTTPS_PROXY SSH_AUTH_SOCK LD_PRELOAD_HINT`)

func TestNothingOfTheCallersEnvironmentReachesAnInstance(t *testing.T) {
	needEngine(t)
	const secret = "planted-secret-"
	w := newWhere(t)
	for i, n := range planted {
		for _, name := range []string{n, "APPTAINERENV_" + n, "SINGULARITYENV_" + n, "APPTAINERENV_SINGULARITYENV_" + n} {
			value := fmt.Sprint(secret, i)
			w.environ = append(w.environ, name+"="+value)
			t.Setenv(name, value) // a client that took this process's own environment would hand it on
		}
	}
	outside := t.TempDir()
	for _, n := range []string{"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"} {
		w.environ = append(w.environ, n+"="+outside+":/mnt")
		t.Setenv(n, outside+":/mnt")
	}
	if err := os.WriteFile(filepath.Join(outside, "found"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.environ = append(w.environ, "APPTAINER_ENV="+secret, "SINGULARITY_ENV="+secret, "APPTAINER_HOME="+outside)
	sb := w.open("default")
	if got := bash(t, sb, `cat /proc/[0-9]*/environ | tr '\0' '\n' | sort -u; ls /mnt`); strings.Contains(got, secret) || strings.Contains(got, "found") || !strings.Contains(got, "HOME="+sb.info.Home+"\n") {
		t.Errorf("inside:\n%s", got)
	}
	// Nor are they in the environment of the processes that stand for the instance outside, which its user can read.
	seen := 0
	for _, pid := range []int{sb.rec.PID, parentOf(sb.rec.PID)} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && len(text) > 0 {
			seen++
		}
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("in the environment of process %d: %q", pid, text)
		}
	}
	if seen == 0 {
		t.Error("no process of the instance was looked at")
	}
}

func TestPassedVariablesTravelWithCallsAlone(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "env_passthrough", "MY_TOKEN,GONE,GITHUB_TOKEN")
	w.environ = append(w.environ, "MY_TOKEN=a-value-of-no-hash", "OTHER=x", "GITHUB_TOKEN=y")
	sb := w.open("default")
	if got := sb.info.CallEnv; got["MY_TOKEN"] != "a-value-of-no-hash" || len(got) > 2 {
		t.Errorf("CallEnv is %v", got)
	}
	if got := bash(t, sb, `env`); strings.Contains(got, "a-value-of-no-hash") || strings.Contains(got, "OTHER=") {
		t.Errorf("in a waiting bash:\n%s", got)
	}
}

func TestTheVariablesOfASpecArriveAsTheyAre(t *testing.T) {
	needEngine(t)
	sb := newWhere(t).open("default")
	values := []string{"", "plain", `a"b'c`, "$(id) `id` $HOME ${X}", `back\slash\n`, "two\nlines", "comma,colon:semi;", "\u00e9", " spaces  ", "*?[!"}
	for _, v := range values {
		if got := bash(t, sb, `printf '<%s>' "$V"`, "V="+v); got != "<"+v+">" {
			t.Errorf("%q arrived as %q", v, got)
		}
	}
}

func TestSkillsCachesAndCredentialFilesAreThereAndCurrent(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "credential_files", "token.json,.env")
	put := func(file, text string) {
		file = filepath.Join(w.home, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	put("skills/one/run.sh", "echo skill")
	put("cache/web/page", "page")
	put("token.json", "first")
	put(".env", "SECRET=x")
	sb := w.open("default")
	if got := bash(t, sb, `cd ~/.hermes && bash skills/one/run.sh && cat cache/web/page token.json; ls -A | grep -c env; echo x 2>/dev/null > skills/x || echo refused; echo x 2>/dev/null > token.json || echo refused`); got != "skill\npagefirst0\nrefused\nrefused\n" {
		t.Errorf("inside: %q", got)
	}
	if !said(sb.info.Notices, ".env") {
		t.Errorf("notices %q", sb.info.Notices)
	}
	put("token.json", "second")
	if _, err := sb.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bash(t, sb, `cat ~/.hermes/token.json`); got != "second" {
		t.Errorf("after a change: %q", got)
	}
	put("cache/images/new", "x")
	if again := w.open("default"); !said(again.info.Notices, "sandbox stop") || again.rec.PID != sb.rec.PID {
		t.Errorf("a cache that is new: %q", again.info.Notices)
	}
	staging := sb.rec.Staging
	if _, err := os.Stat(staging); err != nil {
		t.Fatal(err)
	}
	if _, err := w.keeper().Remove(t.Context(), sb.rec.Name, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(staging); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("copies of credential files are left: %v", err)
	}
}

func TestFilesOutliveTheInstanceAndTemporaryOnesDoNot(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	sb := w.open("default")
	if got := bash(t, sb, `cd && pwd && echo home > kept && echo system > /etc/kept && mkdir /etc/gone && rmdir /etc/gone && echo tmp > /tmp/temp && echo fine`); got != sb.info.Home+"\nfine\n" {
		t.Fatalf("got %q", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A close leaves it running, and the next process finds the same one.
	if again := w.open("default"); again.rec.PID != sb.rec.PID {
		t.Errorf("after a close the instance is the process %d, it was %d", again.rec.PID, sb.rec.PID)
	}
	k := w.keeper()
	if err := k.Stop(t.Context(), sb.rec.Name); err != nil {
		t.Fatal(err)
	}
	if sb.rec.lives() {
		t.Error("it runs after Stop")
	}
	if err := k.Stop(t.Context(), sb.rec.Name); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	after := w.open("default")
	if after.rec.PID == sb.rec.PID {
		t.Error("it was not started again")
	}
	if got := bash(t, after, `cat ~/kept /etc/kept; ls -d /etc/gone /tmp/temp 2>/dev/null`); got != "home\nsystem\n" {
		t.Errorf("after a restart: %q", got)
	}
}

func TestALostInstanceIsNoticedAndStartedAgainWithItsFiles(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	sb := w.open("default")
	bash(t, sb, `echo kept > ~/kept`)
	if err := sb.Alive(t.Context()); err != nil {
		t.Fatal(err)
	}
	pipe, err := sb.Bash(t.Context(), driver.BashSpec{Args: []string{"-c", "echo up; read -r"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Stdout().Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := kill(sb.rec.PID, sb.rec.Begin); err != nil {
		t.Fatal(err)
	}
	if status, err := pipe.Wait(t.Context()); err != nil || status.Signal != "KILL" {
		t.Errorf("a bash in it ended with %+v, %v", status, err)
	}
	closeStreams(pipe)
	if err := sb.Alive(t.Context()); classify(err) != driver.KindLost || err == nil {
		t.Errorf("Alive says %v", err)
	}
	if _, err := sb.Bash(t.Context(), driver.BashSpec{Args: []string{"-c", ":"}}); err == nil || classify(err) != driver.KindLost {
		t.Errorf("Bash says %v", err)
	}
	again := w.open("default")
	if got := bash(t, again, `cat ~/kept`); got != "kept\n" {
		t.Errorf("in the new instance: %q", got)
	}
	if err := sb.Alive(t.Context()); classify(err) != driver.KindLost || err == nil {
		t.Errorf("the old value takes the new instance for its own: %v", err)
	}
}

// children are run by a test in processes of their own: this program again, with this variable.
const childVar = "ELSEWHERE_SINGULARITY_CHILD"

// TestChild is one of them: it opens the sandbox that the variable describes, says which instance that is, and ends with
// its standard input.
func TestChild(t *testing.T) {
	text := os.Getenv(childVar)
	if text == "" {
		return
	}
	var job struct {
		Home, Task string
		Environ    []string
		Settings   map[string]string
	}
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	w := &where{t: t, home: job.Home, environ: job.Environ, settings: job.Settings}
	sb, err := w.tryOpen(job.Task)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\nopened %s %d\n", sb.rec.Name, sb.rec.PID)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := sb.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// child starts one and gives its instance as it says it; end lets it go.
func (w *where) child(task string) (cmd *exec.Cmd, instance func() string, end func()) {
	w.t.Helper()
	text, err := json.Marshal(map[string]any{"Home": w.home, "Task": task, "Environ": w.environ, "Settings": w.settings})
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd = exec.Command(own, "-test.run=^TestChild$", "-test.count=1")
	cmd.Env = append(slices.Clone(w.environ), childVar+"="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	r, out, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	_ = out.Close()
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = r.Close() })
	instance = func() string {
		var all strings.Builder
		buffer := make([]byte, 4096)
		for {
			n, err := r.Read(buffer)
			all.Write(buffer[:n])
			if _, rest, ok := strings.Cut(all.String(), "opened "); ok {
				if line, _, ok := strings.Cut(rest, "\n"); ok {
					return line
				}
			}
			if err != nil {
				return "no instance: " + all.String()
			}
		}
	}
	return cmd, instance, func() { _ = in.Close(); _ = cmd.Wait() }
}

func TestTenProcessesThatStartAtOnceShareOneInstance(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	w.identity() // made once
	names := make([]string, 10)
	var wg sync.WaitGroup
	for i := range names {
		_, instance, end := w.child("shared")
		wg.Go(func() {
			names[i] = instance()
			end()
		})
	}
	wg.Wait()
	for _, n := range names {
		if n != names[0] || !strings.HasPrefix(n, "elsewhere-shared-") {
			t.Errorf("instances are %q", names)
			break
		}
	}
}

func TestAnInstanceThatDoesNotPersistGoesWithItsLastUser(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "container_persistent", "false")
	sb := w.open("default")
	bash(t, sb, `mkdir -m 0 /etc/closed; echo x > ~/file`)
	dir, logs := sb.rec.Dir, sb.logs(t)
	cmd, instance, end := w.child("default")
	if got := instance(); !strings.HasPrefix(got, sb.rec.Name) {
		t.Fatalf("another process got %q", got)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !sb.rec.lives() {
		t.Fatal("it was ended under another process")
	}
	end()
	_ = cmd
	if sb.rec.lives() {
		t.Error("it runs after its last user's close")
	}
	for _, path := range append(logs, dir, sb.record, sb.rec.State) {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if again := w.open("default"); bash(t, again, `ls ~`) != "" {
		t.Error("its files are there again")
	}
}

// logs gives the engine's own log files of an instance that runs.
func (s *sandbox) logs(t testing.TB) []string {
	running, err := s.prog.list(t.Context(), s.rec.Name)
	if err != nil {
		t.Fatal(err)
	}
	return []string{running[s.rec.Name].OutLog, running[s.rec.Name].ErrLog}
}

func TestWhatAKilledProcessLeftIsNotUsedAgain(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "container_persistent", "false")
	cmd, instance, _ := w.child("default")
	first := instance()
	if err := os.WriteFile(filepath.Join(w.dir("default"), "home", "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	sb := w.open("default")
	if fmt.Sprint(sb.rec.Name, " ", sb.rec.PID) == first {
		t.Error("the instance of a dead owner, not made to persist, is used again")
	}
	if got := bash(t, sb, `ls ~`); got != "" {
		t.Errorf("its files are there: %q", got)
	}
}

func TestAThrowAwayRunLeavesNothing(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	scratch := t.TempDir()
	w.settings["scratch_dir"] = scratch
	req := w.request()
	req.ThrowAway, req.Identity.Home = true, ""
	opened, err := Backend().Open(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	sb := opened.(*sandbox)
	if got := bash(t, sb, `echo x > ~/x; echo y > /etc/y; mkdir -p /etc/a/b; chmod 0 /etc/a/b /etc/a; [ -d `+sb.info.StateDir+` ] && echo state`); got != "state\n" {
		t.Errorf("got %q", got)
	}
	logs := sb.logs(t)
	keeperPID := parentOf(sb.rec.PID)
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sb.rec.lives() || beginOf(keeperPID) != "" {
		t.Error("processes are left")
	}
	left, _ := filepath.Glob(filepath.Join(scratch, "elsewhere", "*"))
	if len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
	for _, l := range logs {
		if _, err := os.Lstat(l); err == nil {
			t.Errorf("%s is left", l)
		}
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); bytes.Contains(mounts, []byte(scratch)) {
		t.Error("a mount is left")
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestAThrowAwayRunThatWasKilledIsRemovedByTheNext(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	scratch := t.TempDir()
	w.settings["scratch_dir"] = scratch
	throwAway := func(temp string) (*sandbox, *owner.Lease) {
		t.Setenv("TMPDIR", temp) // where its lease is
		lease, err := owner.Acquire("")
		if err != nil {
			t.Fatal(err)
		}
		req := w.request()
		req.ThrowAway, req.Identity.Home, req.Identity.Owner = true, "", lease.ID
		sb, err := Backend().Open(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = sb.Close(context.Background()), lease.Release() })
		return sb.(*sandbox), lease
	}
	// A job that shares the scratch disk and has a temp directory of its own: nothing is known of its owner here.
	other, _ := throwAway(t.TempDir())
	// Long ago: what sweeps old files out of the temp directory has taken the lease of a process that lives, with and without its hold.
	temp := t.TempDir()
	swept, lost := throwAway(temp)
	bare, bareLease := throwAway(temp)
	killed, lease := throwAway(temp)
	if err := errors.Join(lost.Release(), bareLease.Release(), lease.Release(), os.Remove(filepath.Join(bare.rec.Dir, holdName))); err != nil {
		t.Fatal(err)
	}
	killed.hold.giveUp() // as the kernel does with the process
	sb := w.open("default")
	sb.tidy.Wait()
	if killed.rec.lives() {
		t.Error("it still runs")
	}
	if _, err := os.Lstat(killed.rec.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", killed.rec.Dir, err)
	}
	for what, one := range map[string]*sandbox{"has a temp directory of its own": other, "lost its lease": swept, "lost its lease and its hold": bare} {
		if _, err := os.Lstat(one.rec.Dir); !one.rec.lives() || err != nil {
			t.Errorf("one of a process that lives and %s was removed: %v", what, err)
		}
	}
}

func TestFiveHundredMegabytesCanBeWrittenEverywhere(t *testing.T) {
	needEngine(t)
	if testing.Short() {
		t.Skip("short: moves a lot of data or waits long")
	}
	for _, persistent := range []string{"true", "false"} {
		sb := newWhere(t, "container_persistent", persistent).open("default")
		for _, dir := range []string{"~", "/tmp", "/var/tmp", "/etc"} {
			got := bash(t, sb, `f=`+dir+`/big; head -c 500000000 /dev/zero > $f && stat -c %s $f; rm -f $f`)
			if got != "500000000\n" {
				t.Errorf("persistent %s: in %s: %q", persistent, dir, got)
			}
		}
	}
}

func TestAHostsDirectoryIsNotWhereSessionsStart(t *testing.T) {
	needEngine(t)
	host := t.TempDir()
	for _, c := range []struct {
		cwd, dir string
		notice   bool
	}{
		{".", "", false}, {host, "", true}, {"some/where", "", true}, {"/no/such/place", "", true}, {"/usr/share", "/usr/share", false}, {"~", "", false},
	} {
		w := newWhere(t, "cwd", c.cwd)
		sb := w.open("default")
		want := c.dir
		if want == "" {
			want = sb.info.Home
		}
		if sb.info.Dir != want || said(sb.info.Notices, "terminal.cwd", "sessions start in") != c.notice {
			t.Errorf("cwd %q: starts in %q, notices %q", c.cwd, sb.info.Dir, sb.info.Notices)
		}
	}
}

func TestWithoutANetworkThereIsNoRoute(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	sb := w.open("default")
	bash(t, sb, `echo kept > ~/kept`)
	if got := bash(t, sb, `wc -l < /proc/net/route`); strings.TrimSpace(got) == "1" {
		t.Skip("this machine has no route itself")
	}
	first := sb.rec.PID
	w.settings["singularity_network"] = "false"
	if _, err := w.tryOpen("default"); err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "singularity_network") || !strings.Contains(err.Error(), "in use") {
		t.Fatalf("an instance with a network, in use, opened for a call that must have none: %v", err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := w.open("default")
	if cut.rec.PID == first || !said(cut.info.Notices, "singularity_network", "replaced") {
		t.Errorf("not replaced: %q", cut.info.Notices)
	}
	got := bash(t, cut, `cat ~/kept; cat /proc/net/route | wc -l; grep -c : /proc/net/dev; (: < /dev/tcp/1.1.1.1/53) 2>&1 | grep -q unreachable && echo cut`)
	if got != "kept\n1\n1\ncut\n" {
		t.Errorf("without a network: %q", got)
	}
}

func TestOtherSettingsThanItWasMadeWithAreAnErrorThatNamesThem(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	sb := w.open("default")
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settings["singularity_fakeroot"] = "true"
	w.settings["container_memory"] = "100"
	_, err := w.tryOpen("default")
	if err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "container_memory, singularity_fakeroot") || !strings.Contains(err.Error(), "--task") {
		t.Errorf("got %v", err)
	}
	if _, err := w.tryOpen("other"); err != nil {
		t.Errorf("another task: %v", err)
	}
}

func TestLimitsThatCannotBeAppliedAreSaidOnceAndRefusedWhereTheyAreStrict(t *testing.T) {
	needEngine(t)
	if os.Geteuid() == 0 || hopeless() == "" {
		t.Skip("cgroups may be delegated to this user")
	}
	w := newWhere(t)
	sb := w.open("default")
	if f := feature(sb.info, "limits"); f.State != driver.Degraded || !strings.Contains(f.Detail, "5120 MiB") || !said(sb.info.Notices, "limits not in force") {
		t.Errorf("feature %+v, notices %q", f, sb.info.Notices)
	}
	if again := w.open("default"); said(again.info.Notices, "limits") || feature(again.info, "limits").State != driver.Degraded {
		t.Errorf("said again: %q", again.info.Notices)
	}
	strict := newWhere(t, "limits", "strict")
	if _, err := strict.tryOpen("default"); err != nil {
		t.Errorf("strict without a limit of the user's: %v", err)
	}
	strict = newWhere(t, "limits", "strict", "container_cpu", "2")
	_, err := strict.tryOpen("default")
	if err == nil || classify(err) != driver.KindUnsupported || !strings.Contains(err.Error(), "terminal.container_cpu cannot be applied") || strings.Contains(err.Error(), "container_memory") {
		t.Errorf("strict: %v", err)
	}
	if list, err := strict.keeper().List(t.Context()); err != nil || len(list) > 0 && list[0].State == driver.StateRunning {
		t.Errorf("a refused instance runs: %+v, %v", list, err)
	}
}

func TestALimitOfTheDiskIsSaidNotToBeInForce(t *testing.T) {
	needEngine(t)
	for _, c := range []struct {
		name     string
		settings []string
		want     string // in a notice; "" is none
		refused  bool
	}{
		{"not set", nil, "", false},
		{"not set, strict", []string{"limits", "strict"}, "", false},
		{"none of ours", []string{"container_disk", "0", "limits", "strict"}, "", false},
		{"set", []string{"container_disk", "1024"}, "container_disk (--set container_disk), 1024 MiB, is not in force", false},
		{"set, strict", []string{"container_disk", "1024", "limits", "strict"}, "", true},
	} {
		w := newWhere(t, c.settings...)
		req := w.request()
		prog, err := findProgram(req.Environ)
		if err != nil {
			t.Fatal(err)
		}
		p, err := makePlan(req, prog)
		if c.refused {
			if err == nil || classify(err) != driver.KindUnsupported || !strings.Contains(err.Error(), "container_disk (--set container_disk) cannot be applied") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if told := said(p.notices, "container_disk"); told != (c.want != "") || told && !said(p.notices, c.want) {
			t.Errorf("%s: notices %q", c.name, p.notices)
		}
	}
}

func TestALimitWithWhichNothingCanRunIsRefused(t *testing.T) {
	needEngine(t)
	for _, value := range []string{"15", "99999999999999"} {
		_, err := newWhere(t, "singularity_pids_limit", value).tryOpen("default")
		if err == nil || classify(err) != driver.KindConfig || !said([]string{err.Error()}, "singularity_pids_limit (--set singularity_pids_limit) is "+value+";", "16") {
			t.Errorf("%s: %v", value, err)
		}
	}
}

func TestFilesOfSubordinateUsersAreRemovedOnClose(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "singularity_fakeroot", "true", "container_persistent", "false")
	sb := w.open("default")
	if sb.info.User != "root" || sb.info.Home != "/root" {
		t.Errorf("user %q, home %q", sb.info.User, sb.info.Home)
	}
	if got := bash(t, sb, `id -u; mkdir -p /opt/a/b ~/c && : > /opt/a/b/f && chown -R 33:33 /opt/a ~/c && chmod 700 /opt/a ~/c && echo ok`); got != "0\nok\n" {
		t.Fatalf("got %q", got)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(sb.rec.Dir, "home", "c"), &st); err != nil || st.Uid < 65536 {
		t.Fatalf("it has the user id %d: the case proves nothing (%v)", st.Uid, err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(sb.rec.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", sb.rec.Dir, err)
	}
}

func TestKillEndsABashAndWhatCarriesItsCall(t *testing.T) {
	needEngine(t)
	sb := newWhere(t).open("default")
	id := strings.Repeat("0123456789abcdef", 2)
	p, err := sb.Bash(t.Context(), driver.BashSpec{ID: id, Env: []string{"ELSEWHERE_CALL=" + id}, Args: []string{"-c", `trap "" TERM HUP; setsid sleep 1000 & setsid env -u ELSEWHERE_CALL sleep 1001 & echo up; wait`}})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStreams(p)
	if _, err := p.Stdout().Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	count := `n=0; for f in /proc/[0-9]*/cmdline; do c=$(tr "\0" " " < $f 2>/dev/null); [[ $c != "sleep 100"* ]] || n=$((n + 1)); done; echo $n`
	await(t, "two children sleep", func() bool { return bash(t, sb, count) == "2\n" })
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(t.Context()); err != nil || status.Signal != "KILL" {
		t.Errorf("it ended with %+v, %v", status, err)
	}
	await(t, "the child that carries the id is gone", func() bool { return bash(t, sb, count) == "1\n" })
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("a second Kill: %v", err)
	}
}

// TestD14WhatIsOrphanedIsReaped: a zombie has no command line, and would be listed as running.
func TestD14WhatIsOrphanedIsReaped(t *testing.T) {
	needEngine(t)
	sb := newWhere(t).open("default")
	for range 2 {
		pid := strings.TrimSpace(bash(t, sb, `(exec bash -c '(exec bash -c "echo \$\$; exec sleep 0.2") >/tmp/pid & ') ; until [ -s /tmp/pid ]; do sleep 0.01; done; cat /tmp/pid`))
		if pid == "" || strings.Trim(pid, "0123456789") != "" {
			t.Fatalf("the orphan is %q", pid)
		}
		await(t, "the orphan "+pid+" is gone", func() bool { return bash(t, sb, `[ -e /proc/`+pid+` ] || echo gone`) == "gone\n" })
		bash(t, sb, `rm /tmp/pid`)
	}
}

// The first process of a namespace goes last: until those who wait for the others have been told of their ends it is there, and is
// ending.
func TestAnInstanceThatIsEndingDoesNotLive(t *testing.T) {
	needEngine(t)
	first := exec.CommandContext(t.Context(), "unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "bash", "-c", "echo on; read -r")
	say, out := pipes(t, first)
	defer say.Close()
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("no namespace can be made here: %q, %v", line, err)
	}
	pid := childOf(t, first.Process.Pid)
	rec := &record{PID: pid, Begin: beginOf(pid), Boot: bootID()}
	if !rec.lives() {
		t.Fatal("it does not live before")
	}
	other := exec.CommandContext(t.Context(), "nsenter", "--target", strconv.Itoa(pid), "--user", "--preserve-credentials", "--pid", "bash", "-c", "echo on; sleep 1000")
	_, out = pipes(t, other)
	if line, err := out.ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	// Whoever waits for the other does not.
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the first process is ending", func() bool { f := statOf(pid); return len(f) < 20 || exiting(f) })
	if beginOf(pid) != rec.Begin {
		t.Fatal("it is gone: the test proves nothing")
	}
	if rec.lives() {
		t.Error("it lives, while all others of its namespace are killed")
	}
	if err := other.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "the first process is gone", func() bool { return beginOf(pid) == "" })
}

// pipes starts a command, which is killed with the test, and gives its stdin and stdout.
func pipes(t *testing.T, cmd *exec.Cmd) (io.WriteCloser, *bufio.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in, bufio.NewReader(out)
}

// childOf gives a process's one child.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("its children are %q", text)
	}
	return child
}

func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func TestTheKeeperSeesItsOwnAlone(t *testing.T) {
	needEngine(t)
	w, other := newWhere(t), newWhere(t, "container_persistent", "false")
	a := w.open("a/b")
	o := other.open("default")
	k := w.keeper()
	list, err := k.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Task != "a/b" || list[0].ID != a.info.SandboxID || list[0].State != driver.StateRunning ||
		!list[0].InUse || !list[0].Persistent || list[0].Image != testbed+"base.sif" || !slices.Equal(list[0].Data, []string{a.rec.Dir}) {
		t.Fatalf("listed %+v, %v", list, err)
	}
	bash(t, a, `setsid sleep 1000 >/dev/null 2>&1 &`)
	d, err := k.Inspect(t.Context(), a.info.SandboxID)
	if err != nil || d.Processes < 1 || d.User != a.info.User || len(d.Features) == 0 || d.Started.IsZero() ||
		!said(d.Mounts, a.info.Home, "rw") || !said(d.Mounts, stateRoot) {
		t.Errorf("inspected %+v, %v", d, err)
	}
	if _, err := k.Inspect(t.Context(), o.info.SandboxID); err == nil {
		t.Error("another identity's instance can be looked at")
	}
	if removed, err := k.Remove(t.Context(), o.info.SandboxID, true); err != nil || len(removed) > 0 || !o.rec.lives() {
		t.Errorf("another identity's instance was removed: %q, %v", removed, err)
	}
	if reaped, err := other.keeper().Reap(t.Context()); err != nil || len(reaped) > 0 || !o.rec.lives() {
		t.Errorf("one in use was reaped: %q, %v", reaped, err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reaped, err := k.Reap(t.Context()); err != nil || len(reaped) > 0 || !a.rec.lives() {
		t.Errorf("one that persists was reaped: %q, %v", reaped, err)
	}
	if removed, err := k.Remove(t.Context(), a.info.SandboxID, false); err != nil || len(removed) != 1 || a.rec.lives() {
		t.Errorf("removed %q, %v", removed, err)
	}
	if _, err := os.Stat(filepath.Join(a.rec.Dir, "home")); err != nil {
		t.Errorf("its data went too: %v", err)
	}
	locks := func() []string {
		found, _ := filepath.Glob(filepath.Join(w.home, "elsewhere", "sandboxes", "*"+a.rec.Name+".*"))
		return found
	}
	list, err = k.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != driver.StateData || list[0].Task != "a/b" || list[0].InUse || !slices.Equal(list[0].Data, []string{a.rec.Dir}) || len(locks()) > 0 {
		t.Fatalf("listed after the removal: %+v, %v; locks %q", list, err, locks())
	}
	if d, err := k.Inspect(t.Context(), list[0].ID); err != nil || d.State != driver.StateData {
		t.Errorf("inspected after the removal: %+v, %v", d, err)
	}
	// The next one has the files, and with other settings too: nothing runs that was made with the old ones.
	w.settings["singularity_network"] = "false"
	again := w.open("a/b")
	if again.info.Recreated != "" || again.rec.Dir != a.rec.Dir {
		t.Errorf("made again: %q in %s", again.info.Recreated, again.rec.Dir)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if removed, err := k.Remove(t.Context(), a.info.SandboxID, false); err != nil || len(removed) != 1 {
		t.Errorf("removed %q, %v", removed, err)
	}
	// The user has put the files somewhere else: what a link leads to is not removed, only the link.
	away := filepath.Join(t.TempDir(), "away")
	if err := errors.Join(os.Rename(filepath.Dir(a.rec.Dir), away), os.Symlink(away, filepath.Dir(a.rec.Dir)),
		os.Rename(a.rec.Dir, a.rec.Dir+"-moved"), os.Symlink(a.rec.Dir+"-moved", a.rec.Dir)); err != nil {
		t.Fatal(err)
	}
	if removed, err := k.Remove(t.Context(), a.info.SandboxID, true); err != nil || len(removed) != 1 || !said(removed, "the link "+a.rec.Dir, "stays", "-moved") {
		t.Errorf("removed %q, %v", removed, err)
	}
	if _, err := os.Stat(filepath.Join(a.rec.Dir+"-moved", "home")); err != nil {
		t.Errorf("what the links led to: %v", err)
	}
	if err := removeTree(t.Context(), a.rec.Dir+"-moved"); err != nil {
		t.Error(err)
	}
	if list, err := k.List(t.Context()); err != nil || len(list) != 0 || len(locks()) > 0 {
		t.Errorf("listed at last: %+v, %v; locks %q", list, err, locks())
	}
	if _, err := os.Stat(a.rec.Dir); !os.IsNotExist(err) {
		t.Errorf("its data is there: %v", err)
	}
}

// TestAStartThatFailsLeavesNothing: the task can be tried again with an image that is right, and files of before are kept.
func TestAStartThatFailsLeavesNothing(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "singularity_image", "/etc/passwd")
	fails := func() {
		t.Helper()
		if sb, err := w.tryOpen("web"); err == nil {
			_ = sb.Close(t.Context())
			t.Fatal("it was started from /etc/passwd")
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("the error is not one line: %v", err)
		}
	}
	fails()
	for _, left := range []string{"sandboxes/*/elsewhere*", "elsewhere/sandboxes/*", "elsewhere/singularity/*"} {
		if found, _ := filepath.Glob(filepath.Join(w.home, left)); len(found) > 0 {
			t.Errorf("left behind: %q", found)
		}
	}
	w.settings["singularity_image"] = testbed + "base.sif"
	sb := w.open("web")
	bash(t, sb, `echo text >~/file`)
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := w.keeper()
	if _, err := k.Remove(t.Context(), sb.rec.Name, false); err != nil {
		t.Fatal(err)
	}
	w.settings["singularity_image"] = "/etc/passwd"
	fails()
	if list, err := k.List(t.Context()); err != nil || len(list) != 1 || list[0].State != driver.StateData {
		t.Errorf("listed %+v, %v", list, err)
	}
	// As if a process had been killed before an instance of that ran.
	killed := sb.rec
	killed.Settings, killed.Started, killed.PID = kept.Settings{"singularity_image": "/etc/passwd"}, time.Time{}, 0
	if err := killed.write(sb.record); err != nil {
		t.Fatal(err)
	}
	w.settings["singularity_image"] = testbed + "base.sif"
	if got := bash(t, w.open("web"), `cat ~/file`); got != "text\n" {
		t.Errorf("its file holds %q", got)
	}
}

func TestTheNextProcessIsToldThatAnInstanceEndedOrWasStopped(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	next := func() *sandbox {
		sb := w.open("default")
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return sb
	}
	first := next()
	if err := kill(first.rec.PID, first.rec.Begin); err != nil {
		t.Fatal(err)
	}
	if second := next(); !strings.Contains(second.info.Recreated, first.rec.Name+" of this task had ended") {
		t.Errorf("after it was killed: %q", second.info.Recreated)
	}
	if third := next(); third.info.Recreated != "" || said(third.info.Notices, "stopped") {
		t.Errorf("said twice: %q %q", third.info.Recreated, third.info.Notices)
	}
	if err := w.keeper().Stop(t.Context(), first.rec.Name); err != nil {
		t.Fatal(err)
	}
	if fourth := next(); fourth.info.Recreated != "" || !said(fourth.info.Notices, "had been stopped") {
		t.Errorf("after it was stopped: %q %q", fourth.info.Recreated, fourth.info.Notices)
	}
	if fifth := next(); said(fifth.info.Notices, "had been stopped") {
		t.Errorf("said twice: %q", fifth.info.Notices)
	}
}

// What was listed may have been made anew, or removed, by another process before the right to change it is had.
func TestAStopGoesByTheRecordThatIsThereThen(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	sb := w.open("default")
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	anew := sb.rec
	anew.Image = "another"
	if err := anew.write(sb.record); err != nil {
		t.Fatal(err)
	}
	k := w.keeper().(*keeper)
	listed := sb.rec
	if err := k.stop(t.Context(), &listed); err != nil {
		t.Fatal(err)
	}
	if rec, err := readRecord(sb.record); err != nil || rec == nil || rec.Image != "another" || !rec.Stopped || sb.rec.lives() {
		t.Errorf("after the stop of one that was made anew: %+v, %v", rec, err)
	}
	if err := os.Remove(sb.record); err != nil {
		t.Fatal(err)
	}
	listed = sb.rec
	if err := k.stop(t.Context(), &listed); err != nil {
		t.Fatal(err)
	}
	if rec, err := readRecord(sb.record); err != nil || rec != nil {
		t.Errorf("after the stop of one that is gone: %+v, %v", rec, err)
	}
}

func TestTheReaperTakesWhatADeadOwnerLeft(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "container_persistent", "false")
	cmd, instance, _ := w.child("left")
	if got := instance(); !strings.HasPrefix(got, "elsewhere-left-") {
		t.Fatal(got)
	}
	k := w.keeper()
	if reaped, err := k.Reap(t.Context()); err != nil || len(reaped) > 0 {
		t.Fatalf("reaped while its owner lives: %q, %v", reaped, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	reaped, err := k.Reap(t.Context())
	if err != nil || !slices.Equal(reaped, []string{"left"}) {
		t.Errorf("reaped %q, %v", reaped, err)
	}
	if _, err := os.Stat(w.dir("left")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its files are left: %v", err)
	}
}

func TestStateFilesStayInTheirDirectories(t *testing.T) {
	needEngine(t)
	sb := newWhere(t).open("default")
	if sb.info.StateDir == sb.info.PrivateDir {
		t.Fatal("one directory for both")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	bash(t, sb, `cd `+sb.info.StateDir+` && echo "# head" > one && mkdir d && echo two > d/two && ln -s `+filepath.Dir(outside)+` link && ln -s `+outside+` file`)
	files, err := sb.ListState(t.Context(), sb.info.StateDir)
	if err != nil || len(files) != 2 {
		t.Fatalf("listed %+v, %v", files, err)
	}
	for _, f := range files {
		if f.Path == sb.info.StateDir+"/one" && f.Head != "# head" {
			t.Errorf("head of %+v", f)
		}
	}
	for _, path := range []string{sb.info.StateDir + "/link/outside", "/etc/passwd", sb.info.StateDir + "/../../../etc/passwd", sb.info.StateDir, outside} {
		if err := sb.RemoveState(t.Context(), []string{path}); err == nil || classify(err) != driver.KindDenied {
			t.Errorf("removing %s: %v", path, err)
		}
	}
	if err := sb.RemoveState(t.Context(), []string{sb.info.StateDir + "/one", sb.info.StateDir + "/d/two", sb.info.StateDir + "/file", sb.info.PrivateDir + "/none"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside is gone: %v", err)
	}
	bash(t, sb, `rm -rf `+stateRoot+`/*; ln -s /tmp `+sb.info.StateDir)
	sb.keepDirs()
	if got := bash(t, sb, `[ -d `+sb.info.PrivateDir+` ] && stat -c %a `+sb.info.PrivateDir); got != "700\n" {
		t.Errorf("the private directory was not made again: %q", got)
	}
}

func TestRootStartsAnInstanceAndSaysWhatThatWeakens(t *testing.T) {
	needEngine(t)
	if os.Geteuid() != 0 {
		t.Skip("this is not root")
	}
	w := newWhere(t, "container_persistent", "false")
	sb := w.open("default")
	if f := feature(sb.info, "isolation"); f.State != driver.Degraded || !said(sb.info.Notices, "root of this machine") {
		t.Errorf("feature %+v, notices %q", f, sb.info.Notices)
	}
	if sb.info.Home != "/root" || bash(t, sb, `cd && pwd && touch x && id -u`) != "/root\n0\n" {
		t.Errorf("home %q", sb.info.Home)
	}
	dir := sb.rec.Dir
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil || sb.rec.lives() {
		t.Error("something is left")
	}
}
