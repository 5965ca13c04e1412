//go:build linux

package singularity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

func complete(b driver.Backend) driver.Backend {
	b.Open = open
	b.Available = available
	b.Keeper = newKeeper
	b.Type = (*sandbox)(nil)
	return b
}

// available looks for the client and asks it for its version.
func available(ctx context.Context, req driver.OpenRequest) error {
	prog, err := findProgram(req.Environ)
	if err != nil {
		return err
	}
	if _, err := prog.run(ctx, call{args: []string{"--version"}, timeout: askTimeout}); err != nil {
		return failure(driver.KindUnavailable, "%s is there and does not work: %w", prog.path, err)
	}
	return nil
}

// opener opens one sandbox.
type opener struct {
	req  driver.OpenRequest
	prog *program
	plan *plan
	log  *slog.Logger
	left *record // of an earlier sandbox of the task, of which only files are left
	hold *hold   // of a throw-away instance, once its directory is there
}

func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	prog, err := findProgram(req.Environ)
	if err != nil {
		return nil, err
	}
	p, err := makePlan(req, prog)
	if err != nil {
		return nil, err
	}
	o := &opener{req: req, prog: prog, plan: p, log: req.Logger}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if p.throwAway {
		// Nobody else knows its name.
		rec, err := o.make(ctx, nil)
		if err != nil {
			return nil, err
		}
		return o.use(ctx, rec, nil)
	}
	lock, err := kept.Open(req.Identity.Home, lockName(p.name), false)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "%w", err)
	}
	sb, err := o.openKept(ctx, lock)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return sb, nil
}

// address is what the commands of `elsewhere sandbox` take for this instance.
func (o *opener) address() string {
	return kept.Address(name, o.req.Identity, o.req.Task, o.plan.name)
}

