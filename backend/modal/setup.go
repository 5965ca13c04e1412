package modal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

// surroundings are what is found in a sandbox.
type surroundings struct {
	user, home, dir string
	state, private  string             // directories for state files, of mode 0700
	others          []string           // private directories of other processes of this home
	watchdogs       []string           // "PID OWNER" of theirs
	files           []driver.StateFile // in the state directory
}

// ownerVariable is in the environment of a watchdog, which runs no command of the user's: whose it is.
const ownerVariable = "ELSEWHERE_OWNER"

// setupScript says who the user is, where he is at home, makes the directories for state files and looks for what processes left
// that are dead. State of kept sessions is with the files that are stored; that of this process alone is in memory, where there is
// a file system for it. What it prints ends in NULs. Arguments: the lease's tag and owner, a hash of the identity, the wanted
// directory, and whether the sandbox is new: then no bash runs that has a state file.
const setupScript = `umask 077
shopt -s nullglob
tag=$1 owner=$2 identity=$3 dir=$4 fresh=$5 home=${HOME-} user=
while IFS=: read -r name _ uid _ _ place _; do
	[[ $uid != "$EUID" ]] || { user=$name; [[ $home == /* ]] || home=$place; break; }
done 2>/dev/null </etc/passwd
[[ $home == /* ]] || home=/
export HOME=$home
[[ $dir != '~/'* ]] || dir=$home/${dir#'~/'}
asked=${dir:-$home}
for dir in "$asked" "$home" /; do ! cd -- "$dir" 2>/dev/null || break; done
own() { [[ -d $1 && ! -L $1 && -O $1 && -w $1 ]]; }
private= others=()
for parent in /dev/shm /tmp /var/tmp "$home"; do
	[[ -d $parent && -w $parent ]] || continue
	for x in "$parent/elsewhere-$tag-"*; do
		if [[ $fresh ]]; then rm -rf -- "$x"; elif [[ $x != *"-$owner" ]]; then others+=("$x"); fi
	done
	[[ ! $private ]] && mkdir -p -- "$parent/elsewhere-$tag-$owner" && own "$parent/elsewhere-$tag-$owner" && private=$parent/elsewhere-$tag-$owner
done
[[ $private ]] || { echo 'no directory for temporary files can be made (/dev/shm, /tmp, /var/tmp, the home directory)' >&2; exit 1; }
base=$home/.local/state
state=$base/elsewhere/$identity/state
mkdir -p -- "$state" && chmod 700 -- "$base/elsewhere" "$base/elsewhere/$identity" "$state" && own "$state" || state=$private
if [[ $fresh ]]; then
	for x in "$state"/*; do
		line=; [[ ! -f $x ]] || IFS= read -r -n 256 line <"$x"
		[[ $line != '# '* ]] || rm -f -- "$x"
	done
fi 2>/dev/null
printf '%s\0' elsewhere "${user:-$EUID}" "$home" "$dir" "$asked" "$state" "$private" "${others[@]}" ''
[[ $fresh ]] || for x in /proc/[0-9]*; do
	while IFS= read -r -d '' entry; do
		[[ $entry != "` + ownerVariable + `=$tag."* ]] || { printf '%s\0' "${x#/proc/} ${entry#*.}"; break; }
	done <"$x/environ"
done 2>/dev/null
printf '\0'
` + statescript.ListFunction + `
list "$state"`

// lookAround runs the first bash in the sandbox.
func (s *sandbox) lookAround(ctx context.Context) (*surroundings, error) {
	fresh := ""
	if s.fresh {
		fresh = "1"
	}
	lctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	out, err := s.run(lctx, setupScript, owner.Tag(s.req.Identity.Home), s.owner(), s.identityHash(), s.plan.dir, fresh)
	fields := strings.Split(out, "\x00")
	if err != nil || len(fields) < 9 || fields[0] != "elsewhere" {
		return nil, s.setupFailed(ctx, out, err)
	}
	a := &surroundings{user: fields[1], home: fields[2], dir: fields[3], state: fields[5], private: fields[6]}
	if a.dir != fields[4] {
		s.say("the directory " + fields[4] + " is not in the sandbox or cannot be entered; sessions start in " + a.dir)
	}
	rest := fields[7:]
	take := func() (list []string) {
		end := slices.Index(rest, "")
		if end < 0 {
			end = len(rest)
		}
		list, rest = rest[:end], rest[min(end+1, len(rest)):]
		return list
	}
	a.others, a.watchdogs = take(), take()
	a.files = statescript.Read(rest)
	return a, nil
}

// setupFailed says why no bash looked around.
func (s *sandbox) setupFailed(ctx context.Context, out string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed, ok := errors.AsType[*scriptError](err); ok {
		if failed.code == 126 || failed.code == 127 {
			return failure(driver.KindConfig, "the image %s has no bash, in which every command runs: set modal_image to one that has (%s)", s.plan.image, failed)
		}
		return failure(driver.KindConfig, "the sandbox of the image %s cannot be used: %s", s.plan.image, failed)
	}
	if err == nil {
		err = fmt.Errorf("its bash answered %q", out[:min(len(out), 200)])
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return failure(driver.KindUnavailable, "the sandbox %s is there, and no bash in it answers within %v; try again, and check https://status.modal.com: %w", s.sb.SandboxID, askWait, err)
	}
	if classify(err) == driver.KindLost && !s.fresh {
		return fmt.Errorf("%w: %s", errAgain, err) // it ran a moment ago
	}
	return failure(driver.KindUnavailable, "the sandbox of the image %s cannot be used: %w", s.plan.image, err)
}

func (s *sandbox) identityHash() string {
	// The name of a sandbox whose task is fixed is a hash of identity and profile.
	name := kept.Name(s.req.Identity, "", "")
	return name[strings.LastIndexByte(name, '-')+1:]
}

// owner is this process's lease.
func (s *sandbox) owner() string {
	if s.req.Identity.Owner != "" {
		return s.req.Identity.Owner
	}
	return "none"
}

// endScript tells watchdogs that their owners are dead, and endDead those of processes of this home that are; what they watched they
// end themselves. Their private directories go too.
const endScript = `owner=$1; shift
for pid; do
	while IFS= read -r -d '' entry; do
		[[ $entry != "` + ownerVariable + `=$owner."* ]] || { kill -` + bashscript.EndSignal + ` "$pid"; break; }
	done <"/proc/$pid/environ"
done 2>/dev/null
:`

func (s *sandbox) endDead(around *surroundings) {
	home := s.req.Identity.Home
	dead, err := owner.Dead(home)
	if err != nil || home == "" {
		return
	}
	gone := func(id string) bool {
		return id != s.owner() && (slices.Contains(dead, id) || !owner.Known(home, id))
	}
	var pids, dirs []string
	for _, w := range around.watchdogs {
		if pid, id, ok := strings.Cut(w, " "); ok && gone(id) {
			pids = append(pids, pid)
		}
	}
	for _, dir := range around.others {
		if gone(dir[strings.LastIndexByte(dir, '-')+1:]) {
			dirs = append(dirs, dir)
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if len(pids) > 0 {
		if _, err := s.run(ctx, endScript, append([]string{owner.Tag(home)}, pids...)...); err != nil {
			s.log.Debug("the watchdogs of dead processes were not told", "sandbox", s.info.SandboxID, "error", err)
		}
	}
	if len(dirs) > 0 {
		if _, err := s.run(ctx, statescript.RemoveScript, append([]string{"-rf"}, dirs...)...); err != nil {
			s.log.Debug("state files of dead processes were not removed", "sandbox", s.info.SandboxID, "error", err)
		}
	}
}
