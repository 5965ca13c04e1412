package ssh

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// everyArgs are all command lines that package elsewhere has for a bash.
func everyArgs(t *testing.T) [][]string {
	t.Helper()
	scripts := bashscript.NewScripts(keepEnv)
	file, ok := scripts.FileArgs("/tmp/a b/file")
	if !ok {
		t.Fatal("a plain path cannot stand in a command line")
	}
	return [][]string{scripts.Args(), scripts.EndArgs(), file, ownScript}
}

func TestCommandLineHoldsNothingThatLoginShellsDiffer(t *testing.T) {
	for _, args := range everyArgs(t) {
		line, err := commandLine(args, []string{"ELSEWHERE_CALL=0123abc", "ELSEWHERE_SESSION=f"}, []string{"/tmp/elsewhere-x", "/home/me/with space"})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(line, "\\!\n") {
			t.Errorf("it holds what shells take differently: %s", line)
		}
		if !strings.HasPrefix(line, "exec bash ") {
			t.Errorf("it does not replace the login shell: %s", line)
		}
		for i, part := range strings.Split(line, "'") {
			if i%2 == 0 && strings.Trim(part, " -abcdefghijklmnopqrstuvwxyz") != "" {
				t.Errorf("outside of quotes stands %q", part)
			}
		}
	}
}

func TestCommandLineStartsWhatWasAsked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made again")
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "fish", "csh", "tcsh"} {
		program, err := exec.LookPath(shell)
		if err != nil {
			continue // those of the testbed are tried over ssh, too
		}
		line, err := commandLine([]string{"--noprofile", "--norc", "-c", `printf "%s|" "$VAR" "$0" "$@"`, "a b", "$HOME *", "%x ^y {1,2} ~ #"}, []string{"VAR=v1"}, []string{dir})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "-c", line)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if want := "v1|a b|$HOME *|%x ^y {1,2} ~ #|"; err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", shell, out, err, want)
		}
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: the directory: %v, %v", shell, st, err)
		}
		_ = os.Remove(dir)
	}
}

func TestCommandLineRefusesWhatCannotBeSent(t *testing.T) {
	for name, c := range map[string]struct{ args, env, dirs []string }{
		"a quote":       {args: []string{"it's"}},
		"a backslash":   {args: []string{`a\b`}},
		"an excl. mark": {args: []string{"a!"}},
		"a newline":     {args: []string{"a\nb"}},
		"a variable":    {env: []string{"A=$(id)"}},
		"a directory":   {dirs: []string{"/tmp/`id`"}},
		"double quotes": {dirs: []string{`/tmp/"x`}},
	} {
		if line, err := commandLine(c.args, c.env, c.dirs); err == nil {
			t.Errorf("%s was sent: %s", name, line)
		}
	}
}

func TestClientArguments(t *testing.T) {
	d := &destination{
		host: "gpu1", persist: 90 * time.Second,
		options: clientOptions(clientSettings{user: "me", port: 2222, key: "/k", hostKeys: "accept-new", connect: 1500 * time.Millisecond, keepalive: 5 * time.Second, keepaliveMax: 3}),
	}
	common := []string{
		"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=2", "-o", "ServerAliveInterval=5",
		"-o", "ServerAliveCountMax=3", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "PermitLocalCommand=no", "-o", "LogLevel=INFO",
		"-l", "me", "-p", "2222", "-o", "IdentitiesOnly=yes", "-i", "/k", "--", "gpu1",
	}
	master := slices.Concat([]string{"-T", "-f", "-N", "-M", "-S", "/c/s", "-o", "ControlPersist=90", "-E", "/c/l"}, common)
	if got := d.masterArgs("/c/s", "/c/l"); !slices.Equal(got, master) {
		t.Errorf("a master:\n%q\n%q", got, master)
	}
	// What a client without masters (Windows) is started with: it neither is one nor looks for one.
	direct := slices.Concat([]string{"-T", "-S", "none", "-o", "ControlMaster=no", "-E", "/c/l"}, common, []string{"exec bash"})
	if got := d.directArgs("/c/l", "exec bash"); !slices.Equal(got, direct) {
		t.Errorf("a connection of its own:\n%q\n%q", got, direct)
	}
	plain := clientOptions(clientSettings{hostKeys: "yes", connect: time.Second, keepalive: time.Second, keepaliveMax: 1})
	for _, absent := range []string{"-l", "-p", "-i", "IdentitiesOnly=yes"} {
		if slices.Contains(plain, absent) {
			t.Errorf("%s is there although nothing asks for it: %q", absent, plain)
		}
	}
}

