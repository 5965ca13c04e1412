package drivertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A living process of a case is a bash that runs the script below: it writes its pid to NAME.pid and then a line to
// NAME.beat ten times a second, until it is ended. So it is known to have lived, and that it lives or not is seen twice:
// by its number and start time, and by its heartbeat.

const beatScript = `echo $$ > "$1/$2.pid.new" && mv "$1/$2.pid.new" "$1/$2.pid"
[ "$3" != deaf ] || trap '' TERM INT HUP QUIT PIPE
[ "$3" != loud ] || while :; do echo "$2 makes some noise on its standard output" ; echo >> "$1/$2.beat"; sleep 0.1; done
while :; do echo >> "$1/$2.beat"; sleep 0.1; done
`

// beater puts the script into the session's scratch directory and gives the command text that runs it under a name:
// deaf ignores every catchable signal, loud writes to its standard output.
func (s *session) beater() func(name string, how ...string) string {
	s.t.Helper()
	s.write("@D/beat", beatScript)
	d := s.d()
	return func(name string, how ...string) string {
		return fmt.Sprintf("bash %s/beat %s %s %s", d, d, name, strings.Join(how, " "))
	}
}

// process is one that was seen alive.
type process struct {
	name, pid, start string
}

// lookScript prints, for each pid given, its start time unless it is gone or a zombie.
const lookScript = `look() {
	local stat
	{ IFS= read -r stat < "/proc/$1/stat"; } 2>/dev/null || return
	stat=${stat##*) }
	set -- $stat
	[ "$1" = Z ] || [ "$1" = X ] || echo "${20}"
}
`

// alive waits until the named beaters run and have beaten twice, which no heart does that stands still, and gives them. One look
// is for all of them: a case whose call has a time limit has no time for more.
func (s *session) alive(names ...string) []process {
	s.t.Helper()
	var found []process
	script := lookScript + fmt.Sprintf(`for name in %s; do
	{ IFS= read -r pid < @D/$name.pid && [ "$(wc -c < @D/$name.beat)" -ge 2 ] && echo "$name $pid $(look "$pid")"; } 2>/dev/null
done`, strings.Join(names, " "))
	s.t.eventually(strings.Join(names, ", ")+" live", hang/6, func() bool {
		found = found[:0]
		for line := range strings.Lines(s.observe(script)) {
			if f := strings.Fields(line); len(f) == 3 {
				found = append(found, process{f[0], f[1], f[2]})
			}
		}
		return len(found) == len(names)
	})
	return found
}

// beats waits until a beater's heartbeat was seen to go on.
func (s *session) beats(name string) {
	s.t.Helper()
	first := s.beatCount(name)
	s.t.eventually(name+" goes on beating", time.Second, func() bool {
		n := s.beatCount(name)
		return n != first && n != ""
	})
}

func (s *session) beatCount(name string) string {
	s.t.Helper()
	return s.observe(fmt.Sprintf(`wc -c < @D/%s.beat 2>/dev/null`, name))
}

// still fails the case if one of the processes has ended.
func (s *session) still(procs []process) {
	s.t.Helper()
	for _, p := range procs {
		if !s.lives(p) {
			s.t.Errorf("%s (pid %s) was ended", p.name, p.pid)
			continue
		}
		s.beats(p.name)
	}
}

func (s *session) lives(p process) bool {
	s.t.Helper()
	return strings.TrimSpace(s.observe(lookScript+"look "+p.pid)) == p.start
}

// gone expects that the processes, which were seen alive, are ended within the promise, and their hearts with them.
func (s *session) gone(procs []process, promise time.Duration) {
	s.t.Helper()
	s.b.gone(procs, promise)
	for _, p := range procs {
		s.silent(p.name)
	}
}

// silent expects that a beater's heart stands still.
func (s *session) silent(name string) {
	s.t.Helper()
	// Three beats long: a heart that stands still now stands.
	out := s.observe(fmt.Sprintf(`f=@D/%s.beat; a=$(wc -c < $f); sleep 0.35; b=$(wc -c < $f); [ "$a" = "$b" ] && echo still`, name))
	if out != "still\n" {
		s.t.Errorf("the heart of %s beats, though it should be gone", name)
	}
}

// gone expects that processes end within the promise.
func (b *box) gone(procs []process, promise time.Duration) {
	b.t.Helper()
	if len(procs) == 0 {
		b.t.Fatal("no process to look for: the case proves nothing")
	}
	var script strings.Builder
	script.WriteString(lookScript)
	for _, p := range procs {
		fmt.Fprintf(&script, "[ \"$(look %s)\" != %s ] || echo %s=%s\n", p.pid, p.start, quote(p.name), p.pid)
	}
	deadline := time.Now().Add(promise + allowance)
	for {
		left := b.observe(script.String())
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("still alive after %v: %s", promise+allowance, strings.Join(strings.Fields(left), ", "))
			return
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
}

// carrying gives the living processes that have one of the ids in their environment.
func (b *box) carrying(ids []string) []process {
	b.t.Helper()
	if len(ids) == 0 {
		return nil
	}
	var patterns strings.Builder
	for _, id := range ids {
		if id != "" {
			fmt.Fprintf(&patterns, "%s\n", id)
		}
	}
	out := b.observed(patterns.String(), lookScript+`
ids=$(cat)
for f in $(grep -alF -e "$ids" /proc/[0-9]*/environ 2>/dev/null); do
	pid=${f#/proc/}; pid=${pid%/*}
	[ "$pid" = $$ ] || { start=$(look "$pid"); [ -z "$start" ] || echo "$pid $start"; }
done`)
	procs := map[string]process{}
	for line := range strings.Lines(string(out.Stdout)) {
		if f := strings.Fields(line); len(f) == 2 {
			procs[f[0]] = process{"a process with a call's id", f[0], f[1]}
		}
	}
	return slices.Collect(maps.Values(procs))
}

// everyID gives the ids of all bashes that this sandbox started for calls.
func (b *box) everyID() []string {
	var ids []string
	for _, rec := range b.rec.all() {
		if rec.forCall() {
			ids = append(ids, rec.spec.ID)
		}
	}
	return ids
}
