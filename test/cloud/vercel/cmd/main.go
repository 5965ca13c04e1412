//go:build linux

// Command cmd runs the emulator of Vercel Sandbox by hand until it is interrupted, and prints what to export.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

func main() {
	done := make(chan os.Signal, 1)
	signal.Notify(done, os.Interrupt, syscall.SIGTERM)
	s, err := vercel.New(vercel.Tree)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	a := s.NewAccount(nil)
	fmt.Printf("export TERMINAL_VERCEL_API_URL=%s VERCEL_SANDBOX_API_URL=%s VERCEL_TOKEN=%s VERCEL_TEAM_ID=%s VERCEL_PROJECT_ID=%s\n", s.URL(), s.URL(), a.Token, a.Team, a.Project)
	<-done
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
