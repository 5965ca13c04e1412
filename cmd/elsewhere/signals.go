package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// lastWait is how long a call that a signal ends may take to end: its grace, the second after it, and some room. What
// is left of its processes is the watchdog's.
const lastWait = 5 * time.Second

// interruption turns signals to elsewhere into the end of the command that it runs.
//
// SIGINT interrupts the command, a second one ends elsewhere at once. SIGTERM, SIGHUP (the terminal was closed) and
// SIGQUIT end the command and then elsewhere. The command's processes never get these signals themselves: they are in
// a session of their own. SIGPIPE is caught so that a closed standard output is an error of write, after which the
// command is ended, and not the end of elsewhere. Caught, not ignored: an ignored signal would be inherited. A signal
// that elsewhere was started to ignore (nohup) stays ignored.
type interruption struct {
	signals chan os.Signal
	done    chan struct{}
	mu      sync.Mutex
	first   syscall.Signal
	last    func() // called before elsewhere exits at once; nil for nothing
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

// interruptible returns a context that the first signal cancels. stop gives the signals back.
func interruptible(parent context.Context) (ctx context.Context, in *interruption, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	in = &interruption{signals: make(chan os.Signal, 8), done: make(chan struct{})}
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
		if sig == syscall.SIGINT && in.signal() != 0 {
			in.exit(sig)
		}
		in.mu.Lock()
		if in.first == 0 || in.first == syscall.SIGINT {
			in.first = sig
		}
		in.mu.Unlock()
		cancel()
		if sig != syscall.SIGINT {
			time.AfterFunc(lastWait, func() { in.exit(sig) })
		}
	}
}

// signal is the signal that came, or 0.
func (in *interruption) signal() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.first
}
