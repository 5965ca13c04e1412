package redact

import "strings"

// shape is a token that its issuer made recognizable.
type shape struct {
	prefix string
	min    int  // bytes after the prefix
	upper  bool // capitals and digits only, and exactly min of them
	digit  bool // at least one digit: the prefix occurs in words too
	dots   int  // how many dots must be in it at least; with 0 a dot ends it
}

var shapes = []shape{
	{prefix: "sk-", min: 20, digit: true},                                                       // OpenAI, Anthropic, OpenRouter
	{prefix: "sk_live_", min: 16}, {prefix: "sk_test_", min: 16}, {prefix: "rk_live_", min: 16}, // Stripe
	{prefix: "ghp_", min: 20}, {prefix: "gho_", min: 20}, {prefix: "ghu_", min: 20}, {prefix: "ghs_", min: 20},
	{prefix: "ghr_", min: 20}, {prefix: "github_pat_", min: 20},
	{prefix: "xoxb-", min: 10}, {prefix: "xoxp-", min: 10}, {prefix: "xoxa-", min: 10}, {prefix: "xoxr-", min: 10},
	{prefix: "xoxs-", min: 10}, {prefix: "xoxe-", min: 10}, {prefix: "xapp-", min: 10, digit: true}, // Slack
	{prefix: "AKIA", min: 16, upper: true}, {prefix: "ASIA", min: 16, upper: true}, // AWS
	{prefix: "AIza", min: 30}, {prefix: "ya29.", min: 20}, {prefix: "GOCSPX-", min: 20}, // Google
	{prefix: "glpat-", min: 16}, {prefix: "gldt-", min: 16}, {prefix: "glrt-", min: 16}, // GitLab
	{prefix: "npm_", min: 30}, {prefix: "pypi-", min: 40}, {prefix: "dckr_pat_", min: 20},
	{prefix: "hf_", min: 20}, {prefix: "gsk_", min: 20, digit: true}, {prefix: "xai-", min: 20, digit: true},
	{prefix: "r8_", min: 20}, {prefix: "tvly-", min: 16, digit: true}, {prefix: "nvapi-", min: 20, digit: true},
	{prefix: "dop_v1_", min: 20}, {prefix: "shpat_", min: 20}, {prefix: "lin_api_", min: 20},
	{prefix: "SG.", min: 30, dots: 1}, // SendGrid
	{prefix: "eyJ", min: 20, dots: 2}, // a JSON web token
	{prefix: "AGE-SECRET-KEY-1", min: 20},
}

// tokens masks what has the shape of a token.
func (f *finder) tokens() {
	for _, sh := range shapes {
		for at := 0; ; {
			i := strings.Index(f.s[at:], sh.prefix)
			if i < 0 {
				break
			}
			from := at + i
			at = from + len(sh.prefix)
			if from > 0 && f.inWord(from-1, sh) {
				continue
			}
			to, dots, digits := at, 0, 0
			for ; to < len(f.s); to++ {
				c := f.s[to]
				if c == '.' && sh.dots > 0 && to+1 < len(f.s) && isTokenByte(f.s[to+1]) {
					dots++
					continue
				}
				if !isTokenByte(c) {
					break
				}
				if '0' <= c && c <= '9' {
					digits++
				}
			}
			body := f.s[at:to]
			ok := len(body) >= sh.min && dots >= sh.dots && (!sh.digit || digits > 0)
			if sh.upper {
				ok = len(body) == sh.min && strings.ToUpper(body) == body && !strings.ContainsAny(body, "-_")
			}
			if ok {
				f.mask(from, to)
			}
			at = to
		}
	}
}

// isTokenByte reports whether c can be part of a token or a word.
func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// inWord reports whether s[i], before a token's prefix, makes it the middle of a word: disk-..., but not \nsk-..., where
// the letter is that of an escape.
func (f *finder) inWord(i int, sh shape) bool {
	c := f.s[i]
	if c == '-' || c == '_' {
		return sh.digit
	}
	if i > 0 && f.s[i-1] == '\\' && strings.IndexByte("nrt", c) >= 0 {
		return false
	}
	return isTokenByte(c)
}
