//go:build unix

package elsewhere_test

import (
	"context"
	"os"
	"testing"

	"github.com/elsewhere-sh/elsewhere"
)

// asks makes approve what is asked from now on, in sandboxes that are opened later.
func (w *watched) asks(approve func(elsewhere.PolicyQuestion) elsewhere.PolicyAnswer) *elsewhere.Sandbox {
	w.t.Helper()
	was := w.opts.Approve
	w.opts.Approve = func(_ context.Context, q elsewhere.PolicyQuestion) (elsewhere.PolicyAnswer, error) {
		return approve(q), nil
	}
	defer func() { w.opts.Approve = was }()
	return w.open()
}

func TestAnAnswerThatCannotLastCountsOnce(t *testing.T) {
	w := newWatched(t, nil, nil)
	s := openSession(t, w.Sandbox, "")
	command := "rm -rf " + w.base + `/outside/data "$UNKNOWN"`
	w.answers(elsewhere.ApproveAlways)
	for range 2 {
		if err := os.MkdirAll(w.base+"/outside/data", 0o700); err != nil {
			t.Fatal(err)
		}
		runIn(t, s, command, nil)
		if q := w.questions(); len(q) != 1 || q[0].Lasts {
			t.Fatalf("asked %+v", q)
		}
		if row := w.audited(); row.Policy != "asked: once: delete-outside" {
			t.Errorf("the record is %+v", row)
		}
	}
}

func TestAnAnswerOnceIsNoOtherCalls(t *testing.T) {
	w := newWatched(t, nil, nil)
	var sb *elsewhere.Sandbox
	var s *elsewhere.Session
	command := "rm -rf " + w.base + "/outside/data"
	asked := 0
	inside := make(chan error, 1)
	// While the first call waits for its answer a second one with the same command gets a yes and runs: each is asked about.
	sb = w.asks(func(elsewhere.PolicyQuestion) elsewhere.PolicyAnswer {
		if asked++; asked == 1 {
			_, err := s.Run(context.Background(), command, nil)
			inside <- err
		}
		return elsewhere.ApproveOnce
	})
	s = openSession(t, sb, "")
	if _, err := s.Run(t.Context(), command, nil); err != nil {
		t.Error(err)
	}
	if err := <-inside; err != nil || asked != 2 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if _, err := s.Run(t.Context(), command, nil); err != nil || asked != 3 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestAnswerOfAnUnkeptSessionCountsOnce(t *testing.T) {
	w := newWatched(t, nil, nil)
	w.answers(elsewhere.ApproveSession)
	for range 2 {
		if err := w.WriteFile(t.Context(), w.base+"/home/.bashrc", nil, 0o600); err != nil { // of no session
			t.Fatal(err)
		}
		if q := w.questions(); len(q) != 1 {
			t.Errorf("asked %+v", q)
		}
	}
}

func TestADirectoryThatChangesWhileSomebodyIsAskedIsLookedAtAgain(t *testing.T) {
	w := newWatched(t, nil, nil)
	var s *elsewhere.Session
	to, asked := "", 0
	sb := w.asks(func(q elsewhere.PolicyQuestion) elsewhere.PolicyAnswer {
		if asked++; to != "" {
			if _, err := s.Run(context.Background(), "cd "+to, nil); err != nil {
				t.Error(err)
			}
		}
		return elsewhere.ApproveOnce
	})
	s = openSession(t, sb, "")
	for _, c := range []struct {
		to, rule string
		asked    int
	}{
		{w.base + "/home", "delete-home", 1}, // which is blocked there
		{w.base + "/work", "", 1},            // which is free there
		{w.base + "/outside/other", "", 2},   // which is asked about there, too
	} {
		for _, d := range []string{"outside/data", "outside/other/data", "work/data"} {
			if err := os.MkdirAll(w.base+"/"+d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		to = ""
		runIn(t, s, "cd "+w.base+"/outside", nil)
		asked, to = 0, c.to
		command := "rm -rf ./data"
		if c.rule != "" {
			command = "rm -rf ./*"
		}
		_, err := s.Run(t.Context(), command, nil)
		switch {
		case c.rule != "":
			wantDenied(t, err, c.rule)
		case err != nil || !w.there("outside/data"):
			t.Errorf("to %s: %v", c.to, err)
		}
		if asked != c.asked || !w.there("home/.ssh") {
			t.Errorf("to %s: asked %d times, want %d", c.to, asked, c.asked)
		}
	}
	// The directory that the call names is its own.
	asked, to = 0, w.base+"/home"
	if _, err := s.Run(t.Context(), "rm -rf ./*", &elsewhere.RunOptions{Dir: w.base + "/outside"}); err != nil || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
}

func TestAnAnswerOfANamedSessionLeavesItsStateToOthers(t *testing.T) {
	w := newWatched(t, nil, nil)
	ctx := context.Background()
	other := openSession(t, w.open(), "dev")
	sb := w.asks(func(elsewhere.PolicyQuestion) elsewhere.PolicyAnswer {
		if _, err := other.Run(ctx, "export THEIRS=1; cd "+w.base+"/outside", nil); err != nil {
			t.Error(err)
		}
		if err := other.Flush(ctx); err != nil {
			t.Error(err)
		}
		return elsewhere.ApproveSession
	})
	s := openSession(t, sb, "dev")
	runIn(t, s, "export MINE=1", nil)
	r := runIn(t, s, "rm -rf "+w.base+"/outside/data; export LAST=1; echo $MINE$THEIRS $PWD", nil)
	if want := "11 " + w.base + "/outside\n"; string(r.Output) != want {
		t.Errorf("the output is %q, want %q", r.Output, want)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if r := runIn(t, other, "echo $MINE$THEIRS$LAST $PWD", nil); string(r.Output) != "111 "+w.base+"/outside\n" {
		t.Errorf("then the other one has %q", r.Output)
	}
}
