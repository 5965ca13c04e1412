package policy

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// fetchesCode matches interpreters that fetch their own program; what a shell is fed is found by the walk.
func fetchesCode(c *command) bool {
	switch interpreterName(c.name) {
	case "deno", "bunx":
		return slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "http://") || strings.HasPrefix(a, "https://") })
	}
	return false
}

// runInterpreter follows what python, perl, node and their like are given as a program, as far as commands stand in it.
func (sh *shell) runInterpreter(c *command) {
	name := interpreterName(c.name)
	option := interpreters[name]
	for i, a := range c.args {
		switch {
		case a == "-m" && strings.HasPrefix(name, "python"), a == "--version", a == "-V":
			return
		case option != "" && len(a) > 1 && a[0] == '-' && a[1] != '-' && strings.HasSuffix(a, option[1:]) && i+1 < len(c.args):
			sh.origin(c, c.args[i+1])
			sh.program(c, c.args[i+1])
			return
		case name == "node" && (a == "--eval" || a == "-p" || a == "--print") && i+1 < len(c.args):
			sh.program(c, c.args[i+1])
			return
		case name == "perl" && strings.HasPrefix(a, "-E") && i+1 < len(c.args):
			sh.program(c, c.args[i+1])
			return
		case a == "-":
			sh.origin(c, c.in)
			sh.program(c, c.in)
			return
		case !strings.HasPrefix(a, "-"):
			content := a
			if !strings.Contains(a, fetched) {
				content = sh.content(sh.abs(a))
			}
			sh.origin(c, content)
			sh.program(c, content)
			return
		}
	}
	sh.origin(c, c.in)
	sh.program(c, c.in)
}

var (
	// What starts a shell command: os.system("..."), execSync('...'), `system "..."`, subprocess.run("...", shell=True).
	systemCall = regexp.MustCompile(`(?:os\.system|os\.popen|subprocess\.\w+|execSync|child_process'?"?\)?\.exec|\bexec|\bsystem|shell_exec|passthru|\bqx|getoutput)\s*\(?\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')`)
	// The same with a list: subprocess.run(["rm", "-rf", "/"]).
	listCall = regexp.MustCompile(`(?:subprocess\.\w+|spawnSync|spawn|execvp?|execFileSync)\s*\(\s*(?:"[\w./-]+",\s*|'[\w./-]+',\s*)?\[([^\]]*)\]`)
	// Deletion of a tree.
	treeCall = regexp.MustCompile(`(?:shutil\.rmtree|rmtree|\.rmSync|\.rmdirSync|fs\.rm|rm_rf|FileUtils\.rm_r|remove_dir_all|rimraf(?:\.sync)?)\s*\(?\s*(?:os\.path\.expanduser\(\s*)?(?:"([^"]*)"|'([^']*)')`)
	// A program that fetches and runs.
	fetchCall = regexp.MustCompile(`(?s)\b(?:exec|eval|compile)\s*\(.{0,200}(?:urlopen|requests\.get|urllib|http\.get|fetch\()|(?:urlopen|requests\.get)\(.{0,300}\bexec\s*\(|eval\s*\(?\s*(?:await\s+)?(?:get|fetch)\b`)
	forkCall  = regexp.MustCompile(`fork\s*(?:\(\))?\s*while\s*(?:1|true|fork)|while\s*(?:\(?(?:1|True|true)\)?)\s*:?\s*\{?\s*(?:os\.)?fork\b|loop\s*\{\s*fork|while\s+1\s*:\s*os\.fork`)
	quoted    = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'`)
	openCall  = regexp.MustCompile(`\b(?:open|readFileSync|read_text|writeFileSync|File\.read|File\.write)\s*\(\s*(?:"(/[^"]*)"|'(/[^']*)')(\s*,\s*["'][wax])?`)
)

