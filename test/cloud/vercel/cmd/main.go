//go:build linux

// Command cmd runs the emulator of Vercel Sandbox until it is interrupted, and prints how elsewhere is pointed at it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/vercel"
)

func main() {
	latency := flag.Duration("latency", 0, "how long a round trip takes")
	flag.Parse()
	if err := run(*latency); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(latency time.Duration) error {
	// A shell script that starts it in the background has INT ignored, and every command in a sandbox would inherit that.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	s, err := vercel.New(vercel.Tree)
	if err != nil {
		return err
	}
	s.SetLatency(latency)
	a := s.NewAccount(nil)
	fmt.Printf("export TERMINAL_VERCEL_API_URL=%s VERCEL_TOKEN=%s VERCEL_TEAM_ID=%s VERCEL_PROJECT_ID=%s\n", s.URL(), a.Token, a.Team, a.Project)
	<-stop
	return s.Close()
}
