package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// environment is the environment that settings are read from.
type environment map[string]string

func newEnvironment(environ []string) environment {
	env := environment{}
	for _, kv := range environ {
		// A name on Windows may begin with "=".
		if name, val, ok := strings.Cut(kv[min(1, len(kv)):], "="); ok {
			env[kv[:min(1, len(kv))]+name] = val
		}
	}
	return env
}

func (env environment) lookup(name string) (string, bool) {
	v, ok := env[name]
	return v, ok
}

// userHome is the user's home directory, or "" where the environment names none.
func (env environment) userHome() string {
	if runtime.GOOS == "windows" {
		return env["USERPROFILE"]
	}
	return env["HOME"]
}

// hermesHome is HERMES_HOME as an absolute path: given, else of the environment, else ~/.hermes; "" where there is none.
func hermesHome(given string, env environment, dir string) (string, error) {
	home, origin := given, "the chosen home"
	if home == "" {
		home, origin = env["HERMES_HOME"], "HERMES_HOME"
	}
	user := env.userHome()
	switch {
	case home == "" && user == "":
		return "", nil
	case home == "":
		home, origin = filepath.Join(user, ".hermes"), "~/.hermes"
	case user != "" && (home == "~" || strings.HasPrefix(home, "~/")):
		home = filepath.Join(user, home[1:])
	}
	if !filepath.IsAbs(home) {
		home = filepath.Join(dir, home)
	}
	home = filepath.Clean(home)
	return home, checkHome(home, origin)
}

// checkHome refuses a home that is there and no directory. One that is missing is fine.
func checkHome(home, origin string) error {
	bad := func(problem string, err error) error {
		return &Error{
			Kind: driver.KindConfig, Key: "HERMES_HOME", Value: home, Origin: origin, Problem: problem, Err: err,
			Hint: "set HERMES_HOME to a directory",
		}
	}
	info, err := os.Stat(home)
	var pathErr *fs.PathError
	switch {
	case err == nil && !info.IsDir():
		return bad("this is a file, not a directory", nil)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &pathErr):
		return bad("it cannot be looked at", pathErr.Err)
	}
	return bad("it cannot be looked at", err)
}

// abbreviate writes a path below the user's home with ~.
func abbreviate(path, user string) string {
	if rest, ok := strings.CutPrefix(path, user); ok && user != "" && user != "/" && strings.HasPrefix(rest, string(filepath.Separator)) {
		return "~" + rest
	}
	return path
}
