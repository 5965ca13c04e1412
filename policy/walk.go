package policy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// shell is one shell process of the text: the outermost, or a subshell with its own copy of the state.
type shell struct {
	*checker
	vars    map[string]variable
	funcs   map[string]*syntax.Stmt
	aliases map[string]string
	params  []string // "$@", nil where not known
	cwd     string   // unknown is the mark
	oldCwd  string

	active   []string // functions that are being called
	pick     int      // which of the alternatives of variables is looked at
	most     int      // the greatest number of them that was seen
	nested   int      // texts inside texts
	remote   bool     // the commands run on another machine
	asRoot   bool     // they run with root's home: sudo -i
	source   string   // the text that is walked
	upstream string   // what feeds the command, as written
	feed     string   // what it prints
	unfixed  bool     // upstream depends on variables
}

func newShell(c *checker) *shell {
	sh := &shell{
		checker: c, vars: map[string]variable{}, funcs: map[string]*syntax.Stmt{}, aliases: map[string]string{},
		cwd: c.ctx.Cwd, oldCwd: unknown,
	}
	if sh.cwd == "" {
		sh.cwd = unknown
	}
	return sh
}

// fork returns a subshell.
func (sh *shell) fork() *shell {
	sh.spend(1 + (len(sh.vars)+len(sh.funcs)+len(sh.aliases))/8)
	sub := *sh
	sub.vars, sub.funcs, sub.aliases = maps.Clone(sh.vars), maps.Clone(sh.funcs), maps.Clone(sh.aliases)
	return &sub
}

// maybe runs f, whose assignments may or may not take place.
func (sh *shell) maybe(f func()) {
	sh.spend(1 + len(sh.vars)/8)
	before := maps.Clone(sh.vars)
	cwd := sh.cwd
	f()
	for name, was := range before {
		now := sh.vars[name]
		if slices.Equal(was.alts, now.alts) || now.list != nil || was.list != nil {
			continue
		}
		alts := slices.Clone(now.alts)
		for _, alt := range was.alts {
			if !slices.Contains(alts, alt) && len(alts) < maxAlts {
				alts = append(alts, alt)
			}
		}
		sh.vars[name] = variable{alts: alts}
	}
	if sh.cwd == unknown && cwd != unknown {
		sh.cwd = cwd
	}
}

func (sh *shell) stmts(list []*syntax.Stmt, in string) string {
	var out strings.Builder
	for _, stmt := range list {
		if !sh.spend(1) {
			return unknown
		}
		got := sh.stmt(stmt, in)
		if out.Len() < maxValue {
			out.WriteString(got)
		}
	}
	return sh.limit(out.String())
}

// stmt walks a statement and returns what it prints.
func (sh *shell) stmt(stmt *syntax.Stmt, in string) string {
	if stmt == nil || !sh.spend(1) {
		return unknown
	}
	r := sh.redirects(stmt, in)
	var out string
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		out = sh.call(stmt, cmd, r)
	case nil:
		sh.judge(&command{sh: sh, stmt: stmt, redirects: r})
	default:
		sh.redirected(stmt, r)
		out = sh.compound(cmd, r.in)
	}
	if r.out == "" {
		return out
	}
	sh.store(r.out, out, r.appends)
	return ""
}

