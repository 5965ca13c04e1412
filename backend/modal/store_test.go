package modal

import (
	"slices"
	"testing"
	"time"
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
			old, other, err := s.put(t.Context(), id, of(at))
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
