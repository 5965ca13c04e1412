// Package local runs commands on this machine, with the caller's own rights.
//
// It isolates nothing. What it does is start a bash properly: in its own session and process group, with no
// controlling terminal, with three plain pipes and no other descriptor of the host, in the directory "/" (the contract
// enters the real one itself), and with an environment from which the agent's own secrets were taken out
// (internal/scrub). Because a call costs one fork and exec, everything that can be found out once (which bash, the
// environment, the directories) is found out by Open.
//
// State of kept sessions is in HERMES_HOME/elsewhere/state; that of this process alone in a private directory under a
// temp directory, which goes on Close. Directories that a killed process left are removed by the next one that starts.
// Files that end in _unix.go, _linux.go, _darwin.go and _windows.go hold what differs; what Windows needs and can be
// tested anywhere (finding Git Bash, translating paths) has no build tag.
package local

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/bashproc"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
	"github.com/elsewhere-sh/elsewhere/internal/statefile"
)

// Backend returns the backend "local".
func Backend() driver.Backend {
	var start starter
	return driver.Backend{
		Name:     "local",
		Summary:  "on this machine, with your own rights and no isolation",
		Settings: Settings,
		Open:     start.open,
		Type:     (*sandbox)(nil),
		Available: func(ctx context.Context, req driver.OpenRequest) error {
			_, err := findBash(ctx, newEnvironment(req.Environ, foldNames), req.Config.String("git_bash_path"))
			return err
		},
		Classify: classify,
	}
}

// keepEnv are the variables that always have the caller's present value: they point at sockets and displays that a
// saved state would keep alive beyond their life.
var keepEnv = []string{"SSH_AUTH_SOCK", "SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "KRB5CCNAME", "TERM"}

// starter opens sandboxes; it remembers that this process has removed what dead ones left.
type starter struct {
	cleaned sync.Once
}

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	return driver.KindUnavailable
}

// sandbox is this machine as seen by one process.
type sandbox struct {
	bash   string
	env    *environment
	info   driver.Info
	state  string // StateDir and PrivateDir as this system writes them
	priv   string
	dirs   sync.Mutex
	held   *os.Root // priv, open, for what each call does there; dirs guards it
	log    *slog.Logger
	closed atomic.Bool
	tidy   sync.WaitGroup
}

func (s *starter) open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	log := req.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	cfg := req.Config
	vars := newEnvironment(req.Environ, foldNames)
	bash, err := findBash(ctx, vars, cfg.String("git_bash_path"))
	if err != nil {
		return nil, err
	}
	box := &sandbox{bash: bash, log: log}
	info := &box.info
	functions, environ := exportedFunctions(req.Environ)
	passthrough := cfg.Strings("env_passthrough")
	clean, warnings := scrub.Environ(environ, passthrough)
	clean, info.CallEnv = splitSecrets(clean)
	info.Notices = append(info.Notices, warnings...)
	info.Functions = functions

	real := realHome(vars, req.Identity.Home)
	home := chooseHome(cfg.String("home_mode"), real, req.Identity.Home, inContainer)
	path := vars.get("PATH")
	box.env = newEnvironment(clean, foldNames)
	if real != "" {
		box.env.set("HERMES_REAL_HOME", toBash(real))
	}
	if home != "" {
		box.env.set("HOME", toBash(home))
	}
	box.env.set("PATH", completePath(path, req.Identity.Home, home, isDir))
	adaptEnvironment(box.env, bash)

	dir, notice, err := startDir(cfg.String("cwd"), req.Dir, home)
	if err != nil {
		return nil, err
	}
	if notice != "" {
		info.Notices = append(info.Notices, notice)
	}
	if err := box.makeDirs(req, vars); err != nil {
		return nil, err
	}
	info.Watchdog = true
	info.Exposure = driver.Exposure{Machine: true, Here: true}
	info.Host, _ = os.Hostname()
	info.User = userName()
	info.Home = toBash(home)
	info.Dir = toBash(dir)
	info.StateDir = toBash(box.state)
	info.PrivateDir = toBash(box.priv)
	info.PathFirst = callerPath(path)
	info.KeepEnv = append([]string(nil), keepEnv...)
	if cfg.Bool("scrub_profile") {
		info.ScrubProfile = scrub.BashUnset(passthrough...)
	}
	info.Features = []driver.Feature{
		{Name: "isolation", State: driver.Unsupported, Detail: "commands run with your own rights on this machine and can read what you can, also the environment of the process that started them"},
		{Name: "limits", State: driver.Unsupported, Detail: "no memory, CPU or process limits"},
		{Name: "network", State: driver.Active, Detail: "this machine's own"},
		{Name: "persistence", State: driver.Active, Detail: "files are this machine's own"},
	}
	if os.Geteuid() == 0 {
		info.Notices = append(info.Notices, "commands run as root on this machine: nothing is protected from them; use an ordinary user or another backend")
	}
	s.cleaned.Do(func() {
		box.tidy.Go(func() { removeLeftovers(req.Identity, log) })
	})
	return box, nil
}

