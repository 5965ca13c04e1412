package vercel

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the vercel backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "vercel_runtime", Env: "TERMINAL_VERCEL_RUNTIME", Type: driver.String, Default: "node24",
		Values: []string{"", "node24", "node22", "python3.13"},
		Doc:    "The runtime of sandboxes; empty lets the service choose.",
		Status: driver.Later, Place: true, NamedOnly: true,
	},
	{
		Key: "vercel_image", Env: "TERMINAL_VERCEL_IMAGE", Type: driver.String,
		Doc:    "An image instead of a runtime.",
		Status: driver.Later, Place: true, NamedOnly: true,
	},
	{
		Key: "vercel_oidc_token", Env: "VERCEL_OIDC_TOKEN", Type: driver.String,
		Doc:    "A short-lived token, instead of the next three.",
		Status: driver.Later, Secret: true,
	},
	{
		Key: "vercel_token", Env: "VERCEL_TOKEN", Type: driver.String,
		Doc:    "The account's access token; with team and project.",
		Status: driver.Later, Secret: true,
	},
	{
		Key: "vercel_team_id", Env: "VERCEL_TEAM_ID", Type: driver.String,
		Doc:    "The team that sandboxes belong to.",
		Status: driver.Later,
	},
	{
		Key: "vercel_project_id", Env: "VERCEL_PROJECT_ID", Type: driver.String,
		Doc:    "The project that sandboxes belong to.",
		Status: driver.Later,
	},
}