// openKept finds the instance of the task, starts it or starts it again. Of processes that do so at once one does.
func (o *opener) openKept(ctx context.Context, lock *kept.Lock) (_ driver.Sandbox, err error) {
	done, err := lock.Make(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	defer func() {
		if _, there := os.Lstat(o.plan.record); err != nil && errors.Is(there, os.ErrNotExist) {
			lock.Discard()
		}
	}()
	inUse, err := lock.InUse()
	if err != nil {
		return nil, err
	}
	rec, err := readRecord(o.plan.record)
	if err != nil {
		return nil, err
	}
	if rec, err = o.decide(ctx, rec, inUse); err != nil {
		return nil, err
	}
	if rec, err = o.ensure(ctx, rec); err != nil {
		return nil, err
	}
	if err := lock.Use(); err != nil {
		return nil, failure(driver.KindUnavailable, "%w", err)
	}
	return o.use(ctx, rec, lock)
}

// decide looks at what is there of an earlier time and gives the record to go on with; nil is a new instance.
func (o *opener) decide(ctx context.Context, rec *record, inUse bool) (*record, error) {
	if rec == nil {
		return nil, nil
	}
	if rec.Removed {
		o.left = rec
		if rec.Dir != o.plan.dir {
			o.plan.notices = append(o.plan.notices, "the files of the earlier sandbox of this task stay in "+rec.Dir+", since the scratch directory is another one now")
		}
		return nil, nil
	}
	if rec.PID > 0 && rec.Machine != o.req.Identity.Machine && rec.Boot != bootID() {
		return nil, failure(driver.KindUnavailable, "the sandbox of task %.80q was started on the machine %s and may run there, over the same files: stop it there (`elsewhere sandbox stop %s`), or name another task with --task", rec.Task, rec.Machine, o.address())
	}
	if !rec.Persistent && !inUse {
		// Whoever made it is gone without removing it.
		return nil, destroy(ctx, o.prog, rec, o.plan.record, true)
	}
	if rec.Started.IsZero() && len(o.plan.settings.Diff(rec.Settings)) > 0 && !inUse {
		// Whoever made it was killed before it ran: nothing is lost but what was there before.
		return nil, destroy(ctx, o.prog, rec, o.plan.record, false)
	}
	action, diff := kept.Decide(kept.Found{Settings: rec.Settings, Persistent: rec.Persistent, InUse: inUse}, o.plan.settings)
	switch action {
	case kept.Reuse:
		return rec, nil
	case kept.Replace:
		o.plan.notices = append(o.plan.notices, fmt.Sprintf("the instance was made with other settings (%s) and was replaced; its files are kept", strings.Join(diff, ", ")))
		if err := stop(ctx, o.prog, rec); err != nil {
			return nil, err
		}
		rec.PID, rec.Settings = 0, o.plan.settings
		return rec, nil
	}
	why := ""
	if inUse {
		why = " and is in use"
	}
	return nil, failure(driver.KindConfig, "the sandbox of task %.80q was made with other settings%s (they differ in: %s): put them back, name another task with --task, or give this one up with `elsewhere sandbox reset %s`", rec.Task, why, strings.Join(diff, ", "), o.address())
}

// ensure gives the record of an instance that runs.
func (o *opener) ensure(ctx context.Context, rec *record) (*record, error) {
	running, err := o.prog.list(ctx, o.plan.name)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot ask which instances run: %w", err)
	}
	found, there := running[o.plan.name]
	if there && beginOf(found.PID) == "" {
		wait, cancel := context.WithTimeout(ctx, stopTimeout)
		defer cancel()
		if err := letGo(wait, o.prog, o.plan.name); err != nil {
			return nil, err
		}
		there = false
	}
	switch {
	case rec != nil && there && rec.PID == found.PID && rec.lives():
		if want := o.plan.shared.strings(); !slices.Equal(rec.Shared, want) {
			// Not worth the processes that run in it.
			o.plan.notices = append(o.plan.notices, "the skills and caches of HERMES_HOME that are there now are not those that the instance was started with: `elsewhere sandbox stop "+o.address()+"` lets the next call see them")
		}
		return rec, nil
	case rec != nil && there && rec.PID == 0:
		// Whoever started it was killed before he could write so. It was started with what the record says.
		o.adopt(rec, found)
		return rec, o.settle(ctx, rec)
	case there:
		// An instance of our name that the record does not know: with what settings, nobody can tell.
		if err := stop(ctx, o.prog, &record{Name: o.plan.name, PID: found.PID, Begin: beginOf(found.PID), Boot: bootID()}); err != nil {
			return nil, err
		}
	}
	switch {
	case rec == nil:
	case rec.PID > 0:
		o.plan.recreated = "the instance " + rec.Name + " of this task had ended (it was killed, or the machine was started again) and was started anew: what ran in it is gone, its files are there"
	case rec.Stopped:
		o.plan.notices = append(o.plan.notices, "the instance had been stopped and was started again: what ran in it is gone, its files are there")
	}
	return o.make(ctx, rec)
}

// adopt notes which process the instance is.
func (o *opener) adopt(rec *record, found listed) {
	rec.PID, rec.Begin, rec.Boot, rec.Machine = found.PID, beginOf(found.PID), bootID(), o.req.Identity.Machine
	rec.Started, rec.Owner, rec.Stopped = time.Now(), o.req.Identity.Owner, false
}

