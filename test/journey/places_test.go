//go:build linux

package journey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/testbed"
	"github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
	"github.com/elsewhere-sh/elsewhere/test/cloud/modal"
	"github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

// place is a backend with a home for the program's user that is the test's own.
type place struct {
	t       *testing.T
	program string
	backend string
	base    string   // holds all that is the test's on this machine
	home    string   // HOME; in it commands are given
	hermes  string   // HERMES_HOME
	temp    string   // TMPDIR
	environ []string // of the program
	far     string   // the home directory of an account that is the test's own, if there is one
	// sandboxes are those that the engine or the service has of this home. Nil where there are none by nature.
	sandboxes func() ([]string, error)
	settings  map[string]string
}

// build builds the program.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "elsewhere")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/elsewhere-sh/elsewhere/cmd/elsewhere").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// newPlace gives the backend a home, and the settings with which a user of what the testbed has would use it.
func newPlace(t *testing.T, program, backend string) *place {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "ewjourney-") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	p := &place{t: t, program: program, backend: backend, base: base, settings: map[string]string{"backend": backend}}
	p.home, p.hermes, p.temp = filepath.Join(base, "home"), filepath.Join(base, "hermes"), filepath.Join(base, "tmp")
	for _, dir := range []string{p.home, p.hermes, p.temp} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "HERMES_HOME=" + p.hermes, "TMPDIR=" + p.temp, "USER=root", "TERM=dumb"}
	p.reach()
	p.writeSettings()
	t.Cleanup(func() {
		if t.Failed() { // what the test did not come to
			_, _, _ = p.run("sandbox", "rm", "--force", "--data", backend+"/default")
			for pid, entries := range testbed.Environments() {
				if slices.Contains(entries, p.environ[1]) && pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	})
	return p
}

// reach finds the engine, or makes the service.
func (p *place) reach() {
	p.t.Helper()
	switch p.backend {
	case "docker":
		p.reachDocker()
	case "singularity":
		p.reachSingularity()
	case "ssh":
		port := testbed.SSHPort(p.t, "main")
		a := testbed.NewAccount(p.t, "elsewhere-ssh-bash")
		p.environ[0] = "PATH=" + testbed.SSHClient(p.t, p.base) + ":" + os.Getenv("PATH")
		p.set(a.Settings(port))
		p.far = a.Home
	case "modal":
		e, err := modal.New(modal.Options{})
		p.emulated(err)
		p.t.Cleanup(func() { p.closed(e.Close()) })
		p.set(map[string]string{"modal_server_url": e.URL(), "modal_token_id": modal.DefaultToken.ID, "modal_token_secret": modal.DefaultToken.Secret})
		p.sandboxes = func() (left []string, _ error) {
			for _, sb := range e.Sandboxes() {
				if sb.Running {
					left = append(left, sb.ID)
				}
			}
			return append(left, e.Images()...), nil
		}
	case "daytona":
		srv, err := daytona.New(daytona.Tree)
		p.emulated(err)
		p.t.Cleanup(func() { p.closed(srv.Close()) })
		account := srv.NewAccount(&daytona.Account{})
		p.set(map[string]string{"daytona_api_url": srv.URL(), "daytona_api_key": account.Key, "daytona_image": "debian:12"})
		p.sandboxes = func() ([]string, error) { return srv.Sandboxes(account), nil }
	case "vercel":
		srv, err := vercel.New(vercel.Tree)
		p.emulated(err)
		p.t.Cleanup(func() { p.closed(srv.Close()) })
		account := srv.NewAccount(&vercel.Account{})
		p.set(map[string]string{"vercel_api_url": srv.URL(), "vercel_token": account.Token, "vercel_team_id": account.Team, "vercel_project_id": account.Project})
		p.sandboxes = func() ([]string, error) { return srv.Sandboxes(account), nil }
	}
}

func (p *place) emulated(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Skip(err)
	}
}

func (p *place) closed(err error) {
	if err != nil {
		p.t.Error(err)
	}
}

