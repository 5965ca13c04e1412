//go:build linux

package singularity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

// record is what is known of an instance and the engine cannot keep. It is written, by the one who holds the right to
// make, before the instance is started and again when it runs.
type record struct {
	Name       string        `json:"name"`
	Task       string        `json:"task"`
	Identity   string        `json:"identity"`
	Profile    string        `json:"profile"`
	Machine    string        `json:"machine"` // where it was started last
	Owner      string        `json:"owner"`   // the lease of who started it last
	Leases     string        `json:"leases"`  // of a throw-away one: where that lease is (owner.Tag); "" where there is none
	Settings   kept.Settings `json:"settings"`
	Persistent bool          `json:"persistent"`
	ThrowAway  bool          `json:"throw_away"`

	Image  string `json:"image"`  // as it was written
	Source string `json:"source"` // what the engine was given
	Dir    string `json:"dir"`    // overlay, home and temporary files
	State  string `json:"state"`  // state files
	// Shared is what is mounted of HERMES_HOME, and Staging holds the copies of credential files; "" for none.
	Shared  []string `json:"shared"`
	Staging string   `json:"staging"`

	User string `json:"user"` // inside
	Home string `json:"home"` // inside

	Created time.Time `json:"created"`
	Started time.Time `json:"started"`
	Boot    string    `json:"boot"` // the machine's boot id at that time

	// PID is the first process of the instance and Begin its start time as the kernel has it; 0 while it is being started.
	PID   int    `json:"pid"`
	Begin string `json:"begin"`

	// Stopped says that it was stopped by who looks after it, and Removed that it was given up and only its files are kept.
	Stopped bool `json:"stopped,omitempty"`
	Removed bool `json:"removed,omitempty"`

	Setsid   bool             `json:"setsid"` // the image has the program
	Features []driver.Feature `json:"features"`
}

// recordDir is where the records of a home are.
func recordDir(home string) string { return filepath.Join(home, "elsewhere", name) }

// throwAwayRecord is the name of a throw-away instance's record in its own directory.
const throwAwayRecord = "record.json"

// recordFile is where an instance's record is: in the home, or with its data where there is none.
func recordFile(home, instance, dataDir string) string {
	if home == "" {
		return filepath.Join(dataDir, throwAwayRecord)
	}
	return filepath.Join(recordDir(home), instance+".json")
}

// readRecord reads a record; nil where there is none. One that cannot be understood is an error that names it.
func readRecord(file string) (*record, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil || r.Name == "" || !filepath.IsAbs(r.Dir) {
		return nil, failure(driver.KindConfig, "%s is no record of an instance (%v): remove it to start anew", file, err)
	}
	return &r, nil
}

func (r *record) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(file, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("the record of the instance cannot be written: %w", err)
	}
	return nil
}

// lives tells whether the record's process is there and is not ending: by its number and start time, since a number alone may be
// another's. The first process of a namespace ends only after the kernel has killed all others and their parents know of it: what a call
// is told of its bash then comes before the end of the instance.
func (r *record) lives() bool {
	if r.PID <= 0 || r.Begin == "" || r.Boot != bootID() {
		return false
	}
	f := statOf(r.PID)
	return begin(f) == r.Begin && !exiting(f)
}

// beginOf gives the start time of a process, in ticks since boot; "" where it is gone or has ended.
func beginOf(pid int) string { return begin(statOf(pid)) }

func begin(stat []string) string {
	if len(stat) < 20 || stat[0] == "Z" || stat[0] == "X" {
		return ""
	}
	return stat[19]
}

// exiting tells whether the kernel is ending a process (PF_EXITING of its flags).
func exiting(stat []string) bool {
	const pfExiting = 4
	flags, _ := strconv.ParseUint(stat[6], 10, 64)
	return flags&pfExiting != 0
}

// parentOf gives the parent of a process, or 0.
func parentOf(pid int) int {
	f := statOf(pid)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

// statOf gives the fields of /proc/PID/stat behind the name: the state first.
func statOf(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	i := strings.LastIndexByte(string(text), ')')
	return strings.Fields(string(text[i+1:]))
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}
