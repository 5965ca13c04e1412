//go:build linux

package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere"
)

// agent starts an ssh-agent for the bench's caller, which holds count keys that no server knows: more than one lets a client
// try (MaxAuthTries, 6 by default).
func (b *bench) agent(count int) {
	b.t.Helper()
	program, err := exec.LookPath("ssh-agent")
	if err != nil {
		b.t.Skip("no ssh-agent here")
	}
	dir, err := os.MkdirTemp("/tmp", "sshtest-agent-") // a socket's path has to be short
	must(b.t, err)
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(program, "-D", "-a", socket)
	must(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		must(b.t, os.RemoveAll(dir))
	})
	b.environ = append(b.environ, "SSH_AUTH_SOCK="+socket)
	b.eventually("the agent listens", 0, func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	for i := range count {
		key := filepath.Join(dir, fmt.Sprint("key", i))
		must(b.t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).Run())
		b.load(key)
	}
	out, err := b.sshAdd("-l")
	if n := bytes.Count(out, []byte("\n")); err != nil || n != count {
		b.t.Fatalf("the agent holds %d keys, not %d: %v\n%s", n, count, err, out)
	}
}

func (b *bench) sshAdd(args ...string) ([]byte, error) {
	cmd := exec.Command("ssh-add", args...)
	cmd.Env = b.environ
	return cmd.CombinedOutput()
}

func (b *bench) load(key string) {
	b.t.Helper()
	if out, err := b.sshAdd("-q", key); err != nil {
		b.t.Fatalf("ssh-add: %v\n%s", err, out)
	}
}

// clientConfig makes the caller's ssh read this in place of ~/.ssh/config.
func (b *bench) clientConfig(text string) {
	b.t.Helper()
	here := filepath.Dir(b.home)
	file := filepath.Join(here, "ssh_config")
	must(b.t, os.WriteFile(file, []byte(text), 0o600))
	wrapper := filepath.Join(here, "bin", "ssh")
	script, err := os.ReadFile(wrapper)
	must(b.t, err)
	must(b.t, os.WriteFile(wrapper, []byte(strings.Replace(string(script), ` "$@"`, " -F "+file+` "$@"`, 1)), 0o755))
}

// TestAnAgentWithManyKeys: S04. The agent's keys are not offered where a key is named, and so cannot use up the server's patience.
func TestAnAgentWithManyKeys(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(b *bench)
	}{
		{"ssh_key names a file", func(*bench) {}},
		{"ssh_key names a file whose key is the agent's last", func(b *bench) { b.load(b.a.key) }},
		{"the configuration names a file", func(b *bench) {
			b.clientConfig("Host 127.0.0.1\n IdentityFile " + b.a.key + "\n IdentitiesOnly yes\n")
			delete(b.settings, "ssh_key")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, "main", "bash")
			b.agent(8)
			tc.do(b)
			b.want(b.session(b.open()), `echo in`, "in\n")
		})
	}
	t.Run("nothing names a key, and the agent has it among few", func(t *testing.T) {
		b := newBench(t, "main", "bash")
		b.agent(2)
		b.load(b.a.key)
		delete(b.settings, "ssh_key")
		b.want(b.session(b.open()), `echo in`, "in\n")
	})
	t.Run("nothing names a key", func(t *testing.T) {
		b := newBench(t, "main", "bash")
		b.agent(8)
		b.load(b.a.key)
		delete(b.settings, "ssh_key")
		sb, err := b.tryOpen()
		if err == nil {
			_ = sb.Close(context.Background())
			t.Fatal("the server let it try nine keys: the other cases prove nothing")
		}
		text := err.Error()
		if !errors.Is(err, elsewhere.ErrUnavailable) || strings.Contains(text, "\n") {
			t.Errorf("the error is %q", text)
		}
		for _, word := range []string{"Too many authentication failures", "ssh_key", "IdentitiesOnly", "ssh-agent"} {
			if !strings.Contains(text, word) {
				t.Errorf("%q is not in: %v", word, text)
			}
		}
	})
}
