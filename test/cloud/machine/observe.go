//go:build linux

package machine

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"syscall"
)

// Observed is what a program came to.
type Observed struct {
	Stdout, Stderr []byte
	Code           int
}

// Observe runs a program in the machine, as root, with HOME alone in its environment, and waits until it has ended and nobody holds its
// output. Where ctx is done before it is killed.
func (m *Machine) Observe(ctx context.Context, stdin []byte, argv ...string) (Observed, error) {
	var ours, theirs [3]*os.File
	defer func() {
		for _, f := range ours {
			if f != nil {
				_ = f.Close()
			}
		}
	}()
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			return Observed{}, err
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	p, err := m.StartCommand(Command{Args: argv, Env: []string{"HOME=/root"}, Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2]})
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		return Observed{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Signal(syscall.SIGKILL, true) })
	defer stop()
	go func() {
		_, _ = io.Copy(ours[0], bytes.NewReader(stdin))
		_ = ours[0].Close()
	}()
	var o Observed
	var reading sync.WaitGroup
	reading.Go(func() { o.Stdout, _ = io.ReadAll(ours[1]) })
	reading.Go(func() { o.Stderr, _ = io.ReadAll(ours[2]) })
	o.Code, _ = p.Wait()
	ended := make(chan struct{})
	go func() { reading.Wait(); close(ended) }()
	select {
	case <-ended:
		return o, ctx.Err()
	case <-ctx.Done():
		return Observed{}, ctx.Err()
	}
}
