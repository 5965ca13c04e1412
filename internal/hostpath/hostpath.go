// Package hostpath tells paths of this machine from paths in a sandbox. A setting that was written for one place is used with another,
// and a directory of the caller's machine means nothing in a container, in a cloud or on another host.
package hostpath

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Only tells that no place in which bash runs has such a path: one of Windows, with a drive, a share or backslashes.
func Only(p string) bool {
	drive := len(p) > 1 && p[1] == ':' && strings.ContainsRune("abcdefghijklmnopqrstuvwxyz", rune(p[0]|0x20))
	return drive || strings.Contains(p, `\`) || strings.HasPrefix(p, "//")
}

// People tells of an absolute path whether it is where people's files are on machines that are no sandboxes: on macOS, and on Windows'
// drives in WSL.
func People(p string) bool {
	p = path.Clean(p)
	return slices.ContainsFunc([]string{"/Users", "/Volumes", "/private/var", "/mnt/c", "/mnt/d"}, func(root string) bool { return within(p, root) })
}

// within tells whether p is dir or in it; both are clean.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// Likely tells of an absolute path that is not there in the place whether it is this machine's: one of People, or a directory here
// below the caller's home, below /home or below the caller's own directory.
func Likely(p string, req driver.OpenRequest) bool {
	if !path.IsAbs(p) {
		return false
	}
	p = path.Clean(p)
	inside := func(dir string) bool {
		dir = path.Clean(dir)
		return path.IsAbs(dir) && dir != "/" && within(p, dir)
	}
	if People(p) {
		return true
	}
	if st, err := os.Stat(p); err != nil || !st.IsDir() {
		return false
	}
	home := ""
	for _, entry := range req.Environ {
		if value, ok := strings.CutPrefix(entry, "HOME="); ok {
			home = value
		}
	}
	return inside("/home") || inside(home) || inside(req.Dir)
}
