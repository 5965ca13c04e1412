package policy

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

// A value is the text that an expansion would give, in which what is not known is one of these marks. They are
// characters that Unicode keeps out of texts, and ordinary ones for the parser, so that they go through strings, files
// and texts inside texts with nothing else to carry them.
const (
	unknown  = "\uFDD0"
	fetched  = "\uFDD1" // unknown, and from the network
	secret   = "\uFDD2" // the content of a file of secrets
	decoded  = "\uFDD3" // unknown, from a decoder: base64 -d
	nonEmpty = "\uFDD4" // unknown but not empty
	shellOut = "\uFDD5" // what an interactive shell prints
	cut      = "\uFDD6" // a here-document that was too long to be read
	marks    = unknown + fetched + secret + decoded + nonEmpty + shellOut + cut
)

const (
	maxValue  = 16 << 10 // bytes of one value
	maxFields = 256      // that a word becomes
	maxAlts   = 64       // values that a variable may have
)

// markStart is how every mark begins in UTF-8.
const markStart = "\xef\xb7"

func known(s string) bool { return !strings.Contains(s, markStart) || !strings.ContainsAny(s, marks) }

// marksOf returns the marks in s, each once.
func marksOf(s string) string {
	if !strings.Contains(s, markStart) {
		return ""
	}
	var b strings.Builder
	for _, m := range marks {
		if strings.ContainsRune(s, m) {
			b.WriteRune(m)
		}
	}
	return b.String()
}

// variable is what a variable may hold: one of several texts, or a list.
type variable struct {
	alts []string
	list []string // of an array or the positional parameters; nil for others
}

// field is one argument after expansion.
type field struct {
	text string
	word *syntax.Word // where it comes from, nil for made ones
}

// expander turns words into fields.
type expander struct {
	sh     *shell
	fields []field
	cur    strings.Builder
	open   bool // cur is a field even when empty
	word   *syntax.Word
}

// expand returns the fields of words.
func (sh *shell) expand(words []*syntax.Word) []field {
	e := &expander{sh: sh}
	for _, w := range words {
		for _, parts := range sh.braces(w) {
			e.word = w
			e.parts(parts)
			e.end()
			if !sh.spend(1) {
				return e.fields
			}
		}
	}
	return e.fields
}

// value returns a word as one text, without splitting, as an assignment has it.
func (sh *shell) value(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	for i, part := range w.Parts {
		b.WriteString(sh.part(part, i == 0, false))
	}
	return sh.limit(b.String())
}

// limit keeps a value from growing without end.
func (sh *shell) limit(s string) string {
	sh.spend(len(s)>>8 + 1)
	if len(s) > maxValue {
		return strings.ToValidUTF8(s[:maxValue], "") + unknown + marksOf(s)
	}
	return s
}

func (e *expander) parts(parts []syntax.WordPart) {
	for i, part := range parts {
		switch part := part.(type) {
		case *syntax.ParamExp:
			if list, ok := e.sh.listOf(part); ok {
				e.list(list)
				continue
			}
			e.split(e.sh.part(part, false, false))
		case *syntax.CmdSubst:
			e.split(e.sh.part(part, false, false))
		case *syntax.DblQuoted:
			if len(part.Parts) == 1 {
				if p, ok := part.Parts[0].(*syntax.ParamExp); ok {
					if list, ok := e.sh.listOf(p); ok {
						e.list(list)
						continue
					}
				}
			}
			e.open = true
			e.cur.WriteString(e.sh.part(part, false, false))
		default:
			e.open = true
			e.cur.WriteString(e.sh.part(part, i == 0, false))
		}
	}
}

// split adds an unquoted expansion, which white space divides.
func (e *expander) split(s string) {
	for i := 0; i < len(s) && len(e.fields) < maxFields; {
		n := strings.IndexAny(s[i:], " \t\n")
		switch {
		case n == 0:
			e.end()
			i++
		case n < 0:
			e.cur.WriteString(s[i:])
			i = len(s)
		default:
			e.cur.WriteString(s[i : i+n])
			i += n
		}
	}
}

func (e *expander) list(list []string) {
	for i, s := range list {
		if i > 0 {
			e.end()
		}
		e.open = true
		e.cur.WriteString(s)
	}
}

func (e *expander) end() {
	if e.cur.Len() > 0 || e.open {
		e.fields = append(e.fields, field{e.sh.limit(e.cur.String()), e.word})
	}
	e.cur.Reset()
	e.open = false
}

