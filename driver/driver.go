// Package driver holds what a backend implements.
//
// A backend answers one question: how is a bash started in this place? Everything else that makes a call (state,
// reports, timeouts, interrupts, output, stdin) is written once, in package elsewhere and internal/bashscript, above
// this interface. So a driver is thin: it opens a sandbox, starts a bash in it with three plain streams, says whether
// the sandbox still lives, and closes it.
//
// Drivers return raw errors; Backend.Classify says what they mean, and package elsewhere wraps them once. Extra
// abilities are small interfaces in abilities.go, found by type assertion. The package holds types only and imports
// nothing of ours; driver/drivertest is the suite that every driver has to pass.
package driver

import (
	"context"
	"io"
	"log/slog"
)

// Backend is what a backend package exports.
type Backend struct {
	// Name is the backend's name in settings and on the command line, for example "docker".
	Name string

	// Aliases are other names accepted for it, for example "apptainer" for "singularity".
	Aliases []string

	// Summary says in one line where commands run and what isolates them.
	Summary string

	// Settings are the backend's own rows of the settings table.
	Settings []Setting

	// Open opens, finds or makes the sandbox of req.Task. It is nil while the backend is not built: opening one is
	// then an "unsupported" error. ctx bounds the opening only, not the life of the sandbox. A half-made sandbox is
	// removed before an error is returned.
	Open func(ctx context.Context, req OpenRequest) (Sandbox, error)

	// Available asks whether a sandbox could be opened here, without making anything: nil is yes, an error says what is
	// missing and what to do. A nil Available means that Open alone can tell.
	Available func(ctx context.Context, req OpenRequest) error

	// Keeper gives access to the sandboxes of req.Identity that are kept, whatever req.Task says. It is nil where a backend
	// keeps none (local, ssh).
	Keeper func(ctx context.Context, req OpenRequest) (Keeper, error)

	// Type is a nil value of the type that Open returns: its optional abilities can be seen without opening one.
	Type Sandbox

	// Classify tells the kind of a raw error that Open or the sandbox returned. Nil, or an empty answer, means
	// KindUnavailable. It never sees a nil error.
	Classify func(error) Kind
}

// OpenRequest is what a backend is told when a sandbox is opened.
type OpenRequest struct {
	// Config reads the settings; only rows that the table knows may be asked for.
	Config Config

	// Task names the sandbox, as the user wrote it; any string. A backend maps it injectively before it becomes a
	// path, label or name.
	Task string

	// Identity says whose sandbox it is.
	Identity Identity

	// Environ is the caller's environment ("K=V"), for backends that hand it on. It may hold secrets.
	Environ []string

	// Dir is the caller's working directory, or "" where it has none.
	Dir string

	// ThrowAway says that nothing of this run may outlive it: the sandbox must not persist and goes on close.
	ThrowAway bool

	// Logger is never nil.
	Logger *slog.Logger

	// Progress, where not nil, receives short texts about slow steps ("pulling image ... 40 %"), of Open and of Prepare. It may be called
	// from any goroutine.
	Progress func(string)
}

// Identity says whose sandboxes these are: reuse, listing and reaping touch only those of the own identity and profile.
type Identity struct {
	// ID is a random id, made once in HERMES_HOME/elsewhere (or for this process alone where there is no home).
	ID string
	// Profile is Hermes' profile name; "default" where none is chosen. For an entry of terminal.backends its name follows behind
	// a slash: two entries never share a sandbox.
	Profile string
	// Machine is the host's name and UID the user's id, kept as labels beside ID.
	Machine string
	UID     string
	// Home is HERMES_HOME as an absolute path, or "" where the run has none.
	Home string
	// Owner is the id of this process's lease (see internal/owner).
	Owner string
}

// Sandbox is one running place. Its methods may be called from several goroutines at once.
type Sandbox interface {
	// Bash starts a new bash with spec. The script that it runs is elsewhere's, never the user's text. ctx bounds
	// the start only. A returned Process must be waited for with Wait.
	Bash(ctx context.Context, spec BashSpec) (Process, error)

	// Info says what this place is. It does no I/O and never changes during the life of the value.
	Info() Info

	// Alive asks the engine whether the sandbox can still start a bash. Nil means yes; an error of KindLost means
	// that it is gone, of KindUnavailable that the engine does not answer.
	Alive(ctx context.Context) error

	// Close gives the sandbox up: keeps, stops or removes it as its settings say. A second Close does nothing.
	Close(ctx context.Context) error
}

// BashSpec describes one bash to start: `bash ARGS...` with ENV added to the sandbox's own environment, stdin from a
// pipe that stays open until it is closed, stdout and stderr apart.
type BashSpec struct {
	// ID is the call's id (32 hexadecimal digits). It is in Env too.
	ID string
	// Args are bash's arguments: a fixed, short text of elsewhere's without secrets.
	Args []string
	// Env is added to the environment of the new bash ("K=V"). No secrets.
	Env []string
	// Spare says that nobody waits for this bash: a driver refuses it with an error of any kind where it would cost more than
	// a bash (another connection), since a call can do without.
	Spare bool
	// Watchdog says that this bash waits on its stdin for this process's end, and else does nothing: a driver whose service takes a
	// sandbox for busy while it runs may close its stdin while no other bash is in use and Watches says no. Another one is started with
	// the next call.
	Watchdog bool
	// Watches tells of a watchdog whether the end of its stdin would end anything now: a job that this process owns is in use
	// without a bash of ours. It does not block. Nil is never.
	Watches func() bool
}

