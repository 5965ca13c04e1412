package docker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// ExplainExit says which limit a command has met.
func (s *sandbox) ExplainExit(ctx context.Context, code int) string {
	switch code {
	case driver.CodeKilled:
		return s.memoryRanOut(ctx)
	case driver.CodeNoProcess:
		return s.processesRanOut(ctx)
	}
	return ""
}

var _ driver.ExitExplainer = (*sandbox)(nil)

// nearlyAll is how many processes may have ended between the end of a command that met their limit and a look at their number.
const nearlyAll = 8

// processesRanOut says so where the container has nearly as many processes and threads as it may. The engine is asked: nobody can be
// inside.
func (s *sandbox) processesRanOut(ctx context.Context) string {
	limit := s.plan.host.PidsLimit
	if limit == nil || *limit <= 0 {
		return ""
	}
	answer, err := s.eng.ContainerStats(ctx, s.id, client.ContainerStatsOptions{})
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	var stats container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&stats); err != nil || stats.PidsStats.Current+nearlyAll < uint64(*limit) {
		return ""
	}
	return fmt.Sprintf("no process could be started: the container has %d processes and threads, and docker_pids_limit is %d: end what runs in it, or raise the limit and apply it with `elsewhere sandbox reset %s`",
		stats.PidsStats.Current, *limit, s.address())
}