// braces returns the words that {a,b} makes of one.
func (sh *shell) braces(w *syntax.Word) [][]syntax.WordPart {
	sh.spend(1)
	if !syntax.SplitBraces(w) && !slices.ContainsFunc(w.Parts, isBrace) {
		return [][]syntax.WordPart{w.Parts}
	}
	sh.spend(len(w.Parts))
	all := [][]syntax.WordPart{nil}
	for _, part := range w.Parts {
		brace, ok := part.(*syntax.BraceExp)
		if !ok {
			for i := range all {
				all[i] = append(slices.Clip(all[i]), part)
			}
			continue
		}
		if brace.Sequence {
			for i := range all {
				all[i] = append(slices.Clip(all[i]), &syntax.Lit{Value: nonEmpty})
			}
			continue
		}
		var next [][]syntax.WordPart
		for _, head := range all {
			for _, elem := range brace.Elems {
				for _, tail := range sh.braces(elem) {
					if len(next) < maxAlts && sh.spend(1) {
						next = append(next, append(slices.Clone(head), tail...))
					}
				}
			}
		}
		all = next
	}
	return all
}

func isBrace(part syntax.WordPart) bool {
	_, ok := part.(*syntax.BraceExp)
	return ok
}

// part returns the value of a part of a word; first says that a tilde may stand here, quoted that it is in double
// quotes.
func (sh *shell) part(part syntax.WordPart, first, quoted bool) string {
	if !sh.spend(1) {
		return unknown
	}
	switch part := part.(type) {
	case *syntax.Lit:
		return sh.lit(part.Value, first, quoted)
	case *syntax.SglQuoted:
		if part.Dollar {
			return escapes(part.Value)
		}
		return part.Value
	case *syntax.DblQuoted:
		var b strings.Builder
		for _, inner := range part.Parts {
			b.WriteString(sh.part(inner, false, true))
		}
		return b.String()
	case *syntax.ParamExp:
		return sh.param(part)
	case *syntax.CmdSubst:
		inner := sh.fork()
		if file := onlyRead(part.Stmts); file != nil {
			inner.stmts(part.Stmts, "")
			return strings.TrimRight(inner.content(inner.abs(inner.value(file))), "\n")
		}
		return strings.TrimRight(inner.stmts(part.Stmts, ""), "\n")
	case *syntax.ProcSubst:
		inner := sh.fork()
		if part.Op == syntax.CmdOut {
			inner.stmts(part.Stmts, sh.feed)
			return "/dev/fd/out"
		}
		out := inner.stmts(part.Stmts, "")
		sh.fds++
		name := "/dev/fd/63." + strconv.Itoa(sh.fds)
		sh.files[name] = out
		return name
	case *syntax.ArithmExp:
		sh.substitutions(part.X)
		return nonEmpty
	case *syntax.ExtGlob:
		return "*"
	case *syntax.BraceExp: // an assignment does not expand them
		return nonEmpty
	}
	return unknown
}

// onlyRead returns the file of $(<file), or nil.
func onlyRead(stmts []*syntax.Stmt) *syntax.Word {
	if len(stmts) == 1 && stmts[0].Cmd == nil && len(stmts[0].Redirs) == 1 && stmts[0].Redirs[0].Op == syntax.RdrIn {
		return stmts[0].Redirs[0].Word
	}
	return nil
}

// substitutions walks the commands inside an expression.
func (sh *shell) substitutions(node syntax.Node) {
	if node == nil {
		return
	}
	walkTree(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			sh.part(n, false, false)
			return false
		case *syntax.ProcSubst:
			sh.part(n, false, false)
			return false
		}
		return sh.spend(1)
	})
}

func (sh *shell) lit(s string, first, quoted bool) string {
	var b strings.Builder
	if first && !quoted && strings.HasPrefix(s, "~") {
		user, rest, _ := strings.Cut(s, "/")
		b.WriteString(sh.tilde(user[1:]))
		if len(user) < len(s) {
			b.WriteByte('/')
		}
		s = rest
	}
	special := ""
	if quoted {
		special = "$`\"\\"
	}
	s = strings.ReplaceAll(s, "\\\n", "")
	shellwords.Unquote(&b, s, special)
	return b.String()
}

func (sh *shell) tilde(user string) string {
	switch user {
	case "":
		return sh.home()
	case "+":
		return sh.cwd
	case "-":
		return sh.oldCwd
	case "root":
		return "/root"
	}
	return "/home/" + user
}

