package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// What is sent over ssh is parsed by the account's login shell, which may be fish, csh, zsh or sh. All of them agree on plain
// words and on what stands between two ' without another one, a \, a ! or a newline. So a bash is started by `exec bash`, which
// replaces the login shell (how the bash ends is then the server's to see), with a fixed text between quotes that sets the
// variables and makes the directories again that somebody has removed (rm -rf /tmp/*), and the arguments of the bash proper
// as further words.

// commandLine is the text that starts a bash with these arguments and variables. An error says that a word cannot be sent.
func commandLine(args, env, dirs []string) (string, error) {
	var first strings.Builder
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		fmt.Fprintf(&first, "export %s=\"%s\"; ", name, value)
	}
	for _, dir := range dirs {
		// A directory that another user has laid in its place is not taken.
		fmt.Fprintf(&first, "[[ -O \"%[1]s\" ]] || mkdir -p -m 700 \"%[1]s\" && [[ -O \"%[1]s\" ]] || exit 126; ", dir)
	}
	for _, s := range append(append([]string{}, env...), dirs...) {
		if strings.ContainsAny(s, "\"$`") {
			return "", failure(driver.KindUnavailable, "%q cannot be sent to a login shell", s)
		}
	}
	first.WriteString(`exec bash "$@"`)
	words := append([]string{"--noprofile", "--norc", "-p", "-c", first.String(), "bash"}, args...)
	var line strings.Builder
	line.WriteString("exec bash")
	for _, word := range words {
		if strings.ContainsAny(word, "'\\!\n\x00") {
			return "", failure(driver.KindUnavailable, "%q cannot be sent to a login shell", word)
		}
		if plainWord(word) {
			line.WriteString(" " + word)
		} else {
			line.WriteString(" '" + word + "'")
		}
	}
	return line.String(), nil
}

// plainWord tells whether no shell sees more in a word than its letters.
func plainWord(word string) bool {
	return word != "" && strings.Trim(word, "-abcdefghijklmnopqrstuvwxyz") == ""
}

// ownScript are the arguments of a bash that runs a text of this package: it reads it from stdin up to a NUL.
var ownScript = []string{"--noprofile", "--norc", "-p", "-c", `IFS= read -r -d "" x; eval "$x"`}

// reply is what a script printed between its two marks: parts that each end with a NUL.
type reply []string

func (r reply) at(i int) string {
	if i < len(r) {
		return r[i]
	}
	return ""
}

// script runs a text of this package there and returns what it answered with `answer PART...`. What login files print before it,
// and whatever else stands around it, does no harm. ctx bounds it.
func (s *sandbox) script(ctx context.Context, text string, spare bool) (reply, error) {
	line, err := commandLine(ownScript, nil, nil)
	if err != nil {
		return nil, err
	}
	p, err := s.conns.start(ctx, request{command: line, env: s.d.sends, agent: s.d.agent}, spare)
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = p.Stdin().Close()
		_ = p.Stdout().Close()
		_ = p.Stderr().Close()
	}()
	var random [16]byte
	_, _ = rand.Read(random[:])
	token := hex.EncodeToString(random[:])
	text = "answer() { printf '%s\\0' " + token + " \"$@\" end-" + token + "; }\n" + text + "\x00"
	stderr := make(chan []byte, 1)
	go func() { stderr <- readSome(p.Stderr()) }()
	answers := make(chan reply, 1)
	go func() { answers <- readReply(p.Stdout(), token) }()
	if _, err := io.WriteString(p.Stdin(), text); err != nil {
		return nil, s.noAnswer(ctx, p, stderr)
	}
	select {
	case r := <-answers:
		if r == nil {
			return nil, s.noAnswer(ctx, p, stderr)
		}
		return r, nil
	case <-ctx.Done():
		_ = p.Kill(context.Background())
		return nil, errNoAnswer
	}
}

// errNoAnswer says that what was started there did not answer in time.
var errNoAnswer = failure(driver.KindUnavailable, "the account's login shell did not run bash in time; one of its start files (~/.bashrc, ~/.zshenv, config.fish, ~/.cshrc, ~/.ssh/rc) may wait for something: have it return at once where it is not interactive")

// noAnswer explains a bash that ended without an answer.
func (s *sandbox) noAnswer(ctx context.Context, p driver.Process, stderr <-chan []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	status, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	said := ""
	select {
	case text := <-stderr:
		said = oneLine(string(text))
	case <-ctx.Done():
	}
	if status.Code == 127 || strings.Contains(said, "bash: not found") || strings.Contains(said, "bash: Command not found") || strings.Contains(said, "Unknown command") {
		return failure(driver.KindUnavailable, "there is no bash on the PATH of %s: install it there, or put its directory on the PATH of shells that are not interactive (%s)", s.d.name(), said)
	}
	return failure(driver.KindUnavailable, "the account %s does not run bash (exit code %d): see what `ssh %s bash --version` says, and whether its key is bound to another command (%s)", s.d.name(), status.Code, s.d.host, said)
}

