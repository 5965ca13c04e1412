package ssh

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// What an ssh client and its master say to each other over the control socket (PROTOCOL.mux in OpenSSH's source, version 4
// of the protocol, unchanged since OpenSSH 5.4; the proxy mode came with 7.4).
const (
	muxHello      = 0x00000001
	muxVersion    = 4
	muxAliveCheck = 0x10000004
	muxTerminate  = 0x10000005
	muxProxy      = 0x1000000f
	muxOK         = 0x80000001
	muxAlive      = 0x80000005
	muxIsProxy    = 0x8000000f
)

// maxPacket bounds what a master may send at once; OpenSSH's own limit is 256 KiB.
const maxPacket = 1 << 20

// longPart is from how many bytes on writing a part of a packet from where it is costs less than copying it.
const longPart = 2 << 10

// muxConn is a connection to a master, which has said hello.
type muxConn struct {
	net.Conn
	in *bufio.Reader
}

// dialMaster connects to the master at socket. The connection is given up when ctx is done, until release is called.
func dialMaster(ctx context.Context, socket string) (c *muxConn, release func(), err error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	release = func() {
		if stop() {
			_ = conn.SetDeadline(time.Time{})
		}
	}
	c = &muxConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err = c.send(u32(muxHello), u32(muxVersion)); err == nil {
		var hello []byte
		if hello, err = c.receive(); err == nil {
			if kind, version := first(hello), first(skip(hello, 4)); kind != muxHello || version != muxVersion {
				err = fmt.Errorf("the ssh master at %s speaks version %d of its protocol, not %d", socket, version, muxVersion)
			}
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, errors.Join(ctx.Err(), err)
	}
	return c, release, nil
}

// ask sends a request without arguments and returns what the answer holds behind its head.
func (c *muxConn) ask(request, want uint32) (rest []byte, err error) {
	const id = 1
	if err := c.send(u32(request), u32(id)); err != nil {
		return nil, err
	}
	answer, err := c.receive()
	if err != nil {
		return nil, err
	}
	if first(answer) != want {
		return nil, fmt.Errorf("the ssh master refuses (answer %#x to request %#x)", first(answer), request)
	}
	return skip(answer, 8), nil
}

func (c *muxConn) send(parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	// A long last part, the data of a stream, is not copied.
	last := len(parts) - 1
	if len(parts[last]) < longPart {
		last++
	}
	packet := binary.BigEndian.AppendUint32(make([]byte, 0, 64), uint32(size))
	for _, p := range parts[:last] {
		packet = append(packet, p...)
	}
	if last == len(parts) {
		_, err := c.Write(packet)
		return err
	}
	buffers := net.Buffers{packet, parts[last]}
	_, err := buffers.WriteTo(c.Conn)
	return err
}

// receive reads one packet.
func (c *muxConn) receive() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxPacket {
		return nil, fmt.Errorf("the ssh master sent a packet of %d bytes", size)
	}
	packet := make([]byte, size)
	_, err := io.ReadFull(c.in, packet)
	return packet, err
}

func u32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// text is a string as SSH writes it.
func text(s string) []byte { return append(u32(uint32(len(s))), s...) }

func flag(on bool) []byte {
	if on {
		return []byte{1}
	}
	return []byte{0}
}

// first is the number at the beginning of b, 0 where b is too short.
func first(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func skip(b []byte, n int) []byte { return b[min(n, len(b)):] }

// cutText takes a string off the beginning of b.
func cutText(b []byte) (s, rest []byte) {
	n := int(first(b))
	b = skip(b, 4)
	n = min(n, len(b))
	return b[:n], b[n:]
}
