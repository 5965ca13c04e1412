package driver

import (
	"context"
	"time"
)

// Keeper looks after the sandboxes of one identity and profile that can outlive a process. It never sees or touches
// another's. It must be closed. Its errors are raw, as those of Backend.Open.
type Keeper interface {
	// List lists the sandboxes, in whatever state, oldest first.
	List(ctx context.Context) ([]SandboxInfo, error)

	// Inspect tells all about the sandbox with this id, as the engine has it and not as it was asked for.
	Inspect(ctx context.Context, id string) (SandboxDetail, error)

	// Stop ends all processes in the sandbox and keeps its files as its settings say. One that is stopped already is no
	// error. The next call on its task starts it again.
	Stop(ctx context.Context, id string) error

	// Remove removes the sandbox with its processes; with data also what it keeps on this machine (SandboxInfo.Data) and what its service has
	// stored of it. Of one that has its files inside (SandboxInfo.FilesInside) they may go in any case.
	// One that is gone already is no error. It returns what was thrown away, for people.
	Remove(ctx context.Context, id string, data bool) (removed []string, err error)

	// Reap removes sandboxes that were made not to persist and whose owners are all dead, or which have been stopped for
	// longer than twice the lifetime. It returns the tasks of those that it removed. A sandbox that cannot be removed does
	// not stop the rest.
	Reap(ctx context.Context) (removed []string, err error)

	// Close gives up the connection to the engine.
	Close() error
}

// The states of a sandbox in a listing, in whatever words its engine has.
const (
	StateRunning = "running"
	StatePaused  = "paused"
	StateStopped = "stopped" // exited, or made and not started
	StateDead    = "dead"    // cannot be used any more
	StateData    = "data"    // there is none any more, but its files: the next call of the task makes one on them
)

// SandboxInfo is one row of a listing.
type SandboxInfo struct {
	Task    string    `json:"task"`       // as the user wrote it
	ID      string    `json:"sandbox_id"` // as Info.SandboxID
	Name    string    `json:"name"`       // the engine's name for it
	State   string    `json:"state"`      // one of the State constants
	Image   string    `json:"image"`
	Created time.Time `json:"created"`
	// Persistent says that it was made to outlive the process that made it.
	Persistent bool `json:"persistent"`
	// InUse says that a process which lives has it open.
	InUse bool `json:"in_use"`
	// Data are the directories on this machine that hold its files and outlive it, and for people the volumes of its engine
	// that do.
	Data []string `json:"data"`
	// FilesInside says that its engine keeps its files, in it or stored beside it, and nobody else does, where somebody may want them: they may
	// go when it is removed, whatever Remove is told of data. Such a sandbox is removed by who names it alone.
	FilesInside bool `json:"files_inside,omitempty"`
	// Exposure is that of Info, as the engine has it; nil where it is not known: the sandbox does not run, was made before this was
	// noted with it, or has to be looked at alone (Inspect).
	Exposure *Exposure `json:"-"`
}

// SandboxDetail is what Keeper.Inspect tells.
type SandboxDetail struct {
	SandboxInfo
	Host     string    `json:"host"`
	User     string    `json:"user"`
	Started  time.Time `json:"started"` // zero while it is not running
	ImageID  string    `json:"image_id"`
	Features []Feature `json:"features"` // isolation, capabilities, limits, disk, network
	Mounts   []string  `json:"mounts"`   // "SOURCE on TARGET (ro|rw, kind)"
	// Processes counts what runs in it; -1 where that cannot be told.
	Processes int `json:"processes"`
}
