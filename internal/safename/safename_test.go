package safename

import (
	"strings"
	"testing"
)

func TestAPlainNameStaysAsItIs(t *testing.T) {
	for _, name := range []string{"dev", "a.b_c-d", "0", strings.Repeat("x", 63)} {
		if Of(name) != name {
			t.Errorf("%q became %q", name, Of(name))
		}
	}
}

func TestAnyStringBecomesANameOfItsOwn(t *testing.T) {
	names := []string{"", ".", "..", "../../etc", "a/b", "a_b", "A", "a", "Dev", "dev", "x-0123456789ab", "x", "é", "\xff\xfe", "a\nb", "-rf", ".hidden",
		strings.Repeat("x", 64), strings.Repeat("x", 5000), strings.Repeat("x", 5001), "con.", "nul", "a b", "a\x00b"}
	seen := map[string]string{}
	for _, name := range names {
		got := Of(name)
		if !Plain(got) {
			t.Errorf("%q became %q, which is no plain name", name, got)
		}
		if other, ok := seen[strings.ToLower(got)]; ok {
			t.Errorf("%q and %q both became %q", name, other, got)
		}
		seen[strings.ToLower(got)] = name
	}
	for name := range seen {
		if again := Of(name); again == name && strings.Contains(name, "-") && mapped.MatchString(name) {
			t.Errorf("%q is a result of the mapping and maps to itself", name)
		}
	}
}
