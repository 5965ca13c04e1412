package drivertest

import (
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// stdinGroup: what a command can read (SPEC 1.9).
func stdinGroup() group {
	return group{name: "stdin", cases: []testCase{
		{name: "C19 without stdin the command sees end of file at once", run: func(t *test) {
			s := t.session()
			s.want(`cat`, "")
			s.want(`read x; echo "$? <$x>"`, "1 <>\n")
			s.want(`bash --norc -c 'cat; wc -c'`, "0\n")
			s.want(`cat <&0; exec cat`, "")
			s.want(`while read -r l; do echo no; done; echo end`, "end\n")
		}},
		{name: "an empty stdin is end of file too", run: func(t *test) {
			t.session().want(`cat; read x; echo $?`, "1\n", stdin(""))
		}},
		{name: "every byte arrives, alone and among others", run: func(t *test) {
			s := t.session()
			all := allBytes()
			t.sameBytes("the bytes", s.run(`cat`, stdinFrom(bytes.NewReader(all))).code(0).Output, all)
			twice := append(bytes.Repeat(all, 300), "no newline at the end"...)
			t.sameBytes("the bytes", s.run(`cat`, stdinFrom(bytes.NewReader(twice))).code(0).Output, twice)
			for _, b := range []byte{0, 4, '\n', '\r', 0x1a, 0x1e, 0xff} {
				t.sameBytes("one byte", s.run(`cat`, stdin(string([]byte{b}))).code(0).Output, []byte{b})
			}
		}},
		{name: "builtins and programs share stdin to the byte", run: func(t *test) {
			s := t.session()
			s.want(`read a; read -n 2 b; head -c 3; read c; echo "|$a|$b|$c"; cat`, "345|one|12|6789\nrest\nof it", stdin("one\n123456789\nrest\nof it"))
			s.want(`bash --norc -c 'read a; echo "child $a"'; read b; echo "shell $b"`, "child 1\nshell 2\n", stdin("1\n2\n3\n"))
			s.want(`while read -r l; do echo "<$l>"; done`, "<a>\n<b c>\n<\\d>\n", stdin("a\nb c\n\\d\n"))
		}},
		{name: "X06 stdin that looks like bash, a delimiter or a report is only data", run: func(t *test) {
			s := t.session()
			for _, in := range []string{"EOF\ntouch @D/pwned\n", "'\"`$(touch @D/pwned)\n", "HERMES_STDIN_0123456789ab\ntouch @D/pwned\n", "\x00\x00exit 9\n", "exit 9\n", "10\nexit 9\x00", "}\n)\nfi\ndone\nesac\n"} {
				in = s.fill(in)
				s.want(`cat`, in, stdin(in))
				s.want(`:`, "", stdin(in))
			}
			if s.exists("@D/pwned") {
				t.Error("stdin was executed")
			}
		}},
		{name: "X06 a command with a here-document delimiter alone on a line is only text", run: func(t *test) {
			s := t.session()
			for _, word := range []string{"EOF", "END", "ELSEWHERE", "SWE_REX_EOF", "_EOF_"} {
				s.run("cat > /dev/null <<'" + word + "X'\n" + word + "\ntouch @D/pwned\n" + word + "X\necho ok").out("ok\n")
			}
			if s.exists("@D/pwned") {
				t.Error("the text of a here-document was executed")
			}
		}},
		{name: "a command that does not read a big stdin ends all the same", run: func(t *test) {
			s := t.session()
			big := strings.Repeat("x", 8<<20)
			begin := time.Now()
			s.want(`echo done`, "done\n", stdin(big))
			s.want(`head -c 5; echo`, "xxxxx\n", stdin(big))
			s.want(`exec 0<&-; echo closed`, "closed\n", stdin(big))
			s.run(`head -c 1 >/dev/null; exit 4`, stdin(big)).code(4)
			within(t, begin, 30*time.Second)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "Run does not wait for a reader that is blocked when the command has ended", run: func(t *test) {
			s := t.session()
			r, w := io.Pipe()
			defer w.Close()
			begin := time.Now()
			s.want(`echo done`, "done\n", stdinFrom(r))
			within(t, begin, 0)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "stdin flows while the command runs", needs: []Need{NeedStream}, run: func(t *test) {
			s := t.session()
			r, w := io.Pipe()
			defer w.Close()
			var got syncBuffer
			p := s.start(`while read -r l; do echo "<$l>"; done; echo end`, stdinFrom(r), stdout(&got))
			for i, word := range []string{"one", "two", "three"} {
				if _, err := io.WriteString(w, word+"\n"); err != nil {
					t.Fatal(err)
				}
				t.eventually("the answer to "+word, 0, func() bool { return strings.Count(got.String(), "\n") == i+1 })
			}
			p.running()
			_ = w.Close()
			p.wait().code(0)
			if got.String() != "<one>\n<two>\n<three>\nend\n" {
				t.Errorf("the writer got %q", got.String())
			}
		}},
		{name: "a command that waits for stdin is ended by its timeout", run: func(t *test) {
			s := t.session()
			r, w := io.Pipe()
			defer w.Close()
			begin := time.Now()
			s.run(`echo before; cat`, stdinFrom(r), timeout(time.Second)).ended(elsewhere.TimedOut, 124).out("before\n")
			within(t, begin, time.Second+endPromise)
		}},
		{name: "10 MB of stdin are echoed, by program and by sum", run: func(t *test) {
			s := t.session()
			in := bytes.Repeat(append(allBytes(), "some text\n"...), 10<<20/266)
			t.sameBytes("the echo", s.run(`cat`, stdinFrom(bytes.NewReader(in))).code(0).Output, in)
			s.run(`sha256sum; wc -c`, stdinFrom(bytes.NewReader(in))).code(0).has(sha256sum(in))
		}},
		{name: "a background child has no part in stdin", run: func(t *test) {
			s := t.session()
			s.want(`cat > @D/bg & wait; cat; cat @D/bg`, "data\n", stdin("data\n"))
		}},
		{name: "a call with a directory, variables and stdin at once gets all of them", run: func(t *test) {
			t.session().want(`pwd; echo "$A"; cat`, "/usr\nx y\nin", dir("/usr"), env("A", "x y"), stdin("in"))
		}},
	}}
}
