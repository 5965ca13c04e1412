package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const childPath, childName = "ELSEWHERE_AUDIT_TEST_PATH", "ELSEWHERE_AUDIT_TEST_NAME"

const childRecords = 150

// TestMain is also the other process of TestManyProcessesLoseNoLine.
func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		os.Exit(child(path, os.Getenv(childName)))
	}
	goleak.VerifyTestMain(m)
}

func child(path, name string) int {
	log, err := Open(path, &Options{MaxBytes: 20_000, Keep: 50})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer log.Close()
	for i := range childRecords {
		if err := log.Write(Record{ID: name + "-" + strconv.Itoa(i), Command: strings.Repeat("x", 200)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func TestRecordIsOneLineOfJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "home", "elsewhere", "audit.jsonl")
	now := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("", 3600))
	log := open(t, path, &Options{Now: func() time.Time { return now }, Secrets: []string{"plainword"}})
	code := 1
	write(t, log, Record{
		ID: "c1", Backend: "docker", Where: Where{"h", "s1", "root"}, Task: "default", Session: "dev", Policy: "not checked",
		Cause: "exited", ExitCode: &code, Bytes: 12, Duration: 1500 * time.Millisecond,
		Command: "cd /x && TOKEN=hunter22 ./deploy plainword <a >b\n",
	})
	write(t, log, Record{ID: "c2", Time: now.Add(time.Hour), Cause: "lost", Command: "a\nb\xff"})
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"time":"2026-01-02T02:04:05.006Z","id":"c1","backend":"docker","where":{"host":"h","sandbox_id":"s1","user":"root"},` +
		`"task":"default","session":"dev","policy":"not checked","cause":"exited","exit_code":1,"bytes":12,"duration_ms":1500,` +
		`"command":"cd /x && TOKEN=[redacted] ./deploy [redacted] <a >b"}` + "\n" +
		`{"time":"2026-01-02T03:04:05.006Z","id":"c2","backend":"","where":{"host":"","sandbox_id":"","user":""},` +
		`"task":"","policy":"","cause":"lost","exit_code":null,"bytes":0,"duration_ms":0,"command":"a\nb` + "\ufffd" + `"}` + "\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	wantMode(t, path, 0o600)
	wantMode(t, filepath.Dir(path), 0o700)
}

func TestCommandIsCut(t *testing.T) {
	for _, tc := range []struct {
		name, command, secret string
		cut                   bool
	}{
		{"a command at the limit is whole", strings.Repeat("x", maxCommand), "", false},
		{"a longer one is cut", strings.Repeat("x", maxCommand+1), "", true},
		{"a secret at the cut is masked before", strings.Repeat("x", maxCommand-10) + " TOKEN=hunter22hunter22", "hunter", true},
		{"a character at the cut is no invalid UTF-8", strings.Repeat("x", maxCommand-1) + "é", "", true},
		{"a huge command is cut too", strings.Repeat("PASSWORD='x' ", 1<<17), "", true},
		{
			"a secret at the cut before the search is left out", "TOKEN='" + strings.Repeat("x", maxRedact-25) + "' ghp_" +
				strings.Repeat("aB3dE6", 6), "aB3d", true,
		},
		{"a quote that the cut opens hides the rest", "TOKEN='" + strings.Repeat("hunter ", 1<<15) + "'", "hunter", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			log := open(t, path, nil)
			write(t, log, Record{Command: tc.command, Task: strings.Repeat("t", 1<<20)})
			got := read(t, path)
			if len(got) != 1 {
				t.Fatalf("%d records", len(got))
			}
			command := got[0].Command
			if len(command) > maxCommand+utf8.UTFMax || got[0].Cut != tc.cut || !utf8.ValidString(command) {
				t.Errorf("%d bytes, cut %v", len(command), got[0].Cut)
			}
			if tc.secret != "" && strings.Contains(command, tc.secret) {
				t.Error("the secret is there")
			}
			if len(got[0].Task) != maxField {
				t.Errorf("the task has %d bytes", len(got[0].Task))
			}
		})
	}
}

func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path, &Options{MaxBytes: 1000, Keep: 3})
	for i := range 40 { // some 250 bytes each
		write(t, log, Record{ID: strconv.Itoa(i), Command: strings.Repeat("x", 50)})
	}
	var ids []string
	for _, suffix := range []string{".3", ".2", ".1", ""} {
		info, err := os.Lstat(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 1000 || info.Size() == 0 {
			t.Errorf("audit.jsonl%s has %d bytes", suffix, info.Size())
		}
		wantMode(t, path+suffix, 0o600)
		for _, r := range read(t, path+suffix) {
			ids = append(ids, r.ID)
		}
	}
	// The newest are there, in their order, without a gap.
	for i, id := range ids {
		if want := strconv.Itoa(40 - len(ids) + i); id != want {
			t.Fatalf("record %d is %s, want %s", i, id, want)
		}
	}
	if _, err := os.Lstat(path + ".4"); err == nil {
		t.Error("a fourth file was kept")
	}
}

func TestAFileThatAnotherProcessRotatedIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path, nil)
	write(t, log, Record{ID: "1"})
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, log, Record{ID: "2"})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, log, Record{ID: "3"})
	if a, b := read(t, path+".1"), read(t, path); len(a) != 1 || len(b) != 1 || a[0].ID != "1" || b[0].ID != "3" {
		t.Errorf("old %v, new %v", a, b)
	}
}

func TestManyProcessesLoseNoLine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "elsewhere", "audit.jsonl")
	const processes = 4
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), childPath+"="+path, childName+"="+strconv.Itoa(i))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v\n%s", i, err, out)
			}
		})
	}
	group.Wait()
	files, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	rotated := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".lock") {
			continue
		}
		rotated++
		for _, r := range read(t, file) {
			seen[r.ID]++
		}
	}
	if rotated < 3 {
		t.Errorf("only %d files: nothing was rotated", rotated)
	}
	for i := range processes {
		for j := range childRecords {
			if id := fmt.Sprintf("%d-%d", i, j); seen[id] != 1 {
				t.Errorf("record %s is there %d times", id, seen[id])
			}
		}
	}
}

func TestConcurrentWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path, nil)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 20 {
				if err := log.Write(Record{Command: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := len(read(t, path)); n != 160 {
		t.Errorf("%d records", n)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(path string) error
	}{
		{"a symbolic link in the file's place", func(path string) error {
			if err := os.WriteFile(path+".other", nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".other", path)
		}},
		{"a symbolic link that leads nowhere", func(path string) error { return os.Symlink("nowhere", path) }},
		{"a directory in the file's place", func(path string) error { return os.Mkdir(path, 0o700) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "audit.jsonl")
			if err := tc.prepare(path); err != nil {
				t.Fatal(err)
			}
			if log, err := Open(path, nil); err == nil {
				log.Close()
				t.Error("it was opened")
			}
			if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
				t.Error("the link's target was made")
			}
		})
	}
}

func TestAFailingDiskIsReportedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path, nil)
	// A directory in the file's place is what every user, root too, fails on.
	fail := func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	fail()
	if err := log.Write(Record{ID: "1"}); err == nil {
		t.Fatal("the first failure was not reported")
	}
	for range 3 {
		write(t, log, Record{ID: "2"})
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, log, Record{ID: "3"})
	if got := read(t, path); len(got) != 1 || got[0].ID != "3" {
		t.Errorf("records %v", got)
	}
	fail()
	if err := log.Write(Record{ID: "4"}); err == nil {
		t.Error("a new failure was not reported")
	}
}

func TestATornLineDoesNotSpoilTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log := open(t, path, nil)
	if _, err := log.file.WriteString(`{"id":"half`); err != nil { // as a full disk leaves it
		t.Fatal(err)
	}
	log.torn = true
	write(t, log, Record{ID: "whole"})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], `"id":"whole"`) {
		t.Errorf("%q", lines)
	}
}

func TestNilAndClosed(t *testing.T) {
	var none *Log
	if err := errors.Join(none.Write(Record{}), none.Close()); err != nil {
		t.Error(err)
	}
	log := open(t, filepath.Join(t.TempDir(), "audit.jsonl"), nil)
	if err := errors.Join(log.Close(), log.Close()); err != nil {
		t.Error(err)
	}
	if err := log.Write(Record{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func BenchmarkWrite(b *testing.B) {
	log, err := Open(filepath.Join(b.TempDir(), "audit.jsonl"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	r := Record{ID: "c", Backend: "local", Command: "cd /x && cat file | grep 'a b' > out"}
	for b.Loop() {
		if err := log.Write(r); err != nil {
			b.Fatal(err)
		}
	}
}

func open(t *testing.T, path string, opts *Options) *Log {
	t.Helper()
	log, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func write(t *testing.T, log *Log, r Record) {
	t.Helper()
	if err := log.Write(r); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []line {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var list []line
	s := bufio.NewScanner(file)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%s: %q: %v", filepath.Base(path), s.Text(), err)
		}
		list = append(list, l)
	}
	return list
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != want {
		t.Errorf("%s has mode %v", filepath.Base(path), info.Mode().Perm())
	}
}
