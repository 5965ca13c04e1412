package local

import "strings"

// bashPath writes a Windows path as the bash of Git for Windows reads it: C:\Users\me is /c/Users/me, \\server\share is
// //server/share. A path that has that form already stays as it is.
func bashPath(path string) string {
	switch {
	case strings.HasPrefix(path, `\\?\UNC\`):
		path = `\\` + path[len(`\\?\UNC\`):]
	case len(path) > 5 && path[5] == ':' && (strings.HasPrefix(path, `\\?\`) || strings.HasPrefix(path, `\\.\`)):
		path = path[4:]
	}
	path = strings.ReplaceAll(path, `\`, "/")
	if len(path) < 2 || path[1] != ':' || !isLetter(path[0]) {
		return path
	}
	drive, rest := "/"+strings.ToLower(path[:1]), path[2:]
	switch {
	case rest == "" || rest == "/":
		return drive
	case rest[0] == '/':
		return drive + rest
	}
	return path // C:rest is relative to a directory of that drive which bash does not know
}

// windowsPath is the way back. It also reads the forms of Cygwin (/cygdrive/c/x) and WSL (/mnt/c/x). A path below the
// MSYS root, such as /tmp/x, has no form of its own and stays as it is.
func windowsPath(path string) string {
	if strings.HasPrefix(path, "//") {
		return strings.ReplaceAll(path, "/", `\`)
	}
	if len(path) >= 2 && path[1] == ':' && isLetter(path[0]) {
		return strings.ReplaceAll(path, "/", `\`)
	}
	rest := path
	for _, mount := range []string{"/cygdrive", "/mnt"} {
		if strings.HasPrefix(path, mount+"/") {
			rest = path[len(mount):]
		}
	}
	if len(rest) < 2 || rest[0] != '/' || !isLetter(rest[1]) || len(rest) > 2 && rest[2] != '/' {
		return path
	}
	return strings.ToUpper(rest[1:2]) + `:\` + strings.ReplaceAll(strings.TrimPrefix(rest[2:], "/"), "/", `\`)
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
