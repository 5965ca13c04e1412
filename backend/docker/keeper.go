package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// keeper looks after the containers of one identity and profile.
type keeper struct {
	eng *engine
	req driver.OpenRequest
	log *slog.Logger
}

func openKeeper(ctx context.Context, req driver.OpenRequest) (driver.Keeper, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	eng, err := connect(ctx, req.Environ)
	if err != nil {
		return nil, err
	}
	return &keeper{eng: eng, req: req, log: req.Logger}, nil
}

func (k *keeper) Close() error { return k.eng.Close() }

// mine tells whether a container with these labels is of the own identity and profile, or shared by the own key.
func (k *keeper) mine(labels map[string]string) bool {
	if labels[labelAgent] != agent {
		return false
	}
	if key := labels[labelShared]; key != "" && key == k.req.Config.String("docker_shared_container_key") {
		return true
	}
	return labels[labelIdentity] == k.req.Identity.ID && labels[labelProfile] == k.req.Identity.Profile
}

// all gives the own containers, oldest first.
func (k *keeper) all(ctx context.Context) ([]container.Summary, error) {
	answer, err := k.eng.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelAgent+"="+agent)})
	if err != nil {
		return nil, k.eng.explain("listing containers", err)
	}
	own := slices.DeleteFunc(answer.Items, func(c container.Summary) bool { return !k.mine(c.Labels) })
	slices.SortFunc(own, func(a, b container.Summary) int { return int(a.Created - b.Created) })
	return own, nil
}

// List lists the own containers, and those of whom only files are left.
func (k *keeper) List(ctx context.Context) ([]driver.SandboxInfo, error) {
	own, err := k.all(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]driver.SandboxInfo, 0, len(own))
	for _, c := range own {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		infos = append(infos, k.info(ctx, c.ID, name, c.State, c.Image, time.Unix(c.Created, 0), c.Labels))
	}
	for _, rec := range k.notes().all(k.req.Identity) {
		if slices.ContainsFunc(infos, func(i driver.SandboxInfo) bool { return i.Name == rec.Name }) {
			continue
		}
		if info := k.dataInfo(ctx, rec); len(info.Data) > 0 {
			infos = append(infos, info)
		}
	}
	slices.SortStableFunc(infos, func(a, b driver.SandboxInfo) int { return a.Created.Compare(b.Created) })
	return infos, nil
}

func (k *keeper) notes() records { return recordsOf(k.eng, k.req.Identity) }

// dataInfo is a listing's row of a container that is gone and has left files.
func (k *keeper) dataInfo(ctx context.Context, rec *record) driver.SandboxInfo {
	return driver.SandboxInfo{
		Task: string(rec.Task), ID: rec.Name, Name: rec.Name, State: driver.StateData, Image: rec.Image, Created: rec.Created,
		Persistent: rec.Persistent, Data: k.notes().left(ctx, rec),
	}
}

func (k *keeper) info(ctx context.Context, id, name string, state container.ContainerState, image string, created time.Time, labels map[string]string) driver.SandboxInfo {
	return driver.SandboxInfo{
		Task: taskOf(labels), ID: shortID(id), Name: name, State: stateOf(state), Image: image, Created: created,
		Persistent: labels[labelPersist] == "true", InUse: state == container.StateRunning && k.used(ctx, name, labels), Data: k.data(labels),
	}
}

// stateOf gives a state of the engine's in the words of package driver.
func stateOf(state container.ContainerState) string {
	switch state {
	case container.StateRunning, container.StateRestarting:
		return driver.StateRunning
	case container.StatePaused:
		return driver.StatePaused
	case container.StateDead, container.StateRemoving:
		return driver.StateDead
	default:
		return driver.StateStopped
	}
}

// used tells whether a process of this machine uses the container. One that is being made or removed now is.
func (k *keeper) used(ctx context.Context, name string, labels map[string]string) bool {
	return kept.Used(ctx, k.req.Identity.Home, name, labels[labelShared] != "")
}

// withLock does what needs the right to make and remove a container.
func (k *keeper) withLock(ctx context.Context, name string, labels map[string]string, wait time.Duration, do func(*kept.Lock) error) error {
	return kept.With(ctx, k.req.Identity.Home, name, labels[labelShared] != "", wait, do)
}

