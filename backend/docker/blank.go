package docker

import (
	"context"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// A blank is a bash that an opening has started before anybody asked for one, and that waits to be told which one it is to become.
// What runs in a container first is a look around, a bash that reads the login files, a watchdog and the bash of a call, and an exec
// costs the engine far more than a bash: so the bash that has looked around stays as a blank, and another one is started beside it.
type blank struct {
	ready chan struct{} // closed when it waits to be told, or failed
	p     *process      // nil where it failed; to be read when ready is closed
}

const (
	// blankLife is how long a blank waits to be of use: long enough for whoever opens a sandbox to run something in it.
	blankLife = 20 * time.Second
	// blankStart bounds its start.
	blankStart = time.Minute
)

// blanksBeside is how many are started beside the look around: on two processors a second one takes longer than it saves.
const blanksBeside = 1

// becomeScript makes a bash into another one: it reads words, each ended by a NUL, of which those that begin with e are entries of the
// environment and the others arguments, up to an empty one. Without that it ends. It says first, on both streams, by $1 that all
// that came before it is over.
const becomeScript = `
printf %s "$1"
printf %s "$1" >&2
set --
while IFS= read -r -d '' elsewhere_word || exit 0; [[ $elsewhere_word ]]; do
	case $elsewhere_word in
	e*) export "${elsewhere_word#?}" ;;
	*) set -- "$@" "${elsewhere_word#?}" ;;
	esac
done
exec bash "$@"`

// exportable are the entries that bash can add to its environment.
var exportable = regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9]*=`)

// becoming is what a blank is told, or "" where it cannot become that bash.
func becoming(env, args []string) string {
	var words strings.Builder
	for _, entry := range env {
		if !exportable.MatchString(entry) || strings.HasPrefix(entry, "elsewhere_word=") {
			return ""
		}
		words.WriteString("e" + entry + "\x00")
	}
	for _, arg := range args {
		words.WriteString("a" + arg + "\x00")
	}
	text := words.String() + "\x00"
	if strings.Count(text, "\x00") != len(env)+len(args)+1 {
		return ""
	}
	return text
}

// startBlank starts a blank behind the opening. Nothing depends on it: one that fails is not there.
func (s *sandbox) startBlank(env []string) *blank {
	b := &blank{ready: make(chan struct{})}
	started := s.behind(func() {
		defer close(b.ready)
		ctx, cancel := context.WithTimeout(s.ctx, blankStart)
		defer cancel()
		p, end, err := s.startBecoming(ctx, env, "")
		if err != nil {
			s.log.Debug("no bash could be started beside the opening", "container", s.plan.name, "error", err)
			return
		}
		if _, waits, _ := p.answer(ctx, end); waits {
			b.p = p
			return
		}
		p.closeAll()
	})
	if !started {
		close(b.ready)
	}
	return b
}

// keepBlanks has the first bashes that are asked for made of these.
func (s *sandbox) keepBlanks(blanks []*blank) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blanks = blanks
	s.blankTimer = time.AfterFunc(blankLife, s.dropBlanks)
}

// dropBlanks ends those that were of no use.
func (s *sandbox) dropBlanks() {
	s.mu.Lock()
	blanks := s.blanks
	s.blanks = nil
	s.mu.Unlock()
	s.drop(blanks)
}

// drop ends blanks behind whoever calls it: one may still be being started.
func (s *sandbox) drop(blanks []*blank) {
	for _, b := range blanks {
		s.behind(b.drop) // else they went with the sandbox
	}
}

func (b *blank) drop() {
	<-b.ready // by blankStart
	if b.p != nil {
		b.p.closeAll()
	}
}

// become makes a bash of a blank, where one is there that can become it; nil is none.
func (s *sandbox) become(ctx context.Context, args, env []string) *process {
	text := becoming(env, args)
	if text == "" {
		return nil
	}
	for b := s.nextBlank(); b != nil; b = s.nextBlank() {
		select {
		case <-b.ready:
		case <-ctx.Done():
			s.drop([]*blank{b})
			return nil
		}
		if b.p == nil {
			continue
		}
		if _, err := io.WriteString(&b.p.stdin, text); err == nil {
			b.p.script = false
			return b.p
		}
		b.p.closeAll()
	}
	return nil
}

func (s *sandbox) nextBlank() *blank {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blanks) == 0 {
		return nil
	}
	last := len(s.blanks) - 1
	b := s.blanks[last]
	s.blanks = s.blanks[:last]
	return b
}

// startBecoming starts a bash that runs a script of ours, and then waits to become another one; end is what ends the script's output on
// both streams. Its connection goes with the sandbox.
func (s *sandbox) startBecoming(ctx context.Context, env []string, script string, args ...string) (p *process, end string, err error) {
	end = bashscript.NewID()
	if script != "" {
		script = "( shift\n" + script + "\n) || exit\n"
	}
	if p, err = s.startScript(ctx, env, script+becomeScript, append([]string{end}, args...)...); err != nil {
		return nil, "", err
	}
	if !s.own(p) {
		p.closeAll()
		return nil, "", failure(driver.KindLost, "the sandbox is closed")
	}
	return p, end, nil
}
