package elsewhere

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/output"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// outputAge is how long a file with the output that results left out is kept.
const outputAge = 7 * 24 * time.Hour

// clean ends and removes, behind the opening of a sandbox, what owners left that are dead: calls in progress, found by the
// record that each bash writes into its state file when it starts, and those files; states that belong to no session; and old
// output files.
func (sb *Sandbox) clean() {
	if sb.spillDir != "" {
		if _, err := output.Clean(sb.spillDir, outputAge, time.Now()); err != nil {
			sb.log.Debug("old output files were not removed", "error", err)
		}
	}
	p := sb.at()
	lister, ok := p.drv.(driver.StateLister)
	if !ok || p.info.StateDir == p.info.PrivateDir {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	files, err := lister.ListState(ctx, p.info.StateDir)
	if err != nil {
		return
	}
	ids, _ := owner.Dead(sb.home)
	calls, states := sb.ofDeadOwners(files, ids)
	p.removeState(sb.unnamed(states)...)
	var request strings.Builder
	var paths []string
	for _, r := range calls {
		request.WriteString(bashscript.Watch(r.mark, r.id, 0))
		paths = append(paths, r.path)
	}
	if len(paths) > 0 {
		if _, confirmed := p.end(ctx, request.String()); !confirmed {
			return
		}
		p.removeState(paths...)
	}
	for _, id := range ids {
		if err := owner.Forget(sb.home, id); err != nil {
			sb.log.Debug("a dead owner's lease was not removed", "error", err)
		}
	}
}

// ofDeadOwners gives the records of calls in progress and those of whole states whose owner is dead: it is one of ids, or its lease is
// gone.
func (sb *Sandbox) ofDeadOwners(files []driver.StateFile, ids []string) (calls, states []record) {
	tag := owner.Tag(sb.home)
	for _, f := range files {
		r, ok := parseRecord(f)
		if !ok || r.tag != tag || r.owner == sb.owner || !slices.Contains(ids, r.owner) && owner.Known(sb.home, r.owner) {
			continue
		}
		if r.whole {
			states = append(states, r)
		} else {
			calls = append(calls, r)
		}
	}
	return calls, states
}

// unnamed gives the paths of those states that no named session of this home has any more: their owner was killed before it
// removed them, or before it made them current. Since the owner was dead when it was looked at, no session comes to have one of them. Where
// a session cannot be read it may have any.
func (sb *Sandbox) unnamed(states []record) []string {
	if len(states) == 0 {
		return nil
	}
	named := map[string]bool{}
	err := eachSession(sb.home, func(_ string, d *sessionData, err error) error {
		for _, file := range append(d.Old, d.State) {
			named[path.Base(file)] = true
		}
		return err
	})
	if err != nil {
		sb.log.Debug("states of dead owners stay", "error", err)
		return nil
	}
	var paths []string
	for _, r := range states {
		if !named[r.id] {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// record is the first line of a state file: "# OWNER.TAG ID MARK PID" while its call has not ended, "## ..." when the state is written. The
// tag says where the owner's lease is: no other home and no other machine can tell whether it lives.
type record struct {
	path           string
	whole          bool // a state
	owner, tag, id string
	mark           bashscript.Mark
}

func (sb *Sandbox) recordOwner() string { return sb.owner + "." + owner.Tag(sb.home) }

// parseRecord gives the record of a state file, which has the name of its call. Other files are not that: a job's output may have any first line.
func parseRecord(file driver.StateFile) (record, bool) {
	f := strings.Fields(file.Head)
	if len(f) < 4 || f[0] != "#" && f[0] != "##" || f[2] != path.Base(file.Path) {
		return record{}, false
	}
	mark, err := strconv.ParseUint(f[3], 10, 64)
	id, tag, _ := strings.Cut(f[1], ".")
	return record{path: file.Path, whole: f[0] == "##", owner: id, tag: tag, id: f[2], mark: bashscript.Mark(mark)}, err == nil
}

// stateExists tells whether a state file is there.
func (sb *Sandbox) stateExists(path string) bool {
	p := sb.at()
	lister, ok := p.drv.(driver.StateLister)
	if !ok {
		return false
	}
	files, err := lister.ListState(context.Background(), p.info.StateDir)
	if err != nil {
		return false
	}
	for _, f := range files {
		if f.Path == path {
			return true
		}
	}
	return false
}
