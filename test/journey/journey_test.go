//go:build linux

package journey

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// TestAnAgentsWork is the work of an agent: it clones, installs, edits, tests, serves, fetches, is interrupted, loses the server and
// goes on, and nothing is lost or left behind.
func TestAnAgentsWork(t *testing.T) {
	program := build(t)
	for _, backend := range []string{"local", "docker", "singularity", "ssh", "modal", "daytona", "vercel"} {
		t.Run("backend="+backend, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && backend != "local" {
				t.Skip("short: the same on another backend")
			}
			p := newPlace(t, program, backend)
			p.makeRepository()
			stage := filepath.Base(p.base) // nobody else's
			a := p.serve()
			p.does("cp", "./project.git", backend+":project.git") // while the server works there
			a.develops()
			a.serves()
			job, mark := a.loses(stage)
			b := p.serve()
			b.goesOn(job, mark, stage)
			if len(p.processes(stage)) == 0 {
				t.Error("the session's processes are not seen")
			}
			if p.far != "" {
				if left, err := p.farFiles(stage); err != nil || len(left) == 0 {
					t.Errorf("the session's state is not seen: %v", err)
				}
			}
			b.leaves()
			p.isEmptied(stage)
		})
	}
}

// project is what the repository holds.
var project = map[string]string{
	"greet":          "#!/bin/sh\necho \"helo, ${1:-nobody}\"\n",
	"test.sh":        "#!/bin/sh\nsaid=$(./greet world)\n[ \"$said\" = 'hello, world' ] && echo ok && exit\necho \"not ok: it says $said\" >&2\nexit 1\n",
	"Makefile":       "install:\n\tmkdir -p '$(PREFIX)/bin'\n\tcp greet '$(PREFIX)/bin/greet'\n\ntest:\n\t./test.sh\n",
	"www/index.html": "<h1>hello</h1>\n",
}

// makeRepository makes a bare repository in the user's home.
func (p *place) makeRepository() {
	p.t.Helper()
	source := filepath.Join(p.base, "source")
	for name, text := range project {
		file, mode := filepath.Join(source, name), os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			p.t.Fatal(err)
		}
	}
	git := exec.Command("bash", "-ec", `git init -q .; git add .; git -c user.name=t -c user.email=t@example.com commit -qm first
		git clone -q --bare . "$HOME/project.git"`)
	git.Dir, git.Env = source, p.environ
	if out, err := git.CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(source); err != nil {
		p.t.Fatal(err)
	}
}

