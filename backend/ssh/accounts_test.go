//go:build linux

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
)

// TestLoginShells holds accounts with every login shell against the cases that could tell them apart.
func TestLoginShells(t *testing.T) {
	for _, login := range []string{"bash", "fish", "zsh", "csh", "tcsh"} {
		t.Run(login, func(t *testing.T) {
			port(t, "main")
			h := harness("main", login)
			h.Only = []string{
				"exit/a signal that ends the shell is a signal, a child that died of one is an exit code",
				"state/state is saved when the command ends by exit, set -e, set -u or a catchable signal",
				"kill/the EXIT trap of a command runs when a timeout ends it",
				"directory/directories with every odd name are known, entered and kept",
			}
			h.Skip = nil
			drivertest.Run(t, h)
			b := newBench(t, "main", login)
			sb := b.open()
			s := b.session(sb)
			// S05; and what all the shells see differently.
			b.want(s, `A=1; echo "${A:-x}"`, "1\n")
			b.want(s, `echo '!' "\\" '$HOME' "it's" %self *[z] {a,b} ^x^y; echo $0`, "! \\ $HOME it's %self *[z] a b ^x^y\nbash\n")
		})
	}
}

// TestStartFiles: what the login shell's own files print does no harm to anything.
func TestStartFiles(t *testing.T) {
	for _, tc := range []struct{ login, file, text string }{
		{"bash", ".bashrc", "echo welcome; echo complaint >&2; printf '\\0\\1noise'\n"},
		{"zsh", ".zshenv", "echo welcome; echo complaint >&2; setopt NO_UNSET ERR_EXIT\n"},
		{"csh", ".cshrc", "echo welcome\nset noglob\n"},
		{"fish", ".config/fish/config.fish", "echo welcome; set -gx X 1; function bash; echo mine; end\n"},
	} {
		t.Run(tc.login, func(t *testing.T) {
			b := newBench(t, "banner", tc.login)
			b.a.write(t, tc.file, tc.text)
			s := b.session(b.open())
			b.want(s, `printf 'a\n'`, "a\n")
			r, err := s.Run(context.Background(), `echo out; echo err >&2`, &elsewhere.RunOptions{Split: true})
			must(t, err)
			if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" {
				t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
			}
		})
	}
}

// TestEnvironment: a variable that is named reaches commands on a server that accepts none, and is in nobody's arguments.
func TestEnvironment(t *testing.T) {
	b := newBench(t, "main", "bash")
	b.settings["env_passthrough"] = "WANTED,MODAL_TOKEN_SECRET"
	b.environ = append(b.environ, "WANTED=a 'quoted' secret\n$x", "MODAL_TOKEN_SECRET=sk-1", "UNWANTED=1")
	s := b.session(b.open())
	b.want(s, `printf '%s|%s|%s' "$WANTED" "${UNWANTED-unset}" "${MODAL_TOKEN_SECRET-unset}"`, "a 'quoted' secret\n$x|unset|unset")
	r, err := run(s, `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c "[q]uoted. secret"; :`, 0)
	must(t, err)
	if string(r.Output) != "0\n" {
		t.Errorf("the command's own text is in the arguments of %s processes", r.Output)
	}
	args, err := exec.Command("ps", "-eo", "args").Output()
	must(t, err)
	if strings.Contains(string(args), "'quoted' secret") {
		t.Error("the value is in the arguments of a process")
	}
	if len(args) == 0 {
		t.Error("ps showed nothing: the test proves nothing")
	}
}

// TestWhere: what is said of the place is what is true there.
func TestWhere(t *testing.T) {
	b := newBench(t, "main", "bash")
	b.settings["cwd"] = "~/work dir"
	must(t, os.Mkdir(filepath.Join(b.a.home, "work dir"), 0o755))
	sb := b.open()
	s := b.session(sb)
	info := sb.Info()
	name, _ := os.Hostname()
	if info.Host != name || info.User != b.a.login || info.Home != b.a.home || info.Dir != b.a.home+"/work dir" || info.SandboxID != b.a.login+"@127.0.0.1:"+b.settings["ssh_port"] {
		t.Errorf("%+v", info)
	}
	b.want(s, `pwd; id -un`, b.a.home+"/work dir\n"+b.a.login+"\n")
	for _, dir := range []string{info.StateDir, info.PrivateDir} {
		st, err := os.Stat(dir)
		must(t, err)
		if st.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", dir, st.Mode())
		}
	}
	// What a command removes is made again, and said.
	// A waiting shell may write there meanwhile.
	b.want(s, `until rm -rf "`+info.PrivateDir+`" ~/.local 2>/dev/null; do :; done`, "")
	b.eventually("calls work again", 0, func() bool {
		r, err := run(s, `echo fine`, 0)
		// A shell that waited since before finds nowhere to write its state.
		return err == nil && string(r.Output) == "fine\n" && r.StateSaved && s.Flush(context.Background()) == nil
	})
}

