package policy

import (
	"encoding/base64"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

var shells = map[string]bool{
	"bash": true, "sh": true, "dash": true, "zsh": true, "ksh": true, "ash": true, "rbash": true, "mksh": true, "fish": true,
}

// interpreters run a program that they read on their standard input, in a file, or after the option.
var interpreters = map[string]string{
	"python": "-c", "python2": "-c", "python3": "-c", "perl": "-e", "ruby": "-e", "node": "-e", "nodejs": "-e", "php": "-r",
	"lua": "-e", "deno": "", "bun": "-e", "osascript": "-e", "pwsh": "-c", "Rscript": "-e",
}

// runs follows commands that run a text, or change the shell; false is a command that does neither.
func (sh *shell) runs(c *command) (out string, ok bool) {
	if shells[c.name] {
		return sh.runShell(c), true
	}
	if _, ok := interpreters[interpreterName(c.name)]; ok {
		sh.runInterpreter(c)
		return unknown + marksOf(c.in), true
	}
	switch c.name {
	case "eval":
		return sh.runText(c, strings.Join(c.args, " "), c.in), true
	case "source", ".":
		if len(c.args) > 0 {
			return sh.runFile(c, c.args[0], c.args[1:]), true
		}
	case "trap":
		if len(c.args) > 1 && c.args[0] != "-" && c.args[0] != "-p" && c.args[0] != "-l" {
			inner := sh.fork()
			inner.runText(c, c.args[0], "")
		}
		return "", true
	case "cd", "pushd", "chdir":
		sh.changeDir(c.args)
		return "", true
	case "popd":
		sh.cwd, sh.oldCwd = sh.oldCwd, sh.cwd
		return "", true
	case "alias":
		for _, a := range c.args {
			if name, value, ok := strings.Cut(a, "="); ok {
				sh.aliases[name] = value
				inner := sh.fork()
				inner.params = nil
				inner.runText(c, value, "")
			}
		}
		return "", true
	case "unalias":
		for _, a := range c.args {
			delete(sh.aliases, a)
		}
		return "", true
	case "unset":
		for _, a := range c.args {
			delete(sh.funcs, a)
			sh.vars[a] = variable{}
		}
		return "", true
	case "set":
		for i, a := range c.args {
			if a == "--" {
				sh.params = slices.Clone(c.args[i+1:])
			}
		}
		return "", true
	case "shift":
		if len(sh.params) > 0 {
			sh.params = sh.params[1:]
		}
		return "", true
	case "read", "mapfile", "readarray":
		sh.read(c)
		return "", true
	case "su":
		asRoot := sh.asRoot
		sh.asRoot = true
		defer func() { sh.asRoot = asRoot }()
		if text, ok := after(c.args, "-c", "--command"); ok {
			return sh.runText(c, text, c.in), true
		}
		return sh.runText(c, c.in, ""), true
	case "find", "fd", "fdfind":
		sh.find(c)
	case "ssh", "slogin", "autossh", "mosh":
		return sh.ssh(c), true
	case "tmux", "screen":
		sh.terminal(c)
	case "at", "batch":
		sh.fork().runText(c, c.in, "")
	case "script":
		if text, ok := after(c.args, "-c", "--command"); ok {
			return sh.runText(c, text, ""), true
		}
	case "flock":
		if text, ok := after(c.args, "-c", "--command"); ok {
			return sh.runText(c, text, ""), true
		}
	case "watch", "entr", "sg", "nodemon", "concurrently", "hyperfine":
		for _, a := range c.args {
			if strings.Contains(a, " ") {
				sh.fork().runText(c, a, "")
			}
		}
	case "make", "docker", "podman", "kubectl", "chroot":
		// What these run is a file's or another place's business; their own options are rules.
	default:
		if strings.Contains(c.fields[0].text, "/") {
			file := sh.abs(c.fields[0].text)
			if _, made := sh.files[file]; made {
				return sh.runFile(c, file, c.args), true
			}
		}
	}
	return "", false
}

func interpreterName(name string) string {
	if strings.HasPrefix(name, "python3.") {
		return "python3"
	}
	return name
}

// after returns the argument after an option, or the rest of it.
func after(args []string, options ...string) (string, bool) {
	for i, a := range args {
		for _, option := range options {
			switch {
			case a == option && i+1 < len(args):
				return args[i+1], true
			case strings.HasPrefix(option, "--") && strings.HasPrefix(a, option+"="):
				return a[len(option)+1:], true
			}
		}
	}
	return "", false
}

// runText runs a text that c was given, in sh itself.
func (sh *shell) runText(c *command, text, in string) string {
	sh.origin(c, text)
	if strings.TrimSpace(text) == "" || !known(text) && strings.Trim(text, marks+" \n") == "" {
		return unknown + marksOf(text)
	}
	return sh.text(text, in)
}

// origin reports a program text that comes from where nobody has looked.
func (sh *shell) origin(c *command, text string) {
	for _, row := range [][2]string{{fetched, "run-from-network"}, {decoded, "run-decoded"}, {cut, "too-complex"}} {
		if strings.Contains(text, row[0]) {
			c.report(row[1])
		}
	}
}

// runShell follows bash -c TEXT, bash FILE and bash with a text on its standard input.
func (sh *shell) runShell(c *command) string {
	inner := sh.fork()
	inner.aliases, inner.params = map[string]string{}, []string{}
	interactive := false
	for i := 0; i < len(c.args); i++ {
		a := c.args[i]
		switch {
		case a == "-" || a == "--":
			continue
		case a == "-s":
			inner.params = c.args[i+1:]
			return inner.runText(c, c.in, "")
		case a == "-o" || a == "-O" || a == "+O" || a == "--rcfile" || a == "--init-file":
			i++
		case strings.HasPrefix(a, "--"), strings.HasPrefix(a, "+"):
		case strings.HasPrefix(a, "-"):
			interactive = interactive || strings.Contains(a, "i")
			if strings.Contains(a, "c") {
				if i+1 >= len(c.args) {
					return ""
				}
				if i+2 < len(c.args) {
					inner.params = c.args[min(i+3, len(c.args)):]
				}
				return inner.runText(c, c.args[i+1], c.in)
			}
		default:
			return inner.runFile(c, a, c.args[i+1:])
		}
	}
	out := inner.runText(c, c.in, "")
	if interactive {
		out += shellOut
	}
	return out
}

// runFile follows a script whose content may be known.
func (sh *shell) runFile(c *command, file string, params []string) string {
	if strings.Contains(file, fetched) {
		c.report("run-from-network")
		return unknown
	}
	content := ""
	switch file {
	case "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "-":
		content = c.in
	default:
		content = sh.content(sh.abs(file))
	}
	first, _, _ := strings.Cut(content, "\n")
	if strings.HasPrefix(first, "#!") && !strings.Contains(first, "sh") {
		sh.origin(c, content)
		sh.program(c, content)
		return unknown
	}
	old := sh.params
	if len(params) > 0 {
		sh.params = params
	}
	out := sh.runText(c, content, c.in)
	sh.params = old
	return out
}

func (sh *shell) changeDir(args []string) {
	target, found := "", false
	for _, a := range args {
		if a != "-" && strings.HasPrefix(a, "-") {
			continue
		}
		target, found = a, true
		break
	}
	old := sh.cwd
	switch {
	case !found:
		sh.cwd = sh.home()
	case target == "-":
		sh.cwd = sh.oldCwd
	case known(target) && (sh.cwd != unknown || strings.HasPrefix(target, "/")):
		sh.cwd = sh.abs(target)
	case strings.HasPrefix(target, "/"):
		sh.cwd = sh.abs(target)
	default:
		sh.cwd = unknown
	}
	if len(sh.cwd) > 4096 { // no path is so long
		sh.cwd = unknown
	}
	sh.oldCwd = old
}

// read follows read NAME, whose value is a line of the standard input.
func (sh *shell) read(c *command) {
	line, _, _ := strings.Cut(c.in, "\n")
	names := operands(c.args, "-p -d -n -N -t -u -a -i -c -C -O -s")
	alts := []string{line}
	if c.in == "" {
		alts = []string{unknown}
	}
	// `while read x` reads them all.
	if lines := strings.Split(strings.TrimRight(c.in, "\n"), "\n"); len(lines) > 1 {
		alts = lines[:min(len(lines), maxAlts)]
	}
	for i, name := range names {
		if len(names) == 1 {
			sh.vars[name] = variable{alts: alts}
			continue
		}
		parts := strings.Fields(line)
		v := unknown + marksOf(line)
		if i < len(parts) && i < len(names)-1 {
			v = parts[i]
		} else if i == len(names)-1 && i < len(parts) {
			v = strings.Join(parts[i:], " ")
		}
		sh.vars[name] = variable{alts: []string{v}}
	}
}

// find follows -exec and its like; what is found lies below where the search starts.
func (sh *shell) find(c *command) {
	starts := findStarts(c)
	for i, a := range c.args {
		switch a {
		case "-exec", "-execdir", "-ok", "-okdir", "-x", "--exec", "-X", "--exec-batch":
		default:
			continue
		}
		for _, start := range starts {
			var inner []field
			for _, f := range c.fields[i+2:] {
				if f.text == ";" || f.text == "+" {
					break
				}
				f.text = strings.ReplaceAll(f.text, "{}", start)
				inner = append(inner, f)
			}
			if len(inner) > 0 {
				sh.fork().exec(c.stmt, inner, redirects{})
			}
		}
	}
}

// findStarts returns paths that stand for what find finds.
func findStarts(c *command) []string {
	var starts []string
	for _, a := range c.args {
		if a == "-L" || a == "-H" || a == "-P" {
			continue
		}
		if strings.HasPrefix(a, "-") || a == "(" || a == "!" {
			break
		}
		starts = append(starts, strings.TrimRight(a, "/")+"/"+nonEmpty)
	}
	if len(starts) == 0 || c.name != "find" {
		starts = []string{"./" + nonEmpty}
	}
	return starts[:min(len(starts), 8)]
}

// ssh follows the command that another machine is given. Only what is ruinous anywhere is looked for there.
func (sh *shell) ssh(c *command) string {
	var inner []string // the host, then the command
	for _, f := range skipOptions(c.fields[1:], "-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 0) {
		inner = append(inner, f.text)
	}
	if len(inner) == 0 {
		return unknown
	}
	remote := sh.fork()
	remote.remote, remote.cwd, remote.oldCwd, remote.vars = true, unknown, unknown, map[string]variable{}
	if len(inner) == 1 {
		remote.runText(c, c.in, "")
		return unknown
	}
	if out := remote.runText(c, strings.Join(inner[1:], " "), c.in); out != "" {
		return out
	}
	return unknown
}

// terminal follows the commands that tmux and screen are told to run.
func (sh *shell) terminal(c *command) {
	for i, a := range c.args {
		if strings.Contains(a, " ") || i == len(c.args)-1 {
			if !strings.HasPrefix(a, "-") {
				sh.fork().runText(c, a, "")
			}
		}
	}
}

// output returns what a command that runs nothing else prints, as far as it is known.
func (sh *shell) output(c *command) string {
	switch c.name {
	case "echo":
		return echo(c.args)
	case "printf":
		return sh.printf(c.args)
	case "true", "false", ":", "export", "mkdir", "rm", "touch", "sleep", "chmod":
		return ""
	case "cat", "tee", "tac", "head", "tail", "sort", "uniq", "less", "more", "nl":
		return sh.cat(c)
	case "base64", "base32", "openssl", "xxd", "gpg", "uudecode":
		return decode(c)
	case "rev":
		r := []rune(strings.TrimRight(c.in, "\n"))
		slices.Reverse(r)
		return string(r)
	case "pwd":
		return sh.cwd
	case "dirname", "basename", "realpath", "readlink":
		return sh.pathTool(c)
	case "mktemp":
		if temp := sh.ctx.temp(); len(temp) > 0 && !sh.remote {
			return temp[0] + "/" + nonEmpty
		}
		return "/tmp/" + nonEmpty
	case "env", "printenv", "set":
		if len(c.args) == 0 {
			return secret
		}
		return unknown
	case "find", "fd", "fdfind":
		if sh.remote {
			return unknown
		}
		return strings.Join(findStarts(c), "\n")
	case "ls":
		return nonEmpty + marksOf(c.in)
	case "curl", "wget", "wget2", "http", "https", "xh", "lynx", "aria2c", "w3m", "fetch":
		return sh.download(c)
	case "nc", "ncat", "netcat", "socat", "telnet":
		return fetched
	}
	marks := marksOf(c.in)
	for _, file := range c.sh.readFiles(c) {
		marks += marksOf(sh.content(file))
	}
	return unknown + marks
}

func echo(args []string) string {
	decodeIt := false
	for len(args) > 0 && (args[0] == "-n" || args[0] == "-e" || args[0] == "-ne" || args[0] == "-en" || args[0] == "-E") {
		decodeIt = decodeIt || strings.Contains(args[0], "e")
		args = args[1:]
	}
	s := strings.Join(args, " ") + "\n"
	if decodeIt {
		return escapes(s)
	}
	return s
}

// printf knows %s, %b and %d; -v NAME sets a variable.
func (sh *shell) printf(args []string) string {
	name := ""
	if len(args) > 2 && args[0] == "-v" {
		name, args = args[1], args[2:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return ""
	}
	format, rest := escapes(args[0]), args[1:]
	var b strings.Builder
	for range maxFields {
		used := false
		for i := 0; i < len(format); i++ {
			if format[i] != '%' || i+1 == len(format) {
				b.WriteByte(format[i])
				continue
			}
			i++
			if format[i] == '%' {
				b.WriteByte('%')
				continue
			}
			for i+1 < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
				i++
			}
			used = true
			if len(rest) > 0 {
				if format[i] == 'b' {
					b.WriteString(escapes(rest[0]))
				} else {
					b.WriteString(rest[0])
				}
				rest = rest[1:]
			}
		}
		if !used || len(rest) == 0 || b.Len() > maxValue {
			break
		}
	}
	if name != "" {
		sh.vars[name] = variable{alts: []string{sh.limit(b.String())}}
		return ""
	}
	return b.String()
}

func (sh *shell) cat(c *command) string {
	files := operands(c.args, "-n -c -k -t -o --lines --bytes")
	out := ""
	if c.name == "tee" {
		for _, f := range files {
			sh.store(sh.abs(f), c.in, slices.Contains(c.args, "-a"))
		}
		return c.in
	}
	if len(files) == 0 {
		out = c.in
	}
	for _, f := range files {
		if f == "-" {
			out += c.in
			continue
		}
		out += sh.content(sh.abs(f))
		if len(out) > maxValue {
			break
		}
	}
	if c.name == "cat" || known(out) && !strings.Contains(strings.TrimRight(out, "\n"), "\n") {
		return out
	}
	return unknown + marksOf(out)
}

// decode returns what a decoder prints.
func decode(c *command) string {
	decodes := false
	for _, a := range c.args {
		if strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.ContainsAny(a, "dDr") || a == "--decode" || a == "--decrypt" || a == "enc" {
			decodes = true
		}
	}
	files := operands(c.args, "-w -i -in -out -pass -k -o")
	in := c.in
	if len(files) > 0 && c.name != "openssl" {
		in = c.sh.content(c.sh.abs(files[0]))
	}
	if !decodes && c.name != "uudecode" {
		return unknown + marksOf(in)
	}
	if !known(in) || in == "" {
		return decoded + marksOf(in)
	}
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == ' ' {
			return -1
		}
		return r
	}, in)
	var data []byte
	var err error
	switch c.name {
	case "base64", "openssl":
		data, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	case "xxd":
		data, err = hex.DecodeString(text)
	default:
		return decoded
	}
	if err != nil || !utf8.Valid(data) {
		return decoded
	}
	return strings.Map(func(r rune) rune {
		if clean(r) == "" {
			return -1
		}
		return r
	}, string(data))
}

