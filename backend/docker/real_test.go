package docker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// These tests make containers from plans with a real engine and look at them from inside: what counts is what is in force, not
// what was asked for. test/testbed brings up the engines, the images and the registries.

// realEngine is one of the engines of the testbed.
type realEngine struct {
	name, socket string
	image        string // what the testbed's images are called there, with %s
}

var realEngines = []realEngine{
	{"docker", "/var/run/docker.sock", "elsewhere-test/%s"},
	{"podman", "/run/elsewhere-testbed/podman.sock", "localhost/elsewhere-test/%s"},
}

// connect reaches an engine or skips the test.
func (e realEngine) connect(t testing.TB) *client.Client {
	t.Helper()
	eng, err := client.New(client.WithHost("unix://" + e.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := eng.Ping(ctx, client.PingOptions{}); err != nil {
		t.Skipf("no %s engine answers on %s: %v", e.name, e.socket, err)
	}
	if _, err := eng.ImageInspect(ctx, fmt.Sprintf(e.image, "debian")); err != nil {
		t.Skipf("%s has no test images (test/testbed/up makes them): %v", e.name, err)
	}
	return eng
}

// onEngines runs a test on each engine that is here.
func onEngines(t *testing.T, test func(t *testing.T, e realEngine, eng *client.Client)) {
	for _, e := range realEngines {
		t.Run(e.name, func(t *testing.T) { test(t, e, e.connect(t)) })
	}
}

// box is a running container that was made from a plan.
type box struct {
	t    testing.TB
	eng  *client.Client
	plan *plan
	id   string
}

// openBox makes the container that the settings ask for. It is removed at the end of the test.
func openBox(t testing.TB, eng *client.Client, req driver.OpenRequest) *box {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	image, err := ensureImage(ctx, eng, req)
	if err != nil {
		t.Fatal(err)
	}
	p, err := makePlan(ctx, eng, req, image)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.makeDataDirs(); err != nil {
		t.Fatal(err)
	}
	if p.refresh != nil {
		if _, err := p.refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	made, err := eng.ContainerCreate(ctx, client.ContainerCreateOptions{Name: p.name, Config: p.config, HostConfig: p.host, NetworkingConfig: p.network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if _, err := eng.ContainerRemove(ctx, made.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Errorf("the container %s is left: %v", made.ID, err)
		}
	})
	if _, err := eng.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		t.Fatal(err)
	}
	return &box{t, eng, p, made.ID}
}

// run runs a bash script in the container and gives what it printed, on both streams, and its exit code.
func (b *box) run(script string) (string, int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	made, err := b.eng.ExecCreate(ctx, b.id, client.ExecCreateOptions{Cmd: []string{"bash", "-c", script}, AttachStdout: true, AttachStderr: true})
	if err != nil {
		b.t.Fatal(err)
	}
	stream, err := b.eng.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, stream.Close)
	defer stop()
	defer stream.Close()
	var out bytes.Buffer
	if _, err := stdcopy.StdCopy(&out, &out, stream.Reader); err != nil {
		b.t.Fatal(err)
	}
	ended, err := b.eng.ExecInspect(ctx, made.ID, client.ExecInspectOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return out.String(), ended.ExitCode
}

// wants runs a script that must print exactly this.
func (b *box) wants(script, want string) {
	b.t.Helper()
	if out, code := b.run(script); out != want {
		b.t.Errorf("%s: code %d\n%s\nwant:\n%s", script, code, out, want)
	}
}

// fails runs a script that must fail and say this.
func (b *box) fails(script, says string) {
	b.t.Helper()
	if out, code := b.run(script); code == 0 || !strings.Contains(out, says) {
		b.t.Errorf("%s: code %d\n%s\nwant a failure that says %q", script, code, out, says)
	}
}

// withImage are settings with one of the testbed's images.
func (e realEngine) withImage(name string, set settings) settings {
	all := settings{"docker_image": fmt.Sprintf(e.image, name)}
	for key, value := range set {
		all[key] = value
	}
	return all
}

// tries tells whether a test of all images tries this one: Podman is slow, and what it does otherwise shows with a few.
func (e realEngine) tries(image string) bool {
	return e.name == "docker" || image == "user" || image == "bash-only" || image == "readonly-tmp"
}

// Capabilities by their bits.
const (
	capChown, capDacOverride, capFowner, capSetgid, capSetuid = 0, 1, 3, 6, 7
)

// userBound bounds what an ordinary user's programs may ever have.
func (e realEngine) userBound() string {
	if e.name == "podman" {
		return bits()
	}
	return bits(capChown, capDacOverride, capFowner)
}

func bits(caps ...int) string {
	var n uint64
	for _, c := range caps {
		n |= 1 << c
	}
	return fmt.Sprintf("%016x", n)
}

// field reads a field of /proc/self/status without any program but bash.
func field(name string) string {
	return `while read -r k v; do [ "$k" = ` + name + `: ] && echo "$v"; done </proc/self/status; :`
}

func TestRealTheContainerHasNoMoreRightsThanItNeeds(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"container_persistent": "false"})))
		b.wants(field("CapBnd"), bits(capChown, capDacOverride, capFowner, capSetgid, capSetuid)+"\n")
		b.wants(field("CapEff"), bits(capChown, capDacOverride, capFowner, capSetgid, capSetuid)+"\n")
		b.wants(field("NoNewPrivs"), "1\n")
		// By their effect: root in there cannot mount, cannot make a device, cannot kill what it does not own by right.
		b.fails("mount -t tmpfs none /mnt", "permission denied")
		b.fails("mknod /tmp/sda b 8 0", "not permitted")
		b.fails("chroot / true", "not permitted")
		// And a program with the setuid bit gives nobody root.
		b.wants(`cp /bin/bash /var/tmp/../../usr/local/bin/suid && chmod 4755 /usr/local/bin/suid && ls -l /usr/local/bin/suid | cut -c1-10
setpriv --reuid 1000 --regid 1000 --clear-groups /usr/local/bin/suid -p -c 'echo $EUID'`, "-rwsr-xr-x\n1000\n")
		b.wants("echo $HOME; cd; pwd; id -u", "/root\n/root\n0\n")
		b.wants("touch /etc/made && echo made", "made\n") // installing packages works
	})
}

