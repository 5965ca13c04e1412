//go:build linux

package ssh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/ssh"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// allowance is what is added to a promised time before its breach is a failure.
const allowance = 10 * time.Second

// bench is an account, a caller with an own home, and the settings that lead from one to the other.
type bench struct {
	t        *testing.T
	a        *account
	home     string // HERMES_HOME
	settings map[string]string
	environ  []string
}

func newBench(t *testing.T, instance, login string) *bench {
	t.Helper()
	p := port(t, instance)
	here := t.TempDir()
	b := &bench{t: t, a: newAccount(t, login), home: filepath.Join(here, "hermes")}
	b.settings = b.a.Settings(p)
	b.settings["ssh_keepalive_interval"], b.settings["ssh_keepalive_count"] = "1", "3"
	b.settings["backend"], b.settings["policy.enabled"] = "ssh", "false"
	b.environ = caller(t, here, b.home)
	return b
}

// silence is after how long a dead connection is noticed with the settings of newBench.
const silence = 4 * time.Second

func (b *bench) config() *config.Config {
	b.t.Helper()
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{ssh.Backend()}, Flags: b.settings, Environ: b.environ, Home: b.home})
	must(b.t, err)
	return cfg
}

func (b *bench) tryOpen() (*elsewhere.Sandbox, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return elsewhere.OpenSandbox(ctx, b.config(), &elsewhere.SandboxOptions{Environ: b.environ})
}

func (b *bench) open() *elsewhere.Sandbox {
	b.t.Helper()
	sb, err := b.tryOpen()
	must(b.t, err)
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		must(b.t, sb.Close(ctx))
	})
	return sb
}

func (b *bench) session(sb *elsewhere.Sandbox) *elsewhere.Session {
	b.t.Helper()
	s, err := sb.Session(context.Background(), "")
	must(b.t, err)
	return s
}

func run(s *elsewhere.Session, command string, timeout time.Duration) (*elsewhere.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return s.Run(ctx, command, &elsewhere.RunOptions{Timeout: timeout})
}

func (b *bench) want(s *elsewhere.Session, command, out string) *elsewhere.Result {
	b.t.Helper()
	r, err := run(s, command, 0)
	if err != nil {
		b.t.Fatalf("%s: %v", command, err)
	}
	if string(r.Output) != out || r.ExitCode != 0 {
		b.t.Fatalf("%s: output %q, exit code %d, want %q", command, r.Output, r.ExitCode, out)
	}
	return r
}

// eventually waits until holds.
func (b *bench) eventually(what string, promise time.Duration, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(promise + allowance); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("still not so after %v: %s", promise+allowance, what)
		}
	}
}

// masters gives the masters that were started for this bench's home.
func (b *bench) masters() []int { return b.a.masters() }

func (b *bench) size(name string) int64 {
	st, err := os.Stat(filepath.Join(b.a.home, name))
	if err != nil {
		return -1
	}
	return st.Size()
}

