package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// The labels of our containers. Hermes writes 1 to the first and takes only those for its own.
const (
	labelAgent       = "hermes-agent"
	labelTask        = "hermes-task-id"
	labelProfile     = "hermes-profile"
	labelTask64      = "elsewhere.task" // the task in base64: a label need not survive every byte
	labelIdentity    = "elsewhere.identity"
	labelMachine     = "elsewhere.machine"
	labelUID         = "elsewhere.uid"
	labelFingerprint = "elsewhere.fingerprint"
	labelSettings    = "elsewhere.settings"
	labelPersist     = "elsewhere.persist"
	labelOwner       = "elsewhere.owner"
	labelLeases      = "elsewhere.leases"  // where the owner's lease is (owner.Tag); "" where it has none
	labelShared      = "elsewhere.shared"  // the shared key, where there is one
	labelData        = "elsewhere.data"    // directories of the machine that made it, as JSON
	labelVolumes     = "elsewhere.volumes" // volumes of the engine that hold its files, as JSON
	labelStaging     = "elsewhere.staging" // a directory of the machine that made it that goes with it
	labelOurs        = "elsewhere.ours"    // the mounts that are not the user's, by target, as JSON
	labelSocket      = "elsewhere.socket"  // one of the user's mounts leads to the engine's socket

	agent = "elsewhere"
)

const (
	// changeWait bounds the wait for a container that somebody else makes, starts, restarts or removes, and changePoll is how
	// often it is looked at.
	changeWait = 30 * time.Second
	changePoll = 50 * time.Millisecond
	// removeWait bounds the removal of what a failed opening made.
	removeWait = 15 * time.Second
)

