package policy

import (
	"path"
	"slices"
	"strings"
)

// kind is what makes a path one that a command should keep away from.
type kind struct {
	read, write string // the rules for it, "" for none
}

var (
	hermesSecret = kind{"read-own-secrets", "write-own-config"}
	ownConfig    = kind{"read-own-config", "write-own-config"}
	ownState     = kind{"read-own-secrets", "write-own-config"}
	credential   = kind{"read-credentials", "write-credentials"}
	publicPart   = kind{"", ""}
	trust        = kind{"", "write-startup"}
	startup      = kind{"", "write-startup"}
	accountFile  = kind{"", "write-accounts"}
	shadow       = kind{"read-credentials", "write-accounts"}
	system       = kind{"", "write-system"}
	logs         = kind{"", "wipe-logs"}
	kernel       = kind{"", "kernel-setting"}
)

// place is a row of the table of paths: ~ is any home, $H is HERMES_HOME, a component may be a pattern. What lies below
// a place belongs to it; the first row that fits counts.
type place struct {
	path string
	kind kind
}

var places = []place{
	// What elsewhere and Hermes themselves live on. Results point into output/, so that may be read.
	{"$H/elsewhere/output", kind{"", "write-own-config"}},
	{"$H/elsewhere", ownState},
	{"$H/.env*", hermesSecret},
	{"$H/auth.json", hermesSecret},
	{"$H/mcp-tokens", hermesSecret},
	{"$H/credentials", hermesSecret},
	{"$H/*token*.json", hermesSecret},
	{"$H/config.yaml", ownConfig},
	{"$H/profiles/*/.env*", hermesSecret},
	{"$H/profiles/*/auth.json", hermesSecret},
	{"$H/profiles/*/mcp-tokens", hermesSecret},
	{"$H/profiles/*/config.yaml", ownConfig},

	// Credentials of the user.
	{"~/.ssh/*.pub", publicPart},
	{"~/.ssh/known_hosts*", publicPart},
	{"~/.ssh/config*", trust},
	{"~/.ssh/authorized_keys*", kind{"", "write-credentials"}},
	{"~/.ssh", credential},
	{"~/.aws/config", publicPart},
	{"~/.aws", credential},
	{"~/.azure", credential},
	{"~/.config/gcloud", credential},
	{"~/.config/gh/hosts.yml", credential},
	{"~/.config/hub", credential},
	{"~/.config/rclone", credential},
	{"~/.config/op", credential},
	{"~/.gnupg", credential},
	{"~/.password-store", credential},
	{"~/.local/share/keyrings", credential},
	{"~/Library/Keychains", credential},
	{"~/.kube/cache", publicPart},
	{"~/.kube", credential},
	{"~/.docker/config.json", credential},
	{"~/.netrc", credential},
	{"~/.git-credentials", credential},
	{"~/.pypirc", credential},
	{"~/.npmrc", credential},
	{"~/.cargo/credentials*", credential},
	{"~/.gem/credentials", credential},
	{"~/.pgpass", credential},
	{"~/.my.cnf", credential},
	{"~/.vault-token", credential},
	{"~/.terraform.d/credentials.tfrc.json", credential},
	{"~/.modal.toml", credential},
	{"~/.claude/.credentials.json", credential},
	{"~/.codex/auth.json", credential},
	{"~/.mozilla/firefox", credential},
	{"~/.config/google-chrome", credential},
	{"~/.config/chromium", credential},
	{"~/Library/Application Support/Google/Chrome", credential},
	{"~/.electrum/wallets", credential},
	{"~/.bitcoin/wallet.dat", credential},
	{"/etc/ssh/ssh_host_*_key", credential},
	{"/etc/ssl/private", credential},
	{"/etc/kubernetes/*.conf", credential},
	{"/etc/hermes", hermesSecret},

	// What runs by itself at the next login or start.
	{"~/.bashrc", startup},
	{"~/.bash_profile", startup},
	{"~/.bash_login", startup},
	{"~/.bash_logout", startup},
	{"~/.bash_aliases", startup},
	{"~/.profile", startup},
	{"~/.zshrc", startup},
	{"~/.zshenv", startup},
	{"~/.zprofile", startup},
	{"~/.zlogin", startup},
	{"~/.config/fish", startup},
	{"~/.config/autostart", startup},
	{"~/.config/systemd/user", startup},
	{"~/.config/environment.d", startup},
	{"~/.local/share/systemd/user", startup},
	{"~/Library/LaunchAgents", startup},
	{"~/.xprofile", startup},
	{"~/.xinitrc", startup},
	{"~/.pam_environment", startup},
	{"~/.bash_history", logs},
	{"~/.zsh_history", logs},

	// The machine.
	{"/etc/passwd*", accountFile},
	{"/etc/group*", accountFile},
	{"/etc/shadow*", shadow},
	{"/etc/gshadow*", shadow},
	{"/etc/sudoers", shadow},
	{"/etc/sudoers.d", shadow},
	{"/etc/doas.conf", accountFile},
	{"/etc/pam.d", accountFile},
	{"/etc/ld.so.preload", accountFile},
	{"/var/log", logs},
	{"/run/log", logs},
	{"/proc/sysrq-trigger", kind{"", "power"}},
	{"/proc/sys", kernel},
	{"/proc/kcore", kind{"read-credentials", "write-device"}},
	{"/proc/*/mem", kind{"read-credentials", "write-device"}},
	{"/proc/*/environ", kind{"read-credentials", ""}},
	{"/sys", kernel},
	{"/usr/local", publicPart},
	{"/usr/src", publicPart},
	{"/etc/hosts", system},
	{"/etc", system},
	{"/usr", system},
	{"/bin", system},
	{"/sbin", system},
	{"/lib*", system},
	{"/boot", system},
	{"/efi", system},
	{"/System", system},
	{"/Library", system},
	{"/var/spool/cron", startup},
	{"/var/lib/dpkg", system},
	{"/var/lib/rpm", system},
	{"/var/lib/docker", system},
	{"/var/lib/apt/lists", publicPart},
}

