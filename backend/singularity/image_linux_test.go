package singularity

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// layer is a tar of a root that holds bash, its libraries and what an instance is started with.
var layer = sync.OnceValues(func() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) {
		_ = w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg})
		_, _ = w.Write(data)
	}
	for _, d := range []string{"bin", "dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "var/tmp", "usr"} {
		_ = w.WriteHeader(&tar.Header{Name: d + "/", Mode: 0o755, Typeflag: tar.TypeDir})
	}
	path, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	libraries, err := exec.Command("ldd", path).Output()
	if err != nil {
		return nil, err
	}
	for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		data, err := os.ReadFile(lib)
		if err != nil {
			return nil, err
		}
		add(lib, data)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	add("/bin/bash", data)
	add("/bin/sh", data)
	return b.Bytes(), w.Close()
})

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// imageConfig is the configuration of an image of one layer.
func imageConfig(layer []byte) []byte {
	text, _ := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/bash"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}}, "history": []any{map[string]any{"created": "2020-01-01T00:00:00Z"}},
	})
	return text
}

// dockerArchive writes what `docker save` writes.
func dockerArchive(t testing.TB, file string) {
	t.Helper()
	data, err := layer()
	if err != nil {
		t.Fatal(err)
	}
	cfg := imageConfig(data)
	manifest, _ := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{"test:latest"}, "Layers": []string{"layer.tar"}}})
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range map[string][]byte{"config.json": cfg, "layer.tar": data, "manifest.json": manifest} {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
		_, _ = w.Write(data)
	}
	_ = w.Close()
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// registry is one on loopback that has a single image, test:latest.
type registry struct {
	*httptest.Server
	layers  atomic.Int32  // how often the layer was asked for
	asked   chan struct{} // receives when it was, as far as there is room
	stalled atomic.Bool   // the layer never comes whole
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	data, err := layer()
	if err != nil {
		t.Fatal(err)
	}
	cfg := imageConfig(data)
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(cfg), "digest": digest(cfg)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": len(data), "digest": digest(data)}},
	})
	r := &registry{asked: make(chan struct{}, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body := map[string][]byte{
			"/v2/": []byte("{}"), "/v2/test/manifests/latest": manifest, "/v2/test/manifests/" + digest(manifest): manifest,
			"/v2/test/blobs/" + digest(cfg): cfg, "/v2/test/blobs/" + digest(data): data,
		}[q.URL.Path]
		if body == nil {
			http.NotFound(w, q)
			return
		}
		if strings.Contains(q.URL.Path, "manifests") {
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", digest(manifest))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if strings.HasSuffix(q.URL.Path, digest(data)) && q.Method == http.MethodGet {
			r.layers.Add(1)
			select {
			case r.asked <- struct{}{}:
			default:
			}
			if r.stalled.Load() {
				_, _ = w.Write(body[:len(body)/2])
				w.(http.Flusher).Flush()
				<-q.Context().Done()
				return
			}
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) image() string { return "docker://" + r.Listener.Addr().String() + "/test:latest" }

// sif is where the built image of an address is in a place.
func (w *where) sif(key string) string {
	return filepath.Join(w.home, "sandboxes", name, ".apptainer", "elsewhere", safename.Of(key)+".sif")
}

// parts are what an unfinished build leaves.
func (w *where) parts() []string {
	left, _ := filepath.Glob(filepath.Join(w.home, "sandboxes", name, ".apptainer", "elsewhere", "*"+partMark+"*"))
	return left
}

func TestAnAddressIsBuiltOnceForProcessesThatWantItAtOnce(t *testing.T) {
	needEngine(t)
	r := newRegistry(t)
	w := newWhere(t, "singularity_image", r.image())
	w.identity()
	var wg sync.WaitGroup
	for i := range 4 {
		_, instance, end := w.child(fmt.Sprint("task", i))
		wg.Go(func() {
			if got := instance(); !strings.HasPrefix(got, "elsewhere-task") {
				t.Error(got)
			}
			end()
		})
	}
	wg.Wait()
	if n := r.layers.Load(); n != 1 {
		t.Errorf("the layer was fetched %d times", n)
	}
	if !whole(w.sif(r.image())) || len(w.parts()) > 0 {
		t.Errorf("in the cache: %v, left %q", whole(w.sif(r.image())), w.parts())
	}
	sb := w.open("another")
	if got := bash(t, sb, `echo $0`); !strings.Contains(got, "bash") || r.layers.Load() != 1 || said(sb.info.Notices, "built") {
		t.Errorf("afterwards: %q, %d, %q", got, r.layers.Load(), sb.info.Notices)
	}
}

func TestABuildThatWasKilledLeavesNothingThatIsTakenForAnImage(t *testing.T) {
	needEngine(t)
	r := newRegistry(t)
	r.stalled.Store(true)
	w := newWhere(t, "singularity_image", r.image())
	w.identity()
	cmd, _, _ := w.child("default")
	select {
	case <-r.asked:
	case <-time.After(time.Minute):
		t.Fatal("the build has not begun")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(w.parts()) == 0 || whole(w.sif(r.image())) {
		t.Fatalf("no half-built image is there: the case proves nothing (%q)", w.parts())
	}
	r.stalled.Store(false)
	sb := w.open("default")
	if got := bash(t, sb, `echo up`); got != "up\n" || len(w.parts()) > 0 || !whole(w.sif(r.image())) {
		t.Errorf("got %q, left %q", got, w.parts())
	}
}

func TestABuildThatIsGivenUpOrTakesTooLongEnds(t *testing.T) {
	needEngine(t)
	r := newRegistry(t)
	r.stalled.Store(true)
	w := newWhere(t, "singularity_image", r.image(), "singularity_build_timeout", "3")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-r.asked; cancel() }()
	if _, err := Backend().Open(ctx, w.request()); err == nil || ctx.Err() == nil {
		t.Errorf("given up: %v", err)
	}
	if len(w.parts()) > 0 || whole(w.sif(r.image())) {
		t.Errorf("left %q", w.parts())
	}
	prog, err := findProgram(w.environ)
	if err != nil {
		t.Fatal(err)
	}
	im := &images{prog: prog, cache: t.TempDir(), timeout: 2 * time.Second}
	source, notice, err := im.resolve(t.Context(), r.image())
	if err != nil || source != r.image() || !strings.Contains(notice, "deadline exceeded") {
		t.Errorf("too long: %q, %q, %v", source, notice, err)
	}
}

// engine puts a program in front of the real one on the caller's PATH: script sees its arguments and goes on with real.
func (w *where) engine(script string) {
	w.t.Helper()
	real, err := exec.LookPath("apptainer")
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	text := "#!/bin/bash\nreal() { exec " + real + " \"$@\"; }\n" + script + "\nreal \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "apptainer"), []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
	w.environ = append(w.environ, "PATH="+dir+":"+os.Getenv("PATH"))
}

func TestWhereTheBuildFailsTheEngineIsGivenTheAddress(t *testing.T) {
	needEngine(t)
	archive := filepath.Join(t.TempDir(), "saved.tar")
	dockerArchive(t, archive)
	w := newWhere(t, "singularity_image", "docker-archive:"+archive)
	w.engine(`[[ $* != *" build "* ]] || { echo "FATAL:   no space on the moon" >&2; exit 255; }`)
	sb := w.open("default")
	if !said(sb.info.Notices, "could not be built", "no space on the moon") || bash(t, sb, `echo up`) != "up\n" {
		t.Errorf("notices %q", sb.info.Notices)
	}
	if len(w.parts()) > 0 {
		t.Errorf("left %q", w.parts())
	}
	r := newRegistry(t)
	r.Close()
	none := newWhere(t, "singularity_image", r.image())
	if _, err := none.tryOpen("default"); err == nil || classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a registry that is not there: %v", err)
	}
}

func TestALocalArchiveIsBuiltAgainWhenItChanged(t *testing.T) {
	needEngine(t)
	dir := t.TempDir()
	archive := filepath.Join(dir, "saved.tar")
	dockerArchive(t, archive)
	prog, err := findProgram(os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	im := &images{prog: prog, cache: filepath.Join(dir, "cache", "elsewhere"), dir: dir, timeout: time.Minute, progress: func(s string) { told = append(told, s) }}
	first, notice, err := im.resolve(t.Context(), "docker-archive:saved.tar")
	if err != nil || notice != "" || !whole(first) || !said(told, "building the image docker-archive:"+archive) {
		t.Fatalf("%q, %q, %v, told %q", first, notice, err, told)
	}
	if again, _, err := im.resolve(t.Context(), "docker-archive:saved.tar"); err != nil || again != first {
		t.Errorf("again: %q, %v", again, err)
	}
	if err := os.Chtimes(archive, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if changed, _, err := im.resolve(t.Context(), "docker-archive:saved.tar"); err != nil || changed == first {
		t.Errorf("changed: %q, %v", changed, err)
	}
}

func TestImagesAsTheyMayBeWritten(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"an.sif", "tree/bin/x", "empty/x"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	im := &images{home: dir, dir: dir}
	for image, want := range map[string]string{
		"an.sif": dir + "/an.sif", dir + "/an.sif": dir + "/an.sif", "~/an.sif": dir + "/an.sif", "tree": dir + "/tree", "more://something": "more://something",
		"none.sif": "error", dir + "/none": "error", "/no/such.sif": "error", "instance://x": "error", "": "error", " ": "error", "-x": "error", "something": "error", "UPPER x": "error", "empty": "error",
	} {
		got, notice, err := im.resolve(t.Context(), image)
		if err != nil {
			got = "error"
			if classify(err) != driver.KindConfig {
				t.Errorf("%s: %v", image, err)
			}
		}
		if got != want || notice != "" {
			t.Errorf("%s is %q, want %q; %q", image, got, want, notice)
		}
	}
	// No two addresses share a file.
	files := map[string]string{}
	for _, image := range []string{"docker://a/b:1", "docker://a_b:1", "docker://A/b:1", "docker://a/b_1", "library://a/b:1", "oras://a/b:1", "docker-daemon:a/b:1"} {
		_, key, ok := im.address(image)
		file := safename.Of(key)
		if !ok || files[file] != "" || strings.ContainsAny(file, "/: ") {
			t.Errorf("%s: %v, %q is of %q too", image, ok, file, files[file])
		}
		files[file] = image
	}
}

func TestAnImageWithoutBashIsSaidToBeOne(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "singularity_image", testbed+"nobash.sif", "container_persistent", "false")
	_, err := w.tryOpen("default")
	if err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "has no bash") {
		t.Errorf("got %v", err)
	}
	if list, err := w.keeper().List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left %+v, %v", list, err)
	}
	if _, err := os.Stat(w.dir("default")); err == nil {
		t.Error("its files are left")
	}
}

