package daytona

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/ptychannel"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// sandbox is one sandbox of the service as one process uses it.
type sandbox struct {
	api     *api
	req     driver.OpenRequest
	plan    *plan
	log     *slog.Logger
	owner   string     // this process's
	lock    *kept.Lock // nil for a sandbox that nobody else can find
	box     *box
	toolbox string
	pool    *ptychannel.Pool // of terminals
	info    driver.Info
	around  *surroundings
	files   *files // nil where none are synchronised

	made       bool // by this opening
	unanswered int  // requests to make it
	old        atomic.Bool

	ctx    context.Context // done when the sandbox is closed
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	ended  bool // nothing more may be begun behind
	live   map[*ptychannel.Process]struct{}
}

const (
	probeWait = time.Minute
	// tidyWait bounds what is done in the sandbox behind calls and on Close, and endWait what it takes to stop or delete it.
	tidyWait = 20 * time.Second
	endWait  = 40 * time.Second
	askWait  = 10 * time.Second
)

func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if req.Logger == nil {
		req.Logger = slog.New(slog.DiscardHandler)
	}
	a, err := connect(req)
	if err != nil {
		return nil, err
	}
	s := &sandbox{api: a, req: req, log: req.Logger, owner: req.Identity.Owner, live: map[*ptychannel.Process]struct{}{}}
	if s.owner == "" {
		s.owner = owner.NewID()
	}
	if s.plan, err = makePlan(req, a.hosted); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		s.cancel()
		s.work.Wait()
		_ = s.lock.Close()
		return nil, err
	}
	return s, nil
}

func (s *sandbox) open(ctx context.Context) error {
	if !s.alone() {
		lock, err := kept.Open(s.req.Identity.Home, s.plan.name, false)
		if err != nil {
			return failure(driver.KindUnavailable, "%w", err)
		}
		s.lock = lock
		done, err := lock.Make(ctx)
		if err != nil {
			return failure(driver.KindUnavailable, "%w", err)
		}
		defer done()
	}
	if err := s.ensure(ctx); err != nil {
		return err
	}
	err := s.enter(ctx)
	if err == nil && s.lock != nil {
		err = s.lock.Use()
	}
	if err != nil && s.made {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		_ = s.api.remove(rctx, s.box.ID)
	}
	return err
}

// enter looks around in a sandbox that runs.
func (s *sandbox) enter(ctx context.Context) (err error) {
	if s.toolbox, err = s.api.toolbox(ctx, s.box); err != nil {
		return s.api.explain("asking for the toolbox of the sandbox "+s.plan.name, err)
	}
	if s.around, err = s.lookAround(ctx); err != nil {
		return err
	}
	s.pool = ptychannel.NewPool(s.dialBash)
	s.info = s.makeInfo()
	notice := ""
	s.files, notice = newFiles(s)
	s.info.Notices = append(s.info.Notices, s.plan.notices...)
	if notice != "" {
		s.info.Notices = append(s.info.Notices, notice)
	}
	if !s.made {
		s.removeDeadTerminals(ctx)
		s.removeLeftovers()
	}
	s.reapBehind()
	return nil
}

func (s *sandbox) makeInfo() driver.Info {
	a := s.around
	info := driver.Info{
		Host: strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(s.api.base, "/api"), "https://"), "http://"), SandboxID: s.box.ID, User: a.user, Home: a.home, Dir: a.dir,
		StateDir: a.state, PrivateDir: a.private, KeepsChildren: true, Watchdog: true, Lease: true,
	}
	info.CallEnv, info.Notices = scrub.Forward(s.req.Environ, s.req.Config.Strings("env_passthrough"))
	info.Notices = append(info.Notices, a.notices...)
	info.Features = append([]driver.Feature{
		{Name: "isolation", State: driver.Active, Detail: "the sandbox " + s.plan.name + " of Daytona"},
	}, s.plan.features...)
	return info
}

// alone says that no other process can find this sandbox.
func (s *sandbox) alone() bool { return s.req.ThrowAway || s.req.Identity.Home == "" }

func (s *sandbox) say(notice string) {
	if !slices.Contains(s.plan.notices, notice) {
		s.plan.notices = append(s.plan.notices, notice)
	}
}

func (s *sandbox) progress(text string) {
	if s.req.Progress != nil {
		s.req.Progress(text)
	}
}

func (s *sandbox) Info() driver.Info { return s.info }

// behind runs f behind the calls; its context is done when the sandbox is closed for good.
func (s *sandbox) behind(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.work.Go(func() { f(s.ctx) })
	}
}

