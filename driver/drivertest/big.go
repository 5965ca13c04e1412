package drivertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

func sha256sum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// bigGroup: sizes (SPEC 1.8 to 1.10). What takes more than a few seconds is left out under -short.
func bigGroup() group {
	return group{name: "big", cases: []testCase{
		{name: "a command of 1 MB runs whole", run: func(t *test) {
			s := t.session()
			var text strings.Builder
			for i := 0; text.Len() < 1<<20; i++ {
				fmt.Fprintf(&text, ": line %d 'with é' \"and $((1)) \\\" quotes\"\n", i)
			}
			s.want(text.String()+"echo the end; export A=1", "the end\n")
			s.want(`echo "$A"`, "1\n")
			word := strings.Repeat("0123456789abcdef", 1<<16)
			s.want("x='"+word+"'; echo ${#x}; echo ${x: -4}", "1048576\ncdef\n")
			t.sameBytes("the command's own data", s.run("cat <<'EOF'\n"+word+"\nEOF").code(0).Output, []byte(word+"\n"))
		}},
		{name: "a command beyond the limit of a single argument runs", run: func(t *test) {
			t.session().want(": "+strings.Repeat("x", 200<<10)+"; echo ok", "ok\n")
		}},
		{name: "a per-call value and an exported value of 100 kB survive", run: func(t *test) {
			s := t.session()
			v := strings.Repeat("value\n", 20000)
			s.want(`printf %s "$V"`, v, env("V", v))
			s.want(`export W=$V`, "", env("V", v))
			s.want(`printf %s "$W"`, v)
		}},
		{name: "a state of more than 1 MB is carried: 3,000 functions", slow: true, run: func(t *test) {
			s := t.session()
			s.want(`for ((i = 0; i < 3000; i++)); do eval "fn_$i() { local a=\$1 b; for b in x y z; do if [[ \$a == \$b ]]; then echo \"fn $i \$a\"; return 0; fi; done; printf '%s\n' 'a text that makes this function longer than it needs to be, for the size of it' > /dev/null; case \$a in (one|two) echo two;; (*) echo other;; esac; }"; done; compgen -A function fn_ | wc -l; [ $(declare -f | wc -c) -gt 1000000 ] && echo more`, "3000\nmore\n")
			s.flush() // a call waits for such a state, but not for ever
			for i := range 3 {
				s.want(fmt.Sprintf(`export N=%d; compgen -A function fn_ | wc -l; fn_2999 z`, i), "3000\nfn 2999 z\n")
				s.flush()
				s.want(`echo $N`, fmt.Sprintf("%d\n", i))
			}
			s.run(`fn_0 x; exit 3`).code(3).out("fn 0 x\n")
		}},
		{name: "an exported value of 1 MB is carried", slow: true, run: func(t *test) {
			// A single exported string over 128 KiB keeps every program from starting; bash itself carries it.
			s := t.session()
			s.want(`x=0123456789abcdef; for ((i = 0; i < 16; i++)); do x=$x$x; done; export BIG=$x; builtin echo ${#BIG}`, "1048576\n")
			s.flush()
			s.want(`builtin echo "${#BIG} ${BIG: -3}"; export AFTER=1`, "1048576 def\n")
			s.flush()
			s.want(`unset BIG; builtin echo $AFTER`, "1\n")
			s.want(`bash --norc -c 'echo fine'`, "fine\n")
		}},
		{name: "50 MB of output arrive byte for byte", big: true, run: func(t *test) {
			s := t.session()
			h := sha256.New()
			s.run(`for ((i = 0; i < 50; i++)); do head -c 1000000 /dev/urandom; done | tee @D/data`, stdout(h)).code(0)
			want := strings.Fields(s.observe(`sha256sum < @D/data; wc -c < @D/data`))
			if got := hex.EncodeToString(h.Sum(nil)); got != want[0] || want[2] != "50000000" {
				t.Errorf("sum %s, want %s of %s bytes", got, want[0], want[2])
			}
		}},
		{name: "100 MB of stdin arrive byte for byte while output flows back", big: true, slow: true, run: func(t *test) {
			s := t.session()
			in := &pattern{left: 100 << 20}
			h, want := sha256.New(), sha256.New()
			s.run(`cat`, stdinFrom(io.TeeReader(in, want)), stdout(h)).code(0)
			if !bytes.Equal(h.Sum(nil), want.Sum(nil)) || in.left != 0 {
				t.Error("the echo is not what was sent")
			}
		}},
		{name: "memory stays flat under a flood", big: true, alone: true, needs: []Need{NeedHostChildren}, run: func(t *test) {
			b := t.place(boxSpec{})
			h := b.host(childJob{Flood: 1 << 30, Ahead: 0})
			if h.report.Bytes != 1<<30 {
				t.Errorf("%d bytes came of %d", h.report.Bytes, 1<<30)
			}
			if h.report.HeapMB == 0 || h.report.HeapMB > 96 {
				t.Errorf("the host process had %d MiB at most", h.report.HeapMB)
			}
		}},
		{name: "P05 five hundred calls one after another neither slow down nor leave anything", big: true, slow: true, run: func(t *test) {
			b := t.own(ahead(1))
			s := b.session("")
			for i := range 500 {
				s.want(`echo $((N + 1)); export N=$((N + 1))`, fmt.Sprintf("%d\n", i+1))
			}
			s.flush()
			b.waiting(1)
			t.eventually("no helper is left but the watchdog", time.Second, func() bool { return b.rec.helpers() <= 1 })
		}},
		{name: "P05 ten quick commands in one session are quick", run: func(t *test) {
			// Not a matter of speed: each of them within the promise of any call, so that no hidden wait of seconds is in it.
			s := t.session()
			for range 10 {
				begin := time.Now()
				s.want(`true`, "")
				within(t, begin, 300*time.Millisecond)
			}
		}},
		{name: "U01 the command's own limit is the one that counts", big: true, slow: true, run: func(t *test) {
			s := t.session()
			r := s.run(`echo early; sleep 35; echo late`, timeout(10*time.Minute)).code(0).out("early\nlate\n")
			if r.Cause != elsewhere.Exited {
				r.fail("another limit fired")
			}
		}},
	}}
}

// pattern reads as so many bytes of a text that never repeats for long.
type pattern struct{ left, at int }

func (p *pattern) Read(b []byte) (int, error) {
	if p.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), p.left)
	for i := range n {
		b[i] = byte(uint64(p.at+i) * 2654435761 >> 13)
	}
	p.at, p.left = p.at+n, p.left-n
	return n, nil
}