// program looks for commands in a program that is not bash.
func (sh *shell) program(c *command, text string) {
	if text == "" || !sh.spend(len(text)>>6+1) || len(text) > maxSize {
		return
	}
	inner := sh.fork()
	for _, m := range systemCall.FindAllStringSubmatch(text, 16) {
		inner.runText(c, unescape(m[1]+m[2]), "")
	}
	for _, m := range listCall.FindAllStringSubmatch(text, 16) {
		var args []field
		for _, q := range quoted.FindAllStringSubmatch(m[0], maxFields) {
			args = append(args, field{unescape(q[1] + q[2]), nil})
		}
		if len(args) > 0 {
			inner.exec(c.stmt, args, redirects{})
		}
	}
	for _, m := range treeCall.FindAllStringSubmatch(text, 16) {
		target := m[1] + m[2]
		if target == "~" || strings.HasPrefix(target, "~/") {
			target = sh.home() + target[1:]
		}
		inner.exec(c.stmt, []field{{"rm", nil}, {"-rf", nil}, {target, nil}}, redirects{})
	}
	for _, m := range openCall.FindAllStringSubmatch(text, 16) {
		file, r := path.Clean(m[1]+m[2]), redirects{}
		if m[3] != "" || strings.HasPrefix(m[0], "write") || strings.HasPrefix(m[0], "File.write") {
			r.writes = []string{file}
		} else {
			r.reads = []string{file}
		}
		inner.judge(&command{sh: inner, stmt: c.stmt, redirects: r})
	}
	if fetchCall.MatchString(text) {
		c.report("run-from-network")
	}
	if forkCall.MatchString(text) {
		c.report("fork-bomb")
	}
	if strings.Contains(text, "socket") && (strings.Contains(text, "dup2") || strings.Contains(text, "pty.spawn") || strings.Contains(text, "fsockopen")) &&
		strings.Contains(text, "sh") || strings.Contains(text, "fsockopen") && strings.Contains(text, "exec") {
		c.report("reverse-shell")
	}
}

