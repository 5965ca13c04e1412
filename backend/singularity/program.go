//go:build linux

package singularity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// startTimeout bounds `instance start`, askTimeout whatever only asks, stopTimeout the end of an instance.
	startTimeout = 2 * time.Minute
	askTimeout   = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// program is the client on this machine, and the environment with which it is called: the host's own variables reach
// neither the instance nor its processes.
type program struct {
	path   string
	env    []string // of every call
	build  []string // further ones for a call that builds an image: the registry's
	prefix string   // a client's variable PREFIXNAME is NAME inside
	user   string
	home   string // the user's home directory as the system has it, which is the one inside
}

// findProgram looks for apptainer, then singularity, on the caller's PATH.
func findProgram(environ []string) (*program, error) {
	vars := variables(environ)
	p := &program{prefix: "APPTAINERENV_"}
	for _, word := range []string{"apptainer", "singularity"} {
		for _, dir := range filepath.SplitList(vars["PATH"]) {
			file := filepath.Join(dir, word)
			if !filepath.IsAbs(dir) || p.path != "" {
				continue
			}
			if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
				p.path = file
				// Debian's and others' "singularity" is apptainer under its old name.
				if real, err := filepath.EvalSymlinks(file); word == "singularity" && err == nil && !strings.Contains(filepath.Base(real), "apptainer") {
					p.prefix = "SINGULARITYENV_"
				}
			}
		}
	}
	if p.path == "" {
		return nil, failure(driver.KindUnavailable, "neither apptainer nor singularity is on PATH: install one (apptainer.org; `module load apptainer` on many clusters), or choose another backend")
	}
	me, err := user.Current()
	if err != nil {
		return nil, failure(driver.KindUnavailable, "the system does not know the user %d: %w", os.Geteuid(), err)
	}
	p.user, p.home = me.Username, me.HomeDir
	p.env = clientEnv(vars, me)
	p.build = keep(vars, buildVars)
	return p, nil
}

// clientVars are what a client needs of the caller's environment: where the user's instances are noted, and the bus by
// which systemd delegates cgroups. buildVars are what reaching a registry may take.
var (
	clientVars = []string{"PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "APPTAINER_CONFIGDIR", "SINGULARITY_CONFIGDIR"}
	buildVars  = []string{
		"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD", "SINGULARITY_DOCKER_USERNAME", "SINGULARITY_DOCKER_PASSWORD", "DOCKER_HOST",
	}
)

// clientEnv makes the environment of a client. Values that are handed on into the instance are taken as they are and not
// evaluated as shell text (NO_EVAL).
func clientEnv(vars map[string]string, me *user.User) []string {
	env := append(keep(vars, clientVars), "HOME="+me.HomeDir, "USER="+me.Username, "LOGNAME="+me.Username, "LANG=C.UTF-8",
		"APPTAINER_NO_EVAL=1", "SINGULARITY_NO_EVAL=1")
	slices.Sort(env)
	return env
}

func keep(vars map[string]string, names []string) []string {
	var kept []string
	for _, name := range names {
		if v := vars[name]; v != "" {
			kept = append(kept, name+"="+v)
		}
	}
	return kept
}

// variables reads "K=V" entries; of a name that comes twice the last one counts.
func variables(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, entry := range environ {
		if k, v, ok := strings.Cut(entry, "="); ok {
			vars[k] = v
		}
	}
	return vars
}

// call is one run of the client.
type call struct {
	args    []string
	env     []string // besides the program's own
	timeout time.Duration
}

// callError is a run of the client that failed.
type callError struct {
	what   string // "apptainer instance start"
	stderr string // without noise
	err    error
}

func (e *callError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("%s: %v", e.what, e.err)
	}
	return fmt.Sprintf("%s: %s", e.what, e.stderr)
}

func (e *callError) Unwrap() error { return e.err }