// make starts the instance: a new one, or that of rec again with the files that it had. What a failed start made is removed.
func (o *opener) make(ctx context.Context, rec *record) (_ *record, err error) {
	p := o.plan
	im := &images{prog: o.prog, cache: p.cache, home: o.prog.home, dir: o.req.Dir, timeout: o.req.Config.Duration("singularity_build_timeout"), progress: o.req.Progress}
	source, notice, err := im.resolve(ctx, p.image)
	if err != nil {
		return nil, err
	}
	if notice != "" {
		p.notices = append(p.notices, notice)
	}
	fresh := rec == nil
	if fresh {
		rec = &record{
			Name: p.name, Task: o.req.Task, Identity: o.req.Identity.ID, Profile: o.req.Identity.Profile, Settings: p.settings,
			Persistent: p.persistent, ThrowAway: p.throwAway, Image: p.image, Dir: p.dir, State: p.stateDir, Created: time.Now(),
		}
	}
	rec.PID, rec.Source, rec.User, rec.Home = 0, source, p.user, p.home
	rec.Shared, rec.Staging = p.shared.strings(), p.shared.staging
	rec.Machine, rec.Owner = o.req.Identity.Machine, o.req.Identity.Owner
	if p.throwAway && owner.Known("", rec.Owner) {
		rec.Leases = owner.Tag("")
	}
	_, before := os.Lstat(p.dir)
	defer func() {
		if err != nil {
			err = o.unmake(context.WithoutCancel(ctx), rec, fresh, before == nil, err)
		}
	}()
	if err := o.makeDirs(ctx, fresh && !p.persistent); err != nil {
		return nil, failure(driver.KindUnavailable, "the instance's directories cannot be made: %w; where a command has put something in their place, `elsewhere sandbox reset %s` makes them anew; else set terminal.scratch_dir to a directory with room", err, o.address())
	}
	if p.throwAway {
		// Before the record, by which others find the instance. Where the file system knows no locks the lease has to do.
		if o.hold, err = takeHold(p.dir); err != nil {
			o.log.Debug("a throw-away instance has no lock that tells that it is used", "err", err)
		}
	}
	if err := rec.write(p.record); err != nil {
		return nil, err
	}
	found, err := o.start(ctx, rec)
	if err != nil {
		return nil, err
	}
	o.adopt(rec, found)
	return rec, o.settle(ctx, rec)
}

// unmake takes back a start that failed with err: a new sandbox leaves nothing, so that the task can be tried with other settings, and
// files that were there before stay. It returns err, and what went wrong here.
func (o *opener) unmake(ctx context.Context, rec *record, fresh, filesBefore bool, err error) error {
	if !fresh {
		_ = stop(ctx, o.prog, rec)
		return err
	}
	o.hold.giveUp()
	err = errors.Join(err, destroy(ctx, o.prog, rec, o.plan.record, !o.plan.persistent || !filesBefore))
	if o.left != nil {
		err = errors.Join(err, o.left.write(o.plan.record))
	}
	return err
}