func unescape(s string) string {
	return strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`).Replace(s)
}

// reverseShell matches a shell whose input and output are another machine.
func reverseShell(c *command) bool {
	if c.name == "exec" && (strings.HasPrefix(c.out, "/dev/tcp/") || strings.HasPrefix(c.out, "/dev/udp/")) {
		return true
	}
	if shells[c.name] {
		for _, p := range append(slices.Clip(c.writes), c.redirects.reads...) {
			if strings.HasPrefix(p, "/dev/tcp/") || strings.HasPrefix(p, "/dev/udp/") {
				return true
			}
		}
	}
	switch c.name {
	case "nc", "ncat", "netcat":
		if program, ok := after(c.args, "-e", "-c", "--exec", "--sh-exec"); ok && program != "" {
			return true
		}
		return strings.Contains(c.in, shellOut)
	case "socat":
		return slices.ContainsFunc(c.args, func(a string) bool {
			upper := strings.ToUpper(a)
			return strings.HasPrefix(upper, "EXEC:") || strings.HasPrefix(upper, "SYSTEM:")
		}) || strings.Contains(c.in, shellOut)
	case "telnet", "openssl":
		return strings.Contains(c.in, shellOut)
	}
	return false
}

// git returns the subcommand and what follows it.
func (c *command) git() (sub string, rest []string) {
	if c.name != "git" {
		return "", nil
	}
	for i := 0; i < len(c.args); i++ {
		switch a := c.args[i]; {
		case a == "-C" || a == "-c" || a == "--git-dir" || a == "--work-tree" || a == "--namespace":
			i++
		case strings.HasPrefix(a, "-"):
		default:
			return a, c.args[i+1:]
		}
	}
	return "", nil
}

// gitDir returns the directory that git works in.
func (c *command) gitDir() string {
	if dir, ok := after(c.args, "-C"); ok {
		return dir
	}
	return "."
}

func forcePush(c *command) bool {
	sub, rest := c.git()
	if sub != "push" {
		return false
	}
	for _, a := range rest {
		switch {
		case a == "--dry-run" || a == "-n":
			return false
		case a == "--force" || strings.HasPrefix(a, "--force-with-lease") || a == "--mirror" || a == "--delete" || a == "--prune" || a == "--force-if-includes":
		case !strings.HasPrefix(a, "--") && strings.HasPrefix(a, "-") && strings.ContainsAny(a, "fd"):
		case strings.HasPrefix(a, "+") && len(a) > 1, strings.HasPrefix(a, ":") && len(a) > 1:
		default:
			continue
		}
		return !slices.Contains(rest, "--dry-run")
	}
	return false
}

func rewritesHistory(c *command) bool {
	switch sub, rest := c.git(); sub {
	case "filter-branch", "filter-repo":
		return true
	case "reflog":
		return len(rest) > 0 && (rest[0] == "expire" || rest[0] == "delete")
	case "gc":
		return slices.Contains(rest, "--prune=now") || slices.Contains(rest, "--prune=all")
	case "update-ref":
		return slices.Contains(rest, "-d")
	case "stash":
		return len(rest) > 0 && rest[0] == "clear"
	}
	return c.name == "git-filter-repo" || c.name == "bfg"
}

func isEngine(name string) bool { return name == "docker" || name == "podman" || name == "nerdctl" }

// containerOptions returns the options of docker run and its like, each with its value joined by =.
func (c *command) containerOptions() []string {
	if !isEngine(c.name) || !slices.ContainsFunc(c.args, func(a string) bool { return a == "run" || a == "create" || a == "exec" }) {
		return nil
	}
	valued := "-v --volume --mount --pid --cap-add --device --network --net --ipc --userns --security-opt -e --env -p --name -w -u --entrypoint --env-file -l --label --cgroupns --uts --add-host --publish --restart --user --workdir --platform --memory -m --cpus --gpus --volumes-from --hostname -h --tmpfs --shm-size --ulimit --log-driver --stop-signal --pull --health-cmd"
	var list []string
	operand := false
	for i := 0; i < len(c.args); i++ {
		a := c.args[i]
		switch {
		case a == "run" || a == "create" || a == "exec" || a == "container":
			operand = true
		case strings.HasPrefix(a, "-") && !strings.Contains(a, "=") && slices.Contains(strings.Fields(valued), a) && i+1 < len(c.args):
			list = append(list, a+"="+c.args[i+1])
			i++
		case strings.HasPrefix(a, "-v") && len(a) > 2 && a[2] == '/':
			list = append(list, "-v="+a[2:])
		case strings.HasPrefix(a, "-"):
			list = append(list, a)
		case operand:
			return list
		}
	}
	return list
}

// mounts returns the sources of the mounts in options.
func (c *command) mounts(options []string) []string {
	var list []string
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch name {
		case "-v", "--volume":
			source, _, ok := strings.Cut(value, ":")
			if ok && (strings.HasPrefix(source, "/") || strings.HasPrefix(source, ".") || strings.HasPrefix(source, "~")) {
				list = append(list, c.sh.abs(source))
			}
		case "--mount":
			for part := range strings.SplitSeq(value, ",") {
				key, source, _ := strings.Cut(part, "=")
				if key == "source" || key == "src" {
					list = append(list, c.sh.abs(source))
				}
			}
		}
	}
	return list
}

func containerRoot(c *command) bool {
	switch c.name {
	case "nsenter":
		target, _ := after(c.args, "-t", "--target")
		return target == "1" || slices.Contains(c.args, "-t1")
	case "chroot":
		args := operands(c.args, "")
		return len(args) > 0 && (strings.HasPrefix(args[0], "/host") || args[0] == "/proc/1/root")
	}
	return slices.Contains(c.mounts(c.containerOptions()), "/")
}

func containerPrivileges(c *command) bool {
	options := c.containerOptions()
	for _, o := range options {
		name, value, _ := strings.Cut(o, "=")
		switch name {
		case "--privileged":
			return value != "false"
		case "--pid", "--ipc", "--userns", "--uts", "--cgroupns":
			if value == "host" {
				return true
			}
		case "--cap-add":
			switch strings.TrimPrefix(strings.ToUpper(value), "CAP_") {
			case "ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "DAC_READ_SEARCH", "SYS_RAWIO":
				return true
			}
		case "--device":
			if k, ok := c.sh.ctx.kindOf(strings.SplitN(value, ":", 2)[0]); ok && k.write == "write-device" {
				return true
			}
		case "--security-opt":
			if strings.Contains(value, "unconfined") {
				return true
			}
		}
	}
	for _, m := range c.mounts(options) {
		if strings.HasSuffix(m, "docker.sock") || strings.HasSuffix(m, "containerd.sock") || strings.HasSuffix(m, "podman.sock") || m == "/run" || m == "/var/run" {
			return true
		}
		if isSystemDir(m) && m != "/mnt" && m != "/media" && m != "/srv" && m != "/opt" || c.sh.ctx.isHome(m) {
			return true
		}
		if k, ok := c.sh.ctx.kindOf(m); ok && (k.read != "" || k.write == "write-credentials") {
			return true
		}
	}
	if c.name == "curl" || c.name == "socat" {
		return slices.ContainsFunc(c.args, func(a string) bool { return strings.HasSuffix(a, "docker.sock") })
	}
	return false
}

func prunesVolumes(c *command) bool {
	if !isEngine(c.name) && c.name != "docker-compose" {
		return false
	}
	args := operands(c.args, "-f -p --file --project-name -H --context --env-file --profile --project-directory")
	if c.name == "docker-compose" {
		args = append([]string{"compose"}, args...)
	}
	if len(args) < 2 {
		return false
	}
	switch args[0] + " " + args[1] {
	case "system prune":
		return c.has("--volumes")
	case "volume rm", "volume prune", "volume remove":
		return true
	case "compose down", "compose rm":
		return c.has("-v", "--volumes")
	}
	return false
}

func destroysCloud(c *command) bool {
	all := func(words ...string) bool {
		for _, w := range words {
			if !slices.Contains(c.args, w) {
				return false
			}
		}
		return true
	}
	switch c.name {
	case "terraform", "tofu", "terragrunt", "pulumi", "cdk", "serverless", "sls":
		return slices.ContainsFunc(c.args, func(a string) bool {
			return a == "destroy" || a == "-destroy" || a == "remove" && c.name != "terraform"
		}) && !all("plan")
	case "kubectl", "oc", "k":
		if !all("delete") || slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--dry-run") }) {
			return false
		}
		return slices.ContainsFunc(c.args, func(a string) bool {
			switch a {
			case "ns", "namespace", "namespaces", "--all", "node", "nodes", "pv", "pvc", "persistentvolume", "persistentvolumeclaim", "crd", "--all-namespaces", "-A", "all":
				return true
			}
			return strings.HasPrefix(a, "namespace/") || strings.HasPrefix(a, "pvc/") || strings.HasPrefix(a, "ns/")
		})
	case "aws":
		return all("s3", "rb") || all("s3", "rm", "--recursive") || all("s3", "sync", "--delete") || slices.ContainsFunc(c.args, func(a string) bool {
			return strings.HasPrefix(a, "delete-") || strings.HasPrefix(a, "terminate-")
		})
	case "gcloud":
		return all("delete")
	case "az":
		return all("delete") || all("purge")
	case "gsutil":
		return all("rm", "-r") || all("rb") || all("-m", "rm")
	case "gh":
		return all("repo", "delete") || all("release", "delete")
	case "doctl", "hcloud", "linode-cli", "flyctl", "fly", "heroku":
		return slices.ContainsFunc(c.args, func(a string) bool {
			return a == "delete" || a == "destroy" || strings.HasSuffix(a, ":destroy") || a == "pg:reset"
		})
	case "rclone":
		return all("purge") || all("delete")
	}
	return false
}

var dropStatement = regexp.MustCompile(`(?i)\b(?:drop\s+(?:database|schema|table)|truncate\s+(?:table\s+)?\w|dropDatabase\s*\(|flushall|flushdb|delete\s+from\s+\w+\s*(?:;|$))`)

func dropsDatabase(c *command) bool {
	switch c.name {
	case "dropdb":
		return true
	case "psql", "mysql", "mariadb", "mongosh", "mongo", "sqlcmd", "clickhouse-client", "redis-cli", "cockroach", "pgcli", "valkey-cli":
		return dropStatement.MatchString(c.in) || slices.ContainsFunc(c.args, func(a string) bool { return dropStatement.MatchString(a) })
	case "mysqladmin":
		return slices.Contains(c.args, "drop")
	case "rails", "rake":
		return slices.ContainsFunc(c.args, func(a string) bool { return a == "db:drop" || a == "db:reset" })
	}
	return false
}
