package docker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/docker"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/survival"
)

// What befalls an engine and its containers from outside, done to a real one: the engine is started again, memory runs out,
// the image is deleted, the disk is full.

const (
	// patience is when a call that must return is taken for hung, and told bounds how long a call may take to say that its
	// engine is gone.
	patience = 3 * time.Minute
	told     = 60 * time.Second
)

// faulty is an HERMES_HOME with a sandbox on an engine that something happens to.
type faulty struct {
	t       testing.TB
	eng     *client.Client
	environ []string
	home    string
	flags   map[string]string
	sb      *elsewhere.Sandbox
}

// on prepares a home for an engine; settings are pairs of key and value. Nothing is opened yet.
func on(t testing.TB, eng *client.Client, settings ...string) *faulty {
	t.Helper()
	base := t.TempDir()
	b := &faulty{t: t, eng: eng, home: filepath.Join(base, "hermes"), flags: map[string]string{"backend": "docker", "docker_image": imageBashOnly}}
	b.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base, "HERMES_HOME=" + b.home, "TMPDIR=" + base, "DOCKER_HOST=" + eng.DaemonHost()}
	for i := 0; i+1 < len(settings); i += 2 {
		b.flags[settings[i]] = settings[i+1]
	}
	if err := os.MkdirAll(b.home, 0o700); err != nil {
		t.Fatal(err)
	}
	id, err := owner.Identity(b.home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeContainers(t, eng, id) })
	return b
}

// tryOpen opens the sandbox of a task, as another process of this home would.
func (b *faulty) tryOpen(task string) (*elsewhere.Sandbox, error) {
	b.t.Helper()
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{docker.Backend()}, Flags: b.flags, Environ: b.environ, Home: b.home})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Task: task, Environ: b.environ})
	if err == nil {
		b.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := sb.Close(ctx); err != nil {
				b.t.Errorf("closing: %v", err)
			}
		})
	}
	return sb, err
}

func (b *faulty) open() *faulty {
	b.t.Helper()
	sb, err := b.tryOpen("")
	if err != nil {
		b.t.Fatal(err)
	}
	b.sb = sb
	return b
}

func (b *faulty) session(name string) *elsewhere.Session {
	b.t.Helper()
	s, err := b.sb.Session(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *faulty) try(s *elsewhere.Session, command string) (*elsewhere.Result, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	return s.Run(ctx, command, nil)
}

// run runs a command that ends with 0.
func (b *faulty) run(s *elsewhere.Session, command string) *elsewhere.Result {
	b.t.Helper()
	res, err := b.try(s, command)
	if err != nil {
		b.t.Fatalf("%s: %v", command, err)
	}
	if res.ExitCode != 0 {
		b.t.Fatalf("%s: %s %d %s %q", command, res.Cause, res.ExitCode, res.Output, res.Notices)
	}
	return res
}

// says runs a command that prints this.
func (b *faulty) says(s *elsewhere.Session, command, want string) *elsewhere.Result {
	b.t.Helper()
	res := b.run(s, command)
	if got := string(res.Output); got != want {
		b.t.Errorf("%s: %q, want %q (recreated %q, notices %q)", command, got, want, res.Recreated, res.Notices)
	}
	return res
}

// found is says for a call that may find its sandbox gone: where it fails as lost, because a bash that waited may have got
// the command, the next one does.
func (b *faulty) found(s *elsewhere.Session, command, want string) *elsewhere.Result {
	b.t.Helper()
	res, err := b.try(s, command)
	if err == nil && string(res.Output) == want {
		return res
	}
	if err != nil {
		wantError(b.t, err, []error{elsewhere.ErrLost})
	}
	return b.says(s, command, want)
}

func (b *faulty) flush(s *elsewhere.Session) {
	b.t.Helper()
	if err := s.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// look runs a bash script in the sandbox's container by the engine alone.
func (b *faulty) look(script string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	seen, err := observeByExec(ctx, b.eng, b.sb.Info().SandboxID, "0", nil, "bash", "-c", script)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(seen.Stdout)
}

// await looks again and again until something is so.
func (b *faulty) await(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) { // between two looks
		if time.Now().After(deadline) {
			b.t.Fatalf("still not so: %s", what)
		}
	}
}

// awaitWaitingBash waits until a bash waits in the container for the next call, beside the watchdog.
func (b *faulty) awaitWaitingBash() {
	b.t.Helper()
	b.await("a bash waits for the next call", func() bool {
		found, err := b.eng.ContainerInspect(b.t.Context(), b.sb.Info().SandboxID, client.ContainerInspectOptions{})
		return err == nil && len(found.Container.ExecIDs) >= 2
	})
}

// wantError wants one line of one of these kinds that speaks of these words.
func wantError(t testing.TB, err error, kinds []error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; wanted is one that speaks of %q", words)
	}
	fits := false
	for _, kind := range kinds {
		fits = fits || errors.Is(err, kind)
	}
	if !fits || strings.Contains(err.Error(), "\n") {
		t.Errorf("not %v in one line: %v", kinds, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it does not speak of %q: %v", word, err)
		}
	}
}