// TestFaults breaks the connection under a call, in every way: the call fails as lost within the keepalive time, it ran once, what
// it left there ends, and the next call works over another connection with the state of the earlier ones.
func TestFaults(t *testing.T) {
	for _, f := range []struct {
		name string
		hurt func(b *bench, r *relay)
	}{
		{"the link is cut", func(_ *bench, r *relay) { r.cut() }},
		{"the link goes silent", func(_ *bench, r *relay) { r.stall() }},
		{"the server's half of the link is closed", func(_ *bench, r *relay) { r.halfClose() }},
		{"the master is killed", func(b *bench, _ *relay) { b.signal(syscall.SIGKILL) }},
		{"the master is stopped", func(b *bench, _ *relay) { b.signal(syscall.SIGSTOP) }},
	} {
		t.Run(f.name, func(t *testing.T) {
			b := newBench(t, "main", "bash")
			r := newRelay(t, b.settings["ssh_port"])
			b.settings["ssh_port"] = r.port()
			s := b.session(b.open())
			b.want(s, `export CARRIED=1; cd /usr`, "")
			must(t, s.Flush(context.Background()))
			var lost error
			var result *elsewhere.Result
			done := make(chan struct{})
			go func() {
				defer close(done)
				result, lost = run(s, `echo x >> ~/ran; (while :; do echo >> ~/heart; sleep 0.1; done) & while :; do sleep 0.1; done`, 0)
			}()
			b.eventually("the call runs", 0, func() bool { return b.size("heart") > 2 })
			f.hurt(b, r)
			begin := time.Now()
			<-done
			if d := time.Since(begin); d > silence+allowance {
				t.Errorf("the loss was noticed after %v", d)
			}
			if !errors.Is(lost, elsewhere.ErrLost) {
				t.Fatalf("the call came to %v, %+v; want lost", lost, result)
			}
			t.Logf("after %v: %v", time.Since(begin).Round(time.Millisecond), lost)
			b.want(s, `echo "$CARRIED $PWD"`, "1 /usr\n")
			if n := b.size("ran"); n != 2 {
				t.Errorf("the command that was lost ran %d times", n/2)
			}
			// Also where the server has not noticed yet: it is found when the link is back.
			b.eventually("the heart of the lost call stands still", 5*time.Second, func() bool {
				n := b.size("heart")
				time.Sleep(350 * time.Millisecond) // three beats
				return b.size("heart") == n
			})
		})
	}
}

func (b *bench) signal(s syscall.Signal) {
	b.t.Helper()
	pids := b.masters()
	if len(pids) == 0 {
		b.t.Fatal("no master runs")
	}
	for _, pid := range pids {
		must(b.t, syscall.Kill(pid, s))
	}
	if s == syscall.SIGSTOP {
		b.t.Cleanup(func() {
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
	}
}

// TestIdleFaults breaks the connection while nothing runs: no call is lost by it.
func TestIdleFaults(t *testing.T) {
	b := newBench(t, "main", "bash")
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"] = r.port()
	s := b.session(b.open())
	b.want(s, `export CARRIED=1`, "")
	for _, hurt := range []func(){r.cut, func() { b.signal(syscall.SIGKILL) }, r.stall} {
		must(t, s.Flush(context.Background()))
		before := r.connections()
		hurt()
		b.eventually("another connection is used", silence, func() bool {
			if out, err := run(s, `echo "$CARRIED"`, 0); err == nil && string(out.Output) != "1\n" {
				t.Fatalf("output %q", out.Output)
			} else if err != nil && !errors.Is(err, elsewhere.ErrLost) {
				t.Fatal(err)
			}
			return r.connections() > before
		})
		b.want(s, `echo "$CARRIED"`, "1\n")
	}
}

// TestManySessions runs 30 sessions at once against servers that give few sessions on a connection: slower, never an error.
func TestManySessions(t *testing.T) {
	for _, instance := range []string{"main", "max2", "max1"} {
		t.Run(instance, func(t *testing.T) {
			b := newBench(t, instance, "bash")
			b.settings["ssh_keepalive_interval"], b.settings["ssh_keepalive_count"] = "5", "3"
			sb := b.open()
			const many = 30
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					s, err := sb.Session(context.Background(), "")
					if err != nil {
						t.Errorf("session %d: %v", i, err)
						return
					}
					for round := range 2 {
						r, err := run(s, fmt.Sprintf("N=%d; echo $((N + %d)); export ROUND=%d", i, round, round), 0)
						if err != nil || string(r.Output) != fmt.Sprintf("%d\n", i+round) {
							t.Errorf("session %d, round %d: %v, %+v", i, round, err, r)
							return
						}
					}
					if r, err := run(s, `echo $ROUND`, 0); err != nil || string(r.Output) != "1\n" {
						t.Errorf("session %d: %v, %+v", i, err, r)
					}
				})
			}
			all.Wait()
			t.Logf("%d connections", len(b.masters()))
		})
	}
}

