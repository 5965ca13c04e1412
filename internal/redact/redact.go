// Package redact takes secrets out of command text before it is written to the audit file or a log.
//
// A command that carries a password is a bad habit that agents have: `TOKEN=... ./deploy`, `curl -u me:secret`, a key in
// a here-document. Text finds them by four signs: a name that says so (PASSWORD=, --token, "api_key":), a header
// (Authorization:), a place (user:password@host, curl -u), and the shape of well-known tokens. What stands for a secret
// without being one stays readable: $TOKEN, --password-stdin, TOKEN_FILE, SSH_AUTH_SOCK, MAX_TOKENS=100.
//
// It is a net, not a wall: a password that looks like a word in a place that says nothing passes. Values takes out
// secrets that are known exactly. Where the two aims collide, too much is masked rather than too little.
//
// Every search is by substring or looks back and ahead a bounded way, so the time is linear in the text: a megabyte
// takes some milliseconds.
package redact

import (
	"cmp"
	"slices"
	"strings"
)

// Mask is what a secret is replaced with.
const Mask = "[redacted]"

// MinValue is how many bytes a secret must have at least for Values to mask it: shorter ones are found everywhere.
const MinValue = 4

// Text returns s with what looks like a secret replaced by Mask. It takes any bytes and never fails.
func Text(s string) string {
	f := &finder{s: s}
	f.keyBlocks()
	f.tokens()
	f.userinfo()
	f.named()
	f.flags()
	return f.masked()
}

// Values returns s with every occurrence of the secrets replaced by Mask, also where they overlap. Secrets shorter than
// MinValue are ignored.
func Values(s string, secrets []string) string {
	f := &finder{s: s}
	for _, secret := range secrets {
		if len(secret) < MinValue {
			continue
		}
		// An occurrence may begin inside the last one ("abab" in "ababab"); for long secrets looking for those would cost
		// the square of their length.
		step := 1
		if len(secret) > 256 {
			step = len(secret)
		}
		for at := 0; ; {
			i := strings.Index(s[at:], secret)
			if i < 0 {
				break
			}
			f.mask(at+i, at+i+len(secret))
			at += i + step
		}
	}
	return f.masked()
}

// finder collects what is to be masked in s.
type finder struct {
	s     string
	spans []span
}

type span struct{ from, to int }

func (f *finder) mask(from, to int) {
	if from < to {
		f.spans = append(f.spans, span{from, to})
	}
}

// masked returns the text with each run of overlapping spans replaced.
func (f *finder) masked() string {
	if len(f.spans) == 0 {
		return f.s
	}
	slices.SortFunc(f.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to))
	})
	var out strings.Builder
	out.Grow(len(f.s))
	end := 0
	for _, sp := range f.spans {
		if sp.from >= end {
			out.WriteString(f.s[end:sp.from])
			out.WriteString(Mask)
		}
		end = max(end, sp.to)
	}
	out.WriteString(f.s[end:])
	return out.String()
}

// keyBlocks masks PEM and PGP private keys, from the line that begins one to the one that ends it or, where that is
// missing, to the end of the text.
func (f *finder) keyBlocks() {
	const begin, end = "-----BEGIN ", "-----END "
	for at := 0; ; {
		i := strings.Index(f.s[at:], begin)
		if i < 0 {
			return
		}
		from := at + i
		at = from + len(begin)
		label := f.s[at:min(at+64, len(f.s))]
		if stop := strings.Index(label, "-----"); stop < 0 || !strings.Contains(label[:stop], "PRIVATE KEY") {
			continue
		}
		to := len(f.s)
		if j := strings.Index(f.s[at:], end); j >= 0 {
			to = at + j + len(end)
			if k := strings.Index(f.s[to:min(to+64, len(f.s))], "-----"); k >= 0 {
				to += k + len("-----")
			}
		}
		f.mask(from, to)
		at = to
	}
}

// userinfo masks the password in scheme://user:password@host, and a lone user of http, which is a token.
func (f *finder) userinfo() {
	for at := 0; ; {
		i := strings.Index(f.s[at:], "://")
		if i < 0 {
			return
		}
		start := at + i
		from := start + len("://")
		web := strings.HasSuffix(f.s[max(0, start-5):start], "http") || strings.HasSuffix(f.s[max(0, start-5):start], "https")
		// Database URLs often have passwords with / or # in them, which a web URL would not survive.
		stops := " \t\r\n\"'`<>|;"
		if web {
			stops += "/?#"
		}
		to := from
		for to < len(f.s) && strings.IndexByte(stops, f.s[to]) < 0 && !strings.HasPrefix(f.s[to:], "://") {
			to++
		}
		at = to
		sign := strings.LastIndexByte(f.s[from:to], '@')
		if sign < 0 {
			continue
		}
		info := f.s[from : from+sign]
		if colon := strings.IndexByte(info, ':'); colon >= 0 {
			if !reference(info[colon+1:]) {
				f.mask(from+colon+1, from+sign)
			}
		} else if web && !reference(info) && info != "git" {
			f.mask(from, from+sign)
		}
	}
}