func (sh *shell) home() string {
	if v, ok := sh.vars["HOME"]; ok && len(v.alts) > 0 {
		return v.alts[0]
	}
	switch {
	case sh.asRoot:
		return "/root"
	case sh.remote:
		return remoteHome
	case sh.ctx.Home != "":
		return sh.ctx.Home
	}
	return remoteHome
}

// remoteHome is a home whose path is not known.
const remoteHome = "/home/" + nonEmpty

// lookup returns the value of a plain variable.
func (sh *shell) lookup(name string) (string, bool) {
	if v, ok := sh.vars[name]; ok {
		if len(v.list) > 0 {
			return v.list[0], true
		}
		sh.most = max(sh.most, len(v.alts))
		if len(v.alts) == 0 {
			return "", true
		}
		return v.alts[sh.pick%len(v.alts)], true
	}
	if n, err := strconv.Atoi(name); err == nil {
		switch {
		case n == 0:
			return "bash", true
		case sh.params == nil:
			return unknown, false
		case n <= len(sh.params):
			return sh.params[n-1], true
		}
		return "", true
	}
	switch name {
	case "@", "*":
		if sh.params == nil {
			return unknown, false
		}
		return strings.Join(sh.params, " "), true
	case "#", "?", "$", "!", "-", "RANDOM", "SECONDS", "EPOCHSECONDS", "UID", "EUID", "PPID", "HOSTNAME":
		return nonEmpty, true
	case "HOME":
		return sh.home(), true
	case "PWD":
		return sh.cwd, true
	case "OLDPWD":
		return sh.oldCwd, true
	case "IFS":
		return " ", true
	}
	if sh.remote {
		return unknown, false
	}
	if v, ok := sh.ctx.Env[name]; ok {
		return v, true
	}
	switch name {
	case "USER", "LOGNAME":
		if sh.ctx.Home != "" {
			return path.Base(sh.ctx.Home), true
		}
		return nonEmpty, true
	case "HERMES_HOME":
		return sh.ctx.hermesHome(), true
	case "TMPDIR":
		if temp := sh.ctx.temp(); len(temp) > 0 {
			return temp[0], true
		}
	}
	return unknown, false
}

// listOf returns the elements of "$@" and "${array[@]}".
func (sh *shell) listOf(p *syntax.ParamExp) ([]string, bool) {
	if p.Param == nil || p.Exp != nil || p.Length || p.Excl || p.Slice != nil || p.Repl != nil {
		return nil, false
	}
	if p.Param.Value == "@" || p.Param.Value == "*" {
		return sh.params, sh.params != nil
	}
	if w, ok := p.Index.(*syntax.Word); ok && (w.Lit() == "@" || w.Lit() == "*") {
		v, ok := sh.vars[p.Param.Value]
		return v.list, ok && v.list != nil
	}
	return nil, false
}

// param returns the value of a parameter expansion.
func (sh *shell) param(p *syntax.ParamExp) string {
	if p.Param == nil {
		return unknown
	}
	v, set := sh.lookup(p.Param.Value)
	if p.Index != nil {
		v, set = sh.element(p, v, set)
	}
	switch {
	case p.Length:
		if known(v) {
			return strconv.Itoa(len(v))
		}
		return nonEmpty
	case p.Excl:
		if set && known(v) {
			v, _ = sh.lookup(v)
			return v
		}
		return unknown
	case p.Slice != nil:
		return sh.slice(v, p.Slice)
	case p.Repl != nil:
		orig, with := sh.value(p.Repl.Orig), sh.value(p.Repl.With)
		if !known(v) || !known(orig) || orig == "" || strings.ContainsAny(orig, "*?[") {
			return unknown + marksOf(v)
		}
		n := 1
		if p.Repl.All {
			n = -1
		}
		return sh.limit(strings.Replace(v, orig, with, n))
	case p.Exp != nil:
		return sh.operator(p.Exp, p.Param.Value, v, set)
	}
	return v
}