// PathRule says which rules fit reading and writing a path, for the documentation; "" is none. ~ is any home, $H is
// HERMES_HOME.
type PathRule struct{ Path, Read, Write string }

// Paths returns the table of paths, in which the first row that fits a path counts.
func Paths() []PathRule {
	list := make([]PathRule, 0, len(places))
	for _, p := range places {
		list = append(list, PathRule{p.path, p.kind.read, p.kind.write})
	}
	return list
}

// devices may be written to; everything else below /dev may not.
var harmlessDevices = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/tty*", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/fd",
	"/dev/random", "/dev/urandom", "/dev/shm", "/dev/pts", "/dev/tcp", "/dev/udp", "/dev/ptmx", "/dev/console", "/dev/kvm",
	"/dev/nvidia*", "/dev/dri", "/dev/fuse", "/dev/log", "/dev/net", "/dev/video*", "/dev/snd", "/dev/ttyUSB*", "/dev/ttyACM*",
	"/dev/mqueue", "/dev/hugepages",
}

// kindOf returns what a clean absolute path is. Marks in it match nothing but patterns.
func (c Context) kindOf(p string) (kind, bool) {
	for _, b := range c.Blocked {
		if within(p, path.Clean(b)) {
			return kind{"blocked-path", "blocked-path"}, true
		}
	}
	for _, g := range c.Given {
		if within(p, path.Clean(g)) {
			return kind{"", "write-credentials"}, true
		}
	}
	if within(p, "/dev") && p != "/dev" {
		for _, d := range harmlessDevices {
			if below(p, d) {
				return kind{}, false
			}
		}
		return kind{"", "write-device"}, true
	}
	for _, pl := range places {
		if c.matches(p, pl.path) {
			return pl.kind, true
		}
	}
	return kind{}, false
}

// matches reports whether p is a row's place or below it.
func (c Context) matches(p, row string) bool {
	switch {
	case strings.HasPrefix(row, "$H"):
		h := c.hermesHome()
		return h != "" && below(p, h+row[2:]) || below(p, "/root/.hermes"+row[2:])
	case strings.HasPrefix(row, "~"):
		for _, home := range []string{c.Home, "/root", "/home/*", "/Users/*"} {
			if home != "" && below(p, strings.TrimRight(home, "/")+row[1:]) {
				return true
			}
		}
		return false
	}
	return below(p, row)
}

// patterns are all that matches compares with a row.
func (c Context) patterns(row string) []string {
	switch {
	case strings.HasPrefix(row, "$H"):
		if h := c.hermesHome(); h != "" {
			return []string{h + row[2:], "/root/.hermes" + row[2:]}
		}
		return []string{"/root/.hermes" + row[2:]}
	case strings.HasPrefix(row, "~"):
		list := []string{"/root" + row[1:], "/home/*" + row[1:], "/Users/*" + row[1:]}
		if home := strings.TrimRight(c.Home, "/"); home != "" {
			list = append(list, home+row[1:])
		}
		return list
	}
	return []string{row}
}