// compound walks everything that is no simple command.
func (sh *shell) compound(cmd syntax.Command, in string) string {
	switch cmd := cmd.(type) {
	case *syntax.BinaryCmd:
		return sh.binary(cmd, in)
	case *syntax.Subshell:
		return sh.fork().stmts(cmd.Stmts, in)
	case *syntax.Block:
		return sh.stmts(cmd.Stmts, in)
	case *syntax.IfClause:
		return sh.ifClause(cmd, in)
	case *syntax.WhileClause:
		out := sh.stmts(cmd.Cond, in)
		sh.maybe(func() { out += sh.stmts(cmd.Do, in) })
		return out
	case *syntax.ForClause:
		return sh.forClause(cmd, in)
	case *syntax.CaseClause:
		sh.value(cmd.Word)
		var out string
		for _, item := range cmd.Items {
			for _, p := range item.Patterns {
				sh.value(p)
			}
			if !sh.spend(1) {
				break
			}
			sh.maybe(func() { out += sh.stmts(item.Stmts, in) })
		}
		return sh.limit(out)
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			return sh.stmt(cmd.Stmt, in)
		}
	case *syntax.CoprocClause:
		return sh.fork().stmt(cmd.Stmt, in)
	case *syntax.FuncDecl:
		sh.function(cmd)
	case *syntax.DeclClause:
		sh.assign(cmd.Args)
	default: // [[ ]], (( )), let
		sh.substitutions(cmd)
	}
	return ""
}

func (sh *shell) binary(cmd *syntax.BinaryCmd, in string) string {
	if cmd.Op == syntax.AndStmt || cmd.Op == syntax.OrStmt {
		out := sh.stmt(cmd.X, in)
		if setsOnly(cmd.Y) {
			sh.maybe(func() { out += sh.stmt(cmd.Y, in) })
		} else {
			out += sh.stmt(cmd.Y, in)
		}
		return out
	}
	return sh.pipeline(cmd, in)
}

// pipeline walks a | b | c, whose tree is as deep as it is long.
func (sh *shell) pipeline(cmd *syntax.BinaryCmd, in string) string {
	parts := []*syntax.Stmt{cmd.Y}
	for {
		left, ok := cmd.X.Cmd.(*syntax.BinaryCmd)
		if !ok || left.Op != syntax.Pipe && left.Op != syntax.PipeAll || len(cmd.X.Redirs) > 0 {
			parts = append(parts, cmd.X)
			break
		}
		parts = append(parts, left.Y)
		cmd = left
	}
	upstream, unfixed := sh.upstream, sh.unfixed
	for i := len(parts) - 1; i >= 0 && sh.spend(1); i-- {
		part := sh.fork()
		part.upstream, part.unfixed = upstream, unfixed
		in = part.stmt(parts[i], in)
		if len(upstream) < maxSize/8 {
			upstream += sh.printed(parts[i]) + " | "
		} else {
			unfixed = true
		}
		unfixed = unfixed || varies(parts[i])
	}
	return in
}

// setsOnly reports whether a statement only assigns.
func setsOnly(stmt *syntax.Stmt) bool {
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		return len(cmd.Args) == 0
	case *syntax.DeclClause, *syntax.Block:
		return true
	}
	return false
}

func (sh *shell) ifClause(cmd *syntax.IfClause, in string) (out string) {
	for c := cmd; c != nil && sh.spend(1); c = c.Else {
		sh.stmts(c.Cond, in)
		sh.maybe(func() { out += sh.stmts(c.Then, in) })
	}
	return sh.limit(out)
}

func (sh *shell) forClause(cmd *syntax.ForClause, in string) (out string) {
	if iter, ok := cmd.Loop.(*syntax.WordIter); ok && iter.Name != nil {
		var alts []string
		items := sh.params
		if iter.InPos.IsValid() || len(iter.Items) > 0 {
			items = nil
			for _, f := range sh.expand(iter.Items) {
				items = append(items, f.text)
			}
		} else if items == nil {
			items = []string{unknown}
		}
		for _, item := range items {
			// A pattern stands for the names that it matches: not for an empty one.
			if len(alts) < maxAlts && !slices.Contains(alts, item) {
				alts = append(alts, item)
			}
		}
		if len(alts) == 0 {
			return ""
		}
		sh.vars[iter.Name.Value] = variable{alts: alts}
	} else {
		sh.substitutions(cmd.Loop)
	}
	sh.maybe(func() { out = sh.stmts(cmd.Do, in) })
	return out
}

