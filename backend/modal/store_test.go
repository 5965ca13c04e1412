package modal

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
)

func TestTheLaterOfTwoStoredStatesIsRemembered(t *testing.T) {
	const key = "direct:web"
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	of := func(at time.Time) snapshot { return snapshot{Key: key, Name: "box", Task: "web", At: at} }
	for name, order := range map[string][]string{"in order": {"im-early", "im-late"}, "the other way round": {"im-late", "im-early"}} {
		s := newStore(t.TempDir())
		var gone []string
		for _, id := range order {
			at := early
			if id == "im-late" {
				at = late
			}
			old, other, err := s.put(t.Context(), id, of(at), nil) // neither knew of the other
			if err != nil || other != "" {
				t.Fatalf("%s: %q, %v", name, other, err)
			}
			gone = append(gone, old...)
		}
		if id, _, noted, err := s.find(key); err != nil || id != "im-late" || !noted {
			t.Errorf("%s: %q, %v", name, id, err)
		}
		if !slices.Equal(gone, []string{"im-early"}) {
			t.Errorf("%s: to be removed are %q", name, gone)
		}
	}
}

// TestWhatHasAnotherFormIsNotReplaced stores files where the record has something that is no id: a later Hermes' form.
func TestWhatHasAnotherFormIsNotReplaced(t *testing.T) {
	const key, form = "direct:web", `{"image":"im-hermes"}`
	for _, at := range []string{key, "web"} {
		s := newStore(t.TempDir())
		if err := s.Change(t.Context(), func(table cloudbox.Table, _ *notes) bool { table[at] = []byte(form); return true }); err != nil {
			t.Fatal(err)
		}
		if other, err := s.others(key, "box"); err != nil || strings.Join(strings.Fields(other), "") != form {
			t.Errorf("%s: %q, %v", at, other, err)
		}
		_, other, err := s.put(t.Context(), "im-own", snapshot{Key: key, Name: "box", Task: "web", At: time.Unix(1000, 0)}, nil)
		if err != nil || strings.Join(strings.Fields(other), "") != form {
			t.Errorf("%s: %q, %v", at, other, err)
		}
		table, err := s.Read()
		if err != nil || strings.Join(strings.Fields(string(table[at])), "") != form || len(table) != 1 {
			t.Errorf("%s: the record is %s, %v", at, table, err)
		}
		if id, _, noted, err := s.find(key); err != nil || id != "im-own" || !noted {
			t.Errorf("%s: %q, %v", at, id, err)
		}
	}
}

// TestAClockThatWentBackLosesNothing stores a state whose time is before that of the one it was made from.
func TestAClockThatWentBackLosesNothing(t *testing.T) {
	const key = "direct:web"
	of := func(seconds int64) snapshot {
		return snapshot{Key: key, Name: "box", Task: "web", At: time.Unix(seconds, 0)}
	}
	for _, beside := range []bool{false, true} {
		s := newStore(t.TempDir())
		if beside { // Hermes has stored something meanwhile
			if err := s.Change(t.Context(), func(table cloudbox.Table, _ *notes) bool { table.Set(key, "im-hermes"); return true }); err != nil {
				t.Fatal(err)
			}
		}
		for _, one := range []struct {
			id, gone string
			at       int64
		}{{"im-first", "", 2000}, {"im-second", "im-first", 1000}, {"im-third", "im-second", 1500}} {
			known, err := s.known(key)
			if err != nil {
				t.Fatal(err)
			}
			old, _, err := s.put(t.Context(), one.id, of(one.at), known)
			if err != nil || strings.Join(old, " ") != one.gone {
				t.Errorf("%s, beside %v: to be removed are %q, %v", one.id, beside, old, err)
			}
			if id, _, _, err := s.find(key); err != nil || id != one.id {
				t.Errorf("%s, beside %v: remembered is %q, %v", one.id, beside, id, err)
			}
			if err := s.forget(t.Context(), old); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTheLastStateIsFoundWhileAnOldOneIsThere has nobody remove what was stored before: its image could not be deleted, or a KILL came.
func TestTheLastStateIsFoundWhileAnOldOneIsThere(t *testing.T) {
	const key = "direct:web"
	s := newStore(t.TempDir())
	record := func(id string) {
		t.Helper()
		err := s.Change(t.Context(), func(table cloudbox.Table, _ *notes) bool {
			if table.Set(key, id); id == "" {
				delete(table, key)
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(id, gone string) {
		t.Helper()
		known, err := s.known(key)
		if err != nil {
			t.Fatal(err)
		}
		old, _, err := s.put(t.Context(), id, snapshot{Key: key, Name: "box", Task: "web", At: time.Now()}, known)
		if slices.Sort(old); err != nil || strings.Join(old, " ") != gone {
			t.Errorf("%s: to be removed are %q, %v", id, old, err)
		}
		if found, _, _, err := s.find(key); err != nil || found != id {
			t.Errorf("%q is found where %q was stored last, %v", found, id, err)
		}
	}
	record("im-hermes")
	put("im-first", "") // beside what Hermes stored
	record("")          // which Hermes gives up
	put("im-second", "im-first")
	put("im-third", "im-first im-second")
}
