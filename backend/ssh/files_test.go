//go:build linux

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// put writes a file of HERMES_HOME.
func (b *bench) put(name, text string) {
	b.t.Helper()
	file := filepath.Join(b.home, name)
	must(b.t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(b.t, os.WriteFile(file, []byte(text), 0o600))
}

// hermes is a HERMES_HOME with something of everything.
func (b *bench) hermes() {
	b.t.Helper()
	b.settings["force_file_sync"] = "true"
	b.settings["credential_files"] = "google token.json,keys/id,.env,absent.json"
	b.put("skills/a/SKILL.md", "skill a")
	b.put("skills/odd ' \"$x\"\n/été", "odd")
	b.put("cache/images/1.png", "image 1")
	b.put("document_cache/old.txt", "a cache under its older name")
	b.put("google token.json", "secret 1")
	b.put("keys/id", "secret 2")
	b.put(".env", "SECRET=1")
	b.put("config.yaml", "")
	b.put("private.txt", "nobody asked for it")
	must(b.t, os.Chmod(filepath.Join(b.home, "skills/a/SKILL.md"), 0o755))
}

// there reads a file of the account's ~/.hermes; "-" is one that is not there.
func (b *bench) there(name string) string {
	return content(b.t, filepath.Join(b.a.home, ".hermes", name))
}

func (b *bench) here(name string) string { return content(b.t, filepath.Join(b.home, name)) }

func content(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "-"
	}
	must(t, err)
	return string(text)
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// noticed tells whether a result says something that holds all of these words.
func noticed(r *elsewhere.Result, words ...string) bool {
	for _, n := range r.Notices {
		all := true
		for _, w := range words {
			all = all && strings.Contains(n, w)
		}
		if all {
			return true
		}
	}
	return false
}

func noise(seed uint64, size int) string {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	text := make([]byte, size)
	_, _ = r.Read(text)
	return string(text)
}

// closed closes a sandbox.
func closed(t testing.TB, sb *elsewhere.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, sb.Close(ctx))
}

// TestFiles: what is named arrives, and what changes here changes there.
func TestFiles(t *testing.T) {
	b := newBench(t, "main", "fish")
	b.hermes()
	s := b.session(b.open())
	r := b.want(s, `cat ~/.hermes/skills/a/SKILL.md; stat -c %a ~/.hermes/skills/a/SKILL.md ~/.hermes/'google token.json'`, "skill a755\n600\n")
	if !noticed(r, ".env", "never handed") || !noticed(r, "absent.json", "not in HERMES_HOME") || len(r.Notices) != 2 {
		t.Errorf("notices: %q", r.Notices)
	}
	for there, want := range map[string]string{
		"skills/odd ' \"$x\"\n/été": "odd", "cache/images/1.png": "image 1", "cache/documents/old.txt": "a cache under its older name",
		"google token.json": "secret 1", "keys/id": "secret 2", ".env": "-", "config.yaml": "-", "private.txt": "-", "elsewhere": "-",
	} {
		same(t, there, b.there(there), want)
	}
	b.put("skills/a/SKILL.md", "skill A") // of the same length
	b.put("skills/b/SKILL.md", "skill b")
	b.put("absent.json", "secret 3")
	must(t, os.Remove(filepath.Join(b.home, "keys/id")))
	must(t, os.RemoveAll(filepath.Join(b.home, "cache/images")))
	r = b.want(s, `cat ~/.hermes/skills/?/SKILL.md ~/.hermes/absent.json`, "skill Askill bsecret 3")
	if !noticed(r, "keys/id", "not in HERMES_HOME") || len(r.Notices) != 1 {
		t.Errorf("notices: %q", r.Notices)
	}
	same(t, "a credential file that is gone", b.there("keys/id"), "-")
	same(t, "a cache that is gone", b.there("cache/images/1.png"), "-")
	// A link that leads out hands nothing out, and takes away what was there.
	must(t, os.Remove(filepath.Join(b.home, "google token.json")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(b.home, "google token.json")))
	if r = b.want(s, `:`, ""); !noticed(r, "google token.json", "leads out") {
		t.Errorf("notices: %q", r.Notices)
	}
	same(t, "a credential file that became a link", b.there("google token.json"), "-")
	// Another process finds all as it is, and says no more than what is still so.
	if r = b.want(b.session(b.open()), `cat ~/.hermes/skills/b/SKILL.md`, "skill b"); len(r.Notices) != 3 {
		t.Errorf("notices: %q", r.Notices)
	}
}