// within fails the test when something took longer than it may, with ten seconds for a machine that is busy.
func within(t *testing.T, what string, since time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(since); took > limit+10*time.Second {
		t.Errorf("%s took %v", what, took)
	}
}

// TestAnEngineThatIsStartedAgain: SPEC 1.14 with the engine itself ended by TERM, which stops its containers, and by KILL.
func TestAnEngineThatIsStartedAgain(t *testing.T) {
	e := newPrivateEngine(t, "128m")
	for _, signal := range []string{"TERM", "KILL"} {
		t.Run("by "+signal+", and a call while it is down", func(t *testing.T) { engineIsDown(t, e, signal) })
		t.Run("by "+signal+" between two calls", func(t *testing.T) { engineRestartsBetween(t, e, signal) })
		t.Run("by "+signal+" under a call", func(t *testing.T) { engineRestartsUnder(t, e, signal) })
	}
	t.Run("what survives it", func(t *testing.T) { engineCrashes(t, e) })
}

// engineCrashes holds what is left after a KILL of dockerd against the table of docs/survival.md.
func engineCrashes(t *testing.T, e *privateEngine) {
	h := harness()
	h.Only = []string{"survival/what the table says is there after the event, and what it says is gone: " + string(survival.EngineCrash)}
	h.Place = func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place {
		b := on(t, e.Client)
		return &drivertest.Place{
			HermesHome: b.home, Environ: append(b.environ, spec.Environ...), Settings: b.flags, Home: "/root",
			Crash: func(context.Context, driver.Info) error {
				e.stop("KILL")
				e.start()
				return nil
			},
		}
	}
	drivertest.Run(t, h)
}

func engineIsDown(t *testing.T, e *privateEngine, signal string) {
	b := on(t, e.Client).open()
	s, named := b.session(""), b.session("dev")
	where := b.run(s, `echo one >>/calls; export A=1; cd /tmp`).Where
	b.run(named, `export A=1; cd /tmp`)
	b.flush(s)
	b.flush(named)
	b.awaitWaitingBash()
	e.stop(signal)
	for i := range 3 {
		begin := time.Now()
		_, err := b.try(s, `echo down >>/calls`)
		kinds := []error{elsewhere.ErrUnavailable}
		if i == 0 {
			kinds = append(kinds, elsewhere.ErrLost) // a bash that waited may have got the command
		}
		wantError(t, err, kinds, e.host())
		within(t, "a call while the engine is down", begin, told)
	}
	begin := time.Now()
	_, err := b.tryOpen("")
	wantError(t, err, []error{elsewhere.ErrUnavailable}, e.host(), "DOCKER_HOST")
	within(t, "opening while the engine is down", begin, told)

	e.start()
	res := b.says(s, `echo two >>/calls; echo "${A-unset}"`, "unset\n")
	if !strings.Contains(res.Recreated, "stopped") || res.Where != where {
		t.Errorf("recreated %q in %v, was in %v", res.Recreated, res.Where, where)
	}
	if !strings.Contains(strings.Join(res.Notices, " "), "its files are there") {
		t.Errorf("the notices do not say what is lost: %q", res.Notices)
	}
	if res := b.says(s, `while read -r l; do echo "$l"; done </calls`, "one\ntwo\n"); res.Recreated != "" {
		t.Errorf("said twice: %q", res.Recreated)
	}
	res = b.says(named, `echo "${A-unset}"`, "unset\n")
	if res.Recreated == "" || !strings.Contains(strings.Join(res.Notices, " "), "earlier state") {
		t.Errorf("a named session: recreated %q, notices %q", res.Recreated, res.Notices)
	}
}

