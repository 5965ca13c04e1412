package local

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the local backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "home_mode", Env: "TERMINAL_HOME_MODE", Type: driver.String, Default: "auto",
		Values: []string{"auto", "real", "profile"}, ValueAliases: map[string]string{"isolated": "profile", "profile_home": "profile", "profile-home": "profile", "host": "real", "user": "real", "real_home": "real", "real-home": "real"},
		Doc:    "HOME of commands: the user's own (real), HERMES_HOME/home (profile), or real outside containers (auto).",
		Status: driver.Implemented,
	},
	{
		Key: "temp_dir", Env: "TERMINAL_TEMP_DIR", Type: driver.Path,
		Doc:    "Where temporary files go; empty is TMPDIR, TMP, TEMP, then HERMES_HOME/cache/terminal, then the system's.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "scrub_profile", Env: "TERMINAL_SCRUB_PROFILE", Type: driver.Bool, Default: "false",
		Doc:    "Also remove secrets that the user's own login files export.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "git_bash_path", Env: "HERMES_GIT_BASH_PATH", Type: driver.Path,
		Doc:    "Windows: the bash.exe to use; empty looks for Git Bash.",
		Status: driver.Implemented,
	},
	{
		Key: "local_persistent", Env: "TERMINAL_LOCAL_PERSISTENT", Type: driver.Bool, Default: "false",
		Doc:    "Hermes' long-lived local shell, which Hermes itself ignores.",
		Status: driver.NotPlanned,
	},
	{
		Key: "local_memory_max_mb", Env: "TERMINAL_LOCAL_MEMORY_MAX_MB", Type: driver.Megabytes, Default: "0",
		Doc:    "How much memory a call's processes may use, in MiB; 0 is no limit.",
		Status: driver.Later, Place: true,
	},
}
