package local

import (
	"bufio"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// realHome gives the user's own home directory. Hermes may have started us with the home of a profile in HOME; the real
// one is then in HERMES_REAL_HOME.
func realHome(vars *environment, hermesHome string) string {
	name := "HOME"
	if foldNames && vars.get(name) == "" {
		name = "USERPROFILE"
	}
	home := toNative(vars.get(name))
	profile := ""
	if hermesHome != "" {
		profile = filepath.Join(hermesHome, "home")
	}
	if filepath.IsAbs(home) && filepath.Clean(home) != profile {
		return filepath.Clean(home)
	}
	if real := toNative(vars.get("HERMES_REAL_HOME")); filepath.IsAbs(real) && filepath.Clean(real) != profile {
		return filepath.Clean(real)
	}
	if u, err := user.Current(); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir
	}
	return ""
}

// chooseHome gives HOME of a command: the real one, or HERMES_HOME/home where it exists and the mode wants it. "auto"
// wants it in a container, where the image's own home is not the user's.
func chooseHome(mode, real, hermesHome string, inContainer func() bool) string {
	profile := filepath.Join(hermesHome, "home")
	if hermesHome == "" || !isDir(profile) {
		return real
	}
	if mode == "profile" || mode != "real" && (real == "" || inContainer()) {
		return profile
	}
	return real
}

// inContainer tells whether this process seems to run in a container. It decides about HOME alone, never about a
// backend.
func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	if os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return true
	}
	if mentions("/proc/1/cgroup", func(string) bool { return true }, "docker", "podman", "/lxc/", "kubepods", "containerd", "crio") {
		return true
	}
	rootMount := func(line string) bool {
		fields := strings.Fields(line)
		return len(fields) > 4 && fields[4] == "/"
	}
	return mentions("/proc/self/mountinfo", rootMount, "kubepods", "containerd", "crio")
}

// mentions tells whether a line of the file that counts holds one of the words.
func mentions(file string, counts func(line string) bool, words ...string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if !counts(lines.Text()) {
			continue
		}
		for _, word := range words {
			if strings.Contains(lines.Text(), word) {
				return true
			}
		}
	}
	return false
}