// below reports whether p is matched by pattern, component by component, or lies below what is.
func below(p, pattern string) bool {
	for pattern != "" {
		want, restWant, _ := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
		if p == "" {
			return false
		}
		have, restHave, more := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		if want != have {
			if ok, err := path.Match(want, have); err != nil || !ok {
				return false
			}
		}
		pattern, p = restWant, restHave
		if !more {
			p = ""
		}
	}
	return true
}

// holdsSecrets reports whether a file's content should not leave the machine: credentials, and .env files anywhere.
func holdsSecrets(ctx Context, p string) bool {
	if k, ok := ctx.kindOf(p); ok && (k.read == "read-credentials" || k.read == "read-own-secrets" || k.read == "read-own-config") {
		return true
	}
	base := path.Base(p)
	switch {
	case base == ".env.example", base == ".env.sample", base == ".env.template", strings.HasSuffix(base, ".pub"):
		return false
	case base == ".env", strings.HasPrefix(base, ".env."), base == ".netrc", base == ".git-credentials", base == ".pgpass",
		base == "credentials.json", base == "id_rsa", base == "id_ed25519", base == "id_ecdsa", base == "secrets.yml", base == "secrets.yaml",
		base == "service-account.json", strings.HasSuffix(base, ".pem") && !strings.Contains(base, "cert") && !strings.Contains(base, "ca"):
		return true
	}
	return false
}

// CheckPath says whether a file tool may read, or write, the file at p: an absolute path, or one relative to ctx.Cwd. The
// path is taken as it is written; a caller that follows symbolic links asks for what they lead to as well.
func CheckPath(p string, write bool, ctx Context) Decision {
	return CheckPaths([]string{p}, false, write, ctx)
}

// CheckPaths is CheckPath for all paths that one transfer touches, in one decision. more says that there are others, which could not
// be looked at.
func CheckPaths(paths []string, more, write bool, ctx Context) Decision {
	c := &checker{ctx: ctx, steps: maxSteps, seen: map[Finding]bool{}, more: more}
	sh := newShell(c)
	verb := "read "
	if write {
		verb = "write "
	}
	type one struct{ path, text string }
	all := make([]one, 0, len(paths))
	for _, p := range paths {
		text := p
		if p == "~" || strings.HasPrefix(p, "~/") {
			p = sh.home() + p[1:]
		}
		all = append(all, one{sh.abs(p), text})
	}
	slices.SortStableFunc(all, func(a, b one) int { return strings.Compare(a.path, b.path) })
	all = slices.CompactFunc(all, func(a, b one) bool { return a.path == b.path })
	for _, p := range all {
		rule := ctx.ruleOf(p.path, write)
		if action, reason := ctx.action(rule, nil); action != Allow {
			c.add(Finding{Rule: rule, Action: action, Reason: reason, Where: verb + p.text, Command: verb + p.path, Fixed: true})
		}
	}
	if action, _ := ctx.action("too-complex", nil); c.more && action != Allow && len(all) > 0 {
		c.add(Finding{
			Rule: "too-complex", Action: action, Reason: "there are too many files to look at each of them",
			Where: verb + all[0].text + " and more", Command: verb + all[0].path + " and more",
		})
	}
	return ctx.decide(c.found)
}

// ruleOf is the rule for reading, or writing, a clean absolute path; "" is none.
func (c Context) ruleOf(p string, write bool) string {
	k, _ := c.kindOf(p)
	if write {
		return k.write
	}
	return k.read
}

// PathsBelow returns what a rule keeps from being read, or written, below dir, a clean absolute path that is not such a place itself:
// paths, or patterns of them. Without any, CheckPath says of all that is below dir what it says of dir.
func PathsBelow(dir string, write bool, ctx Context) []string {
	var list []string
	add := func(pattern string) {
		p, ok := placeBelow(dir, pattern)
		if !ok || slices.Contains(list, p) {
			return
		}
		if action, _ := ctx.action(ctx.ruleOf(p, write), nil); action != Allow {
			list = append(list, p)
		}
	}
	for _, p := range append(slices.Clip(ctx.Blocked), ctx.Given...) {
		add(path.Clean(p))
	}
	add("/dev/*")
	for _, pl := range places {
		for _, pattern := range ctx.patterns(pl.path) {
			add(pattern)
		}
	}
	return list
}

// placeBelow makes of a pattern what it can match below dir.
func placeBelow(dir, pattern string) (string, bool) {
	rest := strings.TrimPrefix(pattern, "/")
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if part == "" {
			continue
		}
		want, after, more := strings.Cut(rest, "/")
		if ok, err := path.Match(want, part); !more || want != part && (err != nil || !ok) {
			return "", false
		}
		rest = after
	}
	return path.Join(dir, rest), rest != ""
}

