package docker

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/system"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
)

// The least that an engine accepts.
const (
	leastCPU    = 0.01
	leastMemory = 6 << 20
)

// The processes and threads that a container may be limited to: with fewer than leastPids the init, the first process, a bash of a
// call and its watchdog, and what they start to begin and to end a call, do not fit; mostPids is the kernel's own end.
const (
	leastPids = 16
	mostPids  = 1 << 22
)

// limits are the limits to ask for, 0 where there is none, and what is to be told about them.
type limits struct {
	nanoCPUs int64
	memory   int64
	swap     bool // memory without more swap
	pids     int64
	disk     int64

	features []driver.Feature
	notices  []string
}

// limit is one limit that is wanted, and why it cannot be had ("" where it can).
type limit struct {
	name    string // of the feature
	key     string // of the setting
	wanted  bool
	missing string
	detail  string
}

// planLimits asks per controller what the engine has, drops what it cannot apply and says so. With terminal.limits: strict, a
// limit that the user set and that cannot be applied is an "unsupported" error instead. DiskLimit says whether the storage
// driver can limit a container's disk (storageLimit).
func planLimits(cfg driver.Config, info system.Info, diskMissing string) (limits, error) {
	var l limits
	cpu := cfg.Float("container_cpu")
	l.memory, l.pids, l.disk = cfg.Bytes("container_memory"), cfg.Int("docker_pids_limit"), cfg.Bytes("container_disk")
	if cpu > 0 && cpu < leastCPU {
		return l, failure(driver.KindConfig, "container_cpu (%s) is %g; the engine accepts %g and more, and 0 for no limit", cfg.Origin("container_cpu"), cpu, leastCPU)
	}
	if l.memory > 0 && l.memory < leastMemory {
		return l, failure(driver.KindConfig, "container_memory (%s) is %s; the engine accepts %s and more, and 0 for no limit", cfg.Origin("container_memory"), size(l.memory), size(leastMemory))
	}
	if l.pids > 0 && (l.pids < leastPids || l.pids > mostPids) {
		return l, failure(driver.KindConfig, "docker_pids_limit (%s) is %d; elsewhere's own processes in a container need %d, and the kernel has at most %d: set it to a number between, or to 0 for no limit of ours",
			cfg.Origin("docker_pids_limit"), l.pids, leastPids, mostPids)
	}
	l.checkMemory(cfg, info.MemTotal)
	if info.NCPU > 0 && cpu > float64(info.NCPU) {
		if cfg.IsSet("container_cpu") {
			l.notices = append(l.notices, fmt.Sprintf("container_cpu is %g, but the engine's machine has %s: no more are used", cpu, amount.Of(info.NCPU, "CPU")))
		}
		cpu = float64(info.NCPU)
	}
	l.nanoCPUs = int64(math.Round(cpu * 1e9))

	controller := func(there bool, name string) string {
		switch {
		case info.CgroupDriver == "none":
			return "the engine manages no cgroups (rootless, without delegation)"
		case !there:
			return fmt.Sprintf("the engine has no cgroup controller for it (%s, cgroup v%s)", name, or(info.CgroupVersion, "1"))
		}
		return ""
	}
	memory := size(l.memory)
	if l.swap = info.SwapLimit; !l.swap {
		memory += swapUnlimited
	}
	for _, want := range []limit{
		{"limit: cpu", "container_cpu", l.nanoCPUs > 0, controller(info.CPUCfsQuota, "cpu"), amount.Of(cpu, "CPU")},
		{"limit: memory", "container_memory", l.memory > 0, controller(info.MemoryLimit, "memory"), memory},
		{"limit: pids", "docker_pids_limit", l.pids > 0, controller(info.PidsLimit, "pids"), fmt.Sprintf("%d processes and threads", l.pids)},
		{"limit: disk", "container_disk", l.disk > 0, diskMissing, size(l.disk)},
	} {
		if err := l.add(cfg, want); err != nil {
			return l, err
		}
	}
	return l, nil
}

