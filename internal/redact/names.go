package redact

import "strings"

const (
	maxName  = 128     // bytes of a name that are looked at
	maxProse = 256     // bytes of a value that may be a sentence
	maxLine  = 4 << 10 // bytes that are looked back for the beginning of a line
)

// strength is how surely a name says that its value is a secret.
type strength int

const (
	innocent strength = iota
	maybe             // AUTH, PRIVATE, CREDENTIAL, SOME_KEY: a value that is assigned to it
	sure              // PASSWORD, TOKEN, API_KEY: also after a colon or as the next argument
)

// weigh judges a name in any spelling: DB_PASSWORD, dbPassword, db-password, X-Api-Key.
func weigh(name string) strength {
	words := split(name)
	if len(words) == 0 {
		return innocent
	}
	last := words[len(words)-1]
	// It points to a secret, describes one or counts them.
	switch last {
	case "FILE", "FILES", "PATH", "DIR", "SOCK", "SOCKET", "STDIN", "NAME", "TYPE", "METHOD", "MODE", "TTL", "LENGTH",
		"LEN", "SIZE", "COUNT", "LIMIT", "URL", "URI", "HOST", "PORT", "ENDPOINT", "EXPIRY", "EXPIRES", "FD", "ENV",
		"PROMPT", "HEADER", "POLICY", "PARALLELISM":
		return innocent
	}
	best := innocent
	for i, word := range words {
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		switch {
		case strings.Contains(word, "PASSWORD"), strings.Contains(word, "PASSWD"), strings.Contains(word, "PASSPHRASE"),
			strings.Contains(word, "SECRET"), strings.Contains(word, "APIKEY"), strings.HasSuffix(word, "TOKEN"),
			word == "PASS" && len(words) > 1, word == "PWD" && i > 0,
			word == "KEY" && (before == "API" || before == "ACCESS" || before == "PRIVATE" || before == "AUTH"):
			return sure
		case word == "AUTH", word == "PRIVATE", strings.HasPrefix(word, "CREDENTIAL"), word == "CREDS",
			word == "AUTHORIZATION", word == "PASS", strings.HasSuffix(word, "TOKENS"),
			word == "PRIVATEKEY", word == "ACCESSKEY", word == "COOKIE",
			word == "KEY" && word == last && i > 0 && name == strings.ToUpper(name) && !plainKey[before]:
			best = maybe
		}
	}
	return best
}

// plainKey are the keys that open nothing.
var plainKey = map[string]bool{
	"PRIMARY": true, "FOREIGN": true, "SORT": true, "PARTITION": true, "PUBLIC": true, "CACHE": true, "GROUP": true,
	"ROUTING": true, "HOT": true, "MAP": true, "INDEX": true, "UNIQUE": true,
}

// split returns the words of a name in capitals.
func split(name string) []string {
	var words []string
	start := 0
	cut := func(end int) {
		if start < end {
			words = append(words, strings.ToUpper(name[start:end]))
		}
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_' || c == '-' || c == '.':
			cut(i)
			start = i + 1
		case i > 0 && 'A' <= c && c <= 'Z' && 'a' <= name[i-1] && name[i-1] <= 'z':
			cut(i)
			start = i
		}
	}
	cut(len(name))
	return words
}

// named masks the values of NAME=value, name: value, "name": "value" and of some headers.
func (f *finder) named() {
	s := f.s
	for at := 0; at < len(s); {
		i := strings.IndexAny(s[at:], "=:")
		if i < 0 {
			return
		}
		i += at
		at = i + 1
		colon := s[i] == ':'
		if !colon && at < len(s) && (s[at] == '=' || s[at] == '~') { // a comparison
			at++
			continue
		}
		name, from, quoted := nameBefore(s, i)
		if name == "" {
			continue
		}
		if header(name) && colon {
			at = f.header(at, strings.ToLower(name))
			continue
		}
		weight := weigh(name)
		if weight == innocent || colon && weight == maybe && !quoted {
			continue
		}
		at = f.value(at, from, colon, quoted, weight)
	}
}

func header(name string) bool {
	switch strings.ToLower(name) {
	case "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token", "private-token",
		"api-key", "x-goog-api-key", "x-amz-security-token":
		return true
	}
	return false
}

