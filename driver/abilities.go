package driver

import (
	"context"
	"io"
	"time"
)

// The optional abilities. A sandbox that has one implements its interface; `elsewhere backends` prints who has which.
// Where a driver lacks one, package elsewhere does it through Bash if it can, and answers KindUnsupported if it cannot.

// Preparer is called before each call, for file sync or to wake a sleeping sandbox. Its notices go into the result.
type Preparer interface {
	Prepare(ctx context.Context) (notices []string, err error)
}

// StateRemover removes state files (absolute paths inside Info.StateDir or Info.PrivateDir) outside calls. A file
// that is not there is no error. Without it, a later bash truncates them.
type StateRemover interface {
	RemoveState(ctx context.Context, paths []string) error
}

// StateLister lists the state files in a state directory, so that those which dead owners left can be found.
type StateLister interface {
	ListState(ctx context.Context, dir string) ([]StateFile, error)
}

// StateFile is one state file.
type StateFile struct {
	Path    string
	Head    string // its first line, at most 256 bytes, without the newline
	ModTime time.Time
}

// PTY starts a bash on a pseudo-terminal. The bash leads a process group of its own in front of a session that has nothing else in it
// but, where it must be, its leader; it has the session's controlling terminal as its 0, 1 and 2. The terminal is as the system makes
// it (it echoes, and ^C interrupts). ctx bounds the start only.
type PTY interface {
	BashPTY(ctx context.Context, spec BashSpec, rows, cols uint16) (PTYProcess, error)
}

// PTYProcess is a bash on a pseudo-terminal. Stdin is what is typed and Stdout what is shown, byte for byte; Stderr is empty.
// Stdin's Close does nothing: a terminal has no end of input but a key. Stdout's Close gives the terminal up, which hangs it up
// where the transport can.
type PTYProcess interface {
	Process
	// Resize tells the terminal a new size, in characters.
	Resize(ctx context.Context, rows, cols uint16) error
}

// Signaler ends one bash and all it started by the engine's own means.
type Signaler interface {
	Signal(ctx context.Context, p Process, signal string) error
}

// Uploader and Downloader move a tar stream faster than a bash can.
type Uploader interface {
	Upload(ctx context.Context, dir string, tar io.Reader) error
}

// Downloader is the other direction of Uploader.
type Downloader interface {
	Download(ctx context.Context, path string, tar io.Writer) error
}

// Snapshotter stores the sandbox's files so that a later sandbox can start from them.
type Snapshotter interface {
	Snapshot(ctx context.Context) (id string, err error)
}

// Stopper ends all that runs in the sandbox by the engine's own means. It is for places where what cannot be ended is paid for and can
// be reached by nothing else. Package elsewhere asks for it as the last resort: it could not be confirmed that a call's processes have
// ended, neither in time nor within 10 s behind the result, though Alive said all the while that the sandbox runs. Other calls and jobs
// end with it, also those of other processes.
type Stopper interface {
	// Stop stores the files of a sandbox that persists, where its engine does not keep them by itself, stops it, and returns when the
	// engine says that it has. Then Alive says KindLost, and Backend.Open wakes or restores the task's sandbox. Files that cannot be
	// stored are an error, and the sandbox runs on. One that runs no more is no error. ctx bounds it.
	Stop(ctx context.Context) error
}

// The codes that an ExitExplainer is asked about.
const (
	CodeKilled    = 128 + 9 // a command was ended by KILL
	CodeNoProcess = 254     // a bash could start no process
)

// ExitExplainer knows more of two ends than their codes say: of a command that was killed (CodeKilled) that memory had run out, of a
// bash that could start no process (CodeNoProcess) that there are as many as there may be; and which setting gives it more. It is asked
// for such ends alone. "" is nothing known.
type ExitExplainer interface {
	ExplainExit(ctx context.Context, code int) string
}
