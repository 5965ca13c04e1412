package ssh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// destination is an account on a machine and how the ssh program gets there.
type destination struct {
	program string   // ssh
	environ []string // of ssh
	host    string   // as it was given: a name of ~/.ssh/config will do
	options []string // of every ssh, before the host

	// What ssh makes of it (`ssh -G`).
	hostname, user, port string
	agent                bool     // its configuration forwards the agent
	sends                []string // variables that its configuration sends: SendEnv and SetEnv
	id                   string   // a short hash of all that selects the connection

	connectTimeout time.Duration
	keepalive      time.Duration // between two signs of life
	keepaliveMax   int           // that many without answer end the connection
	persist        time.Duration // how long a master stays without use
}

// silence is after how long without a sign of life a connection counts as dead.
func (d *destination) silence() time.Duration { return d.keepalive * time.Duration(d.keepaliveMax) }

// name names the destination for people.
func (d *destination) name() string {
	if d.user == "" {
		return d.host
	}
	return d.user + "@" + d.hostname + ":" + d.port
}

// newDestination reads the settings and asks ssh what it makes of them. It contacts nobody.
func newDestination(ctx context.Context, req driver.OpenRequest) (*destination, error) {
	cfg := req.Config
	d := &destination{
		environ: req.Environ, host: cfg.String("ssh_host"),
		connectTimeout: cfg.Duration("ssh_connect_timeout"), keepalive: cfg.Duration("ssh_keepalive_interval"),
		keepaliveMax: int(cfg.Int("ssh_keepalive_count")), persist: cfg.Duration("ssh_control_persist"),
	}
	user := cfg.String("ssh_user")
	if err := required(d.host, user, cfg.String("backend")); err != nil {
		return nil, err
	}
	var err error
	if d.program, err = findProgram(req.Environ, usualPlaces(req.Environ)); err != nil {
		return nil, err
	}
	key := cfg.String("ssh_key")
	if key != "" {
		if f, err := os.Open(key); err != nil {
			return nil, failure(driver.KindConfig, "the private key of terminal.ssh_key (TERMINAL_SSH_KEY) cannot be read: %w; name one that can, or leave it out", err)
		} else {
			_ = f.Close()
		}
	}
	port := 0
	if cfg.IsSet("ssh_port") {
		port = int(cfg.Int("ssh_port"))
	}
	d.options = clientOptions(clientSettings{
		user: user, port: port, key: key, hostKeys: cfg.String("ssh_host_key_checking"),
		connect: d.connectTimeout, keepalive: d.keepalive, keepaliveMax: d.keepaliveMax,
	})
	return d, d.resolve(ctx)
}

// required says which setting is missing. A named backend may leave the user to ~/.ssh/config.
func required(host, user, backend string) error {
	switch {
	case host == "" && user == "" && backend == "ssh":
		return failure(driver.KindConfig, "no machine and no account are named: set terminal.ssh_host (TERMINAL_SSH_HOST) and terminal.ssh_user (TERMINAL_SSH_USER)")
	case host == "":
		return failure(driver.KindConfig, "no machine is named: set terminal.ssh_host (TERMINAL_SSH_HOST); for a backend of terminal.backends, ssh_host in its own entry")
	case user == "" && backend == "ssh":
		return failure(driver.KindConfig, "no account is named: set terminal.ssh_user (TERMINAL_SSH_USER)")
	}
	return nil
}

// usualPlaces are where ssh is, should the caller's PATH be a poor one.
func usualPlaces(environ []string) []string {
	if runtime.GOOS == "windows" {
		return []string{filepath.Join(value(environ, "SystemRoot"), "System32", "OpenSSH")}
	}
	return []string{"/usr/bin", "/usr/local/bin", "/opt/homebrew/bin", "/bin"}
}

// findProgram looks for ssh on the caller's PATH, then in places.
func findProgram(environ, places []string) (string, error) {
	name := "ssh"
	if runtime.GOOS == "windows" {
		name = "ssh.exe"
	}
	for _, dir := range append(filepath.SplitList(value(environ, "PATH")), places...) {
		if !filepath.IsAbs(dir) {
			continue
		}
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && (runtime.GOOS == "windows" || st.Mode()&0o111 != 0) {
			return file, nil
		}
	}
	return "", failure(driver.KindUnavailable, "there is no ssh program here, which the ssh backend uses: install an OpenSSH client (apt install openssh-client, apk add openssh-client) or put its directory on PATH")
}

