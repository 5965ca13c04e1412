package elsewhere

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// ensureState makes the session's first state unless it has one: that of a login bash, captured once. The capture is an
// ordinary call that reads the login files one by one with its descriptors on /dev/null.
func (s *Session) ensureState(ctx context.Context) error {
	if state, _, err := s.current(); err != nil || state.path != "" {
		return err
	}
	select {
	case <-s.first:
		defer func() { s.first <- struct{}{} }()
	case <-ctx.Done():
		return wrap(ctx.Err(), driver.KindCanceled, "session", s.sb.backend, s.name, "")
	}
	if state, _, err := s.current(); err != nil || state.path != "" {
		return err
	}
	s.startEarly()
	return s.capture(ctx)
}

// renew makes the first state anew where state is gone or cannot be read, and says so.
func (s *Session) renew(ctx context.Context, state stateRef) error {
	if s.file != nil && s.sb.stateExists(state.path) {
		return wrap(fmt.Errorf("the state in %s cannot be read", state.path), driver.KindConfig, "session", s.sb.backend, s.name,
			"look at the file, or start anew with "+s.sb.suggest("session rm", s.name))
	}
	select {
	case <-s.first:
		defer func() { s.first <- struct{}{} }()
	case <-ctx.Done():
		return wrap(ctx.Err(), driver.KindCanceled, "session", s.sb.backend, s.name, "")
	}
	if now, _, err := s.current(); err != nil || now.path != state.path {
		return err // another call has done it
	}
	s.note("the session's earlier state (variables, functions) is gone; it starts anew")
	return s.capture(ctx)
}

// loginFile is a file that is read for the first state: a bash word, and a bash condition under which it is not.
type loginFile struct{ word, unless string }

// readNamed is bash text that learns which login files others name: what another one reads need not be read again, which may
// take long and append to PATH twice.
const readNamed = `ew_bash_profile= ew_profile=
[[ ! -r ~/.bash_profile ]] || IFS= builtin read -r -d '' ew_bash_profile <~/.bash_profile
[[ ! -r ~/.profile ]] || IFS= builtin read -r -d '' ew_profile <~/.profile
`

// loginFiles are what a login bash reads.
func (s *Session) loginFiles() []loginFile {
	const first = `"$(builtin cd ~ 2>/dev/null; for f in .bash_profile .bash_login .profile; do [[ -r $f ]] && builtin printf '%s' "$PWD/$f" && break; done)"`
	files := []loginFile{{word: "/etc/profile"}}
	add := func(words ...string) {
		for _, word := range words {
			files = append(files, loginFile{word: word})
		}
	}
	init := s.sb.cfg.Strings("shell_init_files")
	switch {
	case len(init) > 0:
		add(first)
		for _, f := range init {
			if rest, ok := strings.CutPrefix(f, "~/"); ok {
				add("~/" + bashscript.Quote(rest))
			} else {
				add(bashscript.Quote(f))
			}
		}
	case s.sb.cfg.Bool("auto_source_bashrc"):
		files = append(files,
			loginFile{"~/.profile", "$ew_bash_profile == */.profile*"},
			loginFile{"~/.bash_profile", ""},
			loginFile{"~/.bashrc", "$ew_bash_profile$ew_profile == *.bashrc*"})
	default:
		add(first)
	}
	return files
}

// capture makes the first state. A file that calls exit keeps what it had set, and those after it are read on top; one that
// hangs, or that replaces or kills the shell, is left out; each is said once. Where the connection to the shell broke that is nobody's doing, as
// far as is known, and the file is read again. All of it together is bounded.
func (s *Session) capture(ctx context.Context) error {
	limit := s.sb.cfg.Duration("shell_init_timeout")
	if limit <= 0 {
		limit = 30 * time.Second
	}
	deadline := time.Now().Add(limit)
	files := s.loginFiles()
	from, at, broken := stateRef{private: s.file == nil}, 0, 0
	for {
		left := time.Until(deadline)
		if at < len(files) && left < limit/10 {
			s.note("the login files took longer than shell_init_timeout (" + limit.String() + "): those after " + files[at].word + " are left out")
			at = len(files)
		}
		// A file that hangs must leave time for those after it.
		slice := max(left*2/3, limit/10)
		c, err := s.captureOnce(ctx, from, files[at:], slice)
		if err != nil {
			return err
		}
		if c.lost != nil {
			if _, err := s.sb.reopen(ctx, c.at); err != nil {
				return err
			}
			if broken++; broken <= startTries {
				if s.sb.at() != c.at { // the new sandbox has nothing of what was captured so far
					from, at = stateRef{private: s.file == nil}, 0
				}
				continue
			}
		}
		if c.state.path != "" {
			if from.path != "" && from.path != c.state.path {
				s.sb.removeState(from.path)
			}
			from = c.state
		}
		if c.complete && c.state.path != "" {
			return s.commit(from, "", s.ends.Add(1))
		}
		if at >= len(files) {
			return wrap(errText("no first state could be made: "+c.why), driver.KindUnavailable, "session", s.sb.backend, s.name,
				"free some space, or see what bash says with `bash --noprofile --norc -c true`")
		}
		at += max(c.file, 1)
		switch {
		case c.state.path != "":
			s.note("the login file " + files[at-1].word + " ended its shell; what it had set is kept")
		default:
			s.note("the login file " + files[at-1].word + " is left out: it " + c.why)
		}
	}
}

