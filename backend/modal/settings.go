package modal

import "github.com/elsewhere-sh/elsewhere/driver"

// Settings are the rows of the settings table that the modal backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "modal_image", Env: "TERMINAL_MODAL_IMAGE", Type: driver.String, Default: "nikolaik/python-nodejs:python3.11-nodejs20",
		Doc:    "The image that sandboxes are made from.",
		Status: driver.Later, Place: true, NamedOnly: true,
	},
	{
		Key: "modal_mode", Env: "TERMINAL_MODAL_MODE", Type: driver.String, Default: "auto",
		Values: []string{"auto", "direct", "managed"},
		Doc:    "Your own account (direct) or a subscription's gateway (managed); elsewhere has direct only, which auto chooses.",
		Status: driver.Later, Place: true,
	},
	{
		Key: "modal_token_id", Env: "MODAL_TOKEN_ID", Type: driver.String,
		Doc:    "The id of the account's token; empty is what ~/.modal.toml says.",
		Status: driver.Later, Secret: true,
	},
	{
		Key: "modal_token_secret", Env: "MODAL_TOKEN_SECRET", Type: driver.String,
		Doc:    "The account's token.",
		Status: driver.Later, Secret: true,
	},
	{
		Key: "modal_config_path", Env: "MODAL_CONFIG_PATH", Type: driver.Path,
		Doc:    "The vendor's file of credentials; empty is ~/.modal.toml.",
		Status: driver.Later,
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
