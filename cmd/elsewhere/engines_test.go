//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/testbed"
)

// place is a backend of this machine's real engines, as a user of the command line has it.
type place struct {
	t       *testing.T
	address string // BACKEND/TASK
	env     []string
	dir     string // where the commands are given
}

// run runs elsewhere in the place's environment.
func (p *place) run(args ...string) (stdout, stderr string, code int) {
	p.t.Helper()
	cmd := exec.Command("elsewhere", args...)
	cmd.Env, cmd.Dir = p.env, p.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		p.t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// wants is run for an exit code, and says all where there is another.
func (p *place) wants(code int, args ...string) (stdout, stderr string) {
	p.t.Helper()
	stdout, stderr, got := p.run(args...)
	if got != code {
		p.t.Fatalf("elsewhere %q: exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	return stdout, stderr
}

// there runs a command in the sandbox.
func (p *place) there(command string) string {
	p.t.Helper()
	backend, task, _ := strings.Cut(p.address, "/")
	out, _ := p.wants(0, "run", "--set", "policy.enabled=false", "-b", backend, "--task", task, command)
	return out
}

func (p *place) write(name, content string, mode os.FileMode) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(content), mode), os.Chmod(file, mode)); err != nil {
		p.t.Fatal(err)
	}
}

// manifest is a command that lists a directory: permissions, length, content or target, and name of each thing in it; - in place of
// the permissions of links, and of the length of what is no file.
func manifest(dir string) string {
	return `export LC_ALL=C; cd ` + dir + ` && find . -mindepth 1 -print0 | sort -z | while IFS= read -r -d "" f; do
	if [[ -L $f ]]; then printf "link %q to %q\n" "$f" "$(readlink "$f")"
	elif [[ -d $f ]]; then printf "directory %q %s\n" "$f" "$(stat -c %a "$f")"
	else printf "file %q %s %s\n" "$f" "$(stat -c "%a %s" "$f")" "$(sha256sum <"$f")"; fi
done`
}

// here is the manifest of a directory of this machine.
func (p *place) here(dir string) string {
	p.t.Helper()
	cmd := exec.Command("bash", "-c", manifest(dir))
	cmd.Dir = p.dir
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}

// places are the real engines that are here, each with a home and a sandbox of its own that go with the test.
func places(t *testing.T, test func(t *testing.T, p *place)) {
	const base = testbed.Cache + "/base.sif"
	for _, backend := range []string{"local", "docker", "singularity", "ssh"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && (backend == "singularity" || backend == "docker") {
				t.Skip("short: instances take long")
			}
			home, err := os.MkdirTemp("/tmp", "ewtest-") // sockets have short paths
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(home) })
			p := &place{t: t, address: backend + "/files-test", dir: filepath.Join(home, "work")}
			p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HERMES_HOME=" + filepath.Join(home, "hermes"), "TERM=dumb", "TMPDIR=" + os.TempDir()}
			if err := os.Mkdir(p.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			switch backend {
			case "docker":
				if err := exec.Command("docker", "image", "inspect", "elsewhere-test/debian").Run(); err != nil {
					t.Skipf("no Docker engine with the testbed's images: %v", err)
				}
				p.env = append(p.env, "TERMINAL_DOCKER_IMAGE=elsewhere-test/debian")
			case "singularity":
				if _, err := os.Stat(base); err != nil {
					t.Skipf("no image of the testbed: %v", err)
				}
				p.env = append(p.env, "TERMINAL_SINGULARITY_IMAGE="+base, "USER=root")
			case "ssh":
				p.account(home)
			}
			if backend != "local" {
				t.Cleanup(func() {
					if backend == "ssh" {
						return
					}
					p.wants(0, "sandbox", "rm", "--data", p.address)
				})
			}
			p.there("true")
			test(t, p)
		})
	}
}