// labels say whose container this is and what it was made with. None is a secret.
func (s *sandbox) labels() map[string]string {
	id := s.req.Identity
	labels := maps.Clone(s.plan.config.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	data, _ := json.Marshal(s.plan.dataDirs) // strings always marshal
	volumes, _ := json.Marshal(s.plan.volumes)
	ours, _ := json.Marshal(s.plan.ours)
	maps.Copy(labels, map[string]string{
		labelAgent: agent, labelTask: strings.ToValidUTF8(s.req.Task, "?"), labelTask64: base64.StdEncoding.EncodeToString([]byte(s.req.Task)),
		labelProfile: id.Profile, labelIdentity: id.ID, labelMachine: id.Machine, labelUID: id.UID, labelOwner: id.Owner, labelLeases: s.leases(),
		labelFingerprint: s.plan.settings.Fingerprint(), labelSettings: s.plan.settings.String(),
		labelPersist: strconv.FormatBool(s.plan.process), labelData: string(data), labelVolumes: string(volumes), labelStaging: s.plan.staging,
		labelOurs: string(ours), labelSocket: strconv.FormatBool(s.plan.socket),
	})
	if key := s.sharedKey(); key != "" {
		labels[labelShared] = key
	}
	return labels
}

// leases names the place of this process's lease, by which others know that it lives. Where nobody else finds the container, a lock
// tells nothing, and without a lease nobody may judge.
func (s *sandbox) leases() string {
	if !s.alone() {
		return owner.Tag(s.req.Identity.Home)
	}
	if !owner.Known("", s.req.Identity.Owner) {
		return ""
	}
	return owner.Tag("")
}

func (s *sandbox) sharedKey() string {
	if s.req.ThrowAway {
		return ""
	}
	return s.req.Config.String("docker_shared_container_key")
}

// taskOf is the task of a container with these labels, as the user wrote it.
func taskOf(labels map[string]string) string {
	if raw, err := base64.StdEncoding.DecodeString(labels[labelTask64]); err == nil {
		return string(raw)
	}
	return labels[labelTask]
}

// ours tells whether a container with these labels may be used for this task.
func (s *sandbox) ours(labels map[string]string) bool {
	if labels[labelAgent] != agent || taskOf(labels) != s.req.Task || labels[labelShared] != s.sharedKey() {
		return false
	}
	return s.sharedKey() != "" || labels[labelIdentity] == s.req.Identity.ID && labels[labelProfile] == s.req.Identity.Profile
}

// enter makes sure that the container runs and looks around in it. Of the processes of this machine only one does so at a
// time; of those of other machines the engine's name conflict elects one.
func (s *sandbox) enter(ctx context.Context) (*surroundings, error) {
	var err error
	if !s.alone() {
		if s.lock, err = kept.Open(s.req.Identity.Home, s.plan.name, s.sharedKey() != ""); err != nil {
			return nil, failure(driver.KindUnavailable, "%w", err)
		}
		done, err := s.lock.Make(ctx)
		if err != nil {
			return nil, failure(driver.KindUnavailable, "%w", err)
		}
		defer done()
	}
	var was *record
	if !s.alone() {
		was = recordsOf(s.eng, s.req.Identity).read(s.plan.name)
	}
	for deadline := time.Now().Add(changeWait); ; {
		around, err := s.tryEnter(ctx)
		if err == nil && !s.alone() {
			if s.recreated, err = s.remember(was); err != nil {
				s.log.Debug("it is not remembered that the container is there", "container", s.plan.name, "error", err)
			}
			return around, nil
		}
		if !errors.Is(err, errAgain) {
			if err != nil && !s.alone() && was == nil {
				s.unmake(ctx)
			}
			return around, err
		}
		select {
		case <-time.After(changePoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil, failure(driver.KindUnavailable, "the container %s could not be entered within %s: %w", s.plan.name, changeWait, err)
		}
	}
}

// unmake removes, with the right to make, the directories and the lock of a task that has no container, and had none.
func (s *sandbox) unmake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
	defer cancel()
	if _, err := s.eng.ContainerInspect(ctx, s.plan.name, client.ContainerInspectOptions{}); !cerrdefs.IsNotFound(err) {
		return
	}
	records{eng: s.eng}.removeEmpty(ctx, s.plan.dataDirs)
	s.lock.Discard()
}

// tryEnter is one try of enter. What it made and cannot use it removes.
func (s *sandbox) tryEnter(ctx context.Context) (*surroundings, error) {
	made, err := s.ensure(ctx)
	if err != nil {
		return nil, err
	}
	if s.fresh {
		s.noteStart(ctx)
	}
	around, err := s.lookAround(ctx)
	if err == nil && s.lock != nil {
		err = s.lock.Use()
	}
	if err != nil && made {
		s.removeMade(ctx, s.id)
	}
	return around, err
}

// noteStart asks when the container was started: one that is started anew is another one for those who are in it. Without an
// answer it cannot be told.
func (s *sandbox) noteStart(ctx context.Context) {
	s.since = ""
	if found, err := s.eng.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{}); err == nil && found.Container.State.Running {
		s.since = found.Container.State.StartedAt
	}
}

// errAgain says that the container changed meanwhile.
var errAgain = errors.New("it changes all the time")

