package docker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// leftOf are what a home keeps of a container besides its data: record and locks.
func (w *world) leftOf(name string) []string {
	w.t.Helper()
	var all []string
	for _, dir := range []string{"docker", "sandboxes"} {
		found, err := filepath.Glob(filepath.Join(w.home, "elsewhere", dir, name+"*"))
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func absent(file string) bool {
	_, err := os.Stat(file)
	return errors.Is(err, fs.ErrNotExist)
}

func TestFilesThatStayAreListedAndCanBeRemovedLater(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("web"))
	output(t, s, `echo text >/workspace/file`)
	w.close(s)
	k := keeperOf(t, w.request("whatever"))
	home, work := s.plan.dataDirs[0], s.plan.dataDirs[1]
	if _, err := k.Remove(t.Context(), s.id, false); err != nil {
		t.Fatal(err)
	}
	if absent(filepath.Join(work, "file")) || !absent(home) {
		t.Error("what was written to is kept, and what was not goes")
	}
	list, err := k.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != driver.StateData || list[0].Task != "web" || list[0].InUse || strings.Join(list[0].Data, " ") != work {
		t.Fatalf("it is listed as %+v, %v", list, err)
	}
	if d, err := k.Inspect(t.Context(), list[0].ID); err != nil || d.State != driver.StateData || len(d.Data) != 1 {
		t.Errorf("it is inspected as %+v, %v", d, err)
	}
	if left := w.leftOf(s.plan.name); len(left) != 1 {
		t.Errorf("beside the record there is %q", left)
	}

	// The next one has the files, and then they can go without any container.
	again := w.open(w.request("web"))
	if got := output(t, again, `cat /workspace/file`); got != "text" || again.info.Recreated != "" {
		t.Errorf("got %q, recreated %q", got, again.info.Recreated)
	}
	w.close(again)
	if _, err := k.Remove(t.Context(), again.id, false); err != nil {
		t.Fatal(err)
	}
	removed, err := k.Remove(t.Context(), s.plan.name, true)
	if err != nil || len(removed) != 1 || removed[0] != work {
		t.Errorf("removed %q, %v", removed, err)
	}
	if left := w.leftOf(s.plan.name); len(left) != 0 || !absent(filepath.Dir(work)) {
		t.Errorf("left are %q", left)
	}
	if list, err := k.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("listed is %+v, %v", list, err)
	}
}

func TestAContainerThatWroteNothingLeavesNothing(t *testing.T) {
	w := newWorld(t)
	k := keeperOf(t, w.request("whatever"))
	for _, persist := range []string{"true", "false"} {
		s := w.open(w.request("idle", "docker_persist_across_processes", persist))
		w.close(s)
		if _, err := k.Remove(t.Context(), s.id, false); err != nil {
			t.Fatal(err)
		}
		if left := w.leftOf(s.plan.name); len(left) != 0 || !absent(filepath.Dir(s.plan.dataDirs[0])) {
			t.Errorf("persist %s: left are %q, or the data's directory", persist, left)
		}
	}
}