func (s *sandbox) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

var errClosed = failure(driver.KindLost, "the sandbox is closed")

// Bash starts a bash over two terminals.
func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if s.isClosed() {
		return nil, errClosed
	}
	return s.bash(ctx, spec)
}

func (s *sandbox) bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	mark := bashscript.CallVariable + "=" + spec.ID
	env := slices.Clone(spec.Env)
	if !slices.Contains(env, mark) {
		env = append(env, mark) // by it Kill finds the bash
	}
	p, err := s.pool.Start(ctx, ptychannel.Spec{
		Args: spec.Args, Env: env, Home: s.around.home, Temp: s.around.temp, Lease: s.req.Config.Duration("orphan_grace"),
		Name: "the sandbox " + s.plan.name, Kill: func(ctx context.Context) error { return s.kill(ctx, mark) },
	})
	if err != nil {
		return nil, s.startFailed(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live == nil {
		go p.Abandon()
		return nil, errClosed
	}
	s.live[p] = struct{}{}
	s.work.Go(func() {
		<-p.Gone()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.live, p)
	})
	return p, nil
}

// startFailed asks the service why no bash could be started.
func (s *sandbox) startFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if alive := s.Alive(actx); alive != nil {
		return alive
	}
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return failure(driver.KindUnavailable, "cannot start a bash in the sandbox %s: %w", s.plan.name, err)
	}
	return s.api.explain("cannot start a bash in the sandbox "+s.plan.name, err)
}

// kill ends what carries a call's mark, by the toolbox.
func (s *sandbox) kill(ctx context.Context, mark string) error {
	_, _, err := s.api.execute(ctx, s.toolbox, bashLine(killScript, mark), tidyWait)
	return err
}

// killScript ends every process that has $1 ("NAME=ID") in its environment, by builtins alone.
const killScript = `for dir in /proc/[0-9]*; do
	[[ ${dir#/proc/} != $$ ]] || continue
	while IFS= read -r -d '' entry; do
		[[ $entry != "$1" ]] || { kill -KILL "${dir#/proc/}"; break; }
	done <"$dir/environ"
done 2>/dev/null
:`

// bashLine is a command for any POSIX shell that runs a script of ours by bash.
func bashLine(script string, args ...string) string {
	line := "exec bash --noprofile --norc -p -c " + bashscript.Quote(script) + " elsewhere"
	for _, arg := range args {
		line += " " + bashscript.Quote(arg)
	}
	return line + " </dev/null"
}

// Alive asks the service whether the sandbox runs.
func (s *sandbox) Alive(ctx context.Context) error {
	if s.isClosed() {
		return errClosed
	}
	b, err := s.api.get(ctx, s.box.ID)
	switch {
	case cloudhttp.StatusOf(err) == http.StatusNotFound:
		_ = s.lock.Close()
		return failure(driver.KindLost, "the sandbox %s is gone", s.plan.name)
	case err != nil:
		return s.api.explain("asking for the sandbox "+s.plan.name, err)
	case b.State == "started":
		return nil
	case b.State == "starting" || b.State == "resizing" || b.State == "snapshotting":
		return failure(driver.KindUnavailable, "the sandbox %s is %s; try again", s.plan.name, b.State)
	}
	_ = s.lock.Close()
	return failure(driver.KindLost, "the sandbox %s has been stopped (%s)", s.plan.name, b.State)
}

// Prepare brings the files of HERMES_HOME up to date. Whether the sandbox runs is asked when no channel to it is open that
// proves it.
func (s *sandbox) Prepare(ctx context.Context) ([]string, error) {
	if s.isClosed() || s.files == nil {
		return nil, nil
	}
	return s.files.push(ctx), nil
}

// Close brings back what may come back, removes what was this process's alone, and stops a sandbox that persists, unless
// another process uses it or something that was left in it still runs; another one is deleted.
func (s *sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	alive := s.stillRuns(ctx)
	if s.files != nil && alive {
		s.files.pull(context.WithoutCancel(ctx))
	}
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	s.pool.Close()
	stays, err := s.end(ectx, alive)
	s.mu.Lock()
	s.ended = !stays // in a sandbox that stays terminals are ended one by one
	live := s.live
	s.live = nil
	s.mu.Unlock()
	for p := range live {
		p.Abandon()
	}
	if s.ended {
		s.cancel()
	}
	s.work.Wait()
	s.cancel()
	_ = s.lock.Close()
	return err
}

