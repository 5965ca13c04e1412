package policy

import (
	"os"
	"strings"
	"testing"
)

// testContext is where the corpus runs.
func testContext() Context {
	return Context{
		Workspace: []string{"/home/ann/project"}, Cwd: "/home/ann/project", Home: "/home/ann", HermesHome: "/home/ann/.hermes",
		Blocked: []string{"/data/private"},
	}
}

type corpusCase struct {
	action  Action
	rule    string
	command string
	miss    bool // expected to be judged wrongly
}

func fuzzSeeds(f *testing.F, file string) (list []string) {
	data, err := os.ReadFile(file)
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		_, command, ok := strings.Cut(line, ": ")
		if !ok {
			command = line
		}
		list = append(list, strings.ReplaceAll(command, "⏎", "\n"))
	}
	return list
}

func corpus(t *testing.T, file string) []corpusCase {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []corpusCase
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		c := corpusCase{action: Allow}
		if file == "harmless.txt" && !strings.HasPrefix(line, "alarm ") {
			c.command = line
		} else {
			head, command, ok := strings.Cut(line, ": ")
			if !ok {
				t.Fatalf("%s: %s", file, line)
			}
			c.command = command
			words := strings.Fields(strings.TrimPrefix(head, "alarm "))
			c.miss = head == "miss" || strings.HasPrefix(head, "alarm ")
			if len(words) == 2 {
				c.action, c.rule = Action(words[0]), words[1]
			}
		}
		c.command = strings.ReplaceAll(c.command, "⏎", "\n")
		cases = append(cases, c)
	}
	return cases
}

// Every line of the corpus is judged as it says; the rates are those of the lines that say they are judged wrongly.
func TestTheCorpusIsJudgedAsItSays(t *testing.T) {
	for _, half := range []struct {
		file, what string
		least      int
		most       float64
	}{{"dangerous.txt", "missed", 300, 0.03}, {"harmless.txt", "false alarms", 300, 0.02}} {
		cases := corpus(t, half.file)
		wrong, seen := 0, map[string]bool{}
		for _, c := range cases {
			if seen[c.command] {
				t.Errorf("twice: %s", c.command)
			}
			seen[c.command] = true
			d := Check(c.command, testContext())
			if d.Action != c.action || c.rule != "" && !found(d, c.rule) {
				t.Errorf("%s\n\tis %s by %q (%v), want %s by %q", c.command, d.Action, d.Rule, names(d), c.action, c.rule)
			}
			if c.miss {
				wrong++
			}
		}
		rate := float64(wrong) / float64(len(cases))
		t.Logf("%s: %d lines, %s: %d (%.1f %%)", half.file, len(cases), half.what, wrong, 100*rate)
		if len(cases) < half.least || rate > half.most {
			t.Errorf("%s: %d lines, want at least %d; rate %.3f, want at most %.3f", half.file, len(cases), half.least, rate, half.most)
		}
	}
}

// found reports whether one of the strictest findings is the rule's.
func found(d Decision, rule string) bool {
	for _, f := range d.Findings {
		if f.Rule == rule && f.Action == d.Action {
			return true
		}
	}
	return false
}

func names(d Decision) (list []string) {
	for _, f := range d.Findings {
		list = append(list, f.Rule)
	}
	return list
}

// Every rule has a line in the corpus that it decides.
func TestEveryRuleHasAnExample(t *testing.T) {
	has := map[string]bool{"too-complex": true} // in TestATextThatIsTooMuchIsAskedAbout
	for _, c := range corpus(t, "dangerous.txt") {
		has[c.rule] = true
		if c.rule != "" && Lookup(c.rule) == nil {
			t.Errorf("no rule %s", c.rule)
		}
	}
	for _, r := range Rules() {
		if !has[r.Name] {
			t.Errorf("no example of %s", r.Name)
		}
		if r.Reason == "" || r.About == "" || strings.HasSuffix(r.Reason, ".") {
			t.Errorf("%s: %q %q", r.Name, r.Reason, r.About)
		}
	}
}