// data are the directories of this machine that hold a container's files.
func (k *keeper) data(labels map[string]string) []string {
	if labels[labelMachine] != k.req.Identity.Machine {
		return nil
	}
	var dirs []string
	if json.Unmarshal([]byte(labels[labelData]), &dirs) != nil {
		return nil
	}
	return dirs
}

// removeAll removes a container with what is only its own: the directory of files that were staged for it. Its files stay.
func (k *keeper) removeAll(ctx context.Context, c container.InspectResponse) error {
	if err := removeContainer(ctx, k.eng, c.ID); err != nil {
		return err
	}
	labels := c.Config.Labels
	dir := labels[labelStaging]
	inHome, err := filepath.Rel(k.req.Identity.Home, dir)
	if dir != "" && labels[labelMachine] == k.req.Identity.Machine && err == nil && filepath.IsLocal(inHome) && inHome != "." {
		if err := os.RemoveAll(dir); err != nil {
			k.log.Debug("staged files were not removed", "directory", dir, "error", err)
		}
	}
	if err := k.notes().forget(ctx, nameOf(c)); err != nil {
		k.log.Debug("it is not noted that the container is gone", "container", nameOf(c), "error", err)
	}
	return nil
}

// find inspects an own container; ok is false where there is none of this id.
func (k *keeper) find(ctx context.Context, id string) (c container.InspectResponse, ok bool, err error) {
	if id == "" {
		return c, false, failure(driver.KindConfig, "no container is named")
	}
	answer, err := k.eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		return c, false, nil
	case err != nil:
		return c, false, k.eng.explain("looking for the container "+id, err)
	case answer.Container.Config == nil || !k.mine(answer.Container.Config.Labels):
		return c, false, failure(driver.KindConfig, "the container %s is not elsewhere's, or of another identity or profile", id)
	}
	return answer.Container, true, nil
}

// Inspect tells of a container what the engine has in force.
func (k *keeper) Inspect(ctx context.Context, id string) (driver.SandboxDetail, error) {
	c, ok, err := k.find(ctx, id)
	if err == nil && !ok {
		if rec := k.notes().read(id); rec != nil {
			return driver.SandboxDetail{SandboxInfo: k.dataInfo(ctx, rec), Host: k.eng.host}, nil
		}
		err = failure(driver.KindLost, "there is no container %s", id)
	}
	if err != nil {
		return driver.SandboxDetail{}, err
	}
	created, _ := time.Parse(time.RFC3339Nano, c.Created)
	d := driver.SandboxDetail{
		SandboxInfo: k.info(ctx, c.ID, nameOf(c), c.State.Status, c.Config.Image, created, c.Config.Labels),
		Host:        k.eng.host, User: c.Config.User, ImageID: c.Image, Features: features(c), Processes: -1,
	}
	d.Exposure = keptExposure(c)
	if d.User == "" {
		d.User = "root"
	}
	if c.State.Running {
		d.Started, _ = time.Parse(time.RFC3339Nano, c.State.StartedAt)
		if top, err := k.eng.ContainerTop(ctx, c.ID, client.ContainerTopOptions{}); err == nil {
			d.Processes = len(top.Processes)
		}
	} else {
		d.Processes = 0
	}
	for _, m := range c.Mounts {
		access := "ro"
		if m.RW {
			access = "rw"
		}
		source := m.Source
		if m.Name != "" {
			source = m.Name
		}
		d.Mounts = append(d.Mounts, fmt.Sprintf("%s on %s (%s, %s)", source, m.Destination, access, m.Type))
	}
	if c.HostConfig != nil {
		for target, options := range c.HostConfig.Tmpfs {
			d.Mounts = append(d.Mounts, fmt.Sprintf("tmpfs on %s (rw, tmpfs %s)", target, options))
		}
	}
	slices.Sort(d.Mounts)
	return d, nil
}

func nameOf(c container.InspectResponse) string { return strings.TrimPrefix(c.Name, "/") }

