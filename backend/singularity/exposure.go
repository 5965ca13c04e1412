//go:build linux

package singularity

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// exposure asks the kernel what of this machine is in an instance. ours are its own mounts.
func exposure(rec *record, ours []mount, gpu string) driver.Exposure {
	e := driver.Exposure{HostNetwork: sameSpace(rec.PID, "net"), HostPID: sameSpace(rec.PID, "pid")}
	if gpu != "" {
		e.Devices = []string{"GPUs (" + gpu + ")"}
	}
	for _, m := range boundIn(rec.PID) {
		own := slices.ContainsFunc(ours, func(o mount) bool { return o.target == m.target && strings.HasSuffix(path.Clean(o.source), m.source) })
		e.Mounts = append(e.Mounts, driver.Mount{Target: m.target, Source: m.source, Writable: !m.readOnly, Ours: own})
	}
	return e
}

// exposureNow is the same of an instance whose first process is pid, by its record; nil while it does not run. What it has of HERMES_HOME
// is read-only.
func exposureNow(rec *record, pid int) *driver.Exposure {
	if pid == 0 {
		return nil
	}
	at, gpu := *rec, ""
	at.PID = pid
	for _, f := range rec.Features {
		if f.Name == "gpu" && f.State == driver.Active {
			gpu = f.Detail
		}
	}
	e := exposure(&at, ownDirs(rec.Dir, rec.Home, rec.State), gpu)
	return &e
}

// sameSpace tells whether a process is in our own namespace of a kind. One that cannot be told is taken for that.
func sameSpace(pid int, kind string) bool {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return true
	}
	own, err := os.Readlink("/proc/self/ns/" + kind)
	return err != nil || theirs == own
}
