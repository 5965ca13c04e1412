package config

import (
	"errors"
	"fmt"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// backendKey and backendsKey are the two rows that the package itself acts on; localName is the default backend, whose
// paths are this machine's; egressKey switches egress control on.
const (
	backendKey  = "backend"
	backendsKey = "backends"
	localName   = "local"
	egressKey   = "egress.enabled"
)

// sandboxed are the backends that make a sandbox of their own, with limits and data that persist; synced are those that
// files are copied to.
var (
	sandboxed = []string{"docker", "singularity", "modal", "daytona", "vercel"}
	mounted   = []string{"docker", "singularity"}
	synced    = []string{"ssh", "modal", "daytona", "vercel"}
)

// commonRows are the rows that no single backend owns, in the order of the reference page.
func commonRows() []driver.Setting {
	var rows []driver.Setting
	for _, group := range [][]driver.Setting{
		placeRows, sessionRows, processRows, sandboxRows, syncRows, toolRows, outputRows, policyRows, egressRows, bubblewrapRows,
	} {
		rows = append(rows, group...)
	}
	return rows
}

var placeRows = []driver.Setting{
	{
		Key: backendKey, Env: "TERMINAL_ENV", KeyAliases: []string{"env_type"}, Type: driver.String, Default: localName,
		Doc:    "The backend that runs commands, or the name of an entry of terminal.backends.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: backendsKey, Type: driver.Table,
		Doc:    "More backends by name: `gpu1: {backend: ssh, ssh_host: ...}`; each entry takes this table's keys.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "cwd", Env: "TERMINAL_CWD", Type: driver.SandboxPath, Default: ".",
		ValueAliases: map[string]string{"": ".", "auto": ".", "cwd": "."},
		Doc:          "The directory in which a new session starts; `.` is the caller's on local, else the backend's own default.",
		Status:       driver.Implemented, Place: true,
	},
	{
		Key: "degraded_mode", Env: "TERMINAL_DEGRADED_MODE", Type: driver.String, Default: "warn",
		Values: []string{"warn", "fail"},
		Doc:    "What Hermes does when a backend cannot be opened; here a failed opening is always an error.",
		Status: driver.NotPlanned,
	},
}

var sessionRows = []driver.Setting{
	{
		Key: "env_passthrough", Type: driver.List,
		Doc:    "Names of variables of the caller that commands may see although they would be scrubbed or not forwarded.",
		Status: driver.Implemented,
	},
	{
		Key: "shell_init_files", Type: driver.SandboxPaths,
		Doc:    "Files that are sourced when a session's first state is captured, instead of those of auto_source_bashrc.",
		Status: driver.Implemented,
	},
	{
		Key: "auto_source_bashrc", Type: driver.Bool, Default: "true",
		Doc:    "Source ~/.profile, ~/.bash_profile and ~/.bashrc when a session's first state is captured.",
		Status: driver.Implemented,
	},
	{
		Key: "shell_init_timeout", Env: "TERMINAL_SHELL_INIT_TIMEOUT", Type: driver.Seconds, Default: "30",
		Doc:    "How long the first capture of a login shell's state may take, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "spawn_ahead", Env: "TERMINAL_SPAWN_AHEAD", Type: driver.Int, Default: "1",
		Doc:    "How many bash processes each session keeps waiting for its next call; 0 is off.",
		Status: driver.Implemented, Check: atMost(64),
	},
	{
		Key: "spawn_ahead_idle", Env: "TERMINAL_SPAWN_AHEAD_IDLE", Type: driver.Seconds, Default: "60",
		Doc:    "After how many idle seconds a waiting bash is dropped.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "session_expiry", Env: "TERMINAL_SESSION_EXPIRY", Type: driver.Seconds, Default: "7d",
		ValueAliases: map[string]string{"off": "0", "false": "0"},
		Doc:          "After how long without use a named session is removed; 0 or off is never.",
		Status:       driver.Implemented,
	},
	{
		Key: "persistent_shell", Env: "TERMINAL_PERSISTENT_SHELL", Type: driver.Bool, Default: "true",
		Doc:    "Hermes' long-lived shell; here each call has a bash of its own and state is carried over.",
		Status: driver.NotPlanned,
	},
}

var processRows = []driver.Setting{
	{
		Key: "daemon_term_grace_seconds", Env: "TERMINAL_DAEMON_TERM_GRACE_SECONDS", Type: driver.Seconds, Default: "2.0",
		Doc:    "How long a call that is ended has between TERM and KILL, in seconds.",
		Status: driver.Implemented,
	},
	{
		Key: "orphan_grace", Env: "TERMINAL_ORPHAN_GRACE", Type: driver.Seconds, Default: "10m",
		Doc:    "After how long without a sign of life a call's owner on another machine is dead.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "job_lifetime", Env: "TERMINAL_JOB_LIFETIME", Type: driver.Seconds, Default: "0",
		ValueAliases: map[string]string{"off": "0", "false": "0"},
		Doc:          "After how long a background job is ended; 0 or off is never.",
		Status:       driver.Implemented,
	},
	{
		Key: "job_log_max", Env: "TERMINAL_JOB_LOG_MAX", Type: driver.Bytes, Default: "8MiB",
		Doc:    "How much of a background job's output is kept, in the sandbox; the oldest goes first.",
		Status: driver.Implemented, Check: sizeFrom(64 << 10),
	},
	{
		Key: "audit", Env: "TERMINAL_AUDIT", Type: driver.Bool, Default: "true",
		Doc:    "Write one audit record per call to HERMES_HOME/elsewhere/audit.jsonl.",
		Status: driver.Implemented,
	},
	{
		Key: "log_level", Env: "TERMINAL_LOG_LEVEL", Type: driver.String, Default: "warn",
		Values:       []string{"debug", "info", "warn", "error", "off"},
		ValueAliases: map[string]string{"warning": "warn", "false": "off"},
		Doc:          "The least severe log message that is printed.",
		Status:       driver.Implemented,
	},
	{
		Key: "sudo_password", Env: "SUDO_PASSWORD", Type: driver.String, Secret: true,
		Doc:    "The password that sudo gets where it needs one and has no terminal; local and ssh. A command that may use sudo can obtain it.",
		Status: driver.Implemented,
	},
	{
		Key: "disk_warning_gb", Env: "TERMINAL_DISK_WARNING_GB", Type: driver.Float, Default: "500",
		Doc:    "At how many GB of sandbox data a warning is given.",
		Status: driver.Later,
	},
}

var sandboxRows = []driver.Setting{
	{
		Key: "lifetime_seconds", Env: "TERMINAL_LIFETIME_SECONDS", Type: driver.Seconds, Default: "300",
		Doc:    "After how many idle seconds a sandbox that does not persist is given up; the reaper waits twice as long.",
		Status: driver.Later,
	},
	{
		Key: "sandbox_idle_stop", Env: "TERMINAL_SANDBOX_IDLE_STOP", Type: driver.Seconds, Default: "0",
		ValueAliases: map[string]string{"off": "0", "false": "0"}, Backends: sandboxed,
		Doc:    "After how long without use a persistent sandbox is stopped; 0 or off is never.",
		Status: driver.Later,
	},
	{
		Key: "container_cpu", Env: "TERMINAL_CONTAINER_CPU", Type: driver.Float, Default: "1", Backends: sandboxed,
		Doc:    "How many CPUs a sandbox has; 0 is no limit of ours.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "container_memory", Env: "TERMINAL_CONTAINER_MEMORY", Type: driver.Megabytes, Default: "5120", Backends: sandboxed,
		Doc:    "How much memory a sandbox has, in MiB; 0 is no limit of ours.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "container_disk", Env: "TERMINAL_CONTAINER_DISK", Type: driver.Megabytes, Default: "51200", Backends: sandboxed,
		Doc:    "How much disk a sandbox has, in MiB, where that can be limited; 0 is no limit of ours.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "container_persistent", Env: "TERMINAL_CONTAINER_PERSISTENT", Type: driver.Bool, Default: "true", Backends: sandboxed,
		Doc:    "Keep the sandbox's files when it is closed.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "container_idle_timeout", Env: "TERMINAL_CONTAINER_IDLE_TIMEOUT", Type: driver.Seconds, Default: "300",
		ValueAliases: map[string]string{"off": "0", "false": "0"}, Backends: []string{"modal"},
		Doc:    "After how many idle seconds the provider ends the sandbox; 0 is only at the end of its lifetime.",
		Status: driver.Implemented,
	},
	{
		Key: "container_network", Env: "TERMINAL_CONTAINER_NETWORK", Type: driver.String, Backends: mounted,
		Doc:    "Hermes' proposed allow-list network; see egress.* here.",
		Status: driver.NotPlanned, Place: true,
	},
	{
		Key: "limits", Env: "TERMINAL_LIMITS", Type: driver.String, Values: []string{"", "strict"}, Backends: mounted,
		Doc:    "`strict` refuses to open a sandbox where a limit that was set cannot be applied; empty says so and goes on.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "sandbox_dir", Env: "TERMINAL_SANDBOX_DIR", Type: driver.Path, Backends: mounted,
		Doc:    "Where the data of persistent sandboxes lies on this machine; empty is HERMES_HOME/sandboxes.",
		Status: driver.Implemented, Place: true,
	},
}

var syncRows = []driver.Setting{
	{
		Key: "credential_files", Type: driver.List, Backends: append([]string{"docker", "singularity"}, synced...),
		Doc:    "Files below HERMES_HOME, by relative path, that sandboxes get as credentials.",
		Status: driver.Implemented,
	},
	{
		Key: "sync_back", Env: "TERMINAL_SYNC_BACK", Type: driver.String, Default: "cache",
		Values: []string{"cache", "all", "off"}, ValueAliases: map[string]string{"false": "off"}, Backends: synced,
		Doc:    "What is copied back on close: caches, also skills, or nothing.",
		Status: driver.Implemented,
	},
	{
		Key: "sync_back_max_bytes", Type: driver.Bytes, Default: "2147483648", Backends: synced,
		Doc:    "How many bytes are copied back at most.",
		Status: driver.Implemented,
	},
	{
		Key: "sync_back_timeout", Type: driver.Seconds, Default: "30", Backends: synced,
		Doc:    "How long copying back may take, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "force_file_sync", Env: "HERMES_FORCE_FILE_SYNC", Type: driver.Bool, Default: "false", Backends: synced,
		Doc:    "Look for changed files before every call instead of at most every 5 seconds.",
		Status: driver.Implemented,
	},
}

var errPositive = errors.New("more than 0")

// positive refuses zero in any spelling that the numeric types accept.
func positive(value string) error {
	if d, err := parseSeconds(value); err == nil && d == 0 {
		return errPositive
	}
	return nil
}

// sizeFrom refuses a size below least bytes.
func sizeFrom(least int64) func(string) error {
	return func(value string) error {
		if n, err := ParseBytes(value); err == nil && n < least {
			return fmt.Errorf("%d bytes or more", least)
		}
		return nil
	}
}
