//go:build unix

package mcpserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/mcpserver"
)

// What a client sends that then stops reading: a command whose output floods it with notifications.
const (
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	flood       = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"terminal","arguments":{"command":"yes"},"_meta":{"progressToken":"p"}}}`
)

// closeBound is half a minute, as Close promises, and room.
const closeBound = 40 * time.Second

// ends waits for what may not take longer than a close.
func ends(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(closeBound):
		t.Fatalf("%s has not ended", what)
	}
}

// watched tells when a write has begun.
type watched struct {
	io.WriteCloser
	begun chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	return w.WriteCloser.Write(p)
}

func TestAClientThatDoesNotReadItsStreamDoesNotHoldUpTheEnd(t *testing.T) {
	u := newSetup(t, nil, nil)
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	out := &watched{fromServer, make(chan struct{}, 1)}
	served := make(chan error, 1)
	go func() { served <- u.server.Serve(context.Background(), toServer, out) }()
	say := func(text string) {
		if _, err := io.WriteString(fromClient, text+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	say(initialize)
	if line, err := bufio.NewReader(toClient).ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
		t.Fatal(line, err)
	}
	select {
	case <-out.begun: // that was its answer's
	default:
	}
	say(initialized)
	say(flood)
	select {
	case <-out.begun: // and from now on nobody reads
	case <-time.After(patience):
		t.Fatal("nothing was written")
	}
	_ = fromClient.Close()
	ends(t, "Serve", served)
	closed := make(chan error, 1)
	go func() { closed <- u.server.Close(context.Background()) }()
	ends(t, "Close", closed)
}

// small are connections that hold next to nothing that was not read, and tell whether a write waits.
type small struct {
	net.Listener
	writing atomic.Int64 // since when, in nanoseconds of Unix time; 0 is not
}

func (s *small) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	_ = c.(*net.TCPConn).SetWriteBuffer(1)
	return &smallConn{c, s}, nil
}

type smallConn struct {
	net.Conn
	of *small
}

func (c *smallConn) Write(p []byte) (int, error) {
	c.of.writing.Store(time.Now().UnixNano())
	defer c.of.writing.Store(0)
	return c.Conn.Write(p)
}

// waits waits until a write has waited for a second.
func (s *small) waits(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if since := s.writing.Load(); since != 0 && time.Since(time.Unix(0, since)) > time.Second {
			return
		}
	}
	t.Fatal("all was taken")
}

func TestAnHTTPClientThatDoesNotReadDoesNotHoldUpTheEnd(t *testing.T) {
	u := newSetup(t, nil, nil)
	handler, err := u.server.Handler(mcpserver.HTTPOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &small{Listener: l}
	web := mcpserver.HTTPServer(handler)
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { _ = web.Close() })
	_, _, header := request(t, "http://"+l.Addr().String(), func(*http.Request) {})

	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 1) })
	}}
	conn, err := dialer.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", mcpserver.Path, token, header.Get("Mcp-Session-Id"), len(flood), flood)
	if err != nil {
		t.Fatal(err)
	}
	listener.waits(t)
	closed := make(chan error, 1)
	go func() { closed <- u.server.Close(context.Background()) }()
	ends(t, "Close", closed)
	if n := u.server.Clients(); n != 0 {
		t.Errorf("%d clients are left", n)
	}
}
