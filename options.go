package elsewhere

import (
	"context"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// DefaultMaxOutput is how many bytes of output a Result keeps unless RunOptions.MaxOutput says otherwise: 64 MiB.
const DefaultMaxOutput = 64 << 20

// DefaultTask is the task of a sandbox for which none is named.
const DefaultTask = "default"

// SandboxOptions chooses the sandbox. Nil is the configured backend and the task "default".
type SandboxOptions struct {
	// Backend is a backend or the name of an entry of terminal.backends; "" is terminal.backend.
	Backend string
	// Task names the sandbox; "" is DefaultTask. Any string.
	Task string
	// Environ is the environment that commands start from, before it is scrubbed ("K=V"); nil is os.Environ().
	Environ []string
	// ThrowAway says that nothing may outlive the Sandbox.
	ThrowAway bool
	// SpawnAhead, where not nil, is used instead of terminal.spawn_ahead: how many bash processes each session keeps
	// waiting for its next call.
	SpawnAhead *int
	// Logger is used for everything that is no result; nil discards.
	Logger *slog.Logger
	// TracerProvider gets a span for the opening and one for each call, and MeterProvider the numbers; nil is OpenTelemetry's global
	// one, which does nothing until a program sets it. No command text is in either. They are not shut down here.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Progress receives short texts about slow steps, of opening and of making ready for a call (its files are sent, a sandbox
	// is started again). After those of a call it gets an empty text before the command begins. It may be called from any
	// goroutine. May be nil.
	Progress func(string)
	// Approve is asked before something is done that a policy asks about, where commands are checked (Sandbox.Guarded): on local and
	// ssh, and in a container from which a machine can be harmed. It may be called from several goroutines, with the context of the
	// call that waits for it, for as long as approvals.timeout says. An error is a no, and its text says why; one that is
	// errors.ErrUnsupported says that nobody can be asked here, and the hint is where somebody can. Nil is always no: a program that
	// runs commands of its own there, and wants no check, sets policy.enabled to false (config.Options.Flags), or allows what it does
	// by policy.rules.
	Approve func(ctx context.Context, q PolicyQuestion) (PolicyAnswer, error)
}

// RunOptions says how one command is run. Nil is: the session's directory, no stdin, no timeout, output merged and
// kept in the result.
type RunOptions struct {
	// Dir is the directory for this call alone; "" is the session's own. Relative to the session's own; ~ is the
	// sandbox's home. One that cannot be entered ends the call with cause Directory.
	Dir string

	// Env holds variables for this call alone. They beat the session's and are never saved.
	Env map[string]string

	// Stdin is the command's standard input: any bytes, read until io.EOF. Nil is end of file at once. Run does not wait
	// for a Read that is still blocked when the command has ended.
	Stdin io.Reader

	// Timeout ends the command's whole tree after this time; 0 is none. Counted from the moment the command is sent.
	Timeout time.Duration

	// Stdout and Stderr receive output as it comes, each called by one goroutine at a time; without Split all output goes
	// to Stdout. A write error ends the call as an interrupt does. They are not used after Run has returned.
	Stdout io.Writer
	Stderr io.Writer

	// Split keeps the two streams apart.
	Split bool

	// MaxOutput is how many bytes of output the Result keeps (for each stream, with Split): 0 is DefaultMaxOutput, or none
	// where a writer is given; a negative number is none.
	MaxOutput int64
}
