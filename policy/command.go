package policy

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

// command is a simple command as the rules see it.
type command struct {
	sh   *shell
	stmt *syntax.Stmt // for what it looks like
	name string       // the last element of its path, "" for redirections alone
	args []string     // without the name
	redirects
	fields []field // name and arguments

	looked       bool // the rest is known
	wrote, readK []string
	reaches      []reach
}

// look works out once what several rules ask for: the rules of the paths that are written and read, and how far a
// deletion reaches.
func (c *command) look() {
	if c.looked {
		return
	}
	c.looked = true
	for _, p := range c.writePaths() {
		if k, ok := c.sh.kindOf(p); ok && k.write != "" {
			c.wrote = append(c.wrote, k.write)
		}
	}
	for _, p := range append(slices.Clip(c.reads), c.sh.readFiles(c)...) {
		if k, ok := c.sh.kindOf(p); ok && k.read != "" {
			c.readK = append(c.readK, k.read)
		}
	}
	for _, p := range c.deleted() {
		c.sh.spend(4)
		c.reaches = append(c.reaches, c.sh.ctx.reachOf(p, c.sh.remote))
	}
}

// kindOf is Context.kindOf with a memory.
func (c *checker) kindOf(p string) (kind, bool) {
	if got, ok := c.kinds[p]; ok {
		return got.kind, got.ok
	}
	c.spend(8)
	k, ok := c.ctx.kindOf(p)
	c.kinds[p] = judged{k, ok}
	return k, ok
}

// judged is what kindOf said.
type judged struct {
	kind kind
	ok   bool
}

// call walks a simple command, once for each alternative of the variables in it.
func (sh *shell) call(stmt *syntax.Stmt, cmd *syntax.CallExpr, r redirects) string {
	if len(cmd.Args) == 0 {
		sh.assign(cmd.Assigns)
		sh.redirected(stmt, r)
		return ""
	}
	pick, most := sh.pick, sh.most
	defer func() { sh.pick, sh.most = pick, most }()
	var out strings.Builder
	feed := sh.feed
	sh.feed = r.in
	sh.most = 1
	// Inside a function's or another text's call the alternatives are those of the outer command.
	for i := 0; i < sh.most && sh.spend(1); i++ {
		sh.pick = i
		args := sh.expand(cmd.Args)
		if len(cmd.Assigns) > 0 {
			sh.assign(cmd.Assigns) // seen by what it runs; that they stay is of no matter
		}
		most := sh.most
		if len(args) == 0 {
			sh.redirected(stmt, r)
		} else {
			out.WriteString(sh.exec(stmt, args, r))
		}
		sh.most = most
		if out.Len() > maxValue {
			break
		}
	}
	sh.feed = feed
	return sh.limit(out.String())
}

// redirected judges the redirections of something that is no simple command.
func (sh *shell) redirected(stmt *syntax.Stmt, r redirects) {
	if len(r.writes)+len(r.reads) > 0 {
		sh.judge(&command{sh: sh, stmt: stmt, redirects: r})
	}
}

// exec follows a command to what it really runs, judges each step, and returns what it prints.
func (sh *shell) exec(stmt *syntax.Stmt, args []field, r redirects) string {
	if len(args) == 0 {
		return ""
	}
	asRoot := sh.asRoot
	defer func() { sh.asRoot = asRoot }()
	if dir, ok := chdirOption(args); ok { // env -C DIR, sudo -D DIR
		cwd, oldCwd := sh.cwd, sh.oldCwd
		defer func() { sh.cwd, sh.oldCwd = cwd, oldCwd }()
		sh.changeDir([]string{dir})
	}
	for first := true; len(args) > 0 && sh.spend(1); first = false {
		name := args[0].text
		if first {
			if out, ok := sh.defined(name, args, r); ok {
				return out
			}
		}
		c := &command{sh: sh, stmt: stmt, name: path.Base(name), fields: args, redirects: r}
		for _, a := range args[1:] {
			c.args = append(c.args, a.text)
		}
		sh.origin(c, c.name)
		sh.judge(c)
		r.writes, r.reads = nil, nil // judged with the outermost command
		if out, ok := sh.runs(c); ok {
			return out
		}
		inner, ok := sh.unwrap(c)
		if !ok || len(inner) == 0 {
			return sh.output(c)
		}
		args = inner
	}
	return ""
}

// chdirOption returns the directory in which env or sudo run their command.
func chdirOption(args []field) (string, bool) {
	options := []string{"-C", "--chdir"}
	switch path.Base(args[0].text) {
	case "env":
	case "sudo":
		options[0] = "-D"
	default:
		return "", false
	}
	var texts []string
	for _, a := range args[1:] {
		if !strings.HasPrefix(a.text, "-") && len(texts) > 0 && !strings.HasPrefix(texts[len(texts)-1], "-") && !strings.Contains(a.text, "=") {
			break // the command's own
		}
		texts = append(texts, a.text)
	}
	return after(texts, options...)
}

// defined runs what the text itself defines: aliases and functions.
func (sh *shell) defined(name string, args []field, r redirects) (string, bool) {
	rest := make([]string, 0, len(args))
	for _, a := range args[1:] {
		rest = append(rest, a.text)
	}
	if alias, ok := sh.aliases[name]; ok && args[0].word != nil && args[0].word.Lit() == name {
		delete(sh.aliases, name) // it does not expand in itself
		out := sh.withParams(rest, func() string { return sh.text(alias+` "$@"`, r.in) })
		sh.aliases[name] = alias
		return out, true
	}
	body, ok := sh.funcs[name]
	if !ok {
		return "", false
	}
	for _, f := range sh.active {
		if f == name {
			return unknown, true
		}
	}
	if len(sh.active) >= maxNested {
		return unknown, true
	}
	sh.active = append(sh.active, name)
	out := sh.withParams(rest, func() string { return sh.stmt(body, r.in) })
	sh.active = sh.active[:len(sh.active)-1]
	return out, true
}

