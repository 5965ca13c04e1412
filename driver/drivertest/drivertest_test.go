package drivertest

import (
	"context"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/driver"
)

func TestEveryCaseHasANameOfItsOwnThatCanBeChosen(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range groups() {
		if g.name == "" || strings.ContainsAny(g.name, "/") || len(g.cases) == 0 {
			t.Errorf("group %q has no name that -run can choose, or no cases", g.name)
		}
		for _, c := range g.cases {
			name := g.name + "/" + c.name
			if seen[name] {
				t.Errorf("there are two cases %q", name)
			}
			seen[name] = true
			if strings.Contains(c.name, "/") || strings.TrimSpace(c.name) != c.name || c.run == nil {
				t.Errorf("case %q cannot be chosen or run", name)
			}
		}
	}
}

// The rows of the public bug reports that a suite over any backend can hold. Those of one backend alone, of files, jobs, the
// command line and the agent's tool are tested where they belong.
func TestEveryPublicBugReportThatCanApplyIsACase(t *testing.T) {
	for _, id := range strings.Fields("C01 C03 C04 C05 C07 C08 C09 C10 C13 C14 C15 C16 C17 C18 C19 C20 P02 P05 P06 L01 L08 L09 L11 L12 " +
		"U01 U03 U07 U08 U09 U10 B01 B02 B03 B08 X01 X03 X04 X05 X06 X07 D11 D12 G01 N02 N04 N08 N09") {
		found := false
		for _, g := range groups() {
			for _, c := range g.cases {
				found = found || strings.HasPrefix(c.name, id+" ") || strings.Contains(c.name, ": "+id+" ")
			}
		}
		if !found {
			t.Errorf("no case stems from %s", id)
		}
	}
}

func TestADeclarationWithoutReasonOrWithoutCaseIsAnError(t *testing.T) {
	open := func(context.Context, driver.OpenRequest) (driver.Sandbox, error) { return nil, nil }
	good := Harness{Backend: driver.Backend{Name: "x", Open: open}, Place: func(testing.TB, PlaceSpec) *Place { return nil }}
	with := func(change func(*Harness)) *Harness {
		h := good
		change(&h)
		return &h
	}
	for name, h := range map[string]*Harness{
		"nil":                nil,
		"no backend":         with(func(h *Harness) { h.Backend.Open = nil }),
		"no place":           with(func(h *Harness) { h.Place = nil }),
		"a lack unexplained": with(func(h *Harness) { h.Lacks = map[Need]string{NeedLose: " "} }),
		"a skip unexplained": with(func(h *Harness) { h.Skip = map[string]string{"X05": ""} }),
		"a skip of nothing":  with(func(h *Harness) { h.Skip = map[string]string{"X99": "no such case"} }),
	} {
		if checkHarness(h) == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, key := range []string{"X05", "C01", "state/an exported variable reaches the next call", "an exported variable reaches the next call"} {
		if err := checkHarness(with(func(h *Harness) { h.Skip = map[string]string{key: "a reason"} })); err != nil {
			t.Error(err)
		}
	}
}

func TestTheTraceOfAnEvaluatedTextIsBroughtBackToThatOfBash(t *testing.T) {
	if got := oneLessTraced("++ a\n+ b\n\n<<1> c\nx\n"); got != "+ a\n+ b\n\n<1> c\nx\n" {
		t.Errorf("got %q", got)
	}
}
