package policy

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Rule is a built-in rule.
type Rule struct {
	Name   string
	Action Action
	Reason string // why, for whoever is asked: no full stop
	About  string // what it fits, for the documentation

	// Remote rules are also applied to commands for another machine (ssh HOST ...), where they ask at most.
	Remote bool

	match func(*command) bool // nil where the walk of the text or the table of paths finds it
}

// throughNetwork are the rules about harm that goes through a network, out of a container that has all else for itself.
var throughNetwork = []string{
	"blocked-path", "kernel-setting", "reverse-shell", "send-secrets", "disable-firewall", "container-root", "container-privileges",
	"prune-volumes", "force-push", "destroy-cloud", "drop-database",
}

// Network reports whether the rule also holds where the network is all that a container shares with its machine. Rules of the user's
// own do everywhere.
func (r *Rule) Network() bool { return slices.Contains(throughNetwork, r.Name) }

// Rules returns the built-in rules, in the order of the documentation.
func Rules() []Rule { return slices.Clone(rules) }

// Lookup returns the built-in rule of that name, or nil.
func Lookup(name string) *Rule {
	for i := range rules {
		if rules[i].Name == name {
			r := rules[i]
			return &r
		}
	}
	return nil
}

var rules = table()

func table() []Rule {
	return []Rule{
		// Deleting.
		{"delete-system", Block, "deletes the system itself", "recursive deletion or moving away of `/`, a system directory or what it holds: `rm -rf /`, `rm -rf /usr/*`, `find / -delete`", true, deletes(ofSystem)},
		{"delete-home", Block, "deletes a whole home directory", "the same of a home: `rm -rf ~`, `rm -rf /home/*`", true, deletes(ofHome)},
		{"delete-outside", Ask, "deletes outside the workspace and the temporary directories", "the same anywhere else that is neither in the workspace, in a temporary directory nor in a cache", false, deletes(outside)},
		{"delete-unset", Ask, "deletes from / on if the variable is empty", "`rm -rf \"$DIR\"/*`, where the text does not say what DIR is; `${DIR:?}` is fine", true, deletes(unset)},
		{"unknown-command", Ask, "runs a command whose name is not known with the options and the target of a ruinous deletion", "`$CMD -rf /`", true, unknownCommand},

		// Disks and devices.
		{"format-disk", Block, "formats or repartitions a disk", "`mkfs`, `wipefs`, `blkdiscard`, `parted`, `fdisk`, `cryptsetup luksFormat`, `zpool destroy` and the like of a device; images in files are fine", true, formatsDisk},
		{"write-device", Block, "writes to a device or to memory", "`dd of=/dev/sda`, `> /dev/nvme0n1`, `shred /dev/sdb`; not `/dev/null` and its like", true, writes("write-device")},

		// Paths.
		{"write-accounts", Block, "changes who may log in or become root", "`/etc/passwd`, `/etc/shadow`, `/etc/sudoers`, `/etc/pam.d`, `/etc/ld.so.preload`", true, writes("write-accounts")},
		{"write-system", Ask, "changes the system's files", "writing below `/etc`, `/usr` (not `/usr/local`), `/bin`, `/lib`, `/boot`, `/System`, the package databases", false, writes("write-system")},
		{"write-credentials", Block, "changes or replaces credentials", "writing to `~/.ssh` (not `known_hosts`), `~/.aws`, `~/.gnupg`, `~/.kube`, `~/.netrc`, browsers' profiles and the like", true, writes("write-credentials")},
		{"read-credentials", Ask, "reads credentials", "reading the content of private keys, tokens and password stores, `/etc/shadow`, another process's environment; their public parts are fine", false, reads("read-credentials")},
		{"write-own-config", Block, "changes what elsewhere or Hermes is configured by", "`HERMES_HOME/config.yaml`, `.env`, `auth.json`, `mcp-tokens/`, all of `elsewhere/`: settings, policy, answers, audit, sessions", false, writes("write-own-config")},
		{"read-own-config", Ask, "reads the configuration, which may hold secrets", "`HERMES_HOME/config.yaml`", false, reads("read-own-config")},
		{"read-own-secrets", Block, "reads the agent's own secrets", "`HERMES_HOME/.env`, `auth.json`, `mcp-tokens/`, `elsewhere/` except its `output/`", false, reads("read-own-secrets")},
		{"write-startup", Ask, "changes what runs by itself at the next login or start", "`~/.bashrc` and the other shells' files, `~/.ssh/config`, autostart, systemd user units, LaunchAgents, `crontab FILE`", false, func(c *command) bool {
			return writes("write-startup")(c) || setsCrontab(c)
		}},
		{"blocked-path", Block, "touches a path that the settings block", "the paths of the settings, read or written", false, func(c *command) bool {
			return writes("blocked-path")(c) || reads("blocked-path")(c)
		}},
		{"wipe-logs", Ask, "wipes logs or the history", "deleting or overwriting below `/var/log`, shell histories, `history -c`, `journalctl --vacuum-*`, `dmesg -C`", true, wipesLogs},
		{"kernel-setting", Ask, "changes the running kernel", "`sysctl -w`, writing below `/proc/sys` and `/sys`, `insmod`, `rmmod`, `modprobe -r`", false, changesKernel},

		// Code from elsewhere.
		{"run-from-network", Ask, "runs what it has just fetched from the network, unseen", "`curl URL | sh`, `bash <(curl URL)`, `eval \"$(wget -O- URL)\"`, `curl -o x URL; sh x`, `python -c` of fetched text", true, fetchesCode},
		{"run-decoded", Ask, "runs a decoded text that cannot be looked at", "`base64 -d FILE | sh`; constant text is decoded and checked itself", true, nil},
		{"reverse-shell", Block, "gives a shell on this machine to another one", "`bash -i >& /dev/tcp/...`, `nc -e /bin/sh`, `sh -i | nc`, `socat EXEC:`", true, reverseShell},
		{"send-secrets", Block, "sends credentials to another machine", "`curl -d @~/.ssh/id_rsa`, `cat .env | nc`, `scp ~/.aws/credentials host:`, `env | curl -d @-`", true, sendsSecrets},

		// Rights, accounts, security.
		{"permissions-system", Block, "opens or gives away the system's files or a home", "`chmod -R 777 /`, `chown -R me /usr`, `setfacl -R` on the same places", true, func(c *command) bool {
			return permits(c, ofSystem) || permits(c, ofHome) && opens(c)
		}},
		{"permissions-outside", Ask, "changes rights or owners outside the workspace, with all below", "the same anywhere else outside the workspace and temp; `chown -R` of a home", false, func(c *command) bool {
			return permits(c, outside) || permits(c, ofHome) && !opens(c)
		}},
		{"setuid", Ask, "makes a program run with its owner's rights", "`chmod u+s`, `chmod 4755`, `setcap`", true, setsUID},
		{"accounts", Ask, "changes users, groups or passwords", "`userdel`, `useradd`, `usermod`, `passwd`, `chpasswd`, `visudo` and the like", true, named("userdel", "deluser", "useradd", "adduser", "usermod", "groupdel", "delgroup", "groupmod", "passwd", "chpasswd", "visudo", "vipw", "chsh", "gpasswd", "dscl")},
		{"disable-firewall", Ask, "switches off a firewall or a security module", "`iptables -F`, `nft flush`, `ufw disable`, `setenforce 0`, stopping `firewalld`, AppArmor, auditd", true, disablesFirewall},

		// Power, services, processes.
		{"power", Block, "stops or restarts the machine", "`shutdown`, `reboot`, `halt`, `poweroff`, `init 0`, `systemctl reboot`; `shutdown -c` is fine", true, power},
		{"stop-service", Ask, "stops a service that the machine or the way to it depends on", "`systemctl stop|disable|mask`, `service X stop` of ssh, the network, docker, dbus, cron, systemd's own", true, stopsService},
		{"kill-all", Block, "ends everything that runs, or init", "`kill -9 -1`, `kill 1`, `killall5`, `pkill -u USER`, `killall systemd`", true, killsAll},
		{"kill-elsewhere", Block, "ends elsewhere or the agent itself", "`pkill elsewhere`, `killall hermes`, `kill $(pgrep elsewhere)`", false, killsElsewhere},
		{"fork-bomb", Block, "starts processes without end", "`:(){ :|:& };:` and its relatives", true, forkBomb},
		{"remove-crontab", Ask, "removes all of a user's scheduled jobs", "`crontab -r`", true, removesCrontab},
		{"remove-essential", Ask, "removes packages that the system needs", "`apt purge` of `libc6`, `systemd`, `sudo`, the kernel; `--allow-remove-essential`, `rpm --nodeps`", true, removesEssential},

		// Containers.
		{"container-root", Block, "gives a container the whole machine", "`docker run -v /:/host`, `nsenter -t 1`, `chroot /host` from a container, `--mount source=/`", true, containerRoot},
		{"container-privileges", Ask, "starts a container that can get out", "`docker run --privileged`, `--pid=host`, `--cap-add=SYS_ADMIN|ALL`, `--device`, the engine's socket or a system directory mounted", true, containerPrivileges},
		{"prune-volumes", Ask, "deletes container volumes with their data", "`docker system prune --volumes`, `docker volume rm|prune`, `docker compose down -v`", true, prunesVolumes},

		// Shared things.
		{"force-push", Ask, "rewrites or deletes what others share", "`git push --force`, `--force-with-lease`, `--mirror`, `--delete`, `+ref`, `:ref`", true, forcePush},
		{"rewrite-history", Ask, "rewrites or expires a repository's history", "`git filter-branch`, `git filter-repo`, `git reflog expire`, `git gc --prune=now`", true, rewritesHistory},
		{"destroy-cloud", Ask, "deletes what runs or lies in a cloud", "`terraform destroy`, `kubectl delete namespace`, `aws s3 rb --force`, `aws s3 rm --recursive`, `gcloud projects delete`, `gh repo delete`", true, destroysCloud},
		{"drop-database", Ask, "deletes a database", "`dropdb`, `DROP DATABASE`, `DROP TABLE`, `TRUNCATE` given to a client, `redis-cli FLUSHALL`", true, dropsDatabase},

		// The text itself.
		{"unparseable", Ask, "cannot be read: it is no valid bash", "text that does not parse", false, nil},
		{"too-complex", Ask, "is too long or too involved to be checked", "more than 24 KiB beside long here-documents, deep nesting, too many steps; a copy of too many files", false, nil},
	}
}

