// Command elsewhere runs bash commands on a backend: this machine, a container, an SSH host, a cloud sandbox.
//
// One file holds one command. What a command does is in package elsewhere; here are only flags, texts, signals and
// exit codes, which docs/cli.md lists.
package main

import (
	"os"

	"github.com/elsewhere-sh/elsewhere/backend/all"
)

func main() {
	os.Exit(run(os.Args[1:], all.Backends()))
}
