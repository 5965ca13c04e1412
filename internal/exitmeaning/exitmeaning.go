// Package exitmeaning says what an exit code means for the command that decided it.
//
// `grep` that finds nothing exits 1, and so does a `grep` that an agent believes to have failed. The few words "no
// match" beside the code save it a wrong turn. They help only while they are true, so this package reads the syntax
// tree of the command, not its text: a quoted `|` is data, `sudo env X=1 grep` is grep, and of `a | b` the last part
// decides. Where more than one command can have decided and they do not mean the same, it says nothing.
//
// The rules of the walk, in the order in which a shell has them: the last command of a list decides, under `set -e` any
// of them; the last of a pipeline, under `pipefail` any of them; of `a || b` it is b, of `a && b` either, but commands
// that only set the stage (cd, export, echo: see table.go) are taken to have worked, since they complain themselves
// when they have not. `!` turns a meaning into its opposite, so it has none.
package exitmeaning

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

const (
	maxSize  = 32 << 10 // bytes of command text that are parsed: some 5 ms, some 25 at worst
	maxShell = 4        // bash -c "bash -c ..."
)

// Signal says what it mostly means that a shell died of a signal (Linux's number); "" where nothing is to be said.
func Signal(n int) string { return signals[n] }

// Meaning returns what code means for the command that decided it, in a few words without a full stop, or "" where that
// is not known: code 0, text that does not parse or is longer than 32 KiB, a command whose name is not literal. It is
// meant for codes that the command produced itself (cause exited or signal), not for a timeout's 124 or an interrupt's
// 130.
func Meaning(command string, code int) string {
	return meaning(command, code, flags{}, 0)
}

func meaning(command string, code int, set flags, shells int) string {
	if code <= 0 || code > 255 || len(command) > maxSize || shells > maxShell || shellwords.TooDeep(command) {
		return ""
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return ""
	}
	w := &walk{code: code, shells: shells, functions: map[string]bool{}}
	syntax.Walk(file, w.survey)
	if w.silent {
		return ""
	}
	sh := &shell{walk: w, flags: set}
	found := sh.list(file.Stmts)
	if sh.left || found.mixed {
		return ""
	}
	return found.text
}

// verdict is what is known about the commands that can have ended with the code.
type verdict struct {
	any   bool   // there is such a command
	text  string // what the code means for all of them
	mixed bool   // it means different things, or nothing known for one of them
}

var unknown = verdict{any: true, mixed: true}

// cannot is the verdict on a command that never fails.
var cannot = verdict{}

func known(text string) verdict {
	if text == "" {
		return unknown
	}
	return verdict{any: true, text: text}
}

// or is the verdict where either can have decided.
func (v verdict) or(o verdict) verdict {
	switch {
	case !v.any:
		return o
	case !o.any:
		return v
	case v.mixed || o.mixed || v.text != o.text:
		return unknown
	}
	return v
}

// walk is what is the same everywhere in one command text.
type walk struct {
	code      int
	shells    int
	functions map[string]bool // defined in the text
	silent    bool            // something makes every meaning doubtful
}

// survey notes what matters wherever it stands.
func (w *walk) survey(node syntax.Node) bool {
	switch node := node.(type) {
	case *syntax.FuncDecl:
		if node.Name != nil {
			w.functions[node.Name.Value] = true
		}
	case *syntax.ParamExp:
		// ${x:?} ends bash -c with 127, which then means no missing command.
		if node.Exp != nil && w.code == 127 &&
			(node.Exp.Op == syntax.ErrorUnset || node.Exp.Op == syntax.ErrorUnsetOrNull) {
			w.silent = true
		}
	case *syntax.CallExpr:
		args := shellwords.Words(node.Args)
		switch {
		case len(args) > 1 && args[0].Is("trap"):
			// A trap on EXIT can end the shell with a code of its own.
			if action := args[1]; !action.Literal || strings.Contains(action.Text, "exit") {
				w.silent = true
			}
		case len(args) > 1 && args[0].Is("alias"):
			for _, a := range args[1:] {
				name, _, _ := strings.Cut(a.Text, "=")
				w.functions[name] = true
			}
		}
	}
	return true
}

// flags are the shell options that change which command decides.
type flags struct{ errexit, pipefail, nounset bool }

// shell is one shell process of the command: the outermost, or a subshell.
type shell struct {
	*walk
	flags
	left bool // it can have ended before its last command, with the code
}

// sub returns the verdict of statements that run in a subshell of sh.
func (sh *shell) sub(stmts ...*syntax.Stmt) verdict {
	inner := &shell{walk: sh.walk, flags: sh.flags}
	v := inner.list(stmts)
	if inner.left {
		return unknown
	}
	return v
}