// ensure finds the container in whatever state, or makes it; it then runs. made says that this call made it.
func (s *sandbox) ensure(ctx context.Context) (made bool, err error) {
	found, err := s.eng.ContainerInspect(ctx, s.plan.name, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		if err := s.needImage(ctx); err != nil {
			return false, err
		}
		s.fresh = true
		return true, s.make(ctx)
	case err != nil:
		return false, s.eng.explain("looking for the container "+s.plan.name, err)
	}
	c := found.Container
	if strings.TrimPrefix(c.Name, "/") != s.plan.name || c.Config == nil || !s.ours(c.Config.Labels) {
		return false, failure(driver.KindConfig, "the container %s is there and is not elsewhere's for this task: rename or remove it, or use another task", s.plan.name)
	}
	switch c.State.Status {
	case container.StateRemoving, container.StateRestarting:
		return false, s.awaitChange(ctx, c.ID, c.State.Status)
	case container.StatePaused:
		return false, paused(s.plan.name)
	case container.StateDead:
		return false, s.removeThen(ctx, c.ID)
	case "stopping": // Podman's
		return false, s.awaitChange(ctx, c.ID, c.State.Status)
	}
	running := c.State.Status == container.StateRunning
	action, diff, err := s.decide(ctx, c, running)
	switch {
	case err != nil:
		return false, err
	case action == kept.Refuse:
		return false, s.refusal(c, diff, running)
	case action == kept.Replace:
		if err := s.needImage(ctx); err != nil {
			return false, err
		}
		s.say("the container was made again, since it had been made with other settings: " + s.describe(c, diff))
		return false, s.removeThen(ctx, c.ID)
	case running:
		s.id, s.fresh, s.since = c.ID, false, c.State.StartedAt
		return false, nil
	}
	s.fresh = true
	if _, err := s.eng.ContainerStart(ctx, c.ID, client.ContainerStartOptions{}); err != nil {
		if cerrdefs.IsNotFound(err) || strings.Contains(err.Error(), "container state improper") { // Podman's word for a change meanwhile
			return false, errAgain
		}
		if c.State.Status == container.StateCreated {
			return false, s.removeThen(ctx, c.ID) // it never ran: nothing is lost
		}
		return false, s.eng.explain("starting the container "+s.plan.name+" again (`elsewhere sandbox reset "+s.address()+"` makes a new one)", err)
	}
	s.id = c.ID
	if c.State.Status != container.StateCreated {
		s.say(s.startedAgain(c.State))
	}
	return false, nil
}

// lostByRestart is what a stop takes and leaves.
const lostByRestart = "what ran in it and its sessions' variables are gone, its files are there"

// startedAgain says what a container has lost that was found stopped.
func (s *sandbox) startedAgain(was *container.State) string {
	text := "the container had been stopped and was started again: " + lostByRestart
	if was.OOMKilled {
		text += "; " + s.outOfMemory()
	}
	return text
}

// make makes and starts the container. Where either fails, nothing is left.
func (s *sandbox) make(ctx context.Context) error {
	if s.req.Progress != nil {
		s.req.Progress("making the container " + s.plan.name)
	}
	if err := s.plan.makeDataDirs(); err != nil {
		return failure(driver.KindConfig, "%w", err)
	}
	config := *s.plan.config
	config.Labels = s.labels()
	made, err := s.eng.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: s.plan.name, Config: &config, HostConfig: withStateDir(s.plan.host, s.user), NetworkingConfig: s.plan.network,
	})
	if cerrdefs.IsConflict(err) || err != nil && strings.Contains(err.Error(), "is already in use") { // Podman has no status for it
		return errAgain // somebody on another machine was first
	}
	if err != nil {
		if ctx.Err() != nil {
			s.removeMade(ctx, s.plan.name) // it may have been made all the same
		}
		return s.refused("making the container "+s.plan.name, err)
	}
	for _, warning := range made.Warnings {
		s.log.Debug("the engine says of a new container", "container", s.plan.name, "warning", warning)
	}
	if _, err := s.eng.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		s.removeMade(ctx, made.ID)
		return s.startError(err)
	}
	s.id = made.ID
	return nil
}

// withStateDir closes the tmpfs for state files to all but root where root is the container's user, and mounts a second one
// for the state of kept sessions: in an image without mkdir there is no other way to a directory of its own.
func withStateDir(host *container.HostConfig, user string) *container.HostConfig {
	options, ok := host.Tmpfs[stateRoot]
	user, _, _ = strings.Cut(user, ":")
	if !ok || user != "" && user != "root" && user != "0" {
		return host
	}
	options = strings.Join(slices.DeleteFunc(strings.Split(options, ","), func(o string) bool { return strings.HasPrefix(o, "mode=") }), ",") + ",mode=0700"
	with := *host
	with.Tmpfs = maps.Clone(host.Tmpfs)
	with.Tmpfs[stateRoot], with.Tmpfs[path.Join(stateRoot, "state")] = options, options
	return &with
}