// userName names the user as the system knows it: USER and LOGNAME may say anything.
func userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

func (s *sandbox) Info() driver.Info { return s.info }

// Alive is always nil: this machine is up while somebody can ask.
func (s *sandbox) Alive(context.Context) error { return nil }

func (s *sandbox) Bash(ctx context.Context, spec driver.BashSpec) (driver.Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.closed.Load() {
		return nil, failure(driver.KindLost, "the local sandbox is closed")
	}
	s.keepDirs()
	p, err := bashproc.Start(s.bash, append([]string{"bash"}, spec.Args...), s.env.with(spec.Env))
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot start %s: %w", s.bash, err)
	}
	return p, nil
}

// BashPTY starts a bash as the leader of a session whose controlling terminal is a new pseudo-terminal. On Windows it is unsupported.
func (s *sandbox) BashPTY(ctx context.Context, spec driver.BashSpec, rows, cols uint16) (driver.PTYProcess, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.closed.Load() {
		return nil, failure(driver.KindLost, "the local sandbox is closed")
	}
	s.keepDirs()
	p, err := bashproc.StartTerminal(s.bash, append([]string{"bash"}, spec.Args...), s.env.with(spec.Env), rows, cols, true)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, failure(driver.KindUnsupported, "there are no pseudo-terminals for commands on this system; leave the terminal out")
	}
	if err != nil {
		return nil, failure(driver.KindUnavailable, "cannot start %s on a pseudo-terminal: %w", s.bash, err)
	}
	return p, nil
}

// Close removes the private directory. Processes are not touched: package elsewhere ended them.
func (s *sandbox) Close(context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	s.tidy.Wait()
	s.dirs.Lock()
	defer s.dirs.Unlock()
	_ = s.held.Close()
	return os.RemoveAll(s.priv)
}

// within gives path relative to the state or private directory that holds it.
func (s *sandbox) within(path string) (dir, rel string, err error) {
	native := filepath.Clean(toNative(path))
	for _, dir := range []string{s.priv, s.state} {
		if rel, err := filepath.Rel(dir, native); err == nil && filepath.IsLocal(rel) {
			return dir, rel, nil
		}
	}
	return "", "", failure(driver.KindDenied, "%s is not in a state directory of this sandbox", path)
}

// RemoveState removes state files. It removes files and links only, follows no link and never leaves the two
// directories; it goes on after a failure and returns all of them.
func (s *sandbox) RemoveState(ctx context.Context, paths []string) error {
	var errs []error
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := s.removeState(path); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *sandbox) removeState(path string) error {
	dir, rel, err := s.within(path)
	if err != nil {
		return err
	}
	s.dirs.Lock()
	root := s.held
	s.dirs.Unlock()
	if dir != s.priv {
		root, err = os.OpenRoot(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer root.Close()
	}
	err = statefile.Remove(root, rel)
	if errors.Is(err, statefile.ErrNotStateFile) {
		return failure(driver.KindDenied, "%s: %w", path, err)
	}
	return err
}

// ListState lists the plain files below dir, which is the state or the private directory or one inside them. Links are
// neither listed nor followed.
func (s *sandbox) ListState(ctx context.Context, dir string) ([]driver.StateFile, error) {
	base, rel, err := s.within(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, err := statefile.List(ctx, root, rel, func(file string) string {
		return strings.TrimSuffix(toBash(base), "/") + "/" + filepath.ToSlash(file)
	})
	if errors.Is(err, statefile.ErrNotStateFile) {
		return nil, failure(driver.KindDenied, "%s: %w", dir, err)
	}
	return files, err
}

// splitSecrets takes out what is there only because the settings or the agent hand it on: it goes with each call, and so never
// into state, where it would outlive that.
func splitSecrets(env []string) (rest []string, secrets map[string]string) {
	rest = env[:0]
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !scrub.Blocked(name) {
			rest = append(rest, entry)
			continue
		}
		if secrets == nil {
			secrets = map[string]string{}
		}
		secrets[name] = value
	}
	return rest, secrets
}
