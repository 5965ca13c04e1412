package modal

import (
	"context"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

// stateFiles are those of a sandbox whose info is known, with what the opening saw of them.
func (s *sandbox) stateFiles(found []driver.StateFile) *statescript.Files {
	return statescript.New(statescript.Options{
		State: s.info.StateDir, Private: s.info.PrivateDir, Found: found, Run: s.run, Behind: s.behind, Closing: s.ctx,
		Failed: func(err error) {
			s.log.Debug("state files were not removed", "sandbox", s.info.SandboxID, "error", err)
		},
	})
}

// RemoveState takes files for removal, which follows behind the calls.
func (s *sandbox) RemoveState(ctx context.Context, paths []string) error {
	return s.state.RemoveState(ctx, paths)
}

// ListState lists the plain files below dir, which is the state or the private directory. Their times are not known.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	return s.state.ListState(ctx, dir)
}

// removePrivate removes the private directory and what else waits for its removal.
func (s *sandbox) removePrivate(ctx context.Context) {
	paths := s.state.Take()
	if s.info.PrivateDir != s.info.StateDir {
		paths = append(paths, s.info.PrivateDir)
	}
	if len(paths) == 0 {
		return
	}
	if _, err := s.run(ctx, statescript.RemoveScript, append([]string{"-rf"}, paths...)...); err != nil && classify(err) != driver.KindLost {
		s.log.Debug("the private directory was not removed", "sandbox", s.info.SandboxID, "error", err)
	}
}
