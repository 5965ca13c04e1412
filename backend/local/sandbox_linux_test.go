package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

func TestSecretsOfTheAgentDoNotReachABashAndStayInTheHost(t *testing.T) {
	secrets := []string{"OPENAI_API_KEY", "OPENAI_BASE_URL", "TELEGRAM_BOT_TOKEN", "GH_TOKEN", "MODAL_TOKEN_ID", "DAYTONA_API_KEY",
		"VERCEL_TOKEN", "AUXILIARY_VISION_API_KEY", "GATEWAY_RELAY_X_SECRET", "OP_SESSION_x", "BWS_ACCESS_TOKEN", "BUZZ_KEY",
		"SUDO_PASSWORD", "APPTAINERENV_GROQ_API_KEY", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"}
	stay := []string{"AWS_SECRET_ACCESS_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "NOTION_API_KEY", "PYTHONPATH", "FORCED_ONE"}
	for _, name := range append(secrets, "AWS_SECRET_ACCESS_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "NOTION_API_KEY", "PYTHONPATH", "MISTRAL_API_KEY") {
		t.Setenv(name, "v-"+name)
	}
	t.Setenv("_HERMES_FORCE_FORCED_ONE", "v-FORCED_ONE")
	before := os.Environ()
	req := request(t)
	req.Environ = append(os.Environ(), "TMPDIR="+req.Dir)
	req.Config = config{"env_passthrough": []string{"MISTRAL_API_KEY", "GH_TOKEN"}}
	box := openBox(t, req)
	got := strings.Split(output(t, box, "exec env -0"), "\x00")
	for _, name := range stay {
		if !slices.Contains(got, name+"=v-"+name) {
			t.Errorf("%s is gone", name)
		}
	}
	for _, entry := range got {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(secrets, name) || name == "MISTRAL_API_KEY" || strings.Contains(name, "_HERMES_FORCE_") {
			t.Errorf("%s reaches a bash", name)
		}
	}
	if got, want := box.Info().CallEnv, map[string]string{"MISTRAL_API_KEY": "v-MISTRAL_API_KEY"}; !maps.Equal(got, want) {
		t.Errorf("a call is to have %q, not %q: what was let through goes with the call, so that it is in no state", want, got)
	}
	if !slices.Equal(before, os.Environ()) {
		t.Error("the host's own environment was changed")
	}
	if notices := strings.Join(box.Info().Notices, "\n"); !strings.Contains(notices, "GH_TOKEN") {
		t.Errorf("no notice says that GH_TOKEN was refused: %q", notices)
	}
	if box.Info().ScrubProfile != "" {
		t.Error("profiles are scrubbed unasked")
	}
	req.Config = config{"scrub_profile": true, "env_passthrough": []string{"MISTRAL_API_KEY"}}
	text := openBox(t, req).Info().ScrubProfile
	if got := output(t, box, "export OPENAI_API_KEY=1 MISTRAL_API_KEY=1\n"+text+"\necho ${OPENAI_API_KEY-none}$MISTRAL_API_KEY"); got != "none1\n" {
		t.Errorf("after scrub_profile: %q", got)
	}
}

func TestPathKeepsTheCallersEntriesInFrontAndIsCompleted(t *testing.T) {
	req := request(t)
	home := req.Identity.Home
	if err := os.MkdirAll(filepath.Join(home, "node", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	user := t.TempDir()
	if err := os.MkdirAll(filepath.Join(user, ".local", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	req.Environ = append(req.Environ, "PATH=/mine::/usr/bin:/mine:/theirs:", "HOME="+user)
	box := openBox(t, req)
	if got := box.Info().PathFirst; got != "/mine:/usr/bin:/theirs" {
		t.Errorf("PathFirst is %q", got)
	}
	want := "/mine:/usr/bin:/theirs:/opt/homebrew/bin:/opt/homebrew/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin:" +
		home + "/node/bin:" + home + "/node:" + user + "/.local/bin\n"
	if got := output(t, box, "echo $PATH"); got != want {
		t.Errorf("PATH is %q, want %q", got, want)
	}
}

// exported gives the environment of a bash that ran text.
func exported(t *testing.T, text string) []string {
	t.Helper()
	cmd := exec.Command("bash", "--norc", "--noprofile", "-c", text+"\nexec env -0")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestFunctionsThatTheCallerExportsAreDefinedFromText(t *testing.T) {
	environ := exported(t, `
		plain() { echo "it's $1"; }
		a.b-c:d@e() { echo dotted; }
		heredoc() { cat <<-'EOF'
		}
		EOF
		}
		export -f plain a.b-c:d@e heredoc`)
	environ = append(environ, "BASH_FUNC_export%%=() { command export \"$@\"; }", "BASH_FUNC_broken%%=() { if; }",
		"BASH_FUNC_old()=() { echo old; }", "__BASH_FUNC<mac>()=() { echo mac; }", "BASH_FUNC_value%%=no function")
	for _, bash := range bashes(t) {
		t.Run(filepath.Base(bash), func(t *testing.T) {
			box := openBox(t, request(t, environ...))
			box.(*sandbox).bash = bash
			if got := output(t, box, "exec env"); strings.Contains(got, "BASH_FUNC") {
				t.Errorf("functions are in the environment: %s", got)
			}
			got := output(t, box, box.Info().Functions+`
				plain here; a.b-c:d@e; heredoc; old; mac; `+bash+` -c "plain child; a.b-c:d@e"; declare -F | grep -c -e '-fx'`)
			if want := "it's here\ndotted\n}\nold\nmac\nit's child\ndotted\n6\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestAValueThatLooksLikeAFunctionIsNeverRun(t *testing.T) {
	trap := filepath.Join(t.TempDir(), "trap")
	box := openBox(t, request(t, "BASH_FUNC_a;touch "+trap+";%%=() { :; }", "BASH_FUNC_'%%=() { :; }",
		"HTTP_USER_AGENT=() { :; }; touch "+trap, "HERMES_SESSION_CHAT_NAME=() { :; }\ntouch "+trap))
	if text := box.Info().Functions; text != "" {
		t.Errorf("functions: %s", text)
	}
	if got := output(t, box, box.Info().Functions+"exec env"); !strings.Contains(got, "HTTP_USER_AGENT=() { :; }; touch") {
		t.Errorf("a variable is gone: %s", got)
	}
	if _, err := os.Lstat(trap); err == nil {
		t.Error("it was run")
	}
}

// bashes are the versions of bash on this machine.
func bashes(t *testing.T) []string {
	t.Helper()
	var older []string
	if dir := os.Getenv("ELSEWHERE_BASHES"); dir != "" { // a directory of bash-VERSION files
		older, _ = filepath.Glob(filepath.Join(dir, "bash-*"))
	}
	return append(older, "/bin/bash")
}

func TestAStartDirectoryThatIsMissingIsReplacedByItsNearestAncestor(t *testing.T) {
	base := t.TempDir()
	proj := filepath.Join(base, "proj")
	if err := os.Mkdir(proj, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ setting, caller, want string }{
		"the caller's":                    {"", proj, proj},
		"a dot":                           {".", proj, proj},
		"absolute":                        {base, proj, base},
		"relative":                        {"proj", base, proj},
		"relative, being in it already":   {"proj", proj, proj},
		"the caller's own that was moved": {"", filepath.Join(proj, "gone"), proj},
	} {
		t.Run(name, func(t *testing.T) {
			dir, notice, err := startDir(c.setting, c.caller, "/home/user")
			moved := strings.Contains(name, "moved")
			if err != nil || dir != c.want || (notice != "") != moved || moved && !strings.Contains(notice, c.want) {
				t.Errorf("got %s, %q", dir, notice)
			}
		})
	}
}

func TestAConfiguredDirectoryThatCannotBeEnteredIsAnError(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{closed, filepath.Join(closed, "none"), "none"} {
		if dir, _, err := startDir(setting, "/", "/"); err == nil || classify(err) != driver.KindConfig {
			t.Errorf("%s: got %s, %v", setting, dir, err)
		}
	}
}

func TestAHomeThatCannotBeWrittenToKeepsStateForThisProcess(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	readOnly := t.TempDir()
	if err := os.Chmod(readOnly, 0o500); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, home := range map[string]string{"read-only": readOnly, "a file": file} {
		t.Run(name, func(t *testing.T) {
			req := request(t)
			req.Identity.Home = home
			info := openBox(t, req).Info()
			if info.StateDir != info.PrivateDir || !strings.Contains(strings.Join(info.Notices, "\n"), home) {
				t.Errorf("state in %s, notices %q", info.StateDir, info.Notices)
			}
			req.ThrowAway = true
			if info := openBox(t, req).Info(); info.StateDir != info.PrivateDir || len(info.Notices) > 0 {
				t.Errorf("throw-away: state in %s, notices %q", info.StateDir, info.Notices)
			}
		})
	}
}

func TestAFullFileSystemIsNotUsedForState(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it mounts a small file system, which takes root")
	}
	full := t.TempDir()
	if err := unix.Mount("none", full, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(full, unix.MNT_DETACH) }()
	req := request(t)
	req.Identity.Home = full
	req.Environ = append(req.Environ, "TMPDIR="+full, "TMP="+req.Dir)
	if info := openBox(t, req).Info(); info.StateDir != filepath.Join(full, "elsewhere", "state") {
		t.Fatalf("while there is room, state is in %s", info.StateDir)
	}
	if err := os.WriteFile(filepath.Join(full, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	info := openBox(t, req).Info()
	if filepath.Dir(info.PrivateDir) != req.Dir || info.StateDir != info.PrivateDir {
		t.Errorf("state in %s, private in %s", info.StateDir, info.PrivateDir)
	}
	if notices := strings.Join(info.Notices, "\n"); !strings.Contains(notices, full) || !strings.Contains(notices, "no space") {
		t.Errorf("notices %q", info.Notices)
	}
	if left, _ := filepath.Glob(full + "/elsewhere-*"); len(left) > 1 { // that of the first sandbox
		t.Errorf("left behind: %q", left)
	}
}

func TestTempDirectoriesAreTriedInOrder(t *testing.T) {
	if asOrdinaryUser(t) {
		return
	}
	set, tmpdir, tmp, home, closed := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	last := memoryDir()
	if last == "" {
		last = filepath.Join(home, "cache", "terminal")
	}
	for name, c := range map[string]struct {
		setting string
		environ []string
		want    string
	}{
		"the setting":                                     {set, []string{"TMPDIR=" + tmpdir}, set},
		"a setting that is missing":                       {set + "/none", []string{"TMPDIR=" + tmpdir}, tmpdir},
		"a setting that is relative":                      {"tmp", []string{"TMPDIR=" + tmpdir}, tmpdir},
		"one without permission":                          {closed, []string{"TMPDIR=" + tmpdir}, tmpdir},
		"TMP where TMPDIR is relative":                    {"", []string{"TMPDIR=.", "TMP=" + tmp}, tmp},
		"memory, else Hermes' cache, where there is none": {"", nil, last},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t)
			req.Config = config{"temp_dir": c.setting}
			req.Environ = append([]string{"PATH=" + os.Getenv("PATH")}, c.environ...)
			req.Identity.Home = home
			info := openBox(t, req).Info()
			if got := filepath.Dir(info.PrivateDir); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if st, err := os.Stat(info.StateDir); err != nil || st.Mode().Perm() != 0o700 || info.StateDir != filepath.Join(home, "elsewhere", "state") {
				t.Errorf("state directory %s: %v %v", info.StateDir, st, err)
			}
		})
	}
}

func TestHomeIsTheUsersOwnUnlessAContainerOrTheSettingWantsTheProfiles(t *testing.T) {
	hermes := t.TempDir()
	profile := filepath.Join(hermes, "home")
	if err := os.Mkdir(profile, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mode, hermes string
		container    bool
		want         string
	}{
		"auto on a host":         {"auto", hermes, false, "/home/user"},
		"auto in a container":    {"auto", hermes, true, profile},
		"real in a container":    {"real", hermes, true, "/home/user"},
		"profile on a host":      {"profile", hermes, false, profile},
		"a profile without home": {"profile", t.TempDir(), true, "/home/user"},
		"without Hermes":         {"profile", "", true, "/home/user"},
		"nothing set on a host":  {"", hermes, false, "/home/user"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := chooseHome(c.mode, "/home/user", c.hermes, func() bool { return c.container }); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	req := request(t, "HOME="+profile, "HERMES_REAL_HOME=/home/user")
	req.Identity.Home = hermes
	req.Config = config{"home_mode": "real"}
	box := openBox(t, req)
	if got := output(t, box, `echo "$HOME $HERMES_REAL_HOME"`); got != "/home/user /home/user\n" || box.Info().Home != "/home/user" {
		t.Errorf("started with the home of a profile: %q, Info %s", got, box.Info().Home)
	}
}

func TestStateFilesAreListedAndRemovedOnlyInTheirDirectories(t *testing.T) {
	box := openBox(t, request(t))
	info := box.Info()
	outside := filepath.Join(t.TempDir(), "outside")
	for _, file := range []string{outside, info.StateDir + "/a", info.StateDir + "/s/b", info.PrivateDir + "/c"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("head\nrest"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"/link": outside, "/dirlink": filepath.Dir(outside), "/inner": info.StateDir + "/s"} {
		if err := os.Symlink(to, info.StateDir+link); err != nil {
			t.Fatal(err)
		}
	}
	lister, remover := box.(driver.StateLister), box.(driver.StateRemover)
	list := func(dir string) []string {
		t.Helper()
		files, err := lister.ListState(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, f := range files {
			if f.Head != "head" || f.ModTime.IsZero() {
				t.Errorf("listed %+v", f)
			}
			paths = append(paths, f.Path)
		}
		slices.Sort(paths)
		return paths
	}
	if got, want := list(info.StateDir), []string{info.StateDir + "/a", info.StateDir + "/s/b"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	if got, want := list(info.StateDir+"/s"), []string{info.StateDir + "/s/b"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, bad := range []string{filepath.Dir(outside), info.StateDir + "/../..", info.StateDir + "/dirlink", info.StateDir + "/inner", "relative"} {
		if got, err := lister.ListState(t.Context(), bad); err == nil {
			t.Errorf("%s is listed: %q", bad, got)
		}
	}
	err := remover.RemoveState(t.Context(), []string{
		outside, info.StateDir + "/dirlink/outside", info.StateDir + "/inner/b", info.StateDir + "/s", info.StateDir,
		info.StateDir + "/a", info.StateDir + "/none/at/all", info.PrivateDir + "/c", info.StateDir + "/link",
	})
	if err == nil || Backend().Classify(err) != driver.KindDenied || len(err.(interface{ Unwrap() []error }).Unwrap()) != 5 {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside is gone: %v", err)
	}
	if got, want := list(info.StateDir), []string{info.StateDir + "/s/b"}; !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
	if got := list(info.PrivateDir); len(got) > 0 {
		t.Errorf("left are %q", got)
	}
	if _, err := os.Lstat(info.StateDir + "/link"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link is not removed: %v", err)
	}
}

// left opens a sandbox as a living owner does, puts a secret into it and waits to be killed.
func left() int {
	home := os.Getenv("LOCAL_TEST_HOME")
	lease, err := owner.Acquire(home)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	box, err := Backend().Open(context.Background(), driver.OpenRequest{
		Config: config{}, Environ: os.Environ(), Dir: "/", Identity: driver.Identity{Home: home, Owner: lease.ID},
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	dir := box.Info().PrivateDir
	_ = os.WriteFile(filepath.Join(dir, "state"), []byte("s3cret"), 0o600)
	// What another process may have put beside the lease is not believed.
	_ = owner.Record(home, lease.ID, os.Getenv("LOCAL_TEST_OTHER"))
	_ = owner.Record(home, lease.ID, os.Getenv("LOCAL_TEST_OTHER")+"/"+privatePrefix+lease.ID+"-link")
	_ = os.Symlink(os.Getenv("LOCAL_TEST_OTHER")+"/kept", os.Getenv("LOCAL_TEST_OTHER")+"/"+privatePrefix+lease.ID+"-link")
	fmt.Println(dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func TestWhatAKilledProcessLeftGoesAtTheNextStart(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.MkdirAll(filepath.Join(other, "kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := again("left", "LOCAL_TEST_HOME="+home, "LOCAL_TEST_OTHER="+other)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(strings.TrimSpace(dir), "state")
	next := func() {
		t.Helper()
		req := request(t)
		req.Identity.Home = home
		box, err := Backend().Open(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	next()
	if _, err := os.Stat(secret); err != nil {
		t.Fatalf("a living owner's directory is gone: %v", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := os.Stat(secret); err != nil {
		t.Fatalf("nothing was left, so this proves nothing: %v", err)
	}
	next()
	if _, err := os.Stat(filepath.Dir(secret)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "kept")); err != nil {
		t.Errorf("a directory that is not ours is gone: %v", err)
	}
	dead, err := owner.Dead(home)
	if err != nil || len(dead) != 1 {
		t.Errorf("the owner is to be known to others that clean up: %v, %v", dead, err)
	}
}

func TestTheInfoSaysWhereCommandsRunAndWhatProtectsThem(t *testing.T) {
	box := openBox(t, request(t))
	info := box.Info()
	host, _ := os.Hostname()
	if info.Host != host || info.User == "" || info.Home == "" || !filepath.IsAbs(info.Dir) || len(info.KeepEnv) != 7 {
		t.Errorf("info %+v", info)
	}
	if i := slices.IndexFunc(info.Features, func(f driver.Feature) bool { return f.Name == "isolation" }); i < 0 || info.Features[i].State != driver.Unsupported {
		t.Errorf("features %+v", info.Features)
	}
	warned := strings.Contains(strings.Join(info.Notices, "\n"), "root")
	if warned != (os.Geteuid() == 0) {
		t.Errorf("uid %d, notices %q", os.Geteuid(), info.Notices)
	}
	if err := box.Alive(t.Context()); err != nil {
		t.Error(err)
	}
}
