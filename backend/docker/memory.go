package docker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// killsFunction sets kills to how many processes in the container the kernel has ended for want of memory, "" where its control
// group cannot be read: by that a command whose memory ran out is told from one that somebody killed, on every engine.
const killsFunction = `countKills() {
	local file name n
	kills=
	for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
		while read -r name n; do
			[[ $name != oom_kill ]] || { kills=$n; return; }
		done <"$file"
	done 2>/dev/null
}`

// noteKills takes a new count and tells whether it is higher than the last.
func (s *sandbox) noteKills(count string) (more bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
	return err == nil && s.kills.Swap(n) < n
}

// memoryRanOut says so where the kernel has ended a process for it since that was last asked.
func (s *sandbox) memoryRanOut(ctx context.Context) string {
	out, err := s.run(ctx, killsFunction+"\ncountKills\necho \"$kills\"")
	if err != nil || !s.noteKills(out) {
		return ""
	}
	return "killed because memory ran out; " + s.moreMemory()
}

// moreMemory is what to do where memory ran out.
func (s *sandbox) moreMemory() string {
	if s.plan.host.Memory <= 0 {
		return "container_memory sets no limit: the engine's machine itself has no more"
	}
	return fmt.Sprintf("container_memory is %s: raise it, and apply it with `elsewhere sandbox reset %s`", size(s.plan.host.Memory), s.address())
}
