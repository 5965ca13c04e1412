package cloudbox

import (
	"fmt"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// CheckToken looks whether a key or token is one that can be sent: one word of printable ASCII, as every service's are. An error is of
// KindConfig, says where it came from, and tells no more of it than what is wrong. An empty one is none.
func CheckToken(token, from string) error {
	for i := range len(token) {
		if c := token[i]; c <= ' ' || c > '~' {
			what := fmt.Sprintf("the byte 0x%02x", c)
			switch c {
			case '\n', '\r':
				what = "a line break"
			case ' ', '\t':
				what = "a blank"
			}
			return kinderr.New(driver.KindConfig, "the key or token from %s has %s in it (behind its %d first characters), which none has: set it anew", from, what, i)
		}
	}
	return nil
}
