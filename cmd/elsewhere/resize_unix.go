//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// onResize calls changed, from one goroutine, each time the terminal has another size, and once at the start.
func onResize(changed func()) (stop func()) {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGWINCH)
	signals <- syscall.SIGWINCH
	go func() {
		defer close(done)
		for range signals {
			changed()
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
		<-done
	}
}