func TestRealTemporaryDirectoriesAreLimitedAndOnlyTmpRunsPrograms(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"docker_tmp_size": "3m", "container_persistent": "false", "docker_workspace_size": "5m"})))
		for dir, runs := range map[string]bool{"/tmp": true, "/var/tmp": false, "/run": false, stateRoot: false, "/workspace": true, "/root": true, "/home": true} {
			script := "cp /bin/true " + dir + "/program && " + dir + "/program"
			if runs {
				b.wants(script+" && echo ran", "ran\n")
			} else {
				b.fails(script, "Permission denied")
			}
		}
		// D09: the size is a setting, and holds.
		b.fails("head -c 4000000 /dev/zero >/tmp/big", "No space left")
		b.wants("rm /tmp/big; head -c 2000000 /dev/zero >/tmp/fits && echo fits", "fits\n")
		b.fails("head -c 6000000 /dev/zero >/workspace/big", "No space left")
		b.wants("stat -c '%a' /tmp /var/tmp /run /workspace "+stateRoot, "1777\n1777\n755\n755\n1777\n")
		b.wants(`while read -r _ at kind opts _; do case $at in /tmp|/var/tmp|/run|`+stateRoot+`) case ,$opts, in *,nosuid,*) ;; *) echo "$at $opts";; esac;; esac; done </proc/mounts`, "")
	})
}

func TestD09ALargerTmpIsASetting(t *testing.T) {
	e := realEngines[0]
	b := openBox(t, e.connect(t), opening(t, e.withImage("debian", settings{"docker_tmp_size": "1g"})))
	b.wants("head -c 734003200 /dev/zero >/tmp/x && stat -c %s /tmp/x && rm /tmp/x", "734003200\n")
}

func TestRealAReadOnlyRootCanBeWrittenToOnlyWhereItSays(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"docker_read_only": "true"})))
		for _, dir := range []string{"/", "/etc", "/usr/bin", "/opt", "/var/lib"} {
			b.fails("touch "+dir+"/x", "Read-only file system")
		}
		for _, dir := range []string{"/tmp", "/var/tmp", "/run", "/root", "/workspace", stateRoot} {
			b.wants("touch "+dir+"/x && echo ok", "ok\n")
		}
		b.fails("cp /bin/true /tmp/program && /tmp/program", "Permission denied")
	})
}