// function notes a function and looks at its body at once: a later text of the session may call it.
func (sh *shell) function(cmd *syntax.FuncDecl) {
	if cmd.Name == nil || cmd.Body == nil {
		return
	}
	name := cmd.Name.Value
	if multiplies(cmd.Body, name) {
		sh.report("fork-bomb", sh.printed(cmd), "", true)
	}
	sh.funcs[name] = cmd.Body
	inner := sh.fork()
	inner.params, inner.active = nil, append(slices.Clip(inner.active), name)
	inner.stmt(cmd.Body, "")
}

// multiplies reports whether a function's body starts the function again more than once, or beside itself.
func multiplies(body *syntax.Stmt, name string) bool {
	calls, beside := 0, false
	walkTree(body, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			beside = beside || n.Background && callsIt(n, name)
		case *syntax.BinaryCmd:
			if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
				beside = beside || callsIt(n.X, name) && callsIt(n.Y, name)
			}
		case *syntax.CallExpr:
			if len(n.Args) > 0 && n.Args[0].Lit() == name {
				calls++
			}
		}
		return true
	})
	return calls > 0 && beside
}

// callsIt reports whether the statement itself is a call of name, or a pipeline or block of it.
func callsIt(stmt *syntax.Stmt, name string) bool {
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		return len(cmd.Args) > 0 && cmd.Args[0].Lit() == name
	case *syntax.BinaryCmd:
		return callsIt(cmd.X, name) || callsIt(cmd.Y, name)
	case *syntax.Block:
		return slices.ContainsFunc(cmd.Stmts, func(s *syntax.Stmt) bool { return callsIt(s, name) })
	case *syntax.Subshell:
		return slices.ContainsFunc(cmd.Stmts, func(s *syntax.Stmt) bool { return callsIt(s, name) })
	}
	return false
}

// assign follows assignments.
func (sh *shell) assign(list []*syntax.Assign) {
	for _, a := range list {
		if a.Name == nil {
			sh.value(a.Value)
			continue
		}
		name := a.Name.Value
		switch {
		case a.Naked:
		case a.Array != nil:
			var list []string
			for _, elem := range a.Array.Elems {
				if elem.Value != nil {
					for _, f := range sh.expand([]*syntax.Word{elem.Value}) {
						list = append(list, f.text)
					}
				}
			}
			if a.Append {
				list = append(slices.Clone(sh.vars[name].list), list...)
			}
			sh.vars[name] = variable{list: list[:min(len(list), maxFields)]}
		case a.Index != nil:
			v := sh.vars[name]
			sh.vars[name] = variable{list: append(slices.Clone(v.list), sh.value(a.Value))}
		default:
			sh.setTo(name, sh.values(a.Value), a.Append)
		}
	}
}

// values returns a word's value for each alternative of the variables in it.
func (sh *shell) values(w *syntax.Word) []string {
	pick, most := sh.pick, sh.most
	defer func() { sh.pick, sh.most = pick, most }()
	var alts []string
	sh.most = 1
	for sh.pick = 0; sh.pick < sh.most && sh.spend(1); sh.pick++ {
		if v := sh.value(w); !slices.Contains(alts, v) {
			alts = append(alts, v)
		}
	}
	return alts
}

func (sh *shell) setTo(name string, alts []string, appends bool) {
	if appends {
		old, _ := sh.lookup(name)
		joined := make([]string, len(alts))
		for i, alt := range alts {
			joined[i] = sh.limit(old + alt)
		}
		alts = joined
	}
	sh.vars[name] = variable{alts: alts}
}

// redirects are the redirections of a statement.
type redirects struct {
	in      string   // what stands on standard input
	out     string   // the absolute path that standard output goes to
	appends bool     // with >>
	writes  []string // all paths that are opened for writing
	reads   []string
}

