package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// sshTarget is where ssh is to connect and which socket is meant there.
type sshTarget struct {
	user, host, port string
	socket           string // "" is the default there
}

// parseSSH reads ssh://[USER@]HOST[:PORT][/SOCKET].
func parseSSH(address string) (sshTarget, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return sshTarget{}, errors.New("it is no ssh://[USER@]HOST[:PORT]")
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-"):
		return sshTarget{}, errors.New("it names no host")
	case u.RawQuery != "" || u.Fragment != "":
		return sshTarget{}, errors.New("an ssh address has no ? and no #")
	}
	t := sshTarget{host: u.Hostname(), port: u.Port(), socket: strings.TrimSuffix(u.Path, "/")}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return sshTarget{}, errors.New("a password in the address would be seen by everybody; use a key")
		}
		t.user = u.User.Username()
	}
	return t, nil
}

// args are the arguments of ssh. The far side runs `docker system dial-stdio`, which passes everything on to its engine.
func (t sshTarget) args() []string {
	args := []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"}
	if t.user != "" {
		args = append(args, "-l", t.user)
	}
	if t.port != "" {
		args = append(args, "-p", t.port)
	}
	args = append(args, "--", t.host, "docker")
	if t.socket != "" {
		args = append(args, "--host", "'unix://"+strings.ReplaceAll(t.socket, "'", `'\''`)+"'")
	}
	return append(args, "system", "dial-stdio")
}

// dialSSH makes one connection: an ssh of its own whose standard streams are the connection.
func dialSSH(ctx context.Context, target sshTarget, environ []string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	program, err := lookPath("ssh", newVariables(environ)["PATH"])
	if err != nil {
		return nil, err
	}
	c := &sshConn{target: target, ended: make(chan struct{})}
	theirs := make([]*os.File, 0, 2)
	defer func() {
		for _, f := range theirs {
			_ = f.Close()
		}
	}()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	theirs, c.in = append(theirs, read), write
	if read, write, err = os.Pipe(); err != nil {
		_ = c.in.Close()
		return nil, err
	}
	theirs, c.out = append(theirs, write), read
	cmd := &exec.Cmd{
		Path: program, Args: append([]string{"ssh"}, target.args()...), Env: environ,
		Stdin: theirs[0], Stdout: theirs[1], Stderr: &c.said, SysProcAttr: detached(), WaitDelay: time.Second,
	}
	if err := cmd.Start(); err != nil {
		_, _ = c.in.Close(), c.out.Close()
		return nil, err
	}
	c.process = cmd.Process
	go func() {
		_ = cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// lookPath finds a program on the caller's PATH, which need not be this process's.
func lookPath(program, path string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("there is no %s on PATH: %w", program, exec.ErrNotFound)
}

// sshConn is a connection through the standard streams of an ssh.
type sshConn struct {
	target  sshTarget
	process *os.Process
	in, out *os.File
	said    tail
	ended   chan struct{} // closed when the ssh has ended
	got     bool          // something was read; the one reader's own
	close   sync.Once
}

// sshEnd bounds how long an ssh may take to leave when its streams are closed.
const sshEnd = 2 * time.Second

// Read tells why ssh failed where it ended before it had anything to say.
func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if n > 0 {
		c.got = true
	}
	if errors.Is(err, io.EOF) && !c.got {
		select {
		case <-c.ended:
		case <-time.After(sshEnd):
		}
		if text := oneLine(c.said.String()); text != "" {
			return n, fmt.Errorf("ssh: %s", text)
		}
	}
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// CloseWrite says that nothing more will be written.
func (c *sshConn) CloseWrite() error { return c.in.Close() }

// Close gives the connection up and ends the ssh, behind the caller.
func (c *sshConn) Close() error {
	c.close.Do(func() {
		_, _ = c.in.Close(), c.out.Close()
		go func() {
			select {
			case <-c.ended:
			case <-time.After(sshEnd):
				_ = c.process.Kill()
			}
		}()
	})
	return nil
}

func (c *sshConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *sshConn) SetReadDeadline(t time.Time) error  { return c.out.SetReadDeadline(t) }
func (c *sshConn) SetWriteDeadline(t time.Time) error { return c.in.SetWriteDeadline(t) }

func (c *sshConn) LocalAddr() net.Addr  { return sshAddr("here") }
func (c *sshConn) RemoteAddr() net.Addr { return sshAddr(c.target.host) }

type sshAddr string

func (sshAddr) Network() string  { return "ssh" }
func (a sshAddr) String() string { return string(a) }

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// tailBytes is how much of a program's complaints is kept.
const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
