package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// hermesVariables are the variables of Hermes' settings (F07: a key that one start-up path forgot was a bug each time).
var hermesVariables = strings.Fields(`
	HERMES_YOLO_MODE TERMINAL_ENV TERMINAL_MODAL_MODE TERMINAL_DEGRADED_MODE TERMINAL_CWD TERMINAL_TEMP_DIR TERMINAL_TIMEOUT
	TERMINAL_LIFETIME_SECONDS TERMINAL_DAEMON_TERM_GRACE_SECONDS TERMINAL_HOME_MODE TERMINAL_PERSISTENT_SHELL
	TERMINAL_DOCKER_IMAGE TERMINAL_MODAL_IMAGE TERMINAL_DAYTONA_IMAGE TERMINAL_SINGULARITY_IMAGE TERMINAL_VERCEL_RUNTIME
	TERMINAL_VERCEL_IMAGE TERMINAL_CONTAINER_CPU TERMINAL_CONTAINER_MEMORY TERMINAL_CONTAINER_DISK
	TERMINAL_CONTAINER_PERSISTENT TERMINAL_CONTAINER_IDLE_TIMEOUT TERMINAL_DOCKER_FORWARD_ENV TERMINAL_DOCKER_VOLUMES
	TERMINAL_DOCKER_EXTRA_ARGS TERMINAL_DOCKER_ENV TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE TERMINAL_DOCKER_NETWORK
	TERMINAL_DOCKER_SHM_SIZE TERMINAL_DOCKER_RUN_AS_HOST_USER TERMINAL_DOCKER_SNAP_COMPAT
	TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES TERMINAL_DOCKER_ORPHAN_REAPER TERMINAL_DOCKER_SHARED_CONTAINER_KEY
	TERMINAL_SANDBOX_DIR TERMINAL_SCRATCH_DIR TERMINAL_SSH_HOST TERMINAL_SSH_USER TERMINAL_SSH_KEY TERMINAL_SSH_PORT
	TERMINAL_SSH_PERSISTENT SUDO_PASSWORD TERMINAL_SHELL_PTY TERMINAL_MAX_FOREGROUND_TIMEOUT TERMINAL_DISK_WARNING_GB
	TERMINAL_LOCAL_PERSISTENT TERMINAL_LOCAL_MEMORY_MAX_MB TERMINAL_BUBBLEWRAP_PROFILE TERMINAL_BUBBLEWRAP_BINDS
	TERMINAL_BUBBLEWRAP_MEMORY_MB TERMINAL_BUBBLEWRAP_CPU_SECONDS TERMINAL_BUBBLEWRAP_MAX_PROCS HERMES_GIT_BASH_PATH
	HERMES_DOCKER_BINARY HERMES_DOCKER_BACKEND_SKIP_PROFILE_MOUNTS HERMES_FORCE_FILE_SYNC MODAL_TOKEN_ID MODAL_TOKEN_SECRET
	MODAL_CONFIG_PATH TERMINAL_MANAGED_MODAL_CONNECT_TIMEOUT_SECONDS TERMINAL_MANAGED_MODAL_POLL_READ_TIMEOUT_SECONDS
	TERMINAL_MANAGED_MODAL_CANCEL_READ_TIMEOUT_SECONDS MODAL_GATEWAY_URL TOOL_GATEWAY_SCHEME TOOL_GATEWAY_DOMAIN
	TOOL_GATEWAY_USER_TOKEN DAYTONA_API_KEY DAYTONA_API_URL DAYTONA_TARGET VERCEL_OIDC_TOKEN VERCEL_TOKEN VERCEL_PROJECT_ID
	VERCEL_TEAM_ID`)

