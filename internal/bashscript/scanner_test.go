package bashscript

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// feed runs stream through a Scanner in pieces of n bytes.
func feed(token, stream string, n int) (data string, reports []Report) {
	s := NewScanner(token)
	var out bytes.Buffer
	for len(stream) > 0 {
		k := min(n, len(stream))
		s.Feed([]byte(stream[:k]), func(p []byte) { out.Write(p) }, func(r Report) { reports = append(reports, r) })
		stream = stream[k:]
	}
	out.Write(s.Rest())
	return out.String(), reports
}

func TestReportsAreTakenOutHoweverTheStreamIsCut(t *testing.T) {
	token := NewToken()
	stream := "noise" + token + "B/tmp;;" + "a\x00b" + token[:20] + "x" + token + "E7;/a%3Bb%0Ac%25d;1;" + "tail" + token + "S"
	for n := 1; n <= len(stream); n++ {
		data, reports := feed(token, stream, n)
		if want := "noise" + "a\x00b" + token[:20] + "x" + "tail"; data != want {
			t.Fatalf("in pieces of %d: data %q, want %q", n, data, want)
		}
		if len(reports) != 3 || reports[1].Kind != 'E' || !codeIs(reports[1], 7) || reports[1].Fields[1] != "/a;b\nc%d" || reports[2].Kind != 'S' {
			t.Fatalf("in pieces of %d: reports %q", n, reports)
		}
	}
}

func TestATokenWithoutAReportIsOutput(t *testing.T) {
	token := NewToken()
	for _, stream := range []string{token, token + "' ew_slot=", token + "Z", token + token, "x" + token[:5], token + "E1;/tmp", "\x1e\x1e\x1e"} {
		data, reports := feed(token, stream, 3)
		if data != stream || len(reports) > 0 {
			t.Errorf("%q: data %q, reports %q", stream, data, reports)
		}
	}
}

func TestAReportThatNeverEndsIsOutputAndTakesNoMemory(t *testing.T) {
	token := NewToken()
	stream := token + "E" + strings.Repeat("x", 1<<20)
	data, reports := feed(token, stream, 4096)
	if data != stream || len(reports) > 0 {
		t.Errorf("%d bytes came out of %d, reports %q", len(data), len(stream), reports)
	}
}

func FuzzScanner(f *testing.F) {
	f.Add("a", 1)
	f.Add("TB;;bTE0;/;;TS", 3)
	f.Fuzz(func(t *testing.T, stream string, n int) {
		token := "\x1eT"
		stream = strings.ReplaceAll(stream, "T", token)
		whole, all := feed(token, stream, len(stream)+1)
		cut, some := feed(token, stream, max(1, n%17))
		if whole != cut || len(all) != len(some) {
			t.Fatalf("%q: cut %q %q, whole %q %q", stream, cut, some, whole, all)
		}
	})
}

func TestQuotedTextIsOneWordByteForByte(t *testing.T) {
	var every []byte
	for b := 1; b < 256; b++ {
		every = append(every, byte(b))
	}
	for _, text := range []string{string(every), "", "'", "''", "a'b", "$(touch x)", "`x`", "\\", "\n", "!"} {
		cmd := exec.Command("bash", "-c", "printf %s "+Quote(text))
		cmd.Env = []string{"LC_ALL=C"}
		out, err := cmd.Output()
		if err != nil || string(out) != text {
			t.Errorf("%q came out as %q (%v)", text, out, err)
		}
	}
}

func TestTheCommandLineSurvivesAnyLoginShell(t *testing.T) {
	s := NewScripts([]string{"TERM"})
	file, ok := s.FileArgs("/dev/shm/x y")
	if !ok {
		t.Fatal("a path with a space was refused")
	}
	for _, args := range [][]string{s.Args(), s.EndArgs(), file} {
		if word := args[len(args)-1]; strings.ContainsAny(word, "'\\!\n") {
			t.Errorf("not safe for every shell: %s", word)
		}
	}
	for _, path := range []string{"a'b", `a"b`, "a$b", "a`b", `a\b`, "a!b", "a\nb"} {
		if _, ok := s.FileArgs(path); ok {
			t.Errorf("%q was accepted", path)
		}
	}
}

func BenchmarkFeed(b *testing.B) {
	zeros := make([]byte, 64<<10)
	text := bytes.Repeat([]byte("a line of plain text\n"), 64<<10/21)
	rare := bytes.Repeat([]byte{0x1e}, 64<<10) // the token's first byte, the worst that output can be
	for name, chunk := range map[string][]byte{"zeros": zeros, "lines": text, "the token's first byte": rare} {
		b.Run(name, func(b *testing.B) {
			s := NewScanner(NewToken())
			var n int
			data := func(p []byte) { n += len(p) }
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				s.Feed(chunk, data, func(Report) {})
			}
		})
	}
	b.Run("the reports of a call", func(b *testing.B) {
		token := NewToken()
		stream := []byte(token + "R123;456;5.2.15(1)-release;;" + token + "B/src/project;;" + "hello\n" + token + "E0;/src/project;;" + token + "U")
		b.ReportAllocs()
		for b.Loop() {
			s := NewScanner(token)
			s.Feed(stream, func([]byte) {}, func(Report) {})
		}
	})
}

func BenchmarkRun(b *testing.B) {
	s := NewScripts(nil)
	r := Run{Cwd: "/src/project", Command: "go build ./... && go test ./...", Env: []string{"A", "1", "B", "it's"}}
	b.ReportAllocs()
	for b.Loop() {
		s.Run(r)
	}
}

func codeIs(r Report, want int) bool {
	code, certain := r.Code()
	return code == want && certain
}

func TestACodeThatIsNotCertainSaysSo(t *testing.T) {
	for text, want := range map[string]int{"?127": 127, "?": -1, "": -1, "x": -1} {
		if code, certain := (Report{Kind: 'E', Fields: []string{text}}).Code(); code != want || certain {
			t.Errorf("%q: %d, certain %v", text, code, certain)
		}
	}
}