// features reads from the engine what is in force for a container.
func features(c container.InspectResponse) []driver.Feature {
	h := c.HostConfig
	if h == nil {
		return nil
	}
	active := func(name, detail string) driver.Feature {
		return driver.Feature{Name: name, State: driver.Active, Detail: detail}
	}
	missing := func(name, detail string) driver.Feature {
		return driver.Feature{Name: name, State: driver.Unsupported, Detail: detail}
	}
	list := []driver.Feature{capabilities(h)}
	if slices.ContainsFunc(h.SecurityOpt, func(o string) bool {
		return strings.HasPrefix(o, "no-new-privileges") && !strings.HasSuffix(o, "false")
	}) {
		list = append(list, active("no-new-privileges", ""))
	} else {
		list = append(list, missing("no-new-privileges", "a setuid program can gain rights"))
	}
	if h.ReadonlyRootfs {
		list = append(list, active("root file system", "read-only"))
	} else {
		list = append(list, active("root file system", "can be written to"))
	}
	for _, mode := range []struct{ name, value string }{{"pid namespace", string(h.PidMode)}, {"ipc namespace", string(h.IpcMode)}, {"user namespace", string(h.UsernsMode)}} {
		if mode.value == "host" {
			list = append(list, missing(mode.name, "the host's"))
		}
	}
	limit := func(name string, value int64, detail string) {
		if value > 0 {
			list = append(list, active("limit: "+name, detail))
		} else {
			list = append(list, missing("limit: "+name, "no limit"))
		}
	}
	memory := size(h.Memory)
	if h.MemorySwap != h.Memory {
		memory += swapUnlimited
	}
	limit("memory", h.Memory, memory)
	cpus := float64(h.NanoCPUs) / 1e9
	if cpus == 0 && h.CPUPeriod > 0 {
		cpus = float64(h.CPUQuota) / float64(h.CPUPeriod)
	}
	limit("cpu", int64(cpus*1000), amount.Of(cpus, "CPU"))
	pids := int64(0)
	if h.PidsLimit != nil {
		pids = *h.PidsLimit
	}
	limit("pids", pids, fmt.Sprintf("%d processes and threads", pids))
	if size := h.StorageOpt["size"]; size != "" {
		list = append(list, active("limit: disk", size))
	} else {
		list = append(list, missing("limit: disk", "no limit"))
	}
	list = append(list, networkFeature(string(h.NetworkMode)), dataFeature(c.Config.Labels), processFeature(c.Config.Labels[labelPersist] == "true"))
	if c.State != nil && c.State.OOMKilled {
		list = append(list, driver.Feature{Name: "memory", State: driver.Degraded, Detail: "it ran out of memory"})
	}
	slices.SortStableFunc(list, func(x, y driver.Feature) int { return strings.Compare(x.Name, y.Name) })
	return list
}

// networkFeature says what network a container has, by its mode.
func networkFeature(mode string) driver.Feature {
	switch mode {
	case "none":
		return driver.Feature{Name: "network", State: driver.Active, Detail: "none: no route at all"}
	case "host":
		return driver.Feature{Name: "network", State: driver.Degraded, Detail: "the engine machine's own, by docker_extra_args"}
	case "", "default":
		mode = "the engine's default"
	}
	return driver.Feature{Name: "network", State: driver.Active, Detail: mode + ", not filtered"}
}

// processFeature says whether a container outlives the process that made it.
func processFeature(persist bool) driver.Feature {
	if persist {
		return driver.Feature{Name: "processes", State: driver.Active, Detail: "go on when elsewhere has ended"}
	}
	return driver.Feature{Name: "processes", State: driver.Unsupported, Detail: "end with the last elsewhere that uses the container: docker_persist_across_processes is off"}
}

// dataFeature says where a container's files are kept, by its labels.
func dataFeature(labels map[string]string) driver.Feature {
	var dirs, volumes []string
	_, _ = json.Unmarshal([]byte(labels[labelData]), &dirs), json.Unmarshal([]byte(labels[labelVolumes]), &volumes)
	switch {
	case len(dirs) > 0:
		return keptIn(filepath.Dir(dirs[0]))
	case len(volumes) > 0:
		return keptInVolumes(volumes)
	}
	return notKept
}