// hermesKeys are its keys that have no variable, or another name than their variable.
var hermesKeys = strings.Fields(`
	env_type oneshot_completion_wait_seconds env_passthrough credential_files sync_back_max_bytes sync_back_timeout
	shell_init_files auto_source_bashrc font_family max_foreground_timeout_seconds ssh_file_sync container_network
	tool_output.max_bytes tool_output.max_lines tool_output.max_line_length security.redact_secrets
	delegation.surface_child_process_notifications proxy.enabled proxy.tunnel_port proxy.auto_install proxy.credential_source
	proxy.enforce_on_docker proxy.allow_env_fallback proxy.upstream_deny_cidrs proxy.extra_allowed_hosts daytona_create_mode
	approvals.mode approvals.timeout approvals.deny daytona_snapshot daytona_language daytona_name_prefix daytona_name_scope daytona_ephemeral`)

func table(t *testing.T) []driver.Setting {
	t.Helper()
	rows, err := config.Table(backends(false))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestEveryVariableAndKeyOfHermesIsInTheTable(t *testing.T) {
	var have []string
	for _, row := range table(t) {
		have = append(append(append(have, row.Env, row.Key), row.EnvAliases...), row.KeyAliases...)
	}
	for _, name := range append(hermesVariables, hermesKeys...) {
		if !slices.Contains(have, name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestEveryVariableReachesItsKeyFromEveryLayer(t *testing.T) {
	values := map[driver.Type]string{
		driver.String: "x", driver.Bool: "yes", driver.Int: "3", driver.Float: "1.5", driver.Seconds: "3", driver.Bytes: "9m",
		driver.Megabytes: "9", driver.List: `["a"]`, driver.Map: `{"a":"b"}`, driver.Path: "/p", driver.SandboxPath: "/p", driver.SandboxPaths: `["/p"]`,
	}
	for _, row := range table(t) {
		value := values[row.Type]
		if len(row.Values) > 0 {
			value = row.Values[len(row.Values)-1]
		}
		if strings.HasSuffix(row.Key, "_mode") && row.Check != nil {
			value = "0700"
		}
		if row.Type == driver.Table || row.Key == "backend" {
			continue
		}
		worlds := map[string]world{"--set": {flags: map[string]string{row.Key: value}}}
		if row.Env != "" {
			worlds["the environment"] = world{env: []string{row.Env + "=" + value}}
			worlds[".env"] = world{dotenv: row.Env + "='" + value + "'\n"}
		}
		if group, key, dotted := strings.Cut(row.Key, "."); dotted {
			worlds["config.yaml"] = world{yaml: group + ":\n  " + key + ": " + value + "\n"}
		} else {
			worlds["config.yaml"] = world{yaml: "terminal:\n  " + row.Key + ": " + value + "\n"}
		}
		for layer, w := range worlds {
			cfg, err := w.load(t)
			if err != nil {
				t.Errorf("%s from %s: %v", row.Key, layer, err)
				continue
			}
			if v, _ := cfg.Explain(row.Key); !cfg.IsSet(row.Key) || v.Problem != "" {
				t.Errorf("%s from %s is not set: %+v", row.Key, layer, v)
			}
		}
	}
}

func TestEveryRowIsDocumented(t *testing.T) {
	for _, row := range table(t) {
		if row.Doc == "" || !strings.HasSuffix(row.Doc, ".") || row.Type == "" || row.Status == "" {
			t.Errorf("%s lacks a sentence, type or status", row.Key)
		}
		if len(row.Values) > 0 && !slices.Contains(row.Values, row.Default) {
			t.Errorf("the default %q of %s is not one of its values", row.Default, row.Key)
		}
	}
}

func TestATableWithTwoRowsOfOneNameIsAnError(t *testing.T) {
	for name, row := range map[string]driver.Setting{
		"a key of another":      {Key: "cwd", Type: driver.String},
		"a variable of another": {Key: "mine", Env: "TERMINAL_CWD", Type: driver.String},
		"a default that is bad": {Key: "mine", Type: driver.Int, Default: "x"},
		"a type that is none":   {Key: "mine", Type: "colour"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Table([]driver.Backend{{Name: "mine", Settings: []driver.Setting{row}}})
			wantError(t, err, "mine")
		})
	}
	_, err := config.Load(config.Options{Environ: []string{}})
	wantError(t, err, "registers no backend")
}
