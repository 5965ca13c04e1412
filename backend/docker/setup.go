package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/statescript"
)

// surroundings are what is found inside a container.
type surroundings struct {
	user, home, dir string
	state, private  string             // directories for state files, of mode 0700
	kills           string             // what oomFunction printed
	others          []string           // private directories of other processes of this machine and user
	files           []driver.StateFile // in the state directory
	notices         []string
}

// setupScript says who the container's user is, where he is at home, and makes the directories for state files. An engine
// has / for the home of a root that passwd does not know. It uses
// builtins, but for mkdir: where an image has none, the tmpfs itself is the one directory. What it prints ends in NULs.
// Arguments: the tmpfs, the name of the private directory, what the names of others begin with, the wanted directory, the
// wanted home.
const setupScript = killsFunction + `
umask 077
shopt -s nullglob
root=$1 own=$2 others=$3 dir=$4 home=${5:-$HOME} user=
while IFS=: read -r name _ uid _ _ place _; do
	[[ $uid != "$EUID" ]] || { user=$name home=${home:-$place}; break; }
done 2>/dev/null </etc/passwd
[[ $home == /* ]] || home=/
[[ $user || $EUID != 0 || $home != / || ! -d /root ]] || home=/root
for dir in "$dir" "$home" /; do
	[[ ! $dir ]] || ! cd -- "$dir" 2>/dev/null || break
done
state=$root/state private=$root/$own
if type -P mkdir >/dev/null; then
	mkdir -p -- "$state" "$private" || exit 1
	for made in "$state" "$private"; do
		[[ -d $made && ! -L $made && -O $made && -w $made ]] || { echo "$made cannot be used by user $EUID" >&2; exit 1; }
	done
else
	private=$root
	[[ -d $state ]] || state=$root
	[[ -w $root && -w $state ]] || { echo "$root cannot be written by user $EUID" >&2; exit 1; }
fi
countKills
printf '%s\0' "elsewhere" "${user:-$EUID}" "$home" "$dir" "$state" "$private" "$kills"
for made in "$root/$others"*; do
	[[ $made == "$private" ]] || printf '%s\0' "$made"
done
printf '\0'
` + statescript.ListFunction + `
list "$state"`

// lookAround runs the first bash in the container, which then waits to become another one, as those do that are started beside it. The container may have just been started by somebody else.
func (s *sandbox) lookAround(ctx context.Context) (*surroundings, error) {
	if home := s.plan.home; home != "" {
		s.env = []string{"HOME=" + home}
	}
	var beside [blanksBeside]*blank
	env := s.env
	for i := range beside {
		beside[i] = s.startBlank(env)
	}
	out, bash, err := s.setUp(ctx)
	a, err := s.readSetup(ctx, out, err)
	if err != nil {
		if bash != nil {
			bash.closeAll()
		}
		s.drop(beside[:])
		return nil, err
	}
	first := &blank{ready: make(chan struct{}), p: bash}
	close(first.ready)
	s.keepBlanks(append(beside[:], first))
	return a, nil
}

// setUp runs the script, and returns the bash that waits behind it; nil where it does not.
func (s *sandbox) setUp(ctx context.Context) (out string, bash *process, err error) {
	p, end, err := s.startBecoming(ctx, s.env, setupScript, stateRoot, s.privateName(), s.privatePrefix(), s.plan.dir, s.plan.home)
	if err != nil {
		return "", nil, err
	}
	out, waits, err := p.answer(ctx, end)
	if !waits {
		p.closeAll()
		p = nil
	}
	return out, p, err
}

// readSetup takes the script's answer apart.
func (s *sandbox) readSetup(ctx context.Context, out string, err error) (*surroundings, error) {
	fields := strings.Split(out, "\x00")
	if err != nil || len(fields) < 8 || fields[0] != "elsewhere" {
		return nil, s.setupFailed(ctx, out, err)
	}
	a := &surroundings{user: fields[1], home: fields[2], dir: fields[3], state: fields[4], private: fields[5], kills: fields[6]}
	end := 7 + slices.Index(fields[7:], "")
	if end < 7 {
		return nil, s.setupFailed(ctx, out, err)
	}
	a.others, a.files = fields[7:end], statescript.Read(fields[end+1:])
	s.env = []string{"HOME=" + a.home}
	s.noteKills(a.kills)
	if want := s.plan.dir; want != "" && a.dir != path.Clean(want) && a.dir != want {
		a.notices = append(a.notices, "the directory "+want+" is not in the container or cannot be entered; sessions start in "+a.dir)
	}
	return a, nil
}

