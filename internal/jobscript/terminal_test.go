package jobscript

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/bashscript"
)

// TestATerminalIsHeldByWhatIsThere launches a job on a terminal where script is there, where python3 alone is, and where neither is.
func TestATerminalIsHeldByWhatIsThere(t *testing.T) {
	// Of the same lengths, since a text is read by its own.
	for name, without := range map[string]*strings.Replacer{
		"script":  strings.NewReplacer("ew_find python3", "ew_find pythonX"),
		"python3": strings.NewReplacer("ew_find script", "ew_find scripX"),
		"neither": strings.NewReplacer("ew_find script", "ew_find scripX", "ew_find python3", "ew_find pythonX"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, needed := range []string{"bash", "stty", "mkfifo", name} {
				if _, err := exec.LookPath(needed); err != nil && needed != "neither" {
					t.Skip(err)
				}
			}
			dir := t.TempDir()
			meta := Meta{ID: bashscript.NewID(), Supervisor: bashscript.NewID(), Mark: bashscript.NewMark(bashscript.NewSessionMark()), Name: "jaa", Terminal: true}
			line, err := meta.Line()
			if err != nil {
				t.Fatal(err)
			}
			launch := Launch{
				Dir: dir, Name: meta.Name, Meta: line, ID: meta.ID, Sup: meta.Supervisor, Mark: meta.Mark, SupMark: bashscript.NewMark(meta.Mark.Session()), Token: token,
				LogBytes: 1 << 20, Terminal: &Size{Rows: 31, Cols: 97},
				Command: `[[ -t 0 && -t 1 && -t 2 ]] && : </dev/tty && stty size; read -r x; echo "got $x"; cat; trap go=1 INT; echo ready; until [[ $go ]]; do sleep 0.1; done; seq 1 20000; kill -KILL $$`,
			}
			launched := ParseLaunch(token, string(askBash(t, without.Replace(launch.Text()), "")))
			if name == "neither" {
				if launched.Started || !launched.NoHolder || launched.NoTerminal {
					t.Errorf("%+v", launched)
				}
				return
			}
			if !launched.Started {
				t.Fatalf("%+v", launched)
			}
			act := func(verb, data string) {
				if answer, err := ParseAct(token, askBash(t, Act(dir, token, meta.Name, verb, "KILL", time.Now()), data)); err != nil || answer != "ok" {
					t.Errorf("%s %q: %q, %v", verb, data, answer, err)
				}
			}
			t.Cleanup(func() { askBash(t, Act(dir, token, meta.Name, Signal, "KILL", time.Now()), "") })
			shown := ""
			await := func(want string) *Found {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
					k, err := ParseRead(token, askBash(t, Read(dir, token, meta.Name, int64(len(shown)), 1<<20, time.Second), ""))
					if err != nil || k.Job == nil {
						t.Fatalf("%+v, %v", k, err)
					}
					if shown += string(k.Data); strings.HasSuffix(shown, want) && (k.Job.Ended || want != "") {
						return k.Job
					}
				}
				t.Fatalf("no %q in %.500q", want, shown)
				return nil
			}
			await("31 97\r\n")
			act(Send, "line\r")
			await("line\r\ngot line\r\n")
			act(Close, "")
			await("ready\r\n")
			act(Send, "\x03")
			if job := await(""); job.Code != 137 || job.PID <= 0 {
				t.Errorf("%+v", job)
			}
			if _, flood, _ := strings.Cut(shown, "^C1\r\n"); strings.Count(flood, "\r\n") != 19999 || !strings.HasSuffix(flood, "\r\n20000\r\n") {
				t.Errorf("of the last lines %d came: %.100q ... %q", strings.Count(flood, "\r\n"), shown, shown[max(0, len(shown)-20):])
			}
		})
	}
}

// askBash runs a text by a bash as a sandbox does, with data behind it.
func askBash(t *testing.T, text, data string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", bashscript.TextArgs(len(text))...)
	cmd.Stdin = strings.NewReader(text + "\x00" + data)
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return out
}
