package policy

import (
	"slices"
	"strings"
)

// named matches commands by name alone.
func named(names ...string) func(*command) bool {
	return func(c *command) bool {
		return slices.Contains(names, c.name) && !c.has("--help", "-h", "--version", "--status", "-S")
	}
}

// permits matches recursive changes of rights or owners that reach as far as r.
func permits(c *command, r reach) bool {
	switch c.name {
	case "chmod", "chown", "chgrp", "setfacl", "chattr", "chcon":
	default:
		return false
	}
	if !c.has("-R", "--recursive") && c.name != "chmod" {
		return false
	}
	list := operands(c.args, "-m -x --reference")
	if c.name != "setfacl" && len(list) > 0 {
		list = list[1:]
	}
	for _, t := range list {
		p := c.sh.abs(t)
		if c.sh.ctx.reachOf(p, c.sh.remote) != r {
			continue
		}
		if c.has("-R", "--recursive") || opens(c) && (r == ofSystem || r == ofHome) {
			return true
		}
	}
	return false
}

// opens reports whether a command lets everybody write, or a mode takes everything away from its owner.
func opens(c *command) bool {
	if c.name != "chmod" {
		return false
	}
	for _, a := range c.args {
		switch a {
		case "777", "0777", "a+rwx", "a+w", "o+w", "ugo+rwx", "ugo+w", "a=rwx", "+w", "666", "0666", "000", "0", "a-rwx", "-rwx", "a-x", "o+rwx", "go+w", "1777":
			return true
		}
	}
	return false
}

func setsUID(c *command) bool {
	if c.name == "setcap" {
		return !c.has("-r")
	}
	if c.name != "chmod" && c.name != "install" {
		return false
	}
	for _, a := range c.args {
		a = strings.TrimPrefix(strings.TrimPrefix(a, "-m"), "--mode=")
		if len(a) == 4 && strings.Trim(a, "01234567") == "" && (a[0]-'0')&4 != 0 {
			return true
		}
		if who, what, ok := strings.Cut(a, "+"); ok && strings.Trim(who, "ugoa") == "" && who != "g" && strings.Trim(what, "rwxst") == "" && strings.Contains(what, "s") && !strings.HasPrefix(a, "-") {
			return true
		}
	}
	return false
}

func disablesFirewall(c *command) bool {
	switch c.name {
	case "iptables", "ip6tables", "iptables-legacy", "iptables-nft", "ebtables":
		if c.has("-F", "--flush", "-X") {
			return true
		}
		if policy, ok := after(c.args, "-P", "--policy"); ok {
			return policy != "" && slices.Contains(c.args, "ACCEPT")
		}
	case "nft":
		return slices.Contains(c.args, "flush") || slices.Contains(c.args, "delete")
	case "ufw":
		return slices.Contains(c.args, "disable") || slices.Contains(c.args, "reset")
	case "setenforce":
		return len(c.args) > 0 && (c.args[0] == "0" || strings.EqualFold(c.args[0], "permissive"))
	case "pfctl":
		return c.has("-d", "-F")
	case "aa-teardown", "aa-disable", "aa-complain":
		return true
	case "auditctl":
		return c.has("-D") || slices.Contains(c.args, "-e") && slices.Contains(c.args, "0")
	case "csrutil", "spctl":
		return slices.ContainsFunc(c.args, func(a string) bool { return strings.Contains(a, "disable") })
	}
	return c.stops(func(unit string) bool {
		switch unit {
		case "firewalld", "ufw", "iptables", "nftables", "apparmor", "auditd", "fail2ban", "crowdsec", "selinux":
			return true
		}
		return false
	})
}

// stops reports whether a command stops a service that f knows.
func (c *command) stops(f func(unit string) bool) bool {
	var verb string
	var units []string
	args := operands(c.args, "-H -M -n -t --host --machine")
	switch {
	case c.name == "systemctl" && len(args) > 1:
		verb, units = args[0], args[1:]
	case c.name == "service" && len(args) > 1, c.name == "rc-service" && len(args) > 1:
		verb, units = args[1], args[:1]
	case c.name == "launchctl" && len(args) > 1:
		verb, units = args[0], args[1:]
	case len(c.fields) > 0 && strings.HasPrefix(c.fields[0].text, "/etc/init.d/") && len(args) > 0:
		verb, units = args[0], []string{c.name}
	case c.name == "snap" && len(args) > 1:
		verb, units = args[0], args[1:]
	default:
		return false
	}
	switch verb {
	case "stop", "disable", "mask", "kill", "isolate", "unload", "bootout", "remove":
	default:
		return false
	}
	return slices.ContainsFunc(units, func(u string) bool {
		for _, suffix := range []string{".service", ".socket", ".target", ".timer"} {
			u = strings.TrimSuffix(u, suffix)
		}
		return f(u)
	})
}

func stopsService(c *command) bool {
	if c.name == "ip" && len(c.args) > 2 && c.args[0] == "link" && slices.Contains(c.args, "down") || c.name == "ifdown" ||
		c.name == "nmcli" && slices.Contains(c.args, "off") || c.name == "ifconfig" && slices.Contains(c.args, "down") {
		return true
	}
	return c.stops(func(u string) bool {
		switch u {
		case "ssh", "sshd", "network", "networking", "NetworkManager", "dbus", "docker", "containerd", "cron", "crond", "rsyslog", "syslog", "getty",
			"multi-user", "graphical", "rescue", "emergency", "default", "basic", "sysinit", "dhcpcd", "wpa_supplicant", "polkit", "chronyd", "lightdm", "gdm", "kubelet", "tailscaled":
			return true
		}
		return strings.HasPrefix(u, "systemd-") || strings.Contains(u, "*") || strings.HasPrefix(u, "wg-quick") || strings.HasPrefix(u, "user@")
	})
}

