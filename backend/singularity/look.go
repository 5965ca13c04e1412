//go:build linux

package singularity

import (
	"context"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// seen is what a bash in the instance finds there.
type seen struct {
	setsid bool  // the program is there
	cwd    bool  // the directory that was asked about can be entered
	memory int64 // the most that a file system in memory holds, in bytes
}

// lookScript looks by builtins alone: an image may have no other program. It ends with a word of its own, so that a half
// answer is seen.
const lookScript = `type -P setsid >/dev/null && echo setsid
[[ -d $1 && -w $1 && -x $1 ]] && echo home
[[ -d $2 && -w $2 && -x $2 ]] && echo state
[[ $3 && -d $3 && -x $3 ]] && echo cwd
while read -r _ at kind how _; do
	[[ $at != /dev || $how != *size=* ]] || { how=${how#*size=}; echo "memory ${how%%[!0-9]*}"; }
done </proc/mounts
echo end`

// look asks what there is. An image without bash is an error that says so.
func (o *opener) look(ctx context.Context, instance, cwd string) (seen, error) {
	var s seen
	home := o.plan.home
	out, err := o.prog.exec(ctx, instance, "bash", "--noprofile", "--norc", "-p", "-c", lookScript, "bash", home, stateRoot, cwd)
	if err != nil && exitCode(err) == 255 && strings.Contains(err.Error(), "not found") {
		return s, failure(driver.KindConfig, "the image %s has no bash, which every command needs: choose one that has (terminal.singularity_image)", o.plan.image)
	}
	if err != nil {
		return s, failure(driver.KindUnavailable, "no bash can be started in the instance of %s: %w", o.plan.image, err)
	}
	there := map[string]bool{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if n, ok := strings.CutPrefix(line, "memory "); ok {
			kib, _ := strconv.ParseInt(n, 10, 64)
			s.memory = kib << 10
		}
		there[line] = true
	}
	switch {
	case !there["end"]:
		return s, failure(driver.KindUnavailable, "a bash in the instance of %s gave half an answer: %q", o.plan.image, out)
	case !there["home"]:
		return s, failure(driver.KindUnavailable, "the home directory %s cannot be written to in the instance of %s", home, o.plan.image)
	case !there["state"]:
		return s, failure(driver.KindUnavailable, "the directory for state files %s cannot be written to in the instance of %s", stateRoot, o.plan.image)
	}
	s.setsid, s.cwd = there["setsid"], there["cwd"]
	return s, nil
}
