package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
)

// dirVar is where a run keeps its files, for its children too.
const dirVar = "BENCH_DIR"

// sshServer is the account that is measured: the testbed's, or what BENCH_SSH_* say.
type sshServer struct{ host, user, port, key string }

func newSSHServer() sshServer {
	const testbed = "/var/lib/elsewhere-testbed/sshd/"
	port := "22"
	if text, err := os.ReadFile(testbed + "env"); err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "main="); ok {
				port = value
			}
		}
	}
	return sshServer{
		host: setting("BENCH_SSH_HOST", "127.0.0.1"), user: setting("BENCH_SSH_USER", "elsewhere-ssh-dash"),
		port: setting("BENCH_SSH_PORT", port), key: setting("BENCH_SSH_KEY", testbed+"client_key"),
	}
}

// client is the command line of an ssh client; with shared it uses a control master, which the first one starts.
func (s sshServer) client(shared bool, more ...string) []string {
	argv := []string{"ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=10", "-p", s.port}
	if s.key != "" {
		argv = append(argv, "-i", s.key, "-o", "IdentitiesOnly=yes")
	}
	if shared {
		argv = append(argv, "-o", "ControlMaster=auto", "-o", "ControlPersist=120", "-o", "ControlPath="+filepath.Join(os.Getenv(dirVar), "ssh"))
	} else {
		argv = append(argv, "-o", "ControlMaster=no", "-o", "ControlPath=none")
	}
	return append(argv, more...)
}

// bash runs a text in a bash there. It holds no quotes of its own.
func (s sshServer) bash(shared bool, text string) []string {
	return s.client(shared, "-l", s.user, s.host, "bash -c '"+text+"'")
}

// sshRig measures an account next to `ssh` through a control master.
func sshRig() rig {
	s := newSSHServer()
	return rig{
		settings: []string{
			"TERMINAL_SSH_HOST=" + s.host, "TERMINAL_SSH_USER=" + s.user, "TERMINAL_SSH_PORT=" + s.port, "TERMINAL_SSH_KEY=" + s.key,
			"TERMINAL_SSH_CONTROL_PERSIST=0",
		},
		bare: "ssh (master) bash -c true",
		ready: func(ctx context.Context) error {
			return runProgram(ctx, io.Discard, s.bash(false, "true")...)
		},
		run: func(ctx context.Context, _ *elsewhere.Sandbox, out io.Writer, command string) error {
			return runProgram(ctx, out, s.bash(true, command)...)
		},
		end: func(ctx context.Context) {
			_ = runProgram(ctx, io.Discard, s.client(true, "-q", "-O", "exit", "-l", s.user, s.host)...)
		},
		open: func(ctx context.Context, b *bench) error { return measureConnect(ctx, b, s) },
		sync: s.measureSync, spaced: 0.15, bursts: 0.5, sessions: []int{1, 5},
	}
}

// measureConnect opens the account up to the end of a first command, with a connection of its own and over one that another
// sandbox holds open.
func measureConnect(ctx context.Context, b *bench, s sshServer) error {
	group := "a connection and one command over it"
	cfg, err := config.Load(config.Options{Backends: all.Backends(), Environ: b.environ, Dir: "/"})
	if err != nil {
		return err
	}
	open := func() (*elsewhere.Sandbox, time.Duration, error) {
		start, ahead := time.Now(), 0
		sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Backend: b.backend, Environ: b.environ, SpawnAhead: &ahead})
		if err != nil {
			return nil, 0, err
		}
		session, err := sb.Session(ctx, "")
		if err == nil {
			err = ended(session.Run(ctx, "true", nil))
		}
		return sb, time.Since(start), err
	}
	closing := func(sb *elsewhere.Sandbox, err error) error {
		if sb == nil {
			return err
		}
		return errors.Join(err, sb.Close(context.WithoutCancel(ctx)))
	}
	var bare, cold, warm samples
	for i := range b.n.cold/2 + 1 {
		start := time.Now()
		if err := runProgram(ctx, io.Discard, s.bash(false, "true")...); err != nil {
			return err
		}
		connect := time.Since(start)
		one, first, err := open()
		if err != nil {
			return closing(one, err)
		}
		two, again, err := open()
		if err := closing(one, closing(two, err)); err != nil {
			return err
		}
		if i > 0 { // the first one warms, and finds out how many sessions the server gives
			bare, cold, warm = append(bare, milliseconds(connect)), append(cold, milliseconds(first)), append(warm, milliseconds(again))
		}
	}
	for i, one := range []struct {
		name string
		took samples
	}{{"ssh bash -c true, connecting", bare}, {"open and run true", cold}, {"the same over a connection that is there", warm}} {
		b.report.add(row{
			Backend: b.backend, Group: group, Name: one.name, Floor: i == 0, Unit: "ms", P50: one.took.p(50), P95: one.took.p(95), N: len(one.took),
			Ratio: one.took.p(50) / bare.p(50), Ratio95: one.took.p(95) / bare.p(95),
		})
	}
	return nil
}

// quoteAll makes a command line for a shell of words that hold no single quote.
func quoteAll(words []string) string {
	return "'" + strings.Join(words, "' '") + "'"
}
