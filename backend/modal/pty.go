package modal

import (
	"context"
	"io"
	"strconv"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// terminalProcess is an exec on a terminal. The service makes each with 24 rows of 80 columns and has no call for another size.
type terminalProcess struct{ *process }

// sizeFirst gives the terminal $1 rows of $2 columns, takes back what the service sets for every terminal, and becomes the bash that
// was asked for.
const sizeFirst = `stty rows "$1" cols "$2"; shift 2; unset -v TERM COLORTERM; exec bash "$@"`

// BashPTY starts a bash by an exec with a terminal.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	mark := bashscript.CallVariable + "=" + spec.ID
	args := append([]string{"--noprofile", "--norc", "-p", "-c", sizeFirst, "bash", number(rows), number(cols)}, spec.Args...)
	p, err := s.begin(ctx, args, append([]string{mark}, spec.Env...), beginning{mark: mark, call: true, terminal: true})
	if err != nil {
		return nil, err
	}
	return terminalProcess{p}, nil
}

func number(n uint16) string { return strconv.Itoa(int(n)) }

// Stdin is what is typed. Its Close does nothing.
func (p terminalProcess) Stdin() io.WriteCloser { return typed{p.stdin} }

type typed struct{ *stdin }

func (typed) Close() error { return nil }

// Kill ends the bash and what it started that carries its id. Its input stays open: the service types the key of its end there.
func (p terminalProcess) Kill(ctx context.Context) error { return p.kill(ctx) }

// resizeScript gives the terminal of the process whose environment has $1 ("NAME=ID") $2 rows of $3 columns; those in front are told
// by the kernel. Any process of the call may be met first, and one that was given other descriptors is passed over.
const resizeScript = `for dir in /proc/[0-9]*; do
	[[ ${dir#/proc/} != $$ ]] || continue
	while IFS= read -r -d '' entry; do
		[[ $entry != "$1" ]] || { stty rows "$2" cols "$3" <"$dir/fd/0" && exit; break; }
	done <"$dir/environ"
done 2>/dev/null
echo "no terminal of the call was found" >&2
exit 1`

// Resize has another exec change the size.
func (p terminalProcess) Resize(ctx context.Context, rows, cols uint16) error {
	_, err := p.box.run(ctx, resizeScript, p.mark, number(rows), number(cols))
	return err
}

var _ driver.PTY = (*sandbox)(nil)