func (sh *shell) withParams(params []string, f func() string) string {
	old := sh.params
	sh.params = params
	defer func() { sh.params = old }()
	return f()
}

// unwrap returns what sudo, env, timeout, xargs and their like run.
func (sh *shell) unwrap(c *command) ([]field, bool) {
	args := c.fields
	switch c.name {
	case "command":
		if len(c.args) > 0 && (c.args[0] == "-v" || c.args[0] == "-V") {
			return nil, false
		}
	case "sudo", "doas", "pkexec", "runuser":
		if len(c.args) > 0 && (c.args[0] == "-i" || c.args[0] == "-H" || c.args[0] == "--login") {
			sh.asRoot = true
		}
	case "xargs", "parallel":
		return c.xargs(), true
	}
	words := make([]shellwords.Word, len(args))
	for i, a := range args {
		words[i] = shellwords.Word{Text: a.text, Literal: known(a.text)}
	}
	words[0].Text = c.name
	inner, ok := shellwords.Unwrap(words)
	if ok {
		if inner == nil { // an option that is not known: what follows the options is the best guess
			return skipOptions(args[1:], "", 0), true
		}
		return args[len(args)-len(inner):], true
	}
	if w, ok := runners[c.name]; ok {
		return skipOptions(args[1:], w.valued, w.operands), true
	}
	return nil, false
}

// runner is a command that runs another one, which the meaning of exit codes has no use for.
type runner struct {
	valued   string
	operands int
}

var runners = map[string]runner{
	"pkexec": {valued: "--user"}, "runuser": {valued: "-u -g -G"}, "flock": {valued: "-w -E", operands: 1},
	"strace": {valued: "-e -o -p -s -u -E"}, "ltrace": {valued: "-e -o -p -s -u"}, "taskset": {operands: 1},
	"chrt": {operands: 1}, "numactl": {}, "unshare": {valued: "-S -G --setuid --setgid"}, "setpriv": {}, "fakeroot": {},
	"chronic": {}, "caffeinate": {valued: "-t -w"}, "xvfb-run": {valued: "-n -s -e -f"}, "dbus-run-session": {},
	"systemd-run": {valued: "-p -u -M -H -E --unit --property --slice --uid --gid --on-active --on-calendar"}, "watch": {valued: "-n --interval"},
	"entr": {}, "systemd-inhibit": {}, "proot": {valued: "-r -b -w -S"}, "torsocks": {}, "proxychains": {}, "proxychains4": {}, "unbuffer": {},
	"direnv": {operands: 2}, "dotenv": {valued: "-f -e"}, "cgexec": {valued: "-g"}, "prlimit": {}, "nsenter": {valued: "-t -S -G --target"},
	"trickle": {valued: "-d -u"}, "cpulimit": {valued: "-l"}, "toybox": {}, "sg": {operands: 1},
}

// skipOptions returns what follows the options and operands of a runner.
func skipOptions(args []field, valued string, operands int) []field {
	for i := 0; i < len(args); i++ {
		text := args[i].text
		switch {
		case text == "--":
			if operands == 0 {
				return args[i+1:]
			}
		case strings.HasPrefix(text, "-") && len(text) > 1:
			for option := range strings.FieldsSeq(valued) {
				if option == text {
					i++
				}
			}
		case strings.Contains(text, "=") && !strings.Contains(text, "/") && !strings.Contains(text, " "):
		case operands > 0:
			operands--
		default:
			return args[i:]
		}
	}
	return nil
}

// xargs returns the command that xargs or parallel runs, with what it would add.
func (c *command) xargs() []field {
	valued := "-I -i -n -P -L -d -E -s -a -j --max-args --max-procs --max-lines --delimiter --replace --jobs --arg-file --colsep"
	inner := skipOptions(c.fields[1:], valued, 0)
	replace := ""
	for i, a := range c.args {
		switch {
		case a == "-I" && i+1 < len(c.args):
			replace = c.args[i+1]
		case strings.HasPrefix(a, "-I"), strings.HasPrefix(a, "-i"):
			replace = a[2:]
			if replace == "" {
				replace = "{}"
			}
		case a == "--replace":
			replace = "{}"
		}
	}
	in := c.in
	if c.name == "parallel" {
		replace = "{}"
		for i, a := range inner {
			if a.text == ":::" {
				for _, item := range inner[i+1:] {
					in += item.text + "\n"
				}
				inner = inner[:i]
				break
			}
		}
		if len(inner) > 0 && strings.Contains(inner[0].text, " ") { // a command line in one argument
			inner = append([]field{{"bash", nil}, {"-c", nil}}, inner...)
		}
	}
	if len(inner) == 0 {
		return nil
	}
	items := strings.Fields(in)
	if len(items) == 0 {
		items = []string{unknown}
	}
	if len(items) > maxFields {
		items = items[:maxFields]
	}
	result := make([]field, 0, len(inner)+len(items))
	replaced := false
	for _, a := range inner {
		if replace != "" && strings.Contains(a.text, replace) {
			replaced = true
			if a.text == replace {
				for _, item := range items {
					result = append(result, field{item, nil})
				}
				continue
			}
			a = field{strings.ReplaceAll(a.text, replace, items[0]), nil}
		}
		result = append(result, a)
	}
	if !replaced {
		for _, item := range items {
			result = append(result, field{item, nil})
		}
	}
	return result
}
