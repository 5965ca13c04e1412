package singularity

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the singularity backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "singularity_image", Env: "TERMINAL_SINGULARITY_IMAGE", Type: driver.String, Default: "docker://nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image: a .sif file, or an address (docker://, docker-archive:, library://) that is built once.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "scratch_dir", Env: "TERMINAL_SCRATCH_DIR", Type: driver.Path,
		Doc:    "Where overlays and built images lie; empty is sandbox_dir, then /scratch, then HERMES_HOME/sandboxes/singularity.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "singularity_gpu", Env: "TERMINAL_SINGULARITY_GPU", Type: driver.String,
		Values: []string{"", "nv", "rocm"},
		Doc:    "Give the instance the GPUs of NVIDIA (nv) or AMD (rocm).",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "singularity_network", Env: "TERMINAL_SINGULARITY_NETWORK", Type: driver.Bool, Default: "true",
		Doc:    "The instance has the host's network; false is no route at all.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "singularity_fakeroot", Env: "TERMINAL_SINGULARITY_FAKEROOT", Type: driver.Bool, Default: "false",
		Doc:    "Commands are root inside, by subordinate ids of the user, so that packages can be installed.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "singularity_pids_limit", Env: "TERMINAL_SINGULARITY_PIDS_LIMIT", Type: driver.Int, Default: "2048",
		Doc:    "How many processes and threads the instance may have, at least 16, where cgroups are delegated; 0 is no limit of ours.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "singularity_build_timeout", Env: "TERMINAL_SINGULARITY_BUILD_TIMEOUT", Type: driver.Seconds, Default: "30m",
		Doc:    "How long building an image may take.",
		Status: driver.Implemented,
	},
}