func TestWithoutADirectoryOverlayMemoryIsTheLastResort(t *testing.T) {
	needEngine(t)
	w := newWhere(t)
	w.engine(`[[ $* != *" --overlay "* ]] || { echo "FATAL:   container creation failed: while setting up overlay: operation not permitted" >&2; exit 255; }`)
	sb := w.open("default")
	if f := feature(sb.info, "overlay"); f.State != driver.Degraded || !strings.Contains(f.Detail, "64 MiB") || !said(sb.info.Notices, "no directory overlay", "64 MiB") {
		t.Errorf("feature %+v, notices %q", f, sb.info.Notices)
	}
	if got := bash(t, sb, `echo x > /etc/x && cat /etc/x; head -c 200000000 /dev/zero > ~/big && stat -c %s ~/big`); got != "x\n200000000\n" {
		t.Errorf("got %q", got)
	}
	// What fails for another reason is not tried in memory.
	other := newWhere(t)
	log := filepath.Join(t.TempDir(), "log")
	other.engine(`[[ $* != *"instance start"* ]] || { echo "$*" >> ` + log + `; echo "FATAL:   the moon is in the way" >&2; exit 255; }`)
	_, err := other.tryOpen("default")
	text, _ := os.ReadFile(log)
	if err == nil || classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "the moon is in the way") || strings.Contains(string(text), "--writable-tmpfs") {
		t.Errorf("%v; tried:\n%s", err, text)
	}
}

