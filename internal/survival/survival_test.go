package survival_test

import (
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/internal/survival"
)

func TestEveryBackendHasAWholeTable(t *testing.T) {
	for _, b := range all.Backends() {
		table := survival.Of(b.Name)
		if table == nil {
			t.Errorf("%s has no table", b.Name)
			continue
		}
		for _, event := range survival.Events() {
			if table.Events[event] == "" {
				t.Errorf("%s does not say how %q is made, or why there is none", b.Name, event)
			}
			for _, thing := range survival.Things() {
				table.Cell(thing, event) // panics where it says nothing
			}
		}
	}
}