func TestD02TheProcessLimitHoldsAndIsASetting(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		// Threads count too. (A bash that cannot fork tries again for many seconds.)
		const script = `exec python3 -c '
import threading
end, n = threading.Event(), 0
try:
    for n in range(60):
        threading.Thread(target=end.wait, daemon=True).start()
    print("all")
except RuntimeError as e:
    print("some:", e)
end.set()'`
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"docker_pids_limit": "30"})))
		b.wants(script, "some: can't start new thread\n")
		b = openBox(t, eng, opening(t, e.withImage("debian", nil)))
		b.wants(script, "all\n")
	})
}

func TestRealTheMemoryLimitHolds(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"container_memory": "64"})))
		const take = "python3 -c 'import sys; x = bytearray(%d << 20); print(len(x) >> 20)'"
		b.wants(fmt.Sprintf(take, 20), "20\n")
		if out, code := b.run(fmt.Sprintf(take, 200)); code == 0 || strings.Contains(out, "200") {
			t.Errorf("200 MiB of 64: code %d %s", code, out)
		}
	})
}

func TestRealTheCPULimitIsInForce(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"container_cpu": "0.5"})))
		out, _ := b.run(`cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu/cpu.cfs_period_us`)
		fields := strings.Fields(out)
		if len(fields) != 2 {
			t.Fatalf("%q", out)
		}
		quota, _ := strconv.Atoi(fields[0])
		period, _ := strconv.Atoi(fields[1])
		if quota <= 0 || quota*2 != period {
			t.Errorf("%q is not half a CPU", out)
		}
	})
}

func TestX09RealNoNetworkIsNoRoute(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		host, err := outerAddress()
		if err != nil {
			t.Skip("this machine has no address but loopback: ", err)
		}
		dial := fmt.Sprintf("timeout 5 bash -c 'exec 3<>/dev/tcp/%s/%d' && echo connected", host, l.Addr().(*net.TCPAddr).Port)
		with := openBox(t, eng, opening(t, e.withImage("debian", nil)))
		with.wants(dial, "connected\n") // there is somebody to be reached
		without := openBox(t, eng, opening(t, e.withImage("debian", settings{"docker_network": "false"})))
		without.fails(dial, "unreachable")
		without.wants("ls /sys/class/net; tail -n +2 /proc/net/route", "lo\n")
	})
}

// outerAddress is an IPv4 address of this machine that a container reaches.
func outerAddress() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String(), nil
		}
	}
	return "", fmt.Errorf("only %v", addresses)
}

func TestRealEveryImageLastsAndStopsAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		for _, c := range []struct {
			image string
			set   settings
			first string // what process 1 must be
		}{
			{"debian", nil, "init"}, {"user", nil, "init"}, {"nonroot-nohome", nil, "init"}, {"noprocps", nil, "init"}, {"bash-only", nil, "init"},
			{"readonly-tmp", nil, "init"}, {"s6", nil, "/init"}, {"debian", settings{"docker_snap_compat": "true"}, "bash"},
			{"bash-only", settings{"docker_snap_compat": "true"}, "bash"},
		} {
			if !e.tries(c.image) {
				continue
			}
			b := openBox(t, eng, opening(t, e.withImage(c.image, c.set)))
			out, _ := b.run(`mapfile -d '' a </proc/1/cmdline; echo "${a[*]:0:2}"`)
			if !strings.Contains(out, c.first) {
				t.Errorf("%s: process 1 is %q", c.image, out)
			}
			// D14: what is orphaned is reaped. A zombie has no command line, and nothing else ends while we look.
			b.wants(`(exec bash -c '(exec bash -c "echo \$\$")' & ) | { read -r p; for i in {1..100}; do [ -e /proc/$p ] || break; read -r -t 0.05 <> <(:); done; [ -e /proc/$p ] && echo zombie $p; }; :`, "")
			timeout := 30
			began := time.Now()
			if _, err := eng.ContainerStop(t.Context(), b.id, client.ContainerStopOptions{Timeout: &timeout}); err != nil {
				t.Errorf("%s: %v", c.image, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: stopping took %v; TERM was not heard", c.image, took)
			}
		}
	})
}

