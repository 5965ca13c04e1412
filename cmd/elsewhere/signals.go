package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere/config"
)

// lastWait is how long a call that a signal ends may take to end: its grace, the second after it, and some room. What
// is left of its processes is the watchdog's.
const lastWait = 5 * time.Second

const (
	// driverClose is how long a backend may take to give a sandbox up: snapshots and stops in the cloud, with room. What comes
	// back from there has terminal.sync_back_timeout beside it.
	driverClose = 3 * time.Minute
	// serverWait is how long an MCP server may take to end its clients, with room.
	serverWait = time.Minute
	// secondAfter is when a second signal means more than the first: timeout(1) sends one to its child and to its whole group.
	secondAfter = time.Second
)

// closeWait is how long closing a sandbox with these settings may take.
func closeWait(cfg *config.Config) time.Duration {
	return driverClose + cfg.Duration("sync_back_timeout")
}

// interruption turns signals to elsewhere into the end of the command that it runs.
//
// SIGINT interrupts the command, a second one ends elsewhere at once. SIGTERM, SIGHUP (the terminal was closed) and
// SIGQUIT end the command and then elsewhere, at the latest when its time is over; closing a sandbox has time of its own, since
// files would be lost else. A SIGINT, SIGTERM or SIGQUIT a second after that ends elsewhere at once. The command's processes never get these signals themselves: they are in
// a session of their own. SIGPIPE is caught so that a closed standard output is an error of write, after which the
// command is ended, and not the end of elsewhere. Caught, not ignored: an ignored signal would be inherited. A signal
// that elsewhere was started to ignore (nohup) stays ignored. Nil is a command that signals end as they end any program.
type interruption struct {
	signals chan os.Signal
	done    chan struct{}

	mu        sync.Mutex
	first     syscall.Signal
	last      func()        // called before elsewhere exits at once; nil for nothing
	wait      time.Duration // that a command has from a signal to its end
	closeWait time.Duration // that closing has, from its begin or from a signal in its midst; 0 is no other
	closes    int           // that go on
	ending    time.Time     // when a signal came that ends elsewhere; zero for none
	timer     *time.Timer   // that exits then
}

// within sets how long the command may take to end; before, it is lastWait.
func (in *interruption) within(wait time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.wait = wait
}

// opened says that something was opened whose closing may take that long.
func (in *interruption) opened(wait time.Duration) {
	if in == nil {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closeWait = max(in.closeWait, wait)
}

// closing says that something is closed, until done is called.
func (in *interruption) closing() (done func()) {
	if in == nil {
		return func() {}
	}
	in.change(1)
	return func() { in.change(-1) }
}

func (in *interruption) change(closes int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := in.left()
	in.closes += closes
	// One that has fired ends elsewhere as it is.
	if after := in.left(); after != before && in.timer != nil && in.timer.Stop() {
		in.timer.Reset(after)
	}
}

// left is how long what goes on may take. in.mu is held.
func (in *interruption) left() time.Duration {
	if in.closes > 0 {
		return max(in.wait, in.closeWait)
	}
	return in.wait
}

// beforeExit has f called where a signal makes elsewhere exit at once.
func (in *interruption) beforeExit(f func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.last = f
}

func (in *interruption) exit(sig syscall.Signal) {
	in.mu.Lock()
	last := in.last
	in.mu.Unlock()
	if last != nil {
		last()
	}
	os.Exit(128 + int(sig))
}

// interruptible returns a context that the first signal cancels. stop gives the signals back; what has to be closed is closed before.
func (a *app) interruptible(parent context.Context) (ctx context.Context, in *interruption, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	in = &interruption{signals: make(chan os.Signal, 8), done: make(chan struct{}), wait: lastWait}
	a.signals = in
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE} {
		if !signal.Ignored(sig) {
			signal.Notify(in.signals, sig)
		}
	}
	go in.watch(cancel)
	return ctx, in, func() {
		signal.Stop(in.signals)
		close(in.signals)
		<-in.done
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.timer != nil {
			in.timer.Stop()
		}
		cancel()
	}
}

func (in *interruption) watch(cancel context.CancelFunc) {
	defer close(in.done)
	for s := range in.signals {
		sig, ok := s.(syscall.Signal)
		if !ok || sig == syscall.SIGPIPE {
			continue
		}
		if in.take(sig) {
			in.exit(sig)
		}
		cancel()
	}
}

// take notes a signal and tells whether it ends elsewhere at once.
func (in *interruption) take(sig syscall.Signal) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case sig == syscall.SIGINT && in.first != 0:
		return true
	case sig != syscall.SIGINT && !in.ending.IsZero(): // a terminal that is closed may say so more than once
		return sig != syscall.SIGHUP && time.Since(in.ending) >= secondAfter
	}
	if in.first == 0 || in.first == syscall.SIGINT {
		in.first = sig
	}
	if sig != syscall.SIGINT {
		in.ending = time.Now()
		in.timer = time.AfterFunc(in.left(), func() { in.exit(sig) })
	}
	return false
}

// signal is the signal that came, or 0.
func (in *interruption) signal() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.first
}