func (sh *shell) list(stmts []*syntax.Stmt) verdict {
	v := cannot
	for _, stmt := range stmts {
		errexit := sh.errexit
		last := sh.stmt(stmt)
		if errexit {
			v = v.or(last)
		} else {
			v = last
		}
	}
	return v
}

func (sh *shell) stmt(stmt *syntax.Stmt) verdict {
	switch {
	case stmt.Background || stmt.Coprocess || stmt.Disown:
		return cannot // starting it always works
	case stmt.Negated:
		sh.command(stmt.Cmd) // it can leave the shell all the same
		if sh.code != 1 {
			return cannot
		}
		return unknown
	}
	return sh.command(stmt.Cmd)
}

func (sh *shell) command(cmd syntax.Command) verdict {
	switch cmd := cmd.(type) {
	case nil: // only redirections
		return unknown
	case *syntax.CallExpr:
		return sh.call(cmd)
	case *syntax.BinaryCmd:
		return sh.binary(cmd)
	case *syntax.Subshell:
		return sh.sub(cmd.Stmts...)
	case *syntax.Block:
		return sh.list(cmd.Stmts)
	case *syntax.IfClause:
		v := cannot // no branch taken is 0
		for c := cmd; c != nil; c = c.Else {
			sh.list(c.Cond)
			v = v.or(sh.list(c.Then))
		}
		return v
	case *syntax.WhileClause:
		sh.list(cmd.Cond)
		return sh.list(cmd.Do)
	case *syntax.ForClause:
		return sh.list(cmd.Do)
	case *syntax.CaseClause:
		v := cannot
		for _, item := range cmd.Items {
			v = v.or(sh.list(item.Stmts))
		}
		return v
	case *syntax.TimeClause:
		if cmd.Stmt == nil {
			return cannot
		}
		return sh.stmt(cmd.Stmt)
	case *syntax.TestClause:
		return sh.simple("[[", nil)
	case *syntax.ArithmCmd, *syntax.LetClause:
		return sh.simple("let", nil)
	case *syntax.FuncDecl:
		// Where it is called is not followed; that it can leave the shell is.
		body := &shell{walk: sh.walk, flags: sh.flags}
		body.command(cmd.Body.Cmd)
		sh.left = sh.left || body.left
		return cannot
	case *syntax.DeclClause:
		return sh.generic()
	}
	return unknown
}

func (sh *shell) binary(cmd *syntax.BinaryCmd) verdict {
	switch cmd.Op {
	case syntax.OrStmt:
		sh.stmt(cmd.X)
		return sh.stmt(cmd.Y)
	case syntax.AndStmt:
		v := cannot
		joined := conjuncts(cmd)
		for i, stmt := range joined {
			one := sh.stmt(stmt)
			if i == len(joined)-1 || !setsStage(stmt) {
				v = v.or(one)
			}
		}
		return v
	case syntax.Pipe, syntax.PipeAll:
		x := sh.sub(cmd.X)
		y := sh.sub(cmd.Y)
		if sh.pipefail {
			return x.or(y)
		}
		return y
	}
	return unknown
}

// conjuncts returns what && joins, from the first on. The tree of `a && b && c` is as deep as that is long.
func conjuncts(cmd *syntax.BinaryCmd) []*syntax.Stmt {
	list := []*syntax.Stmt{cmd.Y}
	for {
		left, ok := cmd.X.Cmd.(*syntax.BinaryCmd)
		if !ok || left.Op != syntax.AndStmt || cmd.X.Negated {
			list = append(list, cmd.X)
			slices.Reverse(list)
			return list
		}
		list = append(list, left.Y)
		cmd = left
	}
}

// setsStage reports whether a statement before && is taken to have worked.
func setsStage(stmt *syntax.Stmt) bool {
	if stmt.Negated {
		return false
	}
	switch cmd := stmt.Cmd.(type) {
	case *syntax.CallExpr:
		args := shellwords.Words(cmd.Args)
		return len(args) > 0 && args[0].Literal && stage[args[0].Text]
	case *syntax.DeclClause:
		return true
	}
	return false
}

// call judges a simple command.
func (sh *shell) call(cmd *syntax.CallExpr) verdict {
	if len(cmd.Args) == 0 {
		return sh.assignment(cmd)
	}
	args := shellwords.Words(cmd.Args)
	if !args[0].Literal {
		return sh.generic()
	}
	if sh.functions[args[0].Text] {
		return unknown
	}
	switch args[0].Text {
	case "set":
		sh.set(args[1:])
		return cannot
	case "shopt":
		for _, a := range args[1:] {
			sh.option(a.Text, !args[1].Is("-uo") && !args[1].Is("-u"))
		}
		return unknown
	case "exit", "return", "logout":
		return sh.exit(args[1:])
	case "exec":
		// What follows does not run, so this decides as a failure under errexit does.
		sh.errexit = sh.errexit || len(args) > 1
	}
	for len(args) > 0 && args[0].Literal {
		inner, ok := unwrap(args)
		if !ok {
			return sh.simple(path.Base(args[0].Text), args[1:])
		}
		// A wrapper's own codes (timeout's 124) come before those of what it runs.
		if text := sh.row(path.Base(args[0].Text), args[1:]); text != "" {
			return known(text)
		}
		args = inner
	}
	return sh.generic()
}

