package daytona

import (
	"context"

	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

// hermesHome is what Hermes takes for the default of this backend, where the home directory is meant.
const hermesHome = "/home/daytona"

// deadOwners tells of processes of this home and machine whether they are dead.
func (s *sandbox) deadOwners() func(id string) bool {
	return cloudbox.DeadOwners(s.req.Identity.Home, s.owner, s.log)
}

// removeLeftovers removes, behind the opening, the private directories of this home's processes that are dead.
func (s *sandbox) removeLeftovers() {
	dirs := s.around.DeadDirs(s.deadOwners())
	if len(dirs) == 0 {
		return
	}
	s.bashes.Behind(func(ctx context.Context) { s.inside.RemoveDirs(ctx, dirs) })
}
