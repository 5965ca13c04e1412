//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// sudoer is a user of the testbed who may run id by sudo, with a password, and has elsewhere on local or on the testbed's ssh server.
type sudoer struct {
	t        *testing.T
	password string
	home     string
	program  string
	env      []string
	as       *syscall.SysProcAttr // nil for this process's own user
}

func sudoers(t *testing.T, test func(t *testing.T, s *sudoer)) {
	const dir, login = "/var/lib/elsewhere-testbed/sshd/", "elsewhere-ssh-sudo"
	password, err := os.ReadFile(dir + "sudo_password")
	u, uerr := user.Lookup(login)
	if err != nil || uerr != nil || os.Geteuid() != 0 {
		t.Skip("no user of the testbed here who may use sudo, or no rights to act for one")
	}
	program, err := exec.LookPath("elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	for _, backend := range []string{"local", "ssh"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			home, err := os.MkdirTemp("/tmp", "ewsudo-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(home) })
			s := &sudoer{t: t, password: strings.TrimSpace(string(password)), home: home, program: filepath.Join(home, "elsewhere")}
			s.env = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "HERMES_HOME=" + home + "/hermes", "TERMINAL_ENV=" + backend, "TERM=dumb"}
			binary, err := os.ReadFile(program)
			err = errors.Join(err, os.WriteFile(s.program, binary, 0o755), os.Mkdir(home+"/hermes", 0o700))
			if backend == "local" {
				s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
				err = errors.Join(err, os.Chown(home, uid, gid), os.Chown(home+"/hermes", uid, gid))
			} else {
				err = errors.Join(err, s.reach(dir, login))
			}
			if err != nil {
				t.Fatal(err)
			}
			test(t, s)
		})
	}
}

// reach lets ssh find the server, the key and known hosts of its own.
func (s *sudoer) reach(dir, login string) error {
	text, err := os.ReadFile(dir + "env")
	if err != nil {
		return err
	}
	port := ""
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "main="); ok {
			port = v
		}
	}
	client, err := exec.LookPath("ssh")
	if err != nil {
		return err
	}
	bin := filepath.Join(s.home, "bin")
	s.env[0] = "PATH=" + bin + ":/usr/bin:/bin"
	s.env = append(s.env, "TERMINAL_SSH_HOST=127.0.0.1", "TERMINAL_SSH_USER="+login, "TERMINAL_SSH_PORT="+port, "TERMINAL_SSH_KEY="+dir+"client_key", "TERMINAL_SSH_CONTROL_PERSIST=1")
	return errors.Join(os.Mkdir(bin, 0o755),
		os.WriteFile(filepath.Join(bin, "ssh"), fmt.Appendf(nil, "#!/bin/sh\nexec %s -o UserKnownHostsFile=%s/known_hosts \"$@\"\n", client, s.home), 0o755))
}

// knows gives the password to elsewhere by the file that holds Hermes' secrets; "" takes it away.
func (s *sudoer) knows(password string) {
	s.t.Helper()
	file := s.home + "/hermes/.env"
	err := os.WriteFile(file, []byte("SUDO_PASSWORD="+password+"\n"), 0o600)
	if s.as != nil && err == nil {
		err = os.Chown(file, int(s.as.Credential.Uid), int(s.as.Credential.Gid))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sudoer) run(args ...string) (stdout, stderr string, code int) {
	s.t.Helper()
	cmd := exec.Command(s.program, append([]string{"run", "--timeout", "60"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.env, s.home, s.as, &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestSudoGetsItsPassword is with a real sudo: it asks where it needs a password, and the password is nowhere else.
func TestSudoGetsItsPassword(t *testing.T) {
	sudoers(t, func(t *testing.T, s *sudoer) {
		s.knows("")
		if out, _, code := s.run("sudo id -u"); code == 0 || code == 124 || strings.Contains(out, "0\n") {
			t.Errorf("without a password: %q, code %d", out, code)
		}
		s.knows("it's not \"this\"")
		if out, _, code := s.run("sudo id -u"); code == 0 || code == 124 || strings.Contains(out, "\n0\n") {
			t.Errorf("with a wrong password: %q, code %d", out, code)
		}
		s.knows(s.password)
		if out, errs, code := s.run("-s", "dev", `export KEPT=1; printf 'a\nb\n' | { sudo id -u; cat; }`); out != "0\na\nb\n" || code != 0 {
			t.Fatalf("with the password: %q, code %d, %s", out, code, errs)
		}
		if out, errs, code := s.run("-s", "dev", `sudo -k; sudo -n id -u`); code == 0 || !strings.Contains(errs, "password is required") {
			t.Errorf("with -n: %q, code %d, %s", out, code, errs)
		}
		out, _, _ := s.run("--set", "policy.enabled=false", "-s", "dev", `stat -c '%a %U' "$SUDO_ASKPASS"; id -un; echo "$SUDO_ASKPASS"; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null; declare -p`)
		lines := strings.SplitN(out, "\n", 4)
		if len(lines) != 4 || lines[0] != "700 "+lines[1] {
			t.Fatalf("the program that is asked: %.200q", out)
		}
		if strings.Contains(out, s.password) {
			t.Error("the password is in an environment, in arguments or in a variable")
		}
		if _, err := os.Stat(lines[2]); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", lines[2], err)
		}
		s.nowhere()
	})
}

// nowhere looks for the password in all that elsewhere writes down.
func (s *sudoer) nowhere() {
	s.t.Helper()
	states := 0
	err := filepath.WalkDir(s.home, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path == s.program || filepath.Base(path) == ".env" {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(s.password)) {
			s.t.Errorf("the password is in %s", path)
		}
		if bytes.Contains(text, []byte("KEPT")) {
			states++
			if bytes.Contains(text, []byte("SUDO_ASKPASS=")) {
				s.t.Errorf("the program's name is in %s", path)
			}
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
	if states == 0 {
		s.t.Error("nothing was written down: this proves nothing")
	}
}