// stillRuns asks whether there is anything to be tidied up.
func (s *sandbox) stillRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	b, err := s.api.get(ctx, s.box.ID)
	return err == nil && b.State == "started"
}

// end stops or deletes the sandbox, unless it stays as it is.
func (s *sandbox) end(ctx context.Context, alive bool) (stays bool, err error) {
	if s.alone() {
		return false, s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.box.ID))
	}
	busy := false
	if alive {
		busy = s.tidy(ctx)
	}
	_ = s.lock.Close()
	lock, err := kept.Open(s.req.Identity.Home, s.plan.name, false)
	if err != nil {
		return true, err
	}
	defer lock.Close()
	done, err := lock.Make(ctx)
	if err != nil {
		return true, err
	}
	defer done()
	if used, err := lock.InUse(); err != nil || used {
		return true, err
	}
	switch {
	case !s.plan.persist:
		return false, s.api.explain("deleting the sandbox "+s.plan.name, s.api.remove(ctx, s.box.ID))
	case busy:
		s.log.Info("the sandbox is left running for what was started in it", "sandbox", s.plan.name)
		return true, nil
	case alive:
		return false, s.stop(ctx, s.box.ID)
	}
	return false, nil
}

// stop asks for a stop; it goes on behind. One that does not run is no error.
func (s *sandbox) stop(ctx context.Context, id string) error {
	err := s.api.change(ctx, id, "stop")
	if status := cloudhttp.StatusOf(err); status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusConflict {
		return nil
	}
	return s.api.explain("stopping the sandbox "+s.plan.name, err)
}

// surroundings are what the first look in the sandbox finds.
type surroundings struct {
	user, home, dir, state, private, temp string
	leftovers                             []string
	notices                               []string
}

// separator stands between the parts of an answer.
const separator = "\x1f"

// lookScript looks around and makes the directories. $1 is the wanted directory, $2 the identity, $3 the tag of this home's
// processes, $4 the private directory's name, $5 is 1 where state is kept.
const lookScript = `umask 077
own() { [[ -d $1 && -O $1 && ! -L $1 && -w $1 && -x $1 ]]; }
missing=
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || missing=' bash 4.4 or later'
for x in stty mkfifo dd cat rm sleep setsid mkdir; do type -P $x >/dev/null || missing+=" $x"; done
home=${HOME-}
[[ $home == /* && -d $home ]] || { unset HOME; home=~; }
user=$(id -un 2>/dev/null) || user=${USER-}
dir=$1
case $dir in
'' | . | '~' | '$HOME' | '${HOME}') dir=$home ;;
'~/'*) dir=$home/${dir#'~/'} ;;
'$HOME/'*) dir=$home/${dir#'$HOME/'} ;;
'${HOME}/'*) dir=$home/${dir#'${HOME}/'} ;;
/*) ;;
*) dir=$home/$dir ;;
esac
cd / && why=$(cd -- "$dir" 2>&1 >/dev/null) && why= || why=${why:-cannot be entered}
state=
if [[ $5 ]]; then
	state=$home/.local/state/elsewhere/$2/state
	mkdir -p -- "$state" && chmod 700 -- "$home/.local/state/elsewhere" "$home/.local/state/elsewhere/$2" "$state" && own "$state" || state=
fi 2>/dev/null
private= temp= left=()
for parent in /tmp /var/tmp "$home/.cache" "$home"; do
	[[ -d $parent && -w $parent ]] || continue
	for x in "$parent/elsewhere-$3-"*; do
		! own "$x" || left+=("$x")
	done
	[[ ! $private ]] && { own "$parent/$4" || mkdir -m 700 -- "$parent/$4"; } 2>/dev/null && private=$parent/$4 temp=$parent
done
printf '%s\037' begin "$missing" "$user" "$home" "$dir" "$why" "$state" "$private" "$temp" "${left[@]}" end`

