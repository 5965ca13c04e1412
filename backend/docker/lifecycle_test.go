package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// otherImage is the same image by another name: a setting that differs.
func otherImage(t testing.TB, w *world) string {
	t.Helper()
	name := "elsewhere-test/other-" + owner.NewID()[:8]
	if _, err := w.eng.ImageTag(t.Context(), client.ImageTagOptions{Source: testImage, Target: name}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = w.eng.ImageRemove(context.Background(), name, client.ImageRemoveOptions{})
	})
	return name
}

func TestAContainerIsFoundAgainInEveryState(t *testing.T) {
	w := newWorld(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first := w.open(w.request("states"))
	id := first.id
	output(t, first, `echo mine >/marker`)
	w.close(first)
	again := func() string {
		t.Helper()
		s := w.open(w.request("states"))
		defer w.close(s)
		return s.id + " " + output(t, s, `cat /marker 2>/dev/null || echo new`)
	}
	if got := again(); got != id+" mine" {
		t.Errorf("running: %s", got)
	}
	_, err := w.eng.ContainerStop(t.Context(), id, client.ContainerStopOptions{})
	must(err)
	if got := again(); got != id+" mine" {
		t.Errorf("exited: %s", got)
	}
	_, err = w.eng.ContainerKill(t.Context(), id, client.ContainerKillOptions{})
	must(err)
	if got := again(); got != id+" mine" {
		t.Errorf("killed: %s", got)
	}
	_, err = w.eng.ContainerPause(t.Context(), id, client.ContainerPauseOptions{})
	must(err)
	w.refused(w.request("states"), driver.KindUnavailable, "docker unpause elsewhere-states-")
	_, err = w.eng.ContainerUnpause(t.Context(), id, client.ContainerUnpauseOptions{})
	must(err)
	if got := again(); got != id+" mine" {
		t.Errorf("unpaused: %s", got)
	}
	go func() {
		_, _ = w.eng.ContainerRestart(context.Background(), id, client.ContainerRestartOptions{})
	}()
	if got := again(); got != id+" mine" {
		t.Errorf("while it is restarted: %s", got)
	}
	go w.removeContainer(id)
	eventually(t, "it is gone", func() bool { return !slices.Contains(w.containers(), id) })
	if got := again(); strings.HasPrefix(got, id) || !strings.HasSuffix(got, " new") {
		t.Errorf("after its removal: %s", got)
	}
	if n := len(w.containers()); n != 1 {
		t.Errorf("there are %d containers", n)
	}
}

func TestAContainerThatWasMadeAndNeverStartedIsStarted(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("created"))
	labels, name := s.labels(), s.plan.name
	config, host := *s.plan.config, *s.plan.host
	w.close(s)
	w.removeContainer(s.id)
	config.Labels = labels
	made, err := w.eng.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: &config, HostConfig: withStateDir(&host, "")})
	if err != nil {
		t.Fatal(err)
	}
	if again := w.open(w.request("created")); again.id != made.ID {
		t.Error("another one was made")
	}
}

func TestAContainerThatIsNotOursIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("foreign"))
	name := s.plan.name
	w.close(s)
	w.removeContainer(s.id)
	for what, labels := range map[string]map[string]string{
		"no labels":          nil,
		"Hermes' own":        {labelAgent: "1", labelTask: "foreign"},
		"another identity's": {labelAgent: agent, labelTask: "foreign", labelIdentity: owner.NewID(), labelProfile: "default"},
		"another profile's":  {labelAgent: agent, labelTask: "foreign", labelIdentity: s.req.Identity.ID, labelProfile: "work"},
		"another task's":     {labelAgent: agent, labelTask: "other", labelIdentity: s.req.Identity.ID, labelProfile: "default"},
	} {
		t.Run(what, func(t *testing.T) {
			w := w.in(t)
			made, err := w.eng.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: &container.Config{Image: testImage, Cmd: []string{"sleep", "1000"}, Labels: labels}})
			if err != nil {
				t.Fatal(err)
			}
			defer w.removeContainer(made.ID)
			w.refused(w.request("foreign"), driver.KindConfig, name, "is not elsewhere's")
			k := &keeper{eng: s.eng, req: w.request("foreign")}
			// The own container of another task may be removed by who asks for that.
			if what == "another task's" {
				return
			}
			if _, err := k.Remove(t.Context(), made.ID, true); err == nil {
				t.Error("the keeper removed it")
			}
			if _, err := k.Reap(t.Context()); err != nil {
				t.Error(err)
			}
			found, err := w.eng.ContainerInspect(t.Context(), made.ID, client.ContainerInspectOptions{})
			if err != nil || found.Container.State.Status != container.StateCreated {
				t.Errorf("it is not as it was: %v", err)
			}
		})
	}
}

