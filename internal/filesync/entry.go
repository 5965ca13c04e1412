package filesync

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// The tokens that are not a file's or a link's.
const (
	absent    = "-"
	directory = "d"
	odd       = "o" // a socket, pipe or device
	unread    = "u" // cannot be read
)

// fileTokenLen is the length of a file's token.
const fileTokenLen = 1 + 2*sha256.Size

func fileToken(sum []byte) string    { return "f" + hex.EncodeToString(sum) }
func linkToken(target string) string { return "l" + target }

// item is what one side has at a path: what can be told without reading content.
type item struct {
	Type  byte // 'f', 'd', 'l', or 'o' for anything else
	Mode  fs.FileMode
	Size  int64 // of a file
	MTime time.Time
	Stamp string // changes whenever the content may have
}

// temporary is the beginning of the names that transfers use for themselves, on both sides; such names are never
// transferred.
const temporary = ".elsewhere-sync-"

func isTemporary(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.HasPrefix(part, temporary) {
			return true
		}
	}
	return false
}

// local tells whether p, a slash path, stays below the directory that it starts at.
func local(p string) bool {
	if p == "" || p != path.Clean(p) || strings.ContainsRune(p, 0) || p == "." {
		return false
	}
	if runtime.GOOS == "windows" && strings.ContainsAny(p, `\:`) {
		return false
	}
	return filepath.IsLocal(filepath.FromSlash(p))
}

// parseStat reads one record of far.sh's stat: MODE|SIZE|MTIME|INODE|EXACT|CTIME|./NAME.
func parseStat(record string) (name string, it item, ok bool) {
	fields := strings.SplitN(record, "|", 7)
	if len(fields) != 7 {
		return "", item{}, false
	}
	mode, err := strconv.ParseUint(fields[0], 16, 32)
	if err != nil {
		return "", item{}, false
	}
	seconds, _ := strconv.ParseInt(fields[2], 10, 64)
	it.MTime = time.Unix(seconds, 0)
	it.Mode = fs.FileMode(mode & 0o777)
	it.Stamp = stampOf(fields)
	switch mode & 0o170000 {
	case 0o100000:
		it.Type = 'f'
		it.Size, _ = strconv.ParseInt(fields[1], 10, 64)
	case 0o040000:
		it.Type = 'd'
	case 0o120000:
		it.Type = 'l'
	default:
		it.Type = 'o'
	}
	name, found := strings.CutPrefix(fields[6], "./")
	return name, it, found && name != ""
}

// stampOf makes a stamp of a record. Where the file system there keeps times in whole seconds it is "", which never counts as
// unchanged: a second change would not show.
func stampOf(fields []string) string {
	_, fraction, _ := strings.Cut(fields[5], ".")
	if fraction, _, _ = strings.Cut(fraction, " "); strings.Trim(fraction, "0") == "" {
		return ""
	}
	return strings.Join([]string{fields[1], fields[3], fields[4], fields[5]}, "|")
}

// fieldSep separates the fields of a line of the plan.
const fieldSep = '\x1f'

// escape makes any name a field of a line; far.sh undoes it.
func escape(s string) string {
	if !strings.ContainsAny(s, "\\\n\x1f") {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\x1f", `\0037`).Replace(s)
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(s)
}

// sameMode compares permissions; Windows has none.
func sameMode(a, b fs.FileMode) bool {
	return runtime.GOOS == "windows" || a.Perm() == b.Perm()
}

// sortedAsTree orders slash paths so that all below a directory directly follows it.
func sortedAsTree(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			if x == '/' {
				x = 0
			}
			if y == '/' {
				y = 0
			}
			return int(x) - int(y)
		}
	}
	return len(a) - len(b)
}
