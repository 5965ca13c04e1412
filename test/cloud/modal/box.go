//go:build linux

package modal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elsewhere-sh/elsewhere/test/cloud/front"
	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// box is one sandbox from its creation on; it stays known when it has ended.
type box struct {
	e        *Emulator
	id, task string
	v2       bool
	name     string
	app      string
	image    string
	created  time.Time
	lifetime time.Duration
	idle     time.Duration // 0 is no limit
	machine  *machine.Machine
	env      []string
	workdir  string
	def      *pb.Sandbox
	daemon   front.Gate // what goes through the command router, but for snapshots

	// The emulator's mu guards these.
	tags map[string]string

	mu        sync.Mutex
	execs     map[string]*running
	entry     *running // the sandbox's own command; nil where it has none
	busy      int      // how many of them run
	idleTimer *time.Timer
	lifeTimer *time.Timer
	result    *pb.GenericResult
	ending    bool
	said      chan struct{} // closed when result is set: the service knows, and ends what runs
	ended     chan struct{} // closed when no process is left
	gone      error         // what went wrong at the end
}

var boxName = regexp.MustCompile(`^[A-Za-z0-9_.-]{0,64}$`)

// create makes a sandbox and starts it.
func (e *Emulator) create(ctx context.Context, v2 bool, app string, def *pb.Sandbox, env []string, tagList []*pb.SandboxTag) (*box, error) {
	tags, err := tagMap(tagList)
	if err != nil {
		return nil, err
	}
	if !boxName.MatchString(def.GetName()) {
		return nil, status.Errorf(codes.InvalidArgument, "Invalid sandbox name '%s'", def.GetName())
	}
	const day = 24 * 60 * 60
	if def.GetTimeoutSecs() == 0 || def.GetTimeoutSecs() > day {
		return nil, status.Errorf(codes.InvalidArgument, "Timeout must be between 1 second and 24 hours")
	}
	img, err := e.image(def.GetImageId())
	if err != nil {
		return nil, err
	}
	if img.broken != "" {
		return nil, status.Error(codes.FailedPrecondition, "the image is not built")
	}
	length := 22
	if v2 {
		length = 26
	}
	b := &box{
		e: e, id: newID("sb-", length), task: newID("ta-", 26), v2: v2, name: def.GetName(), app: app, image: img.id, created: time.Now(), tags: tags,
		lifetime: time.Duration(def.GetTimeoutSecs()) * time.Second, idle: time.Duration(def.GetIdleTimeoutSecs()) * time.Second,
		workdir: def.GetWorkdir(), execs: map[string]*running{}, said: make(chan struct{}), ended: make(chan struct{}), def: def,
		env: append([]string{"HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...),
	}
	if err := e.enroll(b); err != nil {
		return nil, err
	}
	if err := b.start(ctx, img.machine); err != nil {
		_ = b.end(pb.GenericResult_GENERIC_STATUS_INIT_FAILURE)
		return nil, err
	}
	return b, nil
}

// enroll takes a sandbox in, if its name is free and the quota leaves room.
func (e *Emulator) enroll(b *box) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	live := 0
	for _, other := range e.boxes {
		if over, _ := other.over(); over {
			continue
		}
		live++
		if b.name != "" && other.name == b.name && other.app == b.app {
			return status.Errorf(codes.AlreadyExists, "Sandbox with name '%s' already exists", b.name)
		}
	}
	if e.quota > 0 && live >= e.quota {
		return status.Errorf(codes.ResourceExhausted, "the workspace may run %d sandboxes at once", e.quota)
	}
	e.boxes[b.id], e.tasks[b.task] = b, b
	return nil
}

func (b *box) start(ctx context.Context, img machine.Image) error {
	b.e.mu.Lock()
	slow := b.e.slow
	b.e.mu.Unlock()
	if slow > 0 {
		select {
		case <-time.After(slow):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	m, err := b.e.host.New(img, "modal")
	if err == nil {
		b.mu.Lock()
		b.machine = m
		b.mu.Unlock()
		err = m.Start()
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ending {
		return status.Error(codes.NotFound, "the sandbox was terminated while it started")
	}
	b.lifeTimer = time.AfterFunc(b.lifetime, func() { _ = b.end(pb.GenericResult_GENERIC_STATUS_TIMEOUT) })
	b.watchIdle()
	if args := b.def.GetEntrypointArgs(); len(args) > 0 {
		if b.entry, err = b.begin(args, nil, b.workdir, nil, false, false); err != nil {
			return status.Error(codes.FailedPrecondition, err.Error())
		}
		// The sandbox ends with its own command.
		go func(entry *running) {
			code, _ := entry.wait()
			_ = b.finish(pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS, Exitcode: int32(code)}.Build())
		}(b.entry)
	}
	return nil
}

// watchIdle starts the count to the idle timeout, or ends it while something runs. b.mu is held.
func (b *box) watchIdle() {
	if b.idleTimer != nil {
		b.idleTimer.Stop()
		b.idleTimer = nil
	}
	if b.idle > 0 && b.busy == 0 {
		b.idleTimer = time.AfterFunc(b.idle, func() { _ = b.end(pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT) })
	}
}

// over tells whether the sandbox has ended, and how.
func (b *box) over() (bool, *pb.GenericResult) {
	select {
	case <-b.said:
		return true, b.result
	default:
		return false, nil
	}
}

// end ends all processes of the sandbox and removes its files.
func (b *box) end(how pb.GenericResult_GenericStatus) error {
	return b.finish(pb.GenericResult_builder{Status: how}.Build())
}

func (b *box) finish(result *pb.GenericResult) error {
	b.mu.Lock()
	if b.ending {
		b.mu.Unlock()
		<-b.ended
		return b.gone
	}
	b.ending, b.result = true, result
	close(b.said)
	m := b.machine
	for _, timer := range []*time.Timer{b.idleTimer, b.lifeTimer} {
		if timer != nil {
			timer.Stop()
		}
	}
	execs := slices.Collect(maps.Values(b.execs))
	if b.entry != nil {
		execs = append(execs, b.entry)
	}
	b.mu.Unlock()
	if m != nil {
		b.gone = m.Remove()
	}
	for _, x := range execs {
		x.abandon()
	}
	b.daemon.Open()
	close(b.ended)
	return b.gone
}

func (b *box) createdAt() float64 { return float64(b.created.UnixNano()) / 1e9 }

func (b *box) tagList() []*pb.SandboxTag {
	var list []*pb.SandboxTag
	for _, name := range slices.Sorted(maps.Keys(b.tags)) {
		list = append(list, pb.SandboxTag_builder{TagName: name, TagValue: b.tags[name]}.Build())
	}
	return list
}

// What follows is for tests: it is no part of the API.

// Sandbox is what a test sees of one.
type Sandbox struct {
	ID, Name, Image string
	Tags            map[string]string
	Running         bool
	Status          pb.GenericResult_GenericStatus // once it has ended
	Definition      *pb.Sandbox
	Env             []string // what it was made with
	Created         time.Time
}

// Sandboxes lists all that ever were, oldest first.
func (e *Emulator) Sandboxes() []Sandbox {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Sandbox
	for _, b := range e.boxes {
		over, result := b.over()
		all = append(all, Sandbox{
			ID: b.id, Name: b.name, Image: b.image, Tags: maps.Clone(b.tags), Running: !over, Status: result.GetStatus(), Definition: b.def,
			Env: slices.Clone(b.env), Created: b.created,
		})
	}
	slices.SortFunc(all, func(a, b Sandbox) int { return a.Created.Compare(b.Created) })
	return all
}

// EndLifetime ends a sandbox as if its lifetime were over; EndIdle as if nothing had run in it for its idle timeout; Lose as if it were
// evicted.
func (e *Emulator) EndLifetime(id string) error {
	return e.endAs(id, pb.GenericResult_GENERIC_STATUS_TIMEOUT)
}

// EndIdle is described at EndLifetime.
func (e *Emulator) EndIdle(id string) error {
	return e.endAs(id, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT)
}

// Lose is described at EndLifetime.
func (e *Emulator) Lose(id string) error {
	return e.endAs(id, pb.GenericResult_GENERIC_STATUS_INTERNAL_FAILURE)
}

func (e *Emulator) endAs(id string, how pb.GenericResult_GenericStatus) error {
	b, err := e.box(id)
	if err != nil {
		return err
	}
	return b.end(how)
}

// Wedge makes commands in a sandbox hang until it ends: none is started or ended and no byte goes through, though the service answers
// for the sandbox and stores its files. The function that it returns tells whether it has ended.
func (e *Emulator) Wedge(id string) (ended func() bool, err error) {
	b, err := e.box(id)
	if err != nil {
		return nil, err
	}
	b.daemon.Shut()
	return func() bool { over, _ := b.over(); return over }, nil
}

// ExpireImage makes an image one that is not found any more.
func (e *Emulator) ExpireImage(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if img := e.images[id]; img != nil {
		img.expires = time.Now().Add(-time.Second)
	}
}

// Expires is when a snapshot goes by itself; zero is never.
func (e *Emulator) Expires(id string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if img := e.images[id]; img != nil {
		return img.expires
	}
	return time.Time{}
}

// Images lists the snapshots that can be used.
func (e *Emulator) Images() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ids []string
	for id, img := range e.images {
		if img.own && !img.dead() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// SetQuota bounds how many sandboxes run at once; 0 is any number.
func (e *Emulator) SetQuota(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.quota = n
}

// SetStartDelay is how long a sandbox takes to start from now on.
func (e *Emulator) SetStartDelay(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slow = d
}

// MakeImage makes an image of the tree with more files in it, by their absolute names, and without root's own login files.
func (e *Emulator) MakeImage(files map[string]string) (id string, err error) {
	m, err := e.host.New(e.host.Base(), "image")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Remove()) }()
	for _, own := range []string{".profile", ".bashrc", ".bash_profile"} {
		if err := os.Remove(filepath.Join(m.Root(), "root", own)); err != nil && !os.IsNotExist(err) {
			return "", err
		}
	}
	for name, text := range files {
		at := filepath.Join(m.Root(), name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	copied, err := m.Snapshot(context.Background())
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	id = newID("im-", 22)
	e.images[id] = &image{id: id, machine: copied}
	return id, nil
}

// ImageHas tells whether any file of a snapshot's own layer holds text, and ReadImage reads one of its files: what a sandbox has
// changed.
func (e *Emulator) ImageHas(id, text string) (bool, error) {
	img, err := e.image(id)
	if err != nil {
		return false, err
	}
	return img.machine.Holds(text)
}

// Observed is what a program came to.
type Observed = machine.Observed

// Observe runs a program in a sandbox, around the API.
func (e *Emulator) Observe(ctx context.Context, id string, stdin []byte, argv ...string) (Observed, error) {
	b, err := e.box(id)
	if err != nil {
		return Observed{}, err
	}
	b.mu.Lock()
	m := b.machine
	b.mu.Unlock()
	if m == nil {
		return Observed{}, machine.ErrNotRunning // it is being made
	}
	return m.Observe(ctx, stdin, argv...)
}

// Path is a file of a sandbox as this machine sees it.
func (e *Emulator) Path(id, name string) (string, error) {
	b, err := e.box(id)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(name) || strings.Contains(name, "..") {
		return "", fmt.Errorf("%s is no absolute path", name)
	}
	return filepath.Join(b.machine.Root(), name), nil
}