// account makes the place one of the testbed's accounts, with a home directory of its own.
func (p *place) account(home string) {
	p.t.Helper()
	port := testbed.SSHPort(p.t, "main")
	a := testbed.NewAccount(p.t, "elsewhere-ssh-dash")
	p.env[0] = "PATH=" + testbed.SSHClient(p.t, home) + ":" + os.Getenv("PATH")
	p.env = append(p.env, "TERMINAL_SSH_HOST=127.0.0.1", "TERMINAL_SSH_USER="+a.Login, "TERMINAL_SSH_PORT="+port, "TERMINAL_SSH_KEY="+a.Key, "TERMINAL_SSH_CONTROL_PERSIST=1")
}

// TestFilesOnRealEngines gives the same commands on every engine that is here: what cp and sync promise holds on all of them.
func TestFilesOnRealEngines(t *testing.T) {
	places(t, func(t *testing.T, p *place) {
		far := func(path string) string { return p.address + ":" + path }
		p.write("src/file", "a file\n", 0o640)
		p.write("src/private", "secret\n", 0o600)
		p.write("src/bin/program", "#!/bin/sh\n", 0o755)
		p.write("src/empty", "", 0o644)
		p.write("src/all bytes", allBytes(), 0o644)
		for _, name := range []string{"new\nline", "-rf", "--", "quote's \"both\"", "$(touch pwned)", "back\\slash", "ünïcödé", "*", "tab\there", "unit\x1fseparator"} {
			p.write("src/odd/"+name, "named "+name, 0o644)
		}
		err := errors.Join(os.Mkdir(filepath.Join(p.dir, "src/nothing in it"), 0o755), os.Symlink("../file", filepath.Join(p.dir, "src/bin/link")),
			os.Symlink("/nowhere", filepath.Join(p.dir, "src/dangling")), os.WriteFile(filepath.Join(p.dir, "src/sparse"), nil, 0o644), os.Truncate(filepath.Join(p.dir, "src/sparse"), 24<<20))
		if err != nil {
			t.Fatal(err)
		}
		original := p.here("src")

		t.Log("cp, there and back")
		p.wants(0, "cp", "./src", far("dst"))
		same(t, "there", p.there(manifest("~/dst")), original)
		if blocks := strings.TrimSpace(p.there(`stat -c %b ~/dst/sparse`)); len(blocks) > 4 { // of 512 bytes; it has 49152 without holes
			t.Errorf("the sparse file takes %s blocks there", blocks)
		}
		p.wants(0, "cp", far("dst"), "./back")
		same(t, "back", p.here("back"), original)
		p.wants(0, "cp", "./src/file", far("alone"))
		same(t, "one file", p.there(`cat ~/alone`), "a file\n")

		t.Log("sync")
		p.wants(0, "sync", "--exclude", "private", "src", far("tree"))
		same(t, "without what is excluded", p.there(`ls -A ~/tree | grep -c .; ls ~/tree/private 2>&1 | grep -c "No such"`), "8\n1\n")
		p.wants(0, "sync", "src", far("tree"))
		same(t, "the tree", p.there(manifest("~/tree")), original)
		if out, _ := p.wants(0, "sync", "src", far("tree")); !strings.HasPrefix(out, "0 sent, 0 removed, ") {
			t.Errorf("again: %s", out)
		}

		t.Log("what is gone, and what was changed there")
		if err := errors.Join(os.Remove(filepath.Join(p.dir, "src/odd/-rf")), os.RemoveAll(filepath.Join(p.dir, "src/bin"))); err != nil {
			t.Fatal(err)
		}
		p.write("src/file", "changed here\n", 0o640)
		p.there(`echo "changed there" >~/tree/file; echo mine >~/tree/mine`)
		out, _ := p.wants(1, "sync", "--delete", "--dry-run", "src", far("tree"))
		for _, line := range []string{"remove odd/-rf\n", "remove bin/program\n", "0 would be sent, 4 would be removed"} {
			if !strings.Contains(out, line) {
				t.Errorf("%q is not in what would be done: %s", line, out)
			}
		}
		same(t, "after a dry run", p.there(`cat ~/tree/file; ls ~/tree/odd/-rf ~/tree/bin/program | grep -c .`), "changed there\n2\n")
		_, said := p.wants(1, "sync", "--delete", "src", far("tree"))
		if !strings.Contains(said, "conflict: file: it was changed there") || !strings.Contains(said, "conflict: mine: ") {
			t.Errorf("conflicts: %s", said)
		}
		same(t, "after conflicts", p.there(`cat ~/tree/file ~/tree/mine; ls -d ~/tree/odd/-rf ~/tree/bin 2>&1 | grep -c "No such"`), "changed there\nmine\n2\n")
		p.wants(0, "sync", "--delete", "--force", "src", far("tree"))
		same(t, "with force", p.there(manifest("~/tree")), p.here("src"))
		p.wants(0, "sync", far("tree"), "./mirror")
		same(t, "the other way round", p.here("mirror"), p.here("src"))

		t.Log("a copy that is broken off")
		p.brokenOff(far)
		if _, err := os.Stat(filepath.Join(p.dir, "pwned")); err == nil {
			t.Error("a name was run here")
		}
		same(t, "left there", p.there(`find ~ -name ".elsewhere-sync-*" -o -name pwned`), "")
	})
}

