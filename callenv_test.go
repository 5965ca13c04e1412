//go:build unix

package elsewhere_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// forwarding is a local sandbox that hands variables on, as those do that do not share the caller's environment.
type forwarding struct {
	driver.Sandbox
	env map[string]string
}

func (f forwarding) Info() driver.Info {
	info := f.Sandbox.Info()
	info.CallEnv = f.env
	return info
}

// openForwarding opens a sandbox with such variables; base holds its home and its temporary files.
func openForwarding(t *testing.T, env map[string]string) (s *elsewhere.Session, base string) {
	t.Helper()
	base = t.TempDir()
	for _, d := range []string{"home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	back := local.Backend()
	open := back.Open
	back.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
		sb, err := open(ctx, req)
		if err != nil {
			return nil, err
		}
		return forwarding{sb, env}, nil
	}
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + base + "/home", "HERMES_HOME=" + base + "/hermes", "TMPDIR=" + base + "/tmp"}
	cfg, err := config.Load(config.Options{
		Backends: []driver.Backend{back}, Environ: environ, Flags: map[string]string{"temp_dir": base + "/tmp"},
	})
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	s, err = elsewhere.Open(t.Context(), cfg, &elsewhere.SandboxOptions{Environ: environ, SpawnAhead: &one})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s, base
}

func TestForwardedVariablesAreInEveryCallAndNowhereElse(t *testing.T) {
	const secret = "s3cret-of-the-forwarded"
	s, base := openForwarding(t, map[string]string{"TOK": secret, "ODD": "a'b\n$(c)\xff"})
	for i, c := range []struct {
		command string
		env     map[string]string
		want    string
	}{
		{`echo "$TOK"; export MINE=1`, nil, secret + "\n"},
		{`bash -c 'printf %s "$ODD"'; echo "$MINE"`, nil, "a'b\n$(c)\xff1\n"},
		{`echo "$TOK"`, map[string]string{"TOK": "given"}, "given\n"},
		{`export TOK=changed; echo "$TOK"`, nil, "changed\n"},
		{`echo "$TOK"`, nil, secret + "\n"},
	} {
		if r := runIn(t, s, c.command, &elsewhere.RunOptions{Env: c.env}); string(r.Output) != c.want {
			t.Errorf("call %d: %q printed %q, want %q", i, c.command, r.Output, c.want)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := 0
	err := filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // files come and go
		}
		raw, _ := os.ReadFile(path)
		if bytes.Contains(raw, []byte("MINE=")) {
			states++
		}
		if bytes.Contains(raw, []byte(secret)) {
			t.Errorf("the value is in %s:\n%s", path, raw)
		}
		return nil
	})
	if err != nil || states == 0 {
		t.Errorf("%d files hold state (%v): the test proves nothing", states, err)
	}
	// The waiting bash, which is started behind the calls, and every other process but a command's.
	look := func() (waiting int) {
		procs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, p := range procs {
			raw, _ := os.ReadFile(p)
			if strings.Contains(string(raw), base+"/hermes") && strings.Contains(string(raw), "ELSEWHERE_CALL=") {
				waiting++
			}
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("the value is in %s", p)
			}
		}
		return waiting
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return
	}
	for deadline := time.Now().Add(time.Minute); look() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no bash waits: the test proves nothing")
		}
	}
}

func TestAForwardedVariableThatNoBashCanHaveIsLeftOut(t *testing.T) {
	s, _ := openForwarding(t, map[string]string{"A;echo bad": "x", "ew_x": "y", "FINE": "z"})
	r := runIn(t, s, `echo "$FINE"`, nil)
	notices := strings.Join(r.Notices, "\n")
	if string(r.Output) != "z\n" || !strings.Contains(notices, `"A;echo bad"`) || !strings.Contains(notices, "ew_x") || strings.Contains(notices, "FINE") {
		t.Errorf("%q, %q", r.Output, r.Notices)
	}
}