func (sh *shell) redirects(stmt *syntax.Stmt, in string) redirects {
	r := redirects{in: in}
	for _, redir := range stmt.Redirs {
		switch redir.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			r.in = sh.hereDocument(redir)
			continue
		case syntax.WordHdoc:
			r.in = sh.value(redir.Word) + "\n"
			continue
		}
		target := sh.value(redir.Word)
		if redir.Op == syntax.DplIn || redir.Op == syntax.DplOut {
			if strings.Trim(target, "0123456789-") == "" || !strings.Contains(target, "/") {
				continue
			}
		}
		file := sh.abs(target)
		if redir.Op == syntax.RdrIn {
			r.reads = append(r.reads, file)
			r.in = sh.content(file)
			continue
		}
		r.writes = append(r.writes, file)
		if redir.N == nil || redir.N.Value == "1" {
			r.out, r.appends = file, redir.Op == syntax.AppOut || redir.Op == syntax.AppAll
		}
	}
	return r
}

func (sh *shell) hereDocument(redir *syntax.Redirect) string {
	if redir.Hdoc == nil {
		return ""
	}
	if isCut(redir.Hdoc) {
		return cut
	}
	if _, plain := redir.Word.Parts[0].(*syntax.Lit); !plain || len(redir.Word.Parts) != 1 || strings.Contains(redir.Word.Lit(), `\`) {
		var b strings.Builder // quoted: nothing is expanded
		for _, part := range redir.Hdoc.Parts {
			if l, ok := part.(*syntax.Lit); ok {
				b.WriteString(l.Value)
			}
		}
		return sh.whole(b.String())
	}
	var b strings.Builder
	for _, part := range redir.Hdoc.Parts {
		b.WriteString(sh.part(part, false, true))
	}
	return sh.whole(b.String())
}

// whole lets a here-document be longer than other values: it may be a script.
func (sh *shell) whole(s string) string {
	sh.spend(len(s)>>8 + 1)
	return s
}

// abs returns p as a clean absolute path; what is not known stays a mark in it.
func (sh *shell) abs(p string) string {
	switch {
	case p == "":
		return sh.cwd
	case strings.HasPrefix(p, "/"):
	case strings.ContainsAny(p[:min(3, len(p))], marks) && strings.IndexAny(p, marks) == 0:
		return p // it may be absolute
	case sh.cwd == unknown:
		return unknown + "/" + path.Clean(p)
	default:
		p = sh.cwd + "/" + p
	}
	p = path.Clean(p)
	for _, dir := range []string{"etc", "tmp", "var"} {
		if within(p, "/private/"+dir) { // macOS
			p = strings.TrimPrefix(p, "/private")
		}
	}
	return p
}

// content returns what is known of a file's content.
func (sh *shell) content(file string) string {
	if c, ok := sh.files[file]; ok {
		return c
	}
	if sh.spend(4); holdsSecrets(sh.ctx, file) {
		return secret
	}
	return unknown
}

// store notes what the text writes to a file.
func (sh *shell) store(file, content string, appends bool) {
	if appends {
		content = sh.files[file] + content
	}
	if len(content) > maxSize {
		content = cut + marksOf(content)
	}
	if _, has := sh.files[file]; has || len(sh.files) < maxAlts {
		sh.files[file] = content
	}
}

// printed returns a node as it is written in the text.
func (sh *shell) printed(node syntax.Node) string {
	if node == nil {
		return ""
	}
	from, to := int(node.Pos().Offset()), int(node.End().Offset())
	if from < 0 || to > len(sh.source) || from >= to {
		return ""
	}
	return strings.TrimSpace(sh.source[from:to])
}

// walkTree is syntax.Walk that goes into braces too, which stand in words that were split.
func walkTree(node syntax.Node, visit func(syntax.Node) bool) {
	syntax.Walk(node, func(n syntax.Node) bool {
		if braces, ok := n.(*syntax.BraceExp); ok {
			for _, word := range braces.Elems {
				walkTree(word, visit)
			}
			return false
		}
		return visit(n)
	})
}

// varies reports whether a node depends on variables.
func varies(node syntax.Node) bool {
	found := false
	walkTree(node, func(n syntax.Node) bool {
		if _, ok := n.(*syntax.ParamExp); ok {
			found = true
		}
		return !found
	})
	return found
}