// captured is what one attempt came to.
type captured struct {
	state    stateRef // path "" where none was written
	complete bool     // it came to its end
	file     int      // the number of the last file that was begun, from 1
	why      string
	lost     error // the connection to the shell broke, at this place; nil for another end
	at       *place
}

// shellToCapture starts a shell that has loaded from; one that ends before it is ready is tried again.
func (s *Session) shellToCapture(ctx context.Context, from stateRef) (*shell, error) {
	for try := 0; ; try++ {
		sh, err := s.startShell(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.loadShell(sh, from) // an error shows as a bash that is never ready
		s.mu.Unlock()
		if _, err = s.awaitReady(ctx, sh); err == nil {
			return sh, nil
		}
		if err := s.notReady(ctx, sh, err, try); err != nil {
			return nil, err
		}
	}
}

func (s *Session) captureOnce(ctx context.Context, from stateRef, files []loginFile, limit time.Duration) (captured, error) {
	sh, err := s.shellToCapture(ctx, from)
	if err != nil {
		return captured{}, err
	}
	c := newCall(s, s.captureText(sh, files), &RunOptions{Timeout: limit, MaxOutput: 1 << 16})
	defer c.close()
	c.sh = sh
	c.capturing = true
	c.sendTo("/")
	c.wait(ctx)
	c.stopOutput()
	if err := ctx.Err(); err != nil {
		return captured{}, wrap(err, driver.KindCanceled, "session", s.sb.backend, s.name, "")
	}
	if closedNow(s.done) {
		// What its end cut short must not become a named session's first state.
		return captured{}, wrap(errText("the session was closed while its login files were read"), driver.KindCanceled, "session", s.sb.backend, s.name, "")
	}
	out := s.readCapture(ctx, c)
	out.at = sh.at
	return out, nil
}

func (s *Session) readCapture(ctx context.Context, c *call) captured {
	var out captured
	for line := range strings.Lines(string(c.out.Bytes())) {
		line = strings.TrimSuffix(line, "\n")
		if n, err := strconv.Atoi(line); err == nil {
			out.file = n
		}
		out.complete = out.complete || line == "end"
	}
	switch {
	case c.cause == TimedOut:
		out.why = "did not end"
	case c.cause == Signaled:
		out.why = "ended the shell with signal " + c.signal
	case c.cause == Lost:
		out.lost = c.lost
		out.why = "broke the connection to its shell: " + c.lost.Error()
	default:
		out.why = "replaced or ended the shell"
	}
	if !c.stateSave || c.cause == TimedOut {
		if c.stateSave {
			c.sh.release()
		}
		return out
	}
	sctx, cancel := context.WithTimeout(ctx, saveWait)
	defer cancel()
	select {
	case <-c.sh.saved:
	case <-sctx.Done():
	case <-c.sh.exited:
		c.sh.awaitRest(sctx)
	}
	c.sh.release()
	if c.sh.savedKind == 'S' {
		out.state = stateRef{path: c.sh.slot, private: c.sh.from.private}
	} else if c.sh.savedKind == 'U' {
		out.state = *c.sh.from
	} else {
		out.why = "left a state that could not be written"
	}
	return out
}

// undo is bash text that takes back what a login file did to the shell itself.
const undo = `builtin set +aefkmnuvxCETP +o posix
builtin shopt -u expand_aliases extdebug nullglob failglob
builtin trap - DEBUG ERR RETURN
builtin cd / >/dev/null 2>&1
`

// finish is bash text that puts the caller's own PATH entries in front, without saying any twice.
const finish = `IFS=:
builtin set -f
for ew_entry in $PATH; do
case ":$ew_x:" in *":$ew_entry:"*) ;; *) ew_x+=:$ew_entry ;; esac
done
builtin set +f
IFS=$' \t\n'
builtin export PATH="$ew_x"
`

// captureText is the bash text that reads the login files: it prints the number of each file and at last "end"; what a file
// does to the shell itself is undone behind it.
func (s *Session) captureText(sh *shell, files []loginFile) string {
	var b strings.Builder
	b.WriteString("builtin shopt -u expand_aliases\n" + readNamed)
	if sh.from.path == "" {
		b.WriteString(sh.at.info.Functions)
	}
	rearm := "builtin trap -- " + bashscript.Quote(sh.at.scripts.EndTrap(sh.loading)) + " EXIT\n"
	for i, file := range files {
		unless := file.unless
		if unless == "" {
			unless = "! a"
		}
		fmt.Fprintf(&b, "ew_x=%s\nif [[ -f $ew_x && -r $ew_x && ! ( %s ) ]]; then\nbuiltin printf '%%s\\n' %d\nbuiltin . \"$ew_x\" >/dev/null 2>&1 </dev/null\nfi\n", file.word, unless, i+1)
		b.WriteString(undo + rearm)
	}
	if first := sh.at.info.PathFirst; first != "" {
		b.WriteString("ew_x=" + bashscript.Quote(first) + "\n" + finish)
	}
	b.WriteString("builtin unset -v OLDPWD\n" + sh.at.info.ScrubProfile + "\nbuiltin printf 'end\\n'\n")
	return b.String()
}