func (p *place) reachDocker() {
	const image = "elsewhere-test/debian"
	if out, err := exec.Command("docker", "image", "inspect", image).CombinedOutput(); err != nil {
		p.t.Skipf("no Docker engine with the testbed's images (test/testbed/up docker): %s", bytes.TrimSpace(out))
	}
	p.set(map[string]string{"docker_image": image})
	p.sandboxes = func() ([]string, error) {
		id, err := owner.Identity(p.hermes)
		if err != nil {
			return nil, err
		}
		out, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter", "label=elsewhere.identity="+id).Output()
		return strings.Fields(string(out)), err
	}
}

func (p *place) reachSingularity() {
	image := testbed.Cache + "/base.sif"
	if _, err := os.Stat(image); err != nil {
		p.t.Skipf("no Apptainer with the testbed's images (test/testbed/up apptainer): %v", err)
	}
	p.set(map[string]string{"singularity_image": image})
	p.sandboxes = func() ([]string, error) {
		out, err := exec.Command("apptainer", "instance", "list", "--json").Output()
		if err != nil {
			return nil, err
		}
		var answer struct {
			Instances []struct {
				Instance string `json:"instance"`
			} `json:"instances"`
		}
		id, err := owner.Identity(p.hermes)
		name := kept.Name(driver.Identity{ID: id, Profile: "default"}, "", "default")
		var own []string
		err = errors.Join(err, json.Unmarshal(out, &answer))
		for _, i := range answer.Instances {
			if i.Instance == name {
				own = append(own, name)
			}
		}
		return own, err
	}
}

func (p *place) set(settings map[string]string) {
	for key, value := range settings {
		p.settings[key] = value
	}
}

// writeSettings writes the configuration as its user would.
func (p *place) writeSettings() {
	p.t.Helper()
	var text strings.Builder
	text.WriteString("terminal:\n")
	for key, value := range p.settings {
		fmt.Fprintf(&text, "  %s: %q\n", key, value)
	}
	if err := os.WriteFile(filepath.Join(p.hermes, "config.yaml"), []byte(text.String()), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// command is the program, with arguments.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Dir, cmd.Env = p.home, p.environ
	return cmd
}

// run runs the program.
func (p *place) run(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// does is run, which has to succeed.
func (p *place) does(args ...string) string {
	p.t.Helper()
	stdout, stderr, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("elsewhere %q: %v\n%s%s", args, err, stdout, stderr)
	}
	p.t.Logf("$ elsewhere %s\n%s%s", strings.Join(args, " "), stdout, stderr)
	return stdout
}

// alive are the processes of the whole machine, those in sandboxes too, that a test of one of them is true for: each entry of its
// environment, and its command line.
func alive(is func(text string) bool) []string {
	var found []string
	for pid, entries := range testbed.Environments() {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		stat, serr := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || serr != nil || bytes.Contains(stat, []byte(") Z ")) || pid == os.Getpid() {
			continue
		}
		command := strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
		if slices.ContainsFunc(append(entries, command), is) {
			found = append(found, fmt.Sprintf("%d: %.200s", pid, command))
		}
	}
	slices.Sort(found)
	return found
}

// farFiles lists the files of elsewhere's in the account that is the test's own which hold a text.
func (p *place) farFiles(text string) (found []string, _ error) {
	dir := filepath.Join(p.far, ".local/state/elsewhere")
	names, err := tree(dir)
	for _, name := range names {
		file := filepath.Join(dir, name)
		if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
			continue // a job's input would keep its reader waiting
		}
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(text)) {
			found = append(found, file)
		}
	}
	return found, err
}

// tree lists what is in a directory, but for what the names of skip stand for.
func tree(dir string, skip ...string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case err != nil || name == ".":
			return err
		case slices.Contains(skip, name) && entry.IsDir():
			return filepath.SkipDir
		case !slices.Contains(skip, name):
			names = append(names, name)
		}
		return nil
	})
	return names, err
}