// TestLeftovers: the private directory of a process that was killed goes when the account is opened next.
func TestLeftovers(t *testing.T) {
	b := newBench(t, "main", "bash")
	sb := b.open()
	b.want(b.session(sb), `true`, "")
	mine := sb.Info().PrivateDir
	part := strings.Split(filepath.Base(mine), "-")
	part[2], part[3] = strings.Repeat("0", 32), "dead"
	dead := filepath.Join(filepath.Dir(mine), strings.Join(part, "-"))
	must(t, os.MkdirAll(filepath.Join(dead, "x"), 0o700))
	b.a.Own(t, dead)
	t.Cleanup(func() { _ = os.RemoveAll(dead) })
	two := b.open()
	b.want(b.session(two), `true`, "")
	b.eventually("the directory of the dead process is gone", 0, func() bool {
		_, err := os.Stat(dead)
		return errors.Is(err, os.ErrNotExist)
	})
	if _, err := os.Stat(mine); err != nil {
		t.Errorf("the directory of a process that lives: %v", err)
	}
}

// TestOpenFails: each error names what failed, where, and the next step, with ssh's own words.
func TestOpenFails(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, closed, _ := net.SplitHostPort(free.Addr().String())
	must(t, free.Close())
	_, mute, _ := net.SplitHostPort(silent.Addr().String())
	for _, tc := range []struct {
		name  string
		do    func(b *bench)
		kind  error
		words []string
	}{
		{"no host", func(b *bench) { delete(b.settings, "ssh_host") }, elsewhere.ErrConfig, []string{"TERMINAL_SSH_HOST"}},
		{"no user", func(b *bench) { delete(b.settings, "ssh_user") }, elsewhere.ErrConfig, []string{"TERMINAL_SSH_USER"}},
		{"neither", func(b *bench) { delete(b.settings, "ssh_user"); delete(b.settings, "ssh_host") }, elsewhere.ErrConfig, []string{"TERMINAL_SSH_HOST", "TERMINAL_SSH_USER"}},
		{"a key that is not there", func(b *bench) { b.settings["ssh_key"] = "/nonexistent/key" }, elsewhere.ErrConfig, []string{"ssh_key", "/nonexistent/key"}},
		{"a key that the account does not know", func(b *bench) {
			key := filepath.Join(filepath.Dir(b.a.key), "other")
			must(b.t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).Run())
			b.settings["ssh_key"] = key
		}, elsewhere.ErrUnavailable, []string{"Permission denied", "ssh-add"}},
		{"nobody listens", func(b *bench) { b.settings["ssh_port"] = closed }, elsewhere.ErrUnavailable, []string{"Connection refused", "ssh_port"}},
		{"a server that says nothing", func(b *bench) { b.settings["ssh_port"] = mute; b.settings["ssh_connect_timeout"] = "1" }, elsewhere.ErrUnavailable, []string{"timed out", "does not answer"}},
		{"a name that nobody has", func(b *bench) { b.settings["ssh_host"] = "no-such-host.invalid" }, elsewhere.ErrUnavailable, []string{"Could not resolve", "ssh_host"}},
		{"a host key that is not known where none is accepted", func(b *bench) {
			b.settings["ssh_host_key_checking"] = "yes"
		}, elsewhere.ErrUnavailable, []string{"Host key verification failed", "accept-new"}},
		{"a host key that has changed", func(b *bench) {
			public, err := os.ReadFile(b.a.key + ".pub")
			must(b.t, err)
			line := "[127.0.0.1]:" + b.settings["ssh_port"] + " " + string(public)
			must(b.t, os.WriteFile(filepath.Join(filepath.Dir(b.home), "known_hosts"), []byte(line), 0o600))
		}, elsewhere.ErrUnavailable, []string{"has changed", "ssh-keygen -R"}},
		{"no bash there", func(b *bench) { b.a.option(b.t, `environment="PATH=/nonexistent"`) }, elsewhere.ErrUnavailable, []string{"no bash on the PATH"}},
		{"a key that is bound to another command", func(b *bench) { b.a.option(b.t, `command="echo go away >&2; exit 3"`) }, elsewhere.ErrUnavailable, []string{"does not run bash", "exit code 3", "go away"}},
		{"a directory that is not there", func(b *bench) { b.settings["cwd"] = "/nonexistent" }, elsewhere.ErrConfig, []string{"terminal.cwd", "/nonexistent", "No such file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, "main", "bash")
			tc.do(b)
			sb, err := b.tryOpen()
			if err == nil {
				_ = sb.Close(context.Background())
				t.Fatal("it was opened")
			}
			if !errors.Is(err, tc.kind) {
				t.Errorf("the kind of %v is not %v", err, tc.kind)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			b.eventually("no master is left", 0, func() bool { return len(b.masters()) == 0 })
		})
	}
}

