package modal

import (
	"errors"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Settings are the rows of the settings table that the modal backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "modal_image", Env: "TERMINAL_MODAL_IMAGE", Type: driver.String, Default: "nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image that sandboxes are made from: a registry's, or the id of one of the account's (im-...).",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "modal_mode", Env: "TERMINAL_MODAL_MODE", Type: driver.String, Default: "auto",
		Values: []string{"auto", "direct", "managed"},
		Doc:    "Your own account (direct) or a subscription's gateway (managed); elsewhere has direct only, which auto chooses.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_token_id", Env: "MODAL_TOKEN_ID", Type: driver.String,
		Doc:    "The id of the account's token; empty is what ~/.modal.toml says.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "modal_token_secret", Env: "MODAL_TOKEN_SECRET", Type: driver.String,
		Doc:    "The account's token.",
		Status: driver.Implemented, Secret: true,
	},
	{
		Key: "modal_config_path", Env: "MODAL_CONFIG_PATH", Type: driver.Path,
		Doc:    "The vendor's file of credentials; empty is ~/.modal.toml.",
		Status: driver.Implemented,
	},
	{
		Key: "modal_server_url", Env: "MODAL_SERVER_URL", Type: driver.String,
		Doc:    "Where the service is; empty is what ~/.modal.toml says, else https://api.modal.com.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_profile", Env: "MODAL_PROFILE", Type: driver.String,
		Doc:    "The profile in ~/.modal.toml; empty is the active one.",
		Status: driver.Implemented,
	},
	{
		Key: "modal_environment", Env: "MODAL_ENVIRONMENT", Type: driver.String,
		Doc:    "The account's environment; empty is what ~/.modal.toml says, else the account's default.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_app", Env: "TERMINAL_MODAL_APP", Type: driver.String, Default: "hermes-agent",
		Doc:    "The app in which sandboxes are; it is made where it is not there.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_gpu", Env: "TERMINAL_MODAL_GPU", Type: driver.String,
		Doc:    "The GPU of a sandbox, with how many behind a colon: T4, A100-80GB:2.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_network", Env: "TERMINAL_MODAL_NETWORK", Type: driver.Bool, Default: "true",
		Doc:    "Whether a sandbox has a network.",
		Status: driver.Implemented, Place: true,
	},
	{
		Key: "modal_lifetime", Env: "TERMINAL_MODAL_LIFETIME", Type: driver.Seconds, Default: "1h",
		Doc:    "After how long the service ends a sandbox, whatever runs in it; at most 24 hours. Its files are stored before.",
		Status: driver.Implemented, Check: lifetime,
	},
	{
		Key: "modal_keep_running", Env: "TERMINAL_MODAL_KEEP_RUNNING", Type: driver.Bool, Default: "true",
		Doc:    "Leave a persistent sandbox running on close, for the next process and for background jobs, until container_idle_timeout; false ends it when its files are stored.",
		Status: driver.Implemented,
	},
	{
		Key: "modal_snapshot_ttl", Env: "TERMINAL_MODAL_SNAPSHOT_TTL", Type: driver.Seconds, Default: "30d",
		ValueAliases: map[string]string{"off": "0", "false": "0"},
		Doc:          "How long the service keeps stored files that are not stored anew; 0 or off is for ever.",
		Status:       driver.Implemented,
	},
	{
		Key: "modal_file_sync", Type: driver.Bool, Default: "true",
		Doc:    "Copy skills, caches and credential files of HERMES_HOME to the sandbox.",
		Status: driver.Implemented,
	},
	{
		Key: "managed_modal_connect_timeout_seconds", Env: "TERMINAL_MANAGED_MODAL_CONNECT_TIMEOUT_SECONDS", Type: driver.Seconds, Default: "1.0",
		Doc:    "Timeout of Hermes' managed gateway, in seconds.",
		Status: driver.NotPlanned,
	},
	{
		Key: "managed_modal_poll_read_timeout_seconds", Env: "TERMINAL_MANAGED_MODAL_POLL_READ_TIMEOUT_SECONDS", Type: driver.Seconds, Default: "5.0",
		Doc:    "Timeout of Hermes' managed gateway, in seconds.",
		Status: driver.NotPlanned,
	},
	{
		Key: "managed_modal_cancel_read_timeout_seconds", Env: "TERMINAL_MANAGED_MODAL_CANCEL_READ_TIMEOUT_SECONDS", Type: driver.Seconds, Default: "5.0",
		Doc:    "Timeout of Hermes' managed gateway, in seconds.",
		Status: driver.NotPlanned,
	},
	{
		Key: "modal_gateway_url", Env: "MODAL_GATEWAY_URL", Type: driver.String,
		Doc:    "Address of Hermes' managed gateway.",
		Status: driver.NotPlanned,
	},
	{
		Key: "tool_gateway_scheme", Env: "TOOL_GATEWAY_SCHEME", Type: driver.String, Default: "https",
		Doc:    "Scheme of Hermes' managed gateway.",
		Status: driver.NotPlanned,
	},
	{
		Key: "tool_gateway_domain", Env: "TOOL_GATEWAY_DOMAIN", Type: driver.String, Default: "nousresearch.com",
		Doc:    "Domain of Hermes' managed gateway.",
		Status: driver.NotPlanned,
	},
	{
		Key: "tool_gateway_user_token", Env: "TOOL_GATEWAY_USER_TOKEN", Type: driver.String,
		Doc:    "Token for Hermes' managed gateway.",
		Status: driver.NotPlanned, Secret: true,
	},
}

// longest is the vendor's limit of a sandbox's lifetime.
const longest = 24 * time.Hour

func lifetime(value string) error {
	if strings.Trim(value, "0.smhd") == "" {
		return errors.New("more than 0")
	}
	return nil
}
