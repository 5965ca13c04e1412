package docker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/hostpath"
)

// workspace is where the caller's directory, or the workspace that is kept, is mounted.
const workspace = "/workspace"

// insides is what is known of the container's file system before it exists.
type insides struct {
	home     string   // the user's
	fallback string   // where a session starts that is told nothing else
	targets  []string // what is mounted or surely there
	mounts   []shared // directories of this machine that are in it
	caller   string   // the caller's home on this machine
	isDir    func(string) bool
}

// shared is a directory of this machine and its place in the container.
type shared struct{ source, target string }

// startDir gives the directory in which a session starts, from the setting cwd. A path of this machine is replaced by its place
// in the container where it is mounted, else by the default, with a notice (NousResearch/hermes-agent#90679).
func (in *insides) startDir(cwd string) (dir, notice string) {
	replaced := func(why string) (string, string) {
		return in.fallback, fmt.Sprintf("cwd is %q, %s: %s is used", cwd, why, in.fallback)
	}
	cwd = strings.TrimSpace(cwd)
	switch {
	case cwd == "" || cwd == ".":
		return in.fallback, ""
	case cwd == "~" || strings.HasPrefix(cwd, "~/"):
		return path.Join(in.home, cwd[1:]), ""
	case strings.ContainsRune(cwd, 0) || strings.HasPrefix(cwd, "~"):
		return replaced("which is no path in the container")
	}
	if to, ok := in.translate(cwd); ok && !in.mounted(cwd) {
		return to, ""
	}
	switch {
	case windowsPath(cwd):
		return replaced("a path of this machine")
	case !path.IsAbs(cwd):
		return replaced("a relative path, which means nothing in the container")
	}
	cwd = path.Clean(cwd)
	if !in.mounted(cwd) && in.ofThisMachine(cwd) {
		return replaced("a directory of this machine that is not mounted")
	}
	return cwd, ""
}

// windowsPath tells whether a path is one of Windows: with a drive letter or a share.
func windowsPath(p string) bool {
	return drive.MatchString(p) || len(p) == 2 && p[1] == ':' || strings.HasPrefix(p, `\`) || strings.HasPrefix(p, "//")
}

// below tells whether p is dir or in it.
func below(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// mounted tells whether the path is in something that is mounted in the container.
func (in *insides) mounted(p string) bool {
	return slices.ContainsFunc(in.targets, func(t string) bool { return below(p, t) })
}

// translate gives the place in the container of a path of this machine.
func (in *insides) translate(p string) (string, bool) {
	norm := func(p string) string {
		if windowsPath(p) {
			return strings.ToLower(path.Clean(strings.ReplaceAll(p, `\`, "/")))
		}
		return path.Clean(p)
	}
	for _, m := range in.mounts {
		source, at := norm(m.source), norm(p)
		if below(at, source) && source != "/" {
			rest := path.Clean(strings.ReplaceAll(p, `\`, "/"))[len(source):]
			return path.Join(m.target, rest), true
		}
	}
	return "", false
}

// ofThisMachine tells whether an absolute path names something here rather than in the container.
func (in *insides) ofThisMachine(p string) bool {
	if hostpath.People(p) {
		return true
	}
	if in.caller != "" && below(p, path.Clean(in.caller)) {
		return true
	}
	return below(p, "/home") && in.isDir(p)
}

// systemDirs are directories that are never mounted on /workspace; of sealed, nothing below either.
var (
	systemDirs = []string{
		"/bin", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/opt", "/sbin", "/srv", "/usr", "/usr/bin", "/usr/lib",
		"/usr/local", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/Applications", "/Library", "/System", "/Users", "/Volumes", "/private", "/nix",
	}
	sealed = []string{"/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/run", "/private/etc"}
)

// mountable refuses to mount a directory of this machine on /workspace that holds more than a project: a home directory or what
// holds one, HERMES_HOME or what holds it, / and the system's directories (NousResearch/hermes-agent#48137). Homes are those
// of this machine's users.
func mountable(dir string, homes []string) error {
	slashed := filepath.ToSlash(dir)
	parent := path.Dir(slashed)
	switch {
	case slashed == "/" || filepath.Dir(dir) == dir:
		return fmt.Errorf("%s is a whole file system", dir)
	case parent == "/home" || parent == "/Users" || slashed == "/root":
		return fmt.Errorf("%s is a home directory", dir)
	case len(slashed) > 3 && slashed[1] == ':' && strings.EqualFold(parent[2:], "/Users"):
		return fmt.Errorf("%s is a home directory", dir)
	case slices.Contains(systemDirs, slashed) || slices.ContainsFunc(sealed, func(s string) bool { return below(slashed, s) }):
		return fmt.Errorf("%s is a directory of the system", dir)
	}
	for _, home := range homes {
		if home == "" || !filepath.IsAbs(home) {
			continue
		}
		if resolved, err := filepath.EvalSymlinks(home); err == nil {
			home = resolved
		}
		if below(filepath.ToSlash(home), slashed) {
			if home == dir {
				return fmt.Errorf("%s is a home directory", dir)
			}
			return fmt.Errorf("%s holds the home directory %s", dir, home)
		}
	}
	return nil
}

// userHomes are the home directories of this machine's users that look like a person's: those of services lie in the system.
func userHomes(passwd string) []string {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return nil
	}
	var homes []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(fields) < 7 || strings.HasSuffix(fields[6], "nologin") || strings.HasSuffix(fields[6], "false") || !isDir(fields[5]) {
			continue
		}
		if uid := number(fields[2]); uid == 0 || uid >= 500 {
			homes = append(homes, fields[5])
		}
	}
	return homes
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// callerDir gives the directory of this machine that docker_mount_cwd_to_workspace mounts: the setting cwd where that is one
// here and not one of the container's, else the caller's own.
func callerDir(cfg driver.Config, req driver.OpenRequest, home string) (string, error) {
	dir := cfg.String("cwd")
	inside := path.IsAbs(dir) && (below(path.Clean(dir), workspace) || below(path.Clean(dir), home))
	if !filepath.IsAbs(dir) || inside || !isDir(dir) {
		dir = req.Dir
	}
	if dir == "" || !filepath.IsAbs(dir) {
		return "", failure(driver.KindConfig, "docker_mount_cwd_to_workspace is on and there is no current directory to mount; set cwd to a directory of this machine")
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil && !isDir(resolved) {
		err = fmt.Errorf("%s is not a directory", resolved)
	}
	if err != nil {
		return "", failure(driver.KindConfig, "docker_mount_cwd_to_workspace: %w", err)
	}
	env := environment(req.Environ)
	homes := append(userHomes("/etc/passwd"), env["HOME"], env["USERPROFILE"], req.Identity.Home)
	if err := mountable(resolved, homes); err != nil {
		return "", failure(driver.KindConfig, "docker_mount_cwd_to_workspace (%s): %w and is not mounted; start in a project's directory, set cwd to one, or use docker_volumes",
			cfg.Origin("docker_mount_cwd_to_workspace"), err)
	}
	return resolved, nil
}