// TestHangingStartFile: a start file that waits for ever is an error within its time, which names what may be the cause.
func TestHangingStartFile(t *testing.T) {
	if testing.Short() {
		t.Skip("short: waits long")
	}
	b := newBench(t, "main", "zsh")
	b.settings["ssh_connect_timeout"] = "1"
	b.a.write(t, ".zshenv", "echo hello; sleep 300\n")
	begin := time.Now()
	sb, err := b.tryOpen()
	if err == nil {
		_ = sb.Close(context.Background())
		t.Fatal("it was opened")
	}
	if !strings.Contains(err.Error(), ".zshenv") || !errors.Is(err, elsewhere.ErrUnavailable) {
		t.Error(err)
	}
	if d := time.Since(begin); d > 22*time.Second+allowance {
		t.Errorf("after %v", d)
	}
}

// TestWithoutMasters: clients without shared connections have a way too.
func TestWithoutMasters(t *testing.T) {
	b := newBench(t, "main", "bash")
	b.settings["ssh_multiplex"] = "false"
	s := b.session(b.open())
	b.want(s, `export A=1; cd /usr`, "")
	b.want(s, `echo "$A $PWD"`, "1 /usr\n")
	r, err := run(s, `echo early; sleep 100`, time.Second)
	must(t, err)
	if r.Cause != elsewhere.TimedOut || string(r.Output) != "early\n" {
		t.Errorf("%+v", r)
	}
	r, err = run(s, `exit 255`, 0)
	must(t, err)
	if r.ExitCode != 255 || r.Cause != elsewhere.Exited {
		t.Errorf("%+v", r)
	}
	b.want(s, `echo fine`, "fine\n")
}

// TestLongPaths: S02. Where the path of the home is too long for a socket another place is found.
func TestLongPaths(t *testing.T) {
	b := newBench(t, "main", "bash")
	b.home = filepath.Join(b.home, strings.Repeat("long", 30))
	b.environ = append(b.environ, "HERMES_HOME="+b.home, "XDG_RUNTIME_DIR=/run/"+strings.Repeat("x", 90))
	s := b.session(b.open())
	b.want(s, `echo fine`, "fine\n")
	if _, err := os.Stat(filepath.Join(b.home, "elsewhere", "ssh")); err == nil {
		t.Error("the control directory is in a path that is too long")
	}
}

// option puts an option of sshd's in front of the account's own key.
func (a *account) option(t testing.TB, option string) {
	t.Helper()
	public, err := os.ReadFile(a.key + ".pub")
	must(t, err)
	key := strings.TrimSpace(string(public))
	a.EditKeys(t, func(keys string) string {
		changed := strings.Replace(keys, fmt.Sprintf("environment=\"HOME=%s\" %s", a.home, key), fmt.Sprintf("environment=\"HOME=%s\",%s %s", a.home, option, key), 1)
		if changed == keys {
			t.Fatal("the key is not among those of the account")
		}
		return changed
	})
}
