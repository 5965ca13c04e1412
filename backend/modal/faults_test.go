//go:build linux

package modal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver/drivertest"
	emulator "github.com/elsewhere-sh/elsewhere/test/cloud/modal"
)

// TestConformanceAtADistance holds the backend against the cases that distance could break, with 100 ms for each round trip.
func TestConformanceAtADistance(t *testing.T) {
	var e *emulator.Emulator
	if os.Getenv(childVar) == "" {
		var err error
		if e, err = emulator.New(emulator.Options{}); err != nil {
			need(t, err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		e.SetLatency(100 * time.Millisecond)
	}
	h := harness()
	h.Place = func(t testing.TB, spec drivertest.PlaceSpec) *drivertest.Place { return placeAt(t, e, spec) }
	h.Skip = nil
	h.Only = drivertest.AtADistance()
	drivertest.Run(t, h)
}

// TestASpacedCallCostsOneMessage counts: with a bash waiting, a call is one write to its standard input, and nothing that a call
// waits for starts another bash.
func TestASpacedCallCostsOneMessage(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"spawn_ahead": "1"})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	for range 3 {
		if _, err := s.Run(ctx, "true", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	quiet(t, a)
	// Nobody can start a bash now: a call that needs one would wait for it.
	a.e.Inject(emulator.Fault{Method: "TaskExecStart", Delay: 5 * time.Second, Times: 20})
	before := a.e.Counts()
	begin := time.Now()
	res, err := s.Run(ctx, "echo hi", nil)
	took := time.Since(begin)
	after := a.e.Counts()
	a.e.Heal()
	if err != nil || string(res.Output) != "hi\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	if took >= 5*time.Second {
		t.Errorf("the call waited for another bash: %v", took)
	}
	if n := after["TaskExecStdinWrite"] - before["TaskExecStdinWrite"]; n < 1 || n > 2 { // the watchdog may be told of the next one
		t.Errorf("%d writes", n)
	}
	for _, method := range []string{"SandboxGetFromNameV2", "SandboxCreateV2", "TaskSnapshotFilesystem", "ImageFromId", "SandboxTagsGetV2"} {
		if after[method] != before[method] {
			t.Errorf("a call asked for %s", method)
		}
	}
}

// quiet waits until no request has come for a while.
func quiet(t *testing.T, a *account) {
	t.Helper()
	last, since := fmt.Sprint(a.e.Counts()), time.Now()
	eventually(t, "nothing goes on", func() bool {
		if now := fmt.Sprint(a.e.Counts()); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
}

// TestNothingRunsTwice has requests fail before and after they were carried out.
func TestNothingRunsTwice(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, nil)
	run(t, sb, ": > /root/ran", "")
	faults := []emulator.Fault{
		{Method: "TaskExecStart", Code: codes.Unavailable, After: true},
		{Method: "TaskExecStart", Code: codes.Internal, Times: 2},
		{Method: "TaskExecStdinWrite", Code: codes.Unavailable, After: true, Skip: 2},
		{Method: "TaskExecStdinWrite", Code: codes.Unknown, Times: 2},
		{Method: "TaskExecStdioRead", Code: codes.Unavailable, Bytes: 20, Times: 3},
		{Method: "TaskExecWait", Code: codes.Unavailable, After: true},
	}
	ran := ""
	for i, fault := range faults {
		a.e.Inject(fault)
		run(t, sb, fmt.Sprintf("echo %d >> /root/ran; echo %d", i, i), fmt.Sprintf("%d\n", i))
		a.e.Heal()
		ran += fmt.Sprintf("%d\n", i)
	}
	run(t, sb, "cat /root/ran", ran)
}

// TestSoak is a soak with a fixed seed: one message in a hundred takes its connection with it. Nothing hangs and nothing runs
// twice; a call that was lost says so.
func TestSoak(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"modal_lifetime": "1h"})
	ctx, cancel := context.WithTimeout(t.Context(), 5*long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	if _, err := s.Run(ctx, ": > /root/ran", nil); err != nil {
		t.Fatal(err)
	}
	a.e.CutAtRandom(100, 42)
	lost, ok := 0, ""
	calls := 60
	if drivertest.Long() {
		calls = 300
	}
	for i := range calls {
		cctx, done := context.WithTimeout(ctx, long)
		res, err := s.Run(cctx, fmt.Sprintf("echo %d >> /root/ran; seq 1 2000; echo end", i), nil)
		done()
		switch {
		case errors.Is(err, elsewhere.ErrLost):
			lost++
		case err != nil:
			t.Fatalf("call %d: %v", i, err)
		case len(res.Output) != 8893+4 || res.ExitCode != 0:
			t.Fatalf("call %d: %d bytes, %d, %q", i, len(res.Output), res.ExitCode, res.Notices)
		default:
			ok += fmt.Sprintf("%d\n", i)
		}
	}
	a.e.CutAtRandom(0, 0)
	t.Logf("%d of %d calls were lost", lost, calls)
	if lost > calls/4 {
		t.Errorf("%d calls were lost", lost)
	}
	run(t, sb, "uniq -d /root/ran; sort -n /root/ran | uniq -d", "")
	res, err := try(t, sb, "cat /root/ran", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lost == 0 && string(res.Output) != ok {
		t.Errorf("%q ran, %q was said", res.Output, ok)
	}
}

// TestAServiceThatDoesNotAnswer is given up within the time that the caller has.
func TestAServiceThatDoesNotAnswer(t *testing.T) {
	a := own(t)
	a.e.Inject(emulator.Fault{Method: "SandboxCreateV2", Hang: true, Times: 10})
	cfg, err := a.config(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	begin := time.Now()
	if _, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Environ: a.environ}); err == nil {
		t.Error("a sandbox was opened")
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	a.e.Heal()
	sb := a.mustOpen(t, nil)
	run(t, sb, "echo ok", "ok\n")
	// A command is ended on time though no bash can be started to end it.
	a.e.Inject(emulator.Fault{Method: "TaskExecStart", Hang: true, Skip: 2, Times: 100})
	begin = time.Now()
	res, err := try(t, sb, "sleep 1000", &elsewhere.RunOptions{Timeout: 3 * time.Second})
	a.e.Heal()
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v: %+v, %v", took, res, err)
	}
	run(t, sb, "echo ok", "ok\n")
}

// TestOutputThatComesLateIsNotLost has the end of a bash told before its output.
func TestOutputThatComesLateIsNotLost(t *testing.T) {
	a := own(t)
	sb := a.mustOpen(t, map[string]string{"spawn_ahead": "0"})
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	s, err := sb.Session(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	if _, err := s.Run(ctx, "true", nil); err != nil {
		t.Fatal(err)
	}
	// Both of the next bash's streams would be cut; one has that much.
	a.e.Inject(emulator.Fault{Method: "TaskExecStdioRead", Bytes: 50000, Delay: 2 * time.Second, Code: codes.Unavailable, Times: 2})
	res, err := s.Run(ctx, "export A=1; seq 1 20000", nil)
	a.e.Heal()
	if err != nil || len(res.Output) != 108894 || res.ExitCode != 0 || !res.StateSaved {
		t.Fatalf("%d bytes, %+v, %v", len(res.Output), res.Notices, err)
	}
	if res, err := s.Run(ctx, "echo $A", nil); err != nil || string(res.Output) != "1\n" {
		t.Errorf("%q, %v", res.Output, err)
	}
}