func (sh *shell) pathTool(c *command) string {
	args := operands(c.args, "-s")
	if len(args) == 0 || !known(args[0]) {
		return unknown
	}
	switch c.name {
	case "dirname":
		return path.Dir(args[0])
	case "basename":
		base := path.Base(args[0])
		if len(args) > 1 {
			base = strings.TrimSuffix(base, args[1])
		}
		return base
	}
	return sh.abs(args[0])
}

// download notes the file that a download goes to, and returns what is printed.
func (sh *shell) download(c *command) string {
	var file string
	prints := c.name != "wget" && c.name != "wget2" && c.name != "aria2c"
	for i, a := range c.args {
		next := ""
		if i+1 < len(c.args) {
			next = c.args[i+1]
		}
		short := strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--")
		switch {
		case prints && short && strings.HasSuffix(a, "o"), a == "--output":
			file = next
		case !prints && short && strings.HasSuffix(a, "O"), a == "--output-document", c.name == "aria2c" && a == "-o":
			file = next
		case !prints && (strings.HasSuffix(a, "O-") && short || a == "--output-document=-"):
			file = "-"
		case strings.HasPrefix(a, "--output=") || strings.HasPrefix(a, "--output-document="):
			_, file, _ = strings.Cut(a, "=")
		case prints && short && strings.HasPrefix(a, "-o"):
			file = a[2:]
		case prints && short && strings.Contains(a, "O"), a == "--remote-name", !prints && strings.Contains(a, "://"):
			if file == "" {
				for _, url := range c.args {
					if strings.Contains(url, "://") {
						sh.store(sh.abs(path.Base(strings.SplitN(url, "?", 2)[0])), fetched, false)
					}
				}
				prints = false
			}
		}
	}
	switch {
	case file == "-" || file == "/dev/stdout":
		return fetched
	case file != "":
		sh.store(sh.abs(file), fetched, false)
		return ""
	case prints:
		return fetched
	}
	return ""
}

// operands returns the arguments that are neither options nor the values of those listed.
func operands(args []string, valued string) []string {
	var list []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return append(list, args[i+1:]...)
		case len(a) > 1 && a[0] == '-':
			for option := range strings.FieldsSeq(valued) {
				if option == a {
					i++
				}
			}
		default:
			list = append(list, a)
		}
	}
	return list
}
