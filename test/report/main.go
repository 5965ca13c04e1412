// Command report reads a `go test -json` stream on standard input and says on standard output what ran on which
// backend and what did not, as package testreport describes.
//
//	go test -json ./... | go run ./test/report
//
// With REQUIRE_ALL=1 in the environment a skip is a failure; -short says that the stream is that of a -short run.
// It exits 0 if at least one test ran and none failed, 1 if not, 2 if the stream is broken or an argument is wrong.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/elsewhere-sh/elsewhere/internal/testreport"
)

func main() {
	short := flag.Bool("short", false, "the stream is that of a `go test -short` run")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "report: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	summary, err := testreport.Read(os.Stdin, os.Stdout, &testreport.Options{
		Module:     "github.com/elsewhere-sh/elsewhere",
		Backends:   []string{"local", "docker", "singularity", "ssh", "modal", "daytona", "vercel"},
		RequireAll: os.Getenv("REQUIRE_ALL") == "1",
		Short:      *short,
	})
	switch {
	case err != nil:
		fmt.Fprintf(os.Stderr, "report: %v\n", err)
		os.Exit(2)
	case !summary.OK():
		os.Exit(1)
	}
}
