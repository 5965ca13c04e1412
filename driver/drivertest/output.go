package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// outputGroup: what a command prints is what comes back (SPEC 1.8).
func outputGroup() group {
	return group{name: "output", cases: []testCase{
		{name: "C13 output is byte exact, with and without a final newline", run: func(t *test) {
			s := t.session()
			for _, out := range []string{"abc", "abc\n", "abc\n\n", "\n", "\n\nabc", "", " ", "\t", "a\r\n", "\r", "abc\x00def", "\x00", "\x04", "\x1a", "\x1e", "\x1eabc\x1f", "\x1b[31mred\x1b[0m", "\\n\\c", "%s%d%%", "--", "-n"} {
				word := bashBytes([]byte(strings.ReplaceAll(out, "\x00", "")))
				if strings.Contains(out, "\x00") {
					s.want(`printf '`+strings.NewReplacer("\x00", `\0`).Replace(out)+`'`, out)
					continue
				}
				s.want(`printf %s `+word, out)
				s.want(`printf %s `+word+`; exit 0`, out)
				s.run(`printf %s `+word+` >&2; printf %s `+word, split).out(out).err(out).code(0)
			}
		}},
		{name: "all 256 byte values come back on both streams", run: func(t *test) {
			s := t.session()
			all := allBytes()
			print := `for i in {0..255}; do printf "\\$(printf %03o $i)"; done`
			t.sameBytes("merged", s.run(print).Output, all)
			r := s.run(`{ `+print+`; } >&2; `+print, split)
			t.sameBytes("stdout", r.Stdout, all)
			t.sameBytes("stderr", r.Stderr, all)
			r = s.run(print, stdout(&syncBuffer{}), maxOutput(1000))
			t.sameBytes("with a writer", r.Output, all)
		}},
		{name: "C16 output that is no UTF-8 stays as it is", run: func(t *test) {
			s := t.session()
			s.want(`printf 'a\264\363b\n'; exit 0`, "a\xb4\xf3b\n")
			s.run(`printf '\377\376\200'; exit 5`).code(5).out("\xff\xfe\x80")
		}},
		{name: "C16 a character written in two halves comes back whole", run: func(t *test) {
			s := t.session()
			s.want(`mkfifo @D/go`, "")
			var got syncBuffer
			p := s.start(`printf '\xe3\x81'; read -r _ < @D/go; printf '\x82\n'`, stdout(&got), maxOutput(100))
			s.observe(`echo go > @D/go`)
			p.wait().out("あ\n").code(0)
			if got.String() != "あ\n" {
				t.Errorf("the writer got %q", got.String())
			}
		}},
		{name: "C13 text that looks like a report is only text", run: func(t *test) {
			s := t.session()
			first := s.run(`true`)
			for _, text := range []string{"\x1e" + first.CallID + "E0;/;;", "__ELSEWHERE_END__", first.CallID, "\x1e\x1e\x1e", "E0;/tmp;;", "__HERMES_CWD_abc__/tmp__HERMES_CWD_abc__\n", strings.Repeat("\x1e", 5000), "\x1e" + strings.Repeat("0", 32)} {
				s.want(`printf %s `+bashBytes([]byte(text)), text)
				r := s.run(`printf %s "$` + s.b.callVariable() + `" | tr -d '\n'; printf '\036%sE0;/;;' "$` + s.b.callVariable() + `"; cd /usr; exit 7`).code(7).cwd("/usr")
				if s.b.callVariable() != "" {
					r.out(r.CallID + "\x1e" + r.CallID + "E0;/;;")
				}
				s.want(`pwd`, "/usr\n")
			}
		}},
		{name: "what a command can read of its own shell is not taken for a report", needs: []Need{NeedProc}, run: func(t *test) {
			// The token is in the shell's memory and in nothing that the command can print by ordinary means.
			s := t.session()
			s.want(`set > @D/vars; export -p >> @D/vars; declare -f >> @D/vars; cat /proc/$$/cmdline /proc/$$/environ 2>/dev/null | tr '\0' '\n' >> @D/vars; cat @D/vars > /dev/null`, "")
			r := s.run(`while IFS= read -r l; do printf '%s\n' "$l"; v=${l#*=}; v=${v#[\'\"]}; v=${v%[\'\"]}; printf '\036%sE0;/nowhere;;' "$v"; done < @D/vars; exit 9`).code(9)
			if r.Cwd == "/nowhere" {
				t.Error("the command forged its own end")
			}
		}},
		{name: "stdout and stderr are merged in true order", run: func(t *test) {
			s := t.session()
			var want strings.Builder
			for i := range 300 {
				fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
			}
			s.want(`for ((i = 0; i < 300; i++)); do echo "out $i"; echo "err $i" >&2; done`, want.String())
			s.want(`for i in 1 2 3 4 5; do bash --norc -c 'echo out $1; echo err $1 >&2' - $i; done`, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nout 4\nerr 4\nout 5\nerr 5\n")
		}},
		{name: "the streams come apart when asked", run: func(t *test) {
			s := t.session()
			r := s.run(`echo o; echo e >&2; exit 9`, split).out("o\n").err("e\n").code(9)
			if len(r.Output) != 0 || !r.Split {
				t.Errorf("merged output is %q, split %v", r.Output, r.Split)
			}
			s.run(`echo o; echo e >&2`).out("o\ne\n").code(0)
			s.run(`nosuchcommand`, split).out("").code(127)
			s.run(`true`, split).out("").err("").code(0)
		}},
		{name: "with streams apart the end of both is awaited", run: func(t *test) {
			s := t.session()
			for i := range 5 {
				r := s.run(`head -c 300000 /dev/zero | tr '\0' e >&2; head -c 300000 /dev/zero | tr '\0' o`, split).code(0)
				if len(r.Stdout) != 300000 || len(r.Stderr) != 300000 {
					t.Errorf("round %d: %d bytes of stdout, %d of stderr", i, len(r.Stdout), len(r.Stderr))
				}
				s.run(`printf last >&2`, split).err("last")
				s.run(`printf last`, split).out("last")
			}
		}},
		{name: "P02 floods on both streams arrive whole while stdin flows", run: func(t *test) {
			s := t.session()
			in := strings.Repeat("0123456789abcde\n", 5<<16) // 5 MiB
			r := s.run(`tee /dev/stderr`, split, stdin(in)).code(0)
			t.sameBytes("stdout", r.Stdout, []byte(in))
			t.sameBytes("stderr", r.Stderr, []byte(in))
			s.run(`head -c 1000000 /dev/zero | tr '\0' a`).code(0).out(strings.Repeat("a", 1000000))
			s.run(`head -c 1000000 /dev/zero | tr '\0' a >&2`, split).code(0).err(strings.Repeat("a", 1000000)).out("")
		}},
		{name: "output is streamed while the command runs", needs: []Need{NeedStream}, run: func(t *test) {
			s := t.session()
			s.want(`mkfifo @D/go`, "")
			var got syncBuffer
			p := s.start(`echo first; read -r _ < @D/go; echo second`, stdout(&got))
			t.eventually("the first line arrives", 0, func() bool { return got.String() == "first\n" })
			p.running()
			s.observe(`echo go > @D/go`)
			p.wait().code(0)
			if got.String() != "first\nsecond\n" {
				t.Errorf("the writer got %q", got.String())
			}
		}},
		{name: "both streams are streamed to their writers when they are apart", needs: []Need{NeedStream}, run: func(t *test) {
			s := t.session()
			s.want(`mkfifo @D/go`, "")
			var o, e syncBuffer
			p := s.start(`echo out; echo err >&2; read -r _ < @D/go; echo out2; echo err2 >&2`, split, stdout(&o),
				func(opts *elsewhere.RunOptions) { opts.Stderr = &e })
			t.eventually("both first lines arrive", 0, func() bool { return o.String() == "out\n" && e.String() == "err\n" })
			s.observe(`echo go > @D/go`)
			r := p.wait().code(0)
			if o.String() != "out\nout2\n" || e.String() != "err\nerr2\n" {
				t.Errorf("the writers got %q and %q", o.String(), e.String())
			}
			if len(r.Stdout)+len(r.Stderr)+len(r.Output) != 0 {
				t.Errorf("the result keeps output although there are writers: %q", r.text())
			}
		}},
		{name: "U03 what a window cut is marked and stands in a file of this host", run: func(t *test) {
			s := t.session()
			r := s.run(`seq 1 200000`, maxOutput(10000)).code(0)
			var want bytes.Buffer
			for i := 1; i <= 200000; i++ {
				fmt.Fprintln(&want, i)
			}
			if !r.Truncated || r.OutputBytes != int64(want.Len()) || len(r.Output) > 10000 {
				t.Errorf("truncated %v, %d output bytes (want %d), %d kept", r.Truncated, r.OutputBytes, want.Len(), len(r.Output))
			}
			if !bytes.HasPrefix(r.Output, []byte("1\n2\n3\n")) || !bytes.HasSuffix(r.Output, []byte("199999\n200000\n")) {
				t.Errorf("the window lacks the head or the tail: %s", shorten(string(r.Output)))
			}
			whole, err := os.ReadFile(r.OutputFile)
			if err != nil {
				t.Fatalf("the output file: %v", err)
			}
			t.sameBytes("the output file", whole, want.Bytes())
			if st, err := os.Stat(r.OutputFile); err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("the output file: %v, %v", st.Mode(), err)
			}
		}},
		{name: "what is left out of both streams is in two files, and both are named", run: func(t *test) {
			r := t.session().run(`printf abcdefgh; printf ABCDEFGHIJ >&2`, split, maxOutput(4)).code(0).notice("standard error")
			if out, err := os.ReadFile(r.OutputFile); err != nil || string(out) != "abcdefgh" {
				t.Errorf("%q, %v", out, err)
			}
			_, file, _ := strings.Cut(strings.Join(r.Notices, "\n"), "file of its own: ")
			if out, err := os.ReadFile(file); err != nil || string(out) != "ABCDEFGHIJ" {
				t.Errorf("%q, %v", out, err)
			}
		}},
		{name: "output that just fits its window is not cut", run: func(t *test) {
			s := t.session()
			for _, n := range []int{999, 1000, 1001} {
				r := s.run(fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, n), maxOutput(1000)).code(0)
				if cut := n > 1000; r.Truncated != cut || r.OutputBytes != int64(n) || (r.OutputFile != "") != cut || len(r.Output) > 1000 {
					t.Errorf("of %d bytes: truncated %v, bytes %d, kept %d, file %q", n, r.Truncated, r.OutputBytes, len(r.Output), r.OutputFile)
				}
			}
		}},
		{name: "no output is kept when none is wanted, and it is counted all the same", run: func(t *test) {
			s := t.session()
			r := s.run(`echo abc`, maxOutput(-1)).code(0)
			if len(r.Output) != 0 || r.OutputBytes != 4 {
				t.Errorf("kept %q, counted %d", r.Output, r.OutputBytes)
			}
		}},
		{name: "a writer that fails ends the call as an interrupt does", run: func(t *test) {
			s := t.session()
			begin := time.Now()
			r := s.run(`while :; do echo more; done`, stdout(failingWriter{}))
			within(t, begin, endPromise)
			r.ended(elsewhere.Interrupted, 130)
			s.want(`echo fine`, "fine\n")
		}},
		{name: "writers are not used after Run has returned", run: func(t *test) {
			s := t.session()
			w := &lateWriter{}
			live := s.beater()
			s.run(live("noise", "loud")+` & `, stdout(w)).code(0)
			w.over.Store(true)
			s.alive("noise")
			s.beats("noise")
			if w.late.Load() {
				t.Error("a writer was used after Run had returned")
			}
		}},
		{name: "C15 output through the command's own process substitution is awaited", run: func(t *test) {
			s := t.session()
			for range 5 {
				s.want(`exec > >(tee -a @D/l) 2>&1; echo hi; cd /usr; export A=1`, "hi\n").cwd("/usr").saved(true)
				s.want(`echo hi > >(cat)`, "hi\n")
				s.want(`echo "$A"; pwd`, "1\n/usr\n")
			}
		}},
		{name: "C15 a background child beside a process substitution does not hang the call", run: func(t *test) {
			s := t.session()
			live := s.beater()
			begin := time.Now()
			r := s.run(`exec > >(tee -a @D/l) 2>&1; ` + live("child") + ` & echo hi`)
			within(t, begin, time.Second)
			r.code(0).out("hi\n")
			s.still(s.alive("child"))
		}},
		{name: "a command that closes or redirects its streams still reports its end", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`exec 1>&- 2>&-`, `exec 1>&-`, `exec >/dev/null 2>&1`, `exec > @D/out 2>&1`, `exec 0<&- 1>&- 2>&-`, `exec 2>&1 1>/dev/null`, `for ((i = 3; i < 256; i++)); do eval "exec $i>&-"; done`,
				`exec 9>&1 1>@D/x; exec 1>&9 9>&-`, `exec 0</dev/zero`} {
				for _, how := range [][]runOption{{}, {split}} {
					s.run("export A="+quote(c)+"; cd /usr\n"+c+"\ncd /tmp; (exit 3)", how...).code(3).cwd("/tmp").saved(true)
					s.want(`echo "$A"; pwd`, s.fill(c)+"\n/tmp\n")
				}
			}
		}},
		{name: "output goes on arriving after stdout was swapped and restored", run: func(t *test) {
			t.session().want(`echo a; exec 3>&1 >/dev/null; echo hidden; exec >&3 3>&-; echo b`, "a\nb\n")
		}},
		{name: "a flood does not hold up a timeout", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`yes`, `cat /dev/zero`, `while :; do echo flood; echo flood >&2; done`} {
				begin := time.Now()
				r := s.run(c, timeout(time.Second), maxOutput(1<<14)).ended(elsewhere.TimedOut, 124)
				within(t, begin, time.Second+endPromise)
				if r.OutputBytes == 0 || !r.Truncated {
					r.fail("the flood is missing: %d bytes, truncated %v", r.OutputBytes, r.Truncated)
				}
			}
			s.want(`echo fine`, "fine\n")
		}},
		{name: "a slow reader slows the command and loses nothing", run: func(t *test) {
			s := t.session()
			w := &slowWriter{}
			s.run(`head -c 3000000 /dev/zero | tr '\0' s`, stdout(w)).code(0)
			if w.n != 3000000 {
				t.Errorf("the writer got %d bytes of 3000000", w.n)
			}
		}},
	}}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) {
	return 0, errors.New("drivertest: this writer fails")
}

