package bashscript

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
)

// Mark is the soft limit of file locks (RLIMIT_LOCKS, which Linux does not use) that a bash of ours gives itself: every
// process that it starts inherits it, also one that left its session and emptied its environment, and anyone may read it
// in /proc. The upper 32 bits are the session's, the lower 31 the call's.
type Mark uint64

// Session is the session's part of a mark.
func (m Mark) Session() uint32 { return uint32(m >> 31) }

// NewSessionMark returns a random session part; never 0.
func NewSessionMark() uint32 {
	var b [4]byte
	random(b[:])
	return binary.BigEndian.Uint32(b[:]) | 1
}

// NewMark returns the mark of a new call of a session.
func NewMark(session uint32) Mark {
	var b [4]byte
	random(b[:])
	return Mark(session)<<31 | Mark(binary.BigEndian.Uint32(b[:])>>1)
}

// NewID returns 128 random bits as 32 hexadecimal digits.
func NewID() string {
	var b [16]byte
	random(b[:])
	return hex.EncodeToString(b[:])
}

// NewToken returns the token of one bash's reports: a control byte, rare in output, and 128 random bits.
func NewToken() string { return "\x1e" + NewID() }

func random(b []byte) {
	rand.Read(b) //nolint:errcheck // never fails; crypto/rand ends the program where there is no randomness
}
