package docker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/system"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestD03AMissingControllerDropsItsOwnLimitAlone(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*system.Info)
		dropped string // the keys
		lines   int    // notices
	}{
		{"none missing", func(*system.Info) {}, "", 0},
		{"no cpu", func(i *system.Info) { i.CPUCfsQuota = false }, "container_cpu", 1},
		{"no memory", func(i *system.Info) { i.MemoryLimit = false }, "container_memory", 1},
		{"no pids", func(i *system.Info) { i.PidsLimit = false }, "docker_pids_limit", 1},
		{"no cgroups", func(i *system.Info) { i.CgroupDriver = "none" }, "container_cpu container_memory docker_pids_limit", 3},
	} {
		info := anEngine()
		c.change(&info)
		l, err := planLimits(opening(t, nil).Config, info, "x")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for key, value := range map[string]int64{"container_cpu": l.nanoCPUs, "container_memory": l.memory, "docker_pids_limit": l.pids} {
			if (value == 0) != strings.Contains(c.dropped, key) {
				t.Errorf("%s: %s is %d", c.name, key, value)
			}
			if strings.Contains(c.dropped, key) && !strings.Contains(strings.Join(l.notices, "\n"), key) {
				t.Errorf("%s: %q does not tell of %s", c.name, l.notices, key)
			}
		}
		degraded := 0
		for _, f := range l.features {
			if f.State == driver.Degraded {
				degraded++
			}
		}
		if len(l.notices) != c.lines || degraded != c.lines || len(l.features) != 4 {
			t.Errorf("%s: %q %v", c.name, l.notices, l.features)
		}
	}
}

func TestStrictLimitsRefuseOnlyWhatTheUserSet(t *testing.T) {
	info := anEngine()
	info.MemoryLimit, info.CPUCfsQuota = false, false
	if _, err := planLimits(opening(t, settings{"limits": "strict"}).Config, info, "no quota"); err != nil {
		t.Errorf("nothing was set: %v", err)
	}
	for _, key := range []string{"container_memory", "container_cpu", "container_disk"} {
		value := "1"
		if key != "container_cpu" {
			value = "512"
		}
		_, err := planLimits(opening(t, settings{"limits": "strict", key: value}).Config, info, "no quota")
		wantKind(t, err, driver.KindUnsupported, key, "strict")
	}
	if _, err := planLimits(opening(t, settings{"limits": "strict", "docker_pids_limit": "100"}).Config, info, ""); err != nil {
		t.Errorf("a limit that is there: %v", err)
	}
}

