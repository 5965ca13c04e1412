package daytona

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the daytona backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "daytona_image", Env: "TERMINAL_DAYTONA_IMAGE", Type: driver.String, Default: "nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image that sandboxes are made from.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "daytona_api_key", Env: "DAYTONA_API_KEY", Type: driver.String,
		Doc:    "The account's key.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "daytona_jwt_token", Env: "DAYTONA_JWT_TOKEN", Type: driver.String,
		Doc:    "A token in place of the key; daytona_organization_id goes with it.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "daytona_organization_id", Env: "DAYTONA_ORGANIZATION_ID", Type: driver.String,
		Doc:    "The organization that a token is used for.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_api_url", Env: "DAYTONA_API_URL", EnvAliases: []string{"DAYTONA_SERVER_URL"}, Type: driver.String,
		Doc:    "Address of a server of your own; empty is the hosted service.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "daytona_target", Env: "DAYTONA_TARGET", Type: driver.String,
		Doc:    "The region; empty is the account's default.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "daytona_create_mode", Env: "TERMINAL_DAYTONA_CREATE_MODE", Type: driver.String, Default: "image",
		Values: []string{"image", "snapshot"},
		Doc:    "Make sandboxes from daytona_image or from daytona_snapshot.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "daytona_snapshot", Env: "TERMINAL_DAYTONA_SNAPSHOT", Type: driver.String,
		Doc:    "The snapshot that sandboxes are made from.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "daytona_language", Env: "TERMINAL_DAYTONA_LANGUAGE", Type: driver.String,
		Doc:    "The sandbox's language label.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_name_prefix", Env: "TERMINAL_DAYTONA_NAME_PREFIX", Type: driver.String, Default: "hermes",
		Doc:    "What the names of sandboxes begin with.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_name_scope", Env: "TERMINAL_DAYTONA_NAME_SCOPE", Type: driver.String, Default: "task",
		Values: []string{"task", "profile", "global"},
		Doc:    "What shares one sandbox: a task, a profile or everything.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_auto_stop_interval", Env: "TERMINAL_DAYTONA_AUTO_STOP_INTERVAL", Type: driver.Int, Default: "15",
		Doc:    "After how many idle minutes the service stops a sandbox; 0 is never.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_auto_archive_interval", Env: "TERMINAL_DAYTONA_AUTO_ARCHIVE_INTERVAL", Type: driver.Int, Default: "10080",
		Doc:    "After how many minutes the service archives a stopped sandbox; 0 is the longest it allows.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_auto_delete_interval", Env: "TERMINAL_DAYTONA_AUTO_DELETE_INTERVAL", Type: driver.Int, Default: "0",
		Doc:    "After how many minutes the service deletes a stopped sandbox; 0 is never.",
		Status: driver.Implemented,
	},
	{
		Key: "daytona_ephemeral", Env: "TERMINAL_DAYTONA_EPHEMERAL", Type: driver.Bool, Default: "false",
		Doc:    "Delete a sandbox when it stops.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "daytona_network_block_all", Env: "TERMINAL_DAYTONA_NETWORK_BLOCK_ALL", Type: driver.Bool, Default: "false",
		Doc:    "The sandbox has no network.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "daytona_network_allow_list", Env: "TERMINAL_DAYTONA_NETWORK_ALLOW_LIST", Type: driver.List,
		Doc:    "Address ranges (CIDR) that the sandbox may reach; empty is all.",
		Status: driver.Implemented, Place: true,
	},
}
