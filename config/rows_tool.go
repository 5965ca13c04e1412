package config

import (
	"fmt"
	"strconv"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// toolRows concern the agent's terminal tool and Hermes' own surfaces.
var toolRows = []driver.Setting{
	{
		Key: "timeout", Env: "TERMINAL_TIMEOUT", Type: driver.Seconds, Default: "180",
		Doc:    "The agent's tool: how long a command may run when the call names no timeout, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "max_foreground_timeout", Env: "TERMINAL_MAX_FOREGROUND_TIMEOUT", KeyAliases: []string{"max_foreground_timeout_seconds"},
		Type: driver.Seconds, Default: "600",
		Doc:    "The agent's tool: the longest timeout that a foreground command may ask for, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "oneshot_completion_wait_seconds", Type: driver.Seconds, Default: "600",
		Doc:    "How long a one-shot run of Hermes waits for its background processes, in seconds.",
		Status: driver.NotPlanned,
	},
	{
		Key: "shell_pty", Env: "TERMINAL_SHELL_PTY", Type: driver.String,
		Doc:    "Hermes' user interface only.",
		Status: driver.NotPlanned,
	},
	{
		Key: "font_family", Type: driver.String,
		Doc:    "Hermes' user interface only.",
		Status: driver.NotPlanned,
	},
	{
		Key: "delegation.surface_child_process_notifications", Type: driver.Bool, Default: "false",
		Doc:    "Hermes only: show notifications of a child agent's background processes.",
		Status: driver.NotPlanned,
	},
	{
		Key: "security.redact_secrets", Type: driver.Bool, Default: "true",
		Doc:    "The agent's tool: redact secrets in output.",
		Status: driver.Later,
	},
}

// outputRows are the windows through which an agent sees output.
var outputRows = []driver.Setting{
	{
		Key: "tool_output.max_bytes", Type: driver.Int, Default: "50000",
		Doc:    "How many characters of output an agent is shown: 40 % head, 60 % tail, the rest in a file.",
		Status: driver.Implemented, Check: atLeast(1),
	},
	{
		Key: "tool_output.max_lines", Type: driver.Int, Default: "2000",
		Doc:    "How many lines of a file an agent is shown at once.",
		Status: driver.Implemented, Check: atLeast(1),
	},
	{
		Key: "tool_output.max_line_length", Type: driver.Int, Default: "2000",
		Doc:    "How many characters of one line an agent is shown.",
		Status: driver.Implemented, Check: atLeast(1),
	},
}

// egressRows keep Hermes' proxy.* names as aliases.
var egressRows = []driver.Setting{
	{
		Key: egressKey, KeyAliases: []string{"proxy.enabled"}, Type: driver.Bool, Default: "false",
		Doc:    "Give sandboxes no network but a proxy with an allow-list of domains.",
		Status: driver.Later, Place: true,
	},
	{
		Key: "egress.enforce", KeyAliases: []string{"proxy.enforce_on_docker"}, Type: driver.Bool, Default: "true",
		Doc:    "Settings that would go round the proxy are errors, not warnings.",
		Status: driver.Later,
	},
	{
		Key: "egress.tunnel_port", KeyAliases: []string{"proxy.tunnel_port"}, Type: driver.Int, Default: "9090",
		Doc:    "Hermes only: the proxy's port; here it listens on a socket.",
		Status: driver.NotPlanned, Check: between(1, 65535),
	},
	{
		Key: "egress.auto_install", KeyAliases: []string{"proxy.auto_install"}, Type: driver.Bool, Default: "true",
		Doc:    "Hermes only: install the proxy when it is missing; here it is built in.",
		Status: driver.NotPlanned,
	},
	{
		Key: "egress.credential_source", KeyAliases: []string{"proxy.credential_source"}, Type: driver.String, Default: "env",
		Values: []string{"env", "bitwarden"},
		Doc:    "Where the proxy takes the real keys from.",
		Status: driver.Later,
	},
	{
		Key: "egress.allow_env_fallback", KeyAliases: []string{"proxy.allow_env_fallback"}, Type: driver.Bool, Default: "false",
		Doc:    "Take keys from the environment when the credential source does not answer.",
		Status: driver.Later,
	},
	{
		Key: "egress.upstream_deny_cidrs", KeyAliases: []string{"proxy.upstream_deny_cidrs"}, Type: driver.List,
		Doc:    "Address ranges that the proxy never connects to; unset is the private and link-local ones.",
		Status: driver.Later,
	},
	{
		Key: "egress.extra_allowed_hosts", KeyAliases: []string{"proxy.extra_allowed_hosts"}, Type: driver.List,
		Doc:    "Domains that sandboxes may reach besides those of the model providers.",
		Status: driver.Later,
	},
}

// bubblewrapRows are those of a Hermes backend that elsewhere has not. They are here so that they are known, not typos.
var bubblewrapRows = bubblewrap(
	driver.Setting{Key: "bubblewrap_profile", Env: "TERMINAL_BUBBLEWRAP_PROFILE", Type: driver.String, Default: "network"},
	driver.Setting{Key: "bubblewrap_binds", Env: "TERMINAL_BUBBLEWRAP_BINDS", Type: driver.String},
	driver.Setting{Key: "bubblewrap_memory_mb", Env: "TERMINAL_BUBBLEWRAP_MEMORY_MB", Type: driver.Megabytes, Default: "256"},
	driver.Setting{Key: "bubblewrap_cpu_seconds", Env: "TERMINAL_BUBBLEWRAP_CPU_SECONDS", Type: driver.Seconds, Default: "30"},
	driver.Setting{Key: "bubblewrap_max_procs", Env: "TERMINAL_BUBBLEWRAP_MAX_PROCS", Type: driver.Int, Default: "256"},
	driver.Setting{Key: "bubblewrap_home_allow", Env: "TERMINAL_BUBBLEWRAP_HOME_ALLOW", Type: driver.String},
	driver.Setting{Key: "bubblewrap_hide", Env: "TERMINAL_BUBBLEWRAP_HIDE", Type: driver.String},
)

func bubblewrap(rows ...driver.Setting) []driver.Setting {
	for i := range rows {
		rows[i].Backends = []string{"bubblewrap"}
		rows[i].Doc = "A backend of some versions of Hermes that elsewhere does not have."
		rows[i].Status, rows[i].Place = driver.NotPlanned, true
	}
	return rows
}

func atLeast(least int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n < least {
			return fmt.Errorf("%d or more", least)
		}
		return nil
	}
}

func atMost(most int64) func(string) error { return between(0, most) }

func between(least, most int64) func(string) error {
	return func(value string) error {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && (n < least || n > most) {
			return fmt.Errorf("a whole number from %d to %d", least, most)
		}
		return nil
	}
}
