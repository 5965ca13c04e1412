// Package safename makes any string a name for a file, a label or a container, injectively: a safe part that people
// recognise, a dash, and 12 hexadecimal digits of the string's SHA-256. A string that is a plain name already stays as it
// is, unless it looks like the result of the mapping.
package safename

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// Plain tells whether name may be given on the command line: [A-Za-z0-9][A-Za-z0-9._-]{0,62}.
func Plain(name string) bool { return plain.MatchString(name) }

var (
	plain  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)
	mapped = regexp.MustCompile(`-[0-9a-f]{12}$`)
)

// Of maps name. Two names never map to one result, also where the file system does not tell upper case from lower.
func Of(name string) string {
	if Plain(name) && !mapped.MatchString(name) && name == strings.ToLower(name) && !strings.HasSuffix(name, ".") {
		return name
	}
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
			return r
		}
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return '_'
	}, name)
	safe = strings.TrimLeft(safe[:min(len(safe), 40)], ".-_")
	if safe == "" {
		safe = "x"
	}
	sum := sha256.Sum256([]byte(name))
	return safe + "-" + hex.EncodeToString(sum[:])[:12]
}
