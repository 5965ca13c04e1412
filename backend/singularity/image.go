//go:build linux

package singularity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// transports begin the addresses of images that are built into a SIF file once. Those in local name a file or directory of
// this machine.
var (
	remote = []string{"docker://", "library://", "oras://", "shub://", "docker-daemon:", "http://", "https://"}
	local  = []string{"docker-archive:", "oci-archive:", "oci:"}
)

// images finds, and where need be builds, what instances are started from.
type images struct {
	prog     *program
	cache    string // of built images
	home     string // the user's, for ~
	dir      string // the caller's, for a relative path
	timeout  time.Duration
	progress func(string)
}

// resolve gives what the engine is to be given for an image as it was written. A notice says that an image could not be
// built, and that the engine is given its address instead.
func (im *images) resolve(ctx context.Context, image string) (source, notice string, err error) {
	const next = "build one with `apptainer build`, or name a docker:// address"
	switch {
	case strings.TrimSpace(image) == "":
		return "", "", failure(driver.KindConfig, "terminal.singularity_image is empty: "+next)
	case strings.HasPrefix(image, "-"):
		return "", "", failure(driver.KindConfig, "terminal.singularity_image: %q is no image: "+next, image)
	case strings.HasPrefix(image, "instance:"):
		return "", "", failure(driver.KindConfig, "terminal.singularity_image: %s is an instance, not an image: "+next, image)
	}
	if address, key, ok := im.address(image); ok {
		source, err := im.built(ctx, address, key)
		if err == nil {
			return source, "", nil
		}
		if ctx.Err() != nil {
			return "", "", err
		}
		return address, fmt.Sprintf("the image %s could not be built (%v); the engine is given its address as it is, and starts slowly", image, err), nil
	}
	file := im.path(image)
	st, err := os.Stat(file)
	switch {
	case err == nil && st.IsDir() && !hasSystem(file):
		return "", "", failure(driver.KindConfig, "terminal.singularity_image: the directory %s holds no system (there is neither bin nor usr): "+next, file)
	case err == nil:
		return file, "", nil
	case !strings.Contains(image, "://") || strings.HasSuffix(image, ".sif"):
		return "", "", failure(driver.KindConfig, "terminal.singularity_image: there is no image %s (%w): "+next, file, err)
	}
	return image, "", nil
}

// hasSystem tells whether a directory could be the root of an image.
func hasSystem(dir string) bool {
	for _, name := range []string{"bin", "usr"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.IsDir() {
			return true
		}
	}
	return false
}

// address tells whether an image is an address that is built once; key is what its build is known by. A local archive that
// changed is another one.
func (im *images) address(image string) (address, key string, ok bool) {
	for _, t := range remote {
		if strings.HasPrefix(image, t) {
			return image, image, true
		}
	}
	for _, t := range local {
		rest, found := strings.CutPrefix(image, t)
		if !found {
			continue
		}
		file, tag, tagged := strings.Cut(strings.TrimPrefix(rest, "//"), ":")
		file = im.path(file)
		address = t + file
		if tagged {
			address += ":" + tag
		}
		key = address
		if st, err := os.Stat(file); err == nil {
			key += fmt.Sprintf("\x00%d\x00%d", st.Size(), st.ModTime().UnixNano())
		}
		return address, key, true
	}
	return "", "", false
}

func (im *images) path(file string) string {
	if rest, ok := strings.CutPrefix(file, "~/"); ok {
		return filepath.Join(im.home, rest)
	}
	if filepath.IsAbs(file) || im.dir == "" {
		return filepath.Clean(file)
	}
	return filepath.Join(im.dir, file)
}

// lockPoll is how often the lock of another process that builds is tried.
const lockPoll = 100 * time.Millisecond

// built gives the SIF file of an address and builds it where it is not there. Of processes that want the same one, one
// builds. The file appears by a rename when it is whole: what a killed or failed build left is never taken for it.
func (im *images) built(ctx context.Context, address, key string) (string, error) {
	file := filepath.Join(im.cache, safename.Of(key)+".sif")
	if whole(file) {
		return file, nil
	}
	if err := os.MkdirAll(im.cache, 0o700); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, im.timeout)
	defer cancel()
	lock := flock.New(file+".lock", flock.SetPermissions(0o600))
	if got, err := lock.TryLock(); err != nil || !got {
		im.say("waiting for another process that builds " + address)
		if _, err := lock.TryLockContext(ctx, lockPoll); err != nil {
			return "", fmt.Errorf("another process builds it for too long (%s): %w", lock.Path(), err)
		}
	}
	defer lock.Close()
	if whole(file) {
		return file, nil
	}
	// Whoever wrote these is gone: the lock was free.
	left, _ := filepath.Glob(file + partMark + "*")
	for _, part := range left {
		_ = removeTree(ctx, part)
	}
	return file, im.build(ctx, address, file)
}

// partMark stands between the name of a SIF file and the random part of one that is being built.
const partMark = ".part-"

func (im *images) build(ctx context.Context, address, file string) error {
	var random [8]byte
	_, _ = rand.Read(random[:])
	part := file + partMark + hex.EncodeToString(random[:])
	temp := part + ".tmp"
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	defer func() { _ = removeTree(context.WithoutCancel(ctx), temp) }()
	defer os.Remove(part)
	im.say("building the image " + address)
	done := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		im.tell(address, temp, part, done)
	}()
	_, err := im.prog.run(ctx, call{
		args:    []string{"-s", "build", part, address},
		env:     append([]string{"APPTAINER_TMPDIR=" + temp, "SINGULARITY_TMPDIR=" + temp, "APPTAINER_CACHEDIR=" + filepath.Dir(im.cache), "SINGULARITY_CACHEDIR=" + filepath.Dir(im.cache)}, im.prog.build...),
		timeout: im.timeout,
	})
	close(done)
	<-told
	if err == nil && !whole(part) {
		err = errors.New("the build made no file")
	}
	if err == nil {
		err = os.Rename(part, file)
	}
	if err == nil {
		im.say("built the image " + address)
	}
	return err
}

// tell says now and then how much of the image is there.
func (im *images) tell(address, temp, part string, done <-chan struct{}) {
	if im.progress == nil {
		return
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			mib := (diskUse(temp) + diskUse(part)) >> 20
			im.say(fmt.Sprintf("building the image %s: %d MiB, %d s", address, mib, int(time.Since(begin).Seconds())))
		}
	}
}

func (im *images) say(text string) {
	if im.progress != nil {
		im.progress(text)
	}
}

// whole tells whether a built image is there.
func whole(file string) bool {
	st, err := os.Stat(file)
	return err == nil && st.Mode().IsRegular() && st.Size() > 0
}

// diskUse adds up the sizes of the files below a path, as far as they can be read.
func diskUse(path string) int64 {
	var sum int64
	_ = filepath.WalkDir(path, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if st, err := d.Info(); err == nil {
				sum += st.Size()
			}
		}
		return nil
	})
	return sum
}
