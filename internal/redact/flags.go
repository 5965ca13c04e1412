package redact

import "strings"

// program is a command whose short options carry a secret.
type program int

const (
	other program = iota
	curl
	sshpass
	mysql
	redisCLI
	login // docker login, after `docker`
)

var programs = map[string]program{
	"curl": curl, "sshpass": sshpass, "mysql": mysql, "mysqldump": mysql, "mysqladmin": mysql, "mariadb": mysql,
	"mariadb-dump": mysql, "redis-cli": redisCLI, "login": login,
}

// flags masks the secrets among a command's options: --password x, curl -u user:password. It goes through the text word
// by word and takes quotes as they come, since the command may be text in another command's argument.
func (f *finder) flags() {
	s := f.s
	running := other
	for at := 0; at < len(s); {
		// The next word, and whether a new command begins before it.
		for at < len(s) && strings.IndexByte(" \t\r\n;|&()", s[at]) >= 0 {
			if strings.IndexByte("\n;|&()", s[at]) >= 0 && (at == 0 || s[at-1] != '\\') {
				running = other
			}
			at++
		}
		start := at
		for at < len(s) && strings.IndexByte(" \t\r\n;|&()", s[at]) < 0 {
			at++
		}
		word := s[start:at]
		bare := strings.Trim(word, "\"'`$\\")
		if p, ok := programs[bare[strings.LastIndexByte(bare, '/')+1:]]; ok {
			running = p
			continue
		}
		offset := strings.IndexByte(word, '-')
		if offset < 0 || strings.Trim(word[:offset], "\"'\\") != "" || len(word) < offset+2 {
			continue
		}
		option := strings.TrimRight(word[offset:], "\"'\\,")
		// In an argument list of a program, ["--token", "x"], the option is in quotes of its own.
		separate := at
		switch {
		case strings.HasPrefix(option, "--"):
			name, _, assigned := strings.Cut(option[2:], "=")
			if running == curl && (name == "user" || name == "proxy-user") {
				if assigned {
					separate = start + offset + 2 + len(name) + 1
				}
				at = f.pair(separate)
				continue
			}
			// With = the assignment was found by its name; see named.
			if !assigned && weigh(name) == sure && !strings.HasPrefix(name, "no-") {
				at = f.argument(separate)
			}
		case running == curl:
			// -u is the last of a cluster, or has its value attached.
			if u := strings.IndexAny(option, "uU"); u > 0 && strings.Trim(option[1:u], "0123456789sSfLkivIgGnNOJ") == "" {
				if u+1 < len(option) {
					separate = start + offset + u + 1
				}
				at = f.pair(separate)
			}
		case option == "-p" && (running == sshpass || running == login), option == "-a" && running == redisCLI:
			at = f.argument(separate)
		case strings.HasPrefix(option, "-p") && (running == sshpass || running == mysql) && len(option) > 2:
			if from := start + offset + 2; !reference(s[from:at]) {
				at = f.argument(from)
			}
		}
	}
}

// argument masks the argument that begins at s[at], after blanks, unless it is an option, a variable or an id=... that
// names one, and returns where it ends.
func (f *finder) argument(at int) int {
	if next := strings.TrimLeft(f.s[at:min(at+8, len(f.s))], " \t"); strings.HasPrefix(next, "-") {
		return at
	}
	from, to := f.word(at)
	value := f.s[from:to]
	if substitution(value) {
		return max(at, from)
	}
	if !plain(value, sure) {
		f.mask(from, to)
	}
	return max(at, to)
}

// pair masks the password in an argument user:password.
func (f *finder) pair(at int) int {
	from, to := f.word(at)
	if _, password, ok := strings.Cut(f.s[from:to], ":"); ok && !plain(password, sure) {
		f.mask(to-len(password), to)
	}
	return max(at, to)
}

// word returns the argument at s[at], after blanks and without its quotes.
func (f *finder) word(at int) (from, to int) {
	s := f.s
	for at < len(s) && (strings.IndexByte(" \t,", s[at]) >= 0 || strings.HasPrefix(s[at:], "\\\n")) {
		if s[at] == '\\' {
			at++
		}
		at++
	}
	if at == len(s) {
		return at, at
	}
	if q, n := quoteAt(s, at); n > 0 {
		end := closing(s, at+n, q)
		return at + n, end
	}
	return at, f.wordEnd(at, at, false)
}