// brokenOff has the far side's tar killed in the middle of a copy, and repeats it: it goes on from there, and no part is seen.
func (p *place) brokenOff(far func(string) string) {
	p.t.Helper()
	p.write("large", noise(64<<20), 0o644)
	copied := make(chan string, 1)
	backend, task, _ := strings.Cut(p.address, "/")
	watch := exec.Command("elsewhere", "run", "-b", backend, "--task", task, "--timeout", "5m", `echo ready
		cd ~ && for ((;;)); do
			for part in .elsewhere-sync-*/part/*; do [[ -e $part ]] || continue
				for p in /proc/[0-9]*; do # without a fork: the copy does not wait
					[[ $p/cwd -ef . ]] && read -r name <"$p/comm" && [[ $name == *tar ]] && kill -9 "${p#/proc/}" && echo killed && exit
				done
			done
		done 2>/dev/null`)
	watch.Env, watch.Dir = p.env, p.dir
	out, err := watch.StdoutPipe()
	if err == nil {
		err = watch.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	ready := make([]byte, 6)
	if _, err := out.Read(ready); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(out)
		copied <- rest.String()
	}()
	stdout, stderr, code := p.run("cp", "--json", "large", far("large"))
	select {
	case said := <-copied:
		if !strings.Contains(said, "killed") {
			p.t.Fatalf("nothing was broken off: %q", said)
		}
	case <-time.After(30 * time.Second):
		_ = watch.Process.Kill()
		_ = watch.Wait()
		p.t.Fatalf("the copy was over before it could be broken off: %s%s", stdout, stderr)
	}
	_ = watch.Wait()
	if code != 125 {
		p.t.Errorf("a copy that was broken off ends with code %d: %s%s", code, stdout, stderr)
	}
	same(p.t, "a part of it", p.there(`ls ~/large 2>&1 | grep -c "No such"`), "1\n")
	stdout, _ = p.wants(0, "cp", "--json", "large", far("large"))
	var done copiedJSON
	if err := json.Unmarshal([]byte(stdout), &done); err != nil || !done.Resumed {
		p.t.Errorf("it did not go on: %s, %v", stdout, err)
	}
	p.wants(0, "cp", far("large"), "large again")
	if a, b := p.hash("large"), p.hash("large again"); a != b {
		p.t.Error("it is not what was sent")
	}
}

func (p *place) hash(name string) string {
	p.t.Helper()
	out, err := exec.Command("sha256sum", "--", filepath.Join(p.dir, name)).Output()
	if err != nil {
		p.t.Fatal(err)
	}
	sum, _, _ := strings.Cut(string(out), " ")
	return sum
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func noise(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return string(b)
}