// TestFilesAreLookedAtNowAndThen: without force_file_sync a call does not look again that soon.
func TestFilesAreLookedAtNowAndThen(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.put("skills/a", "1")
	s := b.session(b.open())
	began := time.Now()
	b.want(s, `cat ~/.hermes/skills/a`, "1")
	b.put("skills/a", "22")
	if r := b.want(s, `cat ~/.hermes/skills/a`, "1"); time.Since(began) > 4*time.Second {
		t.Logf("the machine is too slow to tell: %q", r.Output)
	}
	b.eventually("the change arrives", 5*time.Second, func() bool {
		r, err := run(s, `cat ~/.hermes/skills/a`, 0)
		return err == nil && string(r.Output) == "22"
	})
}

// TestNoFiles: nothing is sent where nothing is to be.
func TestNoFiles(t *testing.T) {
	t.Run("ssh_file_sync", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		b.hermes()
		b.settings["ssh_file_sync"] = "false"
		b.want(b.session(b.open()), `ls -d ~/.hermes 2>/dev/null; :`, "")
	})
	t.Run("throw-away", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		b.hermes()
		sb, err := elsewhere.OpenSandbox(context.Background(), b.config(), &elsewhere.SandboxOptions{Environ: b.environ, ThrowAway: true})
		must(t, err)
		t.Cleanup(func() { closed(t, sb) })
		b.want(b.session(sb), `ls -d ~/.hermes ~/.local 2>/dev/null; :`, "")
	})
	t.Run("nothing there", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		b.want(b.session(b.open()), `ls -d ~/.hermes 2>/dev/null; ls ~/.local/state/elsewhere/*/state | grep -c filesync; :`, "0\n")
	})
}

// TestForeignFiles: what is not ours is left alone, by name.
func TestForeignFiles(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.hermes()
	b.a.write(t, ".hermes/skills/a/SKILL.md", "theirs")
	b.a.write(t, ".hermes/google token.json", "their secret")
	b.a.write(t, ".hermes/skills/theirs/SKILL.md", "their own")
	s := b.session(b.open())
	r := b.want(s, `cat ~/.hermes/skills/a/SKILL.md`, "theirs")
	if !noticed(r, ".hermes/skills/a/SKILL.md", "not from an earlier transfer") || !noticed(r, "google token.json", "not from an earlier transfer") {
		t.Errorf("notices: %q", r.Notices)
	}
	same(t, "the rest", b.there("keys/id"), "secret 2")
	// What we sent and a command changed is not ours any more.
	b.want(s, `echo changed >~/.hermes/keys/id`, "")
	b.put("keys/id", "secret 4")
	b.eventually("it is said", 0, func() bool { return noticed(b.want(b.session(b.open()), `:`, ""), "keys/id", "changed there") })
	must(t, os.RemoveAll(filepath.Join(b.home, "skills")))
	must(t, os.Mkdir(filepath.Join(b.home, "skills"), 0o700))
	b.want(s, `:`, "")
	same(t, "theirs, still", b.there("skills/a/SKILL.md"), "theirs")
	same(t, "their own, still", b.there("skills/theirs/SKILL.md"), "their own")
	same(t, "changed there, still", b.there("keys/id"), "changed\n")
}