func TestRealEveryUserHasAHomeToWriteTo(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		for _, persistent := range []string{"true", "false"} {
			for image, want := range map[string]string{
				"debian": "0 /root", "user": "1000 /home/someone", "nonroot-nohome": "4242 " + foreignHome, "bash-only": "0 /root", "readonly-tmp": "4242 " + foreignHome,
			} {
				if !e.tries(image) {
					continue
				}
				b := openBox(t, eng, opening(t, e.withImage(image, settings{"container_persistent": persistent})))
				b.wants(`echo "$UID $HOME"; for d in "$HOME" /workspace /tmp /var/tmp; do : >"$d/written" || echo "not to $d"; done`, want+"\n")
				if home := strings.Fields(want)[1]; b.plan.home != home || b.plan.dir != home {
					t.Errorf("%s: home %s, dir %s", image, b.plan.home, b.plan.dir)
				}
				if image == "user" {
					b.wants(field("CapEff"), bits()+"\n")
					b.wants(field("CapBnd"), e.userBound()+"\n")
				}
				b.wants(`(umask 077; : >`+stateRoot+`/state) && [ -O `+stateRoot+`/state ] && echo mine`, "mine\n")
			}
		}
	})
}

func TestRealAPathWithACommaIsMountedOrRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		dir := filepath.Join(t.TempDir(), "a,b")
		req := opening(t, e.withImage("debian", settings{"sandbox_dir": dir}))
		if e.name != "podman" {
			openBox(t, eng, req).wants("touch /workspace/x && echo ok", "ok\n")
			if found, err := filepath.Glob(filepath.Join(dir, "docker", "*", "workspace", "x")); err != nil || len(found) != 1 {
				t.Errorf("%v, %v", found, err)
			}
			return
		}
		image, err := ensureImage(t.Context(), eng, req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = makePlan(t.Context(), eng, req, image)
		wantKind(t, err, driver.KindConfig, "comma", dir, "sandbox_dir")
	})
}

func TestD10FilesBelongToTheCallerWhoAsksForIt(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		req := opening(t, e.withImage("debian", settings{"docker_run_as_host_user": "true", "docker_mount_cwd_to_workspace": "true"}))
		b := openBox(t, eng, req)
		b.wants(`echo "$UID $PWD"; touch /workspace/f "$HOME/f" && echo ok`, fmt.Sprintf("%d /\nok\n", os.Getuid()))
		for _, file := range []string{filepath.Join(req.Dir, "f"), filepath.Join(b.plan.dataDirs[0], "f")} {
			out, err := exec.Command("stat", "-c", "%u", file).Output()
			if err != nil || strings.TrimSpace(string(out)) != strconv.Itoa(os.Getuid()) {
				t.Errorf("%s belongs to %s (%v)", file, out, err)
			}
		}
		if os.Getuid() != 0 {
			b.wants(field("CapEff"), bits()+"\n")
			b.wants(field("CapBnd"), e.userBound()+"\n")
		} else {
			b.wants(field("CapBnd"), bits(capChown, capDacOverride, capFowner)+"\n")
		}
	})
}

func TestRealDataOutlivesTheContainerOrDoesNot(t *testing.T) {
	e := realEngines[0]
	eng := e.connect(t)
	for _, persistent := range []bool{true, false} {
		req := opening(t, e.withImage("debian", settings{"container_persistent": strconv.FormatBool(persistent)}))
		want := ""
		if persistent {
			want = "kept\nkept\n"
		}
		t.Run(fmt.Sprint(persistent), func(t *testing.T) {
			b := openBox(t, eng, req)
			b.wants("echo kept >/root/x; echo kept >/workspace/x", "")
		})
		t.Run(fmt.Sprint(persistent, " again"), func(t *testing.T) {
			b := openBox(t, eng, req)
			b.wants("cat /root/x /workspace/x 2>/dev/null", want)
		})
	}
}

func TestRealCredentialFilesAreCurrentInside(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		for _, image := range []string{"debian", "user"} {
			req := opening(t, e.withImage(image, settings{"credential_files": "token.json,deep/key,.env"}))
			hermes := req.Identity.Home
			write := func(name, text string) {
				t.Helper()
				file := filepath.Join(hermes, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(file+".new", file); err != nil {
					t.Fatal(err)
				}
			}
			write("token.json", "one\n")
			write(".env", "SECRET=1\n")
			write("skills/x/SKILL.md", "skill\n")
			for name, mode := range map[string]os.FileMode{"skills": 0o755, "skills/x": 0o755, "skills/x/SKILL.md": 0o644} {
				if err := os.Chmod(filepath.Join(hermes, name), mode); err != nil {
					t.Fatal(err)
				}
			}
			b := openBox(t, eng, req)
			b.wants(`cd ~/.hermes && cat token.json skills/x/SKILL.md; ls -A`, "one\nskill\nskills\ntoken.json\n")
			b.fails("echo x >~/.hermes/token.json", "Read-only file system")
			b.fails("echo x >~/.hermes/skills/x/SKILL.md", "Read-only file system")
			write("token.json", "two\n") // replaced, not rewritten
			write("deep/key", "key\n")
			if notices, err := b.plan.refresh(t.Context()); err != nil || len(notices) > 0 {
				t.Errorf("%q %v", notices, err)
			}
			b.wants("cat ~/.hermes/token.json ~/.hermes/deep/key", "two\nkey\n")
			if err := os.Remove(filepath.Join(hermes, "token.json")); err != nil {
				t.Fatal(err)
			}
			if notices, err := b.plan.refresh(t.Context()); err != nil || len(notices) != 1 {
				t.Errorf("%q %v", notices, err)
			}
			b.wants("ls ~/.hermes", "deep\nskills\n")
		}
	})
}

