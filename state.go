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
func (sb *Sandbox) slotPath(private bool, id string) string {
	if private {
		return path.Join(sb.info.PrivateDir, id)
	}
	return path.Join(sb.info.StateDir, id)
}

// removeState removes state files that nobody needs any more, outside of calls; where the driver cannot, the next bash
// truncates them.
func (sb *Sandbox) removeState(paths ...string) {
	if len(paths) == 0 {
		return
	}
	if remover, ok := sb.drv.(driver.StateRemover); ok {
		if err := remover.RemoveState(context.Background(), paths); err != nil {
			sb.log.Debug("state files were not removed", "error", err)
		}
		return
	}
	sb.mu.Lock()
	sb.drop = append(sb.drop, paths...)
	sb.mu.Unlock()
}

// dropped returns the state files that the next bash is to truncate.
func (sb *Sandbox) dropped() []string {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	drop := sb.drop
	sb.drop = nil
	return drop
}