// nameBefore returns the name that ends before s[i], where it begins, and whether it is in quotes.
func nameBefore(s string, i int) (name string, from int, quoted bool) {
	end := i
	low := max(0, i-maxName)
	// name += "x", name := "x", name ?= x
	if end > low && s[i] == '=' && strings.IndexByte("+:?!<>", s[end-1]) >= 0 {
		if strings.IndexByte("!<>", s[end-1]) >= 0 {
			return "", 0, false
		}
		end--
	}
	for end > low && s[end-1] == ' ' {
		end--
	}
	for end > low && strings.IndexByte("\"']\\", s[end-1]) >= 0 {
		quoted = true
		end--
	}
	from = end
	for from > low && (isTokenByte(s[from-1]) || s[from-1] == '.') {
		from--
	}
	return s[from:end], from, quoted
}

// value masks the value that begins at s[at], of a name that begins at `from`, and returns where to go on.
func (f *finder) value(at, from int, colon, quoted bool, weight strength) int {
	s := f.s
	start := at
	blanks := 0
	for start < len(s) && (s[start] == ' ' || s[start] == '\t') {
		start++
		blanks++
	}
	spaced := blanks > 0 || from < at-1 && at >= 2 && s[at-2] == ' '
	if start == len(s) {
		return start
	}
	if colon && strings.IndexByte("{[(", s[start]) >= 0 { // "auth": {
		return at
	}
	// The quote that the value itself has, \" in a string in a string.
	if q, n := quoteAt(s, start); n > 0 {
		if colon && !quoted && f.openBefore(from, q[n-1]) { // 'Password: ' ends there
			return start
		}
		body := start + n
		inner := body
		if strings.HasPrefix(s[body:], "$(") { // its quotes are its own
			inner = parens(s, body+1)
		}
		end := closing(s, inner, q)
		if substitution(s[body:end]) {
			return body
		}
		// 'a''b' and "a"b are one word.
		if after := end + n; !spaced && !colon && after < len(s) {
			end = max(end, f.wordEnd(after, from, false))
			if end > after && !plain(s[body:end], weight) {
				f.mask(start, end)
				return end
			}
			end = min(end, after-n)
		}
		if !plain(s[body:end], weight) {
			f.mask(body, end)
		}
		return min(end+n, len(s))
	}
	if spaced && !colon { // `x = y` is a test or code; `PASSWORD= cmd` sets nothing
		return at
	}
	// The quote that is around name and value: -e "PASSWORD=with blanks".
	if from > 0 && !colon && !quoted {
		if q := s[from-1]; q == '"' || q == '\'' {
			end := closing(s, start, string(q))
			if from >= 2 && s[from-2] == '\\' {
				end = closing(s, start, `\`+string(q))
			}
			if !plain(s[start:end], weight) {
				f.mask(start, end)
			}
			return end
		}
	}
	end := f.wordEnd(start, from, colon || from > 0 && (s[from-1] == '?' || s[from-1] == '&'))
	if colon && !quoted {
		// In prose a colon is followed by more than a word: "fix token: handle expiry".
		rest := strings.TrimLeft(s[end:min(end+8, len(s))], " \t")
		prose := rest != "" && strings.IndexByte("\r\n\"'`,;}\\|&)", rest[0]) < 0
		if end-start < 6 || prose && end-start < maxProse {
			return at
		}
	}
	if substitution(s[start:end]) {
		return start
	}
	if !plain(s[start:end], weight) {
		f.mask(start, end)
	}
	return end
}

// quoteAt returns the quote at s[i] and its length, 0 where there is none.
func quoteAt(s string, i int) (string, int) {
	switch {
	case s[i] == '"' || s[i] == '\'' || s[i] == '`':
		return s[i : i+1], 1
	case strings.HasPrefix(s[i:], `\"`) || strings.HasPrefix(s[i:], `\'`):
		return s[i : i+2], 2
	}
	return "", 0
}

// closing returns where the quote that is open at s[i] is closed, or the end of the text.
func closing(s string, i int, quote string) int {
	for j := i; ; {
		n := strings.Index(s[j:], quote)
		if n < 0 {
			return len(s)
		}
		j += n
		if quote == `"` {
			backslashes := 0
			for j-backslashes > i && s[j-backslashes-1] == '\\' {
				backslashes++
			}
			if backslashes%2 == 1 {
				j++
				continue
			}
		}
		return j
	}
}

// wordEnd returns the end of the shell word that goes on at s[i]. A quote in it ends it where it closes one that was
// opened before the name (inside), and otherwise is part of it.
func (f *finder) wordEnd(i, name int, inside bool) int {
	s := f.s
	var looked [256]bool // openBefore was asked for this quote, and said no
	for i < len(s) {
		switch c := s[i]; c {
		case ' ', '\t', '\r', '\n', ';', '&', '|', '<', '>', ')', ',', '}':
			if c == ',' && !inside || c == '}' && !inside {
				i++
				continue
			}
			return i
		case '\\':
			if i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\'' || s[i+1] == 'n') && inside {
				return i
			}
			i += 2
		case '"', '\'', '`':
			if inside || !looked[c] && f.openBefore(name, c) {
				return i
			}
			looked[c] = true
			i = closing(s, i+1, string(c)) + 1
		case '$':
			if strings.HasPrefix(s[i:], "$(") {
				i = parens(s, i+1)
				continue
			}
			if strings.HasPrefix(s[i:], "${") {
				if n := strings.IndexByte(s[i:min(i+maxLine, len(s))], '}'); n >= 0 {
					i += n
				}
			}
			i++
		default:
			i++
		}
	}
	return len(s)
}