// TestFilesComeBack: caches come back on close, nothing else does, and what changed is listed.
func TestFilesComeBack(t *testing.T) {
	const change = `cd ~/.hermes; echo there >cache/images/1.png; echo new >cache/images/new.png; chmod 755 cache/images/new.png
		echo bad >skills/a/SKILL.md; echo bad >"google token.json"; echo bad >keys/other; echo over >cache/documents/old.txt
		ln -s /etc/passwd cache/images/link; mkfifo cache/images/pipe; rm cache/images/2.png; :`
	for _, tc := range []struct{ back, image, skill string }{
		{"cache", "there\n", "skill a"}, {"all", "there\n", "bad\n"}, {"off", "image 1", "skill a"},
	} {
		t.Run(tc.back, func(t *testing.T) {
			b := newBench(t, "main", "dash")
			b.hermes()
			b.put("cache/images/2.png", "image 2")
			b.settings["sync_back"] = tc.back
			var log lines
			sb, err := elsewhere.OpenSandbox(context.Background(), b.config(), &elsewhere.SandboxOptions{
				Environ: b.environ, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			must(t, err)
			b.want(b.session(sb), change, "")
			b.put("document_cache/old.txt", "changed here meanwhile")
			closed(t, sb)
			same(t, "a cache", b.here("cache/images/1.png"), tc.image)
			same(t, "a skill", b.here("skills/a/SKILL.md"), tc.skill)
			same(t, "a credential file", b.here("google token.json"), "secret 1")
			same(t, "another file beside it", b.here("keys/other"), "-")
			same(t, "a file that was changed on both sides", b.here("document_cache/old.txt"), "changed here meanwhile")
			same(t, "a file that was removed there", b.here("cache/images/2.png"), "image 2")
			for _, name := range []string{"link", "pipe"} {
				if _, err := os.Lstat(filepath.Join(b.home, "cache/images", name)); err == nil {
					t.Errorf("the %s came back", name)
				}
			}
			if tc.back == "off" {
				same(t, "a new file", b.here("cache/images/new.png"), "-")
				return
			}
			same(t, "a new file", b.here("cache/images/new.png"), "new\n")
			info, err := os.Stat(filepath.Join(b.home, "cache/images/new.png"))
			must(t, err)
			if info.Mode().Perm()&0o111 != 0 {
				t.Errorf("a new file may be run: %v", info.Mode())
			}
			if said := log.String(); !strings.Contains(said, "came back") || !strings.Contains(said, "cache/images/new.png") {
				t.Errorf("what changed is not listed: %s", said)
			}
		})
	}
}

// TestTooMuchComesBack: the limit is one.
func TestTooMuchComesBack(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.put("cache/images/1.png", "image 1")
	b.settings["sync_back_max_bytes"] = "1000"
	var log lines
	sb, err := elsewhere.OpenSandbox(context.Background(), b.config(), &elsewhere.SandboxOptions{
		Environ: b.environ, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	must(t, err)
	b.want(b.session(sb), `cd ~/.hermes/cache/images; echo small >small; head -c 2000 /dev/zero >large`, "")
	closed(t, sb)
	same(t, "the small one", b.here("cache/images/small"), "small\n")
	same(t, "the large one", b.here("cache/images/large"), "-")
	if !strings.Contains(log.String(), "cache/images/large") {
		t.Errorf("it is not said: %s", log.String())
	}
}

// lines is a log for several goroutines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestFilesCannotBeSent: the command runs, its result says why the files are not there, and the next call sends them.
func TestFilesCannotBeSent(t *testing.T) {
	t.Run("the home is read-only", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		b.put("skills/a", "1")
		b.a.write(t, ".local/state/x", "")
		must(t, os.Chmod(b.a.home, 0o500))
		s := b.session(b.open())
		if r := b.want(s, `echo runs`, "runs\n"); !noticed(r, "were not sent", "cannot be written to", "tries again") {
			t.Errorf("notices: %q", r.Notices)
		}
		if r := b.want(s, `echo runs`, "runs\n"); noticed(r, "were not sent") {
			t.Errorf("it is said twice: %q", r.Notices)
		}
		must(t, os.Chmod(b.a.home, 0o700))
		b.want(s, `cat ~/.hermes/skills/a`, "1")
	})
	t.Run("nothing can be kept there", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		b.put("skills/a", "1")
		must(t, os.Chmod(b.a.home, 0o500))
		if r := b.want(b.session(b.open()), `echo runs; ls -A ~`, "runs\n"); !noticed(r, "are not sent", "cannot be remembered") {
			t.Errorf("notices: %q", r.Notices)
		}
		must(t, os.Chmod(b.a.home, 0o700))
	})
	t.Run("the disk is full", func(t *testing.T) {
		b := newBench(t, "main", "dash")
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=3m,mode=700,uid="+b.a.uid+",gid="+b.a.gid, "tmpfs", b.a.home).CombinedOutput(); err != nil {
			t.Skipf("no file system can be mounted here: %s", out)
		}
		t.Cleanup(func() {
			b.a.EndAll()
			if out, err := exec.Command("umount", b.a.home).CombinedOutput(); err != nil {
				t.Errorf("umount: %s", out)
			}
		})
		b.put("skills/large", noise(1, 8<<20))
		s := b.session(b.open())
		if r := b.want(s, `echo runs`, "runs\n"); !noticed(r, "were not sent", "no space") {
			t.Errorf("notices: %q", r.Notices)
		}
		b.put("skills/large", noise(2, 1<<20))
		b.want(s, `wc -c <~/.hermes/skills/large`, fmt.Sprintln(1<<20))
		same(t, "its content", b.there("skills/large"), noise(2, 1<<20))
	})
	t.Run("a file that cannot be read", func(t *testing.T) { // N02
		b := newBench(t, "main", "dash")
		b.put("skills/a", "1")
		if out, err := exec.Command("mkfifo", filepath.Join(b.home, "skills/pipe")).CombinedOutput(); err != nil {
			t.Fatalf("mkfifo: %s", out)
		}
		b.want(b.session(b.open()), `cat ~/.hermes/skills/a; ls ~/.hermes/skills`, "1a\n")
	})
}

// TestFilesOverALinkThatIsCut: the call whose files were on their way runs, and says so; the next one sends the rest.
func TestFilesOverALinkThatIsCut(t *testing.T) {
	b := newBench(t, "main", "dash")
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"] = r.port()
	text := noise(3, 48<<20)
	b.put("skills/large", text)
	s := b.session(b.open())
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if stages, _ := filepath.Glob(filepath.Join(b.a.home, ".elsewhere-sync-*", "new")); len(stages) > 0 {
				r.cut()
				return
			}
		}
		t.Error("no file was on its way")
	}()
	first, err := run(s, `echo runs`, 0)
	<-cut
	must(t, err)
	if string(first.Output) != "runs\n" || !noticed(first, "were not sent", "tries again") {
		t.Errorf("%q, notices %q", first.Output, first.Notices)
	}
	second := b.want(s, `wc -c <~/.hermes/skills/large; ls -A ~ | grep -c elsewhere-sync; :`, fmt.Sprintln(len(text))+"0\n")
	if len(second.Notices) > 0 {
		t.Errorf("notices: %q", second.Notices)
	}
	if b.there("skills/large") != text {
		t.Error("it is not what was sent")
	}
}