// value is that of a variable in environ, "" where there is none.
func value(environ []string, name string) string {
	found := ""
	for _, entry := range environ {
		key, v, _ := strings.Cut(entry, "=")
		if key == name || runtime.GOOS == "windows" && strings.EqualFold(key, name) {
			found = v
		}
	}
	return found
}

// clientSettings are the settings that become options of ssh.
type clientSettings struct {
	user, key, hostKeys string
	port                int // 0 is ssh's own choice
	connect, keepalive  time.Duration
	keepaliveMax        int
}

// clientOptions are the options of every ssh; those that stand here beat ~/.ssh/config, which stays in force for the rest.
// Forwardings are left out: they belong to the user's own connections, and a second connection could not have the same.
func clientOptions(s clientSettings) []string {
	options := []string{
		"-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=" + s.hostKeys,
		"-o", "ConnectTimeout=" + seconds(s.connect),
		"-o", "ServerAliveInterval=" + seconds(s.keepalive),
		"-o", "ServerAliveCountMax=" + strconv.Itoa(s.keepaliveMax),
		"-o", "ClearAllForwardings=yes",
		"-o", "RemoteCommand=none",
		"-o", "PermitLocalCommand=no",
		"-o", "LogLevel=INFO",
	}
	if s.user != "" {
		options = append(options, "-l", s.user)
	}
	if s.port != 0 {
		options = append(options, "-p", strconv.Itoa(s.port))
	}
	if s.key != "" {
		options = append(options, "-o", "IdentitiesOnly=yes", "-i", s.key)
	}
	return options
}

// seconds writes a duration as ssh reads it; it knows no fractions.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(max(1, (d+time.Second-1)/time.Second)))
}

// resolveWait bounds `ssh -G`, which runs what the user's configuration has under `Match exec`.
const resolveWait = 15 * time.Second

// resolve asks ssh for the configuration that is in force for the host.
func (d *destination) resolve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, resolveWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, append(append([]string{"-G"}, d.options...), "--", d.host)...)
	cmd.Env, cmd.WaitDelay = d.environ, time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return failure(driver.KindUnavailable, "`ssh -G %s` did not end in %v: see what ~/.ssh/config runs with `Match exec`", d.host, resolveWait)
		}
		return failure(driver.KindConfig, "ssh does not accept its configuration: %s; `ssh -G %s` shows the same", oneLine(errs.String()+" ("+err.Error()+")"), d.host)
	}
	d.read(out.String())
	sum := sha256.Sum256([]byte(d.program + "\x00" + strings.Join(d.options, "\x00") + "\x00" + d.host + "\x00" + out.String()))
	d.id = hex.EncodeToString(sum[:5])
	return nil
}

// belongTo gives it another id: in a directory of several homes each has connections of its own.
func (d *destination) belongTo(home string) {
	sum := sha256.Sum256([]byte(d.id + "\x00" + home))
	d.id = hex.EncodeToString(sum[:5])
}

// read takes what matters from the output of `ssh -G`.
func (d *destination) read(config string) {
	for line := range strings.Lines(config) {
		key, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch key {
		case "hostname":
			d.hostname = v
		case "user":
			d.user = v
		case "port":
			d.port = v
		case "forwardagent":
			d.agent = v != "no"
		case "sendenv":
			d.sends = append(d.sends, d.matching(v)...)
		case "setenv":
			if strings.Contains(v, "=") {
				d.sends = append(d.sends, v)
			}
		}
	}
}

// matching gives the caller's variables that a SendEnv pattern names.
func (d *destination) matching(pattern string) []string {
	var found []string
	for _, entry := range d.environ {
		name, _, _ := strings.Cut(entry, "=")
		if ok, err := filepath.Match(pattern, name); ok && err == nil {
			found = append(found, entry)
		}
	}
	return found
}

// leastPersist is how long a master at least waits for its next user.
const leastPersist = 30 * time.Second

// masterArgs start a master that listens at socket, goes into the background once it is connected, and ends after a time
// without use.
func (d *destination) masterArgs(socket, log string) []string {
	// Not at once, also where none is to be kept: between its start and its first use some time goes by.
	persist := seconds(max(d.persist, leastPersist))
	args := []string{"-T", "-f", "-N", "-M", "-S", socket, "-o", "ControlPersist=" + persist, "-E", log}
	return append(append(args, d.options...), "--", d.host)
}

// directArgs start an ssh that runs one command over a connection of its own.
func (d *destination) directArgs(log, command string) []string {
	return append(append([]string{"-T", "-S", "none", "-o", "ControlMaster=no", "-E", log}, d.options...), "--", d.host, command)
}