// openBefore reports whether a quote is open on the line before s[i].
func (f *finder) openBefore(i int, quote byte) bool {
	line := f.s[max(0, i-maxLine):i]
	if n := strings.LastIndexByte(line, '\n'); n >= 0 {
		line = line[n+1:]
	}
	return strings.Count(line, string(quote))%2 == 1
}

// substitution reports whether value is a command substitution and nothing else. What it runs must stay readable, unless
// that only prints the secret.
func substitution(value string) bool {
	body, ok := strings.CutPrefix(value, "$(")
	return ok && len(value) <= maxLine && strings.HasSuffix(body, ")") && parens(value, 1) == len(value) &&
		!strings.HasPrefix(body, "echo ") && !strings.HasPrefix(body, "printf ")
}

// parens returns what follows the parenthesis that closes the one at s[i], or where it gave up looking.
func parens(s string, i int) int {
	depth := 0
	s = s[:min(len(s), i+maxLine)]
	for ; i < len(s); i++ {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// plain reports whether a value is no secret: empty, a reference to a variable, a word such as true, for a name that is
// no clear sign; a number for one that counts.
func plain(value string, weight strength) bool {
	if value == "" || value == Mask || reference(value) || strings.HasPrefix(value, "id=") {
		return true
	}
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "none", "null", "nil", "0", "1":
		return true
	}
	if weight == maybe {
		switch strings.ToLower(value) {
		case "basic", "bearer", "oauth", "oauth2", "required", "optional", "auto", "id", "name", "left", "right":
			return true
		}
	}
	return weight == maybe && strings.Trim(value, "0123456789") == ""
}

// reference reports whether value is a variable or a place for one and nothing else: $NAME, ${NAME}, {name}, {{ name }},
// <name>.
func reference(value string) bool {
	value = strings.Trim(value, `"'\`)
	body, ok := strings.CutPrefix(value, "$")
	if !ok {
		return len(value) > 2 && (value[0] == '<' && value[len(value)-1] == '>' ||
			value[0] == '{' && value[len(value)-1] == '}')
	}
	if inner, ok := strings.CutPrefix(body, "{"); ok {
		if body, ok = strings.CutSuffix(inner, "}"); !ok {
			return false
		}
	}
	for i := range len(body) {
		if c := body[i]; !isTokenByte(c) || c == '-' {
			return false
		}
	}
	return body != ""
}

// schemes are those of an Authorization header.
var schemes = map[string]bool{
	"bearer": true, "basic": true, "token": true, "digest": true, "negotiate": true, "ntlm": true, "apikey": true,
	"api-key": true, "key": true, "bot": true, "oauth": true, "hawk": true, "aws4-hmac-sha256": true,
}

// header masks the value of a header that begins at s[at]: to the closing quote or the end of the line. The scheme of
// an authorization stays. It returns where it ends.
func (f *finder) header(at int, name string) int {
	s := f.s
	for at < len(s) && s[at] == ' ' {
		at++
	}
	if at+1 < len(s) && strings.IndexByte("fbru", s[at]) >= 0 && (s[at+1] == '"' || s[at+1] == '\'') { // Python's f"..."
		at++
	}
	if at == len(s) {
		return at
	}
	if _, n := quoteAt(s, at); n > 0 {
		at += n
	}
	end := at
	for end < len(s) && strings.IndexByte("\r\n\"'`\\", s[end]) < 0 {
		end++
	}
	value := s[at:end]
	scheme, rest, more := strings.Cut(value, " ")
	switch {
	case more && schemes[strings.ToLower(scheme)]:
		value = strings.TrimLeft(rest, " ")
	case len(value) > maxProse: // too long to be prose, and to be looked at twice
	case strings.HasSuffix(name, "cookie") && !strings.Contains(value, "="),
		strings.HasSuffix(name, "authorization") && (more || len(value) < 8):
		return at // prose: "authorization: add roles"
	}
	if !reference(value) {
		f.mask(end-len(value), end)
	}
	return end
}
