package policy

import (
	"regexp"
	"slices"
	"strings"
)

// deletes returns a matcher for recursive deletion that reaches as far as r.
func deletes(r reach) func(*command) bool {
	return func(c *command) bool {
		c.look()
		return slices.Contains(c.reaches, r)
	}
}

// deleted returns the absolute paths that a command deletes with all that is below them.
func (c *command) deleted() []string {
	var targets []string
	switch c.name {
	case "rm", "grm", "srm", "trash", "trash-put":
		if c.has("-r", "-R", "--recursive") {
			targets = operands(c.args, "")
		}
	case "find":
		if slices.Contains(c.args, "-delete") {
			// A test spares part of it, which may be little.
			for _, start := range findStarts(c) {
				dir := strings.TrimSuffix(start, "/"+nonEmpty)
				if dir == "" {
					dir = "/"
				}
				if !c.hasTest() {
					targets = append(targets, dir)
				} else {
					targets = append(targets, start)
				}
			}
		}
	case "mv":
		args := operands(c.args, "-t -S --target-directory")
		if len(args) > 1 {
			targets = args[:len(args)-1]
			// Moving a thing from one free place to another deletes nothing; nor does moving something out of a home.
			targets = slices.DeleteFunc(slices.Clone(targets), func(t string) bool {
				got := c.sh.ctx.reachOf(c.sh.abs(t), c.sh.remote)
				return got != ofSystem && got != ofHome
			})
		}
	case "rsync":
		args := operands(c.args, "-e --exclude --include --filter -f --rsh")
		if len(args) > 1 && slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--delete") }) {
			if target := args[len(args)-1]; !strings.Contains(target, ":") && !slices.Contains(c.args, "-n") && !slices.Contains(c.args, "--dry-run") {
				targets = []string{target}
			}
		}
	case "git":
		if sub, rest := c.git(); sub == "clean" && slices.ContainsFunc(rest, isForce) {
			targets = []string{c.gitDir()}
		}
	case "shred":
		for _, t := range operands(c.args, "-n -s") {
			if strings.ContainsAny(t, "*?") {
				targets = append(targets, t)
			}
		}
	case "Remove-Item", "rimraf":
		targets = operands(c.args, "")
	}
	paths := make([]string, 0, len(targets))
	for _, t := range targets {
		paths = append(paths, c.sh.abs(t))
	}
	return paths
}

// hasTest reports whether find looks for something in particular.
func (c *command) hasTest() bool {
	for _, a := range c.args {
		switch a {
		case "-name", "-iname", "-path", "-ipath", "-regex", "-iregex", "-mtime", "-mmin", "-atime", "-ctime", "-newer", "-size", "-empty",
			"-user", "-group", "-perm", "-xtype", "-lname", "-nouser", "-inum":
			return true
		}
	}
	return false
}

func isForce(a string) bool {
	return a == "--force" || strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.Contains(a, "f")
}

// unknownCommand matches `$X -rf /`.
func unknownCommand(c *command) bool {
	if known(c.name) || c.name == "" || !c.has("-r", "-R", "--recursive") {
		return false
	}
	for _, t := range operands(c.args, "") {
		if got := c.sh.ctx.reachOf(c.sh.abs(t), c.sh.remote); got == ofSystem || got == ofHome {
			return true
		}
	}
	return false
}

// has reports whether one of the options is there; short ones also in a cluster.
func (c *command) has(options ...string) bool {
	for _, a := range c.args {
		if a == "--" {
			return false
		}
		for _, o := range options {
			if a == o || strings.HasPrefix(o, "--") && (strings.HasPrefix(a, o+"=") || len(a) > 4 && strings.HasPrefix(o, a)) {
				return true
			}
			if len(o) == 2 && len(a) > 2 && a[0] == '-' && a[1] != '-' && strings.IndexByte(a[1:], o[1]) >= 0 {
				return true
			}
		}
	}
	return false
}

// writes returns a matcher for commands that write to a path of a rule.
func writes(rule string) func(*command) bool {
	return func(c *command) bool {
		c.look()
		return slices.Contains(c.wrote, rule)
	}
}

// reads returns a matcher for commands that read the content of a path of a rule.
func reads(rule string) func(*command) bool {
	return func(c *command) bool {
		c.look()
		return slices.Contains(c.readK, rule)
	}
}