func TestLimitsThatAreOffOrOutOfRange(t *testing.T) {
	l, err := planLimits(opening(t, settings{"container_cpu": "0", "container_memory": "0", "docker_pids_limit": "0", "container_disk": "0"}).Config, anEngine(), "")
	if err != nil || l.nanoCPUs != 0 || l.memory != 0 || l.pids != 0 || l.disk != 0 || len(l.notices) != 0 {
		t.Errorf("%+v %v", l, err)
	}
	l, err = planLimits(opening(t, settings{"container_cpu": "64"}).Config, anEngine(), "")
	if err != nil || l.nanoCPUs != 4e9 || len(l.notices) != 1 || !strings.Contains(l.notices[0], "has 4 CPUs") {
		t.Errorf("%+v %v", l, err)
	}
	info := anEngine()
	info.NCPU = 1
	if l, err := planLimits(opening(t, settings{"container_cpu": "8"}).Config, info, ""); err != nil || !strings.Contains(strings.Join(l.notices, "\n"), "has 1 CPU: ") || l.features[0].Detail != "1 CPU" {
		t.Errorf("on a machine of one: %+v, %v", l, err)
	}
	if l, err := planLimits(opening(t, settings{"container_cpu": "0.5"}).Config, info, ""); err != nil || l.nanoCPUs != 5e8 {
		t.Errorf("%+v %v", l, err)
	}
	for key, value := range map[string]string{"container_cpu": "0.001", "container_memory": "1", "docker_pids_limit": "15"} {
		_, err := planLimits(opening(t, settings{key: value}).Config, anEngine(), "")
		wantKind(t, err, driver.KindConfig, key+" (--set "+key+") is ", value)
	}
	_, err = planLimits(opening(t, settings{"docker_pids_limit": "99999999999999"}).Config, anEngine(), "")
	wantKind(t, err, driver.KindConfig, "docker_pids_limit (--set docker_pids_limit) is 99999999999999", "at most 4194304")
	if l, err := planLimits(opening(t, settings{"docker_pids_limit": "16"}).Config, anEngine(), ""); err != nil || l.pids != 16 {
		t.Errorf("%+v %v", l, err)
	}
	info = anEngine()
	info.MemTotal = 4 << 30
	for _, key := range sizesInMemory {
		l, err := planLimits(opening(t, settings{key: "999999t"}).Config, info, "")
		if err != nil || len(l.notices) != 1 || !strings.HasPrefix(l.notices[0], key+" (--set "+key+") is ") || !strings.Contains(l.notices[0], "has 4GiB of memory: it limits nothing") {
			t.Errorf("%s: %q %v", key, l.notices, err)
		}
	}
	if l, err := planLimits(opening(t, nil).Config, info, ""); err != nil || len(l.notices) != 0 { // the defaults are ours
		t.Errorf("%q %v", l.notices, err)
	}
	info = anEngine()
	info.SwapLimit = false
	l, err = planLimits(opening(t, nil).Config, info, "")
	if err != nil || l.swap || !strings.Contains(l.features[1].Detail, "swap is not limited") {
		t.Errorf("%+v %v", l, err)
	}
}

func TestD08TheDiskLimitIsToldToWhoSetIt(t *testing.T) {
	l, err := planLimits(opening(t, settings{"container_disk": "1024"}).Config, anEngine(), "no quota")
	if err != nil || l.disk != 0 || len(l.notices) != 1 || !strings.Contains(l.notices[0], "container_disk (1GiB) is not in force: no quota") {
		t.Errorf("%+v %v", l, err)
	}
	if f := l.features[3]; f.State != driver.Unsupported || f.Detail != "no quota" {
		t.Errorf("%+v", f)
	}
	l, err = planLimits(opening(t, settings{"container_disk": "1024"}).Config, anEngine(), "")
	if err != nil || l.disk != 1<<30 || l.features[3].State != driver.Active {
		t.Errorf("%+v %v", l, err)
	}
}

func TestD08StorageDriversThatLimitDisk(t *testing.T) {
	for _, c := range []struct {
		driver, backing string
		podman, local   bool
		can             bool
	}{
		{"btrfs", "", false, true, true}, {"zfs", "zfs", false, true, true}, {"devicemapper", "xfs", false, true, true},
		{"overlay2", "extfs", false, true, false}, {"overlay2", "", false, true, false}, {"overlay2", "xfs", false, false, false},
		{"vfs", "extfs", false, true, false}, {"btrfs", "", true, true, false},
	} {
		info := system.Info{Driver: c.driver, DriverStatus: [][2]string{{"Backing Filesystem", c.backing}}, DockerRootDir: "/nowhere"}
		if why := storageLimit(info, c.podman, c.local); (why == "") != c.can {
			t.Errorf("%+v: %q", c, why)
		}
	}
	mounts := filepath.Join(t.TempDir(), "mounts")
	text := "/dev/a / ext4 rw 0 0\n/dev/b /var/lib\\040x xfs rw,relatime,prjquota 0 0\n/dev/c /var/lib\\040x/docker/plain xfs rw 0 0\n"
	if err := os.WriteFile(mounts, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{"/var/lib x/docker": true, "/var/lib x": true, "/var/lib": false, "/var/lib x/docker/plain/y": false, "/": false} {
		if projectQuota(mounts, dir) != want {
			t.Errorf("%s: not %v", dir, want)
		}
	}
}
