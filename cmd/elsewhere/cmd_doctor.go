package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// probeWait bounds how long doctor waits for a backend.
const probeWait = 2 * time.Minute

// probe is the command that doctor runs: builtins alone but for id, so that it runs in the barest sandbox. It says where
// it really ran, whatever the settings say, and which variables a command has there.
const probe = `printf '%s\n' "$HOSTNAME" "$(id -un 2>/dev/null || printf %s "$EUID")" "$$" "$BASH_VERSION" "$PWD"; compgen -e`

// verdict says how a check came out.
type verdict string

const (
	good    verdict = "ok"
	fixed   verdict = "fixed" // it was wrong, and --fix mended it
	warning verdict = "warning"
	broken  verdict = "broken"
	absent  verdict = "unavailable" // of a backend that nobody asked for: nothing is wrong with that
)

// check is one thing that doctor looked at.
type check struct {
	State  verdict `json:"state"`
	Name   string  `json:"name"`
	Detail string  `json:"detail"`
	Hint   *string `json:"hint"`
}

// report is what doctor found; broken is true where a check is.
type report struct {
	Schema   int             `json:"schema"`
	Broken   bool            `json:"broken"`
	Home     string          `json:"home"`
	Checks   []check         `json:"checks"` // of the settings and the home
	Backends []backendReport `json:"backends"`
}

// backendReport is what doctor found on one backend.
type backendReport struct {
	Backend    string           `json:"backend"`
	Configured bool             `json:"configured"`
	Summary    string           `json:"summary"`
	Where      *elsewhere.Where `json:"where"`
	Bash       string           `json:"bash"`
	Checks     []check          `json:"checks"`
	Features   []driver.Feature `json:"features"`
	Sandboxes  []inspected      `json:"sandboxes"` // the kept ones that run
}