// assignment judges a command that is only assignments: it ends as its last command substitution does.
func (sh *shell) assignment(cmd *syntax.CallExpr) verdict {
	var last *syntax.CmdSubst
	for _, assign := range cmd.Assigns {
		if assign.Array != nil {
			return unknown
		}
		if assign.Value == nil {
			continue
		}
		for _, part := range assign.Value.Parts {
			switch part := part.(type) {
			case *syntax.CmdSubst:
				last = part
			case *syntax.DblQuoted:
				for _, inner := range part.Parts {
					if subst, ok := inner.(*syntax.CmdSubst); ok {
						last = subst
					}
				}
			}
		}
	}
	if last == nil {
		return unknown
	}
	return sh.sub(last.Stmts...)
}

// exit judges exit and return, and notes that what follows may never have run.
func (sh *shell) exit(args []shellwords.Word) verdict {
	if len(args) > 0 && args[0].Literal {
		if n, err := strconv.Atoi(args[0].Text); err == nil && n&0xff != sh.code {
			return cannot
		}
	}
	sh.left = true
	return unknown
}

// set follows the set builtin.
func (sh *shell) set(args []shellwords.Word) {
	for i := 0; i < len(args); i++ {
		text := args[i].Text
		if len(text) < 2 || (text[0] != '-' && text[0] != '+') || text == "--" {
			return
		}
		on := text[0] == '-'
		for _, letter := range text[1:] {
			switch letter {
			case 'e':
				sh.errexit = on
			case 'u':
				sh.nounset = on
			case 'o':
				if i++; i < len(args) {
					sh.option(args[i].Text, on)
				}
			}
		}
	}
}

func (sh *shell) option(name string, on bool) {
	switch name {
	case "errexit":
		sh.errexit = on
	case "pipefail":
		sh.pipefail = on
	case "nounset":
		sh.nounset = on
	}
}

// simple judges one command by its name and arguments.
func (sh *shell) simple(name string, args []shellwords.Word) verdict {
	switch name {
	case "true", ":":
		return cannot
	case "false":
		if sh.code != 1 {
			return cannot
		}
		return unknown
	case "bash", "sh", "dash":
		if text, set, ok := inlineScript(args); ok {
			return known(meaning(text, sh.code, set, sh.shells+1))
		}
	}
	if text := sh.row(name, args); text != "" {
		return known(text)
	}
	return sh.generic()
}

// row returns what the table says, or "".
func (sh *shell) row(name string, args []shellwords.Word) string {
	for _, r := range rows[name] {
		if r.code == sh.code && r.matches(args) {
			return r.text
		}
	}
	return ""
}

// generic is the verdict on a command of which nothing is known.
func (sh *shell) generic() verdict {
	if sh.code == 127 && sh.nounset {
		return unknown // an unset variable ends bash -c with 127 too
	}
	return known(generic(sh.code))
}

// inlineScript returns the text of `bash -c TEXT` and the options given with it.
func inlineScript(args []shellwords.Word) (text string, set flags, ok bool) {
	sh := &shell{}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !a.Literal || len(a.Text) < 2 || a.Text[0] != '-' || a.Text[1] == '-' {
			return "", set, false
		}
		if script := strings.IndexByte(a.Text, 'c'); script > 0 {
			sh.set([]shellwords.Word{{Text: a.Text, Literal: true}})
			if i+1 < len(args) && args[i+1].Literal && !strings.Contains(a.Text, "o") {
				return args[i+1].Text, sh.flags, true
			}
			return "", set, false
		}
		if a.Text == "-o" && i+1 < len(args) {
			sh.option(args[i+1].Text, true)
			i++
			continue
		}
		sh.set([]shellwords.Word{a})
	}
	return "", set, false
}

// unwrap takes one wrapper off, as shellwords.Unwrap does; `python -m X` ends as X does, and `command -v` is a question
// of its own.
func unwrap(args []shellwords.Word) (inner []shellwords.Word, ok bool) {
	name := path.Base(args[0].Text)
	if strings.HasPrefix(name, "python") && len(args) > 2 && args[1].Is("-m") {
		return args[2:], true
	}
	if name == "command" && len(args) > 1 && (args[1].Is("-v") || args[1].Is("-V")) {
		return append([]shellwords.Word{{Text: "command -v", Literal: true}}, args[2:]...), true
	}
	return shellwords.Unwrap(args)
}
