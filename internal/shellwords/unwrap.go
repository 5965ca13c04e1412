package shellwords

import (
	"path"
	"strings"
)

// wrapper is a command that runs another one and ends as that does.
type wrapper struct {
	valued   string // options that take the next argument, separated by spaces
	plain    string // options that take none; an option in neither list hides what follows
	operands int    // how many arguments come before the command
	assigns  bool   // NAME=value may come before the command
	sub      string // a first word that must be there: "run" of `uv run`
}

var wrappers = map[string]wrapper{
	"env":     {valued: "-u -C --unset --chdir", plain: "-i -0 -v --ignore-environment --debug -", assigns: true},
	"sudo":    {valued: "-u -g -h -p -C -r -t -T -D -R --user --group --host --prompt --chdir", plain: "-n -E -H -k -S -P -b -A --non-interactive --preserve-env --set-home --stdin", assigns: true},
	"doas":    {valued: "-u -C", plain: "-n"},
	"nohup":   {},
	"setsid":  {plain: "-f -w -c --fork --wait --ctty"},
	"time":    {valued: "-f -o --format --output", plain: "-p -a -v --portability --append --verbose"},
	"command": {plain: "-p"},
	"builtin": {},
	"exec":    {valued: "-a", plain: "-c -l"},
	"nice":    {valued: "-n --adjustment"},
	"ionice":  {valued: "-c -n --class --classdata", plain: "-t --ignore"},
	"stdbuf":  {valued: "-i -o -e --input --output --error"},
	"timeout": {
		valued: "-k -s --kill-after --signal", plain: "-f -v -p --foreground --verbose --preserve-status", operands: 1,
	},
	"gtimeout": {valued: "-k -s --kill-after --signal", plain: "-f -v -p --foreground --verbose --preserve-status", operands: 1},
	"busybox":  {},
	"npx":      {plain: "-y --yes -q --quiet --no-install"},
	"uv":       {plain: "-q --quiet", sub: "run"},
	"poetry":   {plain: "-q --quiet", sub: "run"},
	"pipenv":   {sub: "run"},
	"pdm":      {sub: "run"},
	"bundle":   {sub: "exec"},
}

// Unwrap takes one wrapper off: it returns the command that sudo, env, nohup and their like run (the end of args), nil
// where that cannot be told, and false where args is no wrapper. Args is not empty.
func Unwrap(args []Word) (inner []Word, ok bool) {
	w, ok := wrappers[path.Base(args[0].Text)]
	if !ok {
		return nil, false
	}
	inner = w.command(args[1:])
	return inner, inner != nil || w.sub == "" // `uv pip` runs nothing
}

// command returns what a wrapper with these arguments runs, or nil.
func (w wrapper) command(args []Word) []Word {
	sub, operands := w.sub, w.operands
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.Literal && (sub != "" || operands == 0):
			// An expansion where the command's name, an option or an assignment may be.
			if sub != "" {
				return nil
			}
			return args[i:]
		case sub != "" && a.Text == sub:
			sub = ""
		case a.Is("--"):
			if operands > 0 || sub != "" {
				continue
			}
			return args[i+1:]
		case strings.HasPrefix(a.Text, "-"):
			switch w.option(a.Text) {
			case 1:
				i++
			case -1:
				return nil
			}
		case sub != "":
			return nil
		case w.assigns && strings.Contains(a.Text, "="):
		case operands > 0:
			operands--
		default:
			return args[i:]
		}
	}
	return nil
}

// option returns how many further arguments an option takes, or -1 where it is not known.
func (w wrapper) option(text string) int {
	if name, _, ok := strings.Cut(text, "="); ok && strings.HasPrefix(text, "--") {
		if contains(w.valued, name) || contains(w.plain, name) {
			return 0
		}
		return -1
	}
	if contains(w.valued, text) {
		return 1
	}
	if contains(w.plain, text) {
		return 0
	}
	if strings.HasPrefix(text, "--") {
		return -1
	}
	// A cluster: letters without a value, and at most one at its end that takes the rest or the next argument.
	for i := 1; i < len(text); i++ {
		letter := "-" + text[i:i+1]
		switch {
		case contains(w.valued, letter):
			if i == len(text)-1 {
				return 1
			}
			return 0
		case contains(w.plain, letter):
		case '0' <= text[i] && text[i] <= '9': // nice -5
			return 0
		default:
			return -1
		}
	}
	return 0
}

func contains(list, name string) bool {
	for item := range strings.FieldsSeq(list) {
		if item == name {
			return true
		}
	}
	return false
}
