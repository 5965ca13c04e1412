package drivertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// hermesGroup: skills, caches and credential files of HERMES_HOME are in the place, and caches come back (SPEC 3.1 to 3.6).
func hermesGroup() group {
	return group{name: "hermes files", cases: []testCase{
		{name: "X07 skills, caches and credential files have their own names there, and nothing of them runs", inapt: heeds("credential_files"), run: hermesNames},
		{name: "N02 what is no file that can be read is left out and stops no other, and goes when it has become one", inapt: heeds("sync_back"), run: func(t *test) {
			b := t.place(boxSpec{Settings: map[string]string{"force_file_sync": "true"}})
			for _, name := range []string{"a", "b/run.sh", "z"} {
				b.hermes("skills/"+name, "of "+name)
			}
			pipe := filepath.Join(b.place.HermesHome, "skills", "b", "pipe")
			if out, err := exec.Command("mkfifo", pipe).CombinedOutput(); err != nil {
				t.skip("no pipe can be made here: " + string(out))
			}
			b.open()
			s := b.session("")
			const all = `cd ~/.hermes/skills && cat a b/run.sh z; ls b`
			s.want(all, "of aof b/run.shof zrun.sh\n")
			if err := os.Remove(pipe); err != nil {
				t.Fatal(err)
			}
			b.hermes("skills/b/pipe", "a file now")
			s.want(all+`; cat b/pipe`, "of aof b/run.shof zpipe\nrun.sh\na file now")
		}},
		{name: "N08 a credential file that a command spoils stays as it is here, by its own name and by a new one", inapt: heeds("sync_back"), run: func(t *test) {
			b := t.place(boxSpec{Settings: map[string]string{"credential_files": `["keys/token.json"]`, "sync_back": "all"}})
			b.hermes("keys/token.json", "secret")
			b.hermes("cache/documents/old", "old")
			b.open()
			b.session("").want(`cd ~/.hermes && cat keys/token.json && echo bad > keys/token.json && echo bad > keys/other.json && echo new > cache/documents/old`, "secret")
			b.close()
			b.hermesIs("cache/documents/old", "new\n") // something came back
			b.hermesIs("keys/token.json", "secret")
			b.hermesIs("keys/other.json", "")
		}},
		{name: "N09 what a command makes in a cache comes back, and nothing by way of a link: N04 sockets and pipes stop none of it", inapt: heeds("sync_back"), run: func(t *test) {
			b := t.place(boxSpec{})
			b.hermes("cache/documents/old", "old")
			b.hermes("skills/a", "skill")
			outside := filepath.Join(b.place.HermesHome, "outside")
			b.hermes("outside/file", "ours")
			b.open()
			b.session("").want(`cd ~/.hermes/cache/documents && mkfifo pipe && ln -s /etc/passwd link && mkdir made && echo made > made/file && chmod 755 made/file &&
mkdir -p ../../outside && echo theirs > ../../outside/file && ln -s ../../outside there && echo bad > ~/.hermes/skills/a && rm -f old && ln -s ../../outside/file old
bash -c 'exec 2>/dev/null; coproc python3 -c "import socket; socket.socket(1).bind(\"socket\")"; wait'; ls made`, "file\n")
			b.close()
			b.hermesIs("cache/documents/made/file", "made\n")
			b.hermesIs("cache/documents/old", "old")
			b.hermesIs("outside/file", "ours")
			b.hermesIs("skills/a", "skill")
			entries, err := os.ReadDir(outside)
			if err != nil || len(entries) != 1 {
				t.Errorf("outside there are %v, %v", entries, err)
			}
			for _, name := range []string{"pipe", "link", "there", "socket"} {
				if _, err := os.Lstat(filepath.Join(b.place.HermesHome, "cache", "documents", name)); err == nil {
					t.Errorf("%s came back", name)
				}
			}
			if st, err := os.Stat(filepath.Join(b.place.HermesHome, "cache", "documents", "made", "file")); err == nil && st.Mode().Perm()&0o111 != 0 {
				t.Errorf("what came back may be run: %v", st.Mode())
			}
		}},
	}}
}

// heeds is the inapt of cases about a setting that not every backend has.
func heeds(key string) func(h *Harness) string {
	return func(h *Harness) string {
		rows, err := config.Table([]driver.Backend{h.Backend})
		if err != nil {
			return ""
		}
		for _, row := range rows {
			if row.Key == key && (len(row.Backends) == 0 || slices.Contains(row.Backends, h.Backend.Name)) {
				return ""
			}
		}
		return "the setting " + key + " is none of the backend's"
	}
}

// hermes writes a file of HERMES_HOME on this machine.
func (b *box) hermes(name, text string) {
	b.t.Helper()
	perm := os.FileMode(0o644)
	if strings.HasPrefix(name, "keys/") {
		perm = 0o600
	}
	writeHere(b.t, filepath.Join(b.place.HermesHome, name), text, perm)
}

// hermesIs expects a file of HERMES_HOME with this text; "" is no file.
func (b *box) hermesIs(name, want string) {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.place.HermesHome, name))
	if want == "" && os.IsNotExist(err) {
		return
	}
	if err != nil || string(text) != want {
		b.t.Errorf("%s is %q here (%v), want %q", name, text, err, want)
	}
}

func hermesNames(t *test) {
	b := t.place(boxSpec{Settings: map[string]string{"credential_files": `["keys/a; touch drivertest-pwned #"]`}})
	names := append(slices.Clone(fileNames), "a; touch drivertest-pwned #", "-rf", "$(touch drivertest-pwned)", "`touch drivertest-pwned`", "empty")
	var all []string
	add := func(name, text string) {
		b.hermes(name, text)
		all = append(all, fmt.Sprintf("./%s=%s\n", name, text))
	}
	for i, name := range names {
		text := "of " + name
		if name == "empty" {
			text = ""
		}
		add("skills/"+name+"/"+name, text)
		add(fmt.Sprintf("cache/documents/%s.%d", name[:min(len(name), 100)], i), text)
	}
	add("keys/a; touch drivertest-pwned #", "secret")
	slices.Sort(all)
	b.open()
	s := b.session("")
	const list = `cd ~/.hermes && find . -type f -print0 | LC_ALL=C sort -z | while IFS= read -r -d '' f; do printf '%s=' "$f"; cat -- "$f"; printf '\n'; done`
	r := s.run(list).code(0)
	if got := string(r.Output); got != strings.Join(all, "") {
		r.fail("there are\n%q, want\n%q", got, strings.Join(all, ""))
	}
	s.want(`find ~ /tmp /workspace -name 'drivertest-pwned*' 2>/dev/null; ls -d /drivertest-pwned* 2>/dev/null; :`, "")
	b.session("").job(`cat ~/.hermes/keys/*`, elsewhere.JobOptions{}).over(elsewhere.JobExited, 0)
}
