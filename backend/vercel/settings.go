package vercel

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the vercel backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "vercel_runtime", Env: "TERMINAL_VERCEL_RUNTIME", Type: driver.String, Default: "node24",
		Values: []string{"", "node24", "node22", "python3.13"},
		Doc:    "The runtime of sandboxes; empty lets the service choose.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "vercel_image", Env: "TERMINAL_VERCEL_IMAGE", Type: driver.String,
		Doc:    "An image instead of a runtime.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "vercel_oidc_token", Env: "VERCEL_OIDC_TOKEN", Type: driver.String,
		Doc:    "A short-lived token, instead of the next three.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "vercel_token", Env: "VERCEL_TOKEN", Type: driver.String,
		Doc:    "The account's access token; with team and project.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "vercel_team_id", Env: "VERCEL_TEAM_ID", Type: driver.String,
		Doc:    "The team that sandboxes belong to.",
		Status: driver.Implemented,
	},
	{
		Key: "vercel_project_id", Env: "VERCEL_PROJECT_ID", Type: driver.String,
		Doc:    "The project that sandboxes belong to.",
		Status: driver.Implemented,
	},
	{
		Key: "vercel_api_url", Env: "TERMINAL_VERCEL_API_URL", Type: driver.String,
		Doc:    "Address of the API; empty is the service's own.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "vercel_lifetime", Env: "TERMINAL_VERCEL_LIFETIME", Type: driver.Seconds, Default: "900",
		Doc:    "How long the service lets a sandbox run that nothing runs in, in seconds; it is extended while commands run.",
		Status: driver.Implemented,
	},
}
