//go:build linux

// Command cmd runs the emulator of Modal until it is interrupted, and prints how a client is pointed at it.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/modal"
)

func main() {
	port := flag.Int("port", 0, "the port on 127.0.0.1; 0 is any")
	latency := flag.Duration("latency", 0, "how long a round trip takes")
	flag.Parse()
	if err := run(*port, *latency); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(port int, latency time.Duration) error {
	// A shell script that starts it in the background has INT ignored, and every command in a sandbox would inherit that.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	e, err := modal.New(modal.Options{Port: port})
	if err != nil {
		return err
	}
	e.SetLatency(latency)
	fmt.Printf("export MODAL_SERVER_URL=%s MODAL_TOKEN_ID=%s MODAL_TOKEN_SECRET=%s\n", e.URL(), modal.DefaultToken.ID, modal.DefaultToken.Secret)
	<-stop
	return e.Close()
}
