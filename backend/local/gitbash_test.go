package local

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestPathsOfWindowsAreTranslatedBothWays(t *testing.T) {
	for _, c := range []struct{ windows, bash string }{
		{`C:\Users\me`, "/c/Users/me"},
		{`C:\Users\a b\ü`, "/c/Users/a b/ü"},
		{`C:\`, "/c"},
		{`\\server\share\x`, "//server/share/x"},
	} {
		if got := bashPath(c.windows); got != c.bash {
			t.Errorf("bashPath(%s) = %s, want %s", c.windows, got, c.bash)
		}
		if got := windowsPath(c.bash); got != c.windows {
			t.Errorf("windowsPath(%s) = %s, want %s", c.bash, got, c.windows)
		}
	}
	for in, want := range map[string]string{
		`c:/Users/me`: "/c/Users/me", `\\?\C:\long`: "/c/long", `\\?\UNC\server\share`: "//server/share", "d:": "/d",
		"/c/Users": "/c/Users", "/tmp/x": "/tmp/x", `sub\dir`: "sub/dir", "": "", `C:rel`: "C:rel",
	} {
		if got := bashPath(in); got != want {
			t.Errorf("bashPath(%s) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"/cygdrive/d/x": `D:\x`, "/mnt/c/Users/me": `C:\Users\me`, "/mnt/c": `C:\`, "/c": `C:\`, "/c/": `C:\`,
		"/mnt/data/x": "/mnt/data/x", "/mnt": "/mnt", "/tmp/x": "/tmp/x", "/home/me": "/home/me", "/": "/", "": "",
		"C:/Users": `C:\Users`, `C:\Users`: `C:\Users`, "relative/x": "relative/x", "/1/x": "/1/x",
	} {
		if got := windowsPath(in); got != want {
			t.Errorf("windowsPath(%s) = %s, want %s", in, got, want)
		}
	}
}

func FuzzPathsOfWindowsComeBack(f *testing.F) {
	f.Add(`C:\Users\me`)
	f.Add("/mnt/c/x")
	f.Fuzz(func(t *testing.T, path string) {
		once := bashPath(path)
		if again := bashPath(windowsPath(once)); windowsPath(again) != windowsPath(once) {
			t.Errorf("%q: %q, then %q", path, once, again)
		}
	})
}

// machine is a Windows with these files; usable bashes are those that are not in broken.
type machine struct {
	files  []string
	broken map[string]error
	asked  []string
}

func (m *machine) find(setting string, environ ...string) (string, error) {
	return findGitBash(setting, newEnvironment(environ, true),
		func(file string) bool {
			return slices.ContainsFunc(m.files, func(f string) bool { return strings.EqualFold(f, file) })
		},
		func(file string) error {
			m.asked = append(m.asked, file)
			return m.broken[file]
		})
}

const (
	wsl      = `C:\Windows\System32\bash.exe`
	store    = `C:\Users\me\AppData\Local\Microsoft\WindowsApps\bash.exe`
	portable = `C:\Users\me\AppData\Local\hermes\git\bin\bash.exe`
	git64    = `C:\Program Files\Git\bin\bash.exe`
	git32    = `C:\Program Files (x86)\Git\usr\bin\bash.exe`
	gitUser  = `C:\Users\me\AppData\Local\Programs\Git\bin\bash.exe`
	scoop    = `D:\scoop\git\bin\bash.exe`
)

var windowsEnviron = []string{
	`LocalAppData=C:\Users\me\AppData\Local`, `programfiles=C:\Program Files`, `ProgramFiles(x86)=C:\Program Files (x86)`,
	`Path=C:\Windows\system32;C:\Windows\System32\;"C:\Users\me\AppData\Local\Microsoft\WindowsApps";D:\scoop\git\cmd;;D:\msys64\usr\bin\`,
}

func TestGitBashIsFoundAndTheShimsOfWSLAndTheStoreAreNot(t *testing.T) {
	for name, c := range map[string]struct {
		setting string
		files   []string
		want    string
	}{
		"the setting first":               {`/d/my/bash.exe`, []string{wsl, portable, git64, `D:\my\bash.exe`}, `D:\my\bash.exe`},
		"then what Hermes installed":      {"", []string{wsl, store, git64, portable}, portable},
		"then Git for Windows":            {"", []string{wsl, store, scoop, gitUser, git32, git64}, git64},
		"of 32 bits too":                  {"", []string{wsl, gitUser, git32}, git32},
		"then the one of the user":        {"", []string{wsl, scoop, gitUser}, gitUser},
		"then beside the git.exe on PATH": {"", []string{wsl, store, scoop}, scoop},
		"then a bash on PATH":             {"", []string{wsl, store, `D:\msys64\usr\bin\bash.exe`}, `D:\msys64\usr\bin\bash.exe`},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{files: c.files}
			got, err := m.find(c.setting, windowsEnviron...)
			if err != nil || got != c.want {
				t.Errorf("got %s, %v", got, err)
			}
			if len(m.asked) != 1 {
				t.Errorf("tried %q", m.asked)
			}
		})
	}
}

func TestABashThatDoesNotWorkIsPassedOverAndSaidWhy(t *testing.T) {
	broken := errors.New("it is broken")
	m := &machine{files: []string{git64, scoop}, broken: map[string]error{git64: broken}}
	if got, err := m.find("", windowsEnviron...); got != scoop || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	for name, c := range map[string]struct {
		m       machine
		setting string
		kind    driver.Kind
		words   []string
	}{
		"only shims":        {machine{files: []string{wsl, store}}, "", driver.KindUnavailable, []string{"git-scm.com", "HERMES_GIT_BASH_PATH"}},
		"a broken one":      {machine{files: []string{git64}, broken: map[string]error{git64: broken}}, "", driver.KindUnavailable, []string{git64, "broken", "HERMES_GIT_BASH_PATH"}},
		"a setting to none": {machine{files: []string{git64}}, `C:\none.exe`, driver.KindConfig, []string{`C:\none.exe`, "git_bash_path"}},
		"a setting broken":  {machine{files: []string{git64}, broken: map[string]error{git64: broken}}, git64, driver.KindConfig, []string{git64, "broken"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.m.find(c.setting, windowsEnviron...)
			if err == nil || Backend().Classify(err) != c.kind {
				t.Fatalf("got %v", err)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q lacks %s", err, word)
				}
			}
		})
	}
}

func TestAProbeTellsGitBashFromWSLAndNamesMandatoryASLR(t *testing.T) {
	failed := errors.New("exit status 1")
	for name, c := range map[string]struct {
		stdout, stderr string
		err            error
		want           string
	}{
		"Git Bash":       {"MINGW64_NT-10.0-22631\r\n", "", nil, ""},
		"MSYS":           {"MSYS_NT-10.0\n", "", nil, ""},
		"WSL":            {"Linux\n", "", nil, "WSL"},
		"ASLR":           {"", "      0 [main] bash (1234) child_info_fork::abort: address space needed by 'x.dll' is occupied", failed, "ASLR"},
		"another heap":   {"", "fatal error - cygheap base mismatch detected", failed, "ASLR"},
		"any other end":  {"", "boom\nmore", failed, "boom"},
		"another system": {"Haiku\n", "", nil, "Haiku"},
		"nothing":        {"", "", nil, "runs on"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judgeProbe(c.stdout, c.stderr, c.err)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestArgumentsAreNotRewrittenAndGitsToolsAreOnPath(t *testing.T) {
	all := func(string) bool { return true }
	env := newEnvironment(append(windowsEnviron, "msys_no_pathconv=0"), true)
	msysEnvironment(env, git64, all)
	if env.get("MSYS_NO_PATHCONV") != "0" || env.get("MSYS2_ARG_CONV_EXCL") != "*" {
		t.Errorf("got %q", env.entries)
	}
	if got := env.get("path"); !strings.HasPrefix(got, `C:\Program Files\Git\mingw64\bin;C:\Program Files\Git\mingw32\bin;C:\Program Files\Git\usr\bin;C:\Program Files\Git\bin;C:\Windows\system32;`) {
		t.Errorf("PATH is %s", got)
	}
	once := env.get("PATH")
	msysEnvironment(env, git64, all)
	if env.get("PATH") != once {
		t.Errorf("a second time: %s", env.get("PATH"))
	}
	env = newEnvironment(nil, true)
	msysEnvironment(env, `D:\odd\bash.exe`, all)
	if env.get("MSYS_NO_PATHCONV") != "1" || env.has("PATH") {
		t.Errorf("got %q", env.entries)
	}
}

func TestNamesOfVariablesDoNotDifferByCaseOnWindows(t *testing.T) {
	env := newEnvironment([]string{`=C:=C:\dir`, "Path=a", "PATH=b"}, true)
	if got := env.with([]string{"path=c", "New=1"}); !slices.Equal(got, []string{`=C:=C:\dir`, "path=c", "New=1"}) {
		t.Errorf("got %q", got)
	}
	if got := newEnvironment([]string{"a=1", "A=2"}, false).entries; len(got) != 2 {
		t.Errorf("elsewhere they do: %q", got)
	}
}
