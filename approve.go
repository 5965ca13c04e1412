package elsewhere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// PolicyQuestion is what SandboxOptions.Approve is asked.
type PolicyQuestion struct {
	// Op is what was to be done: "run", "shell", "job start", "job send", "upload", "download", "read", "write" or "sync".
	Op string
	// Backend, Task and Session say where; Session is "" for a throw-away session and for what belongs to none.
	Backend string
	Task    string
	Session string
	Where   Where
	// Command is the whole text, or the path of a file.
	Command string
	// Dir is the directory in which it would run; "" where it is not known.
	Dir string
	// Findings are what somebody has to agree to, at least one.
	Findings []PolicyFinding
	// Lasts says that an answer can count for longer than this once: all that matters is known now. Without it every answer is Once.
	Lasts bool
}

// PolicyFinding is one rule that fits.
type PolicyFinding struct {
	Rule   string
	Reason string // why, without a full stop
	Where  string // the offending part of the command, as written
}

// PolicyAnswer is what was answered. The zero is no.
type PolicyAnswer string

// The answers. A longer one is remembered with the rule, the command as bash would run it and its directory: the same command with
// another argument is asked about again.
const (
	ApproveNot     PolicyAnswer = ""
	ApproveOnce    PolicyAnswer = "once"
	ApproveSession PolicyAnswer = "session" // as long as the session lives; of a named one also for later processes
	ApproveAlways  PolicyAnswer = "always"  // kept in HERMES_HOME/elsewhere/policy.json
)

// Denial is why a policy refused: errors.As finds it in an *Error of the kind denied.
type Denial struct {
	Rule    string // the first of those that fit
	Reason  string
	Where   string // the offending part of the command
	Blocked bool   // no answer could have helped
	Why     string // why nobody agreed; "" where it is blocked
}

// Error gives the rule, what it is about, and why it stands.
func (d *Denial) Error() string {
	verb := "asks before"
	if d.Blocked {
		verb = "blocks"
	}
	text := "rule " + d.Rule + " " + verb + " `" + d.Where + "`: " + d.Reason
	if d.Why != "" {
		text += "; " + d.Why
	}
	return text + "; nothing ran"
}

// answers is where a session remembers what was agreed to.
type answers struct {
	store   *policy.Store
	session *Session // nil for what belongs to no session: there an answer counts once or always
}

// Allowed makes it policy.Answers.
func (a *answers) Allowed(f policy.Finding) bool {
	if a.store.Allowed(f) {
		return true
	}
	if s := a.session; s != nil && s.file != nil && f.Fixed && f.Action == policy.Ask {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Contains(s.file.data.Agreed, agreedTo(f))
	}
	return false
}

// agreed is something that was agreed to for a named session.
type agreed struct {
	Rule    string `json:"rule"`
	Command string `json:"command"`
	Dir     string `json:"dir,omitempty"`
}

func agreedTo(f policy.Finding) agreed { return agreed{f.Rule, f.Command, f.Dir} }

// maxAgreed is how many such answers a session keeps.
const maxAgreed = 200

// remember keeps an answer that lasts, so that later checks of the same command find it. One for this once is in nobody's memory, from
// which another call could take it: it is the call's own (granted).
func (a *answers) remember(d policy.Decision, answer PolicyAnswer) (notice string) {
	if answer == ApproveOnce || answer == ApproveSession && a.session == nil {
		return ""
	}
	err := a.store.Remember(d.Only(func(f policy.Finding) bool { return f.Fixed }), policy.Scope(answer))
	if err == nil && answer == ApproveSession && a.session.file != nil {
		err = a.session.agree(d)
	}
	if err != nil {
		return "the answer is not kept: " + err.Error()
	}
	return ""
}

// granted are the answers of one call that was agreed to: what is known anyway, and that decision.
type granted struct {
	policy.Answers
	agreed []policy.Finding
}

// Allowed makes it policy.Answers.
func (g granted) Allowed(f policy.Finding) bool {
	return g.Answers.Allowed(f) || slices.ContainsFunc(g.agreed, func(a policy.Finding) bool {
		return a.Action == policy.Ask && agreedTo(a) == agreedTo(f)
	})
}

// agree writes what was agreed to into a named session's file.
func (s *Session) agree(d policy.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What others did to the session is read here, and taken over by the next reload.
	defer func() { s.file.seen = nil }()
	return s.file.locked(func() error {
		if err := s.file.read(); err != nil {
			return err
		}
		for _, f := range d.Findings {
			if one := agreedTo(f); f.Fixed && f.Action == policy.Ask && !slices.Contains(s.file.data.Agreed, one) {
				s.file.data.Agreed = append(s.file.data.Agreed, one)
			}
		}
		s.file.data.Agreed = s.file.data.Agreed[max(0, len(s.file.data.Agreed)-maxAgreed):]
		return s.file.write()
	})
}

// refusal is why nobody agreed. The zero is of what no answer would have helped.
type refusal struct {
	why    string
	nobody bool // could be asked
}

// askUser asks whoever can be asked. no says why the answer is no.
func (sb *Sandbox) askUser(ctx context.Context, q PolicyQuestion, d policy.Decision) (answer PolicyAnswer, no refusal, err error) {
	if sb.approve == nil {
		return ApproveNot, refusal{why: "there is nobody to ask", nobody: true}, nil
	}
	q.Lasts = true
	for _, f := range d.Findings {
		q.Findings = append(q.Findings, PolicyFinding{f.Rule, f.Reason, f.Where})
		q.Lasts = q.Lasts && f.Fixed
	}
	limit := sb.cfg.Duration("approvals.timeout")
	actx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err = sb.approve(actx, q)
	switch {
	case ctx.Err() != nil:
		return ApproveNot, no, wrap(ctx.Err(), driver.KindCanceled, q.Op, sb.backend, sb.task, "")
	case errors.Is(actx.Err(), context.DeadlineExceeded):
		return ApproveNot, refusal{why: fmt.Sprintf("nobody answered within %v (approvals.timeout)", limit.Round(time.Millisecond))}, nil
	case err != nil:
		return ApproveNot, refusal{why: err.Error(), nobody: errors.Is(err, errors.ErrUnsupported)}, nil
	case answer == ApproveNot:
		return ApproveNot, refusal{why: "the answer was no"}, nil
	case answer != ApproveOnce && answer != ApproveSession && answer != ApproveAlways:
		return ApproveNot, refusal{why: fmt.Sprintf("the answer %q means nothing", answer)}, nil
	case !q.Lasts:
		return ApproveOnce, no, nil
	}
	return answer, no, nil
}
