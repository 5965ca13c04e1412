package output

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing is nothing", "", ""},
		{"valid text is unchanged", "aé€😀\x00\r\n", "aé€😀\x00\r\n"},
		{"a byte that can begin nothing is replaced", "a\xffb", "a�b"},
		{"bytes of another encoding are replaced one by one", "a\xb4\xf3b\n", "a��b\n"},
		{"a lone continuation byte is replaced", "a\x80b", "a�b"},
		{"the beginning of a character is one replacement", "a\xe2\x82b", "a�b"},
		{"the beginning of a character at the end is one replacement", "a\xf0\x9f\x98", "a�"},
		{"overlong forms are replaced byte by byte", "\xc0\xaf\xe0\x80\xbf", "�����"},
		{"surrogates are replaced byte by byte", "\xed\xa0\x80", "���"},
		{"what is beyond the last code point is replaced byte by byte", "\xf4\x90\x80\x80", "����"},
		{"the example of the Unicode standard comes out as there", "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a���b�c��d"},
		{"a replacement character stays one", "�", "�"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Text([]byte(tc.in)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestDecoder(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []string
		want []string // of each write, then of Flush
	}{
		{"a split character comes out whole with its last byte", []string{"a\xe2", "\x82", "\xacb"}, []string{"a", "", "€b", ""}},
		{"a character that is never completed is replaced at the end", []string{"a\xe2\x82"}, []string{"a", "�"}},
		{"a character that goes on wrongly is replaced then", []string{"\xe2\x82", "a"}, []string{"", "�a", ""}},
		{"one that is followed by another beginning keeps that one", []string{"\xe2\x82", "\xe2", "\x82\xac"}, []string{"", "�", "€", ""}},
		{"an empty write changes nothing", []string{"\xe2", "", "\x82\xac"}, []string{"", "", "€", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var d Decoder
			for i, s := range tc.in {
				if got := d.Decode([]byte(s)); got != tc.want[i] {
					t.Errorf("write %d: got %q, want %q", i, got, tc.want[i])
				}
			}
			if got := d.Flush(); got != tc.want[len(tc.in)] {
				t.Errorf("Flush: got %q, want %q", got, tc.want[len(tc.in)])
			}
			if got := d.Flush(); got != "" {
				t.Errorf("second Flush: %q", got)
			}
		})
	}
}

func TestClip(t *testing.T) {
	hundred := strings.Repeat("0123456789", 10)
	million := strings.Repeat("é", 1_234_567)
	for _, tc := range []struct {
		name    string
		text    string
		limit   int
		want    string
		cut     bool
		omitted int
	}{
		{"text that fits is returned as it is", "abc", 3, "abc", false, 0},
		{"characters are counted, not bytes", "éé€", 3, "éé€", false, 0},
		{"no budget keeps nothing", "abc", 0, "", true, 3},
		{"a negative budget keeps nothing", "abc", -1, "", true, 3},
		{"empty text fits no budget", "", -1, "", false, 0},
		{"one character says that something was there", "abc", 1, "…", true, 3},
		{"a tiny budget keeps the end first", "abc", 2, "…c", true, 2},
		{"a small budget has an ellipsis", "0123456789", 6, "01…789", true, 5},
		{"a middling budget names the numbers", hundred, 40, "012345678[76/100 omitted]567890123456789", true, 76},
		{
			"a large budget has a sentence with separators", million, 1000,
			strings.Repeat("é", 370) + "\n\n... [OUTPUT TRUNCATED: 1,233,640 of 1,234,567 characters omitted] ...\n\n" +
				strings.Repeat("é", 557), true, 1_233_640,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, cut, omitted := Clip(tc.text, tc.limit)
			if got != tc.want || cut != tc.cut || omitted != tc.omitted {
				t.Errorf("got %q, %v, %d\nwant %q, %v, %d", got, cut, omitted, tc.want, tc.cut, tc.omitted)
			}
		})
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd"), uint8(2))
	f.Add([]byte("é€😀"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, chunk uint8) {
		whole := Text(data)
		if !utf8.ValidString(whole) {
			t.Fatalf("%q is not valid", whole)
		}
		if utf8.Valid(data) && whole != string(data) {
			t.Fatalf("%q was changed to %q", data, whole)
		}
		var d Decoder
		var s strings.Builder
		for rest := data; len(rest) > 0; {
			n := min(int(chunk)+1, len(rest))
			part := d.Decode(rest[:n])
			if !utf8.ValidString(part) {
				t.Fatalf("%q is not valid", part)
			}
			s.WriteString(part)
			rest = rest[n:]
		}
		if s.WriteString(d.Flush()); s.String() != whole {
			t.Fatalf("in parts %q, whole %q", s.String(), whole)
		}
	})
}

func FuzzClip(f *testing.F) {
	f.Add("0123456789abcdefghijklmnopqrstuvwxyz", 20)
	f.Add("é\xff€", 2)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		got, cut, omitted := Clip(text, limit)
		total := utf8.RuneCountInString(text)
		if cut != (total > max(limit, 0)) || (!cut && (got != text || omitted != 0)) {
			t.Fatalf("cut %v", cut)
		}
		if cut && (utf8.RuneCountInString(got) != max(limit, 0) || omitted < total-max(limit, 0) || omitted > total) {
			t.Fatalf("%d characters of %d, %d of %d omitted", utf8.RuneCountInString(got), limit, omitted, total)
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Fatal("a character was split")
		}
	})
}

func BenchmarkText(b *testing.B) {
	valid := []byte(strings.Repeat("a line of plain text, then ünïcödé\n", 1<<15))
	binary := make([]byte, 1<<20)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	for name, data := range map[string][]byte{"valid": valid, "binary": binary} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				Text(data)
			}
		})
	}
}