// TestKillWithoutFreeSession ends a tree where the call has taken the only session of its connection.
func TestKillWithoutFreeSession(t *testing.T) {
	b := newBench(t, "max1", "bash")
	s := b.session(b.open())
	b.want(s, `true`, "")
	begin := time.Now()
	r, err := run(s, `trap "" TERM; setsid bash -c 'trap "" TERM; while :; do echo >> ~/heart; sleep 0.1; done' & while :; do sleep 0.1; done`, time.Second)
	must(t, err)
	if r.Cause != elsewhere.TimedOut || len(r.Survivors) > 0 {
		t.Errorf("cause %s, survivors %v, notices %q", r.Cause, r.Survivors, r.Notices)
	}
	if d := time.Since(begin); d > 4*time.Second+allowance {
		t.Errorf("took %v", d)
	}
	n := b.size("heart")
	if n < 1 {
		t.Fatal("the heart never beat: the test proves nothing")
	}
	b.eventually("the heart stands still", 2*time.Second, func() bool {
		n := b.size("heart")
		time.Sleep(350 * time.Millisecond) // three beats
		return b.size("heart") == n
	})
	b.want(s, `echo fine`, "fine\n")
}

// TestSharedConnection: two sandboxes use one connection, and the one that is closed first does not take it from the other. The
// last one closes it, since ssh_control_persist is 0.
func TestSharedConnection(t *testing.T) {
	before := goleak.IgnoreCurrent()
	b := newBench(t, "main", "bash")
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"] = r.port()
	one := b.open()
	made := r.connections()
	two, err := b.tryOpen()
	must(t, err)
	s, other := b.session(one), b.session(two)
	b.want(s, `echo one`, "one\n")
	b.want(other, `echo two`, "two\n")
	if n := r.connections(); n != made {
		t.Errorf("%d connections, and %d before the second sandbox", n, made)
	}
	must(t, two.Close(context.Background()))
	b.want(s, `echo one`, "one\n")
	if n := len(b.masters()); n != 1 {
		t.Errorf("%d masters", n)
	}
	must(t, one.Close(context.Background()))
	b.eventually("the master has ended", time.Second, func() bool { return len(b.masters()) == 0 })
	left, _ := filepath.Glob(filepath.Join(b.home, "elsewhere", "ssh", "*-*"))
	if len(left) > 0 {
		t.Errorf("left in the control directory: %q", left)
	}
	must(t, r.listener.Close())
	r.cut()
	goleak.VerifyNone(t, before)
}

// TestKeptConnection: a connection outlives its last user, the next process takes it up, and nothing is left when it has ended.
func TestKeptConnection(t *testing.T) {
	b := newBench(t, "main", "bash")
	b.settings["ssh_control_persist"] = "300"
	r := newRelay(t, b.settings["ssh_port"])
	b.settings["ssh_port"] = r.port()
	made := 0
	for range 3 {
		sb, err := b.tryOpen()
		must(t, err)
		b.want(b.session(sb), `echo fine`, "fine\n")
		must(t, sb.Close(context.Background()))
		if made == 0 {
			made = r.connections()
		}
	}
	if n := r.connections(); n != made {
		t.Errorf("%d connections; the first process made %d", n, made)
	}
	if n := len(b.masters()); n != 1 {
		t.Fatalf("%d masters", n)
	}
	b.signal(syscall.SIGTERM)
	b.eventually("the master has ended", 0, func() bool { return len(b.masters()) == 0 })
	sb, err := b.tryOpen()
	must(t, err)
	b.want(b.session(sb), `echo fine`, "fine\n")
	locks, _ := filepath.Glob(filepath.Join(b.home, "elsewhere", "ssh", "*.lock"))
	if len(locks) != 1 {
		t.Errorf("locks of masters: %q", locks)
	}
	must(t, sb.Close(context.Background()))
	b.signal(syscall.SIGTERM)
}
