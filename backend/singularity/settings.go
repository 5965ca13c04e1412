package singularity

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the singularity backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "singularity_image", Env: "TERMINAL_SINGULARITY_IMAGE", Type: driver.String, Default: "docker://nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image: a .sif file, or a docker:// address that is built once.",
		Status: driver.Later, Place: true, NamedOnly: true,
	},
	{
		Key: "scratch_dir", Env: "TERMINAL_SCRATCH_DIR", Type: driver.Path,
		Doc:    "Where overlays and built images lie; empty is sandbox_dir, then /scratch, then HERMES_HOME/sandboxes/singularity.",
		Status: driver.Later, Place: true,
	},
	{
		Key: "singularity_gpu", Env: "TERMINAL_SINGULARITY_GPU", Type: driver.String,
		Values: []string{"", "nv", "rocm"},
		Doc:    "Give the instance the GPUs of NVIDIA (nv) or AMD (rocm).",
		Status: driver.Later, Place: true,
	},
}
