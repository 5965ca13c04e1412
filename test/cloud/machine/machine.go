//go:build linux

// Package machine is what the cloud emulators run sandboxes on: small machines of their own, so that what an emulator says
// of files and processes is so. A machine is an overlay over one tree of Debian, entered by bubblewrap with namespaces for
// mounts, processes, host name, IPC and network (loopback alone); a command is started in it by a thread that has entered
// them. Its files are there while it stands still, and an image of them is a copy, on which any number of machines start.
//
// It needs root, bubblewrap and Linux 5.8. Nothing here protects the host from a command that wants to harm it: root in
// a machine is root.
package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Image is what machines start on: read-only layers.
type Image struct {
	layers []string // the uppermost first, as mount wants them
}

// Host keeps machines and the images made of them in one directory. Its methods may be called at the same time.
type Host struct {
	dir  string
	base Image

	mu       sync.Mutex
	next     int
	machines map[*Machine]struct{}
}

// NewHost returns a host whose images begin with the tree base. dir must be there, on a file system that overlays can
// write to. The caller closes the host.
func NewHost(dir, base string) (*Host, error) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		return nil, errors.New("machines need bwrap, which is missing: install bubblewrap")
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("machines need root: start it as root")
	}
	if _, err := os.Stat(filepath.Join(base, "bin/bash")); err != nil {
		return nil, fmt.Errorf("no tree to start machines on (`make testbed` makes it): %w", err)
	}
	keepDescriptors()
	h := &Host{dir: dir, machines: map[*Machine]struct{}{}}
	plain, err := h.newDir("plain")
	if err == nil {
		err = hide(plain, "etc/profile.d")
	}
	if err != nil {
		return nil, err
	}
	h.base = Image{[]string{plain, base}}
	return h, nil
}

// baseLayers is of how many layers Host.Base is.
const baseLayers = 2

// hide makes a directory an empty one for who looks through a layer. What packages of the tree have login shells do takes longer than
// most of what is tested, and is tested where it is asked for.
func hide(layer, dir string) error {
	dir = filepath.Join(layer, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return syscall.Setxattr(dir, "trusted.overlay.opaque", []byte("y"), 0)
}

// keepDescriptors keeps from commands what this process itself was given besides the three descriptors that everybody has.
func keepDescriptors() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Base is the image that the host was made with.
func (h *Host) Base() Image { return h.base }

// Close removes all machines and images.
func (h *Host) Close() error {
	h.mu.Lock()
	all := make([]*Machine, 0, len(h.machines))
	for m := range h.machines {
		all = append(all, m)
	}
	h.mu.Unlock()
	var failed []error
	for _, m := range all {
		failed = append(failed, m.Remove())
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return os.RemoveAll(h.dir)
}

// newDir makes a directory in the host's.
func (h *Host) newDir(kind string) (string, error) {
	h.mu.Lock()
	h.next++
	dir := filepath.Join(h.dir, fmt.Sprintf("%s-%d", kind, h.next))
	h.mu.Unlock()
	return dir, os.MkdirAll(dir, 0o755)
}

// Machine is one of a host's. It stands still until Start. Its methods may be called at the same time.
type Machine struct {
	host *Host
	name string
	dir  string // holds upper, work and root, where the overlay is mounted while the machine is there

	mu      sync.Mutex
	boxed   *exec.Cmd // bubblewrap, while the machine runs
	ended   chan struct{}
	first   int     // the pid of the machine's first process, as the host sees it
	thread  *thread // starts commands in it
	removed bool
}

// New makes a machine on an image. name is its host name.
func (h *Host) New(img Image, name string) (*Machine, error) {
	dir, err := h.newDir("machine")
	if err != nil {
		return nil, err
	}
	m := &Machine{host: h, name: name, dir: dir}
	for _, sub := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", strings.Join(img.layers, ":"), dir, dir)
	if err := syscall.Mount("overlay", m.Root(), "overlay", 0, options); err != nil {
		return nil, fmt.Errorf("mounting an overlay: %w", err)
	}
	h.mu.Lock()
	h.machines[m] = struct{}{}
	h.mu.Unlock()
	return m, nil
}

// Root is the host's path of the machine's files, there while it runs and while it stands still. A link in it may lead
// out of it: use os.OpenRoot, or a command.
func (m *Machine) Root() string { return filepath.Join(m.dir, "root") }

// Running tells whether commands can be started.
func (m *Machine) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boxed != nil
}

// Start starts the machine's first process; one that runs stays.
func (m *Machine) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed {
		return errors.New("the machine is removed")
	}
	if m.boxed != nil {
		return nil
	}
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	cmd := exec.Command("bwrap", "--bind", m.Root(), "/", "--proc", "/proc", "--dev", "/dev",
		"--tmpfs", "/dev/shm", "--unshare-pid", "--unshare-uts", "--unshare-ipc", "--unshare-net", "--hostname", m.name, "--die-with-parent",
		"--new-session", "--info-fd", "3", "sleep", "infinity")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.ExtraFiles = []*os.File{tell}
	var said strings.Builder
	cmd.Stderr = &said
	// Its parent is a thread: one that ends takes the machine with it, so it is kept.
	err = startKept(cmd)
	tell.Close()
	if err != nil {
		return err
	}
	var info struct {
		Pid int `json:"child-pid"`
	}
	if err := json.NewDecoder(told).Decode(&info); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("bubblewrap did not start: %s", strings.TrimSpace(said.String()))
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	err = awaitRoot(info.Pid, ended)
	var inside *thread
	if err == nil {
		inside, err = enterMachine(info.Pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		<-ended
		return err
	}
	m.boxed, m.first, m.ended, m.thread = cmd, info.Pid, make(chan struct{}), inside
	go func() {
		<-ended
		m.mu.Lock()
		m.boxed = nil
		inside.leave()
		m.mu.Unlock()
		close(m.ended)
	}()
	return nil
}

// awaitRoot waits until bubblewrap has built the machine's file system: its sleep runs.
func awaitRoot(pid int, ended <-chan struct{}) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, child := range append(children(pid), pid) {
			if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); err == nil && string(name) == "sleep\n" {
				return nil
			}
		}
		select {
		case <-ended:
			return errors.New("the machine ended while it started")
		default:
		}
	}
	return errors.New("the machine did not start in 30 s")
}

