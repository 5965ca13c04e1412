package docker

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/moby/moby/client"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// seedScript runs a script of ours in a subshell, and where that went well prints $1 and waits for what to become: the number of
// variables, they ("K=V"), a bash's arguments, and $1 again, each ended by a NUL. An exec costs an engine many times what a bash costs,
// so the one that looks around is the first bash too. At the end of its input it leaves.
func seedScript(script string) string {
	return `ew_end=$1
shift
(
` + script + `
) || exit
printf '%s' "$ew_end"
IFS= read -r -t 600 -d '' ew_n || exit 0
while ((ew_n-- > 0)); do
	IFS= read -r -d '' ew_x && export "$ew_x" || exit 0
done
ew_args=()
while IFS= read -r -d '' ew_x && [[ $ew_x != "$ew_end" ]]; do
	ew_args+=("$ew_x")
done
[[ $ew_x != "$ew_end" ]] || exec bash "${ew_args[@]}"
`
}

// seed is a bash that waits for what to become.
type seed struct {
	*process
	end string
}

// plant runs a script of ours as run does, and keeps its bash for the first one that is wanted.
func (s *sandbox) plant(ctx context.Context, script string, args ...string) (string, error) {
	end := bashscript.NewID()
	p, err := s.start(ctx, append([]string{"--noprofile", "--norc", "-p", "-c", seedScript(script), "elsewhere", end}, args...), s.env, client.ConsoleSize{})
	if err != nil {
		return "", s.startFailed(ctx, err)
	}
	p.script = true
	if !s.own(p) {
		_ = p.conn.Close()
		return "", context.Canceled
	}
	go p.split()
	stop := context.AfterFunc(ctx, p.closeAll)
	var printed []byte
	for buffer := make([]byte, 4<<10); len(printed) < scriptOutput; {
		n, err := p.out.Read(buffer)
		printed = append(printed, buffer[:n]...)
		if text, ok := bytes.CutSuffix(printed, []byte(end)); ok && stop() {
			s.seed.Store(&seed{p, end})
			return string(text), nil
		}
		if err != nil {
			break
		}
	}
	stop()
	return s.finish(ctx, p, printed)
}

// become makes the bash that waits the one that is wanted. Nil says that there is none.
func (s *sandbox) become(args, env []string) *process {
	one := s.seed.Swap(nil)
	if one == nil || one.streamsEnded() {
		return nil
	}
	var b strings.Builder
	b.WriteString(strconv.Itoa(len(env)) + "\x00")
	for _, word := range append(append(append([]string{}, env...), args...), one.end) {
		b.WriteString(word + "\x00")
	}
	one.script = false
	if _, err := io.WriteString(&one.stdin, b.String()); err != nil {
		one.closeAll()
		return nil
	}
	return one.process
}
