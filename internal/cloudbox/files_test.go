//go:build unix

package cloudbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashproc"
)

// TestN03FilesThatCouldNotBeSentAreSentByTheNextCall: a failure does not count as a look, after which nobody looks for 5 s.
func TestN03FilesThatCouldNotBeSentAreSentByTheNextCall(t *testing.T) {
	hermes, far := t.TempDir(), t.TempDir()
	skill := filepath.Join(hermes, "skills", "a", "SKILL.md")
	if err := errors.Join(os.MkdirAll(filepath.Dir(skill), 0o755), os.WriteFile(skill, []byte("skill"), 0o644)); err != nil {
		t.Fatal(err)
	}
	backend := driver.Backend{Name: "modal", Open: func(context.Context, driver.OpenRequest) (driver.Sandbox, error) { return nil, nil }}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{backend}, Environ: []string{"HOME=" + t.TempDir()}, Home: hermes, Flags: map[string]string{"backend": "modal"}})
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	var down error
	started := 0
	f := NewFiles(FilesOptions{
		Bash: func(_ context.Context, spec driver.BashSpec) (driver.Process, error) {
			started++
			if down != nil {
				return nil, down
			}
			return bashproc.Start(bash, append([]string{"bash"}, spec.Args...), append(os.Environ(), spec.Env...))
		},
		Config: cfg, Identity: driver.Identity{ID: "me", Profile: "default", Home: hermes},
		Name: "the sandbox", Place: "test", Home: far, State: filepath.Join(far, ".local/state"), Log: slog.New(slog.DiscardHandler),
	})
	down = errors.New("the service is down")
	for call, words := range []string{"the next call tries again", ""} { // said once
		notices := strings.Join(f.Push(t.Context()), "\n")
		if words == "" && notices != "" || !strings.Contains(notices, words) || words != "" && !strings.Contains(notices, "the service is down") {
			t.Errorf("call %d: notices %q", call, notices)
		}
		if started <= call {
			t.Errorf("call %d did not try", call)
		}
	}
	down = nil
	if notices := f.Push(t.Context()); len(notices) > 0 {
		t.Errorf("notices %q", notices)
	}
	if text, err := os.ReadFile(filepath.Join(far, ".hermes/skills/a/SKILL.md")); err != nil || string(text) != "skill" {
		t.Errorf("there is %q, %v", text, err)
	}
	before := started
	if f.Push(t.Context()); started != before {
		t.Errorf("%d bashes for nothing", started-before)
	}
}