// TestTwoControllers: two machines with one account look after their own files each.
func TestTwoControllers(t *testing.T) {
	one := newBench(t, "main", "dash")
	two := newBench(t, "main", "dash")
	two.a, two.settings["ssh_key"] = one.a, one.a.key
	for _, b := range []*bench{one, two} {
		b.settings["force_file_sync"] = "true"
		b.put("skills/shared", "the same")
	}
	one.put("skills/differs", "one's")
	two.put("skills/differs", "two's")
	one.put("skills/one", "1")
	two.put("skills/two", "2")
	sone, stwo := one.session(one.open()), two.session(two.open())
	one.want(sone, `cat ~/.hermes/skills/differs`, "one's")
	if r := two.want(stwo, `cat ~/.hermes/skills/differs ~/.hermes/skills/one ~/.hermes/skills/two`, "one's12"); !noticed(r, "skills/differs", "not from an earlier transfer") {
		t.Errorf("notices: %q", r.Notices)
	}
	for _, name := range []string{"shared", "differs", "two"} {
		must(t, os.Remove(filepath.Join(two.home, "skills", name)))
	}
	two.want(stwo, `ls ~/.hermes/skills`, "differs\none\nshared\n")
	one.put("skills/differs", "one's again")
	if r := one.want(sone, `cat ~/.hermes/skills/differs`, "one's again"); len(r.Notices) > 0 {
		t.Errorf("notices: %q", r.Notices)
	}
	// At once, too.
	var work sync.WaitGroup
	for i, c := range []struct {
		b *bench
		s *elsewhere.Session
	}{{one, sone}, {two, stwo}} {
		work.Go(func() {
			for j := range 5 {
				c.b.put(fmt.Sprintf("skills/of-%d/%d", i, j), "x")
				if r, err := run(c.s, fmt.Sprintf("cat ~/.hermes/skills/of-%d/%d", i, j), 0); err != nil || string(r.Output) != "x" {
					t.Errorf("%v, %v", r, err)
				}
			}
		})
	}
	work.Wait()
	one.want(sone, `ls ~/.hermes/skills/of-? | grep -c '^.$'`, "10\n")
}

// TestOwnLoopback: a home that is both here and there is not copied to itself. P04
func TestOwnLoopback(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.a = accountOf(t, "root")
	b.settings["ssh_user"], b.settings["ssh_key"] = "root", b.a.key
	b.home = filepath.Join(b.a.home, ".hermes")
	b.hermes()
	b.put("skills/large", noise(4, 1<<20))
	before, err := os.Stat(filepath.Join(b.home, "skills/large"))
	must(t, err)
	sb, err := b.tryOpen()
	must(t, err)
	s := b.session(sb)
	b.want(s, `cat ~/.hermes/skills/a/SKILL.md; echo new >~/.hermes/skills/new; ls -d ~/.hermes/cache/documents 2>/dev/null; :`, "skill a")
	b.put("cache/images/1.png", "image 2")
	b.want(s, `cat ~/.hermes/cache/images/1.png`, "image 2")
	closed(t, sb)
	after, err := os.Stat(filepath.Join(b.home, "skills/large"))
	must(t, err)
	if !os.SameFile(before, after) {
		t.Error("it was written anew")
	}
}

