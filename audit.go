package elsewhere

import (
	"path/filepath"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/audit"
)

// openAudit opens HERMES_HOME/elsewhere/audit.jsonl, unless it is off or there is no home. A file that cannot be written is
// said once and never stops a call.
func (sb *Sandbox) openAudit() {
	if sb.home == "" || !sb.cfg.Bool("audit") {
		return
	}
	log, err := audit.Open(filepath.Join(sb.home, "elsewhere", "audit.jsonl"), nil)
	if err != nil {
		sb.say("no audit record is kept: " + err.Error())
		return
	}
	sb.auditLog = log
}

// audit writes the record of one call.
func (c *call) audit(r *Result) {
	var code *int
	if r.ExitCode >= 0 {
		code = &r.ExitCode
	}
	err := c.s.sb.auditLog.Write(audit.Record{
		Time: time.Now(), ID: r.CallID, Backend: r.Backend, Where: audit.Where(r.Where), Task: r.Task, Session: r.Session,
		Policy: c.policy, Cause: string(r.Cause), ExitCode: code, Bytes: r.OutputBytes, Duration: r.Duration, Command: c.command,
	})
	if err != nil {
		r.Notices = append(r.Notices, "no audit record was written: "+err.Error())
	}
	c.s.sb.log.Debug("call ended", "id", r.CallID, "backend", r.Backend, "task", r.Task, "session", r.Session, "cause", r.Cause,
		"exit_code", r.ExitCode, "duration", r.Duration, "bytes", r.OutputBytes)
}