func power(c *command) bool {
	switch c.name {
	case "shutdown":
		return !c.has("-c", "--help") && !slices.Contains(c.args, "--show")
	case "reboot", "halt", "poweroff":
		return !c.has("--help", "--version", "-w")
	case "init", "telinit":
		return len(c.args) > 0 && slices.Contains([]string{"0", "1", "6", "s", "S"}, c.args[0])
	case "systemctl":
		args := operands(c.args, "-H -M")
		if len(args) == 0 {
			return false
		}
		switch args[0] {
		case "reboot", "poweroff", "halt", "kexec", "suspend", "hibernate", "rescue", "emergency", "soft-reboot", "exit":
			return true
		case "start", "isolate":
			return slices.ContainsFunc(args[1:], func(u string) bool {
				return u == "reboot.target" || u == "poweroff.target" || u == "halt.target" || u == "rescue.target"
			})
		}
	case "loginctl":
		return slices.Contains(c.args, "reboot") || slices.Contains(c.args, "poweroff")
	case "rtcwake", "pm-suspend", "pm-hibernate":
		return true
	}
	return writes("power")(c)
}

// killsAll matches the end of everything, or of what must not end.
func killsAll(c *command) bool {
	switch c.name {
	case "kill":
		pids := c.args
		if len(pids) > 1 && (pids[0] == "-s" || pids[0] == "-n") {
			pids = pids[min(2, len(pids)):]
		} else if len(pids) > 1 && strings.HasPrefix(pids[0], "-") && pids[0] != "--" {
			pids = pids[1:]
		}
		return slices.ContainsFunc(pids, func(p string) bool { return p == "1" || p == "-1" }) &&
			!slices.ContainsFunc(c.args, func(a string) bool { return a == "-l" || a == "-L" || a == "-0" })
	case "killall5":
		return true
	case "pkill", "killall", "skill", "slay":
		if _, ok := after(c.args, "-u", "-U", "--user", "--euid"); ok && len(operands(c.args, "-u -U --user --euid -s --signal")) == 0 {
			return true
		}
		return slices.ContainsFunc(operands(c.args, "-u -U -s -t -P -g --signal --user"), func(n string) bool {
			switch strings.Trim(n, "^$") {
			case "systemd", "init", "sshd", ".", ".*", "dbus-daemon", "launchd", "dockerd", "containerd", "systemd-logind", "NetworkManager":
				return true
			}
			return false
		})
	}
	return false
}

func killsElsewhere(c *command) bool {
	own := func(n string) bool {
		n = strings.ToLower(strings.Trim(n, "^$[]"))
		return strings.Contains(n, "elsewhere") || n == "hermes" || strings.HasPrefix(n, "hermes ") || strings.HasPrefix(n, "hermes-")
	}
	switch c.name {
	case "pkill", "killall":
		return slices.ContainsFunc(operands(c.args, "-u -s -t -P -g --signal"), own)
	case "kill":
		// kill $(pgrep elsewhere): the words are unknown, their source is not.
		return slices.ContainsFunc(c.fields, func(f field) bool {
			if f.word == nil || known(f.text) {
				return false
			}
			src := c.sh.printed(f.word)
			return (strings.Contains(src, "pgrep") || strings.Contains(src, "pidof") || strings.Contains(src, "ps ")) && (strings.Contains(src, "elsewhere") || strings.Contains(src, "hermes"))
		}) || strings.Contains(c.sh.upstream, "pgrep") && (strings.Contains(c.sh.upstream, "elsewhere") || strings.Contains(c.sh.upstream, "hermes"))
	case "systemctl", "service", "launchctl":
		return c.stops(func(u string) bool { return own(u) })
	}
	return false
}

// forkBomb matches relatives of the bomb that need no function.
func forkBomb(c *command) bool {
	if c.stmt == nil || !c.stmt.Background && !strings.Contains(c.sh.upstream, "$0") {
		return false
	}
	if len(c.fields) == 1 && c.fields[0].word != nil {
		return c.sh.printed(c.fields[0].word) == "$0" || c.sh.printed(c.fields[0].word) == `"$0"`
	}
	return false
}

func setsCrontab(c *command) bool {
	return c.name == "crontab" && !c.has("-l", "-r") && (len(operands(c.args, "-u")) > 0 || slices.Contains(c.args, "-")) ||
		c.name == "update-rc.d" || c.name == "launchctl" && len(c.args) > 0 && (c.args[0] == "load" || c.args[0] == "bootstrap")
}

func removesCrontab(c *command) bool { return c.name == "crontab" && c.has("-r") }

func removesEssential(c *command) bool {
	removes := false
	switch c.name {
	default:
		return false
	case "apt", "apt-get", "aptitude", "yum", "dnf", "zypper", "pacman", "apk", "dpkg", "rpm":
		removes = slices.ContainsFunc(c.args, func(a string) bool {
			switch a {
			case "remove", "purge", "autoremove", "erase", "del", "-r", "-P", "--purge", "--remove", "-e", "rm":
				return true
			}
			return strings.HasPrefix(a, "-R") && c.name == "pacman"
		})
	}
	if !removes {
		return slices.Contains(c.args, "--allow-remove-essential") || slices.Contains(c.args, "--force-remove-essential")
	}
	return c.has("--allow-remove-essential", "--nodeps", "--force-all") || slices.ContainsFunc(c.args, func(a string) bool {
		switch a {
		case "libc6", "glibc", "systemd", "sudo", "bash", "coreutils", "openssh-server", "apt", "dpkg", "base-files", "util-linux", "init", "libc-bin", "linux-image*", "login", "python3-minimal", "*":
			return true
		}
		return strings.HasPrefix(a, "linux-image-") || a == "linux-image-generic"
	})
}