// setupFailed says why no bash looked around. An engine tells of a bash that is not there in the output of the exec, or by a
// container whose main process has ended at once.
func (s *sandbox) setupFailed(ctx context.Context, out string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if missingBash(out) || err != nil && missingBash(err.Error()) {
		return s.noBash()
	}
	dying := isDying(out) || err != nil && (isDying(err.Error()) || classify(err) == driver.KindLost)
	if s.fresh {
		if why := s.endedAtOnce(ctx, dying); why != nil {
			return why
		}
	}
	if dying && (err == nil || classify(err) != driver.KindLost) {
		if err != nil {
			out = err.Error()
		}
		return fmt.Errorf("%w: %s", errAgain, oneLine(out)) // it may be stopping
	}
	if failed, ok := errors.AsType[*scriptError](err); ok {
		text := failed.Error()
		if said := oneLine(out); said != "" && failed.said == "" {
			text = said
		}
		if strings.Contains(text, "fork") {
			return failure(driver.KindUnavailable, "no process can be started in the container %s: it has as many as it may (docker_pids_limit is %d); `elsewhere sandbox stop %s` ends what runs in it, or raise the limit",
				s.plan.name, s.req.Config.Int("docker_pids_limit"), s.address())
		}
		return failure(driver.KindConfig, "the container of the image %s cannot be used: %s", s.plan.config.Image, text)
	}
	if classify(err) != driver.KindLost {
		if err == nil {
			err = errors.New("its bash answered " + oneLine(out[:min(len(out), 200)]))
		}
		return failure(driver.KindUnavailable, "the container of the image %s cannot be used: %w", s.plan.config.Image, err)
	}
	if !s.fresh {
		return fmt.Errorf("%w: %s", errAgain, err) // it ran a moment ago
	}
	return err
}

// missingBash tells whether an engine's words say that there is no bash.
func missingBash(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "failed to exec pid1: no such file") ||
		strings.Contains(text, "bash") && (strings.Contains(text, "executable file not found") || strings.Contains(text, "no such file or directory"))
}

// dyingWords are what engines and their runtimes say of an exec in a container that has ended, or does so now.
var dyingWords = []string{"OCI runtime exec failed", "cannot exec in a ", "is not running", "container not running", "can only create exec sessions on running containers"}

func isDying(text string) bool {
	return slices.ContainsFunc(dyingWords, func(words string) bool { return strings.Contains(text, words) }) ||
		strings.Contains(text, "task ") && strings.Contains(text, "not found")
}

// settleWait bounds how long an engine may take to notice that a container has ended in which no exec can be started any more.
const settleWait = 5 * time.Second

// endedAtOnce says why the container that this opening has started has ended; nil where it runs. One that seems to be dying
// is given the time for it.
func (s *sandbox) endedAtOnce(ctx context.Context, dying bool) error {
	for deadline := time.Now().Add(settleWait); ; {
		found, err := s.eng.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
		if err != nil {
			return nil
		}
		state := found.Container.State
		if !state.Running {
			return s.whyEnded(ctx, state)
		}
		if !dying || time.Now().After(deadline) {
			return nil
		}
		select {
		case <-time.After(changePoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sandbox) whyEnded(ctx context.Context, state *container.State) error {
	log := s.lastWords(ctx)
	switch {
	case state.OOMKilled:
		return failure(driver.KindConfig, "the container of the image %s ends as soon as it is started: %s", s.plan.config.Image, s.outOfMemory())
	case missingBash(log) && (state.ExitCode == 127 || strings.Contains(strings.ToLower(log), "failed to exec pid1")): // Podman's init ends with 1
		return s.noBash()
	}
	return failure(driver.KindConfig, "the container of the image %s ends as soon as it is started, with %d: %s; see whether its entrypoint starts what it is given (docker run %[1]s bash -c true)", s.plan.config.Image, state.ExitCode, log)
}

// outOfMemory says why a container ended that had too little memory, and the way out.
func (s *sandbox) outOfMemory() string {
	return "it ran out of memory; " + s.moreMemory()
}

// lastWords are what the container's main process has printed.
func (s *sandbox) lastWords(ctx context.Context) string {
	logs, err := s.eng.ContainerLogs(ctx, s.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "5"})
	if err != nil {
		return "it left no word"
	}
	defer logs.Close()
	var words tail
	_, _ = stdcopy.StdCopy(&words, &words, io.LimitReader(logs, 64<<10))
	if text := oneLine(words.String()); text != "" {
		return text
	}
	return "it left no word"
}

// privateName names the directory for this process's own state files; those of the same machine, user, home and place of leases begin
// alike, so that only they are judged by their leases.
func (s *sandbox) privateName() string { return s.privatePrefix() + s.req.Identity.Owner }

func (s *sandbox) privatePrefix() string {
	id := s.req.Identity
	sum := sha256.Sum256([]byte(id.Machine + "\x00" + id.UID + "\x00" + id.Home + "\x00" + owner.Tag(id.Home)))
	return "private-" + hex.EncodeToString(sum[:6]) + "-"
}

// removeDead removes the private directories of processes of this machine that are dead.
func (s *sandbox) removeDead(dirs []string) {
	if len(dirs) == 0 {
		return
	}
	home := s.req.Identity.Home
	dead, err := owner.Dead(home)
	if err != nil {
		return
	}
	var gone []string
	for _, dir := range dirs {
		id := strings.TrimPrefix(path.Base(dir), s.privatePrefix())
		if slices.Contains(dead, id) || !owner.Known(home, id) {
			gone = append(gone, dir)
		}
	}
	if len(gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	if _, err := s.run(ctx, statescript.RemoveScript, append([]string{"-rf"}, gone...)...); err != nil {
		s.log.Debug("state files of dead processes were not removed", "container", s.plan.name, "error", err)
	}
}