func (s *sandbox) lookAround(ctx context.Context) (*surroundings, error) {
	keep := ""
	if !s.alone() {
		keep = "1"
	}
	wanted, notice := startDir(s.req)
	script := bashLine(lookScript, wanted, identityHash(s.req.Identity), owner.Tag(s.req.Identity.Home), "elsewhere-"+owner.Tag(s.req.Identity.Home)+"-"+s.owner+"-"+owner.NewID()[:12], keep)
	text, code, err := s.api.execute(ctx, s.toolbox, script, probeWait)
	if err != nil {
		return nil, s.api.explain("looking around in the sandbox "+s.plan.name, err)
	}
	_, text, begun := strings.Cut(text, "begin"+separator)
	text, _, ended := strings.Cut(text, separator+"end"+separator)
	f := strings.Split(text, separator)
	if !begun || !ended || len(f) < 8 {
		return nil, failure(driver.KindConfig, "the image of the sandbox %s runs no bash, in which every command runs (exit code %d): set daytona_image to one that has it", s.plan.name, code)
	}
	a := &surroundings{user: f[1], home: f[2], dir: f[3], state: f[5], private: f[6], temp: f[7], leftovers: f[8:]}
	switch {
	case f[0] != "":
		return nil, failure(driver.KindConfig, "the image of the sandbox %s lacks%s: set daytona_image to one with coreutils and util-linux", s.plan.name, f[0])
	case a.private == "":
		return nil, failure(driver.KindUnavailable, "no directory for temporary files can be made in the sandbox %s: free some space there", s.plan.name)
	case f[4] != "":
		return nil, failure(driver.KindConfig, "terminal.cwd names the directory %s, which cannot be entered in the sandbox %s: %s; name one that exists there, or leave it out", a.dir, s.plan.name, f[4][strings.LastIndexByte(f[4], ':')+1:])
	}
	if notice != "" {
		a.notices = append(a.notices, notice)
	}
	if a.state == "" {
		if keep != "" {
			a.notices = append(a.notices, "sessions are not kept beyond this process: no directory for them can be made in the sandbox")
		}
		a.state = a.private
	}
	return a, nil
}

// tidy removes what was this process's alone and tells whether something that was left in the sandbox still runs.
func (s *sandbox) tidy(ctx context.Context) (busy bool) {
	ctx, cancel := context.WithTimeout(ctx, tidyWait)
	defer cancel()
	text, _, err := s.api.execute(ctx, s.toolbox, bashLine(tidyScript, s.info.PrivateDir), tidyWait)
	if err != nil {
		s.log.Debug("temporary files stay in the sandbox", "sandbox", s.plan.name, "error", err)
	}
	return strings.Contains(text, "busy"+separator)
}

// tidyScript removes the directory $1, and says whether a process is there that a call has left: it
// carries a call's id, and it is no bash that waits for its owner's word.
const tidyScript = `rm -rf -- "$1" 2>/dev/null
for dir in /proc/[0-9]*; do
	call=
	while IFS= read -r -d '' entry; do
		[[ $entry != ELSEWHERE_CALL=* ]] || call=1
	done <"$dir/environ"
	[[ $call ]] || continue
	IFS= read -r -d '' -n 4 first <"$dir/cmdline"
	[[ $first != bash ]] || { args=(); while IFS= read -r -d '' x; do args+=("$x"); done <"$dir/cmdline"; [[ ${args[*]} != 'bash --noprofile --norc -p -c '* ]]; } || continue
	printf 'busy\037'
	break
done 2>/dev/null
:`

func (s *sandbox) isState(file string) bool {
	if path.Clean(file) != file || strings.ContainsRune(file, 0) {
		return false
	}
	return strings.HasPrefix(file, s.info.StateDir+"/") || strings.HasPrefix(file, s.info.PrivateDir+"/")
}

// ListState lists the plain files in dir, which is the state or the private directory.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	if dir = path.Clean(dir); dir != s.info.StateDir && dir != s.info.PrivateDir && !s.isState(dir) {
		return nil, failure(driver.KindDenied, "%s is not a state directory of this sandbox", dir)
	}
	text, _, err := s.api.execute(ctx, s.toolbox, bashLine(listScript, dir), tidyWait)
	if err != nil {
		return nil, s.api.explain("listing state files in the sandbox "+s.plan.name, err)
	}
	var found []driver.StateFile
	f := strings.Split(text, separator)
	for i := 0; i+2 < len(f); i += 3 {
		file := driver.StateFile{Path: f[i], Head: f[i+1]}
		var seconds int64
		if json.Unmarshal([]byte(f[i+2]), &seconds) == nil {
			file.ModTime = time.Unix(seconds, 0)
		}
		found = append(found, file)
	}
	return found, nil
}

const listScript = `shopt -s nullglob dotglob globstar
LC_ALL=C
for f in "$1"/**; do
	[[ -f $f && ! -L $f && $f != *$'\037'* ]] || continue
	line=
	IFS= read -r -n 256 line <"$f"
	printf '%s\037' "$f" "${line//$'\037'/ }" "$(stat -c %Y -- "$f" 2>/dev/null)"
done 2>/dev/null
:`