// TestCopyOverALinkThatIsCut: a copy whose connection goes fails, and goes on where it was when it is repeated.
func TestCopyOverALinkThatIsCut(t *testing.T) {
	b := newBench(t, "main", "dash")
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"] = r.port()
	sb := b.open()
	text, file := noise(5, 64<<20), filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(file, []byte(text), 0o644))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var once sync.Once
	_, err := sb.Upload(ctx, file, "made/large", &elsewhere.TransferOptions{Progress: func(p elsewhere.TransferProgress) {
		if p.Bytes > p.AllBytes*3/4 {
			once.Do(r.cut)
		}
	}})
	if err == nil {
		t.Fatal("a copy over a link that was cut is said to be whole")
	}
	if _, err := os.Stat(filepath.Join(b.a.home, "made/large")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the cut: %v", err)
	}
	done, err := sb.Upload(ctx, file, "made/large", nil)
	must(t, err)
	if !done.Resumed {
		t.Errorf("it began anew: %+v", done)
	}
	if content(t, filepath.Join(b.a.home, "made/large")) != text {
		t.Error("it is not what was sent")
	}
	entries, err := os.ReadDir(filepath.Join(b.a.home, "made"))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// TestFilesOnFewSessions: a server that gives one session at a time gets its files too, once, however many calls wait for them.
func TestFilesOnFewSessions(t *testing.T) {
	b := newBench(t, "max1", "dash")
	for i := range 200 {
		b.put(fmt.Sprintf("skills/%d/SKILL.md", i), "skill")
	}
	sb := b.open()
	var work sync.WaitGroup
	for range 6 {
		s := b.session(sb)
		work.Go(func() {
			r, err := run(s, `ls ~/.hermes/skills | wc -l`, 0)
			if err != nil || string(r.Output) != "200\n" || len(r.Notices) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	work.Wait()
}

// TestFilesOfAMachineThatIsGone: closing waits for them no longer than the setting says, and says that they did not come.
func TestFilesOfAMachineThatIsGone(t *testing.T) {
	b := newBench(t, "main", "dash")
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"], b.settings["sync_back_timeout"] = r.port(), "3"
	b.put("cache/images/1.png", "image 1")
	var log lines
	sb, err := elsewhere.OpenSandbox(context.Background(), b.config(), &elsewhere.SandboxOptions{
		Environ: b.environ, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	must(t, err)
	s := b.session(sb)
	b.want(s, `echo there >~/.hermes/cache/images/1.png`, "")
	must(t, s.Close(context.Background()))
	must(t, r.listener.Close())
	r.cut()
	began := time.Now()
	closed(t, sb)
	if took := time.Since(began); took > 13*time.Second+2*allowance { // and 10 s for what else is done there
		t.Errorf("closing took %v", took)
	}
	same(t, "the file here", b.here("cache/images/1.png"), "image 1")
	if !strings.Contains(log.String(), "did not come back") {
		t.Errorf("it is not said: %s", log.String())
	}
}

// TestFilesAreToldOf: a call that waits for its files says how far they are, and that it waits no more before its command begins.
func TestFilesAreToldOf(t *testing.T) {
	b := newBench(t, "main", "dash")
	b.settings["force_file_sync"] = "true"
	b.put("skills/large", noise(6, 4<<20))
	var mu sync.Mutex
	var texts []string
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sb, err := elsewhere.OpenSandbox(ctx, b.config(), &elsewhere.SandboxOptions{Environ: b.environ, Progress: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if !strings.HasPrefix(text, "connecting") { // on a busy machine
			texts = append(texts, text)
		}
	}})
	must(t, err)
	t.Cleanup(func() { closed(t, sb) })
	s := b.session(sb)
	b.want(s, `wc -c <~/.hermes/skills/large`, fmt.Sprintln(4<<20))
	mu.Lock()
	if n := len(texts); n < 2 || !strings.Contains(texts[0], "sending skills") || !strings.Contains(texts[0], "of 4.0 MiB") || texts[n-1] != "" {
		t.Errorf("said: %q", texts)
	}
	texts = nil
	mu.Unlock()
	b.want(s, `echo unchanged`, "unchanged\n")
	mu.Lock()
	defer mu.Unlock()
	if len(texts) > 0 {
		t.Errorf("nothing was sent, and said: %q", texts)
	}
}
