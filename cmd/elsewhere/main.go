// Command elsewhere runs bash commands somewhere else, behind one contract.
package main

import (
	"fmt"
	"os"
)

var version = "dev" // set by the linker: -X main.version=...

func main() {
	fmt.Fprintf(os.Stderr, "elsewhere %s\nusage: elsewhere run 'COMMAND'\n", version)
	os.Exit(125)
}