// yours is the name of findings of the user's own rules, and denied of those of his patterns (Context.Deny).
const (
	yours  = "your-rule"
	denied = "approvals.deny"
)

// Denied is the name of findings of Context.Deny.
const Denied = denied

// denies reports which pattern of Context.Deny fits a text.
func (c Context) denies(text string) (pattern string, ok bool) {
	if len(c.Deny) == 0 {
		return "", false
	}
	text = strings.ToLower(strings.TrimSpace(text))
	for _, pattern := range c.Deny {
		if glob(strings.ToLower(pattern), text) {
			return pattern, true
		}
	}
	return "", false
}

// judge compares a command with all rules.
func (sh *shell) judge(c *command) {
	if !sh.spend(4 + 2*len(c.args)) {
		return
	}
	for i := range rules {
		r := &rules[i]
		if r.match == nil || sh.remote && !r.Remote || !r.match(c) {
			continue
		}
		c.report(r.Name)
	}
	if c.name == "" {
		return
	}
	if len(sh.ctx.Deny) > 0 {
		if pattern, ok := sh.ctx.denies(c.normal()); ok {
			c.find(denied, Block, "the pattern "+pattern)
		}
	}
	for _, u := range sh.ctx.User {
		if u.Action == Allow || !u.fits(c) {
			continue
		}
		reason := u.Reason
		if reason == "" {
			reason = "your own rule for " + strings.Join(append([]string{u.Command}, u.Args...), " ")
		}
		c.find(yours, u.Action, reason)
	}
}