func keptIn(dir string) driver.Feature {
	return driver.Feature{Name: "data", State: driver.Active, Detail: "kept in " + dir}
}

func keptInVolumes(names []string) driver.Feature {
	return driver.Feature{Name: "data", State: driver.Active, Detail: "kept in volumes of the engine: " + strings.Join(names, ", ")}
}

// notKept is what holds of the files of a container that keeps none.
var notKept = driver.Feature{Name: "data", State: driver.Unsupported, Detail: "gone with the container: container_persistent is off"}

// defaultCapabilities are what an engine gives a container that asks for nothing; Podman gives fewer.
var defaultCapabilities = strings.Fields("AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP SETUID SYS_CHROOT")

// capabilities tells what is left. Docker keeps "ALL" as it was asked for, Podman every single one that was taken away.
func capabilities(h *container.HostConfig) driver.Feature {
	f := driver.Feature{Name: "capabilities", State: driver.Active}
	name := func(c string) string { return strings.TrimPrefix(strings.ToUpper(c), "CAP_") }
	left := slices.Clone(defaultCapabilities)
	for _, dropped := range h.CapDrop {
		left = slices.DeleteFunc(left, func(c string) bool { return name(dropped) == "ALL" || name(dropped) == c })
	}
	for _, added := range h.CapAdd {
		left = append(left, name(added))
	}
	slices.Sort(left)
	switch left = slices.Compact(left); {
	case h.Privileged:
		f.State, f.Detail = driver.Unsupported, "privileged: all of the host's"
	default:
		f.Detail = "kept: " + or(strings.Join(left, ", "), "none")
	}
	if len(h.CapDrop) == 0 && !h.Privileged {
		f.State, f.Detail = driver.Degraded, "the engine's default"
	}
	return f
}

// stopSeconds is how long the container's main process may take to leave.
const stopSeconds = 5

// Stop stops a container, also one that is paused.
func (k *keeper) Stop(ctx context.Context, id string) error {
	c, ok, err := k.find(ctx, id)
	if err != nil || !ok {
		return err
	}
	return k.withLock(ctx, nameOf(c), c.Config.Labels, changeWait, func(*kept.Lock) error {
		if c.State.Paused {
			if _, err := k.eng.ContainerUnpause(ctx, c.ID, client.ContainerUnpauseOptions{}); err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsConflict(err) {
				return k.eng.explain("unpausing the container "+nameOf(c), err)
			}
		}
		seconds := stopSeconds
		_, err := k.eng.ContainerStop(ctx, c.ID, client.ContainerStopOptions{Timeout: &seconds})
		if err != nil && !cerrdefs.IsNotFound(err) && !cerrdefs.IsNotModified(err) {
			return k.eng.explain("stopping the container "+nameOf(c), err)
		}
		return nil
	})
}

// Remove removes a container and, with data, its directories on this machine. Files that belong to another user are removed
// in the container first, by its own user.
func (k *keeper) Remove(ctx context.Context, id string, data bool) (removed []string, err error) {
	c, ok, err := k.find(ctx, id)
	if err == nil && !ok && data {
		return k.removeLeft(ctx, id)
	}
	if err != nil || !ok {
		return nil, err
	}
	err = k.withLock(ctx, nameOf(c), c.Config.Labels, changeWait, func(lock *kept.Lock) error {
		dirs := slices.DeleteFunc(k.data(c.Config.Labels), func(dir string) bool { return !isDir(dir) })
		if data {
			k.emptyInside(ctx, c, dirs)
		}
		if err := k.removeAll(ctx, c); err != nil {
			return err
		}
		defer lock.Discard()
		removed = append(removed, "the container "+nameOf(c))
		if !data {
			return nil
		}
		var volumes []string
		_ = json.Unmarshal([]byte(c.Config.Labels[labelVolumes]), &volumes) // a label of ours
		gone, err := k.removeFiles(ctx, nameOf(c), dirs, volumes)
		removed = append(removed, gone...)
		return err
	})
	return removed, err
}

