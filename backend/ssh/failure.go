package ssh

import (
	"regexp"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	return driver.KindUnavailable
}

// advice is what to do about something that ssh says.
type advice struct {
	said *regexp.Regexp
	kind driver.Kind
	next string
}

// advices are tried in order. HOST stands for the destination.
var advices = []advice{
	{regexp.MustCompile(`REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed`), driver.KindUnavailable,
		"the machine's host key is not the one that is known: find out why; if it was set up anew, `ssh-keygen -R HOST` forgets the old one"},
	{regexp.MustCompile(`Host key verification failed|No .* host key is known for`), driver.KindUnavailable,
		"the machine's host key is not trusted: connect once by hand (`ssh HOST`), or set terminal.ssh_host_key_checking to accept-new"},
	{regexp.MustCompile(`Too many authentication failures`), driver.KindUnavailable,
		"ssh-agent offered more keys than the machine's server lets anybody try: name the right one with terminal.ssh_key (TERMINAL_SSH_KEY), or for this host with IdentityFile and `IdentitiesOnly yes` in ~/.ssh/config"},
	{regexp.MustCompile(`Permission denied|no more authentication methods`), driver.KindUnavailable,
		"the machine lets this user in by none of the keys: name the right one with terminal.ssh_key (TERMINAL_SSH_KEY), load it into the agent (`ssh-add`), or check terminal.ssh_user; passwords are not asked for"},
	{regexp.MustCompile(`(?i)identity file .* not accessible|invalid format|bad permissions|UNPROTECTED PRIVATE KEY|error in libcrypto`), driver.KindConfig,
		"the private key cannot be used: check terminal.ssh_key (TERMINAL_SSH_KEY) and that only you can read the file"},
	{regexp.MustCompile(`Could not resolve hostname`), driver.KindUnavailable,
		"no machine has this name: check terminal.ssh_host (TERMINAL_SSH_HOST), ~/.ssh/config and the network"},
	{regexp.MustCompile(`Connection refused`), driver.KindUnavailable,
		"nothing listens there: check terminal.ssh_port (TERMINAL_SSH_PORT) and that the machine's ssh server runs"},
	{regexp.MustCompile(`timed out|No route to host|Network is unreachable|not responding`), driver.KindUnavailable,
		"the machine does not answer: check the network, a VPN or firewall, and terminal.ssh_host (TERMINAL_SSH_HOST)"},
	{regexp.MustCompile(`Bad configuration option|Bad owner or permissions|bad configuration options|keyword .* extra arguments`), driver.KindConfig,
		"ssh does not accept its own configuration: `ssh -G HOST` shows the same"},
	{regexp.MustCompile(`Unable to negotiate|no matching`), driver.KindUnavailable,
		"this ssh client and the machine's server have no algorithm in common; ~/.ssh/config can allow an older one for this host"},
	{regexp.MustCompile(`Connection (closed|reset)|Broken pipe|kex_exchange_identification|banner exchange`), driver.KindUnavailable,
		"the machine's ssh server hangs up: it may be overloaded or block this address; `ssh -v HOST` shows more"},
}

// hostWord is the placeholder, and no part of a variable's name.
var hostWord = regexp.MustCompile(`\bHOST\b`)

// explain makes one line of what ssh said about a connection that could not be made.
func (d *destination) explain(said string) error {
	said = lastWords(said)
	for _, a := range advices {
		if a.said.MatchString(said) {
			return failure(a.kind, "cannot connect to %s: %s (ssh: %s)", d.name(), hostWord.ReplaceAllLiteralString(a.next, d.host), oneLine(said))
		}
	}
	if said == "" {
		said = "it ended without a word"
	}
	return failure(driver.KindUnavailable, "cannot connect to %s: `ssh -v %s` shows more (ssh: %s)", d.name(), d.host, oneLine(said))
}

// lastWords is the end of what ssh said, without what is said of every connection.
func lastWords(said string) string {
	var kept []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if line == "" || strings.Contains(line, "Permanently added") || strings.HasPrefix(line, "debug") || strings.Trim(line, "@") == "" ||
			strings.HasPrefix(line, "Pseudo-terminal") || strings.Contains(line, "post-quantum") {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept[max(0, len(kept)-12):], "\n")
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	const most = 400
	if len(s) > most {
		s = s[:most/4] + " ... " + s[len(s)-3*most/4:]
	}
	return strings.TrimSuffix(s, ".")
}

// hungUp tells whether a server closed a connection before it said who it is.
func hungUp(err error) bool {
	return err != nil && beginning.MatchString(err.Error())
}

var beginning = regexp.MustCompile(`kex_exchange_identification|banner exchange|ssh_exchange_identification`)