func TestAMissingProgramIsNamed(t *testing.T) {
	dir := t.TempDir()
	_, err := findProgram([]string{"PATH=" + dir + "::relative"}, nil)
	if err == nil || classify(err) != driver.KindUnavailable || !strings.Contains(err.Error(), "openssh-client") {
		t.Errorf("without ssh: %v", err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	file := filepath.Join(dir, "ssh")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := findProgram([]string{"PATH=" + dir}, []string{"/usr/bin"}); err != nil || got != file {
		t.Errorf("found %q, %v; the caller's own is %q", got, err, file)
	}
}

func TestSocketPathsAreShortEnough(t *testing.T) {
	home := "/home/" + strings.Repeat("x", 80)
	if usableFor(home) == nil {
		t.Error("a path that is too long for a socket is used")
	}
	for _, dir := range []string{"/tmp/100%", "/tmp/$x", "/tmp/a b", "/tmp/*"} {
		if usableFor(dir) == nil {
			t.Errorf("%s, which ssh would expand, is used", dir)
		}
	}
	if err := usableFor("/home/me/.hermes/elsewhere/ssh"); err != nil {
		t.Error(err)
	}
}

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         reply
	}{
		{"noise around it", "welcome\nTOKEN\x00a\x00b c\n\x00\x00end-TOKEN\x00more", reply{"a", "b c\n", ""}},
		{"nothing in it", "TOKEN\x00end-TOKEN\x00", reply{}},
		{"the token in the noise", "TOKEN is TOKEN\x00x\x00end-TOKEN\x00", reply{"x"}},
		{"cut short", "TOKEN\x00a\x00end-TOK", nil},
		{"nothing at all", "", nil},
	} {
		got := readReply(strings.NewReader(c.stream), "TOKEN")
		if !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestProbeInABashOfThisMachine(t *testing.T) {
	home := t.TempDir()
	s := &sandbox{d: &destination{host: "here"}, log: slog.New(slog.DiscardHandler), conns: local{env: []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH")}}}
	for _, c := range []struct{ dir, want string }{{"", home}, {".", home}, {"~", home}, {"~/x", home + "/x"}, {"$HOME/x", home + "/x"}, {"x", home + "/x"}, {"/usr", "/usr"}} {
		_ = os.Mkdir(filepath.Join(home, "x"), 0o700)
		a, err := s.probe(context.Background(), probe{dir: c.dir, identity: "id", tag: "tag", owner: "me", keep: true})
		if err != nil {
			t.Fatal(err)
		}
		if a.dir != c.want || a.dirState != "" || a.home != home || a.state != home+"/.local/state/elsewhere/id/state" || !strings.HasPrefix(a.private, home+"/elsewhere-tag-me-") {
			t.Errorf("%q: %+v", c.dir, a)
		}
	}
	a, err := s.probe(context.Background(), probe{dir: "/nonexistent", identity: "id", tag: "tag", owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if a.dirState == "" || a.state != "" || len(a.leftovers) == 0 {
		t.Errorf("%+v", a)
	}
}

// local starts bashes here, as ssh does there.
type local struct{ env []string }

func (l local) start(_ context.Context, req request, _ bool) (driver.Process, error) {
	p := &sshProcess{d: &destination{program: "/bin/sh", environ: l.env}, log: os.DevNull + "-none", done: make(chan struct{})}
	return p, p.run([]string{"-c", req.command})
}

func (l local) close() error { return nil }
