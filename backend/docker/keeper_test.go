package docker

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

func keeperOf(t testing.TB, req driver.OpenRequest) *keeper {
	t.Helper()
	k, err := openKeeper(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k.(*keeper)
}

func TestTheKeeperListsInspectsStopsAndRemoves(t *testing.T) {
	w := newWorld(t)
	first := w.open(w.request("first\n"))
	second := w.open(w.request("second", "docker_persist_across_processes", "false"))
	w.close(first)
	k := keeperOf(t, w.request("whatever"))
	list, err := k.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	byTask := map[string]driver.SandboxInfo{list[0].Task: list[0], list[1].Task: list[1]}
	a, b := byTask["first\n"], byTask["second"]
	if a.ID != first.info.SandboxID || a.Name != first.plan.name || a.State != driver.StateRunning || !a.Persistent || a.InUse || !strings.Contains(a.Image, testImage) || time.Since(a.Created) > time.Hour || len(a.Data) == 0 {
		t.Errorf("the first is listed as %+v", a)
	}
	if b.ID != second.info.SandboxID || b.Persistent || !b.InUse {
		t.Errorf("the second is listed as %+v", b)
	}

	for _, s := range []*sandbox{first, second} {
		d, err := k.Inspect(t.Context(), s.info.SandboxID)
		if err != nil || d.Exposure == nil || !reflect.DeepEqual(*d.Exposure, s.info.Exposure) {
			t.Errorf("what is in it: %+v, %v, want %+v", d.Exposure, err, s.info.Exposure)
		}
	}
	d, err := k.Inspect(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d.User != "root" || d.Host == "" || d.Started.IsZero() || !strings.HasPrefix(d.ImageID, "sha256:") || d.Processes < 1 || d.ID != b.ID {
		t.Errorf("it is inspected as %+v", d)
	}
	if !slices.ContainsFunc(d.Mounts, func(m string) bool { return strings.HasPrefix(m, "tmpfs on "+stateRoot+" (rw") }) {
		t.Errorf("mounts %q", d.Mounts)
	}
	for _, name := range []string{"capabilities", "no-new-privileges", "limit: pids", "limit: memory", "root file system", "network", "data", "processes"} {
		// Said in the same words by who asked for it and by who looks at the engine.
		same := func(f driver.Feature) bool { return f.Name == name }
		asked, found := slices.IndexFunc(second.info.Features, same), slices.IndexFunc(d.Features, same)
		if asked < 0 || found < 0 || second.info.Features[asked].State != d.Features[found].State {
			t.Errorf("%s: asked for %+v, found %+v", name, second.info.Features, d.Features)
		}
	}
	if _, err := k.Inspect(t.Context(), "nosuch"); err == nil || classify(err) != driver.KindLost {
		t.Errorf("a container that is not there: %v", err)
	}

	for range 2 {
		if err := k.Stop(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := k.Inspect(t.Context(), a.ID); err != nil || d.State != driver.StateStopped || !d.Started.IsZero() || d.Processes != 0 {
		t.Errorf("stopped it is %+v, %v", d, err)
	}
	if again := w.open(w.request("first\n")); again.info.SandboxID != a.ID {
		t.Error("a stopped one is not started again")
	} else {
		output(t, again, `echo data >/root/file`)
		w.close(again)
	}
	if _, err := w.eng.ContainerPause(t.Context(), a.ID, client.ContainerPauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if d, err := k.Inspect(t.Context(), a.ID); err != nil || d.State != driver.StatePaused {
		t.Errorf("paused it is %+v, %v", d, err)
	}
	if err := k.Stop(t.Context(), a.ID); err != nil {
		t.Errorf("stopping a paused one: %v", err)
	}

	removed, err := k.Remove(t.Context(), a.ID, false)
	if err != nil || len(removed) != 1 || !strings.Contains(removed[0], a.Name) {
		t.Errorf("removed %q, %v", removed, err)
	}
	if text, err := os.ReadFile(filepath.Join(a.Data[0], "file")); err != nil || string(text) != "data\n" {
		t.Errorf("the data is gone: %q, %v", text, err)
	}
	if removed, err := k.Remove(t.Context(), a.ID, true); err != nil || len(removed) != 0 {
		t.Errorf("removed again: %q, %v", removed, err)
	}
	again := w.open(w.request("first\n"))
	if got := output(t, again, `cat /root/file`); got != "data" {
		t.Errorf("the data is not there again: %q", got)
	}
	w.close(again)
	removed, err = k.Remove(t.Context(), again.info.SandboxID, true)
	if err != nil || len(removed) < 2 {
		t.Errorf("removed %q, %v", removed, err)
	}
	if _, err := os.Stat(a.Data[0]); !os.IsNotExist(err) {
		t.Errorf("the data is still there: %v", err)
	}
}

func TestTheReaperRemovesWhatNobodyWants(t *testing.T) {
	w := newWorld(t)
	// Three of a dead owner, and one of this process.
	lease, err := owner.Acquire(w.home)
	if err != nil {
		t.Fatal(err)
	}
	orphan := func(task string, settings ...string) *sandbox {
		req := w.request(task, settings...)
		req.Identity.Owner = lease.ID
		return w.open(req)
	}
	none := []string{"docker_persist_across_processes", "false", "docker_orphan_reaper", "false"}
	dead, used, kept := orphan("dead", none...), orphan("used", none...), orphan("kept", "docker_orphan_reaper", "false")
	mine, stopped := w.open(w.request("mine", none...)), w.open(w.request("stopped", none...))
	elsewhere := w.request("elsewhere", none...)
	elsewhere.Identity.Machine, elsewhere.Identity.Owner = "another machine", owner.NewID()
	far := w.open(elsewhere)
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*sandbox{dead, kept, far, stopped} {
		s.giveUp() // as the kernel does for a process that is gone
	}
	if _, err := w.eng.ContainerStop(t.Context(), stopped.id, client.ContainerStopOptions{}); err != nil {
		t.Fatal(err)
	}
	k := keeperOf(t, w.request("x"))
	removed, err := k.Reap(t.Context())
	if err != nil || !slices.Equal(removed, []string{"dead"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	eventually(t, "stopped for twice the lifetime", func() bool { return time.Since(stoppedAt(t, w, stopped.id)) > 2*time.Second })
	k = keeperOf(t, w.request("x", "lifetime_seconds", "1"))
	removed, err = k.Reap(t.Context())
	if err != nil || !slices.Equal(removed, []string{"stopped"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	left := w.containers()
	for _, s := range []*sandbox{used, kept, mine, far} {
		if !slices.Contains(left, s.id) {
			t.Errorf("%s is gone", s.req.Task)
		}
	}
	w.removeContainer(far.id)
}

// TestAThrowAwayContainerGoesAfterItsProcessWasKilled: nobody else could find it by its identity.
func TestAThrowAwayContainerGoesAfterItsProcessWasKilled(t *testing.T) {
	w := newWorld(t)
	throwAway := func(temp string) (*sandbox, *owner.Lease) {
		t.Setenv("TMPDIR", temp) // where its lease is
		lease, err := owner.Acquire("")
		if err != nil {
			t.Fatal(err)
		}
		req := w.request("away", "docker_orphan_reaper", "false")
		req.ThrowAway, req.Identity.Home, req.Identity.Owner = true, "", lease.ID
		return w.open(req), lease
	}
	temp := t.TempDir()
	far, farLease := throwAway(t.TempDir()) // what is known of its owner is known elsewhere
	living, livingLease := throwAway(temp)
	swept, sweptLease := throwAway(temp)
	killed, killedLease := throwAway(temp)
	defer livingLease.Release()
	for _, lease := range []*owner.Lease{farLease, sweptLease, killedLease} {
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
	}
	// A lease that was swept away with other old files, of a process that lives.
	head := `IFS= read -r -N 5 BASH_EXECUTION_STRING 2>/dev/null || IFS= read -r -d "" BASH_EXECUTION_STRING; eval "$BASH_EXECUTION_STRING"`
	if _, err := swept.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"--noprofile", "--norc", "-p", "-c", head}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its watchdog is there", func() bool { return watched(t.Context(), swept.eng, swept.id, nil) })
	removed, err := keeperOf(t, w.request("x")).Reap(t.Context())
	if err != nil || !slices.Equal(removed, []string{"away"}) {
		t.Errorf("removed %q, %v", removed, err)
	}
	left := w.containers()
	if slices.Contains(left, killed.id) || !slices.Contains(left, far.id) || !slices.Contains(left, living.id) || !slices.Contains(left, swept.id) {
		t.Errorf("left are %q", left)
	}
	// The next throw-away process removes it too.
	again, lease := throwAway(temp)
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	req := w.request("next")
	req.ThrowAway, req.Identity.Home, req.Identity.Owner = true, "", owner.NewID()
	w.open(req)
	eventually(t, "it is gone", func() bool { return !slices.Contains(w.containers(), again.id) })
}

func TestWhatWasMadeToLookIntoAnImageGoesLater(t *testing.T) {
	w := newWorld(t)
	look, err := w.eng.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{
		Image: testImage, Entrypoint: []string{"/"}, Labels: map[string]string{labelAgent: lookAgent, labelLeases: owner.Tag(w.home)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.removeContainer(look.ID)
	there := func() bool {
		_, err := w.eng.ContainerInspect(t.Context(), look.ID, client.ContainerInspectOptions{})
		return err == nil
	}
	if err := keeperOf(t, newWorld(t).request("x")).reapLooks(t.Context(), 0); err != nil || !there() {
		t.Errorf("another home's was removed, or %v", err)
	}
	k := keeperOf(t, w.request("x"))
	if _, err := k.Reap(t.Context()); err != nil || !there() {
		t.Errorf("a new one was removed, or %v", err)
	}
	eventually(t, "one that is older goes", func() bool {
		if err := k.reapLooks(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		return !there()
	})
}

func stoppedAt(t *testing.T, w *world, id string) time.Time {
	t.Helper()
	found, err := w.eng.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339Nano, found.Container.State.FinishedAt)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAnOpeningReapsOnceAnHour(t *testing.T) {
	w := newWorld(t)
	make := func() *sandbox {
		req := w.request("orphan", "docker_persist_across_processes", "false", "docker_orphan_reaper", "false")
		req.Identity.Owner = owner.NewID() // without a lease: nobody's
		s := w.open(req)
		s.giveUp()
		return s
	}
	orphan := make()
	w.open(w.request("first"))
	eventually(t, "the orphan is gone", func() bool { return !slices.Contains(w.containers(), orphan.id) })
	orphan = make()
	second := w.open(w.request("second"))
	w.close(second) // waits for what runs behind
	if !slices.Contains(w.containers(), orphan.id) {
		t.Error("it was reaped again within the hour")
	}
	stamp := filepath.Join(w.home, "elsewhere", "docker-reaped")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(stamp, old, old); err != nil {
		t.Fatal(err)
	}
	w.open(w.request("third"))
	eventually(t, "the orphan is gone", func() bool { return !slices.Contains(w.containers(), orphan.id) })
}

func TestStateFiles(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("state"))
	info := s.Info()
	if got := output(t, s, `stat -c '%a %U' "`+info.StateDir+`" "`+info.PrivateDir+`"`); got != "700 root\n700 root" {
		t.Errorf("modes are %q", got)
	}
	output(t, s, `cd "`+info.StateDir+`"; mkdir sub; printf '# one\nmore' >a; printf 'no newline' >sub/b; : >"c d"$'\n'; ln -s /etc/passwd link; printf '%0300d' 1 >long`)
	if files, err := s.ListState(t.Context(), info.StateDir); err != nil || len(files) != 0 {
		t.Errorf("at the opening there were %v, %v", files, err)
	}
	files, err := s.ListState(t.Context(), info.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	heads := map[string]string{}
	for _, f := range files {
		heads[strings.TrimPrefix(f.Path, info.StateDir+"/")] = f.Head
	}
	if len(heads) != 4 || heads["a"] != "# one" || heads["sub/b"] != "no newline" || heads["c d\n"] != "" || len(heads["long"]) != 256 {
		t.Errorf("listed %q", heads)
	}
	if err := s.RemoveState(t.Context(), []string{info.StateDir + "/a", info.StateDir + "/c d\n", info.StateDir + "/never"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "they are gone", func() bool {
		files, err := s.ListState(t.Context(), info.StateDir)
		return err == nil && len(files) == 2
	})
	for _, path := range []string{"/etc/passwd", info.StateDir, info.StateDir + "/../x", info.StateDir + "/./a", "a", ""} {
		if err := s.RemoveState(t.Context(), []string{path}); err == nil || classify(err) != driver.KindDenied {
			t.Errorf("removing %q: %v", path, err)
		}
	}
	if _, err := s.ListState(t.Context(), "/etc"); err == nil {
		t.Error("/etc was listed")
	}
	var many []string
	for range 3 * statescript.Batch {
		many = append(many, info.PrivateDir+"/"+owner.NewID())
	}
	output(t, s, `: >"`+info.PrivateDir+`/x"`)
	if err := s.RemoveState(t.Context(), append(many, info.PrivateDir+"/x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a batch is removed at once", func() bool {
		files, err := s.ListState(t.Context(), info.PrivateDir)
		return err == nil && len(files) == 0
	})
	again := w.open(w.request("state"))
	w.close(s)
	if got := output(t, again, `cd `+stateRoot+`; echo *; ls state`); !strings.Contains(got, "long") || strings.Contains(got, filepath.Base(info.PrivateDir)+" "+filepath.Base(info.PrivateDir)) {
		t.Errorf("after the close there is %q", got)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Errorf("a second close: %v", err)
	}
	if _, err := s.Bash(context.Background(), driver.BashSpec{ID: owner.NewID()}); err == nil || classify(err) != driver.KindLost {
		t.Errorf("a bash of a closed one: %v", err)
	}
}

func TestImagesOfEveryKindCanBeEntered(t *testing.T) {
	for image, want := range map[string]string{
		"elsewhere-test/user":           "someone /home/someone",
		"elsewhere-test/nonroot-nohome": "4242 /home/elsewhere",
		"elsewhere-test/noprocps":       "root /root",
		"elsewhere-test/bash-only":      "0 /root",
	} {
		t.Run(image, func(t *testing.T) {
			w := newWorld(t)
			if _, err := w.eng.ImageInspect(t.Context(), image); err != nil {
				t.Skipf("there is no image %s: test/testbed/docker.sh makes it", image)
			}
			s := w.open(w.request("image", "docker_image", image))
			if got := s.info.User + " " + s.info.Home; got != want {
				t.Errorf("user and home are %q, want %q", got, want)
			}
			for _, dir := range []string{s.info.StateDir, s.info.PrivateDir} {
				if got := output(t, s, `: >"`+dir+`/x" && [[ -O `+dir+`/x ]] && echo fine`); got != "fine" {
					t.Errorf("%s cannot be used: %q", dir, got)
				}
			}
			p := bash(t, s, `read -r x; echo "<$x>"`)
			_, _ = p.Stdin().Write([]byte("hi\n"))
			if status, err := ended(t, p); err != nil || status.Code != 0 {
				t.Errorf("%+v, %v", status, err)
			}
			if err := s.RemoveState(t.Context(), []string{s.info.PrivateDir + "/x"}); err != nil {
				t.Error(err)
			}
			eventually(t, "a state file is removed or emptied", func() bool {
				return output(t, s, `[[ -s "`+s.info.PrivateDir+`/x" ]] || echo gone`) == "gone"
			})
			p = bash(t, s, `trap '' TERM; echo up; read -r _`)
			if err := p.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := ended(t, p); err != nil {
				t.Error(err)
			}
		})
	}
}
