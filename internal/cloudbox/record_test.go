package cloudbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

type someNotes struct{ Own []string }

func TestWhatHermesWritesDuringAChangeIsSeen(t *testing.T) {
	r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
	hermes := func(text string) {
		t.Helper()
		if err := os.WriteFile(r.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hermes(`{"web": "old", "other": "kept"}`)
	calls := 0
	err := r.Change(t.Context(), func(table Table, n *someNotes) bool {
		if calls++; calls == 1 {
			hermes(`{"web": "newer", "other": "kept", "third": {"odd": 1}}`)
		} else if table.Of("web") != "newer" {
			t.Errorf("call %d sees %s", calls, table["web"])
		}
		n.Own = append(n.Own, table.Of("web"))
		table.Set("mine", "own")
		return true
	})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	table, err := r.Read()
	if err != nil || len(table) != 4 || table.Of("web") != "newer" || table.Of("other") != "kept" || table.Of("mine") != "own" || table["third"] == nil {
		t.Errorf("%s, %v", table, err)
	}
	if n, err := r.ReadNotes(); err != nil || strings.Join(n.Own, " ") != "old newer" {
		t.Errorf("the notes are %q, %v", n.Own, err)
	}
}

func TestALinkStaysOneAndWhatHasAnotherFormIsKnown(t *testing.T) {
	r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
	real := filepath.Join(t.TempDir(), "shared.json")
	if err := os.WriteFile(real, []byte(`{"odd": {"image": "im-1"}, "five": 5, "none": null, "empty": "", "web": "old"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, r.file()); err != nil {
		t.Fatal(err)
	}
	err := r.Change(t.Context(), func(table Table, _ *someNotes) bool {
		for key, want := range map[string]string{"odd": `{"image": "im-1"}`, "five": "5", "none": "", "empty": "", "web": "", "nobody": ""} {
			if got := table.Odd(key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		table.Set("web", "new")
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(r.file()); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the record is no link any more: %v %v", st, err)
	}
	if text, err := os.ReadFile(real); err != nil || !strings.Contains(string(text), `"web": "new"`) || !strings.Contains(string(text), `"im-1"`) {
		t.Errorf("%s %v", text, err)
	}
}

func TestATokenIsOneWord(t *testing.T) {
	for token, word := range map[string]string{"": "", "dtn_Aa0._-=~": "", "secret\n": "line break", "\tsecret": "blank", "sec ret": "blank", "secret\x00": "0x00", "secret\xff": "0xff"} {
		err := CheckToken(token, "SOME_KEY")
		if (err == nil) != (word == "") || err != nil && (!strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "SOME_KEY") || strings.Contains(err.Error(), "secret") || kinderr.Of(err) != driver.KindConfig) {
			t.Errorf("%q: %v", token, err)
		}
	}
}

func TestARecordThatIsBeingWrittenIsWaitedForAndABrokenOneIsLeft(t *testing.T) {
	r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
	const half, whole = `{"web": "o`, `{"web": "old"}`
	if err := os.WriteFile(r.file(), []byte(half), 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(3 * halfPoll)
		_ = os.WriteFile(r.file(), []byte(whole), 0o600)
	}()
	if table, err := r.Read(); err != nil || table.Of("web") != "old" {
		t.Errorf("%s, %v", table, err)
	}
	if err := os.WriteFile(r.file(), []byte(half), 0o600); err != nil {
		t.Fatal(err)
	}
	err := r.Change(t.Context(), func(table Table, _ *someNotes) bool { table.Set("web", "new"); return true })
	if err == nil || !strings.Contains(err.Error(), "snapshots.json") {
		t.Errorf("a broken record: %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(r.Home, "snapshots.json")); string(text) != half {
		t.Errorf("it is %q now", text)
	}
}

// TestWhatCannotBeReadIsNotTakenForEmpty has a directory in a file's place: that also root cannot read.
func TestWhatCannotBeReadIsNotTakenForEmpty(t *testing.T) {
	change := func(r Record[someNotes]) error {
		return r.Change(t.Context(), func(table Table, n *someNotes) bool {
			table.Set("web", "new")
			n.Own = []string{"new"}
			return true
		})
	}
	t.Run("the record", func(t *testing.T) {
		r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
		if err := os.Mkdir(r.file(), 0o700); err != nil {
			t.Fatal(err)
		}
		if table, err := r.Read(); err == nil || !strings.Contains(err.Error(), r.file()) {
			t.Errorf("%v, %v", table, err)
		}
		if err := change(r); err == nil {
			t.Error("it was changed")
		}
		if _, err := os.Stat(r.notes()); err == nil {
			t.Error("its notes were written")
		}
	})
	t.Run("the notes", func(t *testing.T) {
		r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
		if n, err := r.ReadNotes(); err != nil || n.Own != nil {
			t.Errorf("where there are none: %v, %v", n, err)
		}
		if err := os.MkdirAll(r.notes(), 0o700); err != nil {
			t.Fatal(err)
		}
		if n, err := r.ReadNotes(); err == nil || !strings.Contains(err.Error(), r.notes()) {
			t.Errorf("%v, %v", n, err)
		}
		if err := change(r); err == nil || !strings.Contains(err.Error(), "notes") {
			t.Errorf("it was changed: %v", err)
		}
		if _, err := os.Stat(r.file()); err == nil {
			t.Error("the record was written")
		}
	})
	t.Run("broken notes", func(t *testing.T) {
		r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
		if err := change(r); err != nil {
			t.Fatal(err)
		}
		const broken = `{"Own": ["o`
		if err := os.WriteFile(r.notes(), []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := change(r); err == nil {
			t.Error("they were changed")
		}
		if text, err := os.ReadFile(r.notes()); string(text) != broken {
			t.Errorf("they are %q now, %v", text, err)
		}
	})
	t.Run("blank files", func(t *testing.T) {
		r := Record[someNotes]{Home: t.TempDir(), File: "snapshots.json", Name: "cloud"}
		if err := os.MkdirAll(filepath.Dir(r.notes()), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{r.file(), r.notes()} {
			if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if table, err := r.Read(); err != nil || len(table) != 0 {
			t.Errorf("%v, %v", table, err)
		}
		if err := change(r); err != nil {
			t.Error(err)
		}
	})
}