func TestAnEmptyDirectoryThatAnotherContainerMountsStays(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("both"))
	w.close(s)
	dir := s.plan.dataDirs[1]
	other, err := w.eng.ContainerCreate(t.Context(), client.ContainerCreateOptions{
		Config: &container.Config{Image: testImage, Cmd: []string{"true"}}, HostConfig: &container.HostConfig{Binds: []string{dir + ":/workspace"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.removeContainer(other.ID)
	k := keeperOf(t, w.request("whatever"))
	if _, err := k.Remove(t.Context(), s.id, false); err != nil {
		t.Fatal(err)
	}
	if absent(dir) {
		t.Error("it was removed under the other one")
	}
}

func TestTheNextProcessIsToldThatTheContainerVanished(t *testing.T) {
	w := newWorld(t)
	first := w.open(w.request("web"))
	w.close(first)
	w.removeContainer(first.id)
	second := w.open(w.request("web"))
	for _, word := range []string{first.plan.name, "was removed", "/workspace are kept"} {
		if !strings.Contains(second.info.Recreated, word) {
			t.Errorf("it does not say %q: %q", word, second.info.Recreated)
		}
	}
	w.close(second)
	same := w.open(w.request("web"))
	if same.info.Recreated != "" {
		t.Errorf("said twice: %q", same.info.Recreated)
	}
	w.close(same)

	// What elsewhere does itself is no surprise.
	k := keeperOf(t, w.request("whatever"))
	if _, err := k.Remove(t.Context(), same.id, false); err != nil {
		t.Fatal(err)
	}
	wished := w.open(w.request("web"))
	w.close(wished)
	replaced := w.open(w.request("web", "docker_network", "false"))
	if wished.info.Recreated != "" || replaced.info.Recreated != "" || replaced.id == wished.id {
		t.Errorf("said %q and %q", wished.info.Recreated, replaced.info.Recreated)
	}
	w.close(replaced)

	none := w.open(w.request("memory", "container_persistent", "false"))
	w.close(none)
	w.removeContainer(none.id)
	if list, err := k.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("one without files is listed: %+v, %v", list, err)
	}
	if s := w.open(w.request("memory", "container_persistent", "false")); !strings.Contains(s.info.Recreated, "so are its files") {
		t.Errorf("said %q", s.info.Recreated)
	}
}

func TestWhatALinkLeadsToIsNotRemoved(t *testing.T) {
	w := newWorld(t)
	k := keeperOf(t, w.request("whatever"))
	// linked opens the task, and puts its files somewhere else by a link in place of name, a part of their path.
	linked := func(task string, name func(data string) string) (s *sandbox, link, file string) {
		s = w.open(w.request(task))
		output(t, s, `echo text >/workspace/file`)
		w.close(s)
		away := filepath.Join(t.TempDir(), "away")
		link = name(s.plan.dataDirs[1])
		if err := errors.Join(os.Rename(link, away), os.Symlink(away, link)); err != nil {
			t.Fatal(err)
		}
		real, err := filepath.EvalSymlinks(filepath.Join(s.plan.dataDirs[1], "file"))
		if err != nil {
			t.Fatal(err)
		}
		return s, link, real
	}
	for task, name := range map[string]func(string) string{
		"task's": filepath.Dir,
		"data's": func(data string) string { return data },
	} {
		s, link, file := linked(task, name)
		if _, err := k.Remove(t.Context(), s.id, false); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(s.plan.dataDirs[1], "file")); err != nil {
			t.Errorf("the %s directory: files that are kept: %v", task, err)
		}
		again := w.open(w.request(task))
		if got := output(t, again, `cat /workspace/file`); got != "text" {
			t.Errorf("the %s directory: through the link there is %q", task, got)
		}
		w.close(again)
		removed, err := k.Remove(t.Context(), again.id, true)
		if err != nil || !strings.Contains(strings.Join(removed, "\n"), "the link "+link+"; what it led to stays: ") {
			t.Errorf("the %s directory: removed %q, %v", task, removed, err)
		}
		if _, err := os.Lstat(link); !errors.Is(err, fs.ErrNotExist) || absent(file) {
			t.Errorf("the %s directory: the link is there (%v), or the file is not", task, err)
		}
		if left := w.leftOf(s.plan.name); len(left) != 0 || !absent(filepath.Dir(s.plan.dataDirs[1])) {
			t.Errorf("the %s directory: left are %q", task, left)
		}
	}
}

func TestOnlyWhatIsStillThereIsEmptiedFromInside(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("inside"))
	output(t, s, `mkdir /tmp/same /tmp/moved; : >/tmp/same/.marker; : >/tmp/same/file; : >/tmp/moved/file`)
	if _, err := s.run(t.Context(), emptyScript, ".marker", "/tmp/same", "/tmp/moved"); err != nil {
		t.Fatal(err)
	}
	if got := output(t, s, `ls -A /tmp/same /tmp/moved`); got != "/tmp/moved:\nfile\n\n/tmp/same:" {
		t.Errorf("left is %q", got)
	}
}