func engineRestartsBetween(t *testing.T, e *privateEngine, signal string) {
	b := on(t, e.Client).open()
	s := b.session("")
	where := b.run(s, `echo one >>/calls; export A=1`).Where
	b.flush(s)
	b.awaitWaitingBash()
	e.stop(signal)
	e.start()
	begin := time.Now()
	res := b.found(s, `echo two >>/calls; echo "${A-unset}"`, "unset\n")
	within(t, "the call that finds it", begin, told)
	if res.Recreated == "" || res.Where != where {
		t.Errorf("recreated %q in %v, was in %v", res.Recreated, res.Where, where)
	}
	b.says(s, `while read -r l; do echo "$l"; done </calls`, "one\ntwo\n")
}

func engineRestartsUnder(t *testing.T, e *privateEngine, signal string) {
	b := on(t, e.Client).open()
	s := b.session("")
	b.run(s, `:`)
	type end struct {
		res *elsewhere.Result
		err error
	}
	ended := make(chan end, 1)
	go func() {
		res, err := b.try(s, `echo early; echo one >>/calls; read -t 100000 <> <(:)`)
		ended <- end{res, err}
	}()
	b.await("the command runs", func() bool { return b.look(`[[ -s /calls ]] && echo yes`) == "yes\n" })
	e.stop(signal)
	begin := time.Now()
	call := <-ended
	within(t, "the end of the call under way", begin, told)
	wantError(t, call.err, []error{elsewhere.ErrLost}, "docker")
	if r := call.res; r == nil || r.Cause != elsewhere.Lost || r.ExitCode != -1 || string(r.Output) != "early\n" {
		t.Errorf("the result is %+v", call.res)
	}
	e.start()
	if res := b.found(s, `while read -r l; do echo "$l"; done </calls`, "one\n"); res.Recreated == "" {
		t.Errorf("not said: %q", res.Notices)
	}
}

// eat takes memory until there is no more. The memory is bash's own.
const eat = `x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done`

// fill writes a file until there is no more room.
func fill(file string) string { return `while printf '%1000000s' x; do :; done >` + file }

