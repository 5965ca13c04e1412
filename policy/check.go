package policy

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

const (
	maxSize     = 24 << 10 // bytes of one text that are parsed, without its long here-documents
	maxParsed   = 48 << 10 // bytes that are parsed for one check, texts inside texts included
	maxSteps    = 12000    // commands, words and parts of words that are looked at
	maxNested   = 8        // bash -c 'bash -c ...', eval, functions
	maxFindings = 32
	maxWhere    = 200 // bytes of a text that is shown
)

// Check says whether command, a bash text, may run. It never panics and takes at most some 50 ms: a text that is too
// long or too involved for that is asked about, and so is one that bash would not parse.
func Check(command string, ctx Context) Decision {
	c := &checker{ctx: ctx, steps: maxSteps, parse: maxParsed, seen: map[Finding]bool{}, files: map[string]string{}, kinds: map[string]judged{}}
	sh := newShell(c)
	if pattern, ok := ctx.denies(command); ok {
		c.add(Finding{Rule: denied, Action: Block, Reason: "the pattern " + pattern, Where: command, Command: shortenTo(command)})
	}
	sh.text(command, "")
	if c.steps <= 0 || c.more {
		c.doubt("too-complex", command)
	}
	return ctx.decide(c.found)
}

// checker is what is the same everywhere in one check.
type checker struct {
	ctx   Context
	steps int // that are left
	parse int // bytes that may still be parsed
	found []Finding
	seen  map[Finding]bool
	kinds map[string]judged // of paths
	files map[string]string // what the text itself has written, by absolute path
	fds   int               // process substitutions so far
	more  bool              // there are findings that are not in found
}

// spend takes n steps and reports whether there are any left.
func (c *checker) spend(n int) bool {
	c.steps -= n
	return c.steps > 0
}

// add notes a finding once. The last place is kept for one that blocks, or for the one that says that there are more.
func (c *checker) add(f Finding) {
	f.Where = shorten(f.Where)
	if c.seen[f] {
		return
	}
	c.seen[f] = true
	switch last := f.Action == Block || f.Rule == "too-complex"; {
	case len(c.found) < maxFindings-1, last && len(c.found) < maxFindings:
		c.found = append(c.found, f)
	case f.Action == Block && c.found[maxFindings-1].Action != Block:
		c.found[maxFindings-1] = f
	default:
		c.more = true
	}
}

// doubt notes that the text itself is the trouble.
func (c *checker) doubt(rule, text string) {
	action, reason := c.ctx.action(rule, nil)
	if action != Allow {
		c.add(Finding{Rule: rule, Action: action, Reason: reason, Where: text, Command: text, Fixed: len(text) <= maxSize})
	}
}

func shorten(s string) string {
	if len(s) <= maxWhere {
		return s
	}
	return strings.ToValidUTF8(s[:maxWhere], "") + "…"
}

// text walks a command text in the shell sh; in is what it reads on its standard input.
func (sh *shell) text(command, in string) (out string) {
	if sh.nested >= maxNested || !sh.spend(1) {
		sh.steps = min(sh.steps, 0)
		return unknown
	}
	body := command
	if len(command) > maxSize {
		body = cutHeredocs(command)
	}
	sh.parse -= len(body)
	if len(body) > maxSize || sh.parse < 0 {
		sh.doubt("too-complex", command)
		return unknown
	}
	if shellwords.TooDeep(body) {
		sh.doubt("too-complex", command)
		return unknown
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(body), "")
	if err != nil || len(body) != len(command) && !cutsHold(file, body) {
		sh.doubt("unparseable", command)
		return unknown
	}
	source, upstream := sh.source, sh.upstream
	sh.source, sh.nested = body, sh.nested+1
	out = sh.stmts(file.Stmts, in)
	sh.source, sh.upstream, sh.nested = source, upstream, sh.nested-1
	return out
}