// run runs the client in a session of its own, so that no signal for this process's group reaches an instance that it
// starts. Output goes to a file in memory: an instance may inherit it, and a pipe would be waited for until that ends.
func (p *program) run(ctx context.Context, c call) (stdout string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	out, err := memoryFile()
	if err != nil {
		return "", err
	}
	defer out.Close()
	errs, err := memoryFile()
	if err != nil {
		return "", err
	}
	defer errs.Close()
	cmd := exec.CommandContext(ctx, p.path, c.args...)
	cmd.Dir, cmd.Env = "/", slices.Concat(p.env, c.env)
	cmd.Stdout, cmd.Stderr = out, errs
	// A client ends with this process, so that nobody waits for a build that nobody wants; what it started does not. The
	// kernel goes by the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	text, rerr := content(out)
	if err == nil {
		return text, rerr
	}
	said, _ := content(errs)
	return text, &callError{what: filepath.Base(p.path) + " " + strings.Join(verbs(c.args), " "), stderr: quiet(said), err: err}
}

func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("elsewhere", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "a client's output"), nil
}

// content reads what a client wrote, at most 1 MiB of it.
func content(f *os.File) (string, error) {
	var b bytes.Buffer
	_, err := io.Copy(&b, io.NewSectionReader(f, 0, 1<<20))
	return b.String(), err
}

// verbs are the words of a command line before its first flag, for messages.
func verbs(args []string) []string {
	words := slices.DeleteFunc(slices.Clone(args[:min(len(args), 3)]), func(a string) bool { return strings.HasPrefix(a, "-") })
	return words[:min(len(words), 2)]
}

var (
	colour = regexp.MustCompile("\x1b\\[[0-9;]*m")
	level  = regexp.MustCompile(`^(?:FATAL|ERROR|WARNING)\s*:\s*`)
	// echo is what a client says beside the fault itself: that what failed is not there, and which program failed.
	echo = regexp.MustCompile(`^(?:container cleanup failed: no instance found|while executing starter: )`)
)

// quiet takes the colours, the levels and what is no complaint out of a client's standard error.
func quiet(stderr string) string {
	var lines, echoes []string
	for line := range strings.Lines(colour.ReplaceAllString(stderr, "")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "INFO:") || strings.HasPrefix(line, "VERBOSE:") || strings.HasPrefix(line, "DEBUG") {
			continue
		}
		if line = level.ReplaceAllString(line, ""); echo.MatchString(line) {
			echoes = append(echoes, line)
		} else {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		lines = echoes
	}
	return strings.Join(lines, "; ")
}

// reason is what a client that failed had to say, without the command line.
func reason(err error) string {
	if e, ok := errors.AsType[*callError](err); ok && e.stderr != "" {
		return e.stderr
	}
	return err.Error()
}

// listed is an instance that runs, as the engine has it.
type listed struct {
	Name  string `json:"instance"`
	PID   int    `json:"pid"`
	Image string `json:"img"`
	// OutLog and ErrLog are what the engine writes its own complaints to.
	OutLog string `json:"logOutPath"`
	ErrLog string `json:"logErrPath"`
}

// list asks which of the user's instances run on this machine: the one of that name, or all for "".
func (p *program) list(ctx context.Context, name string) (map[string]listed, error) {
	args := []string{"-s", "instance", "list", "--json"}
	if name != "" {
		args = append(args, name)
	}
	out, err := p.run(ctx, call{args: args, timeout: askTimeout})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Instances []listed `json:"instances"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, fmt.Errorf("%s instance list --json answered what is no JSON: %w", filepath.Base(p.path), err)
	}
	found := make(map[string]listed, len(answer.Instances))
	for _, i := range answer.Instances {
		found[i.Name] = i
	}
	return found, nil
}

// exec runs a program in an instance and gives what it prints; for questions, not for calls.
func (p *program) exec(ctx context.Context, instance string, argv ...string) (string, error) {
	return p.run(ctx, call{args: append(execArgs(instance), argv...), timeout: askTimeout})
}

// execArgs are the client's arguments before the program's: with an environment of the instance's own (an exec takes the
// client's otherwise, also where the instance was started with --containall) and in a directory that exists.
func execArgs(instance string) []string {
	return []string{"-s", "exec", "--cleanenv", "--pwd", "/", "instance://" + instance}
}

// exitCode gives the code with which a client ended, or -1.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}
