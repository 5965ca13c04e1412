package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"elsewhere": func() { os.Exit(run(os.Args[1:], testBackends())) }})
}

// TestScripts runs the command line as a user does. Each script has a home of its own ($HOME), and HERMES_HOME is
// ~/.hermes there. Beside testscript's own commands there are:
//
//	status N CMD ARGS...   CMD has to end with exit code N
//	nul FILE               write a FILE with a NUL byte in it
//	kept BACKEND TASK [stopped|paused|dead] [used] [fleeting]
//	                       an engine of $ENGINE has this sandbox; TASK is as within a Go string; fleeting is one made
//	                       not to persist
//	oneline                the last command said nothing but one failure on standard error, with its next step
//
// $ELSEWHERE is the program. With $ENGINE its backends are local and those of fake_test.go. [root] tells who runs the tests, [mounts] whether they may mount a file system.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			bin, err := exec.LookPath("elsewhere")
			if err != nil {
				return err
			}
			env.Setenv("ELSEWHERE", bin)
			return os.MkdirAll(home, 0o700)
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "mounts": // file systems can be mounted, in a namespace of their own
				return exec.Command("unshare", "-m", "true").Run() == nil, nil
			}
			return false, errors.New("no such condition: " + cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: status N CMD ARGS...")
				}
				err := ts.Exec(args[1], args[2:]...)
				got := 0
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					got = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if strconv.Itoa(got) != args[0] {
					ts.Fatalf("exit code %d, want %s", got, args[0])
				}
			},
			"kept": func(ts *testscript.TestScript, _ bool, args []string) {
				task, err := strconv.Unquote(`"` + args[1] + `"`)
				ts.Check(err)
				e := engine{ts.Getenv("ENGINE"), args[0]}
				r := e.newRecord(task)
				for _, arg := range args[2:] {
					switch arg {
					case "used":
						r.Detail.InUse = true
					case "fleeting":
						r.Detail.Persistent = false
					default:
						r.Detail.State = arg
					}
				}
				ts.Check(e.write(r))
			},
			"nul": func(ts *testscript.TestScript, neg bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte("echo a\x00b\n"), 0o600))
			},
			"oneline": func(ts *testscript.TestScript, neg bool, args []string) {
				text := ts.ReadFile("stderr")
				if !regexp.MustCompile(`\A(elsewhere: notice: [^\n]+\n)*elsewhere: [^\n]+; [^\n]+\n\z`).MatchString(text) {
					ts.Fatalf("not one line with a next step: %q", text)
				}
				if out := ts.ReadFile("stdout"); out != "" {
					ts.Fatalf("on standard output: %q", out)
				}
			},
		},
	})
}
