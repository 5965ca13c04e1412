package docker

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
)

// showScript prints what a bash was given, and on stderr one word.
const showScript = `mapfile -d '' env </proc/$$/environ; printf '%s\0' "$@" '' "${env[@]}"; echo said >&2`

// show runs showScript in the next bash and gives its arguments, its environment and its exec.
func show(t *testing.T, s *sandbox, env, args []string) (gotArgs, gotEnv []string, exec string) {
	t.Helper()
	p, err := s.Bash(t.Context(), driver.BashSpec{
		ID: owner.NewID(), Env: env, Args: append([]string{"--noprofile", "--norc", "-p", "-c", showScript, "bash"}, args...),
	})
	if err != nil {
		t.Fatal(err)
	}
	out, outErr := io.ReadAll(p.Stdout())
	errs, errsErr := io.ReadAll(p.Stderr())
	if outErr != nil || errsErr != nil || string(errs) != "said\n" {
		t.Fatalf("stdout %v, stderr %q %v", outErr, errs, errsErr)
	}
	if status, err := ended(t, p); err != nil || status.Code != 0 {
		t.Fatalf("it ended with %+v, %v", status, err)
	}
	_ = p.Stdin().Close()
	a, e, found := bytes.Cut(out, []byte("\x00\x00"))
	if !found {
		t.Fatalf("no end of the arguments in %q", out)
	}
	return strings.Split(string(a), "\x00"), strings.Split(strings.TrimSuffix(string(e), "\x00"), "\x00"), p.(*process).exec
}

// What a bash gets is the same whether it was made of one that waited or not.
func TestTheFirstBashesAreMadeOfThoseThatTheOpeningStarted(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("blank"))
	defer w.close(s)
	waiting := map[string]bool{}
	s.mu.Lock()
	s.blankTimer.Stop() // however slow this is
	blanks := slices.Clone(s.blanks)
	s.mu.Unlock()
	for _, b := range blanks {
		<-b.ready
		if b.p == nil {
			t.Fatal("a bash beside the opening was not started")
		}
		waiting[b.p.exec] = true
	}
	if len(waiting) != blanksBeside+1 {
		t.Fatalf("%d bashes wait", len(waiting))
	}
	env := []string{"ODD=a b\n'\"$(exit) é=", "_lower9=", "elsewhere_words=mine"}
	args := []string{"", "-x", "e=1", "a\nb", "é *", string(allBytes()[1:128])} // an engine takes nothing but UTF-8
	for i := range blanksBeside + 2 {
		gotArgs, gotEnv, exec := show(t, s, env, args)
		if made := waiting[exec]; made != (i <= blanksBeside) {
			t.Errorf("bash %d was made of one that waited: %v", i, made)
		}
		if !slices.Equal(gotArgs, args) {
			t.Errorf("bash %d has the arguments %q, not %q", i, gotArgs, args)
		}
		for _, entry := range append(env, "HOME="+s.info.Home) {
			if !slices.Contains(gotEnv, entry) {
				t.Errorf("bash %d has no %q in its environment, but %q", i, entry, gotEnv)
			}
		}
	}
}

// An entry that bash cannot export is given by the engine.
func TestABashWithAnOddEntryIsStartedByTheEngine(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("blank"))
	defer w.close(s)
	for _, odd := range []string{"A.B=1", "elsewhere_word=mine"} {
		if _, env, _ := show(t, s, []string{odd}, []string{"x"}); !slices.Contains(env, odd) {
			t.Errorf("its environment is %q", env)
		}
	}
}

// A bash that waited and has died meanwhile is nobody's.
func TestABashThatDiedWhileItWaitedIsNotUsed(t *testing.T) {
	w := newWorld(t)
	s := w.open(w.request("blank"))
	defer w.close(s)
	s.mu.Lock()
	s.blankTimer.Stop()
	blanks := slices.Clone(s.blanks)
	s.mu.Unlock()
	for _, b := range blanks {
		<-b.ready
		_ = b.p.stdin.Close()
		<-b.p.streamEnd
	}
	if args, _, _ := show(t, s, nil, []string{"lives"}); !slices.Equal(args, []string{"lives"}) {
		t.Errorf("its arguments are %q", args)
	}
}
