package cloudbox

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// Argv is a bash that runs a script of ours; its stdin has to be empty.
func Argv(script string, args ...string) []string {
	return append([]string{"bash", "--noprofile", "--norc", "-p", "-c", script, "elsewhere"}, args...)
}

// Line is the same as a command for any POSIX shell, with an empty stdin.
func Line(script string, args ...string) string {
	line := "exec"
	for i, word := range Argv(script, args...) {
		if i == 5 || i > 6 {
			word = bashscript.Quote(word)
		}
		line += " " + word
	}
	return line + " </dev/null"
}

// KillScript ends every process that has $1 ("NAME=ID") in its environment, by builtins alone.
const KillScript = `for dir in /proc/[0-9]*; do
	[[ ${dir#/proc/} != $$ ]] || continue
	while IFS= read -r -d '' entry; do
		[[ $entry != "$1" ]] || { kill -KILL "${dir#/proc/}"; break; }
	done <"$dir/environ"
done 2>/dev/null
:`

// Look is what the first look in a sandbox is to find.
type Look struct {
	Dir      string // the wanted directory of a session
	Identity driver.Identity
	Owner    string // this process's
	Keep     bool   // state is kept there
	Name     string // of the sandbox, for errors
	Notice   string // what is to be said of Dir; "" for nothing
	Setting  string // which setting names the image
	// OfHost tells of a directory that is not there whether it is one of this machine's, which is replaced by the home directory. May be nil.
	OfHost func(dir string) bool
}

// script is what looks around, and its arguments.
func (l Look) script() (script string, args []string) {
	keep := ""
	if l.Keep {
		keep = "1"
	}
	tag := owner.Tag(l.Identity.Home)
	return lookScript, []string{l.Dir, IdentityHash(l.Identity), tag, "elsewhere-" + tag + "-" + l.Owner + "-" + owner.NewID()[:12], keep}
}

// Surroundings are what the first look in a sandbox finds. State is Private where nothing can be kept.
type Surroundings struct {
	User, Home, Dir, State, Private, Temp string
	// Leftovers are private directories of processes of this home.
	Leftovers []string
	Notices   []string
}

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

// read reads what the script has printed and its exit code.
func (l Look) read(text string, code int) (*Surroundings, error) {
	_, text, begun := strings.Cut(text, "begin"+separator)
	text, _, ended := strings.Cut(text, separator+"end"+separator)
	f := strings.Split(text, separator)
	if !begun || !ended || len(f) < 8 {
		return nil, kinderr.New(driver.KindConfig, "the image of the sandbox %s runs no bash, in which every command runs (exit code %d): set %s to one that has it", l.Name, code, l.Setting)
	}
	a := &Surroundings{User: f[1], Home: f[2], Dir: f[3], State: f[5], Private: f[6], Temp: f[7], Leftovers: f[8:]}
	switch {
	case f[0] != "":
		return nil, kinderr.New(driver.KindConfig, "the image of the sandbox %s lacks%s: set %s to one with coreutils and util-linux", l.Name, f[0], l.Setting)
	case a.Private == "":
		return nil, kinderr.New(driver.KindUnavailable, "no directory for temporary files can be made in the sandbox %s: free some space there", l.Name)
	case f[4] != "" && l.OfHost != nil && l.OfHost(a.Dir):
		a.Notices = append(a.Notices, fmt.Sprintf("terminal.cwd (%s) is a directory of this machine; sessions start in the home directory of the sandbox", a.Dir))
		a.Dir = a.Home
	case f[4] != "":
		return nil, kinderr.New(driver.KindConfig, "terminal.cwd names the directory %s, which cannot be entered in the sandbox %s: %s; name one that exists there, or leave it out", a.Dir, l.Name, strings.TrimSpace(f[4][strings.LastIndexByte(f[4], ':')+1:]))
	}
	if a.State == "" {
		if l.Keep {
			a.Notices = append(a.Notices, "sessions are not kept beyond this process: no directory for them can be made in the sandbox")
		}
		a.State = a.Private
	}
	if l.Notice != "" {
		a.Notices = append(a.Notices, l.Notice)
	}
	return a, nil
}

// tidyScript removes the directory $1, and says (isBusy) whether a process is there that a call has left: it
// carries a call's id, and it is no bash that waits for its owner's word. One that was just told to end takes a moment: what is
// found is looked for twice.
const tidyScript = `rm -rf -- "$1" 2>/dev/null
busy() {
	local dir call entry first args x
	for dir in /proc/[0-9]*; do
		call=
		while IFS= read -r -d '' entry; do
			[[ $entry != ELSEWHERE_CALL=* ]] || call=1
		done <"$dir/environ"
		[[ $call ]] || continue
		IFS= read -r -d '' -n 4 first <"$dir/cmdline"
		[[ $first != bash ]] || { args=(); while IFS= read -r -d '' x; do args+=("$x"); done <"$dir/cmdline"; [[ ${args[*]} != 'bash --noprofile --norc -p -c '* ]]; } || continue
		return 0
	done
	return 1
} 2>/dev/null
! busy || { IFS= read -r -t 0.3 first <> <(:); ! busy; } 2>/dev/null || printf 'busy\037'
:`

// isBusy tells whether tidyScript printed that something still runs.
func isBusy(text string) bool { return strings.Contains(text, "busy"+separator) }

// IsState tells whether file is below a state or private directory, written plainly.
func IsState(info driver.Info, file string) bool {
	if path.Clean(file) != file || strings.ContainsRune(file, 0) {
		return false
	}
	return strings.HasPrefix(file, info.StateDir+"/") || strings.HasPrefix(file, info.PrivateDir+"/")
}

// stateDir is dir cleaned; an error says that it is none of a sandbox's state directories.
func stateDir(info driver.Info, dir string) (string, error) {
	if dir = path.Clean(dir); dir != info.StateDir && dir != info.PrivateDir && !IsState(info, dir) {
		return "", kinderr.New(driver.KindDenied, "%s is not a state directory of this sandbox", dir)
	}
	return dir, nil
}

// listScript lists the plain files below the directory $1, for stateFiles.
const listScript = `shopt -s nullglob dotglob globstar
LC_ALL=C
for f in "$1"/**; do
	[[ -f $f && ! -L $f && $f != *$'\037'* ]] || continue
	line=
	IFS= read -r -n 256 line <"$f"
	printf '%s\037' "$f" "${line//$'\037'/ }" "$(stat -c %Y -- "$f" 2>/dev/null)"
done 2>/dev/null
:`

// stateFiles reads what listScript has printed.
func stateFiles(text string) []driver.StateFile {
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
	return found
}
