package elsewhere

import (
	"context"
	"path"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// stateRef is one version of a session's state: a file that a bash wrote to its end. A path of "" stands for no state: the
// environment with which a bash was started. It is never changed; which one is current is the session's knowledge.
type stateRef struct {
	path    string
	private bool // in Info.PrivateDir, gone with this process
}

// slotPath is where the call with this id writes its state.
func (p *place) slotPath(private bool, id string) string {
	if private {
		return path.Join(p.info.PrivateDir, id)
	}
	return path.Join(p.info.StateDir, id)
}

// removeState removes state files that nobody needs any more, outside of calls; where the driver cannot, the next bash
// truncates them.
func (p *place) removeState(paths ...string) {
	if len(paths) == 0 {
		return
	}
	if remover, ok := p.drv.(driver.StateRemover); ok {
		if err := remover.RemoveState(context.Background(), paths); err != nil {
			p.sb.log.Debug("state files were not removed", "error", err)
		}
		return
	}
	p.mu.Lock()
	p.drop = append(p.drop, paths...)
	p.mu.Unlock()
}

func (sb *Sandbox) removeState(paths ...string) { sb.at().removeState(paths...) }

// dropped returns the state files that the next bash is to truncate.
func (p *place) dropped() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	drop := p.drop
	p.drop = nil
	return drop
}