// memoryLimited opens a sandbox that has 64 MiB, or skips the test where the engine cannot limit memory.
func memoryLimited(t *testing.T) *faulty {
	eng := testEngine(t)
	needImage(t, eng, imageBashOnly)
	info, err := eng.Info(t.Context(), client.InfoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !info.Info.MemoryLimit {
		t.Skip("the engine has no controller for memory")
	}
	return on(t, eng, "container_memory", "64").open()
}

// TestACommandThatRunsOutOfMemoryIsToldWhichSettingHasMore: the command alone is ended, and one that somebody else kills is not
// taken for it.
func TestACommandThatRunsOutOfMemoryIsToldWhichSettingHasMore(t *testing.T) {
	b := memoryLimited(t)
	s := b.session("")
	where := b.run(s, `export A=1`).Where
	b.flush(s)
	for _, c := range []struct {
		command string
		memory  bool
	}{
		{`kill -KILL $$`, false},
		{eat, true},
		{`bash -c 'kill -KILL $$'; exit $?`, false},
		{`bash -c '` + eat + `'; exit $?`, true}, // in a child, as mostly
		{`exit 137`, false},
	} {
		res, err := b.try(s, c.command)
		if err != nil {
			t.Fatalf("%s: %v", c.command, err)
		}
		if res.ExitCode != 137 || strings.Contains(res.ExitMeaning, "container_memory is 64MiB: raise it") != c.memory {
			t.Errorf("%s: %s %d means %q", c.command, res.Cause, res.ExitCode, res.ExitMeaning)
		}
	}
	if res := b.says(s, `echo "$A"`, "1\n"); res.Recreated != "" || res.Where != where {
		t.Errorf("recreated %q: %v, was %v", res.Recreated, res.Where, where)
	}
	// Another process's sandbox does not take for new what it did not see.
	b.open()
	other := b.session("")
	if res, err := b.try(other, `kill -KILL $$`); err != nil || strings.Contains(res.ExitMeaning, "container_memory") {
		t.Errorf("%v, %q", err, res.ExitMeaning)
	}
}

// TestAContainerThatRunsOutOfMemoryIsStartedAgain: a /tmp takes memory that is no process's own, and the kernel picks the
// container's first one.
func TestAContainerThatRunsOutOfMemoryIsStartedAgain(t *testing.T) {
	b := memoryLimited(t)
	s := b.session("")
	where := b.run(s, `export A=1`).Where
	b.flush(s)
	res, err := b.try(s, `echo one >>/calls; echo 1000 >/proc/1/oom_score_adj; `+fill("/tmp/full"))
	wantError(t, err, []error{elsewhere.ErrLost}, "stopped", "memory", "container_memory is 64MiB: raise it")
	if res == nil || res.Cause != elsewhere.Lost {
		t.Errorf("the result is %+v", res)
	}
	res = b.found(s, `echo "${A-unset}"`, "unset\n")
	if !strings.Contains(res.Recreated, "container_memory is 64MiB: raise it") || res.Where != where {
		t.Errorf("recreated %q in %v, was in %v", res.Recreated, res.Where, where)
	}
	b.says(s, `while read -r l; do echo "$l"; done </calls`, "one\n")
}

// TestD02AProcessLimitThatIsMetIsNamed: threads count too, and what a command left in the background counts for the next one.
func TestD02AProcessLimitThatIsMetIsNamed(t *testing.T) {
	eng := testEngine(t)
	needImage(t, eng, imageDebian)
	info, err := eng.Info(t.Context(), client.InfoOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !info.Info.PidsLimit {
		t.Skip("the engine has no controller for processes")
	}
	b := on(t, eng, "docker_image", imageDebian, "docker_pids_limit", "30", "spawn_ahead", "0").open()
	s := b.session("")
	const named = "docker_pids_limit is 30: end what runs in it, or raise the limit"
	if res, err := b.try(s, `exit 254`); err != nil || res.ExitCode != 254 || strings.Contains(res.ExitMeaning, named) {
		t.Errorf("a command's own 254: %+v, %v", res, err)
	}
	b.says(s, `python3 -c '
import threading, time
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError:
    open("/tmp/full", "w").write("full")
time.sleep(1000)' >/dev/null 2>&1 &
until [[ -s /tmp/full ]]; do read -t 0.1 <> <(:); done 2>/dev/null; echo full`, "full\n")
	res, err := b.try(s, `pwd; /bin/true`) // bash tries for 15 s
	if err != nil || res.ExitCode != 254 || !strings.Contains(string(res.Output), "fork") || !strings.Contains(res.ExitMeaning, named) {
		t.Errorf("%+v, %v: %s", res, err, res.Output)
	}
}

// TestAnImageThatIsDeleted: a container needs its image only to be made.
func TestAnImageThatIsDeleted(t *testing.T) {
	e := newPrivateEngine(t, "128m")
	registry := e.registry() // answers only while images are pushed and pulled
	image := registry + "/" + imageBashOnly
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e.push(ctx, imageBashOnly, image)
	deleted := func() {
		t.Helper()
		if _, err := e.ImageRemove(ctx, image, client.ImageRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.ImageInspect(ctx, image); err == nil {
			t.Fatal("the image is still there")
		}
	}
	b := on(t, e.Client, "docker_image", image).open()
	s := b.session("")
	where := b.run(s, `export A=1; echo one >/file`).Where
	e.stopRegistry()

	t.Run("under a container that runs", func(t *testing.T) {
		b := b.in(t)
		deleted()
		b.says(s, `echo "$A"`, "1\n")
		// Another process finds the container too, without a registry to ask.
		b.open()
		res := b.says(b.session(""), `echo "$(</file)"`, "one\n")
		if res.Where != where {
			t.Errorf("in %v, was in %v", res.Where, where)
		}
	})
	t.Run("under a container that is stopped", func(t *testing.T) {
		b := b.in(t)
		if _, err := e.ContainerStop(ctx, where.SandboxID, client.ContainerStopOptions{}); err != nil {
			t.Fatal(err)
		}
		res := b.found(s, `echo "$(</file)"`, "one\n")
		if res.Recreated == "" || res.Where != where {
			t.Errorf("recreated %q in %v, was in %v", res.Recreated, res.Where, where)
		}
		if _, err := e.ContainerStop(ctx, where.SandboxID, client.ContainerStopOptions{}); err != nil {
			t.Fatal(err)
		}
		b.open()
		b.says(b.session(""), `echo "$(</file)"`, "one\n")
	})
	t.Run("and the container with it: it is pulled again", func(t *testing.T) {
		b := b.in(t)
		e.registry()
		if _, err := e.ContainerRemove(ctx, where.SandboxID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		res := b.found(s, `[[ -e /file ]] || echo new`, "new\n")
		if res.Recreated == "" || res.Where == where {
			t.Errorf("recreated %q in %v", res.Recreated, res.Where)
		}
		where = res.Where
	})
	t.Run("and the container with it, where no registry answers", func(t *testing.T) {
		b := b.in(t)
		e.stopRegistry()
		if _, err := e.ContainerRemove(ctx, where.SandboxID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		deleted()
		for range 2 {
			begin := time.Now()
			_, err := b.try(s, `echo never >/file`)
			if errors.Is(err, elsewhere.ErrLost) {
				_, err = b.try(s, `echo never >/file`)
			}
			wantError(t, err, []error{elsewhere.ErrUnavailable}, image, registry, "docker load")
			within(t, "a call without an image", begin, told)
		}
		left, err := e.ContainerList(ctx, client.ContainerListOptions{All: true})
		if err != nil || len(left.Items) > 0 {
			t.Errorf("left behind: %v, %v", left.Items, err)
		}
		// The next step that it names works.
		e.load(testEngine(t), imageBashOnly)
		if _, err := e.ImageTag(ctx, client.ImageTagOptions{Source: imageBashOnly, Target: image}); err != nil {
			t.Fatal(err)
		}
		if res := b.says(s, `[[ -e /file ]] || echo new`, "new\n"); res.Recreated == "" {
			t.Error("not said that it is a new one")
		}
	})
}

// in gives the same home to a subtest.
func (b *faulty) in(t *testing.T) *faulty {
	other := *b
	other.t = t
	return &other
}

// TestADiskThatIsFull: the engine's disk, and the room for state, which is a tmpfs of the container's own.
func TestADiskThatIsFull(t *testing.T) {
	e := newPrivateEngine(t, "48m")
	b := on(t, e.Client).open()
	s := b.session("")
	b.run(s, `export A=1`)
	b.flush(s)

	res, err := b.try(s, fill("/full"))
	if err != nil || !strings.Contains(string(res.Output), "No space left on device") {
		t.Fatalf("%+v, %v", res, err)
	}
	t.Run("a call sees its own error, and the next ones work", func(t *testing.T) {
		b := b.in(t)
		res, err := b.try(s, `echo more >/more`)
		if err != nil || res.ExitCode != 1 || !strings.Contains(string(res.Output), "No space left on device") {
			t.Errorf("%+v, %v", res, err)
		}
		b.says(s, `export A=2; echo "$A"`, "2\n")
		if res := b.says(s, `echo "$A"`, "2\n"); len(res.Notices) > 0 || !res.StateSaved {
			t.Errorf("state has room of its own: %q", res.Notices)
		}
	})
	t.Run("a new sandbox is refused with the way out, and nothing is left of it", func(t *testing.T) {
		b := b.in(t)
		before := b.containers()
		for range 2 {
			begin := time.Now()
			_, err := b.tryOpen("other")
			wantError(t, err, []error{elsewhere.ErrUnavailable}, "no space left on device", "docker system prune", e.host())
			within(t, "making a container on a full disk", begin, told)
		}
		if after := b.containers(); after != before {
			t.Errorf("there were %d containers, and there are %d", before, after)
		}
	})
	t.Run("state that cannot be written is told", func(t *testing.T) {
		b := b.in(t)
		if res, err := b.try(s, fill("/run/elsewhere/full")+"; "+fill("/run/elsewhere/state/full")+"; export A=3 B; printf -v B '%100000s' x"); err != nil {
			t.Errorf("%+v, %v", res, err)
		}
		res := b.run(s, `echo "$A"`)
		if string(res.Output) != "2\n" || !strings.Contains(strings.Join(res.Notices, "\n"), "not saved") {
			t.Errorf("%q, notices %q", res.Output, res.Notices)
		}
		b.run(s, `: >/run/elsewhere/full; : >/run/elsewhere/state/full`)
		b.run(s, `export A=4`)
		b.says(s, `echo "$A"`, "4\n")
	})
	t.Run("once there is room again all is well", func(t *testing.T) {
		b := b.in(t)
		b.run(s, `: >/full; echo more >/more`)
		sb, err := b.tryOpen("other")
		if err != nil {
			t.Fatal(err)
		}
		other := *b
		other.sb = sb
		other.says(other.session(""), `echo fine`, "fine\n")
	})
}

// containers counts the containers of the engine.
func (b *faulty) containers() int {
	b.t.Helper()
	list, err := b.eng.ContainerList(b.t.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list.Items)
}

// TestAContainerThatAnotherProcessStartedAgain: it runs when its first user looks, and is another one all the same: state,
// waiting shells and the watchdog are gone.
func TestAContainerThatAnotherProcessStartedAgain(t *testing.T) {
	eng := testEngine(t)
	needImage(t, eng, imageDebian)
	for _, c := range []struct{ name, session string }{{"a session of this process", ""}, {"a named session", "dev"}} {
		t.Run(c.name, func(t *testing.T) {
			b := on(t, eng, "docker_image", imageDebian).open()
			s := b.session(c.session)
			b.run(s, `export A=1; cd /usr`)
			b.flush(s)
			b.awaitWaitingBash()
			if _, err := eng.ContainerStop(t.Context(), b.sb.Info().SandboxID, client.ContainerStopOptions{}); err != nil {
				t.Fatal(err)
			}
			other := b.in(t).open()
			other.says(other.session(""), `echo fine`, "fine\n")
			res := b.found(s, `echo "${A-unset}"; export B=2`, "unset\n")
			if !strings.Contains(res.Recreated, "started again") {
				t.Errorf("recreated %q, notices %q", res.Recreated, res.Notices)
			}
			b.flush(s)
			if res := b.says(s, `echo "$B"`, "2\n"); res.Recreated != "" || len(res.Notices) > 0 {
				t.Errorf("recreated %q, notices %q", res.Recreated, res.Notices)
			}
		})
	}
}

// TestAProcessOfAnotherUserIsASurvivor: SPEC 1.12; a kill has no more rights than the call had, and the result says what is left.
func TestAProcessOfAnotherUserIsASurvivor(t *testing.T) {
	eng := testEngine(t)
	needImage(t, eng, imageDebian)
	b := on(t, eng, "docker_image", imageDebian).open()
	s := b.session("")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := s.Run(ctx, `setpriv --reuid=1234 --clear-groups sleep 1000 & wait`, &elsewhere.RunOptions{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if res.Cause != elsewhere.TimedOut {
		t.Fatalf("ended by %s with %d: %s", res.Cause, res.ExitCode, res.Output)
	}
	if len(res.Survivors) > 0 {
		if got := b.look(fmt.Sprintf(`tr '\0' ' ' </proc/%d/cmdline`, res.Survivors[0].PID)); got != "sleep 1000 " {
			t.Errorf("survivors %v; that is %q", res.Survivors, got)
		}
		return
	}
	if !strings.Contains(strings.Join(res.Notices, "\n"), "not confirmed") {
		t.Fatalf("a process that could not be ended is no survivor, and nothing says so: notices %q", res.Notices)
	}
	// The answer has a second, which is short for a machine that is busy: then a later result says what is left.
	late := ""
	for deadline := time.Now().Add(patience); !strings.Contains(late, res.CallID); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no later result tells what became of the call")
		}
		late = strings.Join(b.run(s, `:`).Notices, "\n")
	}
	if !strings.Contains(late, "have ended now, but for 1") {
		t.Errorf("a process that could not be ended is no survivor: %q", late)
	}
}

// TestAHomeThatKeepsNoIdentityLeavesNoContainer: with an identity of this run alone nobody would find it again.
func TestAHomeThatKeepsNoIdentityLeavesNoContainer(t *testing.T) {
	eng := testEngine(t)
	needImage(t, eng, imageBashOnly)
	b := on(t, eng)
	if err := errors.Join(os.RemoveAll(filepath.Join(b.home, "elsewhere")), os.WriteFile(filepath.Join(b.home, "elsewhere"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	task := "nobodys-" + owner.NewID()[:8]
	sb, err := b.tryOpen(task)
	if err != nil {
		t.Fatal(err)
	}
	b.sb = sb
	res := b.says(b.session(""), "echo fine", "fine\n")
	if !strings.Contains(strings.Join(res.Notices, "\n"), "goes with this run") {
		t.Errorf("it is not said: %q", res.Notices)
	}
	containers := func() int {
		list, err := eng.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "hermes-task-id="+task)})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	if n := containers(); n != 1 {
		t.Errorf("there are %d containers", n)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := containers(); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}
