package dotenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDotenv(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"plain", "A=b\nC=d", "A=b@1 C=d@2"},
		{"blanks around", "  A =  b c  \n", "A=b c@1"},
		{"export", "export A=b\nexport\tC=d\nexporter=e", "A=b@1 C=d@2 exporter=e@3"},
		{"comments", "# A=b\n  # x\nA=b # c\nB=b#c\nC=# d\n", "A=b@3 B=b#c@4 C=@5"},
		{"single quotes", `A='b # $c \n \' \\'` + "\n", `A=b # $c \n ' \@1`},
		{"double quotes", `A="b\n\t\"\\ \$ \x" # c`, "A=b\n\t\"\\ $ \\x@1"},
		{"several lines", "A=\"b\nc\"\nD=e", "A=b\nc@1 D=e@3"},
		{"a quote without end", "A='b\nC=d\n", "C=d@2 !1"},
		{"text behind a quote", "A='b' c\nC=d\n", "C=d@2 !1"},
		{"lines that are none", "A\n=b\n1A=b\nA-B=c\nC=d", "C=d@5 !1 !2 !3 !4"},
		{"empty values", "A=\nB=''\n", "A=@1 B=@2"},
		{"CRLF and a byte order mark", "\ufeffA=b\r\nC=d\r\n", "A=b@1 C=d@2"},
		{"no shell", "A=$(id) `id` $B", "A=$(id) `id` $B@1"},
		{"an equals sign", "A=b=c", "A=b=c@1"},
		{"a null byte", "A=b\x00\nC=d", "C=d@2 !1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			vars, bad := Parse(c.text)
			var got []string
			for _, v := range vars {
				got = append(got, fmt.Sprintf("%s=%s@%d", v.Name, v.Value, v.Line))
			}
			for _, line := range bad {
				got = append(got, fmt.Sprintf("!%d", line))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func FuzzDotenv(f *testing.F) {
	for _, seed := range []string{"A=b # c\n", "export A='b\nc'\n", `A="\n\"`, "=\n", "\ufeffA=\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		vars, bad := Parse(text)
		lines := strings.Count(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n") + 1
		last := 0
		for _, v := range vars {
			if v.Line <= last || v.Line > lines || !IsName(v.Name) || strings.ContainsRune(v.Value, 0) {
				t.Errorf("%+v of %d lines", v, lines)
			}
			last = v.Line
		}
		if !slices.IsSorted(bad) || len(bad) > lines {
			t.Errorf("bad lines %v of %d", bad, lines)
		}
		// What is read is data: written in single quotes it reads the same.
		for _, v := range vars {
			quoted := "A='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v.Value) + "'\n"
			if again, _ := Parse(quoted); len(again) != 1 || again[0].Value != v.Value {
				t.Errorf("%q reads back as %v", v.Value, again)
			}
		}
	})
}
