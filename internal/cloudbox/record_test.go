package cloudbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	if own := r.ReadNotes().Own; strings.Join(own, " ") != "old newer" {
		t.Errorf("the notes are %q", own)
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
