package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/audit"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// guard is the one place where commands and paths are looked at before anything is done with them. What it finds is package
// policy's; here is where it is asked, with what is known of the place, and what comes of it.
type guard struct {
	on   bool   // commands are checked
	why  string // they are, or are not
	deny bool   // the user's own patterns are looked at although nothing else is
	here bool   // paths are this machine's
	base policy.Context
	off  bool // nobody is asked
}

// Policy decisions, as the audit has them.
const (
	notChecked = "not checked"
	allowed    = "allow"
)

// switchedOff is why nothing is looked at where the user wants that.
const switchedOff = "policy.enabled is false"

// exposed is what package policy wants to know of a place of this backend's.
func exposed(backend string, e driver.Exposure) policy.Sandbox {
	seen := policy.Sandbox{
		Backend: backend, Machine: e.Machine, Devices: e.Devices, HostNetwork: e.HostNetwork, HostPID: e.HostPID,
		Privileged: e.Privileged, EngineSocket: e.EngineSocket,
	}
	for _, m := range e.Mounts {
		seen.Mounts = append(seen.Mounts, policy.Mount(m))
	}
	return seen
}

// newGuard makes the guard of a place, for what its engine says can be reached from it.
func (sb *Sandbox) newGuard(info driver.Info) guard {
	cfg := sb.cfg
	if !cfg.Bool("policy.enabled") {
		return guard{why: switchedOff}
	}
	e := info.Exposure
	g := guard{here: e.Here, off: cfg.String("approvals.mode") == "off" || cfg.Bool("approvals.yolo")}
	seen := exposed(sb.back.Name, e)
	g.on, g.why = policy.Guarded(seen)
	deny := cfg.Strings("approvals.deny")
	if g.deny = !g.on && len(deny) > 0; !g.on && !g.deny {
		return g
	}
	g.base = policy.Context{Home: info.Home, User: sb.rules, Deny: deny, Workspace: []string{info.Dir}, NetworkAlone: policy.NetworkAlone(seen)}
	for _, dir := range cfg.Strings("policy.workspace") {
		g.base.Workspace = append(g.base.Workspace, g.absolute(dir, info.Dir))
	}
	for _, p := range cfg.Strings("policy.blocked_paths") {
		g.base.Blocked = append(g.base.Blocked, g.absolute(p, info.Home))
	}
	if e.Here {
		g.lookHere(sb.hermes, info.Dir, sb.request.Environ)
		return g
	}
	for _, name := range cfg.Strings("credential_files") {
		g.base.Given = append(g.base.Given, path.Join(info.Home, ".hermes", name))
	}
	return g
}

// temporary are directories for temporary files, where a command may do as it likes.
var temporary = []string{"/tmp", "/var/tmp", "/private/tmp"}

// lookHere adds what is known of this machine's files: rules compare paths as they are written, so what links lead to stands beside
// them.
func (g *guard) lookHere(home, dir string, environ []string) {
	if real, err := filepath.EvalSymlinks(fromBash(dir)); err == nil {
		g.base.Workspace = append(g.base.Workspace, toBash(real))
	}
	g.base.Temp = slices.Clone(temporary)
	for _, entry := range environ {
		if t, ok := strings.CutPrefix(entry, "TMPDIR="); ok && filepath.IsAbs(t) {
			g.base.Temp = append(g.base.Temp, toBash(filepath.Clean(t)))
		}
	}
	if home == "" {
		return
	}
	g.base.HermesHome = toBash(home)
	for _, name := range secrets {
		file := filepath.Join(home, name)
		if real, err := filepath.EvalSymlinks(file); err == nil && real != file {
			g.base.Blocked = append(g.base.Blocked, toBash(real))
		}
	}
}

// secrets are what HERMES_HOME holds that no command has to see or to change; its own rules say so where they are not links.
var secrets = []string{
	".env", "auth.json", "mcp-tokens", "config.yaml", "elsewhere/policy.json", "elsewhere/audit.jsonl", "elsewhere/identity",
	"elsewhere/owners", "elsewhere/sessions", "elsewhere/state",
}

// fromBash and toBash turn a path of this machine into that of its bash and back, which differ on Windows alone.
func toBash(file string) string {
	file = filepath.ToSlash(file)
	if runtime.GOOS == "windows" && len(file) > 1 && file[1] == ':' {
		return "/" + strings.ToLower(file[:1]) + file[2:]
	}
	return file
}

func fromBash(file string) string {
	if runtime.GOOS == "windows" && len(file) > 2 && file[0] == '/' && file[2] == '/' {
		return filepath.FromSlash(file[1:2] + ":" + file[2:])
	}
	return file
}

