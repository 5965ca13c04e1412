package jobscript

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

const token = "\x1e0123"

func TestReadIsTakenApart(t *testing.T) {
	const meta = `M {"id":"aa","supervisor":"bb","mark":7,"name":"jaa"}` + "\n"
	for _, test := range []struct {
		name, answer, data string
		from               int64
		overrun, ok        bool
	}{
		{"plain", "F 5\nhello" + token + "\nV -1\n" + meta + token + ".\n", "hello", 5, false, true},
		{"nothing", "F 5\n" + token + "\nV -1\n" + token + ".\n", "", 5, false, true},
		{"what looks like an answer", "F 0\nF 9\nV -1\n" + token + "." + token + "\nV -1\n" + token + ".\n", "F 9\nV -1\n" + token + ".", 0, false, true},
		{"cut where the window rolled", "F 5\nhello" + token + "\nV 2\n" + token + ".\n", "he", 5, true, true},
		{"read again from elsewhere", "F 5\nhel" + token + "X 90\nlo" + token + "\nV -1\n" + token + ".\n", "lo", 90, false, true},
		{"not whole", "F 5\nhello" + token + "\nV -1\n", "", 0, false, false},
		{"no offset", "hello" + token + "\nV -1\n" + token + ".\n", "", 0, false, false},
		{"more certain than there is", "F 5\nhello" + token + "\nV 9\n" + token + ".\n", "", 0, false, false},
		{"empty", "", "", 0, false, false},
	} {
		k, err := ParseRead(token, []byte(test.answer))
		if (err == nil) != test.ok || string(k.Data) != test.data || k.From != test.from || k.Overrun != test.overrun {
			t.Errorf("%s: %+v (%q), %v", test.name, k, k.Data, err)
		}
	}
}

func TestFactsThatAreNotWholeAreNone(t *testing.T) {
	answer := token + "\n" +
		`M {"id":"aa","supervisor":"bb","mark":7,"name":"jaa","command":"echo"}` + "\nR 10 11 12 13 1700000000 1 .\nE 3 exited 1700000009 .\nI 0:0 !\nA 0\n" +
		`M {"id":"cc","supervisor":"dd","mark":8,"name":"jcc"}` + "\nR 10 11 1\nE 3 exi\nI 0:0 .\nA 1\n" +
		"M {\"id\":\nR 1 1 1 1 1 1 .\n" +
		"L 7 4\n" + token + ".\n"
	found, err := ParseList(token, []byte(answer))
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	if f := found[0]; !f.Begun || !f.Ended || f.Code != 3 || f.Why != "exited" || !f.Whole || f.Running || f.Left != 4 || f.PID != 12 || !f.Input ||
		!f.Started.Equal(time.Unix(1700000000, 0)) || !f.End.Equal(time.Unix(1700000009, 0)) {
		t.Errorf("%+v", f)
	}
	if f := found[1]; f.Begun || f.Ended || f.Whole || !f.Running || f.Left != 0 {
		t.Errorf("%+v", f)
	}
}

func TestLaunchAnswers(t *testing.T) {
	if l := ParseLaunch(token, "noise\n"+token+"ended 70\n"+token+"started\nmore\n"); !l.Started || l.Taken || l.Ended != 70 {
		t.Errorf("%+v", l)
	}
	if l := ParseLaunch(token, "started\n"+token+"taken\n"); l.Started || !l.Taken {
		t.Errorf("%+v", l)
	}
}

// TestMetaStandsInFront: the scripts find two fields of a job's description by their text, so no text of a user's may come first.
func TestMetaStandsInFront(t *testing.T) {
	line, err := Meta{ID: "aa", Supervisor: "bb", Mark: 7, Command: `"supervisor":"x","mark":1`, Session: "a\nb"}.Line()
	if err != nil || !strings.HasPrefix(line, `{"id":"aa","supervisor":"bb","mark":7,`) || strings.Contains(line, "\n") {
		t.Errorf("%s, %v", line, err)
	}
}