// reach is how bad it is to delete a path with all that is below it, or to open it for everybody.
type reach int

const (
	nearby  reach = iota // in the workspace, in temp, in a cache, or not known
	unset                // of an unknown variable only the rest: "$DIR"/*
	outside              // elsewhere
	ofHome               // a home
	ofSystem
)

func isSystemDir(p string) bool {
	switch strings.Count(p, "/") {
	case 1:
		switch p {
		case "/tmp", "/home", "/Users":
			return p != "/tmp"
		case "/", "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root",
			"/run", "/sbin", "/srv", "/sys", "/usr", "/var", "/Applications", "/Library", "/System", "/Volumes", "/private":
			return true
		}
		return strings.ContainsAny(p, "*?[")
	case 2:
		switch path.Dir(p) {
		case "/usr", "/System", "/boot", "/lib", "/Library":
			return p != "/usr/src" && !strings.HasPrefix(p, "/boot/")
		case "/var":
			return p == "/var/lib" || strings.ContainsAny(p, "*?[")
		case "/etc":
			return strings.HasPrefix(path.Base(p), "*")
		}
	case 3:
		return p == "/var/lib/dpkg" || p == "/var/lib/docker" || p == "/var/lib/postgresql" || p == "/var/lib/mysql" || p == "/usr/lib/x86_64-linux-gnu"
	}
	return false
}

func (c Context) isHome(p string) bool {
	if c.Home != "" && p == path.Clean(c.Home) || p == remoteHome {
		return true
	}
	dir := path.Dir(p)
	return p == "/root" || (dir == "/home" || dir == "/Users") && !strings.HasPrefix(path.Base(p), unknown)
}

var caches = []string{
	"~/.cache", "~/.npm", "~/.yarn", "~/.pnpm-store", "~/.gradle", "~/.m2/repository", "~/.cargo/registry", "~/.cargo/git", "~/go/pkg",
	"~/.local/share/Trash", "~/Library/Caches", "~/Library/Developer/Xcode/DerivedData", "/var/lib/apt/lists", "/var/cache", "~/.nuget/packages", "~/.bun",
}

// reachOf judges what a recursive command does with p, an absolute path that may end in a pattern.
func (c Context) reachOf(p string, remote bool) reach {
	if at := strings.IndexAny(p, marks); at == 0 {
		rest := strings.TrimPrefix(p, unknown)
		if rest == p { // never empty
			return nearby
		}
		rest = wholeDir(path.Clean("/" + rest))
		switch {
		case !strings.HasPrefix(strings.TrimPrefix(p, unknown), "/"):
			return nearby
		case rest == "/" || rest == "/usr" || rest == "/etc" || rest == "/home" || rest == "/boot" || rest == "/root" || rest == "/var":
			return unset
		}
		return nearby
	} else if at > 0 {
		// Below a known directory; where the rest may be empty it can be the directory itself.
		dir := path.Clean(p[:strings.LastIndexByte(p[:at], '/')+1])
		if within(p, remoteHome) {
			if w := wholeDir(p); w == remoteHome {
				return ofHome
			}
			return outside
		}
		if c.free(dir) || c.free(path.Join(dir, "x")) {
			return nearby
		}
		return outside
	}
	p = wholeDir(p)
	switch {
	case p == "/" || isSystemDir(p):
		return ofSystem
	case c.isHome(p):
		return ofHome
	case c.free(p):
		return nearby
	}
	return outside
}

// wholeDir returns the directory whose content a pattern at the end of p takes: /x/* and /x/.* are /x.
func wholeDir(p string) string {
	for {
		base := path.Base(p)
		if base == "/" || base == "" || strings.Trim(base, "*.?![]{},") != "" || base == "." {
			return p
		}
		p = path.Dir(p)
	}
}

// free reports whether the command may delete p: in the workspace or temp, or a cache.
func (c Context) free(p string) bool {
	for _, w := range c.Workspace {
		w = path.Clean(w)
		if within(p, w) && !c.tooWide(w) {
			return true
		}
	}
	for _, t := range c.temp() {
		if t = path.Clean(t); within(p, t) && p != t {
			return true
		}
	}
	for _, cache := range caches {
		if c.matches(p, cache) {
			return true
		}
	}
	return false
}

// tooWide reports whether a workspace is so wide that it frees nothing: a home, or a directory above one.
func (c Context) tooWide(w string) bool {
	return w == "/" || isSystemDir(w) && w != "/srv" && w != "/opt" || c.isHome(w) || c.Home != "" && within(path.Clean(c.Home), w)
}