type lateWriter struct{ over, late atomic.Bool }

func (w *lateWriter) Write(p []byte) (int, error) {
	if w.over.Load() {
		w.late.Store(true)
	}
	return len(p), nil
}

// slowWriter takes its time for every write, so that the command is far ahead of it.
type slowWriter struct{ n, writes int }

func (w *slowWriter) Write(p []byte) (int, error) {
	w.n += len(p)
	if w.writes++; w.writes < 20 {
		time.Sleep(20 * time.Millisecond) // the slowness under test
	}
	return len(p), nil
}

// callVariable is the name of the variable that holds a call's id, once a bash was started.
func (b *box) callVariable() string { return b.rec.variable() }

// bookkeepingGroup: nothing of elsewhere's own is to be seen by a command (SPEC 1.8).
func bookkeepingGroup() group {
	return group{name: "bookkeeping", cases: []testCase{
		{name: "set, declare and export show nothing of elsewhere's own but its documented variables", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`set`, `declare -p`, `export -p`, `declare`, `env`, `declare -f`, `declare -F`, `alias -p`, `shopt -p; set +o`, `compgen -v; compgen -A function; compgen -a`, `readonly -p`, `hash; jobs; dirs; history; complete -p`, `enable -a`} {
				r := s.run(c, split).err("")
				for line := range strings.Lines(string(r.Stdout)) {
					words := slices.DeleteFunc(bookkeeping.FindAllString(line, -1), func(w string) bool {
						return w == "ELSEWHERE_CALL" || w == "ELSEWHERE_SESSION" || strings.HasPrefix(w, "elsewhere")
					})
					if len(words) > 0 {
						t.Errorf("%q shows %q: %s", c, slices.Compact(words), shorten(line))
					}
				}
			}
		}},
		{name: "no variable, function or alias exists that bash --login -c would not have", run: func(t *test) {
			s := t.session()
			list := `comm -23 <(compgen -v | sort -u) <(compgen -e | sort -u); declare -F; alias`
			r := s.run(list, split).err("").code(0)
			native := s.b.observed("", "exec -a bash bash --login -c "+quote(list))
			if extra := missing(strings.Fields(string(r.Stdout)), strings.Fields(string(native.Stdout))); len(extra) > 0 {
				t.Errorf("besides bash --login -c there are %q", extra)
			}
		}},
		{name: "no trap is listed but the one on EXIT", run: func(t *test) {
			s := t.session()
			for _, c := range []string{`trap`, `trap -p`} {
				r := s.run(c, split).err("").code(0)
				if out := string(r.Stdout); out != "" && (!strings.HasPrefix(out, "trap -- ") || !strings.HasSuffix(out, " EXIT\n")) {
					r.fail("%q lists more than a trap on EXIT", c)
				}
			}
			s.run(`trap -p DEBUG ERR RETURN INT TERM HUP PIPE CHLD USR1`, split).out("").err("").code(0)
		}},
		{name: "set; declare -p; trap -p; set -xv end no call and lose nothing", run: func(t *test) {
			s := t.session()
			s.run(`set; declare -p; trap -p; set -xv; export A=1; cd /usr; echo body`, split).has("body\n").code(0).saved(true).cwd("/usr")
			s.want(`echo "$A"; echo "$-" | tr -d hBc; pwd`, "1\n\n/usr\n")
			r := s.run("set -xv\necho one\necho two\nexit 3", split).out("one\ntwo\n").code(3).saved(true)
			for _, line := range []string{"+ echo one\n", "+ echo two\n"} {
				if !strings.Contains(string(r.Stderr), line) {
					r.fail("the trace lacks %q", line)
				}
			}
		}},
		{name: "a trace shows the command and at most one line more for each option", run: func(t *test) {
			s := t.session()
			for _, c := range []string{"set -x\necho one\nx=2", "set -v\necho one\nx=2", "set -xv\necho one\nx=2", "set -x\nf() { echo f; }\nf\nexit 3"} {
				r := s.run(c, split)
				native := s.b.observed("", "exec -a bash bash --noprofile --norc -c "+quote(c))
				extra := missing(lines(oneLessTraced(string(r.Stderr))), lines(string(native.Stderr)))
				if len(extra) > 2 || !strings.Contains(c, "xv") && len(extra) > 1 {
					r.fail("besides bash -c the trace shows %q", extra)
				}
			}
		}},
		{name: "the DEBUG, ERR and RETURN traps of a command do not see bookkeeping", run: func(t *test) {
			s := t.session()
			s.want(`trap 'echo "+$BASH_COMMAND"' DEBUG; x=1`, "+x=1\n").saved(true)
			s.want(`set -E -T; trap 'echo "err: $BASH_COMMAND"' ERR; trap 'echo "ret"' RETURN; export A=1`, "").saved(true)
			s.want(`set -o functrace errtrace 2>/dev/null; shopt -s extdebug; trap '[[ $BASH_COMMAND != echo* ]]' DEBUG; echo skipped; x=2`, "")
			s.want(`echo "$A"`, "1\n")
		}},
		{name: "BASH_EXECUTION_STRING, BASH_COMMAND and $0 are those of bash -c", run: func(t *test) {
			s := t.session()
			c := `printf '%s|%s' "$BASH_EXECUTION_STRING" "$0"`
			r := s.run(c).code(0)
			if !strings.HasPrefix(r.text(), c+"|") {
				r.fail("BASH_EXECUTION_STRING is not the command")
			}
		}},
		{name: "a child gets no descriptor but 0, 1 and 2", needs: []Need{NeedProc}, run: func(t *test) {
			s := t.session()
			for _, how := range [][]runOption{{}, {split}, {stdin("x")}} {
				look := `bash --norc -c 'for ((i = 0; i < 1024; i++)); do [ ! -e /proc/$$/fd/$i ] || echo $i; done'`
				for _, c := range []string{look, look + ` & wait`, `exec ` + look, `( ` + look + ` )`, look + ` | cat`, `x=$(` + look + `); echo "$x"`} {
					s.want(c, "0\n1\n2\n", how...)
				}
			}
		}},
	}}
}

// lines splits a text into its lines.
func lines(s string) []string {
	var out []string
	for l := range strings.Lines(s) {
		out = append(out, strings.TrimSuffix(l, "\n"))
	}
	return out
}

// missing gives what is in all and not in known, counting each entry.
func missing(all, known []string) []string {
	n := map[string]int{}
	for _, k := range known {
		n[k]++
	}
	var out []string
	for _, a := range all {
		if n[a]--; n[a] < 0 {
			out = append(out, a)
		}
	}
	return out
}
