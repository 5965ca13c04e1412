package all_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/backend/all"
)

func TestAllSevenBackendsAreThereWithTheirNames(t *testing.T) {
	var names []string
	for _, b := range all.Backends() {
		names = append(names, b.Name)
		if b.Summary == "" || len(b.Settings) == 0 {
			t.Errorf("%s has no summary or no settings", b.Name)
		}
		names = append(names, b.Aliases...)
	}
	want := strings.Fields("local docker singularity apptainer ssh modal daytona vercel vercel_sandbox")
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}
