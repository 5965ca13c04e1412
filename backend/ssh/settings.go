package ssh

import (
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Settings are the rows of the settings table that the ssh backend reads besides the common ones.
var Settings = []driver.Setting{
	{
		Key: "ssh_host", Env: "TERMINAL_SSH_HOST", Type: driver.String,
		Doc:    "The machine; a name from ~/.ssh/config will do.",
		Status: driver.Implemented, Place: true, NamedOnly: true, Check: word,
	},
	{
		Key: "ssh_user", Env: "TERMINAL_SSH_USER", Type: driver.String,
		Doc:    "The account there.",
		Status: driver.Implemented, Place: true, NamedOnly: true, Check: word,
	},
	{
		Key: "ssh_port", Env: "TERMINAL_SSH_PORT", Type: driver.Int, Default: "22",
		Doc:    "The port of the machine's ssh server.",
		Status: driver.Implemented, Place: true, Check: port,
	},
	{
		Key: "ssh_key", Env: "TERMINAL_SSH_KEY", Type: driver.Path,
		Doc:    "The private key file; empty is what ssh itself chooses.",
		Status: driver.Implemented, Place: true, NamedOnly: true,
	},
	{
		Key: "ssh_host_key_checking", Env: "TERMINAL_SSH_HOST_KEY_CHECKING", Type: driver.String, Default: "accept-new",
		Values: []string{"accept-new", "yes"},
		Doc:    "What to do about a machine whose host key is not known: accept-new takes it the first time, yes refuses; a changed key is always refused.",
		Status: driver.Implemented,
	},
	{
		Key: "ssh_connect_timeout", Env: "TERMINAL_SSH_CONNECT_TIMEOUT", Type: driver.Seconds, Default: "10",
		Doc:    "How long connecting may take, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "ssh_keepalive_interval", Env: "TERMINAL_SSH_KEEPALIVE_INTERVAL", Type: driver.Seconds, Default: "5",
		Doc:    "How often a connection is asked for a sign of life, in seconds.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "ssh_keepalive_count", Env: "TERMINAL_SSH_KEEPALIVE_COUNT", Type: driver.Int, Default: "3",
		Doc:    "How many signs of life may be missing before a connection counts as dead and is replaced.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "ssh_control_persist", Env: "TERMINAL_SSH_CONTROL_PERSIST", Type: driver.Seconds, Default: "300",
		Doc:    "How long a shared connection stays open without use, in seconds; 0 closes it with its last user.",
		Status: driver.Implemented,
	},
	{
		Key: "ssh_multiplex", Env: "TERMINAL_SSH_MULTIPLEX", Type: driver.Bool, Default: "true",
		Doc:    "Share connections between calls and processes (ControlMaster); always off on Windows, whose client cannot.",
		Status: driver.Implemented,
	},
	{
		Key: "ssh_persistent", Env: "TERMINAL_SSH_PERSISTENT", Type: driver.Bool, Default: "true",
		Doc:    "Hermes' long-lived remote shell, which Hermes itself ignores.",
		Status: driver.NotPlanned,
	},
	{
		Key: "ssh_file_sync", Type: driver.Bool, Default: "true",
		Doc:    "Copy skills, caches and credential files of HERMES_HOME to the machine.",
		Status: driver.Implemented,
	},
}

// word refuses what ssh would take for an option or for more than one word.
func word(value string) error {
	if strings.HasPrefix(value, "-") || strings.ContainsFunc(value, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		return errors.New("one word that does not begin with a dash")
	}
	return nil
}

func port(value string) error {
	if n, err := strconv.Atoi(value); err == nil && (n < 1 || n > 65535) {
		return errors.New("a port from 1 to 65535")
	}
	return nil
}

func positive(value string) error {
	if strings.Trim(value, "0.smhd") == "" {
		return errors.New("more than 0")
	}
	return nil
}
