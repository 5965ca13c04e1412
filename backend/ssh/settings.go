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
		Status: driver.Later, Place: true, NamedOnly: true, Check: word,
	},
	{
		Key: "ssh_user", Env: "TERMINAL_SSH_USER", Type: driver.String,
		Doc:    "The account there.",
		Status: driver.Later, Place: true, NamedOnly: true, Check: word,
	},
	{
		Key: "ssh_port", Env: "TERMINAL_SSH_PORT", Type: driver.Int, Default: "22",
		Doc:    "The port of the machine's ssh server.",
		Status: driver.Later, Place: true, Check: port,
	},
	{
		Key: "ssh_key", Env: "TERMINAL_SSH_KEY", Type: driver.Path,
		Doc:    "The private key file; empty is what ssh itself chooses.",
		Status: driver.Later, Place: true, NamedOnly: true,
	},
	{
		Key: "ssh_connect_timeout", Env: "TERMINAL_SSH_CONNECT_TIMEOUT", Type: driver.Seconds, Default: "10",
		Doc:    "How long connecting may take, in seconds.",
		Status: driver.Later,
	},
	{
		Key: "ssh_persistent", Env: "TERMINAL_SSH_PERSISTENT", Type: driver.Bool, Default: "true",
		Doc:    "Hermes' long-lived remote shell, which Hermes itself ignores.",
		Status: driver.NotPlanned,
	},
	{
		Key: "ssh_file_sync", Type: driver.Bool, Default: "true",
		Doc:    "Copy skills, caches and credential files of HERMES_HOME to the machine.",
		Status: driver.Later,
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
