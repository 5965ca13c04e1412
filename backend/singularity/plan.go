//go:build linux

package singularity

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// stateRoot is where the directory for state files is mounted inside.
const stateRoot = "/run/elsewhere"

// plan is all that is asked of the engine for one instance.
type plan struct {
	name       string // the instance's
	settings   kept.Settings
	persistent bool
	throwAway  bool
	keeps      bool // the settings keep the files of a task

	image    string // as it was written
	scratch  string
	cache    string // of built images
	dir      string // overlay, home and temporary files of this instance
	stateDir string // what is mounted on stateRoot
	record   string // the record's file

	fakeroot bool
	network  bool
	gpu      string
	limits   limits
	shared   shared

	user, home string // inside
	cwd        string // where a session starts, as it was asked for; "" is home
	callEnv    map[string]string
	notices    []string
	recreated  string // why the instance had to be started anew although nobody asked for that, or ""
}

// makePlan turns the settings into a plan. It makes the scratch directory and nothing else.
func makePlan(req driver.OpenRequest, prog *program) (*plan, error) {
	cfg := req.Config
	if err := checkLimits(cfg); err != nil {
		return nil, err
	}
	disk, err := diskNotice(cfg)
	if err != nil {
		return nil, err
	}
	p := &plan{
		persistent: cfg.Bool("container_persistent") && !req.ThrowAway && req.Identity.Home != "",
		throwAway:  req.ThrowAway || req.Identity.Home == "",
		keeps:      cfg.Bool("container_persistent"),
		image:      cfg.String("singularity_image"),
		fakeroot:   cfg.Bool("singularity_fakeroot"),
		network:    cfg.Bool("singularity_network"),
		gpu:        cfg.String("singularity_gpu"),
		limits:     readLimits(cfg),
	}
	p.user, p.home = prog.user, insideHome(prog)
	if p.fakeroot || os.Geteuid() == 0 {
		p.user, p.home = "root", "/root"
	}
	p.name = kept.Name(req.Identity, "", req.Task)
	if p.throwAway {
		p.name = "elsewhere-run-" + owner.NewID()
	}
	if disk != "" {
		p.notices = append(p.notices, disk)
	}
	if p.scratch, err = scratchDir(cfg, req.Identity.Home, prog.user, scratchRoot); err != nil {
		return nil, err
	}
	p.dir = filepath.Join(p.scratch, "elsewhere", p.name)
	p.record, p.stateDir = recordFile(req.Identity.Home, p.name, p.dir), filepath.Join(p.dir, "state")
	if !p.throwAway {
		p.stateDir = filepath.Join(recordDir(req.Identity.Home), p.name+".state")
	}
	p.cache = variables(req.Environ)["APPTAINER_CACHEDIR"]
	if !filepath.IsAbs(p.cache) {
		p.cache = filepath.Join(p.scratch, ".apptainer")
	}
	p.cache = filepath.Join(p.cache, "elsewhere")
	p.shared = hermesFiles(req, p.name, p.home)
	p.notices = append(p.notices, p.shared.notices...)
	p.startDir(cfg.String("cwd"))
	p.forward(req)
	p.settings = p.fingerprint(cfg)
	return p, nil
}

// insideHome is the home directory inside: the user's own path, unless the system gives him none that a command could have.
func insideHome(prog *program) string {
	home := filepath.Clean(prog.home)
	if !filepath.IsAbs(home) || home == "/" || strings.HasPrefix(home, "/nonexistent") || strings.HasPrefix(home, "/proc") || strings.HasPrefix(home, "/dev") {
		return "/home/" + filepath.Base(prog.user)
	}
	return home
}

// startDir takes what terminal.cwd says. A relative path means a directory of the host.
func (p *plan) startDir(cwd string) {
	switch {
	case cwd == "" || cwd == "." || cwd == "~":
	case strings.HasPrefix(cwd, "~/"):
		p.cwd = p.home + cwd[1:]
	case strings.HasPrefix(cwd, "/"):
		p.cwd = filepath.Clean(cwd)
	default:
		p.notices = append(p.notices, "terminal.cwd ("+cwd+") is a directory of the host: sessions start in "+p.home)
	}
}

// forward takes the variables that env_passthrough names out of the caller's environment. They reach a command in the
// message of its call and no process's arguments or environment before.
func (p *plan) forward(req driver.OpenRequest) {
	names := req.Config.Strings("env_passthrough")
	vars := variables(req.Environ)
	_, warnings := scrub.Environ(nil, names)
	p.notices = append(p.notices, warnings...)
	for _, name := range names {
		if v, ok := vars[name]; ok && !scrub.Always(name) {
			if p.callEnv == nil {
				p.callEnv = map[string]string{}
			}
			p.callEnv[name] = v
		}
	}
}

// fingerprint is what the instance is known again by: the keys are those of the settings.
func (p *plan) fingerprint(cfg driver.Config) kept.Settings {
	s := kept.Settings{
		"singularity_image":      p.image,
		"scratch_dir":            p.scratch,
		"singularity_network":    strconv.FormatBool(p.network),
		"singularity_fakeroot":   strconv.FormatBool(p.fakeroot),
		"singularity_gpu":        p.gpu,
		"container_persistent":   strconv.FormatBool(p.persistent),
		"container_memory":       strconv.FormatInt(cfg.Bytes("container_memory"), 10),
		"container_cpu":          strconv.FormatFloat(cfg.Float("container_cpu"), 'f', -1, 64),
		"singularity_pids_limit": strconv.FormatInt(cfg.Int("singularity_pids_limit"), 10),
	}
	if p.shared.refresh != nil {
		s["credential_files"] = "staged"
	}
	return s
}

// ownMounts are those through which nothing of the user's can be harmed: all that is asked for, and the engine's for temporary files.
func (p *plan) ownMounts() []mount {
	return append(ownDirs(p.dir, p.home, p.stateDir), p.shared.mounts...)
}

// ownDirs are what an instance whose files are in dir has of them.
func ownDirs(dir, home, state string) []mount {
	own := []mount{{source: filepath.Join(dir, "home"), target: home, kind: "home"}, {source: state, target: stateRoot, kind: "state"}}
	for _, sub := range []string{"tmp", "var_tmp"} {
		own = append(own, mount{source: filepath.Join(dir, "work", sub), target: "/" + strings.ReplaceAll(sub, "_", "/")})
	}
	return own
}

// mounts are all of the instance's.
func (p *plan) mounts() []mount {
	return append([]mount{
		{source: filepath.Join(p.dir, "home"), target: p.home, kind: "home"},
		{source: p.stateDir, target: stateRoot, kind: "state"},
	}, p.shared.mounts...)
}