// startError explains why a new container did not start.
func (s *sandbox) startError(err error) error {
	text := err.Error()
	if strings.Contains(text, "bash") && (strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file")) {
		return s.noBash()
	}
	return s.refused("starting the container "+s.plan.name, err)
}

// runtimePrefaces stand before what an engine's runtime has to say, and say nothing.
var runtimePrefaces = []string{
	"failed to create shim task: ", "failed to create task for container: ", "OCI runtime create failed: ", "runc create failed: ",
	"unable to start container process: ", "error during container init: ", "container_linux.go:",
}

// refused is the error of an engine that does not make or start the container that it was asked for. It names the settings
// that asked for more than the default, since the engine knows nothing of settings.
func (s *sandbox) refused(what string, err error) error {
	down := client.IsErrConnectionFailed(err)
	if err = s.eng.explain(what, err); down || len(s.plan.asked) == 0 {
		return err
	}
	text := err.Error()
	for _, preface := range runtimePrefaces {
		text = strings.ReplaceAll(text, preface, "")
	}
	kind := classify(err)
	switch {
	case strings.Contains(text, "could not select device driver"):
		kind, text = driver.KindConfig, what+": the engine has no driver for GPUs (install the NVIDIA Container Toolkit there)"
	case strings.Contains(text, "port is already allocated"), strings.Contains(text, "address already in use"):
		kind = driver.KindConfig
	}
	return failure(kind, "%s; the settings that ask for it are %s: correct or unset what the engine names", text, strings.Join(s.plan.asked, ", "))
}

func (s *sandbox) noBash() error {
	if len(s.plan.hidden) > 0 {
		return failure(driver.KindConfig, "no bash can be run in the container, since something is mounted over the image's %s (%s): mount it somewhere else",
			strings.Join(s.plan.hidden, ", "), strings.Join(s.plan.asked, ", "))
	}
	return failure(driver.KindConfig, "the image %s has no bash, in which every command runs: set docker_image to one that has, or add it to this one", s.plan.config.Image)
}

// removeMade removes what this opening made, also when its context is done.
func (s *sandbox) removeMade(ctx context.Context, id string) {
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
	defer cancel()
	if id == s.plan.name {
		found, err := s.eng.ContainerInspect(rctx, id, client.ContainerInspectOptions{})
		if err != nil || found.Container.Config == nil || !s.ours(found.Container.Config.Labels) || found.Container.State.Status != container.StateCreated {
			return
		}
		id = found.Container.ID
	}
	if err := removeContainer(rctx, s.eng, id); err != nil {
		s.log.Warn("a half-made container could not be removed", "container", s.plan.name, "error", err)
	}
}

// removeContainer removes a container in whatever state, with its nameless volumes. One that is gone is no error, and one
// that somebody else is removing is waited for.
func removeContainer(ctx context.Context, eng *engine, id string) error {
	_, err := eng.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil, cerrdefs.IsNotFound(err):
		return nil
	case cerrdefs.IsConflict(err):
		return awaitGone(ctx, eng, id)
	default:
		return eng.explain("removing the container "+shortID(id), err)
	}
}

// removeThen removes a container so that ensure can begin again.
func (s *sandbox) removeThen(ctx context.Context, id string) error {
	if err := removeContainer(ctx, s.eng, id); err != nil {
		return err
	}
	s.replaced = true
	return errAgain
}

