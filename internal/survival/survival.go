// Package survival is the one table of what survives what: for each backend, thing and event a cell. The conformance suite does each
// event for real and holds what is left against it (driver/drivertest, group "survival"), and docs/survival.md is printed from it, so
// that the page cannot say anything else than what was seen.
package survival

import (
	"fmt"
	"slices"
	"strings"
)

// Thing is something that a user may expect to find again.
type Thing string

// The things, of a named session and its sandbox.
const (
	Variables Thing = "exported variables"
	Functions Thing = "functions"
	Directory Thing = "directory"
	Umask     Thing = "umask"
	OneCall   Thing = "variables of one call (`-e`)"
	Forwarded Thing = "forwarded variables and secrets (`env_passthrough`)"
	Job       Thing = "background job"
	KeptJob   Thing = "background job with `--keep`"
	JobOutput Thing = "what a job has printed"
	Child     Thing = "child left with `&`"
	Home      Thing = "files in the home directory"
	Workspace Thing = "files in the workspace"
	Temp      Thing = "files in /tmp"
	System    Thing = "other files (installed packages)"
	Skills    Thing = "skills of HERMES_HOME"
	Mount     Thing = "a mount of yours, read-only"
	Network   Thing = "the network switched off"
)

// Things are the rows of each table, in order.
func Things() []Thing {
	return []Thing{Variables, Functions, Directory, Umask, OneCall, Forwarded, Job, KeptJob, JobOutput, Child, Home, Workspace, Temp, System, Skills, Mount, Network}
}

// Event is something that may end a thing.
type Event string

// The events.
const (
	NextCall    Event = "next call"
	NewProcess  Event = "new process"
	Idle        Event = "idle"
	Stop        Event = "stop"
	Restart     Event = "restart"
	Crash       Event = "crash of elsewhere"
	EngineCrash Event = "crash of the engine"
)

// Events are the columns of each table, in order.
func Events() []Event {
	return []Event{NextCall, NewProcess, Idle, Stop, Restart, Crash, EngineCrash}
}

// Fate is what becomes of a thing.
type Fate int

// The fates. Unverified says that no test here can see it, None that there is no such thing or event.
const (
	None Fate = iota
	Kept
	Gone
	Unverified
)

// Cell is one cell of a table: its fate, and what is written for people: "yes", "no, as last stored", "not verified", "—".
type Cell struct {
	Fate Fate
	Text string
}

// parse reads a cell; it panics where one says nothing, which a test of this package finds.
func parse(text string) Cell {
	text = strings.TrimSpace(text)
	word, _, _ := strings.Cut(text, ",")
	fate, known := map[string]Fate{"yes": Kept, "no": Gone, "not verified": Unverified, "—": None}[word]
	if !known {
		panic(fmt.Sprintf("survival: a cell says %q", text))
	}
	return Cell{fate, text}
}

// Table is what survives what on one backend.
type Table struct {
	// Backend is its name, and Seen says on what the table was seen.
	Backend, Seen string
	// Settings are those of the sandbox, beside the default; {HOST} stands for a directory of this machine.
	Settings map[string]string
	// Workspace is the directory of Workspace, MountAt where Mount is; "" for none. Skills says that HERMES_HOME's skills are
	// mounted, and not sent.
	Workspace, MountAt string
	SkillsMounted      bool
	// Events says how each event is made, or why there is none.
	Events map[Event]string
	// rows has the cells of each thing as the page has them: one for each event, between bars.
	rows map[Thing]string
}

// Cell is that of a thing and an event.
func (t *Table) Cell(thing Thing, event Event) Cell {
	cells := strings.Split(t.rows[thing], "|")
	if len(cells) != len(Events()) {
		panic(fmt.Sprintf("survival: %s has %d cells for %s", t.Backend, len(cells), thing))
	}
	return parse(cells[slices.Index(Events(), event)])
}

// Row is the name of a thing's row: what is mounted, and where, differs.
func (t *Table) Row(thing Thing) string {
	switch {
	case thing == Skills && t.SkillsMounted:
		return string(thing) + ", mounted read-only"
	case thing == Skills && t.Cell(thing, NextCall).Fate != None:
		return string(thing) + ", sent before a call"
	}
	return string(thing)
}

// Column tells whether any cell of an event says what becomes of its thing.
func (t *Table) Column(event Event) bool {
	for _, thing := range Things() {
		if c := t.Cell(thing, event); c.Fate == Kept || c.Fate == Gone {
			return true
		}
	}
	return false
}

// Of is the table of a backend; nil where there is none.
func Of(backend string) *Table {
	for _, t := range Tables() {
		if t.Backend == backend {
			return t
		}
	}
	return nil
}