// sizesInMemory are the settings of what is in the memory of the engine's machine.
var sizesInMemory = []string{
	"container_memory", "docker_shm_size", "docker_tmp_size", "docker_var_tmp_size", "docker_run_size", "docker_workspace_size", "docker_home_size",
}

// swapUnlimited is said of a memory limit beside which there is swap.
const swapUnlimited = " (swap is not limited: the engine cannot)"

// checkMemory tells of sizes that the user set and that the machine does not have.
func (l *limits) checkMemory(cfg driver.Config, total int64) {
	for _, key := range sizesInMemory {
		if n := cfg.Bytes(key); total > 0 && n > total && cfg.IsSet(key) {
			l.notices = append(l.notices, fmt.Sprintf("%s (%s) is %s, and the engine's machine has %s of memory: it limits nothing", key, cfg.Origin(key), size(n), size(total)))
		}
	}
}

func (l *limits) add(cfg driver.Config, want limit) error {
	if !want.wanted {
		l.features = append(l.features, driver.Feature{Name: want.name, State: driver.Unsupported, Detail: "switched off by " + want.key})
		return nil
	}
	if want.missing == "" {
		l.features = append(l.features, driver.Feature{Name: want.name, State: driver.Active, Detail: want.detail})
		return nil
	}
	set := cfg.IsSet(want.key)
	if set && cfg.String("limits") == "strict" {
		return failure(driver.KindUnsupported, "%s (%s) cannot be applied: %s; terminal.limits is strict: unset one of the two", want.key, cfg.Origin(want.key), want.missing)
	}
	state := driver.Degraded
	switch want.key {
	case "container_cpu":
		l.nanoCPUs = 0
	case "container_memory":
		l.memory = 0
	case "docker_pids_limit":
		l.pids = 0
	case "container_disk":
		// Rarely to be had: told to those alone who asked for it.
		l.disk, state = 0, driver.Unsupported
	}
	l.features = append(l.features, driver.Feature{Name: want.name, State: state, Detail: want.missing})
	if set || state == driver.Degraded {
		l.notices = append(l.notices, fmt.Sprintf("%s (%s) is not in force: %s", want.key, want.detail, want.missing))
	}
	return nil
}

// storageLimit says why the engine's storage driver cannot limit the disk of a container, or "". Local says that the engine
// runs on this machine, whose mounts can be asked.
func storageLimit(info system.Info, podman, local bool) string {
	if podman {
		return "Podman's interface for Docker takes no disk limit"
	}
	backing := ""
	for _, kv := range info.DriverStatus {
		if kv[0] == "Backing Filesystem" {
			backing = kv[1]
		}
	}
	switch info.Driver {
	case "btrfs", "zfs", "devicemapper", "windowsfilter":
		return ""
	case "overlay2":
		if backing != "xfs" {
			return fmt.Sprintf("the storage driver overlay2 limits a container's disk on xfs with project quotas alone, and it is on %s", or(backing, "an unknown file system"))
		}
		if !local || !projectQuota("/proc/self/mounts", info.DockerRootDir) {
			return "the storage driver overlay2 limits a container's disk on xfs with project quotas alone, and " + or(info.DockerRootDir, "its directory") + " is not known to be mounted with pquota"
		}
		return ""
	}
	return "the storage driver " + info.Driver + " cannot limit a container's disk"
}

// projectQuota tells whether the file system that holds dir is mounted with project quotas, by a file such as /proc/mounts.
func projectQuota(mounts, dir string) bool {
	f, err := os.Open(mounts)
	if err != nil {
		return false
	}
	defer f.Close()
	best, has := -1, false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(fields[1])
		if rel, err := filepath.Rel(point, dir); err != nil || rel == ".." || strings.HasPrefix(rel, "../") || len(point) < best {
			continue
		}
		best = len(point)
		opts := "," + fields[3] + ","
		has = strings.Contains(opts, ",pquota,") || strings.Contains(opts, ",prjquota,")
	}
	return has
}

// size writes bytes for people, with binary units.
func size(n int64) string { return units.BytesSize(float64(n)) }

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
