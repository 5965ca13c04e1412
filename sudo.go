package elsewhere

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
	"github.com/elsewhere-sh/elsewhere/internal/shellwords"
)

const (
	// askpassVariable names, to sudo, the program that it asks for a password where it has no terminal. sudo runs it only when it needs
	// a password, and never with -n.
	askpassVariable = "SUDO_ASKPASS"
	// askpassWait bounds putting that program there.
	askpassWait = 15 * time.Second
)

// sudoBackends are those on which a command has a user's own account, so that a password of the user's fits.
var sudoBackends = map[string]bool{"local": true, "ssh": true}

// provideSudo puts a program into the private directory that gives sudo the password of SUDO_PASSWORD, and has each call name it. The
// password goes there by a stdin of its own and stands in a file of mode 0700 that goes with the private directory: in no argument,
// environment, state file or log. Whoever may run sudo there can read it. A notice says why there is none.
func (p *place) provideSudo(ctx context.Context) {
	password := p.sb.cfg.String("sudo_password")
	if password == "" {
		return
	}
	switch kind := p.sb.back.Name; {
	case !sudoBackends[kind]:
		p.info.Notices = append(p.info.Notices, "SUDO_PASSWORD is not used: "+kind+" has no account of yours")
		return
	case p.sb.backend != kind:
		p.info.Notices = append(p.info.Notices, "SUDO_PASSWORD is not used: it is not sent to "+p.sb.backend+", which may be another machine than the one it is for")
		return
	}
	file := p.slotPath(true, "askpass-"+bashscript.NewID())
	if err := p.putAskpass(ctx, file, password); err != nil {
		p.info.Notices = append(p.info.Notices, "SUDO_PASSWORD is not used: "+err.Error())
		return
	}
	env := maps.Clone(p.info.CallEnv)
	if env == nil {
		env = map[string]string{}
	}
	env[askpassVariable] = file
	p.info.CallEnv, p.askpass = env, true
}

func (p *place) putAskpass(ctx context.Context, file, password string) error {
	if strings.ContainsAny(password, "\x00\r\n") {
		return errText("it is not one line of text")
	}
	ctx, cancel := context.WithTimeout(ctx, askpassWait)
	defer cancel()
	token := bashscript.NewToken()
	program := "#!/bin/sh\nprintf '%s\\n' " + bashscript.Quote(password) + "\n"
	if _, err := p.ask(ctx, bashscript.ReceiveProgram(file, token), token, strings.NewReader(program+"\x00")); err != nil {
		return fmt.Errorf("no program that gives it to sudo can be put into %s, or be run there: %w", p.info.PrivateDir, err)
	}
	return nil
}

// withAskpass gives the option -A to each sudo in a command that may need a password: without it sudo asks the program only where a
// display is set. One with -n, -S or -A is left as it is, so is what is no command's name, and so are functions, which outlive the call.
// Lines stay where they are. A text that cannot be parsed is not changed.
func withAskpass(command string) string {
	if !strings.Contains(command, "sudo") || shellwords.TooDeep(command) {
		return command
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		return command
	}
	var ends []int
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.FuncDecl:
			return false
		case *syntax.CallExpr:
			if at := asksPassword(n.Args); at >= 0 {
				ends = append(ends, int(n.Args[at].End().Offset()))
			}
		}
		return true
	})
	slices.Sort(ends)
	for _, end := range slices.Backward(ends) {
		command = command[:end] + " -A" + command[end:]
	}
	return command
}

// asksPassword finds the sudo in a command's words, behind env and its like, that may ask for a password; -1 for none.
func asksPassword(args []*syntax.Word) int {
	for words := shellwords.Words(args); len(words) > 0; {
		inner, ok := shellwords.Unwrap(words)
		if !ok || len(inner) == 0 {
			return -1
		}
		if path.Base(words[0].Text) != "sudo" {
			words = inner
			continue
		}
		for _, option := range words[1 : len(words)-len(inner)] {
			short := strings.HasPrefix(option.Text, "-") && !strings.HasPrefix(option.Text, "--")
			if short && strings.ContainsAny(option.Text, "nSA") || option.Is("--non-interactive") || option.Is("--stdin") || option.Is("--askpass") {
				return -1
			}
		}
		return len(args) - len(words)
	}
	return -1
}

// sudoText is the text that is run for a command: where sudo has a password, one in which it finds it.
func (p *place) sudoText(command string) string {
	if !p.askpass {
		return command
	}
	return withAskpass(command)
}