func awaitGone(ctx context.Context, eng *engine, id string) error {
	return await(ctx, "the container "+shortID(id)+" is still being removed", func() (bool, error) {
		_, err := eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

// awaitChange waits until a container has left a state in which nothing can be done with it.
func (s *sandbox) awaitChange(ctx context.Context, id string, state container.ContainerState) error {
	err := await(ctx, fmt.Sprintf("the container %s is still %s", s.plan.name, state), func() (bool, error) {
		now, err := s.eng.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		if cerrdefs.IsNotFound(err) {
			return true, nil
		}
		return err == nil && now.Container.State.Status != state, err
	})
	if err != nil {
		return err
	}
	return errAgain
}

// await looks again and again until over says that it is, at most for changeWait.
func await(ctx context.Context, what string, over func() (bool, error)) error {
	deadline := time.NewTimer(changeWait)
	defer deadline.Stop()
	for {
		if done, err := over(); done || err != nil {
			return err
		}
		select {
		case <-time.After(changePoll):
		case <-deadline.C:
			return failure(driver.KindUnavailable, "%s after %s; see `docker ps -a`", what, changeWait)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decide says what becomes of a container that is there. Who uses it is asked only where that matters.
func (s *sandbox) decide(ctx context.Context, c container.InspectResponse, running bool) (kept.Action, []string, error) {
	found := kept.Found{Settings: kept.Parse(c.Config.Labels[labelSettings]), Persistent: c.Config.Labels[labelPersist] == "true"}
	if len(s.plan.settings.Diff(found.Settings)) > 0 && running {
		var err error
		if found.InUse, err = inUse(ctx, s.eng, s.lock, c, s.req.Identity.Machine); err != nil {
			return 0, nil, err
		}
	}
	action, diff := kept.Decide(found, s.plan.settings)
	return action, diff, nil
}

// refusal names the settings that differ and the ways out.
func (s *sandbox) refusal(c container.InspectResponse, diff []string, running bool) error {
	why, anew := "it is kept, with what runs in it", "elsewhere sandbox reset "
	if c.Config.Labels[labelPersist] != "true" {
		why, anew = "another process uses it", "elsewhere sandbox reset --force "
	}
	return failure(driver.KindConfig, "the container of the task %.80q (%s) was made with other settings, and %s: %s; use another task (--task OTHER), or make it anew (%s)",
		s.req.Task, s.plan.name, why, s.describe(c, diff), anew+s.address())
}

// describe lists settings that differ with both values, where they are short.
func (s *sandbox) describe(c container.InspectResponse, diff []string) string {
	had := kept.Parse(c.Config.Labels[labelSettings])
	if named := slices.DeleteFunc(slices.Clone(diff), func(key string) bool { return key == "data" || key == "network" }); len(named) > 0 {
		diff = named // those two follow from others, and a user knows them by no such name
	}
	parts := make([]string, len(diff))
	for i, key := range diff {
		parts[i] = key
		const short = 60
		if a, b := had[key], s.plan.settings[key]; len(a) <= short && len(b) <= short {
			parts[i] += fmt.Sprintf(" (made with %s, now %s)", shown(key, a), shown(key, b))
		}
	}
	return strings.Join(parts, ", ")
}

// shown is a setting's value in its canonical form as people write it.
func shown(key, value string) string {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil && n > 0 && (key == "container_disk" || slices.Contains(sizesInMemory, key)) {
		return size(n)
	}
	return strconv.Quote(value)
}

func (s *sandbox) say(notice string) { s.plan.notices = append(s.plan.notices, notice) }

// inUse tells whether a process that lives uses a running container. On this machine a lock tells; for those of other
// machines, where the container was made by one, a watchdog of elsewhere's that runs in it does. A bash that stays for its
// background children is no use of it.
func inUse(ctx context.Context, eng *engine, lock *kept.Lock, c container.InspectResponse, machine string) (bool, error) {
	if lock == nil {
		return false, nil
	}
	used, err := lock.InUse()
	if err != nil || used || lockTells(c, machine) {
		return used, err
	}
	return watched(ctx, eng, c.ID, nil), nil
}

// lockTells says that all who use a container hold the lock: no other machine knows it, and no other user.
func lockTells(c container.InspectResponse, machine string) bool {
	return c.Config.Labels[labelMachine] == machine && c.Config.Labels[labelShared] == ""
}

// watched tells whether a watchdog runs in a container, other than those with the pids of own on the engine's machine. Where that
// cannot be told the container is left alone.
func watched(ctx context.Context, eng *engine, id string, own []string) bool {
	top, err := eng.ContainerTop(ctx, id, client.ContainerTopOptions{Arguments: []string{"-eo", "pid,args"}})
	if err != nil {
		return true
	}
	return slices.ContainsFunc(top.Processes, func(row []string) bool {
		return isWatchdog(strings.Join(row, " ")) && !slices.Contains(own, row[0])
	})
}

// leaveWait is how long the watchdogs of processes that have just closed a container may take to leave it.
const leaveWait = 2 * time.Second

// othersUse is inUse for a process that closes a running container. Its own watchdog is no use, be it still there, and those of
// others who left a moment ago have time to go: nobody would remove the container after them.
func (s *sandbox) othersUse(ctx context.Context, lock *kept.Lock, c container.InspectResponse) (bool, error) {
	used, err := lock.InUse()
	if err != nil || used || lockTells(c, s.req.Identity.Machine) {
		return used, err
	}
	for deadline := time.Now().Add(leaveWait); ; {
		if !watched(ctx, s.eng, c.ID, s.ownWatchdogs(ctx)) {
			return false, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return true, nil
		}
		time.Sleep(changePoll)
	}
}

// ownWatchdogs are the pids, on the engine's machine, of the bashes of this process that end trees and are still there.
func (s *sandbox) ownWatchdogs(ctx context.Context) []string {
	s.mu.Lock()
	execs := slices.Clone(s.enders)
	s.mu.Unlock()
	var pids []string
	for _, exec := range execs {
		if answer, err := s.eng.ExecInspect(ctx, exec, client.ExecInspectOptions{}); err == nil && answer.Running {
			pids = append(pids, strconv.Itoa(answer.PID))
		}
	}
	return pids
}

// isWatchdog knows the command line of a bash that ends trees, of any version of elsewhere's. That of a call has more behind
// it.
func isWatchdog(line string) bool {
	return strings.Contains(line, "bash --noprofile --norc -p -c IFS= read -r -N ") && strings.HasSuffix(strings.TrimSpace(line), `; eval "$BASH_EXECUTION_STRING"`)
}

// end removes the container unless another process uses it.
func (s *sandbox) end(ctx context.Context) (removed bool, err error) {
	if s.alone() {
		if err = removeContainer(ctx, s.eng, s.id); err == nil {
			s.removeStaging(s.plan.staging)
		}
		return err == nil, err
	}
	s.giveUp()
	lock, err := kept.Open(s.req.Identity.Home, s.plan.name, s.sharedKey() != "")
	if err != nil {
		return false, err
	}
	defer lock.Close()
	done, err := lock.Make(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	found, err := s.eng.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
	switch {
	case cerrdefs.IsNotFound(err):
		s.forget(ctx, lock)
		return true, nil
	case err != nil:
		return false, s.eng.explain("looking for the container "+s.plan.name, err)
	}
	if found.Container.State.Running {
		if used, err := s.othersUse(ctx, lock, found.Container); err != nil || used {
			return false, err
		}
	}
	if err = removeContainer(ctx, s.eng, s.id); err == nil {
		s.removeStaging(s.plan.staging)
		s.forget(ctx, lock)
	}
	return err == nil, err
}

// forget notes that this process has removed the container, unless there is another one in its place. It gives the right to make
// up.
func (s *sandbox) forget(ctx context.Context, lock *kept.Lock) {
	notes := recordsOf(s.eng, s.req.Identity)
	if rec := notes.read(s.plan.name); rec != nil && rec.ID != s.id {
		return
	}
	if err := notes.forget(ctx, s.plan.name); err != nil {
		s.log.Debug("it is not noted that the container is gone", "container", s.plan.name, "error", err)
	}
	lock.Discard()
}

// removeStaging removes the directory that went with a container which is gone.
func (s *sandbox) removeStaging(dir string) {
	if dir == "" {
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		s.log.Debug("staged files were not removed", "directory", dir, "error", err)
	}
}
