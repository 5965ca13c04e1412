package docker

import (
	"errors"
	"strconv"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Settings are the rows of the settings table that the docker backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "docker_image", Env: "TERMINAL_DOCKER_IMAGE", Type: driver.String, Default: "nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image that containers are made from; it must have bash.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "docker_volumes", Env: "TERMINAL_DOCKER_VOLUMES", Type: driver.List,
		Doc:    "Volumes, written as for `docker run -v`.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_mount_cwd_to_workspace", Env: "TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE", Type: driver.Bool, Default: "false",
		Doc:    "Mount the caller's directory on /workspace; never a home directory or /.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_env", Env: "TERMINAL_DOCKER_ENV", Type: driver.Map,
		Doc:    "Variables that every command in the container has; their values are not printed.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "docker_forward_env", Env: "TERMINAL_DOCKER_FORWARD_ENV", Type: driver.List,
		Doc:    "Names of variables that are handed on from the caller's environment, else from HERMES_HOME/.env.",
		Status: driver.Implemented,
	},
	{
		Key: "docker_extra_args", Env: "TERMINAL_DOCKER_EXTRA_ARGS", Type: driver.List,
		Doc:    "Further arguments as for `docker run`, from a documented closed list.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_allow_unsafe_args", Env: "TERMINAL_DOCKER_ALLOW_UNSAFE_ARGS", Type: driver.Bool, Default: "false",
		Doc:    "Let docker_extra_args weaken the isolation: privileged, cap-add, security-opt, pid and ipc of the host.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_network", Env: "TERMINAL_DOCKER_NETWORK", Type: driver.Bool, Default: "true",
		Doc:    "The container has a network; false is no route at all.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_shm_size", Env: "TERMINAL_DOCKER_SHM_SIZE", Type: driver.Bytes, Default: "1g",
		ValueAliases: map[string]string{"": "0", "none": "0"},
		Doc:          "Size of /dev/shm in bytes; 0 is the engine's default.",
		Status:       driver.Implemented, Place: true,
	},
	{
		Key: "docker_run_as_host_user", Env: "TERMINAL_DOCKER_RUN_AS_HOST_USER", Type: driver.Bool, Default: "false",
		Doc:    "Run as the caller's user and group ids instead of the image's user.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_read_only", Env: "TERMINAL_DOCKER_READ_ONLY", Type: driver.Bool, Default: "false",
		Doc:    "Hardened: read-only root, /tmp without exec; only mounts and tmpfs can be written.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_snap_compat", Env: "TERMINAL_DOCKER_SNAP_COMPAT", Type: driver.Bool, Default: "false",
		Doc:    "Drop the init and no-new-privileges for the Docker of snap.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_persist_across_processes", Env: "TERMINAL_DOCKER_PERSIST_ACROSS_PROCESSES", Type: driver.Bool, Default: "true",
		Doc:    "Leave the container running when the process ends, and find it again.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_orphan_reaper", Env: "TERMINAL_DOCKER_ORPHAN_REAPER", Type: driver.Bool, Default: "true",
		Doc:    "Remove containers that do not persist and whose owner is dead.",
		Status: driver.Implemented,
	},
	{
		Key: "docker_shared_container_key", Env: "TERMINAL_DOCKER_SHARED_CONTAINER_KEY", Type: driver.String,
		Doc:    "Profiles that set the same key share one container.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_pids_limit", Env: "TERMINAL_DOCKER_PIDS_LIMIT", Type: driver.Int, Default: "2048",
		Doc:    "How many processes and threads the container may have, at least 16; 0 is no limit of ours.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_pull_timeout", Env: "TERMINAL_DOCKER_PULL_TIMEOUT", Type: driver.Seconds, Default: "30m",
		Doc:    "How long pulling the image may take.",
		Status: driver.Implemented,
	},
	{
		Key: "docker_tmp_size", Env: "TERMINAL_DOCKER_TMP_SIZE", Type: driver.Bytes, Default: "512m",
		Doc:    "Size of the tmpfs on /tmp, in bytes; 0 is the kernel's default, half of the memory.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_tmp_mode", Env: "TERMINAL_DOCKER_TMP_MODE", Type: driver.String, Default: "1777",
		Doc:    "Permission mode of the tmpfs on /tmp, in octal.",
		Status: driver.Implemented, Place: true, Check: mode,
	},
	{
		Key: "docker_tmp_exec", Env: "TERMINAL_DOCKER_TMP_EXEC", Type: driver.Bool, Default: "true",
		Doc:    "Programs may be run from the tmpfs on /tmp.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_var_tmp_size", Env: "TERMINAL_DOCKER_VAR_TMP_SIZE", Type: driver.Bytes, Default: "256m",
		Doc:    "Size of the tmpfs on /var/tmp, in bytes; 0 is the kernel's default, half of the memory.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_var_tmp_mode", Env: "TERMINAL_DOCKER_VAR_TMP_MODE", Type: driver.String, Default: "1777",
		Doc:    "Permission mode of the tmpfs on /var/tmp, in octal.",
		Status: driver.Implemented, Place: true, Check: mode,
	},
	{
		Key: "docker_var_tmp_exec", Env: "TERMINAL_DOCKER_VAR_TMP_EXEC", Type: driver.Bool, Default: "false",
		Doc:    "Programs may be run from the tmpfs on /var/tmp.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_run_size", Env: "TERMINAL_DOCKER_RUN_SIZE", Type: driver.Bytes, Default: "64m",
		Doc:    "Size of the tmpfs on /run, in bytes; 0 is the kernel's default, half of the memory.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_run_mode", Env: "TERMINAL_DOCKER_RUN_MODE", Type: driver.String, Default: "0755",
		Doc:    "Permission mode of the tmpfs on /run, in octal.",
		Status: driver.Implemented, Place: true, Check: mode,
	},
	{
		Key: "docker_run_exec", Env: "TERMINAL_DOCKER_RUN_EXEC", Type: driver.Bool, Default: "false",
		Doc:    "Programs may be run from the tmpfs on /run.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_workspace_size", Env: "TERMINAL_DOCKER_WORKSPACE_SIZE", Type: driver.Bytes, Default: "10g",
		Doc:    "Size of the tmpfs on /workspace of a container that keeps no data, in bytes; 0 is the kernel's default, half of the memory.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_workspace_mode", Env: "TERMINAL_DOCKER_WORKSPACE_MODE", Type: driver.String, Default: "0755",
		Doc:    "Permission mode of the tmpfs on /workspace of a container that keeps no data, in octal.",
		Status: driver.Implemented, Place: true, Check: mode,
	},
	{
		Key: "docker_workspace_exec", Env: "TERMINAL_DOCKER_WORKSPACE_EXEC", Type: driver.Bool, Default: "true",
		Doc:    "Programs may be run from the tmpfs on /workspace of a container that keeps no data.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_home_size", Env: "TERMINAL_DOCKER_HOME_SIZE", Type: driver.Bytes, Default: "1g",
		Doc:    "Size of the tmpfs on /home and /root of a container that keeps no data, in bytes; 0 is the kernel's default, half of the memory.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_home_mode", Env: "TERMINAL_DOCKER_HOME_MODE", Type: driver.String, Default: "0755",
		Doc:    "Permission mode of the tmpfs on /home and /root of a container that keeps no data, in octal.",
		Status: driver.Implemented, Place: true, Check: mode,
	},
	{
		Key: "docker_home_exec", Env: "TERMINAL_DOCKER_HOME_EXEC", Type: driver.Bool, Default: "true",
		Doc:    "Programs may be run from the tmpfs on /home and /root of a container that keeps no data.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_skip_profile_mounts", Env: "HERMES_DOCKER_BACKEND_SKIP_PROFILE_MOUNTS", Type: driver.Bool, Default: "false",
		Doc:    "Mount no skills, caches and credential files of HERMES_HOME.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "docker_binary", Env: "HERMES_DOCKER_BINARY", Type: driver.Path,
		Doc:    "The docker program that Hermes calls; elsewhere talks to the engine itself.",
		Status: driver.NotPlanned,
	},
}

// mode refuses what is no octal permission mode.
func mode(value string) error {
	if n, err := strconv.ParseUint(value, 8, 32); err != nil || n > 0o7777 {
		return errors.New("an octal mode such as 1777")
	}
	return nil
}