func TestRealExtraArgumentsReachTheEngine(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("file\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		args := `["--label", "x=y", "-h", "boxhost", "--add-host=other:10.9.8.7", "--shm-size", "5m", "--dns=10.1.1.1",
			"-v", "` + dir + `:/v:ro", "--mount", "type=bind,src=` + dir + `,dst=/m,readonly", "--tmpfs", "/scratch:size=2m,exec", "--device=/dev/null:/dev/mynull", "-e", "A=s3cret"`
		limits := ""
		if e.name == "docker" { // Podman then sets others too, which this machine may not allow
			args += `, "--ulimit", "nofile=100:200"`
			limits = "200\n"
		}
		args += "]"
		b := openBox(t, eng, opening(t, e.withImage("debian", settings{"docker_extra_args": args})))
		b.wants(`hostname; grep -o '10.9.8.7.other' /etc/hosts | tr '\t' ' '; cat /v/f /m/f; [ -c /dev/mynull ] && echo device`, "boxhost\n10.9.8.7 other\nfile\nfile\ndevice\n")
		if limits != "" {
			// The soft one is not looked at: a runc up to 1.1 may hand on what its own Go runtime raised it to.
			b.wants("ulimit -Hn", limits)
		}
		b.fails("touch /v/x", "Read-only")
		b.fails("touch /m/x", "Read-only")
		b.fails("head -c 6000000 /dev/zero >/dev/shm/x", "No space")
		b.fails("head -c 3000000 /dev/zero >/scratch/x", "No space")
		b.wants("grep -c 10.1.1.1 /etc/resolv.conf", "1\n")
		found, err := eng.ContainerInspect(t.Context(), b.id, client.ContainerInspectOptions{})
		if err != nil || found.Container.Config.Labels["x"] != "y" {
			t.Errorf("%v %v", found.Container.Config.Labels, err)
		}
		if strings.Contains(fmt.Sprintf("%+v", found.Container.Config), "s3cret") || strings.Contains(string(found.Raw), "s3cret") {
			t.Error("a variable's value is in the container's settings")
		}
		b.wants("echo ${A-unset}; tr '\\0' '\\n' </proc/1/environ | grep -c s3cret", "unset\n0\n")
	})
}

func TestRealLookingIntoAnImageLeavesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		image, err := eng.ImageInspect(t.Context(), fmt.Sprintf(e.image, "user"))
		if err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		for range 2 { // the second is remembered
			got, err := findAccount(t.Context(), eng, &image, "someone", home)
			if want := (account{1000, 1000, "/home/someone"}); err != nil || got != want {
				t.Errorf("%+v %v", got, err)
			}
		}
		kept, err := filepath.Glob(filepath.Join(home, "elsewhere", "images", "*.json"))
		if err != nil || len(kept) != 1 {
			t.Errorf("%q %v", kept, err)
		}
		none, err := eng.ImageInspect(t.Context(), fmt.Sprintf(e.image, "bash-only"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := findAccount(t.Context(), eng, &none, "77", ""); err != nil || got != (account{77, 0, ""}) {
			t.Errorf("an image without passwd: %+v %v", got, err)
		}
		left, err := eng.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", "hermes-agent=elsewhere-look")})
		if err != nil || len(left.Items) > 0 {
			t.Errorf("%d left, %v", len(left.Items), err)
		}
	})
}

const (
	openRegistry   = "127.0.0.1:5000"
	closedRegistry = "127.0.0.1:5001"
)

// needRegistry skips the test where the testbed's registry does not answer.
func needRegistry(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		t.Skipf("no registry on %s (test/testbed/up starts it): %v", address, err)
	}
	_ = c.Close()
}

func forgetImage(t *testing.T, eng *client.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	_, _ = eng.ImageRemove(ctx, name, client.ImageRemoveOptions{})
}

func TestRealAnImageIsPulledOnceWithProgress(t *testing.T) {
	eng := realEngines[0].connect(t)
	needRegistry(t, openRegistry)
	name := openRegistry + "/elsewhere-test/bash-only"
	forgetImage(t, eng, name)
	t.Cleanup(func() { forgetImage(t, eng, name) })
	var mu sync.Mutex
	var told []string
	req := opening(t, settings{"docker_image": name})
	req.Progress = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, text)
	}
	image, err := ensureImage(t.Context(), eng, req)
	if err != nil || image.Architecture != runtime.GOARCH {
		t.Fatal(image, err)
	}
	if len(told) < 2 || told[0] != "pulling "+name || told[len(told)-1] != "pulled "+name {
		t.Errorf("%q", told)
	}
	told = nil
	if _, err := ensureImage(t.Context(), eng, req); err != nil || len(told) > 0 {
		t.Errorf("pulled again: %q %v", told, err)
	}
}

func TestRealARegistryWantsCredentials(t *testing.T) {
	eng := realEngines[0].connect(t)
	needRegistry(t, closedRegistry)
	name := closedRegistry + "/elsewhere-test/bash-only"
	forgetImage(t, eng, name)
	t.Cleanup(func() { forgetImage(t, eng, name) })
	_, err := ensureImage(t.Context(), eng, opening(t, settings{"docker_image": name}))
	wantKind(t, err, driver.KindConfig, "docker login "+closedRegistry)
	environ := dockerHome(t, `{"credHelpers": {"`+closedRegistry+`": "test"}}`, map[string]string{
		"docker-credential-test": `echo '{"Username":"elsewhere","Secret":"wrong"}'`,
	})
	req := opening(t, settings{"docker_image": name})
	req.Environ = append(req.Environ, "HOME="+environ["HOME"], "PATH="+environ["PATH"])
	_, err = ensureImage(t.Context(), eng, req)
	wantKind(t, err, driver.KindConfig, "docker login "+closedRegistry)
	helper := filepath.Join(environ["HOME"], "bin", "docker-credential-test")
	if err := os.WriteFile(helper, []byte("#!/bin/sh\necho '{\"Username\":\"elsewhere\",\"Secret\":\"test\"}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureImage(t.Context(), eng, req); err != nil {
		t.Error(err)
	}
}

func TestRealPullsThatFailSayWhy(t *testing.T) {
	eng := realEngines[0].connect(t)
	needRegistry(t, openRegistry)
	try := func(name string, set settings) error {
		all := settings{"docker_image": name}
		for key, value := range set {
			all[key] = value
		}
		_, err := ensureImage(t.Context(), eng, opening(t, all))
		return err
	}
	wantKind(t, try(openRegistry+"/elsewhere-test/missing", nil), driver.KindConfig, "check", "docker_image")
	wantKind(t, try(openRegistry+"/elsewhere-test/bash-only:nope", nil), driver.KindConfig, "check", "docker_image")
	wantKind(t, try("UPPER/Case", nil), driver.KindConfig, "names no image")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := dead.Addr().String()
	_ = dead.Close()
	wantKind(t, try(address+"/x", nil), driver.KindUnavailable, "cannot reach the registry "+address)

	// A registry that takes the connection and says nothing.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	wantKind(t, try(mute.Addr().String()+"/x", settings{"docker_pull_timeout": "1"}), driver.KindTimeout, "docker_pull_timeout", "1s")
	ctx, cancel := context.WithCancel(t.Context())
	req := opening(t, settings{"docker_image": mute.Addr().String() + "/x"})
	req.Progress = func(string) { time.AfterFunc(100*time.Millisecond, cancel) }
	_, err = ensureImage(ctx, eng, req)
	wantKind(t, err, driver.KindCanceled, "canceled")
}

func TestRealAnImageForAnotherProcessorIsRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, e realEngine, eng *client.Client) {
		other := "arm64"
		if runtime.GOARCH == other {
			other = "amd64"
		}
		if emulated(other) {
			t.Skip("this machine emulates " + other)
		}
		req := opening(t, e.withImage("otherarch", nil))
		image, err := ensureImage(t.Context(), eng, req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = makePlan(t.Context(), eng, req, image)
		wantKind(t, err, driver.KindConfig, other, "docker_image")
	})
}