// report notes that a built-in rule fits c, unless the settings allow it.
func (c *command) report(rule string) {
	action, reason := c.sh.ctx.action(rule, c)
	if c.sh.remote && action == Block {
		action = Ask
	}
	if action != Allow {
		c.find(rule, action, reason)
	}
}

func (c *command) find(rule string, action Action, reason string) {
	where := c.sh.printed(c.stmt)
	if where == "" {
		where = c.normal()
	}
	text, fixed := c.normal(), c.fixed()
	if reads := c.sh.upstream; reads != "" {
		where, text = reads+where, reads+text
	}
	if c.sh.remote {
		text = "ssh: " + text
	}
	c.sh.add(Finding{Rule: rule, Action: action, Reason: reason, Where: where, Command: shortenTo(text), Dir: c.sh.cwd, Fixed: fixed && len(text) <= maxValue})
}

func shortenTo(s string) string {
	if len(s) > maxValue {
		return s[:maxValue]
	}
	return s
}

// normal returns the command as bash would run it, quoted in one way.
func (c *command) normal() string {
	var words []string
	for _, f := range c.fields {
		text := f.text
		if !known(text) && f.word != nil && !varies(f.word) {
			text = c.sh.printed(f.word)
		} else if q, err := syntax.Quote(text, syntax.LangBash); err == nil {
			text = q
		}
		words = append(words, text)
	}
	for _, w := range c.writes {
		words = append(words, ">", w)
	}
	for _, r := range c.reads {
		words = append(words, "<", r)
	}
	return strings.Join(words, " ")
}

// fixed reports whether normal, and what feeds the command, says all.
func (c *command) fixed() bool {
	if c.sh.unfixed || c.sh.cwd == unknown {
		return false
	}
	for _, f := range c.fields {
		if !known(f.text) && (f.word == nil || varies(f.word)) {
			return false
		}
	}
	for _, p := range append(slices.Clip(c.writes), c.reads...) {
		if !known(p) {
			return false
		}
	}
	return true
}

// report notes a finding of the walk.
func (sh *shell) report(rule, where, command string, fixed bool) {
	action, reason := sh.ctx.action(rule, nil)
	if sh.remote && action == Block {
		action = Ask
	}
	if command == "" {
		command = where
	}
	if action != Allow {
		sh.add(Finding{Rule: rule, Action: action, Reason: reason, Where: where, Command: command, Dir: sh.cwd, Fixed: fixed})
	}
}
