//go:build linux

package singularity

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
)

// limits are what an instance may use of the machine.
type limits struct {
	args   []string // of `instance start`
	names  []string // "memory 5120 MiB", for people
	chosen []string // the keys of those that the user set
	strict bool     // refuse where they cannot be applied
}

// The processes and threads that an instance may be limited to: with fewer than leastPids elsewhere's own do not fit; mostPids is
// the kernel's own end.
const (
	leastPids = 16
	mostPids  = 1 << 22
)

// checkLimits refuses limits with which nothing can run.
func checkLimits(cfg driver.Config) error {
	const key = "singularity_pids_limit"
	if n := cfg.Int(key); n != 0 && (n < leastPids || n > mostPids) {
		return failure(driver.KindConfig, "%s (%s) is %d; elsewhere's own processes in an instance need %d, and the kernel has at most %d: set it to a number between, or to 0 for no limit of ours",
			key, cfg.Origin(key), n, leastPids, mostPids)
	}
	return nil
}

func readLimits(cfg driver.Config) limits {
	l := limits{strict: cfg.String("limits") == "strict"}
	add := func(key, flag, value, name string) {
		l.args = append(l.args, flag, value)
		l.names = append(l.names, name)
		if cfg.IsSet(key) {
			l.chosen = append(l.chosen, key)
		}
	}
	if n := cfg.Bytes("container_memory"); n > 0 {
		add("container_memory", "--memory", strconv.FormatInt(n, 10), fmt.Sprintf("memory %d MiB", n>>20))
	}
	if n := cfg.Float("container_cpu"); n > 0 {
		add("container_cpu", "--cpus", strconv.FormatFloat(n, 'f', -1, 64), amount.Of(n, "CPU"))
	}
	if n := cfg.Int("singularity_pids_limit"); n > 0 {
		add("singularity_pids_limit", "--pids-limit", strconv.FormatInt(n, 10), fmt.Sprintf("%d processes", n))
	}
	return l
}

// noDiskLimit is why a limit of the disk is not applied.
const noDiskLimit = "a directory has no quota"

// diskNotice tells those who set a limit of the disk that it is not in force; "" where nobody did. Where limits have to be applied it
// is an error.
func diskNotice(cfg driver.Config) (string, error) {
	const key = "container_disk"
	n := cfg.Bytes(key)
	switch {
	case n <= 0 || !cfg.IsSet(key):
		return "", nil
	case cfg.String("limits") == "strict":
		return "", failure(driver.KindUnsupported, "%s (%s) cannot be applied: %s; terminal.limits is strict: unset one of the two", key, cfg.Origin(key), noDiskLimit)
	}
	return fmt.Sprintf("%s (%s), %d MiB, is not in force: %s", key, cfg.Origin(key), n>>20, noDiskLimit), nil
}

// hopeless says why no limit can be applied here, where that is known without trying; "" is worth a try. An ordinary user has
// cgroups of his own only where systemd delegates them by cgroups v2.
func hopeless() string {
	if os.Geteuid() == 0 {
		return ""
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		return "no cgroups v2 here, which an ordinary user needs for limits"
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return "no systemd here that delegates cgroups to an ordinary user"
	}
	return ""
}

// refused is the error of limits that cannot be applied although they have to be.
func (l limits) refused(reason string) error {
	keys := make([]string, len(l.chosen))
	for i, key := range l.chosen {
		keys[i] = "terminal." + key
	}
	return failure(driver.KindUnsupported, "%s cannot be applied here (%s), and terminal.limits is strict: delegate cgroups to this user, set them to 0, or leave terminal.limits out", strings.Join(keys, ", "), reason)
}

// feature says what came of the limits; reason is why they are not in force, or "".
func (l limits) feature(reason string) driver.Feature {
	switch {
	case len(l.args) == 0:
		return driver.Feature{Name: "limits", State: driver.Unsupported, Detail: "none are set"}
	case reason != "":
		return driver.Feature{Name: "limits", State: driver.Degraded, Detail: "not in force: " + strings.Join(l.names, ", ") + " (" + reason + ")"}
	}
	return driver.Feature{Name: "limits", State: driver.Active, Detail: strings.Join(l.names, ", ")}
}