// writePaths returns the absolute paths that a command writes, replaces or deletes.
func (c *command) writePaths() []string {
	paths := slices.Clip(c.writes)
	add := func(targets ...string) {
		for _, t := range targets {
			if t != "" && t != "-" && !strings.Contains(t, ":") {
				paths = append(paths, c.sh.abs(t))
			}
		}
	}
	args := func(valued string) []string { return operands(c.args, valued) }
	switch c.name {
	case "tee", "rm", "unlink", "touch", "sponge", "ed", "rmdir", "mkfifo", "trash":
		add(args("")...)
	case "shred", "truncate", "fallocate":
		add(args("-n -s -l -r -o --size --reference")...)
	case "dd":
		for _, a := range c.args {
			if file, ok := strings.CutPrefix(a, "of="); ok {
				add(file)
			}
		}
	case "cp", "mv", "install", "ln", "rsync", "scp", "ditto":
		list := args("-t -m -o -g -S -e -i -P -l -c --target-directory --mode --owner --group --exclude --suffix")
		if dir, ok := after(c.args, "-t", "--target-directory"); ok {
			add(dir)
			if c.name == "mv" {
				add(list...)
			}
		} else if len(list) > 1 {
			add(intoRoot(list[len(list)-1]))
			if c.name == "mv" {
				add(list[:len(list)-1]...)
			}
		}
	case "sed", "gsed", "perl", "ruby":
		if c.inPlace() {
			list := args("-e -f --expression --file -E")
			if c.name == "sed" && !c.has("-e", "-f", "--expression", "--file") && len(list) > 0 {
				list = list[1:]
			}
			add(list...)
		}
	case "curl", "sort", "gcc", "cc", "g++", "openssl", "gpg", "age", "jq", "ssh-keyscan", "pandoc":
		if file, ok := after(c.args, "-o", "--output", "-out"); ok {
			add(file)
		}
	case "wget":
		if file, ok := after(c.args, "-O", "--output-document", "-P"); ok {
			add(file)
		}
	case "tar", "bsdtar":
		if c.has("-x", "--extract", "--get") || len(c.args) > 0 && strings.Contains(c.args[0], "x") && !strings.HasPrefix(c.args[0], "-") {
			if dir, ok := after(c.args, "-C", "--directory"); ok {
				add(intoRoot(dir))
			}
		}
	case "unzip":
		if dir, ok := after(c.args, "-d"); ok {
			add(intoRoot(dir))
		}
	case "chattr", "patch":
		add(args("-i -p")...)
	case "find":
		if slices.Contains(c.args, "-delete") {
			for _, s := range findStarts(c) {
				add(s)
			}
		}
		for i, a := range c.args {
			if (a == "-fprint" || a == "-fprintf" || a == "-fls") && i+1 < len(c.args) {
				add(c.args[i+1])
			}
		}
	case "git":
		if sub, rest := c.git(); sub == "config" && slices.Contains(rest, "--file") {
			if file, ok := after(rest, "--file"); ok {
				add(file)
			}
		}
	}
	return paths
}

// intoRoot makes of / what is in it: a tree that is copied there reaches the system's directories.
func intoRoot(dir string) string {
	if strings.Trim(dir, "/") == "" && dir != "" {
		return "/etc"
	}
	return dir
}

