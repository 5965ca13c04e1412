package bashscript

import (
	"strconv"
	"strings"
	"time"
)

// The requests that a bash started with EndArgs reads behind the text of End, one a line. It ends what it watches at the
// end of its input too.

// Watch makes it watch a call; pid is 0 while it is unknown. A second Watch of a mark replaces the first.
func Watch(m Mark, id string, pid int) string {
	group := "-"
	if pid > 0 {
		group = strconv.Itoa(pid)
	}
	return "+ " + strconv.FormatUint(uint64(m), 10) + " " + id + " " + group + "\n"
}

// Unwatch says that the call ended.
func Unwatch(m Mark) string { return "- " + strconv.FormatUint(uint64(m), 10) + "\n" }

// WatchSession makes it watch all that a session's calls started; UnwatchSession says that it may live on.
func WatchSession(mark uint32, id string) string {
	return "S " + strconv.FormatUint(uint64(mark), 10) + " " + id + "\n"
}

// UnwatchSession undoes WatchSession.
func UnwatchSession(mark uint32) string { return "s " + strconv.FormatUint(uint64(mark), 10) + "\n" }

// Lease makes it take silence for so long (at least a second) for the end of its input, and Beat is a line that says nothing
// else. They are for a far end which may never learn that this one is gone.
func Lease(silence time.Duration) string {
	return "L " + strconv.FormatInt(int64(max(silence, time.Second)/time.Second), 10) + "\n"
}

// Beat is described at Lease.
const Beat = "B\n"

// EndSignal is the signal, without SIG, that makes a bash that watches take its input to be at its end: for a far end on which nothing closes the input
// of a dead owner's watchdog, whoever knows that the owner is dead.
const EndSignal = "USR1"

// RemoveFile makes it remove a file now, and RemoveAtEnd a directory with its files at the end of its input; where there is no rm,
// files are emptied. A path is absolute and holds no newline and no tab.
func RemoveFile(file string) string { return "D " + word.Replace(file) + "\n" }

// RemoveAtEnd is described at RemoveFile.
func RemoveAtEnd(dir string) string { return "R " + word.Replace(dir) + "\n" }

var word = strings.NewReplacer("%", "%25", " ", "%20")

// EndNow makes it end all that it watches (TERM, grace, KILL), answer and leave. The answer is read with ParseEnd.
func EndNow(token string, grace time.Duration) string {
	return "K " + token + " " + strconv.FormatInt(grace.Milliseconds(), 10) + "\n"
}

// Left is a process that could not be ended.
type Left struct {
	PID  int
	Name string
}

// ParseEnd reads the answer to EndNow; done says that it is whole.
func ParseEnd(token, output string) (left []Left, done bool) {
	for line := range strings.Lines(output) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), token+" ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		if rest == "." {
			return left, true
		}
		pid, name, _ := strings.Cut(rest, " ")
		if n, err := strconv.Atoi(pid); err == nil {
			left = append(left, Left{PID: n, Name: name})
		}
	}
	return left, false
}