// element returns ${name[i]}.
func (sh *shell) element(p *syntax.ParamExp, v string, set bool) (string, bool) {
	list := sh.vars[p.Param.Value].list
	w, ok := p.Index.(*syntax.Word)
	if !ok {
		return unknown, false
	}
	index := sh.value(w)
	switch n, err := strconv.Atoi(index); {
	case index == "@" || index == "*":
		if list == nil {
			return v, set
		}
		return strings.Join(list, " "), true
	case err != nil:
		return unknown, false
	case n < 0 && n+len(list) >= 0 && len(list) > 0:
		return list[n+len(list)], true
	case n >= 0 && n < len(list):
		return list[n], true
	case n == 0:
		return v, set
	}
	return "", list != nil
}

func (sh *shell) slice(v string, s *syntax.Slice) string {
	number := func(x syntax.ArithmExpr, otherwise int) (int, bool) {
		if x == nil {
			return otherwise, true
		}
		if u, ok := x.(*syntax.UnaryArithm); ok && u.Op == syntax.Minus {
			if w, ok := u.X.(*syntax.Word); ok {
				n, err := strconv.Atoi(sh.value(w))
				return -n, err == nil
			}
		}
		if w, ok := x.(*syntax.Word); ok {
			n, err := strconv.Atoi(sh.value(w))
			return n, err == nil
		}
		return 0, false
	}
	from, ok1 := number(s.Offset, 0)
	length, ok2 := number(s.Length, len(v))
	if !known(v) || !ok1 || !ok2 {
		return unknown + marksOf(v)
	}
	if from < 0 {
		from += len(v)
	}
	from = min(max(from, 0), len(v))
	end := from + length
	if length < 0 {
		end = len(v) + length
	}
	return v[from:min(max(end, from), len(v))]
}

// operator applies ${name OP word}.
func (sh *shell) operator(x *syntax.Expansion, name, v string, set bool) string {
	arg := sh.value(x.Word)
	switch x.Op {
	case syntax.DefaultUnset, syntax.DefaultUnsetOrNull:
		if !set || v == "" {
			return arg
		}
		return v
	case syntax.AssignUnset, syntax.AssignUnsetOrNull:
		if !set || v == "" {
			sh.vars[name] = variable{alts: []string{arg}}
			return arg
		}
		return v
	case syntax.ErrorUnset, syntax.ErrorUnsetOrNull:
		if !set {
			return nonEmpty
		}
		return v
	case syntax.AlternateUnset, syntax.AlternateUnsetOrNull:
		if set && v == "" {
			return ""
		}
		return arg
	case syntax.UpperAll:
		return strings.ToUpper(v)
	case syntax.LowerAll:
		return strings.ToLower(v)
	}
	if !known(v) || !known(arg) {
		return unknown + marksOf(v)
	}
	prefix := x.Op == syntax.RemSmallPrefix || x.Op == syntax.RemLargePrefix
	suffix := x.Op == syntax.RemSmallSuffix || x.Op == syntax.RemLargeSuffix
	switch {
	case prefix && arg == "*/":
		return path.Base(v)
	case suffix && arg == "/*" && strings.Contains(v, "/"):
		return v[:strings.LastIndexByte(v, '/')]
	case strings.ContainsAny(arg, "*?["):
		return unknown
	case prefix:
		return strings.TrimPrefix(v, arg)
	case suffix:
		return strings.TrimSuffix(v, arg)
	}
	return unknown
}

// escapes decodes the backslashes of $'...', printf and echo -e.
func escapes(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abefnrtv`, s[i]); at >= 0 {
			b.WriteByte("\a\b\x1b\f\n\r\t\v"[at])
			continue
		}
		digits, base := 0, 8
		switch {
		case s[i] == 'x':
			digits, base = 2, 16
		case s[i] == 'u':
			digits, base = 4, 16
		case s[i] == 'U':
			digits, base = 8, 16
		case s[i] >= '0' && s[i] <= '7':
			digits, i = 3, i-1
			if s[i+1] == '0' {
				digits = 4
			}
		}
		end := i + 1
		for end < len(s) && end < i+1+digits && isDigit(s[end], base) {
			end++
		}
		n, err := strconv.ParseUint(s[i+1:end], base, 32)
		if digits == 0 || err != nil {
			b.WriteByte(s[max(i, 0)])
			continue
		}
		b.WriteString(clean(rune(n)))
		i = end - 1
	}
	return b.String()
}

func isDigit(c byte, base int) bool {
	if base == 8 {
		return c >= '0' && c <= '7'
	}
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// clean returns a character that a text decodes to, unless it is one of our marks or none at all.
func clean(r rune) string {
	if r == 0 || strings.ContainsRune(marks, r) {
		return ""
	}
	return string(r)
}