func (c *command) inPlace() bool {
	for _, a := range c.args {
		if strings.HasPrefix(a, "--in-place") {
			return true
		}
		if len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.Trim(a[1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.~0123456789") == "" {
			head, _, _ := strings.Cut(a[1:], "e")
			if strings.Contains(head, "i") {
				return true
			}
		}
	}
	return false
}

var readers = map[string]string{
	"cat": "", "tac": "", "head": "-n -c", "tail": "-n -c", "less": "", "more": "", "most": "", "bat": "", "batcat": "", "nl": "", "od": "-t -A -N -j",
	"xxd": "-l -s -c", "hexdump": "-n -s -C", "strings": "-n", "base64": "-w", "base32": "-w", "sort": "-k -t -o", "uniq": "", "cut": "-d -f -c",
	"cp": "-t", "mv": "-t", "rsync": "-e --exclude", "scp": "-i -P -l -c -o -F -J", "zip": "-x", "tar": "-C -f -X --exclude", "gzip": "", "bzip2": "", "xz": "", "zstd": "",
	"paste": "-d", "rev": "", "fold": "-w", "column": "-t", "vim": "", "vi": "", "nvim": "", "nano": "", "emacs": "", "code": "", "diff": "", "cmp": "",
	"openssl": "-out", "gpg": "-o -r", "age": "-o -r", "install": "-m -o -g", "ln": "", "dd": "", "view": "", "source": "", ".": "", "7z": "", "split": "-l -b",
	"pbcopy": "", "xclip": "", "mail": "-s -a", "mutt": "-s -a", "sendmail": "", "envsubst": "", "dotenv": "", "zcat": "",
	"gzcat": "", "tee": "-",
}

// patternFirst are readers whose first operand is a pattern or a program.
var patternFirst = map[string]string{
	"grep": "-e -f -A -B -C -m --include --exclude", "egrep": "-e -f -A -B -C -m", "fgrep": "-e -f -A -B -C -m", "rg": "-e -f -A -B -C -m -g -t",
	"awk": "-F -v -f", "gawk": "-F -v -f", "mawk": "-F -v", "sed": "-e -f", "jq": "", "yq": "",
}

// readFiles returns the absolute paths whose content a command reads.
func (sh *shell) readFiles(c *command) []string {
	var list []string
	switch valued, ok := readers[c.name]; {
	case c.name == "tee":
	case c.name == "dd":
		for _, a := range c.args {
			if file, ok := strings.CutPrefix(a, "if="); ok {
				list = append(list, file)
			}
		}
	case ok:
		list = operands(c.args, valued)
		if n := len(list); n > 1 && slices.Contains([]string{"cp", "mv", "rsync", "scp", "install", "ln"}, c.name) {
			list = list[:n-1]
		}
	default:
		valued, ok := patternFirst[c.name]
		if !ok {
			list = uploads(c)
			break
		}
		list = operands(c.args, valued)
		if !c.has("-e", "-f") && len(list) > 0 {
			list = list[1:]
		}
	}
	paths := make([]string, 0, len(list))
	for _, file := range list {
		if file != "-" && file != "" {
			paths = append(paths, sh.abs(file))
		}
	}
	return paths
}

// uploads returns the files that a network client sends.
func uploads(c *command) []string {
	var list []string
	switch c.name {
	case "curl":
		for i, a := range c.args {
			value := ""
			switch {
			case a == "-T" || a == "--upload-file":
				if i+1 < len(c.args) {
					list = append(list, c.args[i+1])
				}
				continue
			case a == "-d" || a == "-F" || a == "--form" || strings.HasPrefix(a, "--data") && !strings.Contains(a, "=") || a == "-H" || a == "--json":
				if i+1 < len(c.args) {
					value = c.args[i+1]
				}
			case strings.HasPrefix(a, "-d@"), strings.HasPrefix(a, "-F"), strings.HasPrefix(a, "--data"), strings.HasPrefix(a, "--form="):
				value = a
			}
			if _, file, ok := strings.Cut(value, "@"); ok && !strings.Contains(value, " ") {
				file, _, _ = strings.Cut(file, ";")
				list = append(list, file)
			} else if _, file, ok := strings.Cut(value, "=<"); ok {
				list = append(list, file)
			}
		}
	case "wget":
		for _, option := range []string{"--post-file", "--body-file"} {
			if file, ok := after(c.args, option); ok {
				list = append(list, file)
			}
		}
	case "http", "https", "xh":
		for _, a := range c.args {
			if _, file, ok := strings.Cut(a, "@"); ok && !strings.Contains(a, "://") {
				list = append(list, file)
			}
		}
	case "sftp", "ftp", "lftp", "rclone", "aws", "gsutil", "mc", "s3cmd", "gh", "croc", "wormhole", "magic-wormhole", "transfer":
		for _, a := range c.args {
			if !strings.Contains(a, "://") && (strings.Contains(a, "/") || strings.HasPrefix(a, ".")) {
				list = append(list, a)
			}
		}
	}
	return list
}

// sendsSecrets matches secrets on their way to another machine.
func sendsSecrets(c *command) bool {
	sends := false
	switch c.name {
	case "curl", "wget", "http", "https", "xh", "nc", "ncat", "netcat", "socat", "telnet", "sftp", "ftp", "lftp", "mail", "sendmail", "mutt",
		"croc", "wormhole", "openssl", "dig", "nslookup", "host", "ping":
		sends = c.name != "openssl" || slices.Contains(c.args, "s_client")
	case "aws", "gsutil", "rclone", "mc", "s3cmd":
		sends = slices.ContainsFunc(c.args, func(a string) bool { return a == "cp" || a == "mv" || a == "sync" || a == "copy" || a == "put" })
	case "gh":
		sends = len(c.args) > 0 && c.args[0] == "gist"
	case "scp", "rsync":
		list := operands(c.args, "-i -P -l -c -o -F -J -e")
		sends = len(list) > 0 && strings.Contains(list[len(list)-1], ":")
	case "ssh":
		sends = true
	}
	for _, w := range c.writes {
		sends = sends || strings.HasPrefix(w, "/dev/tcp/") || strings.HasPrefix(w, "/dev/udp/")
	}
	if !sends {
		return false
	}
	if strings.Contains(c.in, secret) && c.name != "ping" || slices.ContainsFunc(c.args, func(a string) bool { return strings.Contains(a, secret) }) {
		return true
	}
	for _, f := range append(c.sh.readFiles(c), uploadsAbs(c)...) {
		if holdsSecrets(c.sh.ctx, f) {
			return true
		}
	}
	if len(c.writes) > 0 { // cat .env > /dev/tcp/...
		return strings.Contains(c.in, secret)
	}
	return false
}

func uploadsAbs(c *command) []string {
	var list []string
	for _, f := range uploads(c) {
		list = append(list, c.sh.abs(f))
	}
	return list
}

func wipesLogs(c *command) bool {
	switch c.name {
	case "history":
		return c.has("-c")
	case "journalctl":
		return slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--vacuum") })
	case "dmesg":
		return c.has("-C", "-c", "--clear")
	case "unset":
		return slices.Contains(c.args, "HISTFILE")
	}
	return writes("wipe-logs")(c) && !c.onlyAppends()
}

// onlyAppends reports whether what a command writes is added to files.
func (c *command) onlyAppends() bool {
	return c.appends || c.name == "tee" && c.has("-a", "--append") || c.name == "touch" || c.name == "ln"
}

func changesKernel(c *command) bool {
	switch c.name {
	case "sysctl":
		return c.has("-w", "--write", "-p", "--system") || slices.ContainsFunc(operands(c.args, ""), func(a string) bool { return strings.Contains(a, "=") })
	case "insmod", "rmmod", "kexec":
		return true
	case "modprobe":
		return c.has("-r", "--remove")
	}
	return writes("kernel-setting")(c)
}

var device = regexp.MustCompile(`^/dev/`)

// formatsDisk matches programs that lay out a disk anew; a file that holds an image is no disk.
func formatsDisk(c *command) bool {
	onDevice := slices.ContainsFunc(c.args, func(a string) bool { return device.MatchString(a) || !known(a) && !strings.Contains(a, ".") })
	switch c.name {
	case "wipefs":
		return onDevice && c.has("-a", "-o", "--all", "--offset")
	case "mkswap", "blkdiscard", "mke2fs", "mkdosfs", "badblocks", "hdparm", "nvme", "sgdisk", "sfdisk", "cfdisk", "gdisk":
		switch c.name {
		case "badblocks":
			return onDevice && c.has("-w")
		case "hdparm":
			return onDevice && slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--security") || a == "--trim-sector-ranges" })
		case "nvme":
			return len(c.args) > 0 && (c.args[0] == "format" || c.args[0] == "sanitize")
		case "sgdisk":
			return onDevice && !c.has("-p", "--print", "-i", "--info")
		case "sfdisk":
			return onDevice && !c.has("-l", "-d", "--list", "--dump")
		}
		return onDevice
	case "fdisk":
		return onDevice && !c.has("-l", "--list")
	case "parted":
		return onDevice && !slices.Contains(c.args, "print") && !c.has("-l", "--list")
	case "cryptsetup":
		return slices.ContainsFunc(c.args, func(a string) bool { return a == "luksFormat" || a == "luksErase" || a == "erase" }) && onDevice
	case "lvremove", "vgremove", "pvremove":
		return true
	case "zpool", "zfs":
		return len(c.args) > 0 && c.args[0] == "destroy"
	case "mdadm":
		return slices.ContainsFunc(c.args, func(a string) bool { return a == "--zero-superblock" || a == "--create" || a == "-C" })
	case "diskutil":
		return len(c.args) > 0 && (strings.HasPrefix(strings.ToLower(c.args[0]), "erase") || strings.HasPrefix(c.args[0], "partition"))
	case "newfs", "format.com":
		return true
	}
	return strings.HasPrefix(c.name, "mkfs") && onDevice
}
