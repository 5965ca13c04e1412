package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/elsewhere-sh/elsewhere/internal/testreport"
)

// times is how often a test has to pass when it is repeated.
const times = 3

// repeatable tells whether all that failed are a few checks: on a busy machine one of thousands may have come too late.
func repeatable(s *testreport.Summary, most int) bool {
	return len(s.Failures) > 0 && len(s.Failures) <= most && len(s.Refused) == 0 &&
		!slices.ContainsFunc(s.Failures, func(f testreport.Failure) bool { return !f.Checked })
}

// repeatAll repeats each test alone and tells whether all of them passed each time. It says which they are: such a test is a
// fault of the test or of the product, to be looked into, but none that has to hold up what does not touch it.
func repeatAll(failures []testreport.Failure, command []string, opts *testreport.Options) bool {
	for _, f := range failures {
		fmt.Printf("\nrepeating %s %s\n", f.Package, f.Test)
		if !passes(f, command, opts) {
			return false
		}
	}
	fmt.Println()
	for _, f := range failures {
		fmt.Printf("UNSTEADY: %s %s failed, then passed %d times alone\n", f.Package, f.Test, times)
	}
	return true
}

func passes(f testreport.Failure, command []string, opts *testreport.Options) bool {
	args := append(slices.Clone(command[1:]), "-json", fmt.Sprintf("-count=%d", times), "-timeout=15m", "-run="+f.Pattern(), f.Package)
	cmd := exec.Command(command[0], args...)
	cmd.Stderr = os.Stderr
	stream, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		return false
	}
	summary, err := testreport.Read(stream, os.Stdout, &testreport.Options{Module: opts.Module, RequireAll: true})
	if waitErr := cmd.Wait(); err == nil {
		err = waitErr
	}
	passed, _, _ := summary.Totals()
	return err == nil && summary.OK() && passed >= times
}