// readReply reads until the second mark; nil means that the stream ended before it.
func readReply(r io.Reader, token string) reply {
	var all []byte
	begin, end := []byte(token+"\x00"), []byte("\x00end-"+token+"\x00")
	buffer := make([]byte, 32<<10)
	for {
		n, err := r.Read(buffer)
		all = append(all, buffer[:n]...)
		if at := bytes.Index(all, begin); at >= 0 {
			body := all[at+len(begin)-1:] // the NUL before the end mark may be the one behind the begin mark
			if stop := bytes.Index(body, end); stop >= 0 {
				if stop == 0 {
					return reply{}
				}
				return strings.Split(string(body[1:stop]), "\x00")
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readSome reads a stream to its end and keeps its beginning.
func readSome(r io.Reader) []byte {
	kept, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	_, _ = io.Copy(io.Discard, r)
	return kept
}

// account is what the probe finds.
type account struct {
	home, user, host     string
	dir, dirState        string // where a new session starts; "" where it can be entered
	state, private       string // directories; state is "" where none can be made
	shell, bash          string
	leftovers            []string // private directories of this home's other processes
	stateError, dirAsked string
}

// probeText asks for all that has to be known of the account and makes the directories. It is bash 3.2's and needs mkdir, chmod
// and (where USER is not set) id.
const probeText = `
umask 077
own() { [[ -d $1 && -O $1 && ! -L $1 && -w $1 && -x $1 ]]; }
home=${HOME-}
[[ $home == /* ]] || { unset HOME; home=~; }
user=$(id -un 2>/dev/null) || user=${USER-${LOGNAME-}}
case $dir in
'' | . | '~' | '$HOME' | '${HOME}') dir=$home ;;
'~/'*) dir=$home/${dir#'~/'} ;;
'$HOME/'*) dir=$home/${dir#'$HOME/'} ;;
'${HOME}/'*) dir=$home/${dir#'${HOME}/'} ;;
/*) ;;
*) dir=$home/$dir ;;
esac
cd / && entered=$(cd -- "$dir" 2>&1 >/dev/null) && entered= || entered=${entered:-cannot be entered}
state= why=
if [[ $keep ]]; then
	base=${XDG_STATE_HOME-}
	[[ $base == /* ]] || base=$home/.local/state
	state=$base/elsewhere/$identity/state
	why=$(mkdir -p -- "$state" 2>&1 && chmod 700 -- "$base/elsewhere" "$base/elsewhere/$identity" "$state" 2>&1) && own "$state" || { state=; why=${why:-not a directory of this user}; }
	[[ ! $state ]] || { : >"$state/.probe$random"; } 2>/dev/null && rm -f -- "$state/.probe$random" || { [[ ! $state ]] || why='cannot be written to'; state=; }
fi
private= left=()
for parent in "${TMPDIR-}" /tmp /var/tmp "$home/.cache" "$home"; do
	parent=${parent%/}
	[[ $parent == /* && -d $parent && -w $parent ]] || continue
	for x in "$parent/elsewhere-$tag-"*; do
		! own "$x" || left+=("$x")
	done
	[[ ! $private ]] && mkdir -m 700 -- "$parent/elsewhere-$tag-$owner-$random" 2>/dev/null && private=$parent/elsewhere-$tag-$owner-$random
done
answer "$home" "$user" "$HOSTNAME" "$dir" "$entered" "$state" "$why" "$private" "${SHELL-}" "$BASH_VERSION" "${left[@]}"
`

// probe is what the probe is told.
type probe struct {
	dir, identity, tag, owner string
	keep                      bool // state is to outlive this process
}

func (s *sandbox) probe(ctx context.Context, p probe) (*account, error) {
	var random [6]byte
	_, _ = rand.Read(random[:])
	keep := ""
	if p.keep {
		keep = "1"
	}
	set := ""
	for _, v := range [][2]string{{"dir", p.dir}, {"identity", p.identity}, {"tag", p.tag}, {"owner", p.owner}, {"keep", keep}, {"random", hex.EncodeToString(random[:])}} {
		set += v[0] + "=" + bashscript.Quote(v[1]) + "\n"
	}
	r, err := s.script(ctx, set+probeText, false)
	if err != nil {
		return nil, err
	}
	a := &account{
		home: r.at(0), user: r.at(1), host: r.at(2), dir: r.at(3), dirState: r.at(4), state: r.at(5), stateError: oneLine(r.at(6)),
		private: r.at(7), shell: r.at(8), bash: r.at(9), dirAsked: p.dir,
	}
	if len(r) > 10 {
		a.leftovers = r[10:]
	}
	if a.private == "" {
		return nil, failure(driver.KindUnavailable, "no directory for temporary files can be made on %s (TMPDIR, /tmp, /var/tmp, the home directory): free some space there", s.d.name())
	}
	return a, nil
}