// TestQuestionsAreAnsweredInAnEmptyDirectory runs the scripts as a sandbox does.
func TestQuestionsAreAnsweredInAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	ask := func(text string) []byte { return answered(t, text) }
	if found, err := ParseList(token, ask(List(dir, token))); err != nil || len(found) > 0 {
		t.Errorf("list: %+v, %v", found, err)
	}
	if k, err := ParseRead(token, ask(Read(dir, token, "jno", 7, 100, 0))); err != nil || k.Job != nil || k.From != 7 || len(k.Data) > 0 {
		t.Errorf("read: %+v, %v", k, err)
	}
	for _, verb := range []string{Send, Close, Signal, Mark, End} {
		if answer, err := ParseAct(token, ask(Act(dir, token, "jno", verb, "INT", time.Now()))); err != nil || answer != "none" {
			t.Errorf("%s: %q, %v", verb, answer, err)
		}
	}
	if answer, err := ParseAct(token, ask(Remove(dir, token, "jno", "it's"))); err != nil || answer != "ok" {
		t.Errorf("remove: %q, %v", answer, err)
	}
}

// answered runs a text as a sandbox does and gives what it answers.
func answered(t *testing.T, text string) []byte {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, bashscript.TextArgs(len(text))...)
	cmd.Stdin = strings.NewReader(text + "\x00")
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return out
}

// TestWhatIsKnownOfAJobIsItsOwn lists a job that has ended before one that has not.
func TestWhatIsKnownOfAJobIsItsOwn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"job-ja.meta": `{"id":"a"}`, "job-ja.run": "1 2 3 4 5 1 .", "job-ja.end": "143 killed 6 .", "job-ja.log": "0:1 !",
		"job-jb.meta": `{"id":"b"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := ParseList(token, answered(t, List(dir, token)))
	if err != nil || len(found) != 2 || found[0].ID != "a" || !found[0].Ended || found[0].Code != 143 || !found[0].Whole {
		t.Fatalf("%+v, %v", found, err)
	}
	if b := found[1]; b.ID != "b" || b.Begun || b.Ended || b.Whole || b.Code != 0 {
		t.Errorf("one that was not started yet: %+v", b)
	}
}

// TestTextsHoldNoByteThatEndsThem: each text is read up to a NUL.
func TestTextsHoldNoByteThatEndsThem(t *testing.T) {
	l := Launch{Dir: "/d", Name: "j1", Meta: "{}", Token: token, Command: "echo 'x'", Lifetime: time.Hour, End: bashscript.NewScripts(nil)}
	for _, text := range []string{l.Text(), List("/d", token), Read("/d", token, "j", 0, 1, time.Second), Remove("/d", token, "j")} {
		if strings.Contains(text, "\x00") || !slices.Contains(strings.Split(text, "\n"), "ew_token='"+token+"'") {
			t.Errorf("%.80q", text)
		}
	}
}

// Where there is no dd the supervisor reads a job's output by builtins. Each byte counts, also one that comes when nothing was
// there for a while.
func TestOutputIsKeptByBuiltinsWhenItComesSlowly(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	_, piece, found := strings.Cut(superviseSource, "\new_piece() {\n")
	piece, _, ends := strings.Cut(piece, "\n}\n")
	if !found || !ends {
		t.Fatal("the supervisor has no ew_piece any more")
	}
	script := "LC_ALL=C; ew_v=$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1])); ew_bs=64 ew_size=0 ew_slot=0\n" +
		"ew_piece() {\n" + piece + "\n}\nwhile ew_piece; do :; done; printf '%s' \"$ew_size\"\n"
	for _, want := range []string{strings.Repeat("\x00", 15), strings.Repeat("a", 15), strings.Repeat("a\x00", 10), strings.Repeat("\x00\n", 10), strings.Repeat("é\x00\x00", 5)} {
		for range 2 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				base := filepath.Join(t.TempDir(), "x")
				cmd := exec.CommandContext(t.Context(), bash, "--noprofile", "--norc", "-c", script)
				cmd.Env = []string{"ew_base=" + base}
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				var size strings.Builder
				cmd.Stdout = &size
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// At once at first, then a byte after the other.
				flood := strings.Repeat("0123456789\x00\n", 40)
				if _, err := io.WriteString(in, flood); err != nil {
					t.Fatal(err)
				}
				for _, b := range []byte(want) {
					time.Sleep(200 * time.Millisecond)
					if _, err := in.Write([]byte{b}); err != nil {
						t.Fatal(err)
					}
				}
				_ = in.Close()
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(base + ".log.0")
				if err != nil || string(got) != flood+want || size.String() != strconv.Itoa(len(got)) {
					t.Errorf("kept %q (%s bytes, %v), want %q behind the first %d", strings.TrimPrefix(string(got), flood), size.String(), err, want, len(flood))
				}
			})
		}
	}
}
