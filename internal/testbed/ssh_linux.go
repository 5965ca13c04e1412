package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gofrs/flock"
)

// sshd is where test/testbed/sshd.sh keeps what it made.
const sshd = "/var/lib/elsewhere-testbed/sshd"

// SSHPort is the port of the ssh server of that name. Without the servers, or without the rights to give an account another home,
// the test is skipped.
func SSHPort(t testing.TB, server string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sshd, "env"))
	if err != nil {
		t.Skip("no ssh servers of the testbed here (test/testbed/up sshd)")
	}
	if os.Geteuid() != 0 {
		t.Skip("the testbed's keys can be read by root alone")
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == server {
			return value
		}
	}
	t.Fatalf("the testbed has no ssh server %q", server)
	return ""
}

// Account is an account of the testbed with a home directory of its own for one test: a key of its own stands for it, in whose
// options the server finds the home. It goes with the test, with all processes that have that home.
type Account struct {
	Login    string
	Key      string // the file of the private key
	Home     string // below a directory of the test's own, with a short path
	UID, GID int
}

// NewAccount makes one of a login of this machine.
func NewAccount(t testing.TB, login string) *Account {
	t.Helper()
	u, err := user.Lookup(login)
	if err != nil {
		t.Fatalf("%v: run test/testbed/up sshd again", err)
	}
	a := &Account{Login: login}
	a.UID, _ = strconv.Atoi(u.Uid)
	a.GID, _ = strconv.Atoi(u.Gid)
	base, err := os.MkdirTemp("/tmp", "sshtest-")
	must(t, err)
	t.Cleanup(func() {
		a.EndAll()
		must(t, os.RemoveAll(base))
	})
	must(t, os.Chmod(base, 0o755))
	a.Home, a.Key = filepath.Join(base, "home"), filepath.Join(base, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", a.Key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	public, err := os.ReadFile(a.Key + ".pub")
	must(t, err)
	must(t, os.Mkdir(a.Home, 0o700))
	a.Own(t, a.Home)
	line := fmt.Sprintf("environment=\"HOME=%s\" %s", a.Home, public)
	a.EditKeys(t, func(keys string) string { return keys + line })
	t.Cleanup(func() {
		a.EditKeys(t, func(keys string) string {
			var kept strings.Builder
			for one := range strings.Lines(keys) {
				if !strings.HasSuffix(one, string(public)) { // a test may have given it other options
					kept.WriteString(one)
				}
			}
			return kept.String()
		})
	})
	return a
}

// EditKeys changes the keys that the server takes for the account, one test at a time.
func (a *Account) EditKeys(t testing.TB, edit func(keys string) string) {
	t.Helper()
	file := filepath.Join(sshd, "keys", a.Login)
	lock := flock.New(filepath.Join(sshd, "keys.lock"))
	must(t, lock.Lock())
	defer lock.Close()
	keys, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) { // root has none of the testbed's
		must(t, err)
	}
	temp := file + ".new"
	must(t, os.WriteFile(temp, []byte(edit(string(keys))), 0o644))
	must(t, os.Rename(temp, file))
}

// EndAll ends what a test's commands left in the background, which belongs to the machine: the processes that have its home.
func (a *Account) EndAll() {
	for pid, entries := range Environments() {
		if slices.Contains(entries, "HOME="+a.Home) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Environments are the environments of this machine's processes by their ids, those of containers among them, as far as they may be
// read.
func Environments() map[int][]string {
	all := map[int][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && perr == nil {
			all[pid] = strings.Split(string(text), "\x00")
		}
	}
	return all
}

// Own gives a file, or a directory with all that is in it, to the account.
func (a *Account) Own(t testing.TB, file string) {
	t.Helper()
	must(t, filepath.WalkDir(file, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, a.UID, a.GID))
	}))
}

// Settings are those with which the account is reached on a server. Connections end with their last user.
func (a *Account) Settings(port string) map[string]string {
	return map[string]string{"ssh_host": "127.0.0.1", "ssh_user": a.Login, "ssh_port": port, "ssh_key": a.Key, "ssh_control_persist": "0"}
}

// SSHClient makes dir/bin with an ssh that knows no hosts yet and keeps those that it learns of to itself, in dir/known_hosts. The
// directory belongs in front of PATH.
func SSHClient(t testing.TB, dir string) (bin string) {
	t.Helper()
	bin = filepath.Join(dir, "bin")
	must(t, os.Mkdir(bin, 0o755))
	program, err := exec.LookPath("ssh")
	must(t, err)
	script := fmt.Sprintf("#!/bin/sh\nexec %s -o UserKnownHostsFile=%s/known_hosts \"$@\"\n", program, dir)
	must(t, os.WriteFile(filepath.Join(bin, "ssh"), []byte(script), 0o755))
	return bin
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