// Process is one running bash.
type Process interface {
	// Stdin is the write end of the bash's standard input; nil where the transport has none. The user of the process
	// closes it. A write to a bash that ended returns an error.
	Stdin() io.WriteCloser

	// Stdout and Stderr are read by one goroutine each. They report io.EOF when nobody can write any more, which
	// may be long after the bash ended.
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser

	// Wait blocks until the bash itself ended or ctx is done, and says how it ended. It may be called several
	// times and from several goroutines. It does not wait for the streams.
	Wait(ctx context.Context) (ExitStatus, error)

	// Kill ends the bash (and what the transport lets it reach besides) at once. It is the last resort: elsewhere
	// ends a call's tree with a second bash first. Killing an ended process is no error.
	Kill(ctx context.Context) error
}

// ExitStatus says how a bash ended.
type ExitStatus struct {
	// Code is the exit code; 128+n where signal n ended it.
	Code int
	// Signal is the signal's name without SIG ("KILL"), or "" where it exited by itself.
	Signal string
}

// Info says what a sandbox is and what is in force there.
type Info struct {
	// Host, SandboxID and User say where commands really run.
	Host      string
	SandboxID string
	User      string

	// Home is the home directory there; Dir the directory in which a new session starts (absolute).
	Home string
	Dir  string

	// StateDir is a directory of mode 0700 for the state files of sessions that are kept, PrivateDir one for those of
	// this process alone; the driver removes PrivateDir on Close. Either may be the other.
	StateDir   string
	PrivateDir string

	// Tidy says that PrivateDir is removed by the watchdog, in the sandbox, when this process closes it or dies; Close need not.
	// It needs Watchdog.
	Tidy bool

	// Linger says that the engine closes an exec's streams with its first process, so that a bash with background
	// children of its own has to stay.
	Linger bool

	// KeepsChildren says that a child which a finished call left in the background belongs to the sandbox and outlives the
	// session and this process; false says that a throw-away session's end is its end.
	KeepsChildren bool

	// CallEnv holds variables that every call has and that never go into state: forwarded ones and secrets. They travel
	// in the call's message to its bash, never in an argument, in the environment of a waiting bash or in the engine's
	// settings. A variable given for one call beats them.
	CallEnv map[string]string

	// Watchdog says that the stdin of a bash here is closed when this process dies, so that a bash of ours can wait for
	// that and end what the process left.
	Watchdog bool

	// Lease says that the far end may never learn that this process or the connection is gone, so that a watchdog there has to
	// be told every minute that a call's owner lives; calls end when it is not for terminal.orphan_grace.
	Lease bool

	// PathFirst holds PATH entries of the caller (":"-separated) that stay in front of what login files set; "" for
	// none. KeepEnv are names of variables that always have the value with which the bash was started and never go
	// into state.
	PathFirst string
	KeepEnv   []string

	// Functions is bash text that defines the functions which the caller's environment exports, or "".
	Functions string

	// ScrubProfile is bash text run after the login files when terminal.scrub_profile is on, or "".
	ScrubProfile string

	// Exposure says what of a machine commands here can reach, as the engine has it and not as the settings asked for it: where
	// there is anything, commands are checked before they run. The zero is nothing: the boundary holds.
	Exposure Exposure

	// Features is what is in force here: isolation, limits, network, persistence.
	Features []Feature

	// Notices are said once, with the first result.
	Notices []string
	// Recreated says, where the backend remembers that this task had a sandbox, why this is another one or was started anew
	// although nobody asked for that; "" otherwise. The first result has it.
	Recreated string
}

// Exposure is what of a machine commands in a sandbox can reach, or harm, from within.
type Exposure struct {
	// Machine says that commands run on a machine itself, with no boundary but their user's rights (local, ssh), and Here that
	// it is this one, so that its paths mean the same to elsewhere.
	Machine bool
	Here    bool
	// Mounts are the machine's paths in a container.
	Mounts []Mount
	// Devices are devices of the machine in a container, by path or by a word for people; not those that every container has.
	Devices []string
	// HostNetwork and HostPID say that a container shares the machine's network or process namespace.
	HostNetwork bool
	HostPID     bool
	// Privileged says that a container has all rights on its machine, EngineSocket that the engine can be told from within to
	// do anything; a socket of a usual name among Mounts need not be said twice.
	Privileged   bool
	EngineSocket bool
}

// Mount is a path of the machine in a container.
type Mount struct {
	Target   string // in the container
	Source   string // on the machine, or the name of a volume of its engine
	Writable bool
	Ours     bool // the driver's own for this sandbox alone: its files, its state
}

// Feature is one property of a sandbox and whether it is in force.
type Feature struct {
	Name   string       `json:"name"`
	State  FeatureState `json:"state"`
	Detail string       `json:"detail,omitempty"`
}

// FeatureState says whether a feature is in force.
type FeatureState string

// The states of a feature.
const (
	Active      FeatureState = "active"
	Degraded    FeatureState = "degraded"
	Unsupported FeatureState = "unsupported"
)

// Kind is the kind of a failure that is elsewhere's, not the command's.
type Kind string

// The kinds of failure. A command that timed out or was interrupted is a result, not an error: KindTimeout and
// KindCanceled are for elsewhere's own work (opening, pulling, syncing).
const (
	KindUnavailable Kind = "unavailable" // the engine or host is down, or does not let this user in
	KindLost        Kind = "lost"        // the sandbox or the connection went away during the call
	KindConfig      Kind = "config"      // a setting or an argument is wrong
	KindDenied      Kind = "denied"      // refused by a policy
	KindUnsupported Kind = "unsupported" // this backend cannot do it
	KindTimeout     Kind = "timeout"
	KindCanceled    Kind = "canceled"
)
