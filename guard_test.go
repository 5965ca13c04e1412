//go:build unix

package elsewhere_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// watched is a local sandbox whose commands are checked.
type watched struct {
	*elsewhere.Sandbox
	t      *testing.T
	base   string // holds home, work, hermes and outside
	config *config.Config
	opts   elsewhere.SandboxOptions

	mu     sync.Mutex
	asked  []elsewhere.PolicyQuestion
	answer elsewhere.PolicyAnswer
	wrong  error // what the asking fails with
}

// under is a directory that is no place for temporary files, so that rules hold below it. It is removed with the test.
func under(t *testing.T) string {
	t.Helper()
	here, _ := os.Getwd()
	home, _ := os.UserHomeDir()
	for _, parent := range []string{here, home, "/dev/shm"} {
		if parent == "" || strings.HasPrefix(parent+"/", "/tmp/") || strings.HasPrefix(parent+"/", "/var/tmp/") || strings.HasPrefix(parent, "/private/") {
			continue
		}
		if dir, err := os.MkdirTemp(parent, ".elsewhere-guard-test-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	t.Fatal("every directory that can be written to is one for temporary files")
	return ""
}

func newWatched(t *testing.T, flags map[string]string, change func(*driver.Info)) *watched {
	t.Helper()
	w := &watched{t: t, base: under(t)}
	for _, d := range []string{"home/.ssh", "work/build", "hermes/elsewhere", "outside/data", "tmp"} {
		if err := os.MkdirAll(filepath.Join(w.base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	back := local.Backend()
	if change != nil {
		open := back.Open
		back.Open = func(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
			sb, err := open(ctx, req)
			if err != nil {
				return nil, err
			}
			info := sb.Info()
			change(&info)
			return told{sb, info}, nil
		}
	}
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.base + "/home", "HERMES_HOME=" + w.base + "/hermes", "TMPDIR=" + w.base + "/tmp"}
	all := map[string]string{"temp_dir": w.base + "/tmp", "cwd": w.base + "/work"}
	for key, value := range flags {
		all[key] = value
	}
	cfg, err := config.Load(config.Options{Backends: []driver.Backend{back}, Environ: environ, Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	none := 0
	w.config, w.opts = cfg, elsewhere.SandboxOptions{Environ: environ, SpawnAhead: &none, Approve: w.approve}
	w.Sandbox = w.open()
	return w
}

// told is a sandbox of which something else is said.
type told struct {
	driver.Sandbox
	info driver.Info
}

func (s told) Info() driver.Info { return s.info }

func (w *watched) open() *elsewhere.Sandbox {
	w.t.Helper()
	sb, err := elsewhere.OpenSandbox(context.Background(), w.config, &w.opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = sb.Close(context.Background()) })
	return sb
}

func (w *watched) approve(ctx context.Context, q elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, q)
	return w.answer, w.wrong
}

// questions are those since the last time.
func (w *watched) questions() []elsewhere.PolicyQuestion {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.asked
	w.asked = nil
	return q
}

func (w *watched) answers(a elsewhere.PolicyAnswer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = a
}

func (w *watched) there(name string) bool {
	_, err := os.Lstat(filepath.Join(w.base, name))
	return err == nil
}

// wantDenied wants a refusal by a rule.
func wantDenied(t *testing.T, err error, rule string) {
	t.Helper()
	var denial *elsewhere.Denial
	var own *elsewhere.Error
	if !errors.Is(err, elsewhere.ErrDenied) || !errors.As(err, &denial) || !errors.As(err, &own) {
		t.Errorf("got %v, want a denial by %s", err, rule)
		return
	}
	if denial.Rule != rule || !strings.Contains(err.Error(), rule) || denial.Reason == "" || denial.Where == "" || own.Hint == "" {
		t.Errorf("got %+v (hint %q), want one by %s", denial, own.Hint, rule)
	}
}

type auditRow struct{ ID, Policy, Cause, Command, Session string }

// audited gives the last record.
func (w *watched) audited() auditRow {
	w.t.Helper()
	text, err := os.ReadFile(w.base + "/hermes/elsewhere/audit.jsonl")
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var row auditRow
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &row); err != nil {
		w.t.Fatal(err)
	}
	return row
}

func TestWhatIsBlockedDoesNotRun(t *testing.T) {
	w := newWatched(t, nil, nil)
	w.answers(elsewhere.ApproveAlways) // which is no use
	s := openSession(t, w.Sandbox, "")
	command := "touch ran; rm -rf " + w.base + "/home"
	r, err := s.Run(t.Context(), command, nil)
	wantDenied(t, err, "delete-home")
	if r == nil || r.Cause != elsewhere.Denied || r.ExitCode != -1 || r.CallID == "" || r.Where.Host == "" || r.StateSaved {
		t.Fatalf("the result is %+v", r)
	}
	if w.there("work/ran") || !w.there("home/.ssh") || len(w.questions()) != 0 {
		t.Error("something ran, or somebody was asked")
	}
	if row := w.audited(); row.ID != r.CallID || row.Policy != "denied: delete-home" || row.Cause != "denied" || row.Command != command {
		t.Errorf("the record is %+v", row)
	}
	runIn(t, s, "rm -rf build && mkdir -p a/b && rm -rf a "+w.base+"/tmp/x", nil)
	if row := w.audited(); w.there("work/build") || row.Policy != "allow" {
		t.Errorf("in the workspace: %+v", row)
	}
}

func TestWhoeverIsAskedDecides(t *testing.T) {
	w := newWatched(t, nil, nil)
	s := openSession(t, w.Sandbox, "")
	data := w.base + "/outside/data"
	command := "rm -rf " + data + " && echo gone"
	_, err := s.Run(t.Context(), command, nil)
	wantDenied(t, err, "delete-outside")
	q := w.questions()
	if len(q) != 1 || q[0].Op != "run" || q[0].Command != command || q[0].Dir != w.base+"/work" || len(q[0].Findings) != 1 ||
		q[0].Findings[0].Rule != "delete-outside" || !q[0].Lasts || q[0].Backend != "local" || q[0].Where.Host == "" {
		t.Fatalf("asked %+v", q)
	}
	if !w.there("outside/data") {
		t.Fatal("it ran")
	}
	again := func(sb *elsewhere.Sandbox, s *elsewhere.Session, want int) {
		t.Helper()
		if err := os.MkdirAll(data, 0o700); err != nil {
			t.Fatal(err)
		}
		if r := runIn(t, s, command, nil); string(r.Output) != "gone\n" || w.there("outside/data") {
			t.Errorf("the output is %q", r.Output)
		}
		if q := w.questions(); len(q) != want {
			t.Errorf("asked %d times, want %d", len(q), want)
		}
	}
	w.answers(elsewhere.ApproveOnce)
	again(w.Sandbox, s, 1)
	if row := w.audited(); row.Policy != "asked: once: delete-outside" {
		t.Errorf("the record is %+v", row)
	}
	again(w.Sandbox, s, 1)
	w.answers(elsewhere.ApproveSession)
	again(w.Sandbox, s, 1)
	w.answers(elsewhere.ApproveNot)
	again(w.Sandbox, s, 0)
	_, err = openSession(t, w.Sandbox, "").Run(t.Context(), command, nil)
	wantDenied(t, err, "delete-outside") // the session alone agreed
	_, err = s.Run(t.Context(), "rm -rf "+w.base+"/outside", nil)
	wantDenied(t, err, "delete-outside") // to this alone
	w.questions()

	w.answers(elsewhere.ApproveAlways)
	again(w.Sandbox, openSession(t, w.Sandbox, ""), 1)
	w.answers(elsewhere.ApproveNot)
	other := w.open()
	again(other, openSession(t, other, ""), 0)
}

func TestANamedSessionRemembersWhereItBeganAndWhatWasAgreedTo(t *testing.T) {
	w := newWatched(t, nil, nil)
	command := "rm -rf " + w.base + "/outside/data"
	w.answers(elsewhere.ApproveSession)
	runIn(t, openSession(t, w.Sandbox, "dev"), command, nil)
	w.answers(elsewhere.ApproveNot)
	w.questions()
	other := w.open()
	dev := openSession(t, other, "dev")
	runIn(t, dev, command, nil)
	if q := w.questions(); len(q) != 0 {
		t.Errorf("the next process asked %+v", q)
	}
	_, err := openSession(t, other, "another").Run(t.Context(), command, nil)
	wantDenied(t, err, "delete-outside")

	// It began in work, whatever directory the process that uses it is in.
	cfg, err := config.Load(config.Options{Backends: w.config.Backends(), Environ: w.opts.Environ, Flags: map[string]string{"cwd": w.base + "/home"}})
	if err != nil {
		t.Fatal(err)
	}
	w.config = cfg
	elsewheres := w.open()
	runIn(t, openSession(t, elsewheres, "dev"), "rm -rf "+w.base+"/work/build", nil)
	if w.there("work/build") {
		t.Error("it did not run")
	}
}

func TestNobodyToAskIsNoAndSoIsNoAnswer(t *testing.T) {
	w := newWatched(t, map[string]string{"approvals.timeout": "0.05"}, nil)
	command := "rm -rf " + w.base + "/outside/data"
	try := func(approve func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error), want string) {
		t.Helper()
		w.opts.Approve = approve
		sb := w.open()
		_, err := openSession(t, sb, "").Run(t.Context(), command, nil)
		wantDenied(t, err, "delete-outside")
		if err == nil || !strings.Contains(err.Error(), want) || !w.there("outside/data") {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	try(nil, "there is nobody to ask")
	var own *elsewhere.Error
	if _, err := openSession(t, w.open(), "").Run(t.Context(), command, nil); !errors.As(err, &own) || !strings.Contains(own.Hint, "policy.rules.delete-outside: allow") {
		t.Errorf("the hint is %q", own.Hint)
	}
	try(func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		return elsewhere.ApproveAlways, errors.New("the user is at lunch")
	}, "the user is at lunch")
	hints := func(approve func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error), want string) {
		t.Helper()
		w.opts.Approve = approve
		var own *elsewhere.Error
		if _, err := openSession(t, w.open(), "").Run(t.Context(), command, nil); !errors.As(err, &own) || !strings.HasPrefix(own.Hint, want) {
			t.Errorf("%v; the hint does not begin with %q", err, want)
		}
	}
	hints(func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		return elsewhere.ApproveNot, fmt.Errorf("no form here: %w", errors.ErrUnsupported)
	}, "run it where you can be asked")
	hints(func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		return elsewhere.ApproveNot, nil
	}, "agree when asked")
	try(func(ctx context.Context, _ elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		<-ctx.Done()
		return elsewhere.ApproveOnce, nil
	}, "nobody answered within")
	try(func(context.Context, elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) { return "perhaps", nil }, "perhaps")

	ctx, cancel := context.WithCancel(t.Context())
	w.opts.Approve = func(ctx context.Context, _ elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		cancel()
		<-ctx.Done()
		return elsewhere.ApproveNot, ctx.Err()
	}
	if _, err := openSession(t, w.open(), "").Run(ctx, command, nil); !errors.Is(err, elsewhere.ErrCanceled) {
		t.Errorf("an interrupted question gives %v", err)
	}
}

