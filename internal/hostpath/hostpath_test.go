package hostpath

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestOnlyPathsOfWindowsAreNoBashs(t *testing.T) {
	for p, want := range map[string]bool{
		`D:\proj`: true, "d:/proj": true, "c:": true, `\\server\share`: true, "//server/share": true, `a\b`: true,
		"": false, ".": false, "~": false, "sub": false, "/": false, "/Users/me": false, "1:": false, "/a:b": false,
	} {
		if Only(p) != want {
			t.Errorf("%q: not %v", p, want)
		}
	}
}

func TestAPathThatIsNotThereIsLikelyThisMachines(t *testing.T) {
	home, caller, other := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(home, "p"), 0o700); err != nil {
		t.Fatal(err)
	}
	req := driver.OpenRequest{Environ: []string{"HOME=/first", "HOME=" + home}, Dir: caller}
	for p, want := range map[string]bool{
		"/Users/me/p": true, "/Users": true, "/mnt/c/x": true, "/private/var/x": true, home: true, home + "/p": true, caller: true,
		home + "/missing": false, other: false, "/Usersme": false, "/opt/typo": false, "/": false, "Users/me": false, "": false, "/Users/../opt": false,
	} {
		if Likely(p, req) != want {
			t.Errorf("%q: not %v", p, want)
		}
	}
	if Likely("/usr", driver.OpenRequest{Environ: []string{"HOME=/"}, Dir: "/"}) {
		t.Error("the root is taken for somebody's home")
	}
}
