//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPersonAtTheTerminalIsAskedAboutWhatIsDangerous(t *testing.T) {
	t.Parallel()
	const command = `echo it "ran"; git push --force </dev/null 2>/dev/null; cat`
	for _, c := range []struct {
		name, args, answer string
		code               int
		runs, lasts        bool
		says               string
	}{
		{"once", "run", "y\n", 0, true, false, "in "},
		{"always", "run", "a\n", 0, true, true, ""},
		{"for the session", "run -s dev", "s\n", 0, true, true, "s for the session dev"},
		{"no session to remember it", "run", "s\n", exitOwn, false, false, "the answer was no"},
		{"no", "run", "n\n", exitOwn, false, false, "the answer was no"},
		{"nothing", "run", "\n", exitOwn, false, false, "the answer was no"},
		{"end of file", "run", "\x04", exitOwn, false, false, "there was no answer"},
		{"Ctrl-C", "run", "\x03", 130, false, false, ""},
		{"with standard input passed on", "run -i", "y\nit was typed\n\x04", 0, true, false, "it was typed"},
		{"on a terminal", "run -t", "y\n", 0, true, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, append(strings.Fields(c.args), command)...)
			terminal := p.onTerminal()
			s := watch(t, terminal)
			s.await("rule force-push asks before `git push --force ")
			s.await("N no] ")
			if strings.Contains(s.String(), "it ran") {
				t.Fatal("it ran before the answer")
			}
			if _, err := terminal.WriteString(c.answer); err != nil {
				t.Fatal(err)
			}
			if c.args == "run -t" {
				s.await("it ran")
				_, _ = terminal.WriteString("\x04")
			}
			p.wantExit(c.code)
			s.await(c.says)
			if ran := strings.Contains(s.String(), "it ran"); ran != c.runs {
				t.Errorf("it ran: %v, want %v: %s", ran, c.runs, s)
			}
			again := newProgram(t, append(strings.Fields(c.args), command)...)
			again.Env, again.Dir = p.Env, p.Dir
			if c.args == "run -t" || c.args == "run -i" {
				return
			}
			again.start()
			want := exitOwn
			if c.lasts {
				want = 0
			}
			again.wantExit(want)
		})
	}
}

func TestNobodyIsAskedWithJSON(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "run", "--json", "git push --force")
	s := watch(t, p.onTerminal())
	s.await(`"kind":"denied"`)
	p.wantExit(exitOwn)
	if _, err := os.Stat(filepath.Join(p.Dir, ".hermes/elsewhere/policy.json")); err == nil {
		t.Error("something was agreed to")
	}
}