func TestADirectoryIsTheOneThatTheLastCallLeft(t *testing.T) {
	w := newWatched(t, nil, nil)
	s := openSession(t, w.Sandbox, "")
	runIn(t, s, "cd "+w.base+"/outside", nil)
	_, err := s.Run(t.Context(), "rm -rf data", nil)
	wantDenied(t, err, "delete-outside")
	_, err = s.Run(t.Context(), "rm -rf *", &elsewhere.RunOptions{Dir: "../home"})
	wantDenied(t, err, "delete-home")
	_, err = s.Run(t.Context(), `rm -rf "$WHERE"`, &elsewhere.RunOptions{Env: map[string]string{"WHERE": "/usr"}})
	wantDenied(t, err, "delete-system")
	runIn(t, s, "rm -rf build", &elsewhere.RunOptions{Dir: w.base + "/work"})
}

func TestJobsTerminalsAndInputAreLookedAt(t *testing.T) {
	w := newWatched(t, nil, nil)
	s := openSession(t, w.Sandbox, "dev")
	command := "rm -rf " + w.base + "/outside/data"
	_, err := s.Start(t.Context(), command, nil)
	wantDenied(t, err, "delete-outside")
	if row := w.audited(); row.Policy != "denied: delete-outside" || row.Command != command || row.Session != "dev" {
		t.Errorf("the record is %+v", row)
	}
	_, err = s.Shell(t.Context(), command, nil)
	wantDenied(t, err, "delete-outside")
	ops := ""
	for _, q := range w.questions() {
		ops += q.Op + " "
	}
	if ops != "job start shell " || !w.there("outside/data") {
		t.Errorf("asked for %q", ops)
	}

	job, err := s.Start(t.Context(), "while read -r line; do echo \"got $line\"; done", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = job.Kill(context.Background()) }()
	wantDenied(t, job.Send(t.Context(), []byte("rm -rf ~\n")), "delete-home")
	for _, fine := range []string{"y\n", "print('rm -rf /'\n", "\x00\xff\n", "if (a) {\n"} {
		if err := job.Send(t.Context(), []byte(fine)); err != nil {
			t.Errorf("%q: %v", fine, err)
		}
	}
	typed, err := s.Start(t.Context(), "cat", &elsewhere.JobOptions{Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = typed.Kill(context.Background()) }()
	wantDenied(t, typed.SendLine(t.Context(), "rm -rf ~"), "delete-home")
	wantDenied(t, typed.Send(t.Context(), []byte("\x03rm -rf ~\r")), "delete-home")
	if err := typed.Send(t.Context(), []byte("y\r\x1b[A\x03")); err != nil {
		t.Error(err)
	}
	if err := job.CloseInput(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := job.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	out, err := job.Logs(t.Context(), 0, 0, 0)
	if err != nil || !strings.HasPrefix(string(out.Data), "got y\n") || strings.Contains(string(out.Data), "rm -rf ~") {
		t.Errorf("the job got %q, %v", out.Data, err)
	}
	w.answers(elsewhere.ApproveOnce)
	started, err := s.Start(t.Context(), command, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := started.Wait(t.Context()); err != nil || w.there("outside/data") {
		t.Errorf("what was agreed to did not run: %v", err)
	}
}

func TestFilesAreLookedAtByTheirPaths(t *testing.T) {
	w := newWatched(t, nil, nil)
	ctx := t.Context()
	s := openSession(t, w.Sandbox, "")
	for file, text := range map[string]string{"home/.ssh/id_x": "key", "hermes/.env": "A=b", "hermes/config.yaml": "", "outside/.bashrc": "evil"} {
		if err := os.WriteFile(filepath.Join(w.base, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(w.base+"/home/.ssh", w.base+"/work/link"); err != nil {
		t.Fatal(err)
	}
	read := func(name string) error { _, err := s.ReadFile(ctx, name); return err }
	wantDenied(t, read("~/.ssh/id_x"), "read-credentials")
	wantDenied(t, read("link/id_x"), "read-credentials")
	wantDenied(t, read(w.base+"/hermes/.env"), "read-own-secrets")
	wantDenied(t, s.WriteFile(ctx, w.base+"/hermes/config.yaml", nil, 0o600), "write-own-config")
	wantDenied(t, s.WriteFile(ctx, w.base+"/hermes/elsewhere/policy.json", nil, 0o600), "write-own-config")
	wantDenied(t, s.WriteFile(ctx, "../work/../home/.bashrc", nil, 0o600), "write-startup")
	wantDenied(t, w.WriteFile(ctx, ".ssh/authorized_keys", nil, 0o600), "write-credentials")
	_, err := s.Upload(ctx, w.base+"/outside/.bashrc", "~", nil)
	wantDenied(t, err, "write-startup")
	_, err = s.Upload(ctx, w.base+"/outside/.", w.base+"/home", nil)
	wantDenied(t, err, "write-startup")
	_, err = w.Sync(ctx, elsewhere.SyncOptions{Local: w.base + "/outside", Remote: w.base + "/home"})
	wantDenied(t, err, "write-startup")
	_, err = s.Download(ctx, "~/.ssh/id_x", w.base+"/outside/stolen", nil)
	wantDenied(t, err, "read-credentials")
	if row := w.audited(); row.Cause != "denied" || row.Command != "download "+w.base+"/home/.ssh/id_x" {
		t.Errorf("the record is %+v", row)
	}
	if w.there("home/.bashrc") || w.there("outside/stolen") || w.there("home/.ssh/authorized_keys") {
		t.Error("something was written")
	}
	if err := s.WriteFile(ctx, "file", []byte("x"), 0o600); err != nil {
		t.Error(err)
	}
	if data, err := s.ReadFile(ctx, "file"); err != nil || string(data) != "x" {
		t.Errorf("%q, %v", data, err)
	}
	w.answers(elsewhere.ApproveOnce)
	if err := read("~/.ssh/id_x"); err != nil {
		t.Error(err)
	}
	for _, command := range []string{"cat " + w.base + "/hermes/.env", "echo x > " + w.base + "/hermes/elsewhere/policy.json"} {
		_, err := s.Run(ctx, command, nil)
		if !errors.Is(err, elsewhere.ErrDenied) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestSecretsThatAreLinksAreBlockedWhereTheyLead(t *testing.T) {
	w := newWatched(t, nil, nil)
	if err := os.WriteFile(w.base+"/outside/env", []byte("A=b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(w.base+"/outside/env", w.base+"/hermes/.env"); err != nil {
		t.Fatal(err)
	}
	_, err := openSession(t, w.open(), "").Run(t.Context(), "cat ../outside/env", nil)
	wantDenied(t, err, "blocked-path")
}

func TestTheSettingsChangeRules(t *testing.T) {
	for name, c := range map[string]struct {
		flags map[string]string
		run   string
		rule  string // "" runs
	}{
		"switched off":             {map[string]string{"policy.enabled": "false"}, "rm -rf $BASE/home/x $BASE/outside/data $BASE/hermes/elsewhere/state", ""},
		"a rule is allowed":        {map[string]string{"policy.rules": `{"delete-outside":"allow"}`}, "rm -rf $BASE/outside/data", ""},
		"a rule is stricter":       {map[string]string{"policy.rules": `{"delete-outside":"block"}`, "approvals.mode": "off"}, "rm -rf $BASE/outside/data", "delete-outside"},
		"nobody is asked":          {map[string]string{"approvals.mode": "off"}, "rm -rf $BASE/outside/data", ""},
		"Hermes' variable":         {map[string]string{"approvals.yolo": "true"}, "rm -rf $BASE/outside/data", ""},
		"blocked without asking":   {map[string]string{"approvals.mode": "off"}, "rm -rf $BASE/home", "delete-home"},
		"smart is manual":          {map[string]string{"approvals.mode": "smart"}, "rm -rf $BASE/outside/data", "delete-outside"},
		"a command is allowed":     {map[string]string{"policy.allow": `["rm -rf $BASE/outside/data"]`}, "rm -rf $BASE/outside/data", ""},
		"a command is blocked":     {map[string]string{"policy.block": `["touch here"]`}, "touch a here", "your-rule"},
		"a command is asked about": {map[string]string{"policy.ask": `["touch here"]`}, "touch here", "your-rule"},
		"a pattern":                {map[string]string{"approvals.deny": `["touch*here*"]`, "approvals.mode": "off"}, "touch a here", "approvals.deny"},
		"a workspace":              {map[string]string{"policy.workspace": `["$BASE/outside"]`}, "rm -rf $BASE/outside/data", ""},
		"a blocked path":           {map[string]string{"policy.blocked_paths": `["$BASE/outside"]`}, "cat $BASE/outside/x", "blocked-path"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, nil, nil)
			base := strings.NewReplacer("$BASE", w.base)
			flags := map[string]string{"cwd": w.base + "/work", "temp_dir": w.base + "/tmp"}
			for key, value := range c.flags {
				flags[key] = base.Replace(value)
			}
			cfg, err := config.Load(config.Options{Backends: w.config.Backends(), Environ: w.opts.Environ, Flags: flags})
			if err != nil {
				t.Fatal(err)
			}
			w.config = cfg
			_, err = openSession(t, w.open(), "").Run(t.Context(), base.Replace(c.run), nil)
			if c.rule == "" && err != nil {
				t.Error(err)
			} else if c.rule != "" {
				wantDenied(t, err, c.rule)
			}
		})
	}
}

func TestAContainerIsGuardedForWhatIsReallyInIt(t *testing.T) {
	for name, c := range map[string]struct {
		exposure driver.Exposure
		guarded  bool
		alone    bool // only rules about the network hold
	}{
		"nothing":              {exposure: driver.Exposure{}},
		"its own files":        {exposure: driver.Exposure{Mounts: []driver.Mount{{Target: "/root", Source: "/x", Writable: true, Ours: true}}}},
		"a read-only mount":    {exposure: driver.Exposure{Mounts: []driver.Mount{{Target: "/data", Source: "/data"}}}},
		"a writable mount":     {exposure: driver.Exposure{Mounts: []driver.Mount{{Target: "/data", Source: "/data", Writable: true}}}, guarded: true},
		"the engine's socket":  {exposure: driver.Exposure{Mounts: []driver.Mount{{Target: "/s", Source: "/run/docker.sock"}}}, guarded: true},
		"a socket, said so":    {exposure: driver.Exposure{EngineSocket: true}, guarded: true},
		"a device":             {exposure: driver.Exposure{Devices: []string{"/dev/kvm"}}, guarded: true},
		"the machine's net":    {exposure: driver.Exposure{HostNetwork: true}, guarded: true, alone: true},
		"its net and pids":     {exposure: driver.Exposure{HostNetwork: true, HostPID: true}, guarded: true},
		"the machine's pids":   {exposure: driver.Exposure{HostPID: true}, guarded: true},
		"all rights":           {exposure: driver.Exposure{Privileged: true}, guarded: true},
		"the machine as a far": {exposure: driver.Exposure{Machine: true}, guarded: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, nil, func(info *driver.Info) { info.Exposure = c.exposure })
			guarded, why := w.Guarded()
			if guarded != c.guarded || why == "" {
				t.Errorf("guarded %v, because %q", guarded, why)
			}
			s := openSession(t, w.Sandbox, "")
			if c.exposure.HostNetwork {
				_, err := s.Run(t.Context(), "git push --force", nil)
				wantDenied(t, err, "force-push")
			}
			_, err := s.Run(t.Context(), "rm -rf "+w.base+"/outside/data", nil)
			if c.guarded && !c.alone {
				wantDenied(t, err, "delete-outside")
			} else if row := w.audited(); err != nil || row.Policy != map[bool]string{false: "not checked", true: "allow"}[c.guarded] {
				t.Errorf("%v, %+v", err, row)
			}
		})
	}
	w := newWatched(t, map[string]string{"approvals.deny": `["*secret-tool*"]`}, func(info *driver.Info) { info.Exposure = driver.Exposure{} })
	s := openSession(t, w.Sandbox, "")
	_, err := s.Run(t.Context(), "secret-tool", nil)
	wantDenied(t, err, "approvals.deny")
	runIn(t, s, "rm -rf "+w.base+"/outside/data", nil)
}