func (a *agent) wants(what, got, want string) {
	a.t.Helper()
	if got != want {
		a.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// develops clones and installs the project, finds its fault and mends it.
func (a *agent) develops() {
	a.t.Helper()
	a.wants("clone", a.runs("git clone -q ~/project.git ~/project && cd ~/project && git log --format=%s"), "first\n")
	a.wants("install", a.runs(`make -s install PREFIX="$HOME/.local" && export PATH="$HOME/.local/bin:$PATH"`), "")
	a.wants("what is installed", a.runs("greet world"), "helo, world\n")
	if r := a.has("terminal", map[string]any{"command": "make -s test"}); r.code() != 2.0 || !strings.Contains(r.text, "not ok: it says helo, world") {
		a.t.Errorf("a test that fails: %s", r.text)
	}
	text := a.has("read_file", map[string]any{"path": "greet"}).str("content")
	a.wants("read", text, project["greet"])
	a.has("write_file", map[string]any{"path": "greet", "content": strings.Replace(text, "helo", "hello", 1)})
	a.wants("tests", a.runs("make -s test"), "ok\n")
	a.wants("what git sees", a.runs("git status --porcelain; git diff --summary"), " M greet\n") // no change of its mode
	a.wants("commit", a.runs(`make -s install PREFIX="$HOME/.local" && git -c user.name=t -c user.email=t@example.com commit -qam second && git log --format=%s`), "second\nfirst\n")
}

// fetch is a command that gets the page of a server.
func fetch(port string) string {
	return fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%s && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3`, port)
}

// serves starts a server, fetches from it, is interrupted meanwhile and ends it.
func (a *agent) serves() {
	a.t.Helper()
	job, mark := a.starts("cd www && exec python3 -u -m http.server --bind 127.0.0.1 0")
	port := a.prints(job, "port ")
	a.wants("page", a.runs(fetch(port)), project["www/index.html"])

	command, cancel := a.underway()
	if err := cancel(); err == nil {
		a.t.Error("a cancelled request was answered")
	}
	await(a.t, "after a cancelled request", func() []string { return marked(command) })
	a.wants("page after an interrupt", a.runs(fetch(port)), project["www/index.html"])
	a.wants("state after an interrupt", a.runs("basename $PWD; greet world"), "project\nhello, world\n")

	if len(marked(mark)) == 0 {
		a.t.Error("the server is not seen")
	}
	if r := a.has("process", map[string]any{"action": "kill", "job_id": job}); r.job()["state"] != "killed" {
		a.t.Errorf("kill: %s", r.text)
	}
	await(a.t, "after the server was killed", func() []string { return marked(mark) })
	if r := a.has("terminal", map[string]any{"command": fetch(port)}); r.code() != 1.0 || !strings.Contains(r.text, "Connection refused") {
		a.t.Errorf("the server answers after its end: %s", r.text)
	}
}

// loses has the server killed while a command runs, and a job that waits for input. stage is a variable of the session. It gives the job's id and the mark of the command.
func (a *agent) loses(stage string) (job, mark string) {
	a.t.Helper()
	job, _ = a.starts("read -r line; greet \"$line\" | tee answer; exit 7")
	a.runs("cd www; export STAGE=" + stage)
	mark, _ = a.underway()
	if err := a.cmd.Process.Kill(); err != nil {
		a.t.Fatal(err)
	}
	if err := a.end(); err == nil {
		a.t.Error("it was not killed")
	}
	return job, mark
}

// goesOn finds all as it was.
func (a *agent) goesOn(job, mark, stage string) {
	a.t.Helper()
	a.wants("state after KILL", a.runs("basename $PWD; echo $STAGE; greet world; git log --format=%s"), "www\n"+stage+"\nhello, world\nsecond\nfirst\n")
	await(a.t, "of the command whose server was killed", func() []string { return marked(mark) })
	if r := a.has("process", map[string]any{"action": "list"}); !strings.Contains(r.text, job+" running") {
		a.t.Errorf("the job is not listed: %s", r.text)
	}
	a.has("process", map[string]any{"action": "submit", "job_id": job, "data": "again"})
	r := a.has("process", map[string]any{"action": "wait", "job_id": job, "timeout": 60})
	if r.job()["state"] != "exited" || r.job()["exit_code"] != 7.0 || !strings.HasSuffix(r.str("output"), "hello, again\n") {
		a.t.Errorf("the job: %s", r.text)
	}
	a.wants("what the job wrote", a.runs("cat ~/project/answer"), "hello, again\n")
}

// leaves closes the server's input.
func (a *agent) leaves() {
	a.t.Helper()
	_ = a.stdin.Close()
	if err := a.end(); err != nil {
		a.t.Errorf("the end of input is no failure: %v %s", err, a.stderr.String())
	}
	if said := a.stderr.String(); said != "" {
		a.t.Errorf("it said: %s", said)
	}
}

// processes are those of the test: they name its directory, were started in the session after the variable was set there, or belong to
// the account that is the test's own.
func (p *place) processes(stage string) []string {
	return alive(func(text string) bool {
		return strings.Contains(text, p.base) || text == "STAGE="+stage || p.far != "" && text == "HOME="+p.far
	})
}

// isEmptied has the user remove the session and the sandbox, and looks for what is left.
func (p *place) isEmptied(stage string) {
	p.t.Helper()
	if p.sandboxes != nil {
		if left, err := p.sandboxes(); err != nil || len(left) == 0 { // a cloud may hold a snapshot of it too
			p.t.Errorf("what is kept is not seen: %v", err)
		}
	}
	p.does("session", "rm", session)
	if p.sandboxes != nil {
		if p.backend == "modal" { // its files are stored, where nobody sees them who is not told
			if out := p.does("sandbox", "rm", "modal/default"); !strings.Contains(out, "  kept     the stored files im-") {
				p.t.Errorf("what is kept is not said: %q", out)
			}
		}
		p.does("sandbox", "rm", "--data", p.backend+"/default")
		await(p.t, "sandboxes", func() []string {
			left, err := p.sandboxes()
			if err != nil {
				left = append(left, err.Error())
			}
			return left
		})
	}
	await(p.t, "processes", func() []string { return p.processes(stage) })
	if p.far != "" {
		await(p.t, "the session's state in the account", func() []string {
			left, err := p.farFiles(stage)
			if err != nil {
				left = append(left, err.Error())
			}
			return left
		})
	}
	for dir, known := range map[string][]string{
		p.temp: nil,
		p.base: {"home", "hermes", "tmp", "bin", "bin/ssh", "known_hosts"},
	} {
		if left, err := tree(dir, known...); err != nil || len(left) > 0 {
			p.t.Errorf("left in %s: %q, %v", dir, left, err)
		}
	}
	id, err := owner.Identity(p.hermes)
	if err != nil {
		p.t.Fatal(err)
	}
	hash := cloudbox.IdentityHash(driver.Identity{ID: id, Profile: "default"})
	if left, _ := filepath.Glob("/tmp/elsewhere-*" + hash + "*"); len(left) > 0 {
		p.t.Errorf("left: %q", left)
	}
}
