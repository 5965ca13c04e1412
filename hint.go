package elsewhere

import (
	"regexp"
	"strings"
)

// suggest is a command line of elsewhere's for this sandbox, as a hint names it: one that does what it says wherever it is typed,
// whichever backend is configured there.
func (sb *Sandbox) suggest(words string, args ...string) string {
	line := "elsewhere " + words + " -b " + shellWord(sb.backend)
	if sb.task != DefaultTask {
		line += " --task " + shellWord(sb.task)
	}
	for _, arg := range args {
		line += " " + shellWord(arg)
	}
	return "`" + line + "`"
}

var plainShellWord = regexp.MustCompile(`^[A-Za-z0-9._/:=-]+$`)

// shellWord is a word as bash reads it.
func shellWord(word string) string {
	if plainShellWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