// removeLeft removes the files of a container that is gone. One that is not remembered has left none.
func (k *keeper) removeLeft(ctx context.Context, name string) (removed []string, err error) {
	rec := k.notes().read(name)
	if rec == nil || rec.Identity != k.req.Identity.ID || rec.Profile != k.req.Identity.Profile {
		return nil, nil
	}
	err = k.withLock(ctx, name, nil, changeWait, func(lock *kept.Lock) error {
		if _, err := k.eng.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); !cerrdefs.IsNotFound(err) {
			if err == nil {
				err = failure(driver.KindUnavailable, "the container %s was made meanwhile; try again", name)
			}
			return k.eng.explain("looking for the container "+name, err)
		}
		defer lock.Discard()
		dirs := slices.DeleteFunc(rec.Data, func(dir string) bool { return !isDir(dir) })
		removed, err = k.removeFiles(ctx, name, dirs, rec.Volumes)
		return err
	})
	return removed, err
}

// removeFiles removes the data of a container that is gone, and what is remembered of it. Of what the user has put somewhere
// else by a link only the link goes.
func (k *keeper) removeFiles(ctx context.Context, name string, dirs, volumes []string) (removed []string, err error) {
	for _, dir := range dirs {
		if !isDir(dir) {
			continue // it went with a link
		}
		if link := linkOf(dir); link != "" {
			to, err := filepath.EvalSymlinks(link)
			if err == nil {
				err = os.Remove(link)
			}
			if err != nil {
				return removed, failure(driver.KindDenied, "the container is gone, but not the link in place of its files: %w", err)
			}
			removed = append(removed, "the link "+link+"; what it led to stays: "+to)
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return removed, failure(driver.KindDenied, "the container is gone, but not all of its files: %w; they belong to its user: remove %s with more rights (sudo rm -r), or run a command of the task and then `sandbox rm --data`, which removes them from inside", err, dir)
		}
		removed = append(removed, dir)
	}
	removeParents(dirs)
	gone, err := k.removeVolumes(ctx, volumes)
	if removed = append(removed, gone...); err != nil {
		return removed, err
	}
	return removed, k.notes().drop(name)
}

// removeVolumes removes the engine's volumes that held a container's files.
func (k *keeper) removeVolumes(ctx context.Context, names []string) (removed []string, err error) {
	for _, name := range names {
		if _, err := k.eng.VolumeRemove(ctx, name, client.VolumeRemoveOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
			return removed, k.eng.explain("the container is gone, but not its volume "+name, err)
		}
		removed = append(removed, "the volume "+name)
	}
	return removed, nil
}

// emptyScript empties directories whose files are another user's on the host: those in which there is the file named first.
const emptyScript = `shopt -s nullglob dotglob; for dir in "${@:2}"; do [[ ! -f $dir/$1 ]] || rm -rf -- "$dir"/*; done`

// emptyInside empties the data directories by a bash in the container, as far as that goes. The container has mounted what was
// there when it was made: a file that is put into a directory here shows that this is still the same one, and not a copy that
// the user has put away.
func (k *keeper) emptyInside(ctx context.Context, c container.InspectResponse, dirs []string) {
	dirs = slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool { return linkOf(dir) != "" })
	if os.Geteuid() == 0 || len(dirs) == 0 {
		return
	}
	marker := ".elsewhere-removed-" + owner.NewID()
	var targets []string
	for _, m := range c.Mounts {
		if !slices.Contains(dirs, m.Source) || !m.RW {
			continue
		}
		file := filepath.Join(m.Source, marker)
		if err := os.WriteFile(file, nil, 0o600); err == nil {
			defer os.Remove(file)
			targets = append(targets, m.Destination)
		}
	}
	ectx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.State.Paused {
		_, _ = k.eng.ContainerUnpause(ectx, c.ID, client.ContainerUnpauseOptions{})
	}
	if _, err := k.eng.ContainerStart(ectx, c.ID, client.ContainerStartOptions{}); err != nil || len(targets) == 0 {
		return
	}
	s := &sandbox{eng: k.eng, req: k.req, log: k.log, plan: &plan{name: nameOf(c)}, id: c.ID}
	if _, err := s.run(ectx, emptyScript, append([]string{marker}, targets...)...); err != nil {
		k.log.Debug("a container's files were not removed from inside", "container", nameOf(c), "error", err)
	}
}
