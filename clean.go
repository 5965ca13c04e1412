package elsewhere

import (
	"context"
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
// record that each bash writes into its state file when it starts, and those files; and old output files.
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
	dead := map[string]bool{}
	ids, _ := owner.Dead(sb.home)
	for _, id := range ids {
		dead[id] = true
	}
	var request strings.Builder
	var paths []string
	for _, f := range files {
		r, ok := parseRecord(f.Head)
		if !ok || r.tag != owner.Tag(sb.home) || r.owner == sb.owner || !dead[r.owner] && owner.Known(sb.home, r.owner) {
			continue
		}
		request.WriteString(bashscript.Watch(r.mark, r.id, 0))
		paths = append(paths, f.Path)
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

// record is the first line of a state file whose call has not ended: "# OWNER.TAG ID MARK PID". The tag says where the
// owner's lease is: no other home and no other machine can tell whether it lives.
type record struct {
	owner, tag, id string
	mark           bashscript.Mark
}

func (sb *Sandbox) recordOwner() string { return sb.owner + "." + owner.Tag(sb.home) }

func parseRecord(head string) (record, bool) {
	f := strings.Fields(head)
	if len(f) < 4 || f[0] != "#" {
		return record{}, false
	}
	mark, err := strconv.ParseUint(f[3], 10, 64)
	id, tag, _ := strings.Cut(f[1], ".")
	return record{owner: id, tag: tag, id: f[2], mark: bashscript.Mark(mark)}, err == nil
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
