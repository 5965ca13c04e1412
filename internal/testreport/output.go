package testreport

import (
	"fmt"
	"regexp"
	"strings"
)

// Of a test's output the first and the last keepBytes are kept: a panic is told at the start, a failed check at the
// end.
const keepBytes = 64 << 10

// output is what one test, package or build printed, without the lines by which the testing package frames it.
type output struct {
	head, tail []string
	headBytes  int
	tailBytes  int
	dropped    int // bytes between head and tail
}

var frame = regexp.MustCompile(`^\s*(=== (RUN|PAUSE|CONT|NAME) |--- (PASS|FAIL|SKIP|BENCH): |(FAIL|ok  )\t\S+\t|(PASS|FAIL)\n$)`)

// add appends one output event: mostly a line, sometimes a part of one.
func (o *output) add(text string) {
	if frame.MatchString(text) {
		return
	}
	if o.tail == nil && o.headBytes+len(text) <= keepBytes {
		o.head = append(o.head, text)
		o.headBytes += len(text)
		return
	}
	o.tail = append(o.tail, text)
	o.tailBytes += len(text)
	for o.tailBytes > keepBytes && len(o.tail) > 1 {
		o.dropped += len(o.tail[0])
		o.tailBytes -= len(o.tail[0])
		o.tail = o.tail[1:]
	}
}

// String is the text, with an end of line at its end unless it is empty.
func (o *output) String() string {
	var b strings.Builder
	for _, s := range o.head {
		b.WriteString(s)
	}
	if o.dropped > 0 {
		fmt.Fprintf(&b, "\n... %d bytes left out ...\n", o.dropped)
	}
	for _, s := range o.tail {
		b.WriteString(s)
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	return b.String()
}

// beginning is the first few lines, shortened.
func (o *output) beginning() string {
	const lines, bytes = 6, 240
	var b strings.Builder
	for i, line := range strings.SplitAfterN(o.String(), "\n", lines+1) {
		if line = strings.TrimSuffix(line, "\n"); i == lines || line == "" {
			break
		}
		if len(line) > bytes {
			line = strings.ToValidUTF8(line[:bytes], "") + "..."
		}
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

var logLine = regexp.MustCompile(`^\s*[^\s:]+\.go:\d+: (.*)`)

// reason is the first line of the last thing that a skipped test logged.
func (o *output) reason() string {
	lines := strings.Split(o.String(), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if m := logLine.FindStringSubmatch(lines[i]); m != nil && strings.TrimSpace(m[1]) != "" {
			return strings.TrimSpace(m[1])
		}
	}
	return "no reason given"
}