func TestWithoutTheProgramTheErrorNamesBoth(t *testing.T) {
	_, err := Backend().Open(t.Context(), driver.OpenRequest{Environ: []string{"PATH=" + t.TempDir()}})
	if err == nil || classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "apptainer") || !strings.Contains(err.Error(), "singularity") {
		t.Errorf("got %v", err)
	}
	if err := Backend().Available(t.Context(), driver.OpenRequest{Environ: []string{"PATH=" + t.TempDir()}}); err == nil {
		t.Error("it is said to be available")
	}
}

func TestEitherProgramIsAccepted(t *testing.T) {
	dir := t.TempDir()
	program := func(word string) {
		if err := os.WriteFile(filepath.Join(dir, word), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program("singularity")
	p, err := findProgram([]string{"PATH=relative:" + dir})
	if err != nil || p.path != filepath.Join(dir, "singularity") || p.prefix != "SINGULARITYENV_" {
		t.Errorf("%+v, %v", p, err)
	}
	program("apptainer")
	if p, err = findProgram([]string{"PATH=" + dir}); err != nil || p.path != filepath.Join(dir, "apptainer") || p.prefix != "APPTAINERENV_" {
		t.Errorf("%+v, %v", p, err)
	}
	_ = os.Remove(filepath.Join(dir, "singularity"))
	_ = os.Rename(filepath.Join(dir, "apptainer"), filepath.Join(dir, "run-singularity.apptainer"))
	_ = os.Symlink("run-singularity.apptainer", filepath.Join(dir, "singularity"))
	if p, err = findProgram([]string{"PATH=" + dir}); err != nil || p.prefix != "APPTAINERENV_" {
		t.Errorf("apptainer under its old name: %+v, %v", p, err)
	}
}

func TestTheScratchDirectoryByItsOrder(t *testing.T) {
	base := t.TempDir()
	make := func(dir string, mode os.FileMode) string {
		dir = filepath.Join(base, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	open, none := make("scratch", 0o755), filepath.Join(base, "none")
	closed := make("closed", 0o555)
	home := filepath.Join(base, "hermes")
	cases := []struct {
		name     string
		settings map[string]string
		root     string
		want     string
	}{
		{"scratch_dir first", map[string]string{"scratch_dir": base + "/a", "sandbox_dir": base + "/b"}, open, base + "/a"},
		{"then sandbox_dir", map[string]string{"sandbox_dir": base + "/b"}, open, base + "/b/singularity"},
		{"then /scratch", nil, open, open + "/me/hermes-agent"},
		{"then the home, without /scratch", nil, none, home + "/sandboxes/singularity"},
	}
	if os.Geteuid() != 0 {
		cases = append(cases, struct {
			name     string
			settings map[string]string
			root     string
			want     string
		}{"and with one that cannot be written to", nil, closed, home + "/sandboxes/singularity"})
	}
	for _, c := range cases {
		w := &where{t: t, home: home, settings: c.settings, environ: []string{"HERMES_HOME=" + home}}
		got, err := scratchDir(w.config(), home, "me", c.root)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
			continue
		}
		if st, err := os.Stat(got); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", c.name, st, err)
		}
	}
	// Where /scratch is root's, the user's own directory in it counts.
	if os.Geteuid() != 0 {
		_ = os.Chmod(closed, 0o755)
		mine := make("closed/me", 0o755)
		_ = os.Chmod(closed, 0o555)
		w := &where{t: t, home: home, environ: []string{"HERMES_HOME=" + home}}
		if got, err := scratchDir(w.config(), home, "me", closed); err != nil || got != mine+"/hermes-agent" {
			t.Errorf("the user's own: %q, %v", got, err)
		}
		// One that was configured and cannot be used is an error: data would lie elsewhere.
		w.settings = map[string]string{"scratch_dir": closed + "/x"}
		if _, err := scratchDir(w.config(), home, "me", open); err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "scratch_dir") {
			t.Errorf("configured and closed: %v", err)
		}
	}
	_ = os.Chmod(closed, 0o755) // so that it can be removed
}

func TestAPathWithACommaOrAQuoteIsMounted(t *testing.T) {
	needEngine(t)
	w := newWhere(t, "scratch_dir", filepath.Join(t.TempDir(), `a, "b" c`))
	sb := w.open("default")
	if got := bash(t, sb, `cd && echo x > f && echo y > /etc/y && cat f /etc/y`); got != "x\ny\n" {
		t.Errorf("got %q", got)
	}
	w.settings["scratch_dir"] = filepath.Join(t.TempDir(), "a:b")
	if _, err := w.tryOpen("other"); err == nil || classify(err) != driver.KindConfig || !strings.Contains(err.Error(), "colon") {
		t.Errorf("a colon: %v", err)
	}
}