func (a *app) cmdDoctor() *cobra.Command {
	var t target
	var asJSON, mend bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Test the backends for real and say what is in force",
		Long: `Look at the settings and HERMES_HOME, and run a command on the backend that is configured (or that of -b), and on those that
make nothing for it, that shows where it really ran; print which isolation and limits are active, degraded or unsupported there.

The kept sandboxes that run are listed, each with what is in force in it otherwise than the settings say now. A backend that is not configured and whose engine is
not here is "unavailable", which is no fault.

--fix first mends what is safe to mend: modes of HERMES_HOME, of what elsewhere keeps there and of .env, sockets there that nobody
listens on, and what dead processes left on this machine.

Exit code: 1 where something is broken: settings that cannot be read, or a backend that is configured, or named by -b,
and cannot run a command. Warnings do not count.`,
		Example: `  elsewhere doctor
  elsewhere doctor --fix
  elsewhere doctor -b local --json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.check(); err != nil {
				return err
			}
			ctx, in, stop := a.interruptible(cmd.Context())
			defer stop()
			r := a.examine(ctx, t, mend)
			if sig := in.signal(); sig != 0 {
				return exitStatus(128 + int(sig))
			}
			if err := a.printReport(r, asJSON); err != nil {
				return err
			}
			if r.Broken {
				return exitStatus(1)
			}
			return nil
		},
	}
	t.addBackend(a, cmd)
	t.addSet(a, cmd)
	cmd.Flags().BoolVar(&mend, "fix", false, "mend what is safe to mend")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// examine does all checks; with mend it first mends what it may.
func (a *app) examine(ctx context.Context, t target, mend bool) *report {
	r := &report{Schema: resultjson.Schema, Checks: []check{}, Backends: []backendReport{}}
	cfg, err := a.load(&t)
	if err != nil {
		r.add(&r.Checks, failed("settings", err))
		return r
	}
	r.Home = cfg.Home()
	if mend {
		for _, c := range a.fix(ctx, t, cfg.Home()) {
			r.add(&r.Checks, c)
		}
		if cfg, err = a.load(&t); err != nil { // its warnings are of before
			r.add(&r.Checks, failed("settings", err))
			return r
		}
	}
	for _, text := range cfg.Warnings() {
		r.add(&r.Checks, check{State: warning, Name: "settings", Detail: text})
	}
	if len(cfg.Warnings()) == 0 {
		r.add(&r.Checks, check{State: good, Name: "settings", Detail: "nothing is odd, and no two origins disagree"})
	}
	if where := cfg.HermesAllowlist(); where != "" {
		instead := "what is to run without a question goes into policy.rules or policy.allow (docs/policy.md)"
		r.add(&r.Checks, check{State: warning, Name: "policy", Detail: "command_allowlist (" + where + ") is Hermes' own and is not read: its entries name patterns of Hermes', and would allow more here than they say",
			Hint: &instead})
	}
	for _, c := range checkHome(cfg.Home()) {
		r.add(&r.Checks, c)
	}
	r.examineBackend(ctx, a, cfg, t, true)
	if t.backend != "" {
		return r
	}
	for _, b := range cfg.Backends() {
		if own, err := cfg.Backend(""); b.Open == nil || err == nil && own.Name == b.Name {
			continue
		}
		other := t
		other.backend = b.Name
		if cfg, err := a.load(&other); err == nil {
			r.examineBackend(ctx, a, cfg, other, false)
		}
	}
	return r
}

func (r *report) add(to *[]check, c check) {
	r.Broken = r.Broken || c.State == broken
	*to = append(*to, c)
}

// failed is a check that an error ended.
func failed(name string, err error) check {
	e := resultjson.NewError(err)
	return check{State: broken, Name: name, Detail: e.Message, Hint: e.Hint}
}

// checkHome looks at HERMES_HOME, at what elsewhere keeps there, and at what dead processes left.
func checkHome(home string) []check {
	const name = "home"
	hint := func(text string) *string { return &text }
	if home == "" {
		return []check{{State: warning, Name: name, Detail: "there is no HERMES_HOME: no named sessions, no audit log",
			Hint: hint("set HOME or HERMES_HOME")}}
	}
	info, err := os.Stat(home)
	if err != nil {
		return []check{{State: good, Name: name, Detail: home + " is not there yet; it is made when it is needed"}}
	}
	checks := []check{checkMode(home, info, 0o022, "chmod go-w ")}
	if err := writable(home); err != nil {
		checks = append(checks, check{State: warning, Name: name, Detail: fmt.Sprintf("%s cannot be written to (%v): no named sessions, no audit log", home, unwrapPath(err)),
			Hint: hint("make it writable for you, or choose another HERMES_HOME")})
	}
	own := filepath.Join(home, "elsewhere")
	if info, err := os.Stat(own); err == nil {
		checks = append(checks, checkMode(own, info, 0o077, "chmod 700 "))
	}
	dead, err := leftBehind(home)
	if err != nil {
		checks = append(checks, check{State: warning, Name: "leftovers", Detail: err.Error()})
	}
	if len(dead) > 0 {
		checks = append(checks, check{State: warning, Name: "leftovers",
			Detail: fmt.Sprintf("%d of elsewhere's processes died without cleaning up; the next `elsewhere run` removes what they left", len(dead))})
	}
	return checks
}

// checkMode warns where others can do with a directory what the mask says.
func checkMode(dir string, info fs.FileInfo, mask fs.FileMode, mend string) check {
	c := check{State: good, Name: "home", Detail: fmt.Sprintf("%s has mode %04o", dir, info.Mode().Perm())}
	if runtime.GOOS != "windows" && info.Mode().Perm()&mask != 0 {
		mend += dir
		c.State, c.Detail, c.Hint = warning, c.Detail+": others can use it", &mend
	}
	return c
}

// writable tells by a file whether a directory can be written to: a mode says little to root and on a full disk.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".elsewhere-doctor-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	_ = os.Remove(f.Name())
	return err
}

// examineBackend opens a backend and runs the probe there.
func (r *report) examineBackend(ctx context.Context, a *app, cfg *config.Config, t target, configured bool) {
	b := backendReport{Backend: cfg.Name(), Configured: configured, Checks: []check{}, Features: []driver.Feature{}, Sandboxes: []inspected{}}
	asked, keeps := "run", false
	if d, err := cfg.Backend(""); err == nil {
		b.Summary = d.Summary
		if d.Keeper != nil {
			asked, keeps = "engine", true
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	if err := a.askWithin(ctx, cfg); err != nil {
		c := failed(asked, err)
		if !configured {
			c.State = absent
		}
		r.add(&b.Checks, c)
	} else {
		if keeps && !configured {
			// A command there may first pull an image that nobody asked for.
			r.add(&b.Checks, check{State: good, Name: asked, Detail: "it answers; `elsewhere doctor -b " + cfg.Name() + "` runs a command there"})
		} else if err := b.run(ctx, a, cfg, t, r); err != nil {
			c := failed("run", err)
			if !configured {
				c.State = warning
			}
			r.add(&b.Checks, c)
		}
		b.look(ctx, a, cfg, r)
	}
	r.Backends = append(r.Backends, b)
}

// askWithin tells whether a backend could be used, in a time that an engine that hangs cannot make longer.
func (a *app) askWithin(ctx context.Context, cfg *config.Config) error {
	_, err := within(ctx, askWait, func(ctx context.Context) (struct{}, error) { return struct{}{}, a.ask(ctx, cfg, cfg.Name()) })
	if errors.Is(err, errNoAnswer) {
		return silent("ask the engine", cfg.Name(), err)
	}
	return err
}

// look adds the kept sandboxes that run, as the engine has them.
func (b *backendReport) look(ctx context.Context, a *app, cfg *config.Config, r *report) {
	const name = "sandboxes"
	if d, err := cfg.Backend(""); err != nil || d.Keeper == nil || cfg.Home() == "" {
		return
	}
	answer := a.list(ctx, cfg, cfg.Name(), reachWait)
	if answer.all != nil {
		defer a.closing("backend", func(context.Context) error { return answer.all.Close() })
	}
	if answer.err != nil {
		c := failed(name, answer.err)
		c.State = warning
		r.add(&b.Checks, c)
		return
	}
	sessions, _ := elsewhere.Sessions(cfg.Home())
	ctx, cancel := context.WithTimeout(ctx, reachWait) // of all together
	defer cancel()
	for _, info := range answer.infos {
		if info.State != driver.StateRunning && info.State != driver.StatePaused {
			continue
		}
		box := keptBox{SandboxInfo: info, all: answer.all}
		d, err := within(ctx, reachWait, func(ctx context.Context) (driver.SandboxDetail, error) { return answer.all.Inspect(ctx, info.Task) })
		if err != nil {
			c := failed(name, fmt.Errorf("%s: %w", box.address(), err))
			c.State = warning
			r.add(&b.Checks, c)
			continue
		}
		b.Sandboxes = append(b.Sandboxes, newInspected(box, d, box.sessions(sessions)))
	}
	r.add(&b.Checks, check{State: good, Name: name, Detail: fmt.Sprintf("%d kept, of which %d run", len(answer.infos), len(b.Sandboxes))})
}

func (b *backendReport) run(ctx context.Context, a *app, cfg *config.Config, t target, r *report) error {
	sandbox, err := a.open(ctx, cfg, t, true)
	if err != nil {
		return err
	}
	defer a.closing("sandbox", sandbox.Close)
	b.Features = append(b.Features, sandbox.Info().Features...)
	r.add(&b.Checks, guardCheck(sandbox.Guarded()))
	session, err := sandbox.Session(ctx, "")
	if err != nil {
		return err
	}
	defer a.closing("session", session.Close)
	res, err := session.Run(ctx, probe, &elsewhere.RunOptions{Split: true, Dir: "/"})
	if err != nil {
		return err
	}
	lines := strings.Split(string(res.Stdout), "\n")
	if res.ExitCode != 0 || len(lines) < 5 {
		return &elsewhere.Error{Kind: driver.KindUnavailable, Op: "run", Backend: b.Backend, Hint: "see what it printed",
			Err: fmt.Errorf("a simple command ended with %s %d and printed %q and %q", res.Cause, res.ExitCode, shorten(res.Stdout), shorten(res.Stderr))}
	}
	where := res.Where
	b.Where, b.Bash = &where, lines[3]
	r.add(&b.Checks, check{State: good, Name: "run", Detail: fmt.Sprintf("a command ran on host %s as user %s: process %s, bash %s, %d ms",
		lines[0], lines[1], lines[2], lines[3], res.Duration.Milliseconds())})
	for _, text := range res.Notices {
		r.add(&b.Checks, check{State: warning, Name: "notice", Detail: text})
	}
	service := ""
	if d, err := cfg.Backend(""); err == nil {
		service = d.Name
	}
	if found := blocked(lines[5:], cfg.Strings("env_passthrough"), service); len(found) > 0 {
		from, hint := "the login profile", "take them out of the profile, or set terminal.scrub_profile to true"
		if !sandbox.Info().Exposure.Here { // scrub_profile is local's
			from, hint = "its image or a login file there", "take them out of it"
		}
		r.add(&b.Checks, check{State: warning, Name: "secrets", Hint: &hint, Detail: "commands can read these, which come from " + from + ": " + strings.Join(found, ", ")})
	}
	return nil
}

// guardCheck says whether the policy looks at commands there.
func guardCheck(guarded bool, why string) check {
	return check{State: good, Name: "policy", Detail: (&guarding{guarded, why}).String()}
}

// blocked are the names among names that the caller's environment would not have handed on. A service sets some of its own family in its
// sandboxes (DAYTONA_SANDBOX_ID), of which only a credential counts.
func blocked(names, allowed []string, service string) []string {
	own := strings.ToUpper(service) + "_"
	credential := func(name string) bool {
		return slices.ContainsFunc([]string{"TOKEN", "SECRET", "KEY", "PASSWORD"}, func(word string) bool { return strings.Contains(name, word) })
	}
	var found []string
	for _, name := range names {
		if !scrub.Blocked(name) || slices.Contains(allowed, name) || strings.HasPrefix(name, own) && !credential(name) {
			continue
		}
		found = append(found, name)
	}
	return found
}

func shorten(text []byte) string {
	const most = 200
	if len(text) > most {
		return string(text[:most]) + "..."
	}
	return string(text)
}

func (a *app) printReport(r *report, asJSON bool) error {
	if asJSON {
		return a.printJSON(r)
	}
	out := newTable(a.out)
	print := func(checks []check) {
		for _, c := range checks {
			detail := c.Detail
			if c.Hint != nil {
				detail += "; " + *c.Hint
			}
			out.row(string(c.State), c.Name, detail)
		}
	}
	out.line("settings")
	print(r.Checks)
	for _, b := range r.Backends {
		head := "backend " + b.Backend
		if b.Configured {
			head += " (configured)"
		}
		out.line("")
		out.line(head + ": " + b.Summary)
		print(b.Checks)
		for _, f := range b.Features {
			out.row(string(f.State), f.Name, f.Detail)
		}
		for _, s := range b.Sandboxes {
			out.line("")
			out.line(fmt.Sprintf("sandbox %s: %s, %s on host %s as user %s", s.Address, s.State, oneLine(s.SandboxID), oneLine(s.Host), oneLine(s.User)))
			same := true
			for _, f := range s.Features {
				if !told(b.Features, f) {
					same = false
					out.row(string(f.State), f.Name, f.Detail)
				}
			}
			if same {
				out.line("all that its engine tells of it is as above")
			}
		}
	}
	return a.written(out.print())
}

// ownPlaces are features whose detail is a directory of each sandbox's own.
var ownPlaces = []string{"data", "persistence", "overlay"}

// told tells whether a feature of a kept sandbox is what was said of the backend: then it need not be said again.
func told(of []driver.Feature, f driver.Feature) bool {
	return slices.ContainsFunc(of, func(o driver.Feature) bool {
		return o.Name == f.Name && o.State == f.State && (o.Detail == f.Detail || f.State == driver.Unsupported || slices.Contains(ownPlaces, f.Name))
	})
}
