// Package victim plays a process that is killed at a moment that a test chooses: it is the test's own program, started again to run that
// test alone, which asks Is and does what is to be cut off.
package victim

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// variable is set in a victim; it holds what the test has told it.
const variable = "ELSEWHERE_VICTIM"

// long is only reached when something hangs.
const long = 2 * time.Minute

// Is tells whether this process is a victim, and what it was told.
func Is() (word string, is bool) { return os.LookupEnv(variable) }

// Kill starts a victim that runs the test of t (of a part of one the whole) from its beginning with this environment and is told word, and ends it by KILL as soon as it
// is time. It fails the test where the victim ends by itself before.
func Kill(t *testing.T, environ []string, word string, now func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
	child.Env = append(slices.Clone(environ), variable+"="+word, "TMPDIR="+t.TempDir())
	var said bytes.Buffer
	child.Stdout, child.Stderr = &said, &said
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for !now() {
		select {
		case err := <-ended:
			t.Fatalf("it ended before it was killed: %v\n%s", err, said.String())
		case <-time.After(5 * time.Millisecond):
		}
	}
	_ = child.Process.Kill()
	if err := <-ended; err == nil || child.ProcessState.Exited() {
		t.Fatalf("it was not killed: %v\n%s", err, said.String())
	}
}
