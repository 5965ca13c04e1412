//go:build linux

// Command cmd runs the emulator of Daytona by hand until it is interrupted, and prints what to export.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/elsewhere-sh/elsewhere/test/cloud/daytona"
)

func main() {
	done := make(chan os.Signal, 1)
	signal.Notify(done, os.Interrupt, syscall.SIGTERM)
	s, err := daytona.New(daytona.Tree)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("export DAYTONA_API_URL=%s DAYTONA_API_KEY=%s\n", s.URL(), s.NewAccount(nil).Key)
	<-done
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
