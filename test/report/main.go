// Command report reads a `go test -json` stream on standard input and says on standard output what ran on which
// backend and what did not, as package testreport describes.
//
//	go test -json ./... | go run ./test/report
//
// With REQUIRE_ALL=1 in the environment a skip is a failure; -short says that the stream is that of a -short run.
// With REPEAT_FAILED=N at most N tests that failed in a check are repeated alone, three times, with the command of -repeat:
// one that then passes each time is shown as unsteady.
// It exits 0 if at least one test ran and none failed, 3 if all that failed was unsteady, 1 if something failed, 2 if the stream
// is broken or an argument is wrong.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/testreport"
)

func main() {
	short := flag.Bool("short", false, "the stream is that of a `go test -short` run")
	command := flag.String("repeat", "go test", "the `command` that repeats a test, with its flags")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "report: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	repeat, err := strconv.Atoi(os.Getenv("REPEAT_FAILED"))
	if v := os.Getenv("REPEAT_FAILED"); v != "" && (err != nil || repeat < 0) {
		fmt.Fprintf(os.Stderr, "report: REPEAT_FAILED is %q; it has to be a number\n", v)
		os.Exit(2)
	}
	opts := &testreport.Options{
		Module:     "github.com/elsewhere-sh/elsewhere",
		Backends:   []string{"local", "docker", "singularity", "ssh", "modal", "daytona", "vercel"},
		RequireAll: os.Getenv("REQUIRE_ALL") == "1",
		Short:      *short,
	}
	summary, err := testreport.Read(os.Stdin, os.Stdout, opts)
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(2)
	case summary.OK():
	case repeatable(summary, repeat) && repeatAll(summary.Failures, strings.Fields(*command), opts):
		os.Exit(3)
	default:
		os.Exit(1)
	}
}
