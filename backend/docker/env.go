package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/dotenv"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// forcePrefix marks a variable of the caller that commands get whatever its name is (internal/scrub).
const forcePrefix = "_HERMES_FORCE_"

// environment is the caller's, by name; of a name that comes twice the last one counts.
func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

// callVars gives the variables that every call has: docker_env and those of docker_extra_args, then what is handed on from the
// caller. They are never put into the container's settings, which everybody can read who may ask the engine.
func callVars(cfg driver.Config, req driver.OpenRequest, args *extraArgs) (vars map[string]string, notices []string) {
	c := &callEnv{vars: map[string]string{}, env: environment(req.Environ), home: req.Identity.Home}
	c.give("docker_env", cfg.StringMap("docker_env"))
	c.give("docker_extra_args", args.env)
	c.forward("docker_forward_env", cfg.Strings("docker_forward_env"), true)
	c.forward("docker_extra_args", args.forward, true)
	c.forward("env_passthrough", cfg.Strings("env_passthrough"), false)
	return c.vars, c.notices
}

// callEnv collects the variables of a call.
type callEnv struct {
	vars    map[string]string
	env     map[string]string
	home    string
	file    map[string]string // HERMES_HOME/.env, once it was read
	notices []string
}

func (c *callEnv) notice(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.notices, text) {
		c.notices = append(c.notices, text)
	}
}

// accepts tells whether a command may have a variable of this name, and says why not.
func (c *callEnv) accepts(key, name string) bool {
	switch {
	case !dotenv.IsName(name):
		c.notice("%s: %q is not the name of a variable", key, name)
		return false
	case scrub.Always(name):
		c.notice("%s: %s is never handed to commands (%s)", key, name, scrub.Reason(name))
		return false
	}
	return true
}

// give sets variables whose values are given.
func (c *callEnv) give(key string, vars map[string]string) {
	names := make([]string, 0, len(vars))
	for name := range vars {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if c.accepts(key, name) {
			c.vars[name] = vars[name]
		}
	}
}

// forward hands on variables of the caller, else of HERMES_HOME/.env. An empty one counts as not there. Tell says that a
// missing one is told.
func (c *callEnv) forward(key string, names []string, tell bool) {
	for _, name := range names {
		name = strings.TrimSpace(name)
		if forced := c.forced(name); forced != "" {
			c.vars[name] = forced
			continue
		}
		if !c.accepts(key, name) {
			continue
		}
		value := c.env[name]
		if value == "" {
			value = c.fromFile(name)
		}
		switch {
		case value != "":
			c.vars[name] = value
		case tell:
			c.notice("%s: %s is set neither in the environment nor in HERMES_HOME/.env", key, name)
		}
	}
}

// forced is what the caller forces through as _HERMES_FORCE_NAME; some names are not to be had in that way either.
func (c *callEnv) forced(name string) string {
	value := c.env[forcePrefix+name]
	if clean, _ := scrub.Environ([]string{forcePrefix + name + "=" + value}, nil); len(clean) != 1 || !dotenv.IsName(name) {
		return ""
	}
	return value
}

// fromFile reads a variable from HERMES_HOME/.env, which is data and never run.
func (c *callEnv) fromFile(name string) string {
	if c.file == nil {
		c.file = map[string]string{}
		if c.home == "" {
			return ""
		}
		data, err := os.ReadFile(filepath.Join(c.home, ".env"))
		if err != nil && !os.IsNotExist(err) {
			c.notice("no variable is taken from HERMES_HOME/.env: %v", err)
		}
		vars, _ := dotenv.Parse(string(data)) // bad lines were told when the settings were loaded
		for _, v := range vars {
			c.file[v.Name] = v.Value
		}
	}
	return c.file[name]
}
