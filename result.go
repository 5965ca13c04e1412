package elsewhere

import "time"

// Cause says why a call ended, so that `exit 124` by the command and a timeout cannot be confused.
type Cause string

// The causes.
const (
	Exited      Cause = "exited"      // the command's own exit code
	Signaled    Cause = "signal"      // the shell died of a signal; ExitCode is 128+n
	TimedOut    Cause = "timeout"     // ExitCode 124
	Interrupted Cause = "interrupted" // ctx was canceled or Interrupt called; ExitCode 130
	Directory   Cause = "directory"   // the directory named for this call cannot be entered; ExitCode 126, nothing ran
	Denied      Cause = "denied"      // refused by a policy; nothing ran; Run returns an error too
	Lost        Cause = "lost"        // the end is unknown; Run returns an error too
)

// Result is what one call came to.
type Result struct {
	CallID  string
	Backend string
	Task    string
	Session string // "" for a throw-away session
	Where   Where

	// Output is stdout and stderr in the order in which they were written, byte for byte; with RunOptions.Split it is
	// empty and Stdout and Stderr hold them apart. All three are empty where RunOptions gave writers and no MaxOutput.
	// Beyond MaxOutput the middle is left out (Truncated) and OutputFile has the rest.
	Output []byte
	Stdout []byte
	Stderr []byte
	Split  bool

	ExitCode    int    // -1 where it is unknown
	Cause       Cause  // never empty
	Signal      string // the signal's name without SIG, with Signaled
	ExitMeaning string // what the code means for this command ("no match"), or ""

	// Cwd is the directory after the call, byte for byte: the shell's logical PWD.
	Cwd string

	// StateSaved says that the shell reported its end and writes the session's new state. The write itself ends after
	// Run has returned: Session.Flush waits for it, and one that failed is a notice of the next result.
	StateSaved bool

	// Survivors are processes of this call that a timeout or interrupt found and could not end.
	Survivors []Survivor

	Duration    time.Duration
	Truncated   bool
	OutputBytes int64  // of all streams, before any window
	OutputFile  string // a file on this host with the whole output (to its own limit), or ""

	// Recreated says why the sandbox is a new one since the last call, or "".
	Recreated string

	// Notices are things that the user has to know and that are not failures, each one line.
	Notices []string
}

// Where says where a command really ran.
type Where struct {
	Host      string `json:"host"`
	SandboxID string `json:"sandbox_id"`
	User      string `json:"user"`
}

// Survivor is a process that could not be ended.
type Survivor struct {
	PID     int    `json:"pid"`
	Command string `json:"command"` // its short name
}
