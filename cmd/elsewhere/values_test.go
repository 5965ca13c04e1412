package main

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

func TestVariablesAreReadAsDockerReadsThem(t *testing.T) {
	lookup := func(name string) (string, bool) { return "mine", name == "MINE" }
	env, err := parseEnv([]string{"A=1", "B=x=y", "A=2", "C=", "MINE"}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"A": "2", "B": "x=y", "C": "", "MINE": "mine"} {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("%s is %q, %v; want %q", name, got, ok, want)
		}
	}
	for _, bad := range []string{"", "=", "=x", "1A=x", "A B=x", "A-B=x", "NOT_MINE", "é=1"} {
		if env, err := parseEnv([]string{bad}, lookup); err == nil {
			t.Errorf("%q is read as %v", bad, env)
		}
	}
}

func TestTimeoutsAreAboveZero(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "90s": 90 * time.Second, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute,
		".5": 500 * time.Millisecond, "250ms": 250 * time.Millisecond, "1d": 24 * time.Hour,
	} {
		if got, err := parseTimeout(text); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "0", "0s", "-1", "-1s", "x", "1x", "NaN", "Inf", "1e300", "9999999999999999999h", "0x10", "1 2"} {
		if got, err := parseTimeout(bad); err == nil {
			t.Errorf("%q is %v", bad, got)
		}
	}
}

func TestNamesNeedNoQuoting(t *testing.T) {
	for _, name := range []string{"a", "A1", "0", "a.b-c_d", strings.Repeat("x", 63)} {
		if err := checkName("--session", name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", "-a", "_a", ".a", "a/b", "a b", "a\nb", "a\n", "é", "a:b", strings.Repeat("x", 64)} {
		if checkName("--session", name) == nil {
			t.Errorf("%q passes", name)
		}
	}
}

func TestAVectorReachesTheCommandAsItIs(t *testing.T) {
	const special = `'"\$!~*?[]{}()<>|&;#=^ %@+-abc019` + "`\t\n"
	words := []string{"printf", `%s\0`}
	for i := range 200 {
		word := make([]byte, rand.IntN(12))
		for j := range word {
			word[j] = byte(1 + rand.IntN(255))
			if i%2 == 0 {
				word[j] = special[rand.IntN(len(special))]
			}
		}
		words = append(words, string(word))
	}
	words = append(words, "if", "FOO=1", "\x01a", "\xffa", "a\xff0", "é", "x'y!z\"")
	a := &app{}
	text, err := a.commandText(&runFlags{target: target{flags: a.cmdRun()}}, words)
	if err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("bash", "-c", text).Output()
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join(words[2:], "\x00") + "\x00"; string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestMessagesCannotCommandATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 日本":       "plain é 日本",
		"two\nlines\r\n\n": "two; lines",
		"\x1b[31mred\x07":  `\x1b[31mred\a`,
		`a "quote" \ b`:    `a "quote" \ b`,
		"bad \xff\u202e":   `bad \xff\u202e`,
		"tab\there":        `tab\there`,
		"":                 "",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

func TestAFailureIsOneLineThatEndsWithTheNextStep(t *testing.T) {
	var b bytes.Buffer
	complain(&b, ownError("open", "start it", "the daemon says:\nno\n"))
	if want := "elsewhere: open: the daemon says:; no; start it\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	if e := resultjson.NewError(ownError("open", "start it", "no")); e.Message != "open: no" || *e.Hint != "start it" {
		t.Errorf("%+v", e)
	}
}

func TestWhatAServiceSetsInItsOwnSandboxesIsNoSecret(t *testing.T) {
	for _, c := range []struct {
		service, name string
		want          bool
	}{
		{"daytona", "DAYTONA_SANDBOX_ID", false}, {"daytona", "DAYTONA_API_KEY", true}, {"daytona", "MODAL_TASK_ID", true},
		{"modal", "MODAL_TASK_ID", false}, {"modal", "MODAL_TOKEN_ID", true}, {"vercel", "VERCEL_OIDC_TOKEN", true}, {"local", "DAYTONA_SANDBOX_ID", true},
		{"daytona", "PATH", false}, {"", "OPENAI_API_KEY", true},
	} {
		if found := blocked([]string{c.name}, nil, c.service); (len(found) == 1) != c.want {
			t.Errorf("%s on %s: %q", c.name, c.service, found)
		}
	}
	if found := blocked([]string{"OPENAI_API_KEY"}, []string{"OPENAI_API_KEY"}, "docker"); len(found) != 0 {
		t.Errorf("what is allowed: %q", found)
	}
}
