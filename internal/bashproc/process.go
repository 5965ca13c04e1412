// Package bashproc starts a program of this machine as a driver.Process: a bash, or a client that stands for a bash in
// another place.
//
// It gets a session and a process group of its own, no controlling terminal, three plain pipes and no other descriptor of
// the host, and the directory "/".
package bashproc

import (
	"context"
	"io"
	"os"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// streams are our ends of a bash's three pipes, and how the bash ended: the part of a process that is the same on every
// system.
type streams struct {
	stdin, stdout, stderr *os.File

	done   chan struct{} // closed when status and err are set
	status driver.ExitStatus
	err    error
}

func (s *streams) Stdin() io.WriteCloser { return s.stdin }

// Stdout and Stderr are *os.File: SetReadDeadline works.
func (s *streams) Stdout() io.ReadCloser { return s.stdout }
func (s *streams) Stderr() io.ReadCloser { return s.stderr }

func (s *streams) Wait(ctx context.Context) (driver.ExitStatus, error) {
	select {
	case <-s.done:
		return s.status, s.err
	default:
	}
	select {
	case <-s.done:
		return s.status, s.err
	case <-ctx.Done():
		return driver.ExitStatus{}, ctx.Err()
	}
}
