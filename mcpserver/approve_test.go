//go:build unix

package mcpserver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// user is whom a client asks.
type user struct {
	mu     sync.Mutex
	asked  []*mcp.ElicitParams
	action string
	choice string // "" answers no field
	wrong  error
}

func (u *user) answers(action, choice string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.action, u.choice, u.asked = action, choice, nil
}

func (u *user) questions() []*mcp.ElicitParams {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

func (u *user) elicits(o *mcp.ClientOptions) {
	o.ElicitationHandler = func(_ context.Context, req *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.asked = append(u.asked, req.Params)
		if u.wrong != nil {
			return nil, u.wrong
		}
		res := &mcp.ElicitResult{Action: u.action}
		if u.choice != "" {
			res.Content = map[string]any{"approve": u.choice}
		}
		return res, nil
	}
}

// dangerous is a command that is asked about, and shows that it ran.
const dangerous = `echo "it" ran; git push 2>/dev/null --force`

func TestTheUserOfAClientIsAskedAboutWhatIsDangerous(t *testing.T) {
	eachTransport(t, func(t *testing.T, u *setup, connect func(func(*mcp.ClientOptions)) *peer) {
		var person user
		p := connect(person.elicits)
		runs := func(p *peer, command string, asked int) {
			t.Helper()
			if out := p.run(command); !strings.Contains(out, "it ran") {
				t.Errorf("the output is %q", out)
			}
			if q := person.questions(); len(q) != asked {
				t.Errorf("asked %d times, want %d", len(q), asked)
			}
		}
		refused := func(command string, says ...string) {
			t.Helper()
			r := p.fails("denied", "terminal", args{"command": command})
			contains(t, r.text, append(says, "rule force-push", "nothing ran", "policy.rules.force-push: allow", "Do not try")...)
			if r.str("cause") != "denied" || r.out["exit_code"] != nil || r.str("call_id") == "" {
				t.Errorf("the result is %v", r.out)
			}
		}
		person.answers("decline", "")
		refused(dangerous+"; true", "the user said no")
		q := person.questions()
		if len(q) != 1 {
			t.Fatalf("asked %d times", len(q))
		}
		contains(t, q[0].Message, "local", "Rule force-push", "git push 2>/dev/null --force", "run: ")
		person.answers("cancel", "")
		refused(dangerous+"; true", "the user did not answer")
		person.answers("accept", "once")
		runs(p, dangerous+"; true", 1)
		runs(p, dangerous+"; true", 2)
		person.answers("accept", "")
		runs(p, dangerous+"; true", 1)
		person.answers("accept", "session")
		runs(p, dangerous+"; true", 1)
		person.answers("decline", "")
		runs(p, dangerous+"; true", 0)
		refused(dangerous + " origin")

		person.answers("accept", "always")
		runs(p, dangerous+" main; true", 1)
		person.answers("decline", "")
		other := connect(nil) // which cannot ask
		runs(other, dangerous+" main; true", 0)
		r := other.fails("denied", "terminal", args{"command": dangerous})
		contains(t, r.text, "this MCP client cannot ask its user", "run it where you can be asked", "policy.rules.force-push: allow")
		if strings.Contains(r.text, "agree when asked") {
			t.Errorf("it says to agree where nobody is asked: %s", r.text)
		}

		person.wrong = errors.New("the window is closed")
		refused(dangerous+" x", "the user could not be asked", "the window is closed")
		person.wrong = nil
		if row, err := os.ReadFile(u.home + "/hermes/elsewhere/audit.jsonl"); err != nil || !strings.Contains(string(row), `"policy":"asked: always: force-push"`) {
			t.Errorf("%v in the audit: %s", err, row)
		}
	})
}

func TestJobsAndFilesOfAClientAreAskedAbout(t *testing.T) {
	var person user
	u := newSetup(t, nil, nil)
	p := u.overStreams(u.server, person.elicits)
	person.answers("decline", "")
	p.fails("denied", "terminal", args{"command": dangerous, "background": true})
	id := p.call("terminal", args{"command": "cat >got", "background": true}).job()["job_id"].(string)
	p.fails("denied", "process", args{"action": "submit", "job_id": id, "data": "rm -rf ~"})
	p.call("process", args{"action": "submit", "job_id": id, "data": "print('rm -rf /'"})
	p.call("process", args{"action": "close", "job_id": id})
	p.call("process", args{"action": "wait", "job_id": id})
	if got, err := os.ReadFile(u.home + "/got"); err != nil || string(got) != "print('rm -rf /'\n" {
		t.Errorf("the job got %q, %v", got, err)
	}

	if err := os.Mkdir(u.home+"/.ssh", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(u.home+"/.ssh/id_x", []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(u.home, "elsewhere"), filepath.Join(u.home, ".bashrc")); err != nil {
		t.Fatal(err)
	}
	p.fails("denied", "read_file", args{"path": "~/.ssh/id_x"})
	p.fails("denied", "write_file", args{"path": ".ssh/authorized_keys", "content": "x"})
	p.fails("denied", "write_file", args{"path": ".bashrc", "content": "x"}) // through a link
	p.fails("denied", "write_file", args{"path": "hermes/config.yaml", "content": "x"})
	for _, name := range []string{".ssh/authorized_keys", "elsewhere", "hermes/config.yaml"} {
		if _, err := os.Lstat(filepath.Join(u.home, name)); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	person.answers("accept", "once")
	if r := p.call("read_file", args{"path": "~/.ssh/id_x"}); r.str("content") != "key\n" {
		t.Errorf("read %v", r.out)
	}
	p.call("write_file", args{"path": ".profile", "content": "# x\n"})
	if n := len(person.questions()); n != 2 {
		t.Errorf("asked %d times, want twice", n)
	}
	if text, err := os.ReadFile(u.home + "/.profile"); err != nil || string(text) != "# x\n" {
		t.Errorf("wrote %q, %v", text, err)
	}
}