func TestAFailedOpeningLeavesNothing(t *testing.T) {
	w := newWorld(t)
	for name, spoil := range map[string]func(*plan){
		"it cannot be made": func(p *plan) { p.host.Runtime = "no-such-runtime" },
		"it cannot be started": func(p *plan) {
			p.host.Devices = []container.DeviceMapping{{PathOnHost: "/dev/no-such", PathInContainer: "/dev/x", CgroupPermissions: "r"}}
		},
		"it ends at once": func(p *plan) { p.config.Entrypoint = []string{"bash", "-c", "echo the last word; exit 3"} },
		"it has no place": func(p *plan) { p.host.Tmpfs[stateRoot] = "ro,size=1m" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			req := w.request("fails")
			eng, err := connect(t.Context(), req.Environ)
			if err != nil {
				t.Fatal(err)
			}
			defer eng.Close()
			image, err := ensureImage(t.Context(), eng.Client, req)
			if err != nil {
				t.Fatal(err)
			}
			s := newSandbox(eng, req)
			defer s.cancel()
			if s.plan, err = makePlan(t.Context(), eng.Client, req, image); err != nil {
				t.Fatal(err)
			}
			if version, err := eng.ServerVersion(t.Context(), client.ServerVersionOptions{}); name == "it cannot be made" && err == nil && strings.HasPrefix(version.Components[0].Name, "Podman") {
				t.Skip("Podman heeds no runtime that is asked for")
			}
			spoil(s.plan)
			_, err = s.enter(t.Context())
			_ = s.lock.Close()
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			if name == "it ends at once" && !strings.Contains(fmt.Sprint(err), "the last word") {
				t.Errorf("got %v", err)
			}
			if left := append(w.containers(), w.leftOf(s.plan.name)...); len(left) > 0 || !absent(filepath.Dir(s.plan.dataDirs[0])) {
				t.Errorf("left behind: %q, or the directories for files", left)
			}
		})
	}
	t.Run("its data directory cannot be made", func(t *testing.T) {
		w := newWorld(t)
		if err := os.WriteFile(w.home+"/sandboxes", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		sb, err := open(t.Context(), w.request("fails"))
		if err == nil {
			_ = sb.Close(t.Context())
			t.Error("it was opened")
		}
		if left := w.containers(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("the caller gives up", func(t *testing.T) {
		w := w.in(t)
		for _, after := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 200 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			sb, err := open(ctx, w.request("given-up"))
			cancel()
			if err == nil {
				w.close(sb.(*sandbox))
			} else if k := classify(err); k != driver.KindTimeout && k != driver.KindUnavailable {
				t.Errorf("kind %s: %v", k, err)
			}
		}
		// Whatever was made by then is found again.
		w.open(w.request("given-up"))
		if n := len(w.containers()); n != 1 {
			t.Errorf("there are %d containers", n)
		}
	})
}

func TestAnImageWithoutBashIsSaid(t *testing.T) {
	w := newWorld(t)
	const image = "elsewhere-test/nobash"
	if _, err := w.eng.ImageInspect(t.Context(), image); err != nil {
		t.Skipf("there is no image %s: test/testbed/docker.sh makes it", image)
	}
	for range 4 { // the container may end before, under or after the exec
		w.refused(w.request("nobash", "docker_image", image), driver.KindConfig, image, "no bash", "docker_image")
	}
	if left := w.containers(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestWhatEnginesSayOfAContainerThatEndsIsKnown(t *testing.T) {
	for _, text := range []string{
		"OCI runtime exec failed: exec failed: cannot exec in a deleted state: unknown",
		"cannot exec in a stopped state: unknown",
		"Error response from daemon: Container 0123 is not running",
		"task 0123 not found: not found",
		"can only create exec sessions on running containers: container state improper",
	} {
		if !isDying(text) {
			t.Errorf("not known: %s", text)
		}
	}
	for _, text := range []string{"", "the image was not found", "exec: \"bash\": executable file not found in $PATH"} {
		if isDying(text) {
			t.Errorf("taken for one: %s", text)
		}
	}
}

func TestOutOfMemoryNamesTheSetting(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("hungry", "container_memory", "32"))
	const want = "it ran out of memory; container_memory is 32MiB: raise it, and apply it with `elsewhere sandbox reset docker/hungry`"
	killed := &container.State{OOMKilled: true, ExitCode: 137}
	for what, got := range map[string]string{"lost": s.stopped(killed).Error(), "at once": s.whyEnded(t.Context(), killed).Error(), "started again": s.startedAgain(killed)} {
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if fine := (&container.State{ExitCode: 137}); strings.Contains(s.stopped(fine).Error()+s.startedAgain(fine), "memory") {
		t.Error("it is said of one that did not")
	}
}

func TestWhatAnEngineWouldRefuseIsSaidInTheWordsOfTheSettings(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	version, err := w.eng.ServerVersion(t.Context(), client.ServerVersionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	podman := strings.HasPrefix(version.Components[0].Name, "Podman")
	for _, c := range []struct {
		key, value string
		words      []string
	}{
		{"docker_image", "UPPER/x", []string{`docker_image (--set docker_image) is "UPPER/x", which names no image: invalid reference format`, "; write [REGISTRY/]NAME[:TAG]"}},
		{"docker_volumes", dir + ":/bin", []string{"something is mounted over the image's /bin (docker_volumes (--set docker_volumes)): mount it somewhere else"}},
		{"docker_volumes", dir + ":/etc/passwd", []string{"starting the container elsewhere-", "not a directory", "; the settings that ask for it are docker_volumes (--set docker_volumes): correct or unset"}},
		{"docker_extra_args", `["--network", "no-such"]`, []string{"docker_extra_args (--set docker_extra_args): --network no-such: the engine has no such network", "docker network create no-such"}},
		{"docker_extra_args", `["--runtime", "no-such"]`, []string{"--runtime no-such: the engine has no such runtime; it has ", "runc"}},
		{"docker_extra_args", `["--device", "/dev/no-such"]`, []string{"--device /dev/no-such: there is no such device on this machine"}},
		{"docker_extra_args", `["--device", "/dev/null:/proc/x"]`, []string{"no device can be made at /proc/x"}},
		{"docker_extra_args", `["--gpus", "all"]`, []string{"no driver for GPUs", "docker_extra_args (--set docker_extra_args)"}},
		{"docker_extra_args", `["--ulimit", "nofile=99999999:9999999999"]`, []string{"starting the container elsewhere-", "docker_extra_args (--set docker_extra_args): correct or unset"}},
	} {
		if c.value == `["--gpus", "all"]` && isDir("/proc/driver/nvidia") {
			continue
		}
		if podman && slices.ContainsFunc([]string{"--gpus", "--runtime", "--ulimit", "/etc/passwd"}, func(what string) bool { return strings.Contains(c.value, what) }) {
			continue // it heeds no runtime, and has words of its own for the rest
		}
		req := w.request("hostile", c.key, c.value)
		sb, err := open(t.Context(), req)
		if err == nil {
			_ = sb.Close(t.Context())
			t.Errorf("%s %s is accepted", c.key, c.value)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s %s: it does not say %q: %v", c.key, c.value, word, err)
			}
		}
		if strings.Contains(err.Error(), "OCI runtime") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s: %v", c.key, c.value, err)
		}
	}
	if left := w.containers(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestAContainerWithOtherSettings(t *testing.T) {
	w := newWorld(t)
	other := otherImage(t, w)

	t.Run("that is kept is refused, by the names of the settings", func(t *testing.T) {
		w := w.in(t)
		s := w.open(w.request("kept"))
		w.close(s)
		w.refused(w.request("kept", "docker_image", other), driver.KindConfig, "docker_image", testImage, other, "--task OTHER", "elsewhere sandbox reset docker/kept")
		if again := w.open(w.request("kept")); again.id != s.id {
			t.Error("the container was made again")
		}
	})
	t.Run("that is not kept and not used is replaced, and that is said", func(t *testing.T) {
		w := w.in(t)
		// One that does not persist goes on close, so its owner is killed here, in effect.
		req := w.request("passing", "docker_persist_across_processes", "false")
		s := w.open(req)
		s.giveUp()
		again := w.open(w.request("passing", "docker_persist_across_processes", "false", "docker_image", other))
		if again.id == s.id || !strings.Contains(strings.Join(again.info.Notices, "\n"), "docker_image") {
			t.Errorf("the same container: %v; notices %q", again.id == s.id, again.info.Notices)
		}
	})
	t.Run("that is not kept and used is refused", func(t *testing.T) {
		w := w.in(t)
		s := w.open(w.request("used", "docker_persist_across_processes", "false"))
		w.refused(w.request("used", "docker_persist_across_processes", "false", "docker_image", other), driver.KindConfig, "docker_image", "another process uses it")
		if got := output(t, s, `echo fine`); got != "fine" {
			t.Error(got)
		}
	})
	t.Run("that is stopped is used by nobody", func(t *testing.T) {
		w := w.in(t)
		s := w.open(w.request("stopped", "docker_persist_across_processes", "false"))
		if _, err := w.eng.ContainerStop(t.Context(), s.id, client.ContainerStopOptions{}); err != nil {
			t.Fatal(err)
		}
		if again := w.open(w.request("stopped", "docker_persist_across_processes", "false", "docker_image", other)); again.id == s.id {
			t.Error("the same container")
		}
	})
}

// One that was started anew while nobody looked runs, and is empty.
func TestAContainerThatWasStartedAnewMeanwhileIsToldOf(t *testing.T) {
	w := newWorld(t)
	said := func(s *sandbox) bool {
		return strings.Contains(strings.Join(s.info.Notices, "\n"), "stopped and started again, and not by elsewhere")
	}
	s := w.open(w.request("anew"))
	w.close(s)
	if s = w.open(w.request("anew")); said(s) {
		t.Errorf("nothing happened to it: %q", s.info.Notices)
	}
	w.close(s)
	if _, err := w.eng.ContainerRestart(t.Context(), s.id, client.ContainerRestartOptions{}); err != nil {
		t.Fatal(err)
	}
	if s = w.open(w.request("anew")); !said(s) {
		t.Errorf("the notices are %q", s.info.Notices)
	}
	w.close(s)
	if s = w.open(w.request("anew")); said(s) {
		t.Errorf("it is told of twice: %q", s.info.Notices)
	}
	// A start of our own says so itself.
	w.close(s)
	if _, err := w.eng.ContainerStop(t.Context(), s.id, client.ContainerStopOptions{}); err != nil {
		t.Fatal(err)
	}
	if s = w.open(w.request("anew")); said(s) || !strings.Contains(strings.Join(s.info.Notices, "\n"), "was started again") {
		t.Errorf("the notices are %q", s.info.Notices)
	}
	w.close(s)
	if s = w.open(w.request("anew")); said(s) {
		t.Errorf("our own start is told of: %q", s.info.Notices)
	}
}

func TestAContainerIsInUseByAnotherMachineWhileItsWatchdogLives(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("machines"))
	found, err := w.eng.ContainerInspect(t.Context(), s.id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.giveUp()
	lock, err := kept.Open(w.home, s.plan.name, false)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	used := func(machine string) bool {
		t.Helper()
		used, err := inUse(t.Context(), s.eng, lock, found.Container, machine)
		if err != nil {
			t.Fatal(err)
		}
		return used
	}
	// What lingers for its children is a call's bash; its command line has more behind it.
	head := `IFS= read -r -N 5 BASH_EXECUTION_STRING 2>/dev/null || IFS= read -r -d "" BASH_EXECUTION_STRING; eval "$BASH_EXECUTION_STRING"`
	start := func(script string) driver.Process {
		p, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"--noprofile", "--norc", "-p", "-c", script}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.(*process).closeAll() })
		return p
	}
	call := start(head + `; builtin : "$BASH"; { builtin eval -- "$BASH_EXECUTION_STRING"; } 193>&- 194>&-`)
	if used("elsewhere") {
		t.Error("a call's bash alone counts as use")
	}
	watchdog := start(head)
	eventually(t, "a watchdog counts as use", func() bool { return used("elsewhere") })
	if used(found.Container.Config.Labels[labelMachine]) {
		t.Error("on the machine that made it the lock alone tells")
	}
	for _, p := range []driver.Process{call, watchdog} {
		_ = p.Stdin().Close()
		if _, err := ended(t, p); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a watchdog that is gone is no use", func() bool { return !used("elsewhere") })
}

const raceTest = "ELSEWHERE_DOCKER_TEST_RACE"

func TestTwentyProcessesThatOpenOneTaskAtOnceShareOneContainer(t *testing.T) {
	w := newWorld(t)
	if home := os.Getenv(raceTest); home != "" {
		w.home = home
		fmt.Println("ready")
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		sb, err := open(t.Context(), w.request("race"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("container " + sb.(*sandbox).id)
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		os.Exit(0) // without the cleanups, which would remove it
	}
	n := 20
	if testing.Short() {
		n = 5
	}
	type child struct {
		cmd  *exec.Cmd
		in   io.WriteCloser
		said *strings.Builder
	}
	children := make([]child, n)
	for i := range children {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v=false")
		cmd.Env = append(os.Environ(), raceTest+"="+w.home, "TMPDIR="+t.TempDir()) // it ends without its cleanups
		said := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = said, said
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children[i] = child{cmd, in, said}
	}
	for _, c := range children { // they wait for this
		_, _ = c.in.Write([]byte("x"))
	}
	ids := map[string]int{}
	for _, c := range children {
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, c.said)
		}
		for line := range strings.Lines(c.said.String()) {
			if id, ok := strings.CutPrefix(strings.TrimSpace(line), "container "); ok {
				ids[id]++
			}
		}
	}
	if len(ids) != 1 || !slices.Equal(slices.Collect(maps.Keys(ids)), w.containers()) || ids[w.containers()[0]] != n {
		t.Errorf("they used %v; there are %q", ids, w.containers())
	}
}

// TestWhoLosesTheRaceForANameUsesTheWinners: as it is between two machines, where no lock helps.
func TestWhoLosesTheRaceForANameUsesTheWinners(t *testing.T) {
	w := newWorld(t)
	sandboxes := make([]*sandbox, 4)
	var all sync.WaitGroup
	for i := range sandboxes {
		all.Go(func() {
			req := w.request("names")
			eng, err := connect(t.Context(), req.Environ)
			if err != nil {
				t.Error(err)
				return
			}
			s := newSandbox(eng, req)
			defer s.cancel()
			t.Cleanup(func() { _ = eng.Close() })
			image, err := ensureImage(t.Context(), eng.Client, req)
			if err != nil {
				t.Error(err)
				return
			}
			if s.plan, err = makePlan(t.Context(), eng.Client, req, image); err != nil {
				t.Error(err)
				return
			}
			eventually(t, "one of them has made it", func() bool {
				_, err = s.tryEnter(t.Context())
				return !errors.Is(err, errAgain)
			})
			if err != nil {
				t.Error(err)
			}
			sandboxes[i] = s
		})
	}
	all.Wait()
	if n := len(w.containers()); n != 1 || t.Failed() {
		t.Fatalf("there are %d containers", n)
	}
	for _, s := range sandboxes {
		if s.id != w.containers()[0] {
			t.Errorf("%s is used", s.id)
		}
	}
}

func TestTwoIdentitiesNeverMeet(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	first, second := a.open(a.request("same")), b.open(b.request("same"))
	profile := a.request("same")
	profile.Identity.Profile = "work"
	third := a.open(profile)
	if first.id == second.id || first.id == third.id {
		t.Error("they share a container")
	}
	k, err := openKeeper(t.Context(), b.request("same"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	list, err := k.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != shortID(second.id) {
		t.Errorf("the second one's keeper lists %+v, %v", list, err)
	}
	for _, id := range []string{first.id, third.id} {
		if err := k.Stop(t.Context(), id); err == nil {
			t.Error("another one's container was stopped")
		}
		if _, err := k.Inspect(t.Context(), id); err == nil {
			t.Error("another one's container was inspected")
		}
	}
}

func TestASharedKeyIsOneContainerForAll(t *testing.T) {
	a, b := newWorld(t), newWorld(t)
	key := owner.NewID()
	first := a.open(a.request("team", "docker_shared_container_key", key))
	second := b.open(b.request("team", "docker_shared_container_key", key))
	if first.id != second.id {
		t.Error("each has its own")
	}
	if other := b.open(b.request("team", "docker_shared_container_key", key+"x")); other.id == first.id {
		t.Error("another key is the same container")
	}
}

func TestWhatIsNotToPersistGoesOnClose(t *testing.T) {
	w := newWorld(t)
	t.Run("a throw-away one", func(t *testing.T) {
		w := w.in(t)
		req := w.request("gone")
		req.ThrowAway, req.Identity.Home = true, ""
		s := w.open(req)
		output(t, s, "echo")
		w.close(s)
		if left := w.containers(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("one that lives as long as its last process", func(t *testing.T) {
		w := w.in(t)
		a := w.open(w.request("last", "docker_persist_across_processes", "false"))
		b := w.open(w.request("last", "docker_persist_across_processes", "false"))
		if a.id != b.id {
			t.Fatal("each has its own")
		}
		w.close(a)
		if got := output(t, b, `echo fine; [[ -e `+a.info.PrivateDir+` ]] && echo there; :`); got != "fine" {
			t.Errorf("got %q", got)
		}
		w.close(b)
		if left := w.containers(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	t.Run("one that was lost and made again goes too", func(t *testing.T) {
		w := w.in(t)
		a := w.open(w.request("again", "docker_persist_across_processes", "false"))
		w.removeContainer(a.id)
		if err := a.Alive(t.Context()); err == nil {
			t.Fatal("it lives")
		}
		b := w.open(w.request("again", "docker_persist_across_processes", "false"))
		w.close(b)
		if left := w.containers(); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		w.close(a)
	})
}

// TestASharedContainerGoesWithItsLastUser: a lock tells nothing of users on other machines, and watchdogs leave a moment after their
// process.
func TestASharedContainerGoesWithItsLastUser(t *testing.T) {
	w := newWorld(t)
	key := owner.NewID()
	open := func() *sandbox {
		req := w.request("team", "docker_shared_container_key", key, "docker_persist_across_processes", "false")
		req.Identity.Home = ""
		return w.open(req)
	}
	watchdog := func(s *sandbox) driver.Process {
		// As one that ends what its process left: the end of its input is not yet its own.
		const text = "while [[ ! -e /tmp/leave ]]; do read -r -t 0.05 _ <> <(:); done"
		p, err := s.Bash(t.Context(), driver.BashSpec{ID: owner.NewID(), Args: []string{"--noprofile", "--norc", "-p", "-c",
			fmt.Sprintf(`IFS= read -r -N %d BASH_EXECUTION_STRING 2>/dev/null || IFS= read -r -d "" BASH_EXECUTION_STRING; eval "$BASH_EXECUTION_STRING"`, len(text))}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p.Stdin(), text); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the watchdog is there", func() bool { return watched(t.Context(), s.eng, s.id, nil) })
		return p
	}
	first, far := open(), open()
	if first.id != far.id {
		t.Fatal("each has its own")
	}
	farWatchdog := watchdog(far)
	far.giveUp() // as if it were on another machine
	watchdog(first)
	w.close(first)
	if len(w.containers()) != 1 {
		t.Fatal("it was removed under another user")
	}
	output(t, far, `: >/tmp/leave`)
	if _, err := ended(t, farWatchdog); err != nil {
		t.Fatal(err)
	}
	output(t, far, `rm /tmp/leave`)
	last := open()
	watchdog(last).(*process).closeAll() // it does not leave
	w.close(last)
	if left := w.containers(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestLabelsHoldTheTaskWhateverItIs(t *testing.T) {
	w := newWorld(t)
	for _, task := range []string{"a/b", "\xff\xfe\n", "ünï", strings.Repeat("x", 300)} {
		s := w.open(w.request(task))
		found, err := w.eng.ContainerInspect(t.Context(), s.id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		labels := found.Container.Config.Labels
		if taskOf(labels) != task || labels[labelAgent] != "elsewhere" || labels[labelIdentity] != s.req.Identity.ID || labels[labelOwner] != w.owner {
			t.Errorf("labels %q", labels)
		}
		if again := w.open(w.request(task)); again.id != s.id {
			t.Errorf("%q is not found again", task)
		}
	}
}