// makeDirs makes the directories that the instance is started over. Temporary files end with an instance, as with a
// machine that is started again.
func (o *opener) makeDirs(ctx context.Context, fresh bool) error {
	p := o.plan
	if fresh {
		// What a killed process left of an instance that was not to persist.
		if err := removeTree(ctx, p.dir); err != nil {
			return err
		}
	}
	if err := removeTree(ctx, filepath.Join(p.dir, "work")); err != nil {
		return err
	}
	for _, dir := range []string{p.dir, filepath.Join(p.dir, "overlay"), filepath.Join(p.dir, "work"), filepath.Join(p.dir, "home"), p.stateDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if p.shared.refresh != nil {
		notices, err := p.shared.refresh(ctx)
		p.notices = append(p.notices, notices...)
		if err != nil {
			return err
		}
	}
	return p.makeMountPoints()
}

// makeMountPoints makes the directories below the home that others are mounted on: the engine cannot, in what is mounted
// itself. Commands may have written there, so nothing leads out of it.
func (p *plan) makeMountPoints() error {
	root, err := os.OpenRoot(filepath.Join(p.dir, "home"))
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range p.shared.mounts {
		rel, err := filepath.Rel(p.home, m.target)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(rel, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// settle asks the instance that was just started what the image has, and writes the record.
func (o *opener) settle(ctx context.Context, rec *record) error {
	seen, err := o.look(ctx, rec.Name, "")
	if err != nil {
		return err
	}
	rec.Setsid = seen.setsid
	for i, f := range rec.Features {
		if f.Name == "overlay" && f.State == driver.Degraded {
			rec.Features[i].Detail = fmt.Sprintf("in memory, at most %d MiB, gone with the instance", seen.memory>>20)
			o.plan.notices = append(o.plan.notices, fmt.Sprintf("no directory overlay is possible here: what is written outside the home and temporary directories is kept in memory, at most %d MiB, and gone when the instance ends", seen.memory>>20))
		}
	}
	return rec.write(o.plan.record)
}

// attempt is one way to start an instance.
type attempt struct {
	userns, limits, overlay bool
}

// start starts the instance by the first way that works. What the engine refuses is left out one by one, and rec.Features
// says what is not in force. An instance starts only with all that isolates it.
func (o *opener) start(ctx context.Context, rec *record) (listed, error) {
	p := o.plan
	root := os.Geteuid() == 0
	noLimits := ""
	if len(p.limits.args) > 0 {
		noLimits = hopeless()
	}
	var ways []attempt
	for _, overlay := range []bool{true, false} {
		for _, limited := range []bool{true, false} {
			if limited && (len(p.limits.args) == 0 || noLimits != "") {
				continue
			}
			ways = append(ways, attempt{limits: limited, overlay: overlay})
			if root {
				ways = append(ways, attempt{limits: limited, overlay: overlay, userns: true})
			}
		}
	}
	o.say("starting an instance of " + p.image)
	var first error
	for _, way := range ways {
		if !way.overlay && (first == nil || !strings.Contains(first.Error(), "overlay")) {
			break // not the overlay's fault
		}
		args := o.startArgs(rec, way)
		_, err := o.prog.run(ctx, call{args: args, timeout: startTimeout})
		if ctx.Err() != nil {
			return listed{}, context.Cause(ctx)
		}
		if err != nil {
			o.log.Debug("a way to start the instance did not work", "args", args, "err", err)
			if way.limits && !root || way.limits && way.userns {
				noLimits = reason(err)
			}
			if first == nil || !way.limits {
				first = err
			}
			continue
		}
		if !way.limits && len(p.limits.args) > 0 && p.limits.strict && len(p.limits.chosen) > 0 {
			_ = o.stopByName(ctx)
			return listed{}, p.limits.refused(noLimits)
		}
		running, err := o.prog.list(ctx, p.name)
		if err != nil {
			return listed{}, err
		}
		found, ok := running[p.name]
		if !ok {
			return listed{}, failure(driver.KindUnavailable, "the instance of %s ended right after its start; see %s", p.image, filepath.Join(o.prog.home, ".apptainer/instances/logs"))
		}
		rec.Features = o.features(way, noLimits)
		return found, nil
	}
	if p.fakeroot && strings.Contains(first.Error(), "fakeroot") {
		return listed{}, failure(driver.KindConfig, "no instance of %s can be started as terminal.singularity_fakeroot asks for: %w; give %s a line in /etc/subuid and in /etc/subgid, or switch that setting off",
			p.image, first, o.prog.user)
	}
	or := ""
	if strings.Contains(rec.Source, "://") {
		or = "; a .sif file of this machine needs no registry"
	}
	return listed{}, failure(driver.KindUnavailable, "no instance of %s (terminal.singularity_image, %s) can be started: %w; see whether that is the image that you mean, and whether `%s exec %s true` works%s",
		p.image, o.req.Config.Origin("singularity_image"), first, o.prog.path, rec.Source, or)
}

func (o *opener) stopByName(ctx context.Context) error {
	running, err := o.prog.list(ctx, o.plan.name)
	if err != nil {
		return err
	}
	pid := running[o.plan.name].PID
	return stop(context.WithoutCancel(ctx), o.prog, &record{Name: o.plan.name, PID: pid, Begin: beginOf(pid), Boot: bootID()})
}

// startArgs is the command line of `instance start`. It holds no secret: the user's other processes can read it. With
// --no-home, --home mounts nothing and says only what HOME is inside.
func (o *opener) startArgs(rec *record, way attempt) []string {
	p := o.plan
	args := []string{"-s", "instance", "start", "--containall", "--no-home", "--home", "/:" + p.home, "--workdir", filepath.Join(p.dir, "work")}
	if p.fakeroot {
		args = append(args, "--fakeroot")
	}
	if way.userns && !p.fakeroot {
		args = append(args, "--userns")
	}
	if !p.network {
		args = append(args, "--net", "--network", "none")
	}
	if p.gpu != "" {
		args = append(args, "--"+p.gpu)
	}
	if way.limits {
		args = append(args, p.limits.args...)
	}
	if way.overlay {
		args = append(args, "--overlay", field(filepath.Join(p.dir, "overlay")))
	} else {
		args = append(args, "--writable-tmpfs")
	}
	for _, m := range p.mounts() {
		args = append(args, m.args()...)
	}
	return append(args, rec.Source, p.name)
}

// features says what is in force in an instance that was started this way, and notes what has to be said once.
func (o *opener) features(way attempt, noLimits string) []driver.Feature {
	p := o.plan
	isolation := driver.Feature{Name: "isolation", State: driver.Active, Detail: "own mounts, processes, ipc and users; as the user " + o.prog.user + " of this machine"}
	if os.Geteuid() == 0 {
		isolation.State = driver.Degraded
		isolation.Detail = "own mounts, processes and ipc, but as root of this machine: the kernel's own settings can be written"
		p.notices = append(p.notices, "the instance runs as root of this machine, which weakens its isolation: use an ordinary user")
	}
	reason := ""
	if !way.limits {
		reason = noLimits
	}
	limited := p.limits.feature(reason)
	if limited.State == driver.Degraded {
		p.notices = append(p.notices, "limits "+limited.Detail)
	}
	overlay := driver.Feature{Name: "overlay", State: driver.Active, Detail: "a directory on " + p.scratch}
	if p.throwAway {
		overlay.Detail = "a directory on the scratch disk (scratch_dir)"
	}
	if !way.overlay {
		overlay.State = driver.Degraded
	}
	persistence := driver.Feature{Name: "persistence", State: driver.Active, Detail: "files are kept in " + p.dir}
	switch {
	case p.persistent:
	case p.throwAway && p.keeps:
		persistence.Detail = "the files of each task are kept; this instance is thrown away, with its files"
	default:
		persistence.State, persistence.Detail = driver.Unsupported, "files are removed on close: container_persistent is off"
	}
	disk := driver.Feature{Name: "disk limit", State: driver.Unsupported, Detail: noDiskLimit + ": terminal.container_disk is not applied"}
	network := driver.Feature{Name: "network", State: driver.Active, Detail: "the host's"}
	if !p.network {
		network.Detail = "none"
	}
	gpu := driver.Feature{Name: "gpu", State: driver.Unsupported, Detail: "none asked for (terminal.singularity_gpu)"}
	if p.gpu != "" {
		gpu.State, gpu.Detail = driver.Active, p.gpu
	}
	users := driver.Feature{Name: "user namespace", State: driver.Active, Detail: "the engine's own choice"}
	switch {
	case p.fakeroot:
		users.Detail = "root inside is " + o.prog.user + " outside, other ids are subordinate ones (--fakeroot)"
	case way.userns:
		users.State, users.Detail = driver.Degraded, "root could not start it without one (--userns): there is one user id"
	}
	return []driver.Feature{isolation, users, overlay, persistence, limited, disk, network, gpu}
}

func (o *opener) say(text string) {
	if o.req.Progress != nil {
		o.req.Progress(text)
	}
}

// lockName is what a sandbox's lock has its files by: other backends have sandboxes of the same name.
func lockName(name string) string { return "singularity." + name }