// children are a process's, as the kernel lists them.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var all []int
	for f := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// startKept starts a command from a thread that stays, for a child that dies with its parent's thread.
func startKept(cmd *exec.Cmd) error {
	keeper.once.Do(func() {
		keeper.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range keeper.work {
				f()
			}
		}()
	})
	done := make(chan error, 1)
	keeper.work <- func() { done <- cmd.Start() }
	return <-done
}

var keeper struct {
	once sync.Once
	work chan func()
}

// Stop ends all processes of the machine by KILL; its files stay.
func (m *Machine) Stop() error {
	m.mu.Lock()
	boxed, first, ended := m.boxed, m.first, m.ended
	m.mu.Unlock()
	if boxed == nil {
		return nil
	}
	// The first process of a process namespace takes all others with it, and is gone after all of them. Bubblewrap, which
	// waits for it, ends then.
	_ = syscall.Kill(first, syscall.SIGKILL)
	select {
	case <-ended:
		return nil
	case <-time.After(30 * time.Second):
		_ = boxed.Process.Kill()
		return errors.New("the machine did not end in 30 s")
	}
}

// Remove stops the machine and removes its files.
func (m *Machine) Remove() error {
	if err := m.Stop(); err != nil {
		return err
	}
	m.mu.Lock()
	done := m.removed
	m.removed = true
	m.mu.Unlock()
	if done {
		return nil
	}
	m.host.mu.Lock()
	delete(m.host.machines, m)
	m.host.mu.Unlock()
	// Its processes have ended, but the kernel may need a moment to let go of the mount.
	err := syscall.Unmount(m.Root(), 0)
	for range 100 {
		if !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(20 * time.Millisecond)
		err = syscall.Unmount(m.Root(), 0)
	}
	if err != nil {
		_ = syscall.Unmount(m.Root(), syscall.MNT_DETACH)
	}
	return os.RemoveAll(m.dir)
}

// Snapshot copies the machine's files as they are now into an image, whether it runs or not.
func (m *Machine) Snapshot(ctx context.Context) (Image, error) {
	dir, err := m.host.newDir("image")
	if err != nil {
		return Image{}, err
	}
	// What is deleted stands in it as a device of number 0/0, which cp -a keeps.
	copied := filepath.Join(dir, "layer")
	if out, err := exec.CommandContext(ctx, "cp", "-a", "--", filepath.Join(m.dir, "upper"), copied).CombinedOutput(); err != nil {
		return Image{}, fmt.Errorf("copying files: %w: %s", err, out)
	}
	lower, err := m.layers()
	if err != nil {
		return Image{}, err
	}
	return Image{append([]string{copied}, lower...)}, nil
}

// layers are those below the machine's own.
func (m *Machine) layers() ([]string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[4] != m.Root() {
			continue
		}
		for option := range strings.SplitSeq(f[len(f)-1], ",") {
			if list, ok := strings.CutPrefix(option, "lowerdir="); ok {
				return strings.Split(list, ":"), nil
			}
		}
	}
	return nil, errors.New("the machine has no overlay")
}

// RemoveImage removes what the image adds to the one that its machine started on. No machine may use it.
func (h *Host) RemoveImage(img Image) error {
	if len(img.layers) <= baseLayers || !strings.HasPrefix(img.layers[0], h.dir+"/") {
		return nil
	}
	return os.RemoveAll(filepath.Dir(img.layers[0]))
}

// Equal tells whether two images are the same one.
func (i Image) Equal(other Image) bool { return slices.Equal(i.layers, other.layers) }

// Size is about how many bytes the image's own layer takes.
func (i Image) Size() int64 {
	var sum int64
	if len(i.layers) <= baseLayers {
		return 0
	}
	_ = filepath.WalkDir(i.layers[0], func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

// Holds tells whether a file, or the name of one, that the image adds to the one that its machine started on has text in it.
func (i Image) Holds(text string) (bool, error) {
	if len(i.layers) <= baseLayers {
		return false, nil
	}
	found := errors.New("found")
	err := filepath.WalkDir(i.layers[0], func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.Contains(d.Name(), text) {
			return found
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if bytes.Contains(data, []byte(text)) {
			return found
		}
		return nil
	})
	if err == found {
		return true, nil
	}
	return false, err
}
