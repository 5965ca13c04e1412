package main

import (
	"os"
	"sync"

	"golang.org/x/term"
)

// rawMode is a terminal whose keys are passed on as they are, until it is left. Any goroutine may leave it.
type rawMode struct {
	mu    sync.Mutex
	f     *os.File
	saved *term.State
	left  bool
}

func (r *rawMode) enter(f *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left || r.saved != nil {
		return nil
	}
	saved, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return err
	}
	r.f, r.saved = f, saved
	return nil
}

// leave puts the terminal back as it was found; after it enter does nothing. More than one does no harm.
func (r *rawMode) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = true
	if r.saved != nil {
		_ = term.Restore(int(r.f.Fd()), r.saved) // it may be gone
		r.saved = nil
	}
}