// absolute is a path of the place from its root on.
func (g *guard) absolute(name, dir string) string {
	switch {
	case name == "~":
		return g.base.Home
	case strings.HasPrefix(name, "~/"):
		return path.Join(g.base.Home, name[2:])
	case path.IsAbs(name):
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// Guarded tells whether commands and paths are looked at before they are used here, and why, in a few words.
func (sb *Sandbox) Guarded() (guarded bool, why string) {
	g := &sb.at().guard
	return g.on, g.why
}

// maxMoves is how often a command is looked at whose directory changes while somebody is asked about it.
const maxMoves = 3

// permitCommand says whether a command may run in the session's directory, or in dir. verdict is what the audit says; an error is an
// *Error, of the kind denied with a *Denial, and nothing may be done then.
func (s *Session) permitCommand(ctx context.Context, op, command, dir string, env map[string]string) (verdict string, err error) {
	p := s.sb.at()
	if !p.guard.on && !p.guard.deny {
		return notChecked, nil
	}
	for moves := 0; ; moves++ {
		at, err := s.whereNow(ctx, p, dir, env)
		if err != nil {
			return "", err
		}
		q := PolicyQuestion{Op: op, Session: s.name, Command: command, Dir: at.Cwd}
		verdict, asked, err := s.sb.permit(ctx, p, s.answers, q, func(known policy.Answers) (policy.Decision, error) {
			at.Answers = known
			return policy.Check(command, at), nil
		})
		if err != nil || asked.Action == policy.Allow {
			return verdict, err
		}
		// Another call may have changed the directory meanwhile: then the answer was about another one.
		now, err := s.whereNow(ctx, p, dir, env)
		switch {
		case err != nil:
			return "", err
		case now.Cwd == at.Cwd:
			return verdict, nil
		case moves == maxMoves:
			return "denied: " + asked.Rule, s.sb.refuse(p, q, asked, refusal{why: "the session's directory changes each time that it is asked about"})
		}
	}
}

// whereNow is where a command of the session, or one with a directory of its own, would run.
func (s *Session) whereNow(ctx context.Context, p *place, dir string, env map[string]string) (policy.Context, error) {
	// The directory is the session's when the state of its last call is written. A failure is a notice of the next result.
	_ = s.Flush(ctx)
	_, cwd, err := s.current()
	at := p.guard.base
	if at.Cwd = cwd; dir != "" {
		at.Cwd = p.guard.absolute(dir, cwd)
	}
	at.Workspace = append(slices.Clip(at.Workspace), s.start)
	at.Env = knownPaths(p.info.CallEnv, env)
	return at, err
}

// knownPaths are those of a call's variables that are paths. Rules compare nothing else, and a secret has no place in what is
// remembered of a question.
func knownPaths(all ...map[string]string) map[string]string {
	var paths map[string]string
	for _, env := range all {
		for name, value := range env {
			if !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "~") && !strings.HasPrefix(value, ".") {
				continue
			}
			if paths == nil {
				paths = map[string]string{}
			}
			paths[name] = value
		}
	}
	return paths
}

// permitInput says whether a text may be given to a job. It may be a shell's, so that what would be a dangerous command is one; it may
// be anything else, so that what bash would not read is none.
func (sb *Sandbox) permitInput(ctx context.Context, job, text string) (verdict string, err error) {
	p := sb.at()
	if !p.guard.on && !p.guard.deny {
		return notChecked, nil
	}
	at := p.guard.base
	q := PolicyQuestion{Op: "job send", Command: text}
	verdict, _, err = sb.permit(ctx, p, sb.answers, q, func(known policy.Answers) (policy.Decision, error) {
		at.Answers = known
		return policy.Check(text, at).Only(func(f policy.Finding) bool { return f.Rule != "unparseable" && f.Rule != "too-complex" }), nil
	})
	return verdict, err
}

// permit decides: what is blocked does not run, what is asked about runs when somebody agrees. check looks, with what was agreed to;
// asked is the decision that somebody agreed to, or one that allows.
func (sb *Sandbox) permit(ctx context.Context, p *place, who *answers, q PolicyQuestion, check func(policy.Answers) (policy.Decision, error)) (verdict string, asked policy.Decision, err error) {
	asked.Action = policy.Allow
	d, err := check(who)
	if err != nil {
		return "", asked, err
	}
	if !p.guard.on {
		d = d.Only(func(f policy.Finding) bool { return f.Rule == policy.Denied })
	}
	switch {
	case d.Action == policy.Allow:
		return allowed, asked, nil
	case d.Action == policy.Block:
		return "denied: " + d.Rule, asked, sb.refuse(p, q, d, refusal{})
	case p.guard.off:
		return "not asked: " + d.Rule, asked, nil
	}
	sb.noteAllowlist(d.Rule)
	q.Backend, q.Task, q.Where = sb.backend, sb.task, p.where()
	answer, no, err := sb.askUser(ctx, q, d)
	if err != nil {
		return "", asked, err
	}
	if answer == ApproveNot {
		return "denied: " + d.Rule, asked, sb.refuse(p, q, d, no)
	}
	if notice := who.remember(d, answer); notice != "" {
		sb.say(notice)
	}
	// What is there now has to be what was agreed to.
	switch again, err := check(granted{who, d.Findings}); {
	case err != nil:
		return "", asked, err
	case again.Action != policy.Allow:
		return "denied: " + again.Rule, asked, sb.refuse(p, q, again, refusal{why: "the answer was about something else"})
	}
	return "asked: " + string(answer) + ": " + d.Rule, d, nil
}

// noteAllowlist says once, when something is asked about, that what Hermes always allows is not read, and what to write instead.
func (sb *Sandbox) noteAllowlist(rule string) {
	if sb.allowlist == "" || sb.allowlistTold.Swap(true) {
		return
	}
	instead := "policy.allow: [COMMAND]"
	if policy.Lookup(rule) != nil {
		instead = "policy.rules: {" + rule + ": allow}, or for one command " + instead
	}
	sb.say("command_allowlist (" + sb.allowlist + ") is Hermes' own and is not read: its entries name patterns of Hermes', and would allow more here than they say; to run this without a question write " + instead)
}

// refuse makes the error of what may not be done.
func (sb *Sandbox) refuse(p *place, q PolicyQuestion, d policy.Decision, no refusal) error {
	hint := d.Hint
	if d.Action == policy.Ask && no.nobody {
		hint = "run it where you can be asked (elsewhere on a terminal, an MCP client that asks), or allow the rule in the settings: policy.rules." + d.Rule + ": allow"
		if policy.Lookup(d.Rule) == nil {
			hint = d.Hint
		}
	}
	denial := &Denial{Rule: d.Rule, Reason: d.Reason, Where: d.Where, Blocked: d.Action == policy.Block, Why: no.why}
	sb.log.Info("denied", "op", q.Op, "backend", sb.backend, "task", sb.task, "session", q.Session, "rule", d.Rule)
	return wrap(denial, driver.KindDenied, q.Op, sb.backend, sb.task, hint)
}

// auditDenied writes the record of what is no call and was refused.
func (sb *Sandbox) auditDenied(session, what, verdict string, err error) {
	if !errors.Is(err, ErrDenied) {
		return
	}
	werr := sb.auditLog.Write(audit.Record{
		Time: time.Now(), ID: bashscript.NewID(), Backend: sb.backend, Where: audit.Where(sb.Where()), Task: sb.task, Session: session,
		Policy: verdict, Cause: string(Denied), Command: what,
	})
	if werr != nil {
		sb.say("no audit record was written: " + werr.Error())
	}
}

// denied is the result of a call that may not run.
func (c *call) denied() *Result {
	s, p := c.s, c.s.sb.at()
	r := &Result{
		CallID: bashscript.NewID(), Backend: s.sb.backend, Task: s.sb.task, Session: s.name, Where: p.where(),
		Split: c.opts.Split, ExitCode: -1, Cause: Denied, Cwd: s.Cwd(), Notices: s.takeNotices(),
	}
	c.audit(r)
	return r
}

// answersOf makes what remembers answers: of a session, or of none.
func (sb *Sandbox) answersOf(s *Session) *answers {
	return &answers{store: policy.NewStore(sb.home), session: s}
}

// takePolicy takes what the guard needs of the settings. An error names the setting that cannot be meant.
func (sb *Sandbox) takePolicy(view *config.Config, opts *SandboxOptions) (err error) {
	sb.hermes, sb.approve, sb.answers, sb.allowlist = view.Home(), opts.Approve, sb.answersOf(nil), view.HermesAllowlist()
	wrong := func(key string, err error) error {
		return wrap(fmt.Errorf("%s (%s): %w", key, view.Origin(key), err), driver.KindConfig, "open", sb.backend, "", "correct it; docs/policy.md says how rules are written")
	}
	actions := view.StringMap("policy.rules")
	for _, name := range slices.Sorted(maps.Keys(actions)) {
		rule := policy.UserRule{Rule: name, Action: policy.Action(actions[name])}
		if err := rule.Validate(); err != nil {
			return wrong("policy.rules", err)
		}
		sb.rules = append(sb.rules, rule)
	}
	for _, action := range []policy.Action{policy.Allow, policy.Ask, policy.Block} {
		key := "policy." + string(action)
		for _, command := range view.Strings(key) {
			rule, err := policy.ParseRule(command, action)
			if err != nil {
				return wrong(key, err)
			}
			sb.rules = append(sb.rules, rule)
		}
	}
	return nil
}
