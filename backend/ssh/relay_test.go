//go:build linux

package ssh_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// relay is a network between client and server that can fail in the ways that networks do.
type relay struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	links []*link
	total int
}

// link is one connection through the relay.
type link struct {
	client, server *net.TCPConn
	gate           chan struct{} // closed while data flows
}

func newRelay(t testing.TB, port string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{listener: l, target: "127.0.0.1:" + port}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", r.target)
			if err != nil {
				_ = conn.Close()
				continue
			}
			k := &link{client: conn.(*net.TCPConn), server: up.(*net.TCPConn), gate: make(chan struct{})}
			close(k.gate)
			r.mu.Lock()
			r.links = append(r.links, k)
			r.total++
			r.mu.Unlock()
			work.Go(func() { r.copy(k, k.server, k.client) })
			work.Go(func() { r.copy(k, k.client, k.server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.cut()
		work.Wait()
	})
	return r
}

func (r *relay) port() string {
	_, port, _ := net.SplitHostPort(r.listener.Addr().String())
	return port
}

func (r *relay) copy(k *link, to, from *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.mu.Lock()
		gate := k.gate
		r.mu.Unlock()
		<-gate
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

// cut resets every connection that there is now.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.links {
		for _, c := range []*net.TCPConn{k.client, k.server} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
		select {
		case <-k.gate:
		default:
			close(k.gate)
		}
	}
	r.links = nil
}

// stall lets nothing pass any more on the connections that there are now, and closes none: a link that went silently.
func (r *relay) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.links {
		k.gate = make(chan struct{})
	}
}

// halfClose ends what the server sends, and lets the other direction be.
func (r *relay) halfClose() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.links {
		_ = k.client.CloseWrite()
	}
}

// connections is how many were made so far.
func (r *relay) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}
